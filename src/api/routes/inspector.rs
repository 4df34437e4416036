//! `GET /inspector/…`: the pages of the inspector.

pub(super) mod diff;
pub(super) mod evals;
pub(super) mod evidence;
pub(super) mod failed;
pub(super) mod frames;
pub(super) mod graph;
pub(super) mod kit;
mod kit_seen;
pub(super) mod runs;
mod shown;
pub(super) mod sign_in;
pub(super) mod step;
mod two_parts;
mod verifier;
pub(super) mod why;
pub(super) mod world;

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::http::{Method, header};
use axum::response::{IntoResponse as _, Response};
use ktsu_inspector::timeline::TimelineView;
use ktsu_inspector::{
    InboxPage, Permissions, RunOpening, RunPage, SignedIn, TimeRange, error_in_words,
};
use ktsu_ledger::store::Reader;
use ktsu_projections::step_name::scoped_run;
use serde_json::Value;

use self::failed::Navigation;
pub(super) use self::shown::answer;
use self::shown::{closed, shown_step};
use self::two_parts::{answer_with, first_part};
use super::parameter::{MAX_NUMBER, Parameter, ParameterKind};
use super::policy;
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::{RunTarget, no_such_run};
use crate::access::Caller;
use crate::problems::run_error;
use crate::run_cache::SharedRunCache;
use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::approvals::{self, PendingCursor};
use ktsu_history::family::{self, RunFamily};
use ktsu_history::run_cache::RunCache;
use ktsu_history::skeleton::RunSkeleton;
use ktsu_history::step_summaries::{StepSummaries, summaries_of};
use ktsu_history::world_moment::loads_worlds;
use ktsu_orchestrator::{LedgerRole, Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

/// The number of runs on a page.
const PAGE: usize = 50;
/// The number of items of a step that have a row each unless all are asked for.
const FEW_ITEMS: usize = 12;
/// The most items of a step that have a row each.
const ALL_ITEMS: usize = 2_000;
/// How long a browser keeps a file, whose content never changes under its name.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

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
            approvals::inbox_page(reader, cursor.as_ref(), PAGE)
        });
    let (requests, next) = read.await?;
    let shown = InboxPage {
        by: signed_in(&orchestrator, &caller),
        may: permissions(&orchestrator, &caller),
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
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "Where the part of the time begins that is shown, in milliseconds since the run was created; `until` belongs to it.",
        ),
        Parameter::new(
            "until",
            ParameterKind::Number(0..=MAX_NUMBER),
            "Where it ends; all of the time is shown where it is not later than `from`.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let range = match (given.number("from"), given.number("until")) {
            (None, None) => None,
            (from, until) => TimeRange::new(from.unwrap_or_default(), until.unwrap_or(u64::MAX)),
        };
        Ok(Self(TimelineView {
            range,
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
    SharedRunCache(cache): SharedRunCache,
    Query(RunPageQuery(view)): Query<RunPageQuery>,
    opened: Navigation,
) -> Result<Response, ProblemDetails> {
    let look = {
        let by = signed_in(&orchestrator, &caller);
        let (run, cache) = (run.clone(), cache.clone());
        move |reader: &dyn Reader| first_look(reader, &run, (by, &cache))
    };
    let first = first_part(&orchestrator, opened, look).await?;
    answer_with(first, whole_run(orchestrator, caller, run, cache, view)).await
}

/// The beginning of the page of a run, if it takes long to make the rest.
fn first_look(
    reader: &dyn Reader,
    run: &RunTarget,
    (by, cache): (SignedIn, &RunCache),
) -> Result<Option<String>, ProblemDetails> {
    let looked = match run.scope.as_str() {
        "" => cache.first_look(reader, &run.stream)?,
        _ => None,
    };
    Ok(looked.map(|(row, frames)| {
        ktsu_inspector::run_opening(&RunOpening {
            by,
            row,
            frames,
            has_world: loads_worlds(reader, &run.stream).unwrap_or_default(),
        })
    }))
}

/// The page of a run, once all its frames are read.
async fn whole_run(
    orchestrator: Orchestrator,
    caller: Caller,
    run: RunTarget,
    cache: RunCache,
    view: TimelineView,
) -> Result<String, ProblemDetails> {
    let by = signed_in(&orchestrator, &caller);
    let may = permissions(&orchestrator, &caller);
    let closed = closed(&caller);
    let kit = Arc::clone(orchestrator.kit());
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let read = cache.folded(reader, &run.stream)?;
            Ok::<_, RunReadError>(read.and_then(|folded| {
                let (fold, frames) = (&folded.fold, &folded.frames);
                let items = if view.all_items { ALL_ITEMS } else { FEW_ITEMS };
                let envelope = fold.envelope(&run.scope)?;
                let selected = view.selected.as_deref();
                let family = match run.scope.as_str() {
                    "" => family::family(reader, &run.stream),
                    _ => Ok(RunFamily::default()),
                };
                let skeleton = folded.skeleton(&run.scope, items)?;
                let shown = RunPage {
                    // The definition that is recorded is that of the run, not of an inline child.
                    kit: match run.scope.as_str() {
                        "" => {
                            kit_seen::kit_of_run(&kit, frames, &envelope.workflow, closed.is_none())
                        }
                        _ => None,
                    },
                    // A list that cannot be read is no reason to show nothing of the run.
                    family: family.unwrap_or_default(),
                    by,
                    may,
                    is_parked: fold.state().is_parked(),
                    // They are made of what the run was given and answered.
                    summaries: match &closed {
                        None => summaries_of(fold.state(), &skeleton),
                        Some(_) => StepSummaries::default(),
                    },
                    run: RunSkeleton::clone(&skeleton),
                    step: selected.and_then(|path| shown_step(fold, frames, path, closed)),
                    view,
                    error: envelope.error.as_ref().map(error_in_words),
                    output: envelope.output.map(|output| pretty(&output.to_value())),
                };
                Some(ktsu_inspector::run_page(&shown))
            }))
        });
    let page = read.await.map_err(run_error)?;
    page.ok_or_else(no_such_run)
}

fn pretty(value: &Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default()
}

/// A run or an inline child, as addresses have it.
fn name_of(run: &RunTarget) -> String {
    scoped_run(run.stream.name(), &run.scope)
}

pub(super) fn signed_in(orchestrator: &Orchestrator, caller: &Caller) -> SignedIn {
    SignedIn {
        has_kit: !orchestrator.kit().is_empty(),
        name: caller.principal.id.clone(),
        by_session: caller.by_session,
    }
}

/// What a caller may do with the forms of pages: what the routes permit that they are for.
fn permissions(orchestrator: &Orchestrator, caller: &Caller) -> Permissions {
    let is_owner = matches!(orchestrator.role(), LedgerRole::Owner);
    let may = |path| {
        let policy = policy::of(&Method::POST, path);
        is_owner && policy.is_some_and(|policy| caller.may(policy))
    };
    Permissions {
        roles: caller.roles().map(str::to_owned).collect(),
        is_admin: caller.is_admin,
        approve: may("/runs/{id}/steps/{step}/approval/decide"),
        review: may("/runs/{id}/steps/{step}/review/decide"),
        operate: may("/runs/{id}/pause"),
        export: policy::of(&Method::GET, "/runs/{id}/evidence")
            .is_some_and(|policy| caller.may(policy)),
    }
}

/// A file that pages load, or `verify.html`, the verifier of evidence for browsers.
#[utoipa::path(get, path = "/inspector/{file}",
    params(("file" = String, Path, description = "Its name, as pages have it.")),
    responses((status = 200, content(
        (String = "text/css"),
        (String = "text/javascript"),
        (String = "text/html"),
    ))))]
pub(super) async fn asset(
    Path(file): Path<String>,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    if file == ktsu_evidence::page::NAME {
        return Ok(verifier::page());
    }
    let asset = ktsu_inspector::asset(&file).ok_or(ErrorCode::NotFound)?;
    let headers = [
        (header::CONTENT_TYPE, asset.media_type),
        (header::CACHE_CONTROL, FOR_EVER),
    ];
    Ok((headers, asset.text).into_response())
}
