//! Streamable HTTP: what a request must be before it counts as a message, and refusals in words of
//! ktsu. Requests stand alone: there are no sessions, so none can be exhausted or stolen.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use ktsu_codes::ErrorCode;
use ktsu_server::{ProblemDetails, body};
use rmcp::model::ClientJsonRpcMessage;
use rmcp::transport::streamable_http_server::session::never::NeverSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};
use serde_json::json;

use super::access::{ANY_TOOL, CallerAccess};
use super::context::ToolContext;
use super::server::AgentToolServer;

/// The most bytes of a message.
pub(super) const MAX_MESSAGE_BYTES: usize = 4 * 1024 * 1024;

/// The path of the server.
pub const PATH: &str = "/mcp";
/// The code of the protocol for a request that is none.
const INVALID_REQUEST: i32 = -32600;
const JSON: HeaderValue = HeaderValue::from_static("application/json");

/// The routes of the server.
pub(super) fn router(context: &Arc<ToolContext>, server: AgentToolServer) -> Router {
    let config = StreamableHttpServerConfig::default()
        .with_legacy_session_mode(false)
        .with_json_response(true)
        .with_max_request_body_bytes(MAX_MESSAGE_BYTES)
        // Every service of ktsu checks both before a request gets here.
        .disable_allowed_hosts()
        .disable_allowed_origins();
    let sessions = Arc::new(NeverSessionManager::default());
    let service = StreamableHttpService::new(move || Ok(server.clone()), sessions, config);
    let context = Arc::clone(context);
    Router::new()
        .route_service(PATH, service)
        .layer(from_fn(move |request, next| {
            answered(Arc::clone(&context), request, next)
        }))
}

async fn answered(context: Arc<ToolContext>, request: Request, next: Next) -> Response {
    let is_message = request.method() == Method::POST;
    let (mut parts, body) = request.into_parts();
    let body = match is_message {
        true => match message(body).await {
            Ok(body) => body,
            // To callers that may use no tool, that is the answer to whatever they send.
            Err(problem) => {
                let known = known(&context, &parts.headers);
                return known.err().unwrap_or(problem).into_response();
            }
        },
        false => body,
    };
    // As everywhere, the type that a body is said to have does not count (decision H2).
    parts.headers.insert(header::CONTENT_TYPE, JSON);
    in_our_words(next.run(Request::from_parts(parts, body)).await)
}

/// Checks that a caller may use any tool at all.
fn known(context: &ToolContext, headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let caller = CallerAccess::of_request(headers)?;
    context.principals.admit(&caller, ANY_TOOL).map(drop)
}

/// A body that is a message of the protocol.
async fn message(body: Body) -> Result<Body, ProblemDetails> {
    let bytes = body::read_at_most(body, MAX_MESSAGE_BYTES).await?;
    body::value(&bytes)?;
    match serde_json::from_slice::<ClientJsonRpcMessage>(&bytes) {
        Ok(_) => Ok(Body::from(bytes)),
        Err(_) => {
            let words = "the body is not a message of JSON-RPC 2.0";
            let hint = r#"{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}"#;
            Err(ProblemDetails::new(ErrorCode::InvalidRequest, words).with_hint(hint))
        }
    }
}

/// A refusal of the transport, which has words of its own.
fn in_our_words(response: Response) -> Response {
    let status = response.status();
    let headers = response.headers();
    if status.is_success() || headers.get(header::CONTENT_TYPE) == Some(&JSON) {
        return response;
    }
    let allow = headers.get(header::ALLOW).cloned();
    let mut refusal = match status {
        StatusCode::METHOD_NOT_ALLOWED => {
            ProblemDetails::from(ErrorCode::MethodNotAllowed).into_response()
        }
        StatusCode::NOT_ACCEPTABLE => {
            let kinds = "application/json, text/event-stream";
            let words = "the client must accept both JSON and events";
            ProblemDetails::new(ErrorCode::NotAcceptable, words)
                .with_hint(format!("Accept: {kinds}"))
                .into_response()
        }
        StatusCode::BAD_REQUEST => {
            let words = "the header MCP-Protocol-Version names no version that is known here";
            let error = json!({"code": INVALID_REQUEST, "message": words});
            let message = json!({"jsonrpc": "2.0", "id": null, "error": error});
            (status, Json(message)).into_response()
        }
        _ => ProblemDetails::from(ErrorCode::Internal).into_response(),
    };
    if let Some(allow) = allow {
        refusal.headers_mut().insert(header::ALLOW, allow);
    }
    refusal
}
