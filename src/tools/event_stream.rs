//! A stream of server-sent events, read message by message.

use std::sync::Weak;

use axum::body::Bytes;
use http::{HeaderValue, Method};

use super::endpoint::{body_error, status_error};
use super::message::{self, RpcOutcome, ServerMessage};
use super::sse::{SseError, SseEvent, SseReader};
use super::transport::SessionShared;
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{BodyError, ResponseStream, SlotKind, StreamRequest};

/// The events of a response, as they arrive.
pub(super) struct EventStream {
    body: ResponseStream,
    pub(super) reader: SseReader,
    /// Events that have arrived and have not been handled.
    arrived: std::vec::IntoIter<SseEvent>,
    /// The requests of the server so far.
    server_requests: usize,
}

impl EventStream {
    /// Reads the events of a response.
    pub(super) fn new(body: ResponseStream, shared: &SessionShared) -> Self {
        Self {
            body,
            reader: SseReader::new(shared.limits.message_bytes),
            arrived: Vec::new().into_iter(),
            server_requests: 0,
        }
    }

    /// Opens a stream that may last as long as its session.
    pub(super) async fn open(
        shared: &SessionShared,
        url: &str,
        kind: SlotKind,
    ) -> Result<Self, ToolError> {
        let mut head = shared.head(Method::GET, Bytes::new());
        head.max_bytes = shared.limits.session_bytes;
        let body = request(shared, url, kind, head).await?;
        Ok(Self::new(body, shared))
    }

    /// Continues a stream that broke off after the event with this id, which sends nothing again.
    /// Returns the response that it was read from before.
    pub(super) async fn resume(
        &mut self,
        shared: &SessionShared,
        last_id: HeaderValue,
    ) -> Result<ResponseStream, ToolError> {
        let mut head = shared.head(Method::GET, Bytes::new());
        head.headers.insert("last-event-id", last_id);
        let resumed = request(shared, &shared.url, SlotKind::Part, head).await;
        let resumed = resumed.map_err(|_| body_error(BodyError::Disconnected))?;
        self.reader.discard_partial();
        Ok(std::mem::replace(&mut self.body, resumed))
    }

    /// The next event.
    pub(super) async fn next_event(&mut self) -> Result<SseEvent, ToolError> {
        loop {
            if let Some(event) = self.arrived.next() {
                return Ok(event);
            }
            let bytes = self.body.chunk().await.map_err(body_error)?;
            let bytes = bytes.ok_or_else(|| body_error(BodyError::Disconnected))?;
            let events = self.reader.push(&bytes).map_err(|error| match error {
                SseError::TooLarge => body_error(BodyError::TooLarge),
                SseError::NotUtf8 => ToolError::protocol("the events are not UTF-8"),
            })?;
            self.arrived = events.into_iter();
        }
    }

    /// The next response, and the request it names. Requests and notifications of the server are
    /// handled on the way. The session is not kept alive, because its end must end this.
    pub(super) async fn next_response(
        &mut self,
        shared: &Weak<SessionShared>,
    ) -> Result<(Option<i64>, RpcOutcome), ToolError> {
        loop {
            let event = self.next_event().await?;
            // An event without data opens a stream that can be resumed.
            if !matches!(event.name.as_str(), "" | "message") || event.data.is_empty() {
                continue;
            }
            let Some(shared) = shared.upgrade() else {
                return Err(ToolError::sent(
                    ToolErrorCode::Closed,
                    "the session is over",
                ));
            };
            match message::read(event.data.as_bytes())? {
                ServerMessage::Response { id, outcome } => return Ok((id, outcome)),
                ServerMessage::Notification { method } => shared.handle_notification(&method),
                ServerMessage::Request { id, method } => {
                    self.server_requests += 1;
                    if self.server_requests > shared.limits.server_requests {
                        return Err(ToolError::protocol("the server asks too much"));
                    }
                    shared.answer(&id, &method).await;
                }
            }
        }
    }
}

/// Requests a stream, which may be silent: what it belongs to has a time limit of its own.
async fn request(
    shared: &SessionShared,
    url: &str,
    kind: SlotKind,
    mut head: StreamRequest,
) -> Result<ResponseStream, ToolError> {
    head.idle = None;
    let response = shared.endpoint.prepare(url, kind).await?.send(head).await?;
    if !response.status.is_success() {
        return Err(status_error(response.status, false));
    }
    if response.content_type() != "text/event-stream" {
        let message = "it offers no stream of events";
        return Err(ToolError::sent(ToolErrorCode::Status, message));
    }
    if !response.is_plain() {
        return Err(ToolError::protocol("the stream is encoded"));
    }
    Ok(response)
}
