//! Forms of forks that are checked alone, or refused: a page shows them again, as they were typed.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Extensions, HeaderMap, StatusCode, Uri, header};
use axum::middleware::Next;
use axum::response::Response;
use ktsu_inspector::{EditedPromptView, ForkDraft, ForkVerdict, PagePlace};
use serde_json::Value;

use super::form_fields::{FormPages, TypedFields};
use super::inspector::answer;
use super::wire::ForkCheck;

/// The end of the path of a fork.
const FORK: &str = "/fork";
/// The most bytes of a refusal.
const MAX_REFUSAL: usize = 256 * 1024;

/// What a form of a fork is shown again by: the page of the frame that it forks after, as its sender sees it.
pub(super) struct ForkFormPage {
    place: PagePlace,
    /// `/runs/ID`.
    run: String,
    headers: HeaderMap,
    extensions: Extensions,
}

impl ForkFormPage {
    /// The page of a form that was sent to a place; none if it is no form of a fork.
    pub(super) fn of(place: PagePlace, request: &Request) -> Option<Self> {
        let run = request.uri().path().strip_suffix(FORK)?;
        let mut headers = request.headers().clone();
        for of_body in [
            header::CONTENT_TYPE,
            header::CONTENT_LENGTH,
            header::TRANSFER_ENCODING,
        ] {
            headers.remove(of_body);
        }
        Some(Self {
            place,
            run: run.to_owned(),
            headers,
            extensions: request.extensions().clone(),
        })
    }

    /// Shows a form again that made no branch.
    ///
    /// # Errors
    /// The answer to it, where that is shown otherwise.
    pub(super) async fn show(
        self,
        mut answered: Response,
        pages: &FormPages,
        next: Next,
    ) -> Result<Response, Response> {
        let typed = answered.extensions_mut().remove::<TypedFields>();
        let status = answered.status();
        let (verdict, answered) = verdict_of(answered).await;
        let (Some(typed), Some(verdict)) = (typed, verdict) else {
            return Err(answered);
        };
        if pages.is_part {
            let part = ktsu_inspector::verdict_page(self.place, &verdict);
            return Ok(with_status(answer(part), status));
        }
        let last = typed.get("at_frame:json");
        let Some(last) = last.and_then(|last| last.parse::<u64>().ok()) else {
            return Err(answered);
        };
        let draft = ForkDraft {
            place: self.place,
            fields: typed.0,
            verdict,
        };
        match self.request(last, draft) {
            None => Err(answered),
            Some(request) => match next.run(request).await {
                page if page.status().is_success() => Ok(with_status(page, status)),
                _ => Err(answered),
            },
        }
    }

    /// The request for the page, by the sender of the form.
    fn request(self, last: u64, draft: ForkDraft) -> Option<Request> {
        let uri = format!("/inspector{}/frames?frame={last}", self.run);
        let mut request = Request::new(Body::empty());
        *request.uri_mut() = uri.parse::<Uri>().ok()?;
        *request.headers_mut() = self.headers;
        *request.extensions_mut() = self.extensions;
        request.extensions_mut().insert(Arc::new(draft));
        Some(request)
    }
}

fn with_status(mut page: Response, status: StatusCode) -> Response {
    *page.status_mut() = status;
    page
}

/// The verdict in an answer, and the answer as it was.
async fn verdict_of(mut answered: Response) -> (Option<ForkVerdict>, Response) {
    if let Some(checked) = answered.extensions_mut().remove::<Arc<ForkCheck>>() {
        return (Some(possible(&checked)), answered);
    }
    let status = answered.status();
    if !status.is_client_error() || status == StatusCode::UNAUTHORIZED {
        return (None, answered);
    }
    let (parts, body) = answered.into_parts();
    let body = axum::body::to_bytes(body, MAX_REFUSAL).await;
    let body = body.unwrap_or_default();
    let problem = serde_json::from_slice::<Value>(&body);
    let verdict = problem.ok().map(|problem| refused(&problem));
    (verdict, Response::from_parts(parts, Body::from(body)))
}

fn possible(checked: &ForkCheck) -> ForkVerdict {
    let prompts = checked.prompts.iter();
    ForkVerdict::Possible {
        bound: { checked.estimate.as_ref() }.map(|all| all.bound(checked.bound).clone()),
        prompts: prompts
            .map(|edited| EditedPromptView {
                agent: edited.agent.clone(),
                prompt: edited.prompt.clone(),
                steps: edited.steps.clone(),
            })
            .collect(),
    }
}

fn refused(problem: &Value) -> ForkVerdict {
    let text = |of: &Value, member: &str| of[member].as_str().unwrap_or_default().to_owned();
    let faults = problem["errors"].as_array().into_iter().flatten();
    ForkVerdict::Refused {
        detail: text(problem, "detail"),
        hint: text(problem, "hint"),
        faults: faults
            .map(|fault| (text(fault, "path"), text(fault, "message")))
            .collect(),
    }
}
