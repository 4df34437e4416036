//! How a server is reached: through the guarded client, or, if it is one of ours, as services of
//! ours reach each other. What comes back looks the same.

use std::time::Duration;

use axum::body::Bytes;
use http::{HeaderMap, Request, StatusCode, header};
use http_body_util::BodyExt as _;
use tokio::time::timeout;

use super::{ToolError, ToolErrorCode};
use ktsu_egress::{self as egress, Broken, Head, Use};
use ktsu_peer::Peer;

/// Whose server it is.
#[derive(Clone)]
pub(super) enum Way {
    /// Somebody's.
    Out(egress::Client),
    /// Ours.
    Own(Peer),
}

/// The right to send one request.
pub(super) enum Place {
    Out(egress::Place),
    Own(Peer, String),
}

/// An answer whose body has not been read.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) body: Body,
}

/// A body, read as it comes.
pub(super) enum Body {
    Out(Box<egress::Stream>),
    Own {
        body: axum::body::Body,
        idle: Option<Duration>,
        left: u64,
    },
}

impl Way {
    /// Waits until it is our turn.
    pub(super) async fn place(&self, url: &str, of: Use) -> Result<Place, ToolError> {
        match self {
            Self::Out(client) => Ok(Place::Out(client.place(url, of).await?)),
            Self::Own(peer) => Ok(Place::Own(peer.clone(), url.to_owned())),
        }
    }
}

impl Place {
    /// Sends once, and waits for the head of the answer.
    pub(super) async fn send(self, head: Head) -> Result<Answer, ToolError> {
        match self {
            Self::Out(place) => {
                let mut stream = place.send(head).await?;
                Ok(Answer {
                    status: stream.status,
                    headers: std::mem::take(&mut stream.headers),
                    body: Body::Out(Box::new(stream)),
                })
            }
            Self::Own(peer, path) => send_own(&peer, &path, head).await,
        }
    }
}

async fn send_own(peer: &Peer, path: &str, head: Head) -> Result<Answer, ToolError> {
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
    Ok(Answer {
        status: parts.status,
        headers: parts.headers,
        body: Body::Own {
            body,
            idle: head.idle,
            left: head.most,
        },
    })
}

impl Body {
    /// The next bytes; `None` at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Bytes>, Broken> {
        let (body, idle, left) = match self {
            Self::Out(stream) => return stream.chunk().await,
            Self::Own { body, idle, left } => (body, idle, left),
        };
        loop {
            let next = body.frame();
            let next = match idle {
                None => next.await,
                Some(idle) => timeout(*idle, next).await.map_err(|_| Broken::Silent)?,
            };
            let Some(frame) = next else { return Ok(None) };
            let Ok(bytes) = frame.map_err(|_| Broken::Off)?.into_data() else {
                continue;
            };
            *left = left
                .checked_sub(bytes.len() as u64)
                .ok_or(Broken::TooLarge)?;
            return Ok(Some(bytes));
        }
    }

    /// The rest of it, if that is no more than so many bytes.
    pub(super) async fn whole(&mut self, most: usize) -> Result<Vec<u8>, Broken> {
        let mut whole = Vec::new();
        while let Some(bytes) = self.chunk().await? {
            if whole.len() + bytes.len() > most {
                return Err(Broken::TooLarge);
            }
            whole.extend_from_slice(&bytes);
        }
        Ok(whole)
    }
}

impl Answer {
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
pub(super) fn broken(broken: Broken) -> ToolError {
    let code = match broken {
        Broken::Silent => ToolErrorCode::Timeout,
        Broken::Off => ToolErrorCode::Unreachable,
        Broken::TooLarge => ToolErrorCode::TooLarge,
    };
    ToolError::sent(code, format!("the answer is not whole: {broken}"))
}

/// A status that is no success, as a failure. Within a session 404 says that the session is
/// forgotten, and so does the 400 of older servers; such a request was not taken (decision A5).
pub(super) fn status(status: StatusCode, in_session: bool) -> ToolError {
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
