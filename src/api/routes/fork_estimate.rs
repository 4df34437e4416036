//! `GET /runs/{id}/fork`: what a fork would ask models again, as a bound.

use axum::Json;
use axum::extract::State;
use ktsu_history::RunReadError;
use ktsu_history::fork_estimate::{self, ForkEstimate};
use ktsu_orchestrator::{CommandError, Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use ktsu_workflow::admit::intervention::{ForkPosition, fork_position, reject_recompute};

use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery};
use super::{RunTarget, no_such_run};
use crate::problems;
use ktsu_codes::ErrorCode;

/// Where a fork would be.
#[derive(Debug)]
pub(super) struct ForkEstimateQuery(ForkPosition);

impl QueryParameters for ForkEstimateQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "at_frame",
        ParameterKind::Number(0..=MAX_NUMBER),
        "The last frame that the branch would share; that of the run if absent.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let at_frame = given.number("at_frame");
        Ok(Self(
            at_frame.map_or(ForkPosition::End, ForkPosition::AtFrame),
        ))
    }
}

/// What a fork would ask models again: calls, tokens and cost, at least and at most.
#[utoipa::path(get, path = "/runs/{id}/fork", operation_id = "fork_estimate",
    params(RunTarget, Query::<ForkEstimateQuery>),
    responses((status = 200, body = ForkEstimate)))]
pub(super) async fn fork_estimate(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    Query(ForkEstimateQuery(point)): Query<ForkEstimateQuery>,
) -> Result<Json<ForkEstimate>, ProblemDetails> {
    if !run.scope.is_empty() {
        let words = "an inline child cannot be forked on its own";
        return Err(ProblemDetails::new(ErrorCode::ForkRefused, words));
    }
    let refused = |refused| problems::command_error(CommandError::NotSaid(refused));
    reject_recompute(&run.stream).map_err(refused)?;
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let recorded = ktsu_history::frames(reader, &run.stream)?;
            let position = fork_position(&recorded, &point).map_err(refused)?;
            let estimate = fork_estimate::fork_estimate(&recorded, position);
            estimate.map_err(|error| problems::run_error(RunReadError::Fold(error)))
        });
    Ok(Json(read.await?.ok_or_else(no_such_run)?))
}
