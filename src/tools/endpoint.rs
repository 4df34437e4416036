//! How a server is reached: through the guarded client, or, for a built-in server, like the
//! services of the engine. The responses look the same.

use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::{ToolError, ToolErrorCode};
use ktsu_egress::{self as egress, BodyError, SlotKind, StreamRequest};
use ktsu_peer::Peer;

/// Whose server it is.
#[derive(Clone)]
pub(super) enum Endpoint {
    /// Somebody's.
    External(egress::Client),
    /// Ours.
    Builtin(Peer),
}

/// The right to send one request.
pub(super) enum PreparedRequest {
    External(egress::RequestSlot),
    Builtin(Peer, String),
}

/// An answer whose body has not been read.
pub(super) struct EndpointResponse {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: EndpointBody,
}

/// A body, read as it comes.
pub(super) enum EndpointBody {
    External(Box<egress::ResponseStream>),
    Builtin {
        body: axum::body::Body,
        idle: Option<Duration>,
        left: u64,
    },
}

impl Endpoint {
    /// Waits until it is our turn.
    pub(super) async fn prepare(
        &self,
        url: &str,
        of: SlotKind,
    ) -> Result<PreparedRequest, ToolError> {
        match self {
            Self::External(client) => Ok(PreparedRequest::External(
                client.acquire_slot(url, of).await?,
            )),
            Self::Builtin(peer) => Ok(PreparedRequest::Builtin(peer.clone(), url.to_owned())),
        }
    }
}

impl PreparedRequest {
    /// Sends once, and waits for the head of the answer.
    pub(super) async fn send(self, head: StreamRequest) -> Result<EndpointResponse, ToolError> {
        match self {
            Self::External(place) => {
                let mut stream = place.send(head).await?;
                Ok(EndpointResponse {
                    status: stream.status,
                    headers: std::mem::take(&mut stream.headers),
                    body: EndpointBody::External(Box::new(stream)),
                })
            }
            Self::Builtin(peer, path) => send_to_builtin(&peer, &path, head).await,
        }
    }
}

async fn send_to_builtin(
    peer: &Peer,
    path: &str,
    head: StreamRequest,
) -> Result<EndpointResponse, ToolError> {
    let body = axum::body::Body::from(head.body);
    let request = Request::builder().method(head.method).uri(path).body(body);
    let mut request = request
        .map_err(|_| ToolError::unsent(ToolErrorCode::Refused, "the path cannot be read"))?;
    *request.headers_mut() = head.headers;
    let silent = "the orchestrator does not answer";
    let answer = match timeout(head.timeout, peer.call(request)).await {
        Ok(Ok(answer)) => answer,
        Ok(Err(_)) => return Err(ToolError::sent(ToolErrorCode::Unreachable, silent)),
        Err(_) => return Err(ToolError::sent(ToolErrorCode::Timeout, silent)),
    };
    let (parts, body) = answer.into_parts();
    Ok(EndpointResponse {
        status: parts.status,
        headers: parts.headers,
        body: EndpointBody::Builtin {
            body,
            idle: head.idle,
            left: head.max_bytes,
        },
    })
}

impl EndpointBody {
    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, BodyError> {
        let (body, idle, left) = match self {
            Self::External(stream) => return stream.chunk().await,
            Self::Builtin { body, idle, left } => (body, idle, left),
        };
        loop {
            let next = body.frame();
            let next = match idle {
                None => next.await,
                Some(idle) => timeout(*idle, next)
                    .await
                    .map_err(|_| BodyError::TimedOut)?,
            };
            let Some(frame) = next else { return Ok(None) };
            let Ok(bytes) = frame.map_err(|_| BodyError::Disconnected)?.into_data() else {
                continue;
            };
            *left = left
                .checked_sub(bytes.len() as u64)
                .ok_or(BodyError::TooLarge)?;
            return Ok(Some(bytes));
        }
    }

    /// The rest of it, if that is no more than so many bytes.
    pub(super) async fn read_to_end(&mut self, most: usize) -> Result<Vec<u8>, BodyError> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if whole.len() + bytes.len() > most {
                return Err(BodyError::TooLarge);
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }
}

impl EndpointResponse {
    /// What the body says it is, without its parameters, in lower case.
    pub(super) fn content_type(&self) -> String {
        let value = self.headers.get(header::CONTENT_TYPE);
        let text = value.and_then(|value| value.to_str().ok());
        let essence = text.unwrap_or_default().split(';').next();
        essence.unwrap_or_default().trim().to_ascii_lowercase()
    }

    /// Whether the body is what it seems: we ask for no compression.
    pub(super) fn is_plain(&self) -> bool {
        let encoded = self.headers.get(header::CONTENT_ENCODING);
        encoded.is_none_or(|encoding| encoding == "identity")
    }
}

/// A body that has no end, as a failure.
pub(super) fn body_error(broken: BodyError) -> ToolError {
    let code = match broken {
        BodyError::TimedOut => ToolErrorCode::Timeout,
        BodyError::Disconnected => ToolErrorCode::Unreachable,
        BodyError::TooLarge => ToolErrorCode::TooLarge,
    };
    ToolError::sent(code, format!("the answer is not whole: {broken}"))
}

/// A status that is no success, as a failure. Within a session 404 says that the session is
/// forgotten, and so does the 400 of older servers; such a request was not taken (decision A5).
pub(super) fn status_error(status: StatusCode, in_session: bool) -> ToolError {
    let code = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ToolErrorCode::Unauthorized,
        StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST if in_session => {
            ToolErrorCode::SessionExpired
        }
        _ => ToolErrorCode::Status,
    };
    let also = if status.is_redirection() {
        "; redirects are not followed"
    } else {
        ""
    };
    let message = format!("HTTP status {}{also}", status.as_u16());
    match code {
        ToolErrorCode::SessionExpired => ToolError::unsent(code, message),
        _ => ToolError::sent(code, message),
    }
}
