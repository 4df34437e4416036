//! Answers that are pages, and what several of them show.

use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{Html, IntoResponse as _, Response};
use ktsu_history::step_record::{StepPlace, StepRecords};
use ktsu_inspector::{CONTENT_SECURITY_POLICY, ShownStep};
use ktsu_ledger::Frame;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::step_name::StepName;

use super::super::policy;
use crate::access::{Caller, forbidden};

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

/// The reason why values of frames are not shown to a caller: those who may read frames see them.
pub(super) fn closed(caller: &Caller) -> Option<String> {
    let whole = policy::of(&Method::GET, "/runs/{id}/frames");
    let closed = whole.filter(|whole| !caller.may(*whole));
    closed.map(|policy| forbidden(policy).detail)
}

/// The content of a step or an item, by its path from the run.
pub(super) fn shown_step(
    fold: &EnvelopeFold,
    frames: &[Frame],
    path: &str,
    closed: Option<String>,
) -> Option<ShownStep> {
    let name = StepName::parse(path);
    let (scope, step) = name.path.rsplit_once('/').unwrap_or(("", &name.path));
    let place = StepPlace {
        scope,
        step,
        item: name.item,
    };
    let record = || StepRecords::new(fold, frames).record(place);
    let shown = match name.item {
        Some(item) => {
            let item = fold.item(scope, step, item)?;
            ShownStep::of_item(item, record())
        }
        None => {
            let step = fold.step(scope, step)?;
            ShownStep::of_step(step, record())
        }
    };
    Some(match closed {
        Some(why) => shown.closed(why),
        None => shown,
    })
}
