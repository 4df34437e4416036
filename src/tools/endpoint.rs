//! The connection to a server: through the guarded client, or, for a built-in server, like the
//! services of the engine. The responses look the same.

use http::{Request, StatusCode};
use tokio::time::timeout;

use super::{ToolError, ToolErrorCode};
use ktsu_egress::{self as egress, BodyError, ResponseStream, SlotKind, StreamRequest};
use ktsu_peer::Peer;

/// The connection to a server.
#[derive(Clone)]
pub(super) enum Endpoint {
    /// A third-party server, reached through the guarded client.
    External(egress::Client),
    /// A built-in server, reached like the services of the engine.
    Builtin(Peer),
}

/// The right to send one request.
pub(super) enum PreparedRequest {
    External(egress::RequestSlot),
    Builtin(Peer, String),
}

impl Endpoint {
    /// Waits for the right to send a request.
    pub(super) async fn prepare(
        &self,
        url: &str,
        of: SlotKind,
    ) -> Result<PreparedRequest, ToolError> {
        Ok(match self {
            Self::External(client) => {
                PreparedRequest::External(client.acquire_slot(url, of).await?)
            }
            Self::Builtin(peer) => PreparedRequest::Builtin(peer.clone(), url.to_owned()),
        })
    }
}

impl PreparedRequest {
    /// Sends the request once, and waits for the head of the response.
    pub(super) async fn send(self, head: StreamRequest) -> Result<ResponseStream, ToolError> {
        let (peer, path) = match self {
            Self::External(slot) => return Ok(slot.send(head).await?),
            Self::Builtin(peer, path) => (peer, path),
        };
        let request = Request::builder().method(head.method).uri(path);
        let mut request = request
            .body(head.body.into())
            .map_err(|_| ToolError::unsent(ToolErrorCode::Refused, "the path cannot be read"))?;
        *request.headers_mut() = head.headers;
        let silent = |code| ToolError::sent(code, "the orchestrator does not answer");
        let answer = timeout(head.timeout, peer.call(request))
            .await
            .map_err(|_| silent(ToolErrorCode::Timeout))?
            .map_err(|_| silent(ToolErrorCode::Unreachable))?;
        let answer = answer.map(|body| body.into_data_stream());
        Ok(ResponseStream::from_service(
            answer,
            head.idle,
            head.max_bytes,
        ))
    }
}

/// The error for a body that was not read to its end.
pub(super) fn body_error(broken: BodyError) -> ToolError {
    let code = match broken {
        BodyError::TimedOut => ToolErrorCode::Timeout,
        BodyError::Disconnected => ToolErrorCode::Unreachable,
        BodyError::TooLarge => ToolErrorCode::TooLarge,
    };
    ToolError::sent(code, format!("the answer is not whole: {broken}"))
}

/// The error for a status other than success. Within a session 404 says that the session is
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
