//! The runtime's routes. `/openapi.json` is made from them.

use axum::body::Bytes;
use axum::extract::rejection::BytesRejection;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::Runtime;
use super::tasks::StartOutcome;
use ktsu_contract::in_process::ErrorResponse;
use ktsu_contract::runtime::{BUSY, InvokeAgent, TaskAccepted, TaskRefused};
use ktsu_peer as peer;
use ktsu_server::origin::AllowedHosts;
use ktsu_server::{self as server, document, json_words, pointer_errors};

/// The most bytes of a dispatch. Its history holds whole conversations.
const MAX_BODY: usize = 64 * 1024 * 1024;

#[derive(OpenApi)]
#[openapi(info(
    title = "ktsu agent runtime",
    description = "Takes tasks of agents, and reports to the URLs of each. Errors are \
                   `{error, message, retryable}`."
))]
struct Api;

/// The routes, and their description.
pub(super) fn router(runtime: Runtime, hosts: AllowedHosts) -> Router {
    let (router, api) = described().split_for_parts();
    let text = document::text(&api);
    let router = router
        .route(
            "/openapi.json",
            get(async move || document::response(&text)),
        )
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(runtime);
    server::guarded_as(router, hosts)
}

/// The description alone.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().split_for_parts().1
}

fn described() -> OpenApiRouter<Runtime> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(health))
        .routes(routes!(invoke))
        .routes(routes!(beat))
}

/// That it is alive.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
struct Health {
    /// `ok`, or `draining`: the runtime is about to stop.
    status: String,
    /// The instance, as in its heartbeats.
    runtime_id: String,
    /// Number of tasks at once, at most.
    #[serde(skip_serializing_if = "Option::is_none")]
    places: Option<u32>,
}

/// Whether the runtime is alive.
#[utoipa::path(get, path = "/health", responses(
    (status = 200, body = Health),
    (status = 503, body = Health, description = "The runtime is draining"),
))]
async fn health(State(runtime): State<Runtime>) -> (StatusCode, Json<Health>) {
    let (status, word) = match runtime.0.work.is_draining() {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let health = Health {
        status: word.to_owned(),
        runtime_id: runtime.id().to_owned(),
        places: runtime.0.places,
    };
    (status, Json(health))
}

/// Asks for a heartbeat now: its answer says which tasks are to stop, and which stand still.
#[utoipa::path(post, path = "/beat", responses((status = 202)))]
async fn beat(State(runtime): State<Runtime>) -> StatusCode {
    runtime.0.beat_now.notify_one();
    StatusCode::ACCEPTED
}

/// Takes a task, and answers before it is done.
///
/// An attempt that is worked on already is answered the same, and an earlier one aborted.
#[utoipa::path(
    post,
    path = "/invoke",
    request_body = InvokeAgent,
    responses(
        (status = 202, body = TaskAccepted),
        (status = 400, description = "Not a task", body = TaskRefused),
        (status = 409, description = "A later attempt is worked on", body = TaskRefused),
        (status = 413, description = "More than 64 MiB", body = TaskRefused),
        (status = 503, description = "All places are taken (`busy`), or the runtime is stopping", body = TaskRefused),
    )
)]
async fn invoke(State(runtime): State<Runtime>, body: Result<Bytes, BytesRejection>) -> Response {
    let body = match body {
        Ok(body) => body,
        Err(error) if error.status() == StatusCode::PAYLOAD_TOO_LARGE => {
            let message = format!("a dispatch may have at most {MAX_BODY} bytes");
            let status = StatusCode::PAYLOAD_TOO_LARGE;
            return respond(refused(status, "body_too_large", message));
        }
        Err(_) => return invalid("the body broke off".to_owned()),
    };
    let task = match task(&body) {
        Ok(task) => task,
        Err(message) => return invalid(message),
    };
    let accepted = accepted(&runtime, &task);
    match refusal(runtime.start_task(task)) {
        None => (StatusCode::ACCEPTED, Json(accepted)).into_response(),
        Some(refusal) => respond(refusal),
    }
}

/// That a task is taken.
pub(super) fn accepted(runtime: &Runtime, task: &InvokeAgent) -> TaskAccepted {
    TaskAccepted {
        run_id: task.run_id.clone(),
        step_id: task.step_id.clone(),
        status: "accepted".to_owned(),
        runtime_id: Some(runtime.id().to_owned()),
        places: runtime.0.places,
    }
}

/// The reason why a task is not taken; nothing if it is.
pub(super) fn refusal(started: StartOutcome) -> Option<ErrorResponse<TaskRefused>> {
    match started {
        StartOutcome::Running => None,
        StartOutcome::Superseded(attempt) => {
            let message = format!("attempt {attempt} of this task is worked on");
            Some(refused(StatusCode::CONFLICT, "stale_attempt", message))
        }
        StartOutcome::Busy(places) => {
            let message = format!("all {places} places of the runtime are taken");
            Some(refused(StatusCode::SERVICE_UNAVAILABLE, BUSY, message))
        }
        StartOutcome::Closed => {
            let message = "the runtime is stopping".to_owned();
            let status = StatusCode::SERVICE_UNAVAILABLE;
            Some(refused(status, "stopping", message))
        }
    }
}

/// A dispatch, or what is wrong with it.
fn task(body: &[u8]) -> Result<InvokeAgent, String> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|error| format!("the body is not JSON: {}", json_words::of_parser(&error)))?;
    for name in ["run_id", "step_id", "callback_url"] {
        let given = value.get(name).and_then(Value::as_str).unwrap_or_default();
        if given.is_empty() {
            return Err(format!("{name} is missing: give it as text"));
        }
        // They stand in the header that names a model call.
        if !given.chars().all(|c| c.is_ascii_graphic()) {
            return Err(format!("{name} has characters other than visible ASCII"));
        }
    }
    let task: Result<InvokeAgent, _> = pointer_errors::read(&value, "");
    let task = task.map_err(|violation| pointer_errors::in_words(&violation))?;
    for url in std::iter::once(&task.callback_url).chain(&task.report_url) {
        peer::split(url).map_err(|error| error.to_string())?;
    }
    Ok(task)
}

fn invalid(message: String) -> Response {
    respond(refused(StatusCode::BAD_REQUEST, "invalid_request", message))
}

fn refused(status: StatusCode, error: &str, message: String) -> ErrorResponse<TaskRefused> {
    ErrorResponse {
        status: status.as_u16(),
        body: TaskRefused {
            error: error.to_owned(),
            message,
            retryable: status == StatusCode::SERVICE_UNAVAILABLE,
        },
    }
}

fn respond(refusal: ErrorResponse<TaskRefused>) -> Response {
    let status = StatusCode::from_u16(refusal.status);
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    (status, Json(refusal.body)).into_response()
}
