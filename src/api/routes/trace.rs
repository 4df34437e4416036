//! `GET /runs/{id}/trace`.

use axum::Json;
use axum::extract::State;
use axum::http::Method;
use ktsu_ledger::store::Reader;
use ktsu_projections::Lineage;
use serde_json::{Value, json as value};

use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery, invalid};
use super::{RecordTarget, RunTarget, policy, wire};
use crate::access::{Caller, TraceWork};
use crate::problems::run_error;
use ktsu_codes::ErrorCode;
use ktsu_history::frame_page::is_within;
use ktsu_history::provenance::{self, TraceError, TracedRun};
use ktsu_history::trace::{self, TraceFilter};
use ktsu_history::work_meter::{TooMuchWork, WorkMeter};
use ktsu_history::{self as history, webhooks, why_not};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

/// The query of a trace.
#[derive(Debug)]
pub(super) struct TraceQuery {
    frame: Option<u64>,
    direction: Option<String>,
    of: Option<String>,
    why_not: Option<String>,
    step: Option<String>,
    kind: Option<String>,
}

/// Parameters that ask for different things: one of them at the most is given.
#[cfg(test)]
pub(super) const EXCLUSIVE: [&str; 3] = ["frame", "of", "why_not"];
/// Parameters that choose from the tree, which none of those gives.
pub(super) const TREE_PARAMETERS: [&str; 2] = ["step", "type"];
/// A parameter, and the one it requires.
#[cfg(test)]
pub(super) const REQUIRED_TOGETHER: (&str, &str) = ("direction", "frame");

impl QueryParameters for TraceQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "frame",
            ParameterKind::Number(0..=MAX_NUMBER),
            "A frame: gives the way from it to the root instead of the tree. Neither `of` nor \
             `why_not` goes with it.",
        ),
        Parameter::new(
            "direction",
            ParameterKind::Words(&["ancestors", "descendants"]),
            "With `frame` alone: `ancestors` (the default), or `descendants` for what follows from it.",
        ),
        Parameter::new(
            "of",
            ParameterKind::Text,
            "A field of the envelope (`params.x`, `step.triage.priority`, `output.x`), or of an object in \
             the run's world (`OBJECT.FIELD`): where it came from. Neither `frame` nor `why_not` goes with it.",
        ),
        Parameter::new(
            "why_not",
            ParameterKind::Text,
            "A step, as `id` or `call/id`: why it did not run, or is not done; or a responder: why it did \
             not react. Neither `frame` nor `of` goes with it.",
        ),
        Parameter::new(
            "step",
            ParameterKind::Text,
            "Of the tree: only frames about this step. None of `frame`, `of` and `why_not` goes with it.",
        ),
        Parameter::new(
            "type",
            ParameterKind::Text,
            "Of the tree: only frames whose type begins like this. None of `frame`, `of` and `why_not` \
             goes with it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let of = Self {
            frame: given.number("frame"),
            direction: given.owned("direction"),
            of: given.owned("of"),
            why_not: given.owned("why_not"),
            step: given.owned("step"),
            kind: given.owned("type"),
        };
        let asked = [of.frame.is_some(), of.of.is_some(), of.why_not.is_some()];
        if asked.iter().filter(|one| **one).count() > 1 {
            let words = "frame, of and why_not exclude each other";
            return Err(invalid(words));
        }
        let chosen = TREE_PARAMETERS
            .into_iter()
            .find(|name| given.text(name).is_some());
        if let Some(name) = chosen.filter(|_| asked.contains(&true)) {
            let words = format!("{name} cannot be combined with frame, of or why_not");
            return Err(invalid(words));
        }
        if of.direction.is_some() && of.frame.is_none() {
            return Err(invalid("direction requires frame"));
        }
        Ok(of)
    }
}

/// The causal tree of a run, or everything one frame follows from.
#[utoipa::path(get, path = "/runs/{id}/trace",
    params(RecordTarget, Query::<TraceQuery>),
    responses((status = 200, body = wire::Trace)))]
pub(super) async fn trace(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    TraceWork(most): TraceWork,
    RecordTarget(run): RecordTarget,
    Query(of): Query<TraceQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    // Requests may contain parts of the definition, which not every reader may see.
    let frames = policy::of(&Method::GET, "/runs/{id}/frames");
    let with_requests = frames.is_some_and(|frames| caller.may(frames));
    // Folding a long run takes time, so it happens on a reader thread.
    let trace = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            read_trace(reader, &run, &of, (with_requests, most))
        })
        .await?;
    Ok(Json(value!(trace)))
}

fn read_trace(
    reader: &dyn Reader,
    run: &RunTarget,
    of: &TraceQuery,
    (with_requests, most): (bool, u64),
) -> Result<wire::Trace, ProblemDetails> {
    let asks_of_steps = of.of.is_some() || of.why_not.is_some() || of.step.is_some();
    if run.stream.is_eval() && asks_of_steps {
        return Err(invalid(
            "an eval has no steps: frame is all that can be asked for",
        ));
    }
    let mut meter = WorkMeter::limited_to(most);
    let over = |_: TooMuchWork| too_large(run, of);
    // Where values came from is counted as it is looked up.
    if of.of.is_none() && of.why_not.is_none() {
        let tail = reader.tail(&run.stream)?;
        let frames = tail.map_or(0, |tail| tail.seq.saturating_add(1));
        let work = frames.saturating_mul(trace::FRAME_WORK);
        meter.spend(work).map_err(over)?;
    }
    let frames = history::frames(reader, &run.stream)?;
    let scope = run.scope.as_str();
    let story = || {
        let traced = TracedRun::of(&frames).map_err(run_error)?;
        Ok::<_, ProblemDetails>(traced.limited_to(most))
    };
    let refused = |error: TraceError| refused(error, run, of);
    let mut trace = wire::Trace {
        run_id: run.stream.name().to_owned(),
        ..wire::Trace::default()
    };
    if let Some(path) = &of.of {
        let answer = provenance::answer(&story()?, scope, path);
        trace.origin = Some(answer.map_err(refused)?);
    } else if let Some(step) = &of.why_not {
        let answer = why_not::why_not_of(&story()?, scope, step, None);
        trace.why_not = Some(answer.map_err(refused)?);
    } else if let Some(seq) = of.frame {
        let chain = match of.direction.as_deref() {
            Some("descendants") => trace::descendants(&frames, seq),
            _ => trace::ancestors(&frames, seq),
        };
        let words = "the run has no such frame";
        let mut chain = chain.ok_or_else(|| ProblemDetails::new(ErrorCode::NotFound, words))?;
        trace::mark_missing_causes(reader, &mut chain)?;
        trace.chain = Some(chain);
        if with_requests {
            let request = webhooks::request_within(&frames, seq, &mut meter);
            trace.request = request.map_err(over)?;
        }
    } else {
        let filter = TraceFilter {
            step: of.step.clone(),
            kinds: of.kind.iter().cloned().collect(),
            ..TraceFilter::default()
        };
        let mut tree = trace::tree(&frames, scope, &filter, &mut meter).map_err(over)?;
        if with_requests {
            trace::attach_requests(&frames, &mut tree, &mut meter).map_err(over)?;
        }
        trace::mark_missing_causes(reader, tree.iter_mut().map(|placed| &mut placed.node))?;
        trace.tree = Some(tree);
        if let Some(step) = &of.step
            && !Lineage::from_frames(&frames)
                .nodes()
                .iter()
                .any(|node| is_within(&node.scope, scope) && trace::is_about(node, step))
        {
            // A step without frames may exist in the definition.
            let step = step.strip_prefix("step.").unwrap_or(step);
            let story = story()?;
            why_not::why_not(&story, "", step)
                .or_else(|_| why_not::why_not(&story, scope, step))
                .map_err(refused)?;
        }
    }
    Ok(trace)
}

/// The error for a field or a step that a run does not have, or for an answer that is too large. A 404
/// never repeats the name.
fn refused(error: TraceError, run: &RunTarget, of: &TraceQuery) -> ProblemDetails {
    let error = match error {
        TraceError::NotFound(error) => error,
        TraceError::TooLarge => return too_large(run, of),
    };
    let problem = ProblemDetails::new(ErrorCode::NotFound, error.unnamed);
    match error.there.is_empty() {
        true => problem,
        false => problem.with_hint(format!("the run has {}", error.there.join(", "))),
    }
}

/// The same for an answer that takes too much work, with the command that has no such bound.
fn too_large(run: &RunTarget, of: &TraceQuery) -> ProblemDetails {
    let asked = match (&of.of, &of.why_not, of.frame) {
        (Some(_), _, _) => " --of PATH".to_owned(),
        (None, Some(_), _) => " --why-not STEP".to_owned(),
        (None, None, Some(frame)) => format!(" {frame}"),
        (None, None, None) => String::new(),
    };
    too_much_work(run, "trace", &asked)
}

/// The error for an answer that takes too much work. The command line has no bound: it works on a
/// machine of its own.
pub(super) fn too_much_work(run: &RunTarget, command: &str, asked: &str) -> ProblemDetails {
    let words =
        "the answer takes more work than a request may cause; the command line has no such bound";
    let name = match run.scope.as_str() {
        "" => run.stream.name().to_owned(),
        scope => format!("{}/{scope}", run.stream.name()),
    };
    let hint = format!("where the ledger is: ktsu {command} {name}{asked}");
    ProblemDetails::new(ErrorCode::TraceTooLarge, words).with_hint(hint)
}
