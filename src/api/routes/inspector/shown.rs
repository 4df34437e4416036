//! Answers that are pages.

use axum::http::{HeaderName, HeaderValue, header};
use axum::response::{Html, IntoResponse as _, Response};
use ktsu_inspector::CONTENT_SECURITY_POLICY;

/// A page, with what browsers have to know of it.
pub(in crate::routes) fn answer(page: String) -> Response {
    let mut response = Html(page).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
