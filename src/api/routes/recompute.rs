//! `POST /runs/{id}/recompute` starts a recompute; `GET` on its id returns the result.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::StreamId;

use super::command;
use super::query::{NoParameters, Query, WaitQuery};
use super::{RunTarget, wire};
use crate::access::Caller;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history::recompute::recomputed;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;

/// Calls the models of a run again with the recorded inputs, in a separate stream.
#[utoipa::path(post, path = "/runs/{id}/recompute",
    params(RunTarget, Query::<WaitQuery>),
    request_body(content = wire::Recompute, description = "One step, or with `{}` all of them"),
    responses(
        (status = 200, body = wire::Recomputed, description = "The verdict came within `wait`"),
        (status = 202, body = wire::RecomputeAccepted),
    ))]
pub(super) async fn start(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    run: RunTarget,
    Query(wait): Query<WaitQuery>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    let wire::Recompute { step } = command::read(body)
        .map_err(|words| ProblemDetails::new(ErrorCode::InvalidParams, words))?;
    if !run.scope.is_empty() {
        let words = "a child cannot be recomputed on its own: name its step";
        return Err(ProblemDetails::new(ErrorCode::NotRecomputable, words)
            .with_hint(format!(r#"{{"step": "{}/STEP"}}"#, run.scope)));
    }
    let run_id = run.stream.name().to_owned();
    let accepted = orchestrator
        .recompute(run.stream, step, caller.principal)
        .await
        .map_err(problems::recompute_start_error)?;
    let id = accepted.run_id;
    if wait.has_ended(&orchestrator, &id).await? {
        return verdict(&orchestrator, &id).await;
    }
    let body = wire::RecomputeAccepted {
        recompute_id: id,
        run_id,
        status: "accepted".to_owned(),
    };
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

/// Gets the result of a recompute.
#[utoipa::path(get, path = "/runs/{id}/recompute", operation_id = "get_recompute",
    params(RunTarget),
    responses((status = 200, body = wire::Recomputed)))]
pub(super) async fn get(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    verdict(&orchestrator, run.stream.name()).await
}

async fn verdict(orchestrator: &Orchestrator, id: &str) -> Result<Response, ProblemDetails> {
    let stream = StreamId::run(id).map_err(|_| super::no_such_run())?;
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| recomputed(reader, &stream))
        .await?;
    let words = "this is a run; ids of recomputes begin with recompute_";
    let found = read.ok_or_else(|| ProblemDetails::new(ErrorCode::NotFound, words))?;
    Ok(Json(found).into_response())
}
