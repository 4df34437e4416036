//! `POST /runs/{id}/cancel`, `/terminate` and `/pause`: control of whole runs (decisions P1 and
//! P2). `/resume` continues a paused run.

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;

use super::interventions::{RequestMembers, answer, expected};
use super::parameter::IfMatch;
use super::query::{NoParameters, Query};
use super::{RunTarget, wire};
use crate::access::Caller;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{HumanCommand, Orchestrator};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::steer::RunControl;

/// A route that steers a run.
macro_rules! steering_route {
    ($name:ident, $path:literal, $steer:expr, $summary:literal) => {
        #[doc = $summary]
        #[utoipa::path(post, path = $path,
                    params(("id" = String, Path, description = "A run or a branch"), IfMatch),
                    request_body = wire::RunCommandView,
                    responses((status = 200, body = wire::CommandRecorded)))]
        pub(super) async fn $name(
            State(orchestrator): State<Orchestrator>,
            asker: Caller,
            run: RunTarget,
            headers: HeaderMap,
            _: Query<NoParameters>,
            body: JsonObject,
        ) -> Result<Response, ProblemDetails> {
            submit_steering(&orchestrator, asker, &run, &headers, ($steer, body)).await
        }
    };
}

steering_route!(
    cancel,
    "/runs/{id}/cancel",
    RunControl::Cancel,
    "Ends a run: nothing new starts, and its workers are told to stop."
);
steering_route!(
    terminate,
    "/runs/{id}/terminate",
    RunControl::Terminate,
    "Ends a run without notifying its workers, which find out later."
);
steering_route!(
    pause,
    "/runs/{id}/pause",
    RunControl::Pause,
    "Pauses a run: nothing new starts, work in progress may end, deadlines are suspended."
);

async fn submit_steering(
    orchestrator: &Orchestrator,
    asker: Caller,
    run: &RunTarget,
    headers: &HeaderMap,
    (steer, body): (RunControl, JsonObject),
) -> Result<Response, ProblemDetails> {
    let verb = steer.as_str();
    if !run.scope.is_empty() {
        let id = run.stream.name();
        let words = format!("{verb} works on whole runs only, here {id}");
        return Err(ProblemDetails::new(ErrorCode::InvalidRunState, words)
            .with_hint(format!("POST /runs/{id}/{verb}")));
    }
    let mut members = RequestMembers(body.0);
    let command = HumanCommand::Steer {
        steer,
        own_only: !asker.may_operate,
        by: asker.principal,
        reason: members.reason()?,
    };
    members.reject_unknown()?;
    let said = orchestrator.submit_command(&run.stream, command, expected(headers)?);
    Ok(answer(
        StatusCode::OK,
        run,
        said.await.map_err(problems::command_error)?,
    ))
}
