//! The pages in place of those that cannot be shown.

use std::convert::Infallible;

use axum::extract::{FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderName, HeaderValue, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use ktsu_inspector::{FailurePage, PagePlace, SignedIn};
use serde_json::Value;

use super::super::media_ranges::prefers_html;
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

    /// The page, with what a problem document says.
    pub(super) fn text(self, problem: &Value) -> String {
        let said = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
        ktsu_inspector::failure_page(&FailurePage {
            by: SignedIn::unknown(),
            place: self.place,
            title: said("title"),
            detail: said("detail"),
            hint: Some(said("hint")).filter(|hint| !hint.is_empty()),
            back: self.back,
            may_sign_in: problem["code"] == "forbidden",
        })
    }

    pub(super) fn page(uri: &Uri) -> Self {
        let asked = uri.path_and_query().map_or("", |asked| asked.as_str());
        Self {
            place: PagePlace::of(uri.path()),
            own: asked.strip_prefix(PAGES).unwrap_or_default().to_owned(),
            back: None,
        }
    }
}

/// A request of a browser that opens an address; an axum extractor. Other requests have none.
pub(in crate::routes) struct Navigation(pub(super) Option<FailureOf>);

impl<S: Send + Sync> FromRequestParts<S> for Navigation {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let mode = parts.headers.get(HeaderName::from_static("sec-fetch-mode"));
        let navigates = mode.is_some_and(|mode| mode == "navigate");
        let opens = navigates && prefers_html(&parts.headers);
        Ok(Self(opens.then(|| FailureOf::page(&parts.uri))))
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
    let (parts, body) = response.into_parts();
    if parts.status == StatusCode::UNAUTHORIZED {
        let FailureOf { place, own, .. } = failure;
        return sign_in::asked(place, own, parts.headers.get(header::WWW_AUTHENTICATE));
    }
    let body = axum::body::to_bytes(body, MAX_PROBLEM).await;
    let problem: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let mut shown = answer(failure.text(&problem));
    *shown.status_mut() = parts.status;
    shown
}

#[cfg(test)]
mod tests {
    use axum::body::Body;

    use super::*;

    #[tokio::test]
    async fn only_a_browser_that_opens_an_address_navigates() {
        for (mode, accept, navigates) in [
            (Some("navigate"), "text/html", true),
            (Some("navigate"), "application/json", false),
            (Some("cors"), "text/html", false),
            (None, "text/html", false),
        ] {
            let mut request = Request::get("/inspector/runs/run_1").header("accept", accept);
            if let Some(mode) = mode {
                request = request.header("sec-fetch-mode", mode);
            }
            let (mut parts, _) = request.body(Body::empty()).unwrap().into_parts();
            let Ok(Navigation(opened)) = Navigation::from_request_parts(&mut parts, &()).await;
            assert_eq!(opened.is_some(), navigates, "{mode:?} {accept}");
        }
    }
}
