//! `GET /runs`, `/runs/{id}`, `/runs/{id}/envelope`.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Cursor, Filter};
use ktsu_projections::envelope::Envelope;
use ktsu_projections::run::RunStatus;
use serde_json::{Value, json as value};

use super::parameter::{Parameter, ParameterKind};
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::{RunTarget, wire};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history as history;
use ktsu_history::layers::StateLayers;
use ktsu_history::steering::SteeringState;
use ktsu_orchestrator::{Orchestrator, ReadKind, RecentRun};
use ktsu_run_index::{UNREADABLE, listed_kinds};
use ktsu_server::ProblemDetails;

/// The default number of rows on a page.
const PAGE: usize = 50;
/// The most rows on a page.
const MAX_PAGE: u64 = 1000;

/// The filter of a list of runs.
#[derive(Debug)]
pub(super) struct RunFilter {
    kinds: Vec<String>,
    workflow: Option<String>,
    status: Option<String>,
    limit: usize,
    cursor: Option<Cursor>,
}

/// The states by which runs are listed.
pub(super) const STATUSES: [&str; 7] = [
    RunStatus::Pending.as_str(),
    RunStatus::Running.as_str(),
    RunStatus::Waiting.as_str(),
    RunStatus::Complete.as_str(),
    RunStatus::Failed.as_str(),
    RunStatus::Cancelled.as_str(),
    UNREADABLE,
];

impl QueryParameters for RunFilter {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "kind",
            ParameterKind::Words(&["run", "branch", "recompute"]),
            "Of this kind only; runs and their branches if absent.",
        ),
        Parameter::new("workflow", ParameterKind::Text, "Of this workflow only."),
        Parameter::new(
            "status",
            ParameterKind::Words(&STATUSES),
            "With this status only.",
        ),
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_PAGE),
            "How many; 50 if absent.",
        ),
        Parameter::new(
            "cursor",
            ParameterKind::Cursor,
            "Where the page begins: `next` of the page before.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let kind = given.owned("kind");
        Ok(Self {
            kinds: kind.map_or_else(listed_kinds, |kind| vec![kind]),
            workflow: given.owned("workflow"),
            status: given.owned("status"),
            limit: given.limit(PAGE),
            cursor: given.run_cursor()?,
        })
    }
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/runs", operation_id = "list_runs", params(Query::<RunFilter>), responses(
    (status = 200, body = wire::Runs),
))]
pub(super) async fn list(
    State(orchestrator): State<Orchestrator>,
    Query(which): Query<RunFilter>,
) -> Result<Json<Value>, ProblemDetails> {
    let (cursor, limit) = (which.cursor, which.limit);
    let filter = Filter {
        kinds: which.kinds,
        workflow: which.workflow,
        status: which.status,
        open: None,
    };
    let page = orchestrator
        .readers()
        .with(move |reader| reader.list(&filter, cursor.as_ref(), limit))
        .await?;
    let rows: Vec<Value> = page
        .rows
        .iter()
        .map(|row| run_json(row.row.to_value()))
        .collect();
    let mut body = value!({ "runs": rows });
    if let Some(next) = page.next {
        body["next"] = Value::from(next.to_string());
    }
    Ok(Json(body))
}

/// Members of a row, and the names that clients of the earlier API have for them.
const EARLIER: [(&str, &str); 3] = [
    ("run_id", "id"),
    ("workflow", "workflow_name"),
    ("ended_at", "completed_at"),
];

/// A row without what only the engine needs, with its members under their earlier names, too.
fn run_json(mut row: Value) -> Value {
    if let Some(members) = row.as_object_mut() {
        members.remove("idempotency_digest");
        for (name, earlier) in EARLIER {
            if let Some(value) = members.get(name).cloned() {
                members.insert(earlier.to_owned(), value);
            }
        }
    }
    row
}

/// One run and its steps.
#[utoipa::path(get, path = "/runs/{id}", operation_id = "get_run",
    params(RunTarget),
    responses((status = 200, body = wire::RunView)))]
pub(super) async fn get_run(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<Value>, ProblemDetails> {
    let (envelope, steered) = read_envelope(&orchestrator, run).await?;
    let run = wire::RunSummary {
        run_id: envelope.run_id,
        workflow: envelope.workflow,
        version: envelope.version,
        status: envelope.status.to_string(),
        branch: envelope.branch,
        error: envelope.error,
        created_at: envelope.created_at,
        ended_at: envelope.ended_at,
        paused: steered.paused,
        cancelled: steered.cancelled,
        totals: envelope.totals,
    };
    let steps = envelope.steps;
    Ok(Json(value!(wire::RunView { run, steps })))
}

/// The envelope of a run.
#[utoipa::path(get, path = "/runs/{id}/envelope",
    params(RunTarget),
    responses((status = 200, body = Envelope)))]
pub(super) async fn envelope(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<Envelope>, ProblemDetails> {
    let (envelope, _) = read_envelope(&orchestrator, run).await?;
    Ok(Json(envelope))
}

/// The layers of the state: computed, overlay and effective of each step.
#[utoipa::path(get, path = "/runs/{id}/state",
    params(RunTarget),
    responses((status = 200, body = StateLayers)))]
pub(super) async fn state(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Json<StateLayers>, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            ktsu_history::layers::layers(reader, &run.stream, &run.scope)
        });
    let found = read.await.map_err(problems::run_error)?;
    Ok(Json(found.ok_or(ErrorCode::RunNotFound)?))
}

/// The envelope of a run or an inline child, and the commands on the whole run.
pub(super) async fn read_envelope(
    orchestrator: &Orchestrator,
    run: RunTarget,
) -> Result<(Envelope, SteeringState), ProblemDetails> {
    let RunTarget { stream, scope } = run;
    let run = read_run(orchestrator, stream).await?;
    let found = run.and_then(|run| {
        let fold = run.fold();
        Some((fold.envelope(&scope)?, SteeringState::of(fold.state())))
    });
    found.ok_or_else(|| ErrorCode::RunNotFound.into())
}

/// A run as its last frame left it, if there is one.
pub(super) async fn read_run(
    orchestrator: &Orchestrator,
    stream: StreamId,
) -> Result<Option<Arc<RecentRun>>, ProblemDetails> {
    let recent = orchestrator.recent_runs();
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            if let Some(run) = recent.find(reader, &stream)? {
                return Ok(Some(run));
            }
            let read = history::envelope_and_frames(reader, &stream)?;
            Ok(read.map(|(fold, frames)| recent.keep(&stream, fold, &frames)))
        });
    read.await.map_err(problems::run_error)
}
