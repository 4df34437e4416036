//! Steps that wait for data (seed 004; decision P3): `GET /runs/{id}/steps/{step}/suspend`,
//! `POST …/resume`, and the link by which those without a token may give the data.

use axum::Json;
use axum::extract::State;
use ktsu_ledger::event::Principal;
use ktsu_projections::approvals::ApprovalStatus;
use ktsu_projections::step_name::split_scope;
use ktsu_projections::suspensions::SuspensionRecord;
use serde_json::{Value, json as value};

use super::agents::AttemptToken;
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
use ktsu_orchestrator::{CommandError, HumanCommand, Orchestrator, ReadKind, TaskName};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::suspend::{PermittedSuspension, StepResumption, StepResumptionError};

/// The principal that gives data by a link: its holder.
const CAPABILITY: &str = "capability";

/// The query for one suspension of a step.
#[derive(Debug)]
pub(super) struct SuspendQuery {
    suspend_id: Option<String>,
}

impl QueryParameters for SuspendQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "suspend_id",
        ParameterKind::Text,
        "This one. If absent the one that is pending; if none is, the last.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            suspend_id: given.owned("suspend_id"),
        })
    }
}

/// Gets the suspension of a step: what data it waits for, or waited for.
#[utoipa::path(get, path = "/runs/{id}/steps/{step}/suspend",
    params(StepPath, Query::<SuspendQuery>),
    responses((status = 200, body = SuspensionRecord)))]
pub(super) async fn suspension(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<SuspendQuery>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let mut records = of_step(&orchestrator, &run, &step).await?;
    let at = match &query.suspend_id {
        Some(id) => records.iter().position(|record| record.suspend_id == *id),
        // One begins when the one before it is over.
        None => records.len().checked_sub(1),
    };
    let at = at.ok_or_else(|| match &query.suspend_id {
        Some(id) => {
            let words = format!("the step has no suspension {id}");
            ProblemDetails::new(ErrorCode::SuspensionNotFound, words)
        }
        None => ErrorCode::SuspensionNotFound.into(),
    })?;
    Ok(Json(value!(records.swap_remove(at))))
}

/// Gives a step the data that it waits for: it runs again with them.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/resume",
    params(StepPath),
    request_body = wire::ResumeStep,
    responses(
        (status = 200, body = SuspensionRecord, description = "Recorded, and durable"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "Resumed or ended before (`suspension` is the record), or another one is pending"),
    ))]
pub(super) async fn resume_step(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames((run, step)): PathNames<(String, String)>,
    _: Query<NoParameters>,
    body: Result<JsonObject, ProblemDetails>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let known = of_step(&orchestrator, &run, &step).await?;
    permit(&known, &caller)?;
    let pending = known
        .last()
        .filter(|record| record.status == ApprovalStatus::Pending);
    let permitted = PermittedSuspension::Request(pending.map(|record| record.request));
    let body: wire::ResumeStep = command::body(body?)?;
    take(
        &orchestrator,
        &run,
        &step,
        (caller.principal, permitted),
        body,
    )
    .await
}

/// Gives a step its data by its link, which is a capability: its holder may, once.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/resume/link",
    params(StepPath, Query::<AttemptToken>),
    request_body = wire::ResumeStep,
    responses(
        (status = 200, body = wire::Resumed, description = "Recorded, and durable"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "Resumed or ended before"),
    ))]
pub(super) async fn resume_by_link(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<AttemptToken>,
    body: Result<JsonObject, ProblemDetails>,
) -> Result<Json<Value>, ProblemDetails> {
    let task = super::agents::address(&orchestrator, &run, &step).await?;
    let attempt = orchestrator.authorize_resume(&task.name(), query.token());
    let attempt = attempt.ok_or(ErrorCode::Unauthorized)?;
    let run = find_run(&orchestrator, &run).await?;
    let mut body: wire::ResumeStep = command::body(body?)?;
    // The link names the suspension; what another one is called is not said.
    body.suspend_id = None;
    let by = Principal {
        auth: CAPABILITY.to_owned(),
        id: CAPABILITY.to_owned(),
    };
    // The holder of the link learns that the data are recorded, and no more about the run.
    let permitted = PermittedSuspension::Attempt(attempt);
    match take(&orchestrator, &run, &step, (by, permitted), body).await {
        Ok(Json(record)) => Ok(Json(value!({"status": record["status"]}))),
        Err(refused) if refused.code == ErrorCode::SuspensionOver => {
            Err(ErrorCode::SuspensionOver.into())
        }
        Err(refused) => Err(refused),
    }
}

/// Makes the link by which a step can be given its data without a token. Each time is logged.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/suspend/link",
    params(StepPath),
    responses((status = 200, body = wire::ResumeLink)))]
pub(super) async fn resume_link(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    PathNames((run, step)): PathNames<(String, String)>,
    _: Query<NoParameters>,
) -> Result<Json<Value>, ProblemDetails> {
    let run = find_run(&orchestrator, &run).await?;
    let records = of_step(&orchestrator, &run, &step).await?;
    permit(&records, &caller)?;
    let record = records.last().ok_or(ErrorCode::SuspensionNotFound)?;
    if record.status != ApprovalStatus::Pending {
        return Err(over(record));
    }
    let name = TaskName::new(run.stream.name(), &run.scope, &step, None);
    let url = orchestrator.resume_link(&name, record.attempt, &caller.principal.id);
    Ok(Json(value!({
        "suspend_id": record.suspend_id,
        "url": url,
        "expires_at": record.expires_at,
    })))
}

/// Has the orchestrator take data; gives the record then.
async fn take(
    orchestrator: &Orchestrator,
    run: &RunTarget,
    step: &str,
    (by, permitted): (Principal, PermittedSuspension),
    body: wire::ResumeStep,
) -> Result<Json<Value>, ProblemDetails> {
    let (name, item) = ids::step(step).ok_or(ErrorCode::StepNotFound)?;
    if item.is_some() {
        return Err(ErrorCode::SuspensionNotFound.into());
    }
    let given = StepResumption {
        scope: run.scope.clone(),
        step: name.to_owned(),
        suspend_id: body.suspend_id,
        permitted,
        data: body.data,
        by,
        reason: body.reason,
    };
    let receipt = orchestrator
        .submit_command(&run.stream, HumanCommand::ResumeStep(given), None)
        .await;
    let refused = match receipt {
        Ok(receipt) => {
            let records = of_step(orchestrator, run, step).await?;
            let has = |record: &SuspensionRecord| {
                record.votes.iter().any(|vote| vote.frame == receipt.seq)
            };
            return Ok(Json(value!(records.into_iter().find(has))));
        }
        Err(refused) => refused,
    };
    if let CommandError::StepNotResumed(
        StepResumptionError::NotPending { .. }
        | StepResumptionError::Over { .. }
        | StepResumptionError::Expired { .. },
    ) = &refused
        && let Some(record) = of_step(orchestrator, run, step).await?.last()
        && record.status != ApprovalStatus::Pending
    {
        return Err(over(record));
    }
    Err(problems::command_error(refused))
}

/// Refuses a caller who has none of the roles that the policy asks for. Where nothing is pending, the
/// roles of the last suspension count, so that no more is said than to a caller who has one.
fn permit(records: &[SuspensionRecord], caller: &Caller) -> Result<(), ProblemDetails> {
    let Some(record) = records.last() else {
        return Ok(());
    };
    caller.must_have_one_of(&record.roles, "the step takes data from")
}

/// The error for a suspension that is over.
fn over(record: &SuspensionRecord) -> ProblemDetails {
    let words = match (record.status, record.votes.last()) {
        (ApprovalStatus::Timeout, _) => "the data did not come in time".to_owned(),
        (_, Some(vote)) => format!("the step was resumed by {}", vote.by),
        (_, None) => "its step ended before the data came".to_owned(),
    };
    ProblemDetails::new(ErrorCode::SuspensionOver, words).with_member("suspension", value!(record))
}

/// The suspensions of a step.
async fn of_step(
    orchestrator: &Orchestrator,
    run: &RunTarget,
    step: &str,
) -> Result<Vec<SuspensionRecord>, ProblemDetails> {
    let stream = run.stream.clone();
    let mut records = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            approvals::suspensions_of_run(reader, &stream)
        })
        .await?;
    records.retain(|record| {
        let (_, scope) = split_scope(&record.run_id);
        scope == run.scope && record.step_id == step
    });
    Ok(records)
}
