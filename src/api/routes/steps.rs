//! `GET /runs/{id}/steps/{step}`: one step, or one item of a fan-out (decision H1).

use axum::Json;
use axum::extract::State;

use super::paths::PathNames;
use super::query::{NoParameters, Query};
use super::{StepPath, find_run, no_such_run, wire};
use crate::ids;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history as history;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

/// A step, as the envelope shows it, or one item of a fan-out.
#[utoipa::path(get, path = "/runs/{id}/steps/{step}",
    params(StepPath),
    responses((status = 200, body = wire::StepOrItem)))]
pub(super) async fn step(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    _: Query<NoParameters>,
) -> Result<Json<wire::StepOrItem>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let (name, item) = ids::step(&step).ok_or(ErrorCode::StepNotFound)?;
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            history::envelope(reader, &run.stream)
        })
        .await
        .map_err(problems::run_error)?;
    let fold = read.ok_or_else(no_such_run)?;
    let found = match item {
        None => fold
            .step(&run.scope, name)
            .map(|step| wire::StepOrItem::Step(Box::new(step))),
        Some(item) => fold
            .item(&run.scope, name, item)
            .map(|item| wire::StepOrItem::Item(Box::new(item))),
    };
    Ok(Json(found.ok_or(ErrorCode::StepNotFound)?))
}
