//! Answers that are pages, and what several of them show.

use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{Html, IntoResponse as _, Response};
use ktsu_history::step_record::{StepPlace, StepRecord};
use ktsu_inspector::{CONTENT_SECURITY_POLICY, ShownStep};
use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::envelope::{EnvelopeFold, ErrorView};
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

/// An error, in words.
pub(super) fn in_words(error: &ErrorView) -> String {
    format!("{}: {}", error.code, error.message)
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
    let text = |value: Option<CanonicalJson>| value.map(|it| it.as_str().to_owned());
    let mut shown = match name.item {
        Some(item) => {
            let item = fold.item(scope, step, item)?;
            ShownStep {
                output: text(item.output),
                raw_output: text(item.raw_output),
                error: item.error.as_ref().map(in_words),
                skip_reason: item.skip_reason,
                ..ShownStep::default()
            }
        }
        None => {
            let step = fold.step(scope, step)?;
            ShownStep {
                output: text(step.output),
                overlay: step.overlay.into_keys().collect(),
                computed: text(step.computed),
                raw_output: text(step.raw_output),
                error: step.error.as_ref().map(in_words),
                skip_reason: step.skip_reason,
                ..ShownStep::default()
            }
        }
    };
    let place = StepPlace {
        scope,
        step,
        item: name.item,
    };
    let record = StepRecord::of(fold, frames, place);
    shown.record = match &closed {
        Some(_) => record.without_payloads(),
        None => record,
    };
    shown.closed = closed;
    Some(shown)
}
