//! `GET /runs/{id}/steps/{step}`: one step, or one item of a fan-out (decision H1).

use axum::Json;
use axum::extract::State;

use super::paths::PathNames;
use super::query::{NoParameters, Query};
use super::runs::read_run;
use super::{StepPath, find_run, no_such_run, wire};
use crate::ids;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::Orchestrator;
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
    let read = read_run(&orchestrator, run.stream).await?;
    let read = read.ok_or_else(no_such_run)?;
    let fold = read.fold();
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
