//! `/openapi.json`: the description, rendered once and shared by all requests.

use axum::body::Bytes;
use axum::response::{IntoResponse as _, Response};
use utoipa::openapi::OpenApi;

/// The text of a description.
pub fn text(api: &OpenApi) -> Bytes {
    // Names, texts and numbers always have a JSON form.
    api.to_json().map_or_else(|_| Bytes::new(), Bytes::from)
}

/// An answer that is such a text.
pub fn response(text: &Bytes) -> Response {
    ([("content-type", "application/json")], text.clone()).into_response()
}
