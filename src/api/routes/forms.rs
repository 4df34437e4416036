//! Forms of pages: `POST /inspector/do/PATH` is `POST PATH` with its fields as the members of the body.
//!
//! ```text
//! form ─▶ of a page of this service? 403 ─▶ the route PATH: its policy, its handler ─▶ 303 back, or a page that says why not
//! ```
//!
//! So who may send a form, and what it does, is decided where it is for programs.

use axum::body::Body;
use axum::extract::Request;
use axum::http::{Method, Uri, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ktsu_inspector::PagePlace;
use serde_json::Value;

use super::fork_forms::ForkFormPage;
use super::form_fields::{FormPages, NEW_RUN, TypedFields, is_inside, pages, read, see_other};
use super::inspector::failed::{FailureOf, as_page};
use crate::access::FromForm;
use ktsu_codes::ErrorCode;
use ktsu_server::ProblemDetails;
use ktsu_server::body;
use ktsu_server::origin;

/// The paths of forms begin with it.
const FORMS: &str = "/inspector/do";

/// The ends of the paths that pages have forms for.
const FORM_ROUTES: [&str; 7] = [
    "/approval/decide",
    "/review/decide",
    "/resume",
    "/pause",
    "/cancel",
    "/fork",
    "/retry",
];
/// The most bytes of an answer that is looked at.
const MAX_ANSWER: usize = 64 * 1024;

/// Makes a form of a page a request of its route, and the answer to it a page.
pub(super) async fn as_requests(mut request: Request, next: Next) -> Response {
    let Some(uri) = target(&request) else {
        return next.run(request).await;
    };
    let place = PagePlace::of(request.uri().path());
    if let Err(problem) = origin::check_form_origin(request.headers()) {
        let failure = FailureOf::form(place, None);
        return as_page(problem.into_response(), failure).await;
    }
    *request.uri_mut() = uri;
    let fork = ForkFormPage::of(place, &request).map(|page| (page, next.clone()));
    request.extensions_mut().insert(FromForm);
    let mut response = next.run(request).await;
    let pages = response.extensions_mut().remove::<FormPages>();
    let pages = pages.unwrap_or_default();
    if let Some((page, next)) = fork {
        response = match page.show(response, &pages, next).await {
            Ok(page) => return page,
            Err(answered) => answered,
        };
    }
    match response.status() {
        status if status.is_success() => {
            see_other(place, &after(pages.next, &pages.back, response).await)
        }
        status if status.is_redirection() => {
            let words = "this engine is a standby: decide at the owner of the ledger";
            let owner = response.headers().get(header::LOCATION);
            let owner = owner.and_then(|location| location.to_str().ok()?.parse::<Uri>().ok());
            let owner =
                owner.and_then(|uri| Some(format!("{}://{}", uri.scheme()?, uri.authority()?)));
            let problem = ProblemDetails::new(ErrorCode::Unavailable, words);
            let problem = problem.with_hint(owner.unwrap_or_default());
            let failure = FailureOf::form(place, Some(pages.back));
            as_page(problem.into_response(), failure).await
        }
        _ => as_page(response, FailureOf::form(place, Some(pages.back))).await,
    }
}

/// The page that is shown after an answer, which may be about what was made.
async fn after(next: String, back: &str, response: Response) -> String {
    if !next.contains(NEW_RUN) {
        return next;
    }
    let body = axum::body::to_bytes(response.into_body(), MAX_ANSWER).await;
    let made: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let made = made["run_id"].as_str().map(|id| next.replace(NEW_RUN, id));
    made.filter(|next| is_inside(next))
        .unwrap_or_else(|| back.to_owned())
}

/// The address of the route that a form is for.
fn target(request: &Request) -> Option<Uri> {
    let path = request.uri().path().strip_prefix(FORMS)?;
    let is_route = FORM_ROUTES.iter().any(|route| path.ends_with(route));
    let is_form = request.method() == Method::POST && request.uri().query().is_none();
    let is_form = is_form && is_route && path.starts_with("/runs/");
    is_form.then(|| path.parse().ok()).flatten()
}

/// Reads a form once its sender may send it, and hands its fields on as JSON.
pub(super) async fn as_json(request: Request, next: Next) -> Response {
    if request.extensions().get::<FromForm>().is_none() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let fields = match body::limited(&parts.extensions, body).await {
        Ok(bytes) => bytes,
        Err(problem) => return problem.into_response(),
    };
    let typed = TypedFields::of(&fields);
    let mut response = match read(&typed) {
        Ok(members) => {
            let json = Value::Object(members).to_string();
            next.run(Request::from_parts(parts, Body::from(json))).await
        }
        Err(problem) => problem.into_response(),
    };
    response.extensions_mut().insert(pages(&typed));
    response.extensions_mut().insert(typed);
    response
}
