//! `GET /runs/{id}`, `/runs/{id}/envelope`, `/runs/{id}/state`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ktsu_ledger::StreamId;
use ktsu_projections::envelope::Envelope;
use serde_json::{Value, json as value};

use super::query::{NoParameters, Query};
use super::{RunTarget, wire};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history as history;
use ktsu_history::layers::StateLayers;
use ktsu_history::steering::SteeringState;
use ktsu_orchestrator::{Orchestrator, ReadKind, RecentRun};
use ktsu_server::ProblemDetails;

/// One run and its steps.
#[utoipa::path(get, path = "/runs/{id}", operation_id = "get_run",
    params(RunTarget),
    responses((status = 200, body = wire::RunView)))]
pub(super) async fn get_run(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<Value>, ProblemDetails> {
    let (envelope, steered) = read_envelope(&orchestrator, run).await?;
    let run = wire::RunSummary {
        run_id: envelope.run_id,
        workflow: envelope.workflow,
        version: envelope.version,
        status: envelope.status.to_string(),
        branch: envelope.branch,
        error: envelope.error,
        created_at: envelope.created_at,
        ended_at: envelope.ended_at,
        paused: steered.paused,
        cancelled: steered.cancelled,
        totals: envelope.totals,
    };
    let steps = envelope.steps;
    Ok(Json(value!(wire::RunView { run, steps })))
}

/// The envelope of a run.
#[utoipa::path(get, path = "/runs/{id}/envelope",
    params(RunTarget),
    responses((status = 200, body = Envelope)))]
pub(super) async fn envelope(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<Envelope>, ProblemDetails> {
    let (envelope, _) = read_envelope(&orchestrator, run).await?;
    Ok(Json(envelope))
}

/// The layers of the state: computed, overlay and effective of each step.
#[utoipa::path(get, path = "/runs/{id}/state",
    params(RunTarget),
    responses((status = 200, body = StateLayers)))]
pub(super) async fn state(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<StateLayers>, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            ktsu_history::layers::layers(reader, &run.stream, &run.scope)
        });
    let found = read.await.map_err(problems::run_error)?;
    Ok(Json(found.ok_or(ErrorCode::RunNotFound)?))
}

/// The envelope of a run or an inline child, and the commands on the whole run.
pub(super) async fn read_envelope(
    orchestrator: &Orchestrator,
    run: RunTarget,
) -> Result<(Envelope, SteeringState), ProblemDetails> {
    let RunTarget { stream, scope } = run;
    let run = read_run(orchestrator, stream).await?;
    let found = run.and_then(|run| {
        let fold = run.fold();
        Some((fold.envelope(&scope)?, SteeringState::of(fold.state())))
    });
    found.ok_or_else(|| ErrorCode::RunNotFound.into())
}

/// A run as its last frame left it, if there is one.
pub(super) async fn read_run(
    orchestrator: &Orchestrator,
    stream: StreamId,
) -> Result<Option<Arc<RecentRun>>, ProblemDetails> {
    let recent = orchestrator.recent_runs();
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            if let Some(run) = recent.find(reader, &stream)? {
                return Ok(Some(run));
            }
            let read = history::envelope_and_frames(reader, &stream)?;
            Ok(read.map(|(fold, frames)| recent.keep(&stream, fold, &frames)))
        });
    read.await.map_err(problems::run_error)
}
