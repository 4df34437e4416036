//! `GET /runs/{id}/skeleton`.

use axum::Json;
use axum::extract::State;

use super::RunTarget;
use super::parameter::{Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery};
use crate::problems::run_error;
use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::skeleton::{self, RunSkeleton, USUAL_ITEMS};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

/// The most items of a step that an answer shows one by one.
const MAX_ITEMS: u64 = 10_000;

/// The query of a skeleton.
#[derive(Debug)]
pub(super) struct SkeletonQuery {
    items: usize,
}

impl QueryParameters for SkeletonQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "items",
        ParameterKind::Number(0..=MAX_ITEMS),
        "How many items of each step are shown one by one; 100 if absent. Of more, those are shown that did \
         not just complete, and the others are summed up.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let items = given.number("items");
        Ok(Self {
            items: items.map_or(USUAL_ITEMS, |items| {
                usize::try_from(items).unwrap_or(USUAL_ITEMS)
            }),
        })
    }
}

/// Steps, items and calls with their times, statuses and costs, without what was said.
#[utoipa::path(get, path = "/runs/{id}/skeleton",
    params(RunTarget, Query::<SkeletonQuery>),
    responses((status = 200, body = RunSkeleton)))]
pub(super) async fn skeleton(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    Query(wanted): Query<SkeletonQuery>,
) -> Result<Json<RunSkeleton>, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let read = ktsu_history::envelope_and_frames(reader, &run.stream)?;
            Ok::<_, RunReadError>(read.and_then(|(fold, frames)| {
                skeleton::skeleton(&fold, &frames, &run.scope, wanted.items)
            }))
        });
    let found = read.await.map_err(run_error)?;
    Ok(Json(found.ok_or(ErrorCode::RunNotFound)?))
}
