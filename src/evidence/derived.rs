//! Tables for people, made from the frames of an archive: they show nothing that the frames do not.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ktsu_ledger::Event;
use ktsu_ledger::event::AgentEvent;
use serde_json::Value;

use super::archive::Placed;

/// The most rows of the timeline: what a browser still shows at once.
const ROWS: usize = 10_000;

/// What model calls cost, per stream.
pub(super) fn costs(frames: &[Placed]) -> String {
    let mut sums: BTreeMap<&str, [u64; 4]> = BTreeMap::new();
    for placed in frames {
        if let Event::Agent(AgentEvent::Response(response)) = &placed.frame.event {
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

/// Who changed what: forks, overlays, resumptions, with the person and how we know them.
pub(super) fn changes(frames: &[Placed]) -> String {
    let mut text = "position,stream,seq,at,type,by,auth,what,reason\n".to_owned();
    for Placed { position, frame } in frames {
        let kind = frame.event.kind();
        if !matches!(
            kind,
            "branch.created" | "run.resumed" | "overlay.set" | "step.reset"
        ) {
            continue;
        }
        let data = frame.event.data();
        let word = |path: &str| cell(data.pointer(path));
        let what = ["/parent_run_id", "/from", "/step"].map(word).join(" ");
        let (by, auth, reason) = (word("/by/id"), word("/by/auth"), word("/reason"));
        let (stream, seq, at) = (&frame.stream, frame.seq, frame.at);
        let what = what.trim();
        let _ = writeln!(
            text,
            "{position},{stream},{seq},{at},{kind},{by},{auth},{what},{reason}"
        );
    }
    text
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
pub(super) fn timeline(frames: &[Placed]) -> String {
    let mut text = "<!doctype html>\n<meta charset=\"utf-8\">\n<title>Timeline</title>\n\
                    <style>body{font:14px sans-serif}td{padding:2px 8px}</style>\n\
                    <p>Made from frames.jsonl; it can be made again at any time.</p>\n<table>\n\
                    <tr><th>position<th>at<th>stream<th>seq<th>type<th>scope<th>actor</tr>\n"
        .to_owned();
    for Placed { position, frame } in frames.iter().take(ROWS) {
        let kind = escaped(frame.event.kind());
        let (scope, actor) = (escaped(&frame.scope), escaped(&frame.actor.to_string()));
        let (at, stream, seq) = (frame.at, &frame.stream, frame.seq);
        let _ = writeln!(
            text,
            "<tr><td>{position}<td>{at}<td>{stream}<td>{seq}<td>{kind}<td>{scope}<td>{actor}</tr>"
        );
    }
    text.push_str("</table>\n");
    if frames.len() > ROWS {
        let _ = writeln!(
            text,
            "<p>{} more frames are not shown.</p>",
            frames.len() - ROWS
        );
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}
