//! `GET /inspector/evals` and `GET /inspector/evals/{id}`: the pages of verdicts.

use axum::extract::{Path, State};
use axum::response::Response;
use ktsu_codes::ErrorCode;
use ktsu_history::eval_list::{self, EvalsWanted};
use ktsu_history::eval_sheet::{self, CheckChange, EvalSheet};
use ktsu_history::evals::EvalReadError;
use ktsu_inspector::{EvalPage, EvalView, EvalsPage, EvalsView, SignedIn, frames_to_say};
use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_projections::lineage::LineageNode;
use ktsu_server::ProblemDetails;

use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::{find_eval, find_run};
use super::{answer, signed_in};
use crate::access::Caller;
use crate::problems::eval_error;

/// The number of evals on a page.
const PAGE: usize = 50;
/// The most evals of a spec whose scores are drawn over time.
const OVER_TIME: usize = 40;
/// The largest place of a scenario, and of a replica.
const MAX_PLACE: u64 = 10_000;

/// The view of the evals.
#[derive(Debug)]
pub(in crate::routes) struct EvalsPageQuery(EvalsView);

impl QueryParameters for EvalsPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "spec",
            ParameterKind::Any,
            "Only evals whose spec has this file name; all if it is empty.",
        ),
        Parameter::new(
            "run",
            ParameterKind::Any,
            "Only evals of this run; all if it is empty.",
        ),
        Parameter::new(
            "before",
            ParameterKind::Any,
            "Only evals that began before this one, as the links of the page have it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(EvalsView {
            file: given.owned("spec").unwrap_or_default(),
            run: given.owned("run").unwrap_or_default(),
            before: given.owned("before").unwrap_or_default(),
        }))
    }
}

/// The page of all evals, for people.
#[utoipa::path(get, path = "/inspector/evals", operation_id = "evals_page", params(Query::<EvalsPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn list(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    Query(EvalsPageQuery(view)): Query<EvalsPageQuery>,
) -> Result<Response, ProblemDetails> {
    let run = match view.run.as_str() {
        "" => None,
        run => Some(find_run(&orchestrator, run).await?.stream),
    };
    let before = match view.before.as_str() {
        "" => None,
        before => Some(find_eval(&orchestrator, before.to_owned()).await?.stream),
    };
    let wanted = EvalsWanted {
        run,
        file: Some(view.file.clone()).filter(|file| !file.is_empty()),
        before,
    };
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            eval_list::page(reader, &wanted, PAGE)
        });
    let shown = EvalsPage {
        by: signed_in(&orchestrator, &caller),
        list: read.await?,
        view,
    };
    Ok(answer(ktsu_inspector::evals_page(&shown)))
}

/// The view of an eval.
#[derive(Debug)]
pub(in crate::routes) struct EvalPageQuery(EvalView);

impl QueryParameters for EvalPageQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "show",
            ParameterKind::Words(&["failed"]),
            "`failed`: only scenarios that did not pass.",
        ),
        Parameter::new(
            "scenario",
            ParameterKind::Number(0..=MAX_PLACE),
            "The scenario that is selected, by its place in the eval.",
        ),
        Parameter::new(
            "replica",
            ParameterKind::Number(0..=MAX_PLACE),
            "The replica of it whose findings are shown; the first if absent.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_PLACE),
            "Where the table begins, as the links of the page have it.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let place = |name| {
            let number = given.number(name);
            number.map(|number| usize::try_from(number).unwrap_or(usize::MAX))
        };
        Ok(Self(EvalView {
            scenario: place("scenario"),
            replica: place("replica").unwrap_or_default(),
            failed_only: given.text("show").is_some(),
            from: place("from").unwrap_or_default(),
        }))
    }
}

/// The page of an eval, for people.
#[utoipa::path(get, path = "/inspector/evals/{id}", operation_id = "eval_page",
    params(("id" = String, Path, description = "An eval"), Query::<EvalPageQuery>),
    responses((status = 200, body = String, content_type = "text/html")))]
pub(in crate::routes) async fn one(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    id: Result<Path<String>, axum::extract::rejection::PathRejection>,
    Query(EvalPageQuery(view)): Query<EvalPageQuery>,
) -> Result<Response, ProblemDetails> {
    let Path(id) = id.map_err(|_| ErrorCode::EvalNotFound)?;
    let stream = find_eval(&orchestrator, id).await?.stream;
    let by = signed_in(&orchestrator, &caller);
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            read_page(reader, &stream, view, by)
        });
    let page = read.await.map_err(eval_error)?;
    let page = page.ok_or(ErrorCode::EvalNotFound)?;
    Ok(answer(ktsu_inspector::eval_page(&page)))
}

fn read_page(
    reader: &dyn Reader,
    stream: &StreamId,
    view: EvalView,
    by: SignedIn,
) -> Result<Option<EvalPage>, EvalReadError> {
    let Some(sheet) = eval_sheet::sheet(reader, stream)? else {
        return Ok(None);
    };
    let of_spec = EvalsWanted {
        file: Some(sheet.report.spec.file.clone()),
        ..EvalsWanted::default()
    };
    let file = &sheet.report.spec.file;
    let since = match eval_list::earlier_of_spec(reader, stream, file)? {
        Some(earlier) => changes(reader, &sheet, &earlier)?,
        None => None,
    };
    let over_time = eval_list::page(reader, &of_spec, OVER_TIME)?.evals;
    let selected = view.selected(&sheet.report);
    let run = selected.and_then(|(_, scenario)| view.run(scenario));
    let frames = match run {
        Some(run) => said(reader, &run.run_id, &frames_to_say(run))?,
        None => Vec::new(),
    };
    Ok(Some(EvalPage {
        by,
        of_spec: over_time.into_iter().flatten().collect(),
        view,
        since,
        frames,
        sheet,
    }))
}

/// The checks with another result than in an earlier eval. One that cannot be read is not compared.
fn changes(
    reader: &dyn Reader,
    sheet: &EvalSheet,
    earlier: &StreamId,
) -> Result<Option<(String, Vec<CheckChange>)>, StoreError> {
    let name = earlier.name().to_owned();
    match eval_sheet::sheet(reader, earlier) {
        Ok(Some(before)) => Ok(Some((name, sheet.changes_since(&before)))),
        Ok(None) | Err(EvalReadError::Record(_) | EvalReadError::Store(StoreError::Damaged(_))) => {
            Ok(None)
        }
        Err(EvalReadError::Store(error)) => Err(error),
    }
}

/// What frames of a run say. A run that is damaged has a page of its own that says so.
fn said(reader: &dyn Reader, run: &str, frames: &[u64]) -> Result<Vec<LineageNode>, StoreError> {
    let Ok(stream) = StreamId::run(run) else {
        return Ok(Vec::new());
    };
    match eval_sheet::frames_in_words(reader, &stream, frames) {
        Err(StoreError::Damaged(_)) => Ok(Vec::new()),
        read => read,
    }
}
