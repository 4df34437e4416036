//! The gateway's routes: `POST /invoke`, `GET /health`, `GET /openapi.json`.

use axum::body::Body;
use axum::extract::State;
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use axum::{Json, Router};
use serde::Serialize;
use serde_json::Value;
use utoipa::{OpenApi, ToSchema};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::error::{Code, GatewayError};
use super::{Gateway, price};
use ktsu_codes::ErrorCode;
use ktsu_contract::gateway::{InvokeModel, ModelCallFailure, ModelReply};
use ktsu_server::origin::AllowedHosts;
use ktsu_server::{self as server, body, document, pointer_errors};

/// The most bytes of a request: a conversation with long documents in it.
pub const MAX_BODY: usize = 8 << 20;

/// The most characters of an idempotency key.
const MAX_KEY: usize = 255;
const KEY: &str = "idempotency-key";

#[derive(OpenApi)]
#[openapi(info(
    title = "ktsu gateway",
    description = "Asks models for replies. Errors are `{error, message, retryable}`."
))]
struct Api;

/// The routes, and their description.
pub fn router(gateway: Gateway) -> Router {
    router_as(gateway, AllowedHosts::Loopback)
}

/// As [`router`], for requests that may name other hosts.
pub fn router_as(gateway: Gateway, hosts: AllowedHosts) -> Router {
    let (router, api) = described().split_for_parts();
    let text = document::text(&api);
    let router = router.route(
        "/openapi.json",
        get(async move || document::response(&text)),
    );
    server::guarded_as(router.with_state(gateway), hosts)
}

/// The description alone.
pub fn openapi() -> utoipa::openapi::OpenApi {
    described().split_for_parts().1
}

fn described() -> OpenApiRouter<Gateway> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(health))
        .routes(routes!(invoke))
}

/// What works.
#[derive(Debug, Serialize, ToSchema)]
struct Health {
    /// `ok`, or `draining`: the gateway is about to stop.
    status: String,
    /// The model groups.
    groups: Vec<String>,
    /// The version of the built-in price table.
    prices: String,
}

/// Whether the gateway works.
#[utoipa::path(get, path = "/health", responses(
    (status = 200, body = Health),
    (status = 503, body = Health, description = "The gateway is draining"),
))]
async fn health(State(gateway): State<Gateway>) -> (StatusCode, Json<Health>) {
    let (status, word) = match gateway.0.calls.is_draining() {
        false => (StatusCode::OK, "ok"),
        true => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
    };
    let health = Health {
        status: word.to_owned(),
        groups: gateway.group_names().map(str::to_owned).collect(),
        prices: price::VERSION.to_owned(),
    };
    (status, Json(health))
}

/// Asks a model.
#[utoipa::path(post, path = "/invoke",
    params(("Idempotency-Key" = Option<String>, Header,
        description = "The same request with the same key is put to a provider once within ten \
                       minutes")),
    request_body(content = InvokeModel, description = "At most 8 MiB"),
    responses(
        (status = 200, body = ModelReply),
        (status = 400, body = ModelCallFailure, description = "`invalid_request`, `unknown_group`"),
        (status = 402, body = ModelCallFailure, description = "`budget_exceeded`, `budget_unpriced`"),
        (status = 413, body = ModelCallFailure, description = "`invalid_request`: more than 8 MiB"),
        (status = 500, body = ModelCallFailure, description = "`internal_error`"),
        (status = 502, body = ModelCallFailure, description = "`provider_error`"),
        (status = 503, body = ModelCallFailure, description = "`no_models_available`, `draining`"),
    )
)]
async fn invoke(State(gateway): State<Gateway>, headers: HeaderMap, body: Body) -> Response {
    let Some(_in_flight) = gateway.0.calls.begin() else {
        return draining();
    };
    let asked = async {
        let key = key(&headers)?;
        let invoke = read(body).await?;
        gateway.invoke(invoke, key).await.map_err(Refusal::from)
    };
    match asked.await {
        Ok(reply) => Json(reply).into_response(),
        Err(refusal) => refusal.into_response(),
    }
}

/// A failure with the status it is answered with.
struct Refusal(StatusCode, GatewayError);

impl Refusal {
    fn into_response(self) -> Response {
        (self.0, Json(self.1.body())).into_response()
    }
}

impl From<GatewayError> for Refusal {
    fn from(failure: GatewayError) -> Self {
        let status = StatusCode::from_u16(failure.code.status());
        Self(status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR), failure)
    }
}

/// The gateway is about to stop: the next one is asked.
fn draining() -> Response {
    let words = "the gateway is about to stop and asks no more models";
    let refusal = GatewayError {
        retryable: true,
        ..GatewayError::new(Code::Draining, words)
    };
    let mut response = Refusal::from(refusal).into_response();
    let soon = HeaderValue::from_static("1");
    response.headers_mut().insert(RETRY_AFTER, soon);
    response
}

fn invalid(words: impl Into<String>) -> Refusal {
    GatewayError::new(Code::InvalidRequest, words).into()
}

fn key(headers: &HeaderMap) -> Result<Option<&str>, Refusal> {
    let mut given = headers.get_all(KEY).iter();
    let Some(key) = given.next() else {
        return Ok(None);
    };
    let fits = |key: &&str| !key.is_empty() && key.len() <= MAX_KEY;
    match key.to_str().ok().filter(fits) {
        Some(key) if given.next().is_none() => Ok(Some(key)),
        Some(_) | None => Err(invalid(format!(
            "{KEY} must be given once and have 1 to {MAX_KEY} ASCII characters"
        ))),
    }
}

async fn read(body: Body) -> Result<InvokeModel, Refusal> {
    let bytes = body::read_at_most(body, MAX_BODY).await;
    let members = bytes.and_then(|bytes| body::object(&bytes));
    let members = members.map_err(|problem| match problem.code {
        ErrorCode::BodyTooLarge => Refusal(
            StatusCode::PAYLOAD_TOO_LARGE,
            GatewayError::new(Code::InvalidRequest, problem.detail),
        ),
        _ => invalid(problem.detail),
    })?;
    let members = Value::Object(members);
    let read = pointer_errors::read(&members, "");
    read.map_err(|violation| invalid(pointer_errors::in_words(&violation)))
}
