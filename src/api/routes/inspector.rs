//! `GET /inspector/…`: the pages of the inspector.

pub(super) mod frames;
pub(super) mod why;

use axum::extract::{Path, Request, State};
use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::{Html, IntoResponse as _, Response};
use ktsu_inspector::timeline::TimelineView;
use ktsu_inspector::{
    CONTENT_SECURITY_POLICY, FailurePage, InboxPage, PagePlace, RunPage, RunsPage, RunsView,
    ShownStep, SignedIn,
};
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::store::{Cursor, Filter};
use ktsu_projections::envelope::{EnvelopeFold, ErrorView};
use ktsu_projections::index::RunRow;
use ktsu_projections::step_name::{StepName, scoped_run};
use serde_json::Value;

use super::home::prefers_html;
use super::parameter::{Parameter, ParameterKind};
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::runs::STATUSES;
use super::{RunTarget, no_such_run};
use crate::access::Caller;
use crate::problems::run_error;
use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::approvals::{self, PendingCursor};
use ktsu_history::skeleton;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_run_index::listed_kinds;
use ktsu_server::ProblemDetails;

/// The number of runs on a page.
const PAGE: usize = 50;
/// The number of items of a step that have a row each unless all are asked for.
const FEW_ITEMS: usize = 12;
/// The most items of a step that have a row each.
const ALL_ITEMS: usize = 2_000;
/// The most bytes of a problem document that is shown as a page.
const MAX_PROBLEM: usize = 64 * 1024;
/// How long a browser keeps a file, whose content never changes under its name.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The view of the list of runs.
#[derive(Debug)]
pub(super) struct RunsPageQuery {
    view: RunsView,
    cursor: Option<Cursor>,
}

impl QueryParameters for RunsPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "workflow",
            ParameterKind::Any,
            "Of this workflow only; of any if it is empty, as in the form of the page.",
        ),
        Parameter::new(
            "status",
            ParameterKind::Any,
            "With this status only; with any if it is empty, as in the form of the page.",
        ),
        Parameter::new(
            "cursor",
            ParameterKind::Cursor,
            "Where the page begins, as the link to it has it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            view: RunsView {
                workflow: given.owned("workflow").unwrap_or_default(),
                status: given.owned("status").unwrap_or_default(),
            },
            cursor: given.run_cursor()?,
        })
    }
}

/// The page of all runs, for people.
#[utoipa::path(get, path = "/inspector/runs", params(Query::<RunsPageQuery>), responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(super) async fn runs(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    Query(asked): Query<RunsPageQuery>,
) -> Result<Response, ProblemDetails> {
    let RunsPageQuery { view, cursor } = asked;
    let given = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
    let filter = Filter {
        kinds: listed_kinds(),
        workflow: given(&view.workflow),
        status: given(&view.status),
        open: None,
    };
    let is_later = cursor.is_some();
    let readers = orchestrator.readers();
    let page = readers.with(move |reader| reader.list(&filter, cursor.as_ref(), PAGE));
    let page = page.await?;
    let rows = page.rows.iter();
    let rows = rows.filter_map(|row| serde_json::from_str::<RunRow>(row.row.as_str()).ok());
    let shown = RunsPage {
        by: signed_in(&caller),
        view,
        statuses: STATUSES.map(str::to_owned).to_vec(),
        rows: rows.collect(),
        next: page.next.map(|next| next.to_string()),
        is_later,
    };
    Ok(answer(ktsu_inspector::runs_page(&shown)))
}

/// The page of the inbox.
#[derive(Debug)]
pub(super) struct InboxPageQuery(Option<PendingCursor>);

impl QueryParameters for InboxPageQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "cursor",
        ParameterKind::Cursor,
        "Where the page begins, as the link to it has it.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(given.cursor()?))
    }
}

/// The page of what waits for people, for people.
#[utoipa::path(get, path = "/inspector/inbox", params(Query::<InboxPageQuery>), responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(super) async fn inbox(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    Query(InboxPageQuery(cursor)): Query<InboxPageQuery>,
) -> Result<Response, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            approvals::pending_page(reader, None, cursor.as_ref(), PAGE)
        });
    let (requests, next) = read.await?;
    let shown = InboxPage {
        by: signed_in(&caller),
        requests,
        next: next.map(|next| next.to_string()),
    };
    Ok(answer(ktsu_inspector::inbox_page(&shown)))
}

/// The view of a run.
#[derive(Debug)]
pub(super) struct RunPageQuery(TimelineView);

impl QueryParameters for RunPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "step",
            ParameterKind::Text,
            "The step or the item that is selected, by its path: `call/inner`, `classify.8`.",
        ),
        Parameter::new(
            "idle",
            ParameterKind::Words(&["compress"]),
            "`compress`: long times in which nothing was at work take little room.",
        ),
        Parameter::new(
            "items",
            ParameterKind::Words(&["all"]),
            "`all`: every item has a row of its own, up to 2,000 of each step.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(TimelineView {
            compress: given.text("idle").is_some(),
            all_items: given.text("items").is_some(),
            selected: given.owned("step"),
        }))
    }
}

/// The page of a run, for people.
#[utoipa::path(get, path = "/inspector/runs/{id}", params(RunTarget, Query::<RunPageQuery>), responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(super) async fn run(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    run: RunTarget,
    Query(RunPageQuery(view)): Query<RunPageQuery>,
) -> Result<Response, ProblemDetails> {
    let by = signed_in(&caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let read = ktsu_history::envelope_and_frames(reader, &run.stream)?;
            Ok::<_, RunReadError>(read.and_then(|(fold, frames)| {
                let items = if view.all_items { ALL_ITEMS } else { FEW_ITEMS };
                let envelope = fold.envelope(&run.scope)?;
                let selected = view.selected.as_deref();
                let shown = RunPage {
                    by,
                    run: skeleton::skeleton(&fold, &frames, &run.scope, items)?,
                    step: selected.and_then(|path| step(&fold, path)),
                    view,
                    error: envelope.error.as_ref().map(in_words),
                    output: envelope.output.map(|output| pretty(&output.to_value())),
                };
                Some(ktsu_inspector::run_page(&shown))
            }))
        });
    let page = read.await.map_err(run_error)?;
    Ok(answer(page.ok_or_else(no_such_run)?))
}

/// The content of a step or an item, by its path from the run.
fn step(fold: &EnvelopeFold, path: &str) -> Option<ShownStep> {
    let name = StepName::parse(path);
    let (scope, step) = name.path.rsplit_once('/').unwrap_or(("", &name.path));
    let shown = |value: Option<CanonicalJson>| value.map(|it| pretty(&it.to_value()));
    if let Some(item) = name.item {
        let item = fold.item(scope, step, item)?;
        return Some(ShownStep {
            output: shown(item.output),
            raw_output: shown(item.raw_output),
            error: item.error.as_ref().map(in_words),
            skip_reason: item.skip_reason,
        });
    }
    let step = fold.step(scope, step)?;
    Some(ShownStep {
        output: shown(step.output),
        raw_output: shown(step.raw_output),
        error: step.error.as_ref().map(in_words),
        skip_reason: step.skip_reason,
    })
}

fn in_words(error: &ErrorView) -> String {
    format!("{}: {}", error.code, error.message)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A run or an inline child, as addresses have it.
fn name_of(run: &RunTarget) -> String {
    scoped_run(run.stream.name(), &run.scope)
}

fn signed_in(caller: &Caller) -> SignedIn {
    SignedIn {
        name: caller.principal.id.clone(),
    }
}

/// A file that pages load.
#[utoipa::path(get, path = "/inspector/{file}",
    params(("file" = String, Path, description = "Its name, as pages have it.")),
    responses((status = 200, body = String, content_type = "text/css")))]
pub(super) async fn asset(
    Path(file): Path<String>,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let asset = ktsu_inspector::asset(&file).ok_or(ErrorCode::NotFound)?;
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, FOR_EVER),
    ];
    Ok((headers, asset.text).into_response())
}

/// A page, with what browsers have to know of it.
fn answer(page: String) -> Response {
    let mut response = Html(page).into_response();
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Answers a browser that asks for a page with a page, also where there is none to show.
pub(super) async fn failures_as_pages(request: Request, next: Next) -> Response {
    let path = request.uri().path();
    let is_page = path.starts_with("/inspector/") && prefers_html(request.headers());
    let place = PagePlace::of(path);
    let response = next.run(request).await;
    let problem = HeaderValue::from_static("application/problem+json");
    if !is_page || response.headers().get(header::CONTENT_TYPE) != Some(&problem) {
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = axum::body::to_bytes(body, MAX_PROBLEM).await;
    let problem: Value = serde_json::from_slice(&body.unwrap_or_default()).unwrap_or_default();
    let said = |member: &str| problem[member].as_str().unwrap_or_default().to_owned();
    let page = ktsu_inspector::failure_page(&FailurePage {
        by: SignedIn {
            name: String::new(),
        },
        place,
        title: said("title"),
        detail: said("detail"),
        hint: Some(said("hint")).filter(|hint| !hint.is_empty()),
    });
    let mut shown = answer(page);
    *shown.status_mut() = parts.status;
    // Some browsers show their own page for a status without a body of its own; ours has one.
    if parts.status == StatusCode::UNAUTHORIZED
        && let Some(asks) = parts.headers.get(header::WWW_AUTHENTICATE)
    {
        shown
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, asks.clone());
    }
    shown
}
