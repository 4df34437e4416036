//! Pages whose beginning is sent while the rest is made.

use std::convert::Infallible;
use std::future::ready;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use ktsu_inspector::rest_of;
use ktsu_server::ProblemDetails;

use super::failed::FailureOf;
use super::shown::answer;

/// A page whose beginning is sent at once. If the page then fails, its rest is that of the page that says so.
pub(super) fn in_two_parts(
    opening: String,
    page: impl Future<Output = Result<String, ProblemDetails>> + Send + 'static,
    failure: FailureOf,
) -> Response {
    let rest = async move {
        let page = page.await;
        rest_of(page.unwrap_or_else(|problem| failure.text(&problem.to_json())))
    };
    let parts = stream::once(ready(opening)).chain(stream::once(rest));
    let mut response = answer(String::new());
    *response.body_mut() = Body::from_stream(parts.map(Ok::<_, Infallible>));
    response
}

#[cfg(test)]
mod tests {
    use axum::http::Uri;
    use ktsu_codes::ErrorCode;

    use super::*;

    #[tokio::test]
    async fn the_beginning_of_a_page_is_sent_before_the_page_is_there_and_a_failure_is_its_rest() {
        let made = "<main id=\"main\">the page".to_owned();
        let failed = ProblemDetails::new(ErrorCode::Unreadable, "frame 7 is damaged");
        for (outcome, expected) in [(Ok(made), "the page"), (Err(failed), "frame 7 is damaged")] {
            let (give, page) = tokio::sync::oneshot::channel();
            let page = async move { page.await.unwrap() };
            let failure = FailureOf::page(&Uri::from_static("/inspector/runs/run_1"));
            let response = in_two_parts("early ".to_owned(), page, failure);
            assert_eq!(response.status(), 200);
            let mut parts = response.into_body().into_data_stream();
            assert_eq!(parts.next().await.unwrap().unwrap(), "early ");
            give.send(outcome).unwrap();
            let rest = parts.next().await.unwrap().unwrap();
            let rest = std::str::from_utf8(&rest).unwrap();
            assert!(rest.contains(expected), "{rest}");
            assert!(!rest.contains("<main"), "{rest}");
            assert!(parts.next().await.is_none());
        }
    }
}
