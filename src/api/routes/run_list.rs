//! `GET /runs` and `GET /statistics`: which runs there are, and how they went.

use axum::Json;
use axum::extract::State;
use ktsu_ledger::store::{Cursor, Filter};
use ktsu_projections::index::RunRow;
use ktsu_projections::run::RunStatus;
use serde_json::{Value, json as value};

use super::parameter::{Parameter, ParameterKind};
use super::query::{Query, QueryParameters, RawQuery};
use super::wire;
use ktsu_history::run_list::{self, RunFlag, RunQuery, RunStatistics};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_run_index::{UNREADABLE, listed_kinds};
use ktsu_server::ProblemDetails;

/// The default number of rows on a page.
const PAGE: usize = 50;
/// The most rows on a page.
const MAX_PAGE: u64 = 1000;
/// The default number of intervals.
const INTERVALS: u64 = 48;
/// The most intervals.
const MAX_INTERVALS: u64 = 500;

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

const KIND: Parameter = Parameter::new(
    "kind",
    ParameterKind::Words(&["run", "branch", "recompute"]),
    "Of this kind only; runs and their branches if absent.",
);
const WORKFLOW: Parameter =
    Parameter::new("workflow", ParameterKind::Text, "Of this workflow only.");
const STATUS: Parameter = Parameter::new(
    "status",
    ParameterKind::Words(&STATUSES),
    "With this status only.",
);
const PRINCIPAL: Parameter = Parameter::new(
    "principal",
    ParameterKind::Text,
    "Started or forked by this principal only.",
);
const TEXT: Parameter = Parameter::new(
    "text",
    ParameterKind::Text,
    "With this text in an id, in the name or the version of the workflow, in the error code or in the \
     principal; case is ignored.",
);
const SINCE: Parameter = Parameter::new(
    "since",
    ParameterKind::Time,
    "Accepted at this time or later: `2026`, `2026-11-20`, `2026-11-20T10:00`, in UTC.",
);
const UNTIL: Parameter = Parameter::new("until", ParameterKind::Time, "Accepted before this time.");
const MIN_COST: Parameter = Parameter::new(
    "min_cost_micro_usd",
    ParameterKind::Number(0..=super::parameter::MAX_NUMBER),
    "That cost this much at least, in millionths of a US dollar. A run has a recorded cost once it has ended.",
);
const FLAG: Parameter = Parameter::new(
    "flag",
    ParameterKind::Words(&RunFlag::NAMES),
    "`asks`: that wait for people; `paused`; `branch`.",
);

/// The runs that a query asks for.
fn wanted(given: &RawQuery) -> RunQuery {
    let kind = given.owned("kind");
    RunQuery {
        filter: Filter {
            kinds: kind.map_or_else(listed_kinds, |kind| vec![kind]),
            workflow: given.owned("workflow"),
            status: given.owned("status"),
            open: None,
        },
        principal: given.owned("principal"),
        text: given.owned("text"),
        since: given.time("since"),
        until: given.time("until"),
        min_cost_micro_usd: given.number("min_cost_micro_usd"),
        flag: given.text("flag").and_then(RunFlag::named),
    }
}

/// The query of a list of runs.
#[derive(Debug)]
pub(super) struct RunListQuery {
    wanted: RunQuery,
    limit: usize,
    cursor: Option<Cursor>,
}

impl QueryParameters for RunListQuery {
    const PARAMETERS: &'static [Parameter] = &[
        KIND,
        WORKFLOW,
        STATUS,
        PRINCIPAL,
        TEXT,
        SINCE,
        UNTIL,
        MIN_COST,
        FLAG,
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
        Ok(Self {
            wanted: wanted(given),
            limit: given.limit(PAGE),
            cursor: given.run_cursor()?,
        })
    }
}

/// How much is read for a list of runs: the rows that are listed, or all rows until enough of them fit.
pub(super) fn read_kind(wanted: &RunQuery) -> ReadKind {
    match wanted.is_plain() {
        true => ReadKind::Page,
        false => ReadKind::Run,
    }
}

/// Lists runs, newest first.
#[utoipa::path(get, path = "/runs", operation_id = "list_runs", params(Query::<RunListQuery>), responses(
    (status = 200, body = wire::Runs),
))]
pub(super) async fn list(
    State(orchestrator): State<Orchestrator>,
    Query(query): Query<RunListQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    let kind = read_kind(&query.wanted);
    let read = orchestrator.readers().with_kind(kind, move |reader| {
        run_list::list(reader, &query.wanted, query.cursor.as_ref(), query.limit)
    });
    let found = read.await?;
    let rows: Vec<Value> = found.rows.iter().map(run_json).collect();
    let mut body = value!({ "runs": rows });
    if let Some(next) = found.next {
        body["next"] = Value::from(next.to_string());
    }
    Ok(Json(body))
}

/// The query of figures over time.
#[derive(Debug)]
pub(super) struct StatisticsQuery {
    wanted: RunQuery,
    intervals: usize,
}

impl QueryParameters for StatisticsQuery {
    const PARAMETERS: &'static [Parameter] = &[
        KIND,
        WORKFLOW,
        STATUS,
        PRINCIPAL,
        TEXT,
        SINCE,
        UNTIL,
        MIN_COST,
        FLAG,
        Parameter::new(
            "intervals",
            ParameterKind::Number(1..=MAX_INTERVALS),
            "Into how many intervals the time is divided; 48 if absent.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        let intervals = given.number("intervals").unwrap_or(INTERVALS);
        Ok(Self {
            wanted: wanted(given),
            intervals: usize::try_from(intervals).unwrap_or(1),
        })
    }
}

/// How many runs there were over time, how many of them failed, how long they took and what they cost.
#[utoipa::path(get, path = "/statistics", params(Query::<StatisticsQuery>), responses(
    (status = 200, body = RunStatistics),
))]
pub(super) async fn statistics(
    State(orchestrator): State<Orchestrator>,
    Query(query): Query<StatisticsQuery>,
) -> Result<Json<RunStatistics>, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            run_list::statistics(
                reader,
                &query.wanted,
                query.intervals,
                run_list::MAX_LOOKED_AT,
            )
        });
    Ok(Json(read.await?))
}

/// Members of a row, and the names that clients of the earlier API have for them.
const EARLIER: [(&str, &str); 3] = [
    ("run_id", "id"),
    ("workflow", "workflow_name"),
    ("ended_at", "completed_at"),
];

/// A row without what only the engine needs, with its members under their earlier names, too.
pub(super) fn run_json(row: &RunRow) -> Value {
    let mut row = value!(row);
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
