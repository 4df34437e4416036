//! `POST /runs/{id}/cancel`, `/terminate` and `/pause`: control of whole runs (decisions P1 and
//! P2). `/resume` continues a paused run.

use axum::http::StatusCode;
use axum::response::Response;

use super::command::{self, CommandTarget};
use super::parameter::IfMatch;
use super::{RunTarget, wire};
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::HumanCommand;
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::steer::RunControl;

/// Ends a run: nothing new starts, and its workers are cancelled.
#[utoipa::path(post, path = "/runs/{id}/cancel", params(RunTarget, IfMatch),
    request_body = wire::RunCommandView,
    responses((status = 200, body = wire::CommandRecorded)))]
pub(super) async fn cancel(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    steer(target, RunControl::Cancel, body).await
}

/// Ends a run without notifying its workers, which find out later.
#[utoipa::path(post, path = "/runs/{id}/terminate", params(RunTarget, IfMatch),
    request_body = wire::RunCommandView,
    responses((status = 200, body = wire::CommandRecorded)))]
pub(super) async fn terminate(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    steer(target, RunControl::Terminate, body).await
}

/// Pauses a run: nothing new starts, work in progress may end, deadlines are suspended.
#[utoipa::path(post, path = "/runs/{id}/pause", params(RunTarget, IfMatch),
    request_body = wire::RunCommandView,
    responses((status = 200, body = wire::CommandRecorded)))]
pub(super) async fn pause(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    steer(target, RunControl::Pause, body).await
}

async fn steer(
    target: CommandTarget,
    steer: RunControl,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    let verb = steer.as_str();
    if !target.run.scope.is_empty() {
        let id = target.run.stream.name();
        let words = format!("{verb} works on whole runs only, here {id}");
        return Err(ProblemDetails::new(ErrorCode::InvalidRunState, words)
            .with_hint(format!("POST /runs/{id}/{verb}")));
    }
    let body: wire::RunCommandView = command::body(body)?;
    let command = HumanCommand::Steer {
        steer,
        own_only: !target.caller.may_operate,
        by: target.caller.principal.clone(),
        reason: body.reason,
    };
    target.submit(StatusCode::OK, command).await
}
