//! Request bodies: bounded, strictly parsed, always an object (decision H2).
//!
//! The Content-Type is ignored. A body with an announced length over the limit is refused before it
//! is read; one with a false or missing length is cut off at the limit.

use axum::body::{Body, Bytes, HttpBody as _};
use axum::extract::{FromRequest, Request};
use axum::http::Extensions;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
pub use ktsu_ledger::canonical::deeper_than;
use ktsu_ledger::canonical::{JsonError, MAX_DEPTH, parse_strict};
use serde_json::{Map, Value};
use tower_http::timeout::TimeoutError;

use crate::{ProblemDetails, json_words};
use ktsu_codes::ErrorCode;

/// The most bytes of a request body.
pub const MAX_BODY: usize = 1024 * 1024;

/// A lower limit than [`MAX_BODY`], where the environment has one; an extension of requests.
#[derive(Debug, Clone, Copy)]
pub struct BodyLimit(pub usize);

/// The body of a request as a JSON object; an axum extractor, the last argument of a handler.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonObject(pub Map<String, Value>);

impl<S: Send + Sync> FromRequest<S> for JsonObject {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ProblemDetails> {
        let (parts, body) = request.into_parts();
        object(&limited(&parts.extensions, body).await?).map(Self)
    }
}

/// The body of a request as any JSON; an axum extractor, the last argument of a handler.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonBody(pub Value);

impl<S: Send + Sync> FromRequest<S> for JsonBody {
    type Rejection = ProblemDetails;

    async fn from_request(request: Request, _state: &S) -> Result<Self, ProblemDetails> {
        let (parts, body) = request.into_parts();
        value(&limited(&parts.extensions, body).await?).map(Self)
    }
}

/// The bytes of a body, as many as its sender may send by the extensions of the request.
pub async fn limited(of: &Extensions, body: Body) -> Result<Bytes, ProblemDetails> {
    let limit = of.get::<BodyLimit>();
    let limit = limit.map_or(MAX_BODY, |limit| limit.0.min(MAX_BODY));
    read_at_most(body, limit).await
}

/// The bytes of a body, at most [`MAX_BODY`].
pub async fn read(body: Body) -> Result<Bytes, ProblemDetails> {
    read_at_most(body, MAX_BODY).await
}

/// The bytes of a body, at most `limit`.
pub async fn read_at_most(body: Body, limit: usize) -> Result<Bytes, ProblemDetails> {
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large(limit));
    }
    match Limited::new(body, limit).collect().await {
        Ok(collected) => Ok(collected.to_bytes()),
        Err(error) => Err(broken(&*error, limit)),
    }
}

/// An object from the bytes of a body; an empty body is an empty object.
pub fn object(bytes: &[u8]) -> Result<Map<String, Value>, ProblemDetails> {
    if bytes.iter().all(u8::is_ascii_whitespace) {
        return Ok(Map::new());
    }
    match value(bytes)? {
        Value::Object(members) => Ok(members),
        _ => Err(ErrorCode::NotAnObject.into()),
    }
}

/// Any JSON from the bytes of a body, as strictly.
pub fn value(bytes: &[u8]) -> Result<Value, ProblemDetails> {
    parse_strict(bytes).map_err(|unfit| match unfit {
        JsonError::Depth => ProblemDetails::new(
            ErrorCode::TooDeep,
            format!("the body is nested deeper than {MAX_DEPTH} levels"),
        ),
        error @ JsonError::Syntax { .. } => {
            ProblemDetails::new(ErrorCode::InvalidJson, json_words::of_refused(&error))
        }
    })
}

/// That a body is longer than it may be.
pub fn too_large(limit: usize) -> ProblemDetails {
    let detail = format!("a body may have at most {limit} bytes");
    ProblemDetails::new(ErrorCode::BodyTooLarge, detail)
}

/// The reason why reading stopped, found in the chain of causes that axum and tower wrap around it.
fn broken(error: &(dyn std::error::Error + 'static), limit: usize) -> ProblemDetails {
    let mut cause = Some(error);
    while let Some(error) = cause {
        if error.is::<LengthLimitError>() {
            return too_large(limit);
        }
        if error.is::<TimeoutError>() {
            return ErrorCode::Timeout.into();
        }
        cause = error.source();
    }
    ProblemDetails::new(ErrorCode::InvalidJson, "the body ended early")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str) -> Option<ErrorCode> {
        object(text.as_bytes()).err().map(|problem| problem.code)
    }

    #[test]
    fn an_empty_body_is_an_empty_object() {
        assert_eq!(object(b""), Ok(Map::new()));
        assert_eq!(object(b" \r\n"), Ok(Map::new()));
        assert_eq!(object(b"{}"), Ok(Map::new()));
    }

    #[test]
    fn what_is_not_strict_json_is_distinguished_from_what_is_not_an_object() {
        for text in [
            "{",
            "nope",
            r#"{"a":1,"a":1}"#,
            r#"{"a":"\ud800"}"#,
            "{} {}",
            "\u{feff}{}",
        ] {
            assert_eq!(code(text), Some(ErrorCode::InvalidJson), "{text}");
        }
        for text in ["null", "1", "\"a\"", "[]", "true"] {
            assert_eq!(code(text), Some(ErrorCode::NotAnObject), "{text}");
        }
        let deep = format!("{{\"a\":{}{}}}", "[".repeat(64), "]".repeat(64));
        assert_eq!(code(&deep), Some(ErrorCode::TooDeep));
    }

    #[tokio::test]
    async fn a_body_is_cut_off_where_it_passes_the_limit() {
        let fits = read_at_most(Body::from(vec![b' '; 10]), 10).await;
        assert_eq!(fits.map(|bytes| bytes.len()), Ok(10));
        let over = read_at_most(Body::from(vec![b' '; 11]), 10).await;
        assert_eq!(
            over.map_err(|problem| problem.code),
            Err(ErrorCode::BodyTooLarge)
        );
        let chunks = [Ok::<_, std::io::Error>("123456"), Ok("789012")];
        let unannounced = Body::from_stream(futures_util::stream::iter(chunks));
        let over = read_at_most(unannounced, 10).await;
        assert_eq!(
            over.map_err(|problem| problem.code),
            Err(ErrorCode::BodyTooLarge)
        );
    }
}
