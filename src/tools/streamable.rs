//! Streamable HTTP: each request is a POST of its own, answered by one message or by a stream of
//! events that ends with the answer.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http::{HeaderValue, Method, StatusCode};
use rmcp::model::{Implementation, InitializeResult, ProtocolVersion, ServerCapabilities};
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::endpoint::{self, EndpointBody, EndpointResponse};
use super::message::{self, RpcOutcome, ServerMessage};
use super::sse::{SseError, SseEvent, SseReader};
use super::transport::{AbortOnDrop, CallProgress, SessionShared};
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{BodyError, SlotKind, StreamRequest};

/// What the first request shows.
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
    id: i64,
    body: Bytes,
    limit: Duration,
    fate: &CallProgress,
) -> Result<Probe, ToolError> {
    let place = shared.way.prepare(&shared.url, SlotKind::Exchange).await?;
    timed(limit, fate, async {
        let answer = place.send(shared.head(Method::POST, body)).await?;
        if LEGACY_STATUSES.contains(&answer.status) {
            return Ok(Probe::Status(answer.status));
        }
        if answer.status.is_success() {
            shared.set_session_id(&answer.headers)?;
        }
        read(shared, id, answer).await.map(Probe::Outcome)
    })
    .await
}

/// Sends a request, and waits for its answer.
pub(super) async fn exchange(
    shared: &Arc<SessionShared>,
    id: i64,
    body: Bytes,
    limit: Duration,
    fate: &CallProgress,
) -> Result<RpcOutcome, ToolError> {
    let place = shared.way.prepare(&shared.url, SlotKind::Exchange).await?;
    timed(limit, fate, async {
        let head = with_call_timeouts(shared.head(Method::POST, body), limit, fate);
        let answer = place.send(head).await?;
        read(shared, id, answer).await
    })
    .await
}

/// A call may be silent as long as it may last.
pub(super) fn with_call_timeouts(
    head: StreamRequest,
    limit: Duration,
    fate: &CallProgress,
) -> StreamRequest {
    if !fate.may_be_silent {
        return head;
    }
    StreamRequest {
        timeout: limit,
        idle: Some(limit),
        ..head
    }
}

/// Measures, and bounds, what is sent and awaited.
pub(super) async fn timed<T>(
    limit: Duration,
    fate: &CallProgress,
    exchange: impl Future<Output = Result<T, ToolError>>,
) -> Result<T, ToolError> {
    fate.begun.store(true, Ordering::Release);
    let started = Instant::now();
    let outcome = timeout(limit, exchange).await;
    let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
    fate.took_ms.store(took, Ordering::Release);
    outcome.unwrap_or_else(|_| {
        let message = format!("no whole answer within {} ms", limit.as_millis());
        Err(ToolError::sent(ToolErrorCode::Timeout, message))
    })
}

/// Reads the answer to a request: one message, or events up to it.
async fn read(
    shared: &Arc<SessionShared>,
    id: i64,
    mut answer: EndpointResponse,
) -> Result<RpcOutcome, ToolError> {
    if !answer.status.is_success() {
        return Err(shared.status_error(answer.status));
    }
    if !answer.is_plain() {
        return Err(ToolError::protocol("the answer is encoded"));
    }
    match answer.content_type().as_str() {
        "application/json" => {
            let whole = answer.body.read_to_end(shared.limits.message_bytes).await;
            let message = message::read(&whole.map_err(endpoint::body_error)?)?;
            match message {
                ServerMessage::Response { id: of, outcome } => match_answer(id, of, outcome),
                ServerMessage::Request { .. } | ServerMessage::Notification { .. } => {
                    Err(ToolError::protocol("the answer is not an answer"))
                }
            }
        }
        "text/event-stream" => events(shared, id, answer.body).await,
        _ => Err(ToolError::protocol(format!(
            "HTTP status {} with neither a message nor events",
            answer.status.as_u16()
        ))),
    }
}

/// Holds an answer against the request that waits.
pub(super) fn match_answer(
    id: i64,
    of: Option<i64>,
    outcome: RpcOutcome,
) -> Result<RpcOutcome, ToolError> {
    match of {
        Some(of) if of == id => Ok(outcome),
        Some(_) => Err(ToolError::protocol("the answer is to another request")),
        None => Err(ToolError::protocol("the answer names no request")),
    }
}

/// Reads events until the answer arrives. A stream that ends before, and has event ids, is resumed
/// where it stopped: that sends nothing again.
async fn events(
    shared: &Arc<SessionShared>,
    id: i64,
    mut body: EndpointBody,
) -> Result<RpcOutcome, ToolError> {
    let mut reader = SseReader::new(shared.limits.message_bytes);
    let mut asked = 0;
    let mut resumed = 0;
    // It has the place of the exchange, until the answer is there.
    let mut first = None;
    loop {
        let broken = match body.chunk().await {
            Ok(Some(bytes)) => {
                for event in reader.push(&bytes).map_err(sse_error)? {
                    if let Some(answer) = handle_event(shared, &event, &mut asked).await? {
                        return match_answer(id, answer.0, answer.1);
                    }
                }
                continue;
            }
            Ok(None) => BodyError::Disconnected,
            Err(broken) => broken,
        };
        let last_id = reader
            .last_id()
            .and_then(|id| HeaderValue::from_str(id).ok());
        let Some(last_id) = last_id.filter(|_| broken == BodyError::Disconnected) else {
            return Err(endpoint::body_error(broken));
        };
        if resumed >= shared.limits.resume_attempts {
            return Err(endpoint::body_error(broken));
        }
        resumed += 1;
        let after = Duration::from_millis(reader.retry_ms().unwrap_or(1000));
        sleep(after.min(shared.limits.resume_after)).await;
        let before = std::mem::replace(&mut body, resume(shared, last_id).await?);
        first.get_or_insert(before);
        reader.discard_partial();
    }
}

async fn resume(shared: &SessionShared, last_id: HeaderValue) -> Result<EndpointBody, ToolError> {
    let place = shared.way.prepare(&shared.url, SlotKind::Part).await?;
    let mut head = shared.head(Method::GET, Bytes::new());
    head.headers.insert("last-event-id", last_id);
    // Whatever it was a part of has its own end.
    head.idle = None;
    let lost = |_| endpoint::body_error(BodyError::Disconnected);
    let answer = place.send(head).await.map_err(lost)?;
    if !answer.status.is_success() || answer.content_type() != "text/event-stream" {
        return Err(endpoint::body_error(BodyError::Disconnected));
    }
    Ok(answer.body)
}

/// Takes in one event; gives the answer, if it is one.
pub(super) async fn handle_event(
    shared: &SessionShared,
    event: &SseEvent,
    asked: &mut usize,
) -> Result<Option<(Option<i64>, RpcOutcome)>, ToolError> {
    // An event without data opens a stream that can be resumed.
    if !matches!(event.name.as_str(), "" | "message") || event.data.is_empty() {
        return Ok(None);
    }
    match message::read(event.data.as_bytes())? {
        ServerMessage::Response { id, outcome } => return Ok(Some((id, outcome))),
        ServerMessage::Notification { method } => shared.handle_notification(&method),
        ServerMessage::Request { id, method } => {
            *asked += 1;
            if *asked > shared.limits.server_requests {
                return Err(ToolError::protocol("the server asks too much"));
            }
            shared.answer(&id, &method).await;
        }
    }
    Ok(None)
}

/// Events that cannot be read, as a failure.
pub(super) fn sse_error(unreadable: SseError) -> ToolError {
    match unreadable {
        SseError::TooLarge => endpoint::body_error(BodyError::TooLarge),
        SseError::NotUtf8 => ToolError::protocol("the events are not UTF-8"),
    }
}

/// Listens to what the server says of its own accord, as long as the session lasts: that its tools
/// have changed, or a question, on whose answer it may let a call wait. Most servers offer no such
/// stream, and that is well.
pub(super) fn listen(shared: &Arc<SessionShared>) -> AbortOnDrop {
    // It must not keep the session alive, whose end ends it.
    let weak = Arc::downgrade(shared);
    let task = tokio::spawn(async move {
        let Some(shared) = weak.upgrade() else { return };
        let Ok(place) = shared.way.prepare(&shared.url, SlotKind::Listening).await else {
            return;
        };
        let mut head = shared.head(Method::GET, Bytes::new());
        head.idle = None;
        head.max_bytes = shared.limits.session_bytes;
        let Ok(mut answer) = place.send(head).await else {
            return;
        };
        let mut reader = SseReader::new(shared.limits.message_bytes);
        drop(shared);
        if !answer.status.is_success() || answer.content_type() != "text/event-stream" {
            return;
        }
        let mut asked = 0;
        while let Ok(Some(bytes)) = answer.body.chunk().await {
            let Some(shared) = weak.upgrade() else { return };
            let Ok(events) = reader.push(&bytes) else {
                return;
            };
            for event in events {
                if handle_event(&shared, &event, &mut asked).await.is_err() {
                    return;
                }
            }
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
    shared.set_protocol_version(static_text(version));
    // Nothing else of it is of use, and a server that leaves its name out does no harm.
    Ok(InitializeResult::new(ServerCapabilities::default())
        .with_protocol_version(version.clone())
        .with_server_info(Implementation::new("tool server", "0")))
}

/// A version as a header wants it.
fn static_text(version: &ProtocolVersion) -> &'static str {
    ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
        .into_iter()
        .find(|text| *text == version.as_str())
        .unwrap_or("2025-11-25")
}
