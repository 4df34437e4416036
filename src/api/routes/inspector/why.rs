//! `GET /inspector/runs/{id}/why`: the page of where a value came from, and of why a step did not run.

use axum::extract::State;
use axum::response::Response;
use ktsu_history::answer_rows::similar_step;
use ktsu_history::frame_page::is_within;
use ktsu_history::provenance::{self, TraceError, TracedRun};
use ktsu_history::why_not;
use ktsu_history::world_moment::loads_worlds;
use ktsu_inspector::{SignedIn, WhyAnswer, WhyPage};
use ktsu_ledger::store::Reader;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery, invalid};
use super::super::trace::too_much_work;
use super::super::{RunTarget, no_such_run};
use super::{answer, name_of, signed_in};
use crate::access::{Caller, TraceWork};
use crate::problems::run_error;

/// A question to a run.
#[derive(Debug)]
pub(in crate::routes) enum WhyQuery {
    Nothing,
    Of(String),
    Not(String),
}

/// Parameters that ask for different things: one of them at the most is given.
#[cfg(test)]
pub(in crate::routes) const EXCLUSIVE: [&str; 2] = ["of", "not"];

impl QueryParameters for WhyQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "of",
            ParameterKind::Text,
            "A field of the envelope (`params.x`, `step.triage.priority`, `output.x`), or of an object in the \
             run's world (`OBJECT.FIELD`): where it came from. Excludes `not`.",
        ),
        Parameter::new(
            "not",
            ParameterKind::Text,
            "A step or an item, as `id` or `call/id`: why it did not run, or is not done; or a responder: why \
             it did not react. Excludes `of`.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        match (given.owned("of"), given.owned("not")) {
            (Some(_), Some(_)) => Err(invalid("of and not exclude each other")),
            (Some(path), None) => Ok(Self::Of(path)),
            (None, Some(step)) => Ok(Self::Not(step)),
            (None, None) => Ok(Self::Nothing),
        }
    }
}

/// The page of where a value came from, or of why a step did not run, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}/why", params(RunTarget, Query::<WhyQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn why(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    TraceWork(most): TraceWork,
    run: RunTarget,
    Query(asked): Query<WhyQuery>,
) -> Result<Response, ProblemDetails> {
    let by = signed_in(&orchestrator, &caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            read_page(reader, &run, asked, by, most)
        });
    let page = read.await?;
    Ok(answer(ktsu_inspector::why_page(&page)))
}

fn read_page(
    reader: &dyn Reader,
    run: &RunTarget,
    asked: WhyQuery,
    by: SignedIn,
    most: u64,
) -> Result<WhyPage, ProblemDetails> {
    let mut page = WhyPage {
        by,
        run_id: name_of(run),
        has_world: run.scope.is_empty() && loads_worlds(reader, &run.stream).unwrap_or_default(),
        of: String::new(),
        not: String::new(),
        answer: None,
    };
    // The form alone needs no frame.
    if matches!(asked, WhyQuery::Nothing) && run.scope.is_empty() {
        return Ok(page);
    }
    let frames = ktsu_history::frames(reader, &run.stream)?;
    if !frames
        .iter()
        .any(|frame| is_within(&frame.scope, &run.scope))
    {
        return Err(no_such_run());
    }
    let traced = || TracedRun::of(&frames).map_err(run_error);
    match asked {
        WhyQuery::Nothing => {}
        WhyQuery::Of(path) => {
            let found = provenance::answer(&traced()?.limited_to(most), &run.scope, &path);
            page.answer = Some(match found {
                Ok(answer) => WhyAnswer::Origin(answer),
                Err(error) => refused(error, run, None),
            });
            page.of = path;
        }
        WhyQuery::Not(step) => {
            let found = why_not::why_not_of(&traced()?.limited_to(most), &run.scope, &step, None);
            page.answer = Some(match found {
                Ok(why) => WhyAnswer::WhyNot(why),
                Err(error) => refused(error, run, Some(&step)),
            });
            page.not = step;
        }
    }
    Ok(page)
}

fn refused(error: TraceError, run: &RunTarget, step: Option<&str>) -> WhyAnswer {
    match error {
        TraceError::NotFound(error) => WhyAnswer::NotFound {
            near: step.and_then(|step| similar_step(&error, step)),
            words: error.message,
            there: error.there,
        },
        TraceError::TooLarge => {
            let asked = match step {
                Some(_) => " --why-not STEP",
                None => " --of PATH",
            };
            let problem = too_much_work(run, "trace", asked);
            WhyAnswer::TooLarge {
                words: problem.detail,
                hint: problem.hint.unwrap_or_default(),
            }
        }
    }
}
