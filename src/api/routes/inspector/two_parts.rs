//! Pages whose beginning is sent while the rest is made.

use std::convert::Infallible;
use std::future::ready;

use axum::body::Body;
use axum::response::Response;
use futures_util::{StreamExt as _, stream};
use ktsu_inspector::rest_of;
use ktsu_ledger::store::Reader;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::failed::{FailureOf, Navigation};
use super::shown::answer;

/// The beginning of a page that a browser opens.
pub(super) struct FirstPart {
    text: String,
    /// For the rest of the page, should that fail.
    failure: FailureOf,
}

/// The beginning that `look` gives of a page; none for programs, which get whole answers with their status.
pub(super) async fn first_part(
    orchestrator: &Orchestrator,
    Navigation(opened): Navigation,
    look: impl FnOnce(&dyn Reader) -> Result<Option<String>, ProblemDetails> + Send + 'static,
) -> Result<Option<FirstPart>, ProblemDetails> {
    let Some(failure) = opened else {
        return Ok(None);
    };
    let looked = orchestrator.readers().with_kind(ReadKind::Page, look);
    let text = looked.await?;
    Ok(text.map(|text| FirstPart { text, failure }))
}

/// A page, its beginning sent at once if it has one. If the page then fails, its rest is that of the page that says so.
pub(super) async fn answer_with(
    first: Option<FirstPart>,
    page: impl Future<Output = Result<String, ProblemDetails>> + Send + 'static,
) -> Result<Response, ProblemDetails> {
    let Some(FirstPart { text, failure }) = first else {
        return Ok(answer(page.await?));
    };
    let rest = async move {
        let page = page.await;
        rest_of(page.unwrap_or_else(|problem| failure.text(&problem.to_json())))
    };
    let parts = stream::once(ready(text)).chain(stream::once(rest));
    let mut response = answer(String::new());
    *response.body_mut() = Body::from_stream(parts.map(Ok::<_, Infallible>));
    Ok(response)
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
            let first = FirstPart {
                text: "early ".to_owned(),
                failure: FailureOf::page(&Uri::from_static("/inspector/runs/run_1")),
            };
            let response = answer_with(Some(first), page).await.unwrap();
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

    #[tokio::test]
    async fn a_page_without_a_first_part_fails_with_its_status() {
        let failed = ProblemDetails::new(ErrorCode::Unreadable, "frame 7 is damaged");
        let answered = answer_with(None, ready(Err(failed))).await;
        assert_eq!(answered.unwrap_err().detail, "frame 7 is damaged");
    }
}
