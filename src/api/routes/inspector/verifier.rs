//! The verifier of evidence for browsers.

use axum::http::{HeaderValue, header};
use axum::response::Response;
use ktsu_evidence::page::verifier_page;

use super::shown::answer;

/// The page, whose policy names its own script and permits no connection.
pub(super) fn page() -> Response {
    let page = verifier_page();
    let mut response = answer(page.text.clone());
    // The policy is plain text, as the tests see.
    let policy = HeaderValue::from_str(&page.policy);
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    response
}
