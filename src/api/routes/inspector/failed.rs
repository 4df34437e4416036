//! The pages in place of those that cannot be shown.

use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use ktsu_inspector::{FailurePage, PagePlace, SignedIn};
use serde_json::Value;

use super::super::home::prefers_html;
use super::shown::answer;
use super::sign_in;
use ktsu_server::origin::PAGES;

/// The most bytes of a problem document that is shown as a page.
const MAX_PROBLEM: usize = 64 * 1024;

/// What is known of a page that cannot be shown.
pub(in crate::routes) struct FailureOf {
    place: PagePlace,
    /// Its own address, below `/inspector/`.
    own: String,
    /// The page from which a form was sent.
    back: Option<String>,
}

impl FailureOf {
    /// Of a form, from a page.
    pub(in crate::routes) fn form(place: PagePlace, back: Option<String>) -> Self {
        Self {
            place,
            own: back.clone().unwrap_or_default(),
            back,
        }
    }

    fn page(uri: &Uri) -> Self {
        let asked = uri.path_and_query().map_or("", |asked| asked.as_str());
        Self {
            place: PagePlace::of(uri.path()),
            own: asked.strip_prefix(PAGES).unwrap_or_default().to_owned(),
            back: None,
        }
    }
}

/// Answers a browser that asks for a page with a page, also where there is none to show.
pub(in crate::routes) async fn failures_as_pages(request: Request, next: Next) -> Response {
    let is_page = request.uri().path().starts_with(PAGES) && prefers_html(request.headers());
    let failure = is_page.then(|| FailureOf::page(request.uri()));
    let response = next.run(request).await;
    match failure {
        Some(failure) => as_page(response, failure).await,
        None => response,
    }
}

/// Makes a problem document a page; anything else stays what it is.
pub(in crate::routes) async fn as_page(response: Response, failure: FailureOf) -> Response {
    let problem = HeaderValue::from_static("application/problem+json");
    if response.headers().get(header::CONTENT_TYPE) != Some(&problem) {
        return response;
    }
    let FailureOf { place, own, back } = failure;
    let (parts, body) = response.into_parts();
    if parts.status == StatusCode::UNAUTHORIZED {
        return sign_in::asked(place, own, parts.headers.get(header::WWW_AUTHENTICATE));
    }
    let body = axum::body::to_bytes(body, MAX_PROBLEM).await;
    let problem: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let said = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
    let page = ktsu_inspector::failure_page(&FailurePage {
        by: SignedIn::unknown(),
        place,
        title: said("title"),
        detail: said("detail"),
        hint: Some(said("hint")).filter(|hint| !hint.is_empty()),
        back,
        may_sign_in: problem["code"] == "forbidden",
    });
    let mut shown = answer(page);
    *shown.status_mut() = parts.status;
    shown
}
