//! Requests to the engine: the routes that commands use, with the same access rules.

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, header};
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::answer::AnswerError;
use ktsu_opening::Failure;
use ktsu_opening::peer::problem;
use ktsu_peer::Peer;

/// The most bytes that are read of a response. Pages of the engine have at most 8 MiB; envelopes
/// and traces have no pages.
const MAX_RESPONSE_BYTES: usize = 64 * 1024 * 1024;

/// A response.
pub(super) struct EngineResponse {
    /// The body.
    pub(super) body: Value,
    /// The cursor of the next page, from the header `Link`.
    pub(super) next: Option<String>,
}

/// A page of frames.
pub(super) struct FrameTexts {
    /// Each as it is stored: only its own bytes can be read as a frame.
    pub(super) frames: Vec<Box<RawValue>>,
    /// The position at which the next page begins, if there is one.
    pub(super) next: Option<u64>,
}

/// Reads a page of frames.
///
/// # Errors
/// As of [`get`].
pub(super) async fn get_frames(peer: &Peer, path: &str) -> Result<FrameTexts, AnswerError> {
    #[derive(Deserialize)]
    struct Page {
        frames: Vec<Box<RawValue>>,
        next: Option<u64>,
    }
    let (bytes, _) = send_for_bytes(peer, Method::GET, path, &[], Body::empty()).await?;
    let page: Page = serde_json::from_slice(&bytes).map_err(Failure::of)?;
    let Page { frames, next } = page;
    Ok(FrameTexts { frames, next })
}

/// Reads something.
///
/// # Errors
/// What the engine answers, or that it does not answer.
pub(super) async fn get(peer: &Peer, path: &str) -> Result<Value, AnswerError> {
    let response = send(peer, Method::GET, path, &[], Body::empty()).await?;
    Ok(response.body)
}

/// Reads a page of a list.
///
/// # Errors
/// As of [`get`].
pub(super) async fn get_page(peer: &Peer, path: &str) -> Result<EngineResponse, AnswerError> {
    send(peer, Method::GET, path, &[], Body::empty()).await
}

/// Sends a command.
///
/// # Errors
/// As of [`get`].
pub(super) async fn post(
    peer: &Peer,
    path: &str,
    headers: &[(&str, &str)],
    body: &Value,
) -> Result<Value, AnswerError> {
    let body = Body::from(body.to_string());
    let response = send(peer, Method::POST, path, headers, body).await?;
    Ok(response.body)
}

async fn send(
    peer: &Peer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Result<EngineResponse, AnswerError> {
    let (bytes, next) = send_for_bytes(peer, method, path, headers, body).await?;
    let body = serde_json::from_slice(&bytes).unwrap_or_default();
    Ok(EngineResponse { body, next })
}

/// The body of a response, and the cursor of the next page.
async fn send_for_bytes(
    peer: &Peer,
    method: Method,
    path: &str,
    headers: &[(&str, &str)],
    body: Body,
) -> Result<(Bytes, Option<String>), AnswerError> {
    let mut request = Request::builder().method(method).uri(path);
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let request = request.body(body).map_err(Failure::of)?;
    let response = peer.call(request).await.map_err(Failure::from)?;
    let status = response.status();
    let next = response.headers().get(header::LINK);
    let next = next.and_then(|link| cursor(link.to_str().ok()?));
    let read = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    let bytes = match read.collect().await {
        Ok(read) => read.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => {
            let mebibytes = MAX_RESPONSE_BYTES / (1024 * 1024);
            let words = format!("the engine's response has more than {mebibytes} MiB");
            return Err(AnswerError::new(words).hint("look at this run with the command line"));
        }
        Err(error) => return Err(AnswerError::new(format!("the response broke off: {error}"))),
    };
    match status.is_success() {
        true => Ok((bytes, next)),
        false => {
            let body = serde_json::from_slice(&bytes).unwrap_or_default();
            Err(problem(status.as_u16(), &body).into())
        }
    }
}

/// The cursor in `</approvals?cursor=…>; rel="next"`.
fn cursor(link: &str) -> Option<String> {
    let url = link.strip_prefix('<')?.split_once('>')?.0;
    let query = url.split_once('?')?.1;
    let mut pairs = url::form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(name, _)| name == "cursor");
    found.map(|(_, value)| value.into_owned())
}

/// A name as one segment of a path: `R/call` is `R%2Fcall`.
pub(super) fn segment(name: &str) -> String {
    let mut encoded = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' => encoded.push(byte.into()),
            b'.' if !name.trim_matches('.').is_empty() => encoded.push('.'),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

/// The id of a run, which may be given as that of its stream, `run:ID`.
pub(super) fn bare_id(run_id: &str) -> &str {
    let kinds = ["run:", "branch:", "recompute:"];
    let bare = kinds.iter().find_map(|kind| run_id.strip_prefix(kind));
    bare.unwrap_or(run_id)
}

/// The path of a run.
pub(super) fn run_path(run_id: &str) -> String {
    format!("/runs/{}", segment(bare_id(run_id)))
}

/// A path with a query.
pub(super) fn with_query(path: &str, pairs: &[(&str, Option<String>)]) -> String {
    let mut query = url::form_urlencoded::Serializer::new(String::new());
    for (name, value) in pairs {
        if let Some(value) = value {
            query.append_pair(name, value);
        }
    }
    match query.finish() {
        query if query.is_empty() => path.to_owned(),
        query => format!("{path}?{query}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_segment() {
        assert_eq!(segment("run_1-a.b"), "run_1-a.b");
        assert_eq!(segment("R/call"), "R%2Fcall");
        assert_eq!(segment(".."), "%2E%2E");
        assert_eq!(segment("a?b#c d\r\nä"), "a%3Fb%23c%20d%0D%0A%C3%A4");
        assert_eq!(run_path("run:run_1"), "/runs/run_1");
        assert_eq!(run_path("../approvals"), "/runs/..%2Fapprovals");
    }

    #[test]
    fn queries_and_cursors_are_encoded_and_decoded() {
        let path = with_query("/a", &[("x", Some("1 &".to_owned())), ("y", None)]);
        assert_eq!(path, "/a?x=1+%26");
        assert_eq!(with_query("/a", &[("y", None)]), "/a");
        let link = "</approvals?limit=1&cursor=a%2Fb>; rel=\"next\"";
        assert_eq!(cursor(link).as_deref(), Some("a/b"));
        assert_eq!(cursor("nothing"), None);
    }
}
