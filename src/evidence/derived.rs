//! Tables for people, derived from the frames of an archive: they show nothing that the frames do
//! not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ktsu_ledger::event::AgentEvent;
use ktsu_ledger::{Event, Frame};
use ktsu_projections::approvals::{ApprovalKind, ApprovalVote};
use ktsu_projections::person_requests::{PersonRequest, requests};
use serde_json::Value;

use super::archive::PositionedFrame;

/// The policy of the timeline for a browser: to show it, and nothing else.
const POLICY: &str = "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
                      style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'\">\n";

/// The most rows of the timeline: what a browser still shows at once.
const MAX_TIMELINE_ROWS: usize = 10_000;

/// All of them, by their names in an archive.
pub(super) fn files(frames: &[PositionedFrame]) -> [(&'static str, String); 5] {
    [
        ("derived/approvals.csv", approvals(frames)),
        ("derived/changes.csv", changes(frames)),
        ("derived/costs.csv", costs(frames)),
        ("derived/timeline.html", timeline(frames)),
        ("derived/tools.csv", tools(frames)),
    ]
}

/// A file as versions made it whose timeline had no policy for browsers.
pub(super) fn without_policy(text: &str) -> String {
    text.replacen(POLICY, "", 1)
}

/// The costs of model calls, per stream.
fn costs(frames: &[PositionedFrame]) -> String {
    let mut sums: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for placed in frames {
        if let Some(response) = placed.frame.event.response()
            && response.repeats.is_none()
        {
            let of_stream = sums.entry(placed.frame.stream.as_str()).or_default();
            let call = [
                1,
                response.tokens_in,
                response.tokens_out,
                response.cost_micro_usd,
            ];
            for (sum, more) in of_stream.iter_mut().zip(call) {
                *sum = sum.saturating_add(more);
            }
        }
    }
    let mut text = "stream,model_calls,tokens_in,tokens_out,cost_micro_usd\n".to_owned();
    for (stream, [calls, tokens_in, tokens_out, cost]) in sums {
        let _ = writeln!(text, "{stream},{calls},{tokens_in},{tokens_out},{cost}");
    }
    text
}

/// The changes by people: forks, overlays, what was replaced of outcomes, resumptions, what was
/// posted, and raised budgets, with the person and how we know them.
fn changes(frames: &[PositionedFrame]) -> String {
    let mut text = "position,stream,seq,at,type,by,auth,what,reason\n".to_owned();
    for PositionedFrame { position, frame } in frames {
        let kind = frame.event.kind();
        let data = frame.event.data();
        let word = |path: &str| cell(data.pointer(path));
        let what = match kind {
            "branch.created" | "run.resumed" | "overlay.set" | "step.reset" => {
                let what = ["/parent_run_id", "/from", "/step"].map(word).join(" ");
                what.trim().to_owned()
            }
            "budget.raised" => quoted(&raised(&data)),
            "review.decided" => match replaced(frame, &data) {
                Some(fields) => quoted(&[word("/step"), fields].join(" ")),
                None => continue,
            },
            _ if frame.event.posted().is_some() => quoted(&posted(&data)),
            _ => continue,
        };
        let (by, auth, reason) = (word("/by/id"), word("/by/auth"), word("/reason"));
        let (stream, seq, at) = (&frame.stream, frame.seq, frame.at);
        let kind = quoted(kind);
        let _ = writeln!(
            text,
            "{position},{stream},{seq},{at},{kind},{by},{auth},{what},{reason}"
        );
    }
    text
}

/// The limits that somebody raised.
fn raised(data: &Value) -> String {
    let limits = data.as_object().into_iter().flatten();
    let limits = limits.filter(|(name, _)| name.starts_with("max_"));
    let limits: Vec<String> = limits
        .map(|(name, limit)| format!("{name} {limit}"))
        .collect();
    limits.join(" ")
}

/// The fields of an output that the person replaced who decided on it.
fn replaced(frame: &Frame, data: &Value) -> Option<String> {
    let in_blob = frame.ext.iter().any(|one| one.path == "/overlay");
    let fields = data.get("overlay").and_then(Value::as_object);
    let fields: Vec<&str> = fields
        .into_iter()
        .flatten()
        .map(|(name, _)| name.as_str())
        .collect();
    (in_blob || !fields.is_empty()).then(|| fields.join(" "))
}

/// The post that an event is of, and what it is about.
fn posted(data: &Value) -> String {
    let post = data.pointer("/post/n").map(|n| format!("post {n}"));
    let names = ["/type", "/id"].map(|path| data.pointer(path).and_then(Value::as_str));
    let names = names.into_iter().flatten().map(str::to_owned);
    post.into_iter().chain(names).collect::<Vec<_>>().join(" ")
}

/// The approvals of calls and of outcomes: a line for each word of a person, and one for each
/// question without any.
fn approvals(frames: &[PositionedFrame]) -> String {
    let mut text =
        "stream,asked,approval_id,kind,step,server,tool,digest,proposer,status,executed,\
                    decided,decision,by,auth,independent,latency_ms,reason,scope\n"
            .to_owned();
    each_history(frames, &mut |own, history| {
        for record in requests(history.iter().copied()) {
            let stream = own.stream.as_str();
            let fresh = |frame: u64| frame >= own.seq;
            // Two children may have steps of the same name.
            let scope = record
                .run_id()
                .split_once('/')
                .map_or("", |(_, scope)| scope);
            let scope = quoted(scope);
            let mut line = |vote: Option<&ApprovalVote>| {
                let about = about(&record);
                let _ = write!(text, "{stream},{},{about},", record.request());
                let _ = match vote {
                    None => writeln!(text, ",,,,,,,{scope}"),
                    Some(vote) => {
                        let latency = vote.at.millis_since(record.created_at());
                        let (by, auth) = (quoted(&vote.by), quoted(&vote.auth));
                        let reason = vote.reason.as_deref().map_or_else(String::new, quoted);
                        let (frame, decision) = (vote.frame, &vote.decision);
                        let independent = vote.independent;
                        writeln!(
                            text,
                            "{frame},{decision},{by},{auth},{independent},{latency},{reason},{scope}"
                        )
                    }
                };
            };
            let told = record.votes().iter().filter(|vote| fresh(vote.frame));
            told.for_each(|vote| line(Some(vote)));
            if record.votes().is_empty() && fresh(record.request()) {
                line(None);
            }
        }
    });
    text
}

/// The subject of a question: the columns from its id to the frame that carried it out.
fn about(record: &PersonRequest) -> String {
    let (kind, call, proposer, executed) = match record {
        PersonRequest::Approval(asked) => {
            let call = [&asked.server, &asked.tool_name, &asked.digest].map(String::as_str);
            (as_str(asked.kind), call, &asked.proposer, asked.executed)
        }
        PersonRequest::Review(asked) => (asked.kind.as_str(), [""; 3], &asked.proposer, None),
        PersonRequest::Suspension(asked) => (asked.kind.as_str(), [""; 3], &asked.proposer, None),
    };
    let [server, tool, digest] = call;
    let words = [
        record.id(),
        kind,
        record.step_id(),
        server,
        tool,
        digest,
        proposer,
        record.status().as_str(),
    ];
    let words = words.map(quoted).join(",");
    let executed = executed.map_or_else(String::new, |it| it.to_string());
    format!("{words},{executed}")
}

fn as_str(kind: ApprovalKind) -> &'static str {
    match kind {
        ApprovalKind::Approval => "approval",
        ApprovalKind::InDoubt => "in_doubt",
    }
}

/// The tool calls, with their arguments, approvals and outcomes.
fn tools(frames: &[PositionedFrame]) -> String {
    let mut ends: BTreeMap<(&str, u64), (u64, String, String)> = BTreeMap::new();
    for PositionedFrame { frame, .. } in frames {
        let (called, outcome, duration) = match &frame.event {
            Event::Agent(AgentEvent::ToolReturned(it)) => {
                let outcome = if it.is_error { "error" } else { "result" };
                (it.called, outcome, it.duration_ms.to_string())
            }
            Event::Agent(AgentEvent::ToolInDoubt(it)) => {
                (Some(it.called), "in_doubt", String::new())
            }
            _ => continue,
        };
        if let Some(called) = called {
            let end = (frame.seq, outcome.to_owned(), duration);
            ends.insert((frame.stream.as_str(), called), end);
        }
    }
    let mut text = "position,stream,seq,at,scope,step,item,server,tool,digest,approval,again,\
                    outcome,answered,duration_ms\n"
        .to_owned();
    for PositionedFrame { position, frame } in frames {
        let Event::Agent(AgentEvent::ToolCalled(called)) = &frame.event else {
            continue;
        };
        let (stream, seq, at) = (&frame.stream, frame.seq, frame.at);
        let words = [&frame.scope, &called.step]
            .map(|one| quoted(one))
            .join(",");
        let number = |one: Option<u64>| one.map_or_else(String::new, |one| one.to_string());
        let item = number(called.item.map(u64::from));
        let names = [&called.server, &called.tool, &called.digest];
        let names = names.map(|one| quoted(one)).join(",");
        let (approval, again) = (number(called.approval), number(called.again));
        let (answered, outcome, duration) = match ends.get(&(stream.as_str(), seq)) {
            Some((answered, outcome, duration)) => {
                (answered.to_string(), outcome.as_str(), duration.as_str())
            }
            None => (String::new(), "none", ""),
        };
        let _ = writeln!(
            text,
            "{position},{stream},{seq},{at},{words},{item},{names},{approval},{again},\
             {outcome},{answered},{duration}"
        );
    }
    text
}

/// The runs and branches, each by the first frame of its own, with all that they share; one at a
/// time, since forks of forks share all that is before.
fn each_history<'f>(
    frames: &'f [PositionedFrame],
    take: &mut dyn FnMut(&'f Frame, Vec<&'f Frame>),
) {
    let mut streams: BTreeMap<&str, Vec<&Frame>> = BTreeMap::new();
    for PositionedFrame { frame, .. } in frames {
        streams
            .entry(frame.stream.as_str())
            .or_default()
            .push(frame);
    }
    for own in streams.values() {
        if let Some(first) = own.first().filter(|first| first.stream.kind() != "store")
            && let Some(whole) = whole(&streams, own)
        {
            take(first, whole);
        }
    }
}

/// The frames of a stream with those that it shares.
fn whole<'a>(
    streams: &BTreeMap<&str, Vec<&'a Frame>>,
    own: &[&'a Frame],
) -> Option<Vec<&'a Frame>> {
    let mut parts = vec![own.to_vec()];
    let mut first = *own.first()?;
    // Each step leads to a stream that began earlier.
    for _ in 0..streams.len() {
        let Some(branch) = first.event.branched() else {
            break;
        };
        let parent = branch.parent().ok()?;
        let shared = streams.get(parent.as_str())?.iter().copied();
        let shared: Vec<&Frame> = shared.filter(|it| it.seq < first.seq).collect();
        match shared.first() {
            Some(earlier) => first = earlier,
            None => break,
        }
        parts.push(shared);
    }
    Some(parts.into_iter().rev().flatten().collect())
}

fn quoted(text: &str) -> String {
    cell(Some(&Value::from(text)))
}

/// A value in a table: quoted where it must be, and never taken for a formula.
fn cell(value: Option<&Value>) -> String {
    let text = match value {
        None | Some(Value::Null) => return String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    };
    let plain = |one: char| one.is_alphanumeric() || "_.:-/ ".contains(one);
    if text.chars().all(plain) && !text.starts_with('-') {
        return text;
    }
    let text: String = text
        .chars()
        .map(|one| if one.is_control() { ' ' } else { one })
        .collect();
    format!("\"'{}\"", text.replace('"', "\"\""))
}

/// The frames in their order, for a browser; without scripts.
fn timeline(frames: &[PositionedFrame]) -> String {
    let mut text = "<!doctype html>\n<meta charset=\"utf-8\">\n".to_owned();
    text.push_str(POLICY);
    text.push_str(
        "<title>Timeline</title>\n\
                    <style>body{font:14px sans-serif}td{padding:2px 8px}</style>\n\
                    <p>Made from frames.jsonl; it can be made again at any time.</p>\n<table>\n\
                    <tr><th>position<th>at<th>stream<th>seq<th>type<th>scope<th>actor</tr>\n",
    );
    for PositionedFrame { position, frame } in frames.iter().take(MAX_TIMELINE_ROWS) {
        let kind = escaped(frame.event.kind());
        let (scope, actor) = (escaped(&frame.scope), escaped(&frame.actor.to_string()));
        let (at, stream, seq) = (frame.at, &frame.stream, frame.seq);
        let _ = writeln!(
            text,
            "<tr><td>{position}<td>{at}<td>{stream}<td>{seq}<td>{kind}<td>{scope}<td>{actor}</tr>"
        );
    }
    text.push_str("</table>\n");
    if frames.len() > MAX_TIMELINE_ROWS {
        let _ = writeln!(
            text,
            "<p>{} more frames are not shown.</p>",
            frames.len() - MAX_TIMELINE_ROWS
        );
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
