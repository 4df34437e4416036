//! Answers that are read as they arrive: server-sent events, and others of unknown length.
//!
//! A slot at the host is acquired first and held until the answer is dropped. Streams that only
//! listen have slots of their own, and so have short messages about an exchange in progress: a
//! stream that stays open for hours must not occupy the slot of the request whose answer it
//! carries. A stream that is a session gets a slot at once or not at all; what belongs to an
//! exchange shares its slot.

use std::time::Duration;

use bytes::Bytes;
use futures_util::Stream;
use http::{HeaderMap, Method, StatusCode, header};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use super::address::RequestTarget;
use super::{Client, EgressError, EgressErrorCode};

/// The purpose of a place. Unless it says otherwise there are as many places at a host as there are
/// for [`Client::send`], and a request that gets none waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SlotKind {
    /// One request and its answer.
    Exchange,
    /// Listening to what the other side may say some day.
    Listening,
    /// A short message about an exchange that is under way, which may wait for it.
    Control,
    /// A stream that a session cannot do without and that lasts as long as the session. There are
    /// [`SESSION_STREAMS_PER_REQUEST`] times as many. Acquiring one fails at once when all are in
    /// use: it may take hours until one is free.
    Session,
    /// A part of an exchange that has a place, and has it as long as this one lasts.
    Part,
}

/// The most streams at a host for each request that may be under way there. They are silent most of
/// the time, and there is one for each task that works with the server.
pub const SESSION_STREAMS_PER_REQUEST: usize = 16;

impl SlotKind {
    /// The name of its places, and their number; `None` if it needs none.
    fn places(self, per_host: usize) -> Option<(&'static str, usize)> {
        match self {
            Self::Exchange => Some(("", per_host)),
            Self::Listening => Some((" listening", per_host)),
            Self::Control => Some((" control", per_host)),
            Self::Session => Some((" session", per_host * SESSION_STREAMS_PER_REQUEST)),
            Self::Part => None,
        }
    }
}

/// The right to send one request.
pub struct RequestSlot {
    client: Client,
    target: RequestTarget,
    held: Option<OwnedSemaphorePermit>,
}

/// A request to send at a [`RequestSlot`], and the bounds of its answer.
#[derive(Debug, Clone)]
pub struct StreamRequest {
    /// The method.
    pub method: Method,
    /// Headers beside `host`, `user-agent` and `content-length`.
    pub headers: HeaderMap,
    /// The body, empty for none.
    pub body: Bytes,
    /// From here to the head of the answer.
    pub timeout: Duration,
    /// The time for which the body may be silent; `None` for any time.
    pub idle: Option<Duration>,
    /// The most bytes of the body.
    pub max_bytes: u64,
}

/// An answer whose body has not been read.
pub struct ResponseStream {
    /// The HTTP status; redirects are answers too.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    body: reqwest::Response,
    idle: Option<Duration>,
    left: u64,
    _held: Option<OwnedSemaphorePermit>,
}

/// The reason why a body does not come to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BodyError {
    /// Nothing came for as long as is allowed.
    #[error("nothing came for too long")]
    TimedOut,
    /// The connection broke, or the body is not what its head says.
    #[error("it broke off")]
    Disconnected,
    /// There is more of it than is allowed.
    #[error("it is too large")]
    TooLarge,
}

impl Client {
    /// Checks a URL and waits for a place at its host. The wait is of our own making, and counts
    /// in nobody's time.
    ///
    /// # Errors
    /// [`EgressErrorCode::Refused`].
    pub async fn acquire_slot(&self, url: &str, of: SlotKind) -> Result<RequestSlot, EgressError> {
        self.acquire_slot_at(self.0.rules.target(url)?, of).await
    }

    pub(super) async fn acquire_slot_at(
        &self,
        target: RequestTarget,
        of: SlotKind,
    ) -> Result<RequestSlot, EgressError> {
        let held = match of.places(self.0.per_host) {
            None => None,
            Some((name, count)) => {
                let places = self.host_slots(&format!("{}{name}", target.place), count);
                let held = match of {
                    SlotKind::Session => places.try_acquire_owned().ok(),
                    _ => places.acquire_owned().await.ok(),
                };
                Some(held.ok_or_else(|| full(&target.place, count))?)
            }
        };
        self.pass_gate().await?;
        Ok(RequestSlot {
            client: self.clone(),
            target,
            held,
        })
    }
}

/// The bound is ours, and whoever meets it must not look for it at the other side.
fn full(place: &str, count: usize) -> EgressError {
    let message = format!("{count} streams are open at {place}, which is as many as ktsu keeps");
    EgressError::new(EgressErrorCode::Refused, message)
}

impl RequestSlot {
    /// Sends once, and waits for the head of the answer.
    ///
    /// # Errors
    /// [`EgressError`]; any status is an answer.
    pub async fn send(self, head: StreamRequest) -> Result<ResponseStream, EgressError> {
        let host = self.target.place.clone();
        let limit = head.timeout;
        let connections = &self.client.0.connections;
        let sending = connections.send(self.target, head.method, head.headers, head.body);
        let sending = Box::pin(sending);
        let Ok(answer) = timeout(limit, sending).await else {
            let message = format!("no answer from {host} within {} ms", limit.as_millis());
            return Err(EgressError::new(EgressErrorCode::Timeout, message).after_sending());
        };
        let answer = ResponseStream::new(answer?, head.idle, head.max_bytes);
        Ok(ResponseStream {
            _held: self.held,
            ..answer
        })
    }
}

impl ResponseStream {
    /// The response of a service of the engine, read like all others.
    pub fn from_service<S, E>(
        answer: http::Response<S>,
        idle: Option<Duration>,
        max_bytes: u64,
    ) -> Self
    where
        S: Stream<Item = Result<Bytes, E>> + Send + 'static,
        E: std::error::Error + Send + Sync + 'static,
    {
        let answer = answer.map(reqwest::Body::wrap_stream);
        Self::new(answer.into(), idle, max_bytes)
    }

    fn new(mut body: reqwest::Response, idle: Option<Duration>, left: u64) -> Self {
        Self {
            status: body.status(),
            headers: std::mem::take(body.headers_mut()),
            body,
            idle,
            left,
            _held: None,
        }
    }

    /// The media type of the body, without parameters, in lower case.
    pub fn content_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE);
        let text = value.and_then(|value| value.to_str().ok());
        let essence = text.unwrap_or_default().split(';').next();
        essence.unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Returns `true` if the body is not compressed; no request asks for compression.
    pub fn is_plain(&self) -> bool {
        let encoded = self.headers.get(header::CONTENT_ENCODING);
        encoded.is_none_or(|encoding| encoding == "identity")
    }

    /// The rest of the body, if it has at most so many bytes.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn read_to_end(&mut self, most: usize) -> Result<Vec<u8>, BodyError> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if whole.len() + bytes.len() > most {
                return Err(BodyError::TooLarge);
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }

    /// The next bytes of the body; `None` at its end.
    ///
    /// # Errors
    /// [`BodyError`].
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let next = self.body.chunk();
        let next = match self.idle {
            None => next.await,
            Some(idle) => timeout(idle, next).await.map_err(|_| BodyError::TimedOut)?,
        };
        let next = next.map_err(|_| BodyError::Disconnected)?;
        let bytes = next.as_ref().map_or(0, |chunk| chunk.len() as u64);
        self.left = self.left.checked_sub(bytes).ok_or(BodyError::TooLarge)?;
        Ok(next)
    }
}
