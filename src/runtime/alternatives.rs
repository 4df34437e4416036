//! The tool servers of the orchestrator, where there are several orchestrators: a request goes to
//! the next if one does not take it.

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::request::Parts;
use axum::response::{IntoResponse as _, Response};
use ktsu_peer::{Peer, PeerError};

use super::callbacks::{Backoff, Callbacks};

/// The size limit of a call of a tool.
const MAX_CALL: usize = 64 * 1024 * 1024;

/// The way to the server of a URL, and the path with its query.
pub(super) fn server(callbacks: &Callbacks, url: &str) -> Result<(Peer, String), PeerError> {
    let (peer, path) = callbacks.peer(url)?;
    if callbacks.destinations(url).len() < 2 {
        return Ok((peer, path));
    }
    let (callbacks, url) = (callbacks.clone(), url.to_owned());
    let router = Router::new().fallback(async move |request: Request| {
        let (parts, body) = request.into_parts();
        match to_bytes(body, MAX_CALL).await {
            Ok(body) => send(&callbacks, &url, &parts, &body).await,
            Err(_) => StatusCode::PAYLOAD_TOO_LARGE.into_response(),
        }
    });
    Ok((Peer::Local(router), path))
}

/// Sends a request until an orchestrator takes it: the client of the tool server bounds the time.
/// Calls have a key, so that one that was carried out is not carried out again.
async fn send(callbacks: &Callbacks, url: &str, parts: &Parts, body: &Bytes) -> Response {
    let mut backoff = Backoff::default();
    loop {
        // A forgotten session is known by its status.
        let mut unknown = None;
        for to in callbacks.destinations(url) {
            let Ok((peer, path)) = callbacks.peer(&to.url) else {
                continue;
            };
            let mut request = Request::builder().method(&parts.method).uri(path);
            if let Some(headers) = request.headers_mut() {
                headers.clone_from(&parts.headers);
            }
            let Ok(request) = request.body(Body::from(body.clone())) else {
                return StatusCode::BAD_REQUEST.into_response();
            };
            match peer.call(request).await {
                Ok(response) if to.is_passing(response.status().as_u16()) => {
                    if response.status().is_client_error() {
                        unknown = Some(response);
                    }
                }
                Ok(response) => {
                    if response.status().is_success() {
                        callbacks.answered(&to);
                    }
                    return response;
                }
                Err(error) => tracing::debug!(%error, "retrying a call of a tool"),
            }
        }
        match unknown {
            Some(response) => return response,
            None => backoff.wait().await,
        }
    }
}
