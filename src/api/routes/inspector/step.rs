//! `GET /inspector/runs/{id}/steps/{step}`: the page of a step or an item.

use axum::extract::State;
use axum::response::Response;
use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::skeleton::RunSkeleton;
use ktsu_inspector::StepPage;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_projections::step_name::{StepName, path_in};
use ktsu_server::ProblemDetails;

use super::super::parameter::{Parameter, ParameterKind};
use super::super::paths::PathNames;
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::{StepPath, find_run, no_such_run};
use super::shown::{answer, closed, shown_step};
use super::{ALL_ITEMS, signed_in};
use crate::access::Caller;
use crate::problems::run_error;
use crate::run_cache::SharedRunCache;

/// The view of a step.
#[derive(Debug)]
pub(in crate::routes) struct StepPageQuery {
    all: String,
}

impl QueryParameters for StepPageQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "all",
        ParameterKind::Any,
        "The value that is shown whole, or `conversation`, as the links of the page have it.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            all: given.owned("all").unwrap_or_default(),
        })
    }
}

/// The page of a step, or of an item of a fan-out, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}/steps/{step}", operation_id = "step_page",
    params(StepPath, Query::<StepPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn step(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    SharedRunCache(cache): SharedRunCache,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(asked): Query<StepPageQuery>,
) -> Result<Response, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let path = path_in(&run.scope, &StepName::parse(&step).to_string());
    let by = signed_in(&orchestrator, &caller);
    let closed = closed(&caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let read = cache.folded(reader, &run.stream)?;
            Ok::<_, RunReadError>(read.map(|folded| {
                let content = shown_step(&folded.fold, &folded.frames, &path, closed)?;
                Some(StepPage {
                    by,
                    run: RunSkeleton::clone(&*folded.skeleton("", ALL_ITEMS)?),
                    path,
                    content,
                    all: asked.all,
                })
            }))
        });
    let page = read.await.map_err(run_error)?;
    let page = page.ok_or_else(no_such_run)?;
    let page = page.ok_or(ErrorCode::StepNotFound)?;
    Ok(answer(ktsu_inspector::step_page(&page)))
}
