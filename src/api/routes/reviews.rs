//! `GET /runs/{id}/steps/{step}/review` and `POST …/review/decide`: outcomes that need a person's
//! decision before they count (seed 004; decision P3).

use axum::Json;
use axum::extract::State;
use ktsu_ledger::event::ReviewDecision;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::reviews::ReviewRecord;
use ktsu_projections::step_name::split_scope;
use serde_json::{Value, json as value};

use super::command;
use super::parameter::{Parameter, ParameterKind};
use super::paths::PathNames;
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::{RunTarget, StepPath, find_run, wire};
use crate::access::Caller;
use crate::ids;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history::approvals;
use ktsu_orchestrator::{CommandError, HumanCommand, Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::review::{ReviewCommand, ReviewDecisionError};

/// The query for one review of a step.
#[derive(Debug)]
pub(super) struct ReviewQuery {
    review_id: Option<String>,
}

impl QueryParameters for ReviewQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "review_id",
        ParameterKind::Text,
        "This one. If absent the one that is pending; if none is, the last.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            review_id: given.owned("review_id"),
        })
    }
}

/// Gets the review of a step's outcome.
#[utoipa::path(get, path = "/runs/{id}/steps/{step}/review", operation_id = "get_review",
    params(StepPath, Query::<ReviewQuery>),
    responses((status = 200, body = ReviewRecord)))]
pub(super) async fn get(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<ReviewQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let mut records = of_step(&orchestrator, &run, &step).await?;
    let at = match &query.review_id {
        Some(id) => records.iter().position(|record| record.review_id == *id),
        // A review is asked for when the one before it is over.
        None => records.len().checked_sub(1),
    };
    let at = at.ok_or(ErrorCode::ReviewNotFound)?;
    Ok(Json(value!(records.swap_remove(at))))
}

/// Decides on the outcome of a step.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/review/decide", operation_id = "decide_review",
    params(StepPath),
    request_body = wire::DecideReview,
    responses(
        (status = 200, body = ReviewRecord, description = "Decided, and durable"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "Decided before (`review` is the record), or not like this"),
    ))]
pub(super) async fn decide(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames((run, step)): PathNames<(String, String)>,
    _: Query<NoParameters>,
    body: Result<JsonObject, ProblemDetails>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let (name, item) = ids::step(&step).ok_or(ErrorCode::StepNotFound)?;
    if item.is_some() {
        return Err(ErrorCode::ReviewNotFound.into());
    }
    let known = of_step(&orchestrator, &run, &step).await?;
    permit(&known, &caller)?;
    let pending = known
        .last()
        .filter(|record| record.status == ApprovalStatus::Pending);
    let permitted = pending.map(|record| record.request);
    let body: wire::DecideReview = command::body(body?)?;
    let said = ReviewCommand {
        scope: run.scope.clone(),
        step: name.to_owned(),
        review_id: body.review_id,
        permitted,
        decision: decision(&body.decision)?,
        overlay: body.overlay.unwrap_or_default(),
        by: caller.principal,
        reason: body.reason,
    };
    let receipt = orchestrator
        .submit_command(&run.stream, HumanCommand::Review(said), None)
        .await;
    match receipt {
        Ok(receipt) => {
            let records = of_step(&orchestrator, &run, &step).await?;
            let decided =
                |record: &ReviewRecord| record.votes.iter().any(|vote| vote.frame == receipt.seq);
            Ok(Json(value!(records.into_iter().find(decided))))
        }
        Err(CommandError::NotReviewed(refused)) => {
            let over = matches!(
                refused,
                ReviewDecisionError::Decided { .. }
                    | ReviewDecisionError::NotPending { .. }
                    | ReviewDecisionError::Expired { .. }
            );
            let records = of_step(&orchestrator, &run, &step).await?;
            match records.last().filter(|_| over) {
                Some(record) => Err(ended(record)),
                None => Err(problems::review_error(refused)),
            }
        }
        Err(refused) => Err(problems::command_error(refused)),
    }
}

/// Refuses a caller who has none of the roles that the policy of the review asks for. Where nothing is
/// pending, the roles of the last review count, so that no more is said than to a caller who has one.
fn permit(records: &[ReviewRecord], caller: &Caller) -> Result<(), ProblemDetails> {
    let Some(record) = records.last() else {
        return Ok(());
    };
    caller.must_have_one_of(&record.roles, "the review asks for")
}

/// Parses a decision, in the form of the seed or of frames.
fn decision(word: &str) -> Result<ReviewDecision, ProblemDetails> {
    match word {
        "approve" | "approved" => Ok(ReviewDecision::Approved),
        "reject" | "rejected" => Ok(ReviewDecision::Rejected),
        _ => {
            let words = "decision must be approved or rejected";
            Err(ProblemDetails::new(ErrorCode::UnknownDecision, words))
        }
    }
}

/// The error for a review that is over.
fn ended(record: &ReviewRecord) -> ProblemDetails {
    let (code, words) = match record.status {
        ApprovalStatus::Timeout => {
            let words = "there was no decision in time".to_owned();
            (ErrorCode::ReviewExpired, words)
        }
        ApprovalStatus::Void => {
            let words = "its step ended before a decision".to_owned();
            (ErrorCode::ReviewDecided, words)
        }
        status => {
            let by = record.votes.last().map(|vote| format!(" by {}", vote.by));
            let (status, by) = (status.as_str(), by.unwrap_or_default());
            let words = format!("the review was already decided: {status}{by}");
            (ErrorCode::ReviewDecided, words)
        }
    };
    ProblemDetails::new(code, words).with_member("review", value!(record))
}

/// The reviews of a step's outcomes.
async fn of_step(
    orchestrator: &Orchestrator,
    run: &RunTarget,
    step: &str,
) -> Result<Vec<ReviewRecord>, ProblemDetails> {
    let stream = run.stream.clone();
    let mut records = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            approvals::reviews_of_run(reader, &stream)
        })
        .await?;
    records.retain(|record| {
        let (_, scope) = split_scope(&record.run_id);
        scope == run.scope && record.step_id == step
    });
    Ok(records)
}
