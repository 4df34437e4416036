//! Streamable HTTP: each request is a POST of its own, answered by one message or by a stream of
//! events that ends with the answer.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, StatusCode};
use rmcp::model::{Implementation, InitializeResult, ProtocolVersion, ServerCapabilities};
use serde_json::Value;
use tokio::time::sleep;

use super::endpoint;
use super::event_stream::EventStream;
use super::message::{self, RpcOutcome, ServerMessage};
use super::transport::{AbortOnDrop, RpcRequest, SessionShared};
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{ResponseStream, SlotKind};

/// The result of the first request.
pub(super) enum Probe {
    /// The server speaks this dialect.
    Outcome(RpcOutcome),
    /// It may speak the older one.
    Status(StatusCode),
}

/// Statuses by which a server of the older dialect refuses a POST to its stream.
const LEGACY_STATUSES: [StatusCode; 5] = [
    StatusCode::BAD_REQUEST,
    StatusCode::NOT_FOUND,
    StatusCode::METHOD_NOT_ALLOWED,
    StatusCode::NOT_ACCEPTABLE,
    StatusCode::UNSUPPORTED_MEDIA_TYPE,
];

/// Sends `initialize`.
pub(super) async fn probe(
    shared: &Arc<SessionShared>,
    request: &RpcRequest,
) -> Result<Probe, ToolError> {
    let slot = shared.endpoint.prepare(&shared.url, SlotKind::Exchange);
    let slot = slot.await?;
    let exchange = async {
        let response = slot.send(request.head(shared)).await?;
        if LEGACY_STATUSES.contains(&response.status) {
            return Ok(Probe::Status(response.status));
        }
        if response.status.is_success() {
            shared.set_session_id(&response.headers)?;
        }
        read(shared, request.id, response).await.map(Probe::Outcome)
    };
    request.timed(exchange).await
}

/// Sends a request, and waits for its answer.
pub(super) async fn exchange(
    shared: &Arc<SessionShared>,
    request: &RpcRequest,
) -> Result<RpcOutcome, ToolError> {
    let slot = shared.endpoint.prepare(&shared.url, SlotKind::Exchange);
    let slot = slot.await?;
    let exchange = async {
        let response = slot.send(request.head(shared)).await?;
        read(shared, request.id, response).await
    };
    request.timed(exchange).await
}

/// Reads the answer to a request: one message, or events up to it.
async fn read(
    shared: &Arc<SessionShared>,
    id: i64,
    mut response: ResponseStream,
) -> Result<RpcOutcome, ToolError> {
    if !response.status.is_success() {
        return Err(shared.status_error(response.status));
    }
    if !response.is_plain() {
        return Err(ToolError::protocol("the answer is encoded"));
    }
    match response.content_type().as_str() {
        "application/json" => {
            let whole = response.read_to_end(shared.limits.message_bytes).await;
            let message = message::read(&whole.map_err(endpoint::body_error)?)?;
            match message {
                ServerMessage::Response { id: of, outcome } => match_answer(id, of, outcome),
                ServerMessage::Request { .. } | ServerMessage::Notification { .. } => {
                    Err(ToolError::protocol("the answer is not an answer"))
                }
            }
        }
        "text/event-stream" => read_events(shared, id, response).await,
        _ => Err(ToolError::protocol(format!(
            "HTTP status {} with neither a message nor events",
            response.status.as_u16()
        ))),
    }
}

/// Holds an answer against the request that waits.
fn match_answer(id: i64, of: Option<i64>, outcome: RpcOutcome) -> Result<RpcOutcome, ToolError> {
    match of {
        Some(of) if of == id => Ok(outcome),
        Some(_) => Err(ToolError::protocol("the answer is to another request")),
        None => Err(ToolError::protocol("the answer names no request")),
    }
}

/// Reads events until the answer arrives. A stream that ends before, and has event ids, is resumed
/// where it stopped.
async fn read_events(
    shared: &Arc<SessionShared>,
    id: i64,
    response: ResponseStream,
) -> Result<RpcOutcome, ToolError> {
    let session = Arc::downgrade(shared);
    let mut events = EventStream::new(response, shared);
    // The first response has the slot of the exchange, until the answer is there.
    let mut first = None;
    let mut resumed = 0;
    loop {
        let error = match events.next_response(&session).await {
            Ok((of, outcome)) => return match_answer(id, of, outcome),
            Err(error) => error,
        };
        let may_resume =
            error.code == ToolErrorCode::Unreachable && resumed < shared.limits.resume_attempts;
        let last_id = events.reader.last_id().filter(|_| may_resume);
        let Some(last_id) = last_id.and_then(|id| HeaderValue::from_str(id).ok()) else {
            return Err(error);
        };
        resumed += 1;
        let after = Duration::from_millis(events.reader.retry_ms().unwrap_or(1000));
        sleep(after.min(shared.limits.resume_after)).await;
        let before = events.resume(shared, last_id).await?;
        first.get_or_insert(before);
    }
}

/// Listens to what the server says of its own accord, as long as the session lasts: that its tools
/// have changed, or a question, on whose answer it may let a call wait. Most servers offer no such
/// stream, and that is well.
pub(super) fn listen(shared: &Arc<SessionShared>) -> AbortOnDrop {
    let session = Arc::downgrade(shared);
    let task = tokio::spawn(async move {
        let Some(shared) = session.upgrade() else {
            return;
        };
        let events = EventStream::open(&shared, &shared.url, SlotKind::Listening).await;
        drop(shared);
        if let Ok(mut events) = events {
            while events.next_response(&session).await.is_ok() {}
        }
    });
    AbortOnDrop(task.abort_handle())
}

/// Reads the result of `initialize`, and keeps what was agreed on.
pub(super) fn negotiate(
    shared: &SessionShared,
    result: &Value,
) -> Result<InitializeResult, ToolError> {
    let wanted = result.get("protocolVersion").and_then(Value::as_str);
    let known = ProtocolVersion::KNOWN_VERSIONS.iter();
    let version = known
        .filter(|version| version.has_initialize())
        .find(|version| Some(version.as_str()) == wanted);
    let Some(version) = version else {
        return Err(ToolError::protocol(
            "the server speaks no version of MCP that we do",
        ));
    };
    shared.set_protocol_version(version);
    // Nothing else of it is of use, and a server that leaves its name out does no harm.
    Ok(InitializeResult::new(ServerCapabilities::default())
        .with_protocol_version(version.clone())
        .with_server_info(Implementation::new("tool server", "0")))
}
