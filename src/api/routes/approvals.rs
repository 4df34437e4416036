//! `GET /approvals`, `GET /reviews`, `GET /runs/{id}/steps/{step}/approval` and `POST
//! …/approval/decide`: tool calls that need a person's decision (seed 000, invariant 34; decision
//! A1).

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::event::Decision;
use ktsu_ledger::store::Cursor;
use ktsu_projections::approvals::{ApprovalRecord, ApprovalStatus};
use ktsu_projections::person_requests::PersonRequest;
use ktsu_projections::step_name::split_scope;
use serde::Serialize;
use serde_json::{Value, json as value};

use super::command::{self, invalid};
use super::parameter::{Parameter, ParameterKind};
use super::paths::PathNames;
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::{RunTarget, StepPath, find_run, wire};
use crate::access::Caller;
use crate::ids;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history::approvals::{self, PendingCursor};
use ktsu_orchestrator::{CommandError, HumanCommand, Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::approval::{ApprovalCommand, ApprovalDecisionError};

/// The default number of runs to search.
const DEFAULT_LIMIT: usize = 1000;
/// The most runs that are looked at, or records on a page.
const MAX_LIMIT: u64 = 10_000;
/// The most items that a refusal names.
const MAX_ITEMS_NAMED: usize = 8;

/// The query of a list of approval records.
#[derive(Debug)]
pub(super) struct ApprovalListQuery {
    wanted: ApprovalPage,
    workflow: Option<String>,
    limit: Option<usize>,
}

/// A page, from the place where it begins.
#[derive(Debug)]
enum ApprovalPage {
    /// Those that wait, of all runs, the oldest first.
    Pending(Option<PendingCursor>),
    /// The records of the newest runs, in any status.
    All(Option<Cursor>),
}

const WORKFLOW: Parameter =
    Parameter::new("workflow", ParameterKind::Text, "Of this workflow only.");
const CURSOR: Parameter = Parameter::new(
    "cursor",
    ParameterKind::Cursor,
    "Where the page begins: as in the header `Link` of the page before.",
);

impl QueryParameters for ApprovalListQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "status",
            ParameterKind::Words(&["pending", "all"]),
            "`pending` if absent: those that wait, of all runs, the oldest first. `all`: those of \
             the newest runs, whatever became of them.",
        ),
        WORKFLOW,
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_LIMIT),
            "At most this many records; all of them if absent. For `all`: how many runs are looked \
             at; 1000 if absent.",
        ),
        CURSOR,
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            wanted: match given.text("status") {
                Some("all") => ApprovalPage::All(given.run_cursor()?),
                _ => ApprovalPage::Pending(given.cursor()?),
            },
            workflow: given.owned("workflow"),
            limit: given.text("limit").map(|_| given.limit(DEFAULT_LIMIT)),
        })
    }
}

/// A page of a list: the header `Link` names the next page, if there is one (RFC 8288). The body is
/// an array, so that clients of earlier systems read it.
fn page_response<T: Serialize>(
    found: &[T],
    next: Option<impl std::fmt::Display>,
    uri: &Uri,
) -> Response {
    let mut response = Json(value!(found)).into_response();
    let link = next.and_then(|next| {
        let query = uri.query().unwrap_or_default();
        let others = url::form_urlencoded::parse(query.as_bytes());
        let others = others.filter(|(name, _)| name != "cursor");
        let query = url::form_urlencoded::Serializer::new(String::new())
            .extend_pairs(others)
            .append_pair("cursor", &next.to_string())
            .finish();
        let link = format!("<{}?{query}>; rel=\"next\"", uri.path());
        HeaderValue::try_from(link).ok()
    });
    if let Some(link) = link {
        response.headers_mut().insert(header::LINK, link);
    }
    response
}

/// Calls of tools, and outcomes of steps, that wait for people.
#[utoipa::path(get, path = "/approvals", operation_id = "list_approvals", params(Query::<ApprovalListQuery>), responses(
    (status = 200, body = Vec<PersonRequest>),
))]
pub(super) async fn list(
    State(orchestrator): State<Orchestrator>,
    uri: Uri,
    Query(query): Query<ApprovalListQuery>,
) -> Result<Response, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let workflow = query.workflow.as_deref();
            match query.wanted {
                ApprovalPage::All(from) => {
                    let runs = query.limit.unwrap_or(DEFAULT_LIMIT);
                    let page = approvals::all_page(reader, workflow, from.as_ref(), runs);
                    page.map(|(records, next)| (records, next.map(|next| next.to_string())))
                }
                ApprovalPage::Pending(after) => {
                    let limit = query.limit.unwrap_or(usize::MAX);
                    let page = approvals::pending_page(reader, workflow, after.as_ref(), limit);
                    page.map(|(records, next)| (records, next.map(|next| next.to_string())))
                }
            }
        });
    let (records, next) = read.await?;
    Ok(page_response(&records, next, &uri))
}

/// The query of a list of reviews.
#[derive(Debug)]
pub(super) struct ReviewListQuery {
    workflow: Option<String>,
    limit: usize,
    cursor: Option<Cursor>,
}

impl QueryParameters for ReviewListQuery {
    const PARAMETERS: &'static [Parameter] = &[
        WORKFLOW,
        Parameter::new(
            "limit",
            ParameterKind::Number(1..=MAX_LIMIT),
            "How many failed runs are looked at; 1000 if absent.",
        ),
        CURSOR,
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            workflow: given.owned("workflow"),
            limit: given.limit(DEFAULT_LIMIT),
            cursor: given.run_cursor()?,
        })
    }
}

/// Runs that failed because an agent wants a person to look.
#[utoipa::path(get, path = "/reviews", params(Query::<ReviewListQuery>), responses(
    (status = 200, body = Vec<approvals::RunReview>),
))]
pub(super) async fn reviews(
    State(orchestrator): State<Orchestrator>,
    uri: Uri,
    Query(query): Query<ReviewListQuery>,
) -> Result<Response, ProblemDetails> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let workflow = query.workflow.as_deref();
            approvals::reviews_page(reader, workflow, query.cursor.as_ref(), query.limit)
        });
    let (found, next) = read.await?;
    Ok(page_response(&found, next, &uri))
}

/// The query for one approval record of a step.
#[derive(Debug)]
pub(super) struct ApprovalQuery {
    approval_id: Option<String>,
}

impl QueryParameters for ApprovalQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "approval_id",
        ParameterKind::Text,
        "This one. If absent what has waited longest; if nothing waits, the last.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            approval_id: given.owned("approval_id"),
        })
    }
}

/// Gets the approval of a step: the given one, otherwise the oldest pending one, otherwise the
/// last.
#[utoipa::path(get, path = "/runs/{id}/steps/{step}/approval", operation_id = "get_approval",
    params(StepPath, Query::<ApprovalQuery>),
    responses((status = 200, body = ApprovalRecord)))]
pub(super) async fn get(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<ApprovalQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let all = of_scope(&orchestrator, &run).await?;
    let mut records = of_step(&all, &step);
    let waits = |record: &ApprovalRecord| record.status == ApprovalStatus::Pending;
    let pending = records.iter().filter(|record| waits(record));
    let pending: Vec<String> = pending.map(|record| record.approval_id.clone()).collect();
    let at = match &query.approval_id {
        Some(id) => records.iter().position(|record| record.approval_id == *id),
        None => records
            .iter()
            .position(waits)
            .or(records.len().checked_sub(1)),
    };
    let Some(at) = at else {
        return Err(elsewhere_in_run(&all, &step));
    };
    let mut shown = records.swap_remove(at);
    if pending.len() > 1 {
        shown.pending = pending;
    }
    Ok(Json(value!(shown)))
}

/// Decides on a call.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/approval/decide", operation_id = "decide_approval",
    params(StepPath),
    request_body = wire::Decide,
    responses(
        (status = 200, body = ApprovalRecord, description = "Decided, and durable"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "Decided before (`approval` is the record), or not like this"),
    ))]
pub(super) async fn decide(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames((run, step)): PathNames<(String, String)>,
    _: Query<NoParameters>,
    body: JsonObject,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let (name, item) = ids::step(&step).ok_or(ErrorCode::StepNotFound)?;
    let body: wire::Decide = command::body(body)?;
    let decide = ApprovalCommand {
        scope: run.scope.clone(),
        step: name.to_owned(),
        item,
        approval_id: body.approval_id,
        digest: body.digest,
        decision: decision(&body.decision)?,
        by: caller.principal,
        reason: body.reason,
        result: body.result,
    };
    if decide.result.is_some() && decide.decision != Decision::Happened {
        return Err(invalid("result is allowed only with the decision happened"));
    }
    if decide.result.is_none() && decide.decision == Decision::Happened {
        return Err(invalid(
            "result is missing: what the call returned, for the model",
        ));
    }
    let wanted = decide.approval_id.clone();
    let receipt = orchestrator
        .submit_command(&run.stream, HumanCommand::Decide(decide), None)
        .await;
    let all = of_scope(&orchestrator, &run).await;
    match receipt {
        Ok(receipt) => {
            let decided =
                |record: &ApprovalRecord| record.votes.iter().any(|vote| vote.frame == receipt.seq);
            let record = of_step(&all?, &step).into_iter().find(decided);
            Ok(Json(value!(record)))
        }
        Err(CommandError::NotDecided(ApprovalDecisionError::NotPending { .. })) => {
            let all = all?;
            let refused = not_pending(&of_step(&all, &step), wanted.as_deref());
            Err(refused.unwrap_or_else(|| elsewhere_in_run(&all, &step)))
        }
        Err(refused) => Err(problems::command_error(refused)),
    }
}

/// Parses a decision. Seed 000 uses the forms approve and reject; both forms are accepted.
fn decision(word: &str) -> Result<Decision, ProblemDetails> {
    match word {
        "approve" | "approved" => Ok(Decision::Approved),
        "reject" | "rejected" => Ok(Decision::Rejected),
        "happened" => Ok(Decision::Happened),
        _ => {
            let words = "decision must be approved or rejected, or happened for a call in doubt";
            Err(ProblemDetails::new(ErrorCode::UnknownDecision, words))
        }
    }
}

/// The error if the approval was already decided; `None` if there was none.
fn not_pending(records: &[ApprovalRecord], wanted: Option<&str>) -> Option<ProblemDetails> {
    let mut records = records.iter().rev();
    let record = match wanted {
        Some(id) => records.find(|record| record.approval_id == id),
        None => records.next(),
    }?;
    let (code, words) = match record.status {
        ApprovalStatus::Timeout => {
            let words = "there was no decision in time".to_owned();
            (ErrorCode::ApprovalExpired, words)
        }
        ApprovalStatus::Void => {
            let words = "its step ended before a decision".to_owned();
            (ErrorCode::ApprovalRefused, words)
        }
        status => {
            let by = record.votes.last().map(|vote| format!(" by {}", vote.by));
            let (status, by) = (status.as_str(), by.unwrap_or_default());
            let words = format!("approval already decided: {status}{by}");
            (ErrorCode::ApprovalDecided, words)
        }
    };
    Some(ProblemDetails::new(code, words).with_member("approval", value!(record)))
}

/// The error for a step without approvals whose items may have some.
fn elsewhere_in_run(all: &[ApprovalRecord], step: &str) -> ProblemDetails {
    let items = format!("{step}.");
    let waits = |record: &&ApprovalRecord| record.status == ApprovalStatus::Pending;
    let mut records: Vec<&ApprovalRecord> = all.iter().collect();
    records.retain(|record| record.step_id.starts_with(&items));
    if records.iter().any(waits) {
        records.retain(waits);
    }
    let mut names: Vec<&str> = Vec::new();
    for record in records {
        if names.len() < MAX_ITEMS_NAMED && !names.contains(&record.step_id.as_str()) {
            names.push(&record.step_id);
        }
    }
    let Some(first) = names.first() else {
        return ErrorCode::ApprovalNotFound.into();
    };
    let words = format!("the items of the step have approvals: {}", names.join(", "));
    ProblemDetails::new(ErrorCode::ApprovalNotFound, words)
        .with_hint(format!("name the item: steps/{first}/approval"))
}

/// The records of a step.
fn of_step(all: &[ApprovalRecord], step: &str) -> Vec<ApprovalRecord> {
    let own = all.iter().filter(|record| record.step_id == step);
    own.cloned().collect()
}

/// The records of a run or an inline child.
async fn of_scope(
    orchestrator: &Orchestrator,
    run: &RunTarget,
) -> Result<Vec<ApprovalRecord>, ProblemDetails> {
    let stream = run.stream.clone();
    let mut records = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            approvals::of_run(reader, &stream)
        })
        .await?;
    records.retain(|record| {
        let (_, scope) = split_scope(&record.run_id);
        scope == run.scope
    });
    Ok(records)
}
