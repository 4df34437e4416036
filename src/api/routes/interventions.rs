//! `POST /runs/{id}/fork`, `/overlay`, `/resume` and `/retry`: interventions in recorded runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::event::{Effects, Principal};
use serde_json::Value;

use super::command::{self, CommandBody, CommandTarget, invalid};
use super::parameter::{IfMatch, MAX_NUMBER};
use super::shape::in_words;
use super::{RunTarget, wire};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::fork_estimate::{ForkBoundName, estimate_by_agent};
use ktsu_orchestrator::{CheckedFork, HumanCommand, ReadKind};
use ktsu_server::body::JsonObject;
use ktsu_server::{ProblemDetails, pointer_errors};
use ktsu_workflow::admit::budget::RaisedBudget;
use ktsu_workflow::admit::intervention::{ForkPosition, ForkRequest, OverlayCommand};
use ktsu_workflow::admit::prompt_edits::{PromptEdits, PromptName};
use ktsu_workflow::definition::Definition;

/// The most dollars, and the most seconds, that a limit is raised to.
const MAX_RAISED_USD: f64 = 1_000_000.0;
const MAX_RAISED_SECONDS: f64 = 1_000_000_000.0;

/// Makes a branch of a run: a copy that shares the frames before the fork position. With `dry_run`, checks that
/// alone, and estimates what the branch would ask models.
#[utoipa::path(post, path = "/runs/{id}/fork", params(RunTarget), request_body = wire::Fork,
    responses((status = 201, body = wire::Branch), (status = 200, body = wire::ForkCheck)))]
pub(super) async fn fork(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    if !target.run.scope.is_empty() {
        let words = "an inline child cannot be forked on its own";
        return Err(ProblemDetails::new(ErrorCode::ForkRefused, words));
    }
    let body: wire::Fork = command::body(body)?;
    // Checked before compilation, because compile errors quote parts of the definition.
    if let Some(definition) = &body.definition {
        let checked = target.orchestrator.without_secrets(definition);
        checked.map_err(problems::command_error)?;
    }
    let is_checked_alone = body.dry_run.unwrap_or_default();
    let request = fork_request(body, target.caller.principal.clone())?;
    if request.changes() {
        target
            .must_not_use_keys_of_others(request.definition.as_deref())
            .await?;
    }
    if is_checked_alone {
        return check(&target, request).await;
    }
    let branch = target
        .orchestrator
        .fork(&target.run.stream, request)
        .await
        .map_err(problems::command_error)?;
    let body = wire::Branch {
        run_id: branch.branch_id.clone(),
        branch_id: branch.branch_id,
        parent_run_id: branch.parent_run_id,
        fork_position: branch.fork_position,
        shared_prefix_events: branch.fork_position,
        status: branch.status.to_string(),
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// Checks a fork, and estimates what it would ask. Nothing is recorded.
async fn check(target: &CommandTarget, request: ForkRequest) -> Result<Response, ProblemDetails> {
    let orchestrator = &target.orchestrator;
    let checked = orchestrator.check_fork(&target.run.stream, request).await;
    let checked = checked.map_err(problems::command_error)?;
    let estimated = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |_| fork_check(&checked));
    let body = estimated.await?;
    let mut response = axum::Json(&body).into_response();
    // For the page of a form.
    response.extensions_mut().insert(Arc::new(body));
    Ok(response)
}

fn fork_check(checked: &CheckedFork) -> Result<wire::ForkCheck, ProblemDetails> {
    let estimated = estimate_by_agent(&checked.recorded, checked.position);
    let estimated = estimated.map_err(|error| problems::run_error(RunReadError::Fold(error)))?;
    let (estimate, asking) = estimated.unzip();
    let asking = asking.unwrap_or_default();
    let prompts = checked.prompts.iter().flat_map(|(agent, prompts)| {
        let steps = asking.get(agent).cloned().unwrap_or_default();
        prompts.iter().map(move |prompt| wire::EditedPrompt {
            agent: agent.clone(),
            prompt: prompt.as_str().to_owned(),
            steps: steps.clone(),
        })
    });
    Ok(wire::ForkCheck {
        fork_position: checked.position,
        bound: match (checked.changes, checked.keeps_values) {
            (false, _) => ForkBoundName::Unchanged,
            (true, true) => ForkBoundName::Prompts,
            (true, false) => ForkBoundName::Changed,
        },
        prompts: prompts.collect(),
        estimate,
    })
}

/// Replaces one top-level field of a step's output for everything that follows.
#[utoipa::path(post, path = "/runs/{id}/overlay", params(RunTarget, IfMatch),
    request_body = wire::Overlay, responses((status = 200, body = wire::CommandRecorded)))]
pub(super) async fn overlay(
    target: CommandTarget,
    CommandBody(body): CommandBody<wire::Overlay>,
) -> Result<Response, ProblemDetails> {
    target.must_not_use_keys_of_others(None).await?;
    let overlay = OverlayCommand {
        scope: target.run.scope.clone(),
        step: body.step,
        field: body.field,
        value: body.value,
        reason: body.reason,
        by: target.caller.principal.clone(),
    };
    let command = HumanCommand::Overlay(overlay);
    target.submit(StatusCode::OK, command).await
}

/// The same, for clients that change a part of a resource with `PATCH`.
#[utoipa::path(patch, path = "/runs/{id}/overlay", params(RunTarget, IfMatch),
    request_body = wire::Overlay, responses((status = 200, body = wire::CommandRecorded)))]
pub(super) async fn patch_overlay(
    target: CommandTarget,
    body: CommandBody<wire::Overlay>,
) -> Result<Response, ProblemDetails> {
    overlay(target, body).await
}

/// Lets a waiting branch go on, raises the budget of a world, or begins steps of an ended run again.
#[utoipa::path(post, path = "/runs/{id}/resume", params(RunTarget, IfMatch),
    request_body = wire::Resume, responses((status = 202, body = wire::CommandRecorded)))]
pub(super) async fn resume(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    must_not_be_inline(&target)?;
    let body: wire::Resume = command::body(body)?;
    let raise = body.raise.map(raised).transpose()?;
    if raise.is_some() && body.from.is_some() {
        return Err(invalid("from and raise exclude each other"));
    }
    continue_run(target, (body.from, raise), body.reason).await
}

/// Restarts a step of a run and everything that depends on it: `/resume` with `from`.
#[utoipa::path(post, path = "/runs/{id}/retry", params(RunTarget, IfMatch),
    request_body = wire::Retry, responses((status = 202, body = wire::CommandRecorded)))]
pub(super) async fn retry(
    target: CommandTarget,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    must_not_be_inline(&target)?;
    let body: wire::Retry = command::body(body)?;
    continue_run(target, (Some(body.from), None), body.reason).await
}

fn must_not_be_inline(target: &CommandTarget) -> Result<(), ProblemDetails> {
    if target.run.scope.is_empty() {
        return Ok(());
    }
    let words = "an inline child cannot be resumed on its own";
    Err(ProblemDetails::new(ErrorCode::NotResumable, words))
}

/// Limits in the units in which they are recorded.
fn raised(raise: wire::RaisedLimits) -> Result<RaisedBudget, ProblemDetails> {
    let scaled = |name: &str, value: Option<f64>, scale: f64, most: f64| {
        let Some(value) = value else { return Ok(None) };
        match (0.0..=most).contains(&value) {
            // Within the bounds, so that it fits.
            true => Ok(Some((value * scale).round() as u64)),
            false => Err(invalid(&format!(
                "{name} must be a number from 0 to {most}"
            ))),
        }
    };
    if raise.max_events.is_some_and(|events| events > MAX_NUMBER) {
        let words = format!("max_events must be an integer from 0 to {MAX_NUMBER}");
        return Err(invalid(&words));
    }
    let cost = raise.max_llm_cost_usd;
    let (wall, most) = (raise.max_wall_seconds, MAX_RAISED_SECONDS);
    Ok(RaisedBudget {
        max_events: raise.max_events,
        max_llm_cost_micro_usd: scaled("max_llm_cost_usd", cost, 1e6, MAX_RAISED_USD)?,
        max_recursion_depth: raise.max_recursion_depth,
        max_wall_ms: scaled("max_wall_seconds", wall, 1e3, most)?,
    })
}

/// Resumes a run, raises its budget, or restarts it from a step.
async fn continue_run(
    target: CommandTarget,
    (from, raise): (Option<String>, Option<RaisedBudget>),
    reason: Option<String>,
) -> Result<Response, ProblemDetails> {
    let by = target.caller.principal.clone();
    let command = HumanCommand::Resume {
        from,
        raise,
        by,
        reason,
    };
    target.submit(StatusCode::ACCEPTED, command).await
}

impl CommandTarget {
    /// Rejects changes that would use another principal's secrets: a run acts with the secrets of
    /// the principal that started it, and a foreign definition could send them anywhere.
    pub(super) async fn must_not_use_keys_of_others(
        &self,
        definition: Option<&Definition>,
    ) -> Result<(), ProblemDetails> {
        if self.caller.is_admin {
            return Ok(());
        }
        let key = self
            .orchestrator
            .key_of_another(&self.run.stream, &self.caller.principal, definition)
            .await
            .map_err(problems::command_error)?;
        let Some(key) = key else {
            return Ok(());
        };
        let words = format!("the run would use a value of {key} that is not yours");
        Err(ProblemDetails::new(ErrorCode::Forbidden, words)
            .with_hint("only the principal that started the run or an admin may do this"))
    }
}

fn fork_request(body: wire::Fork, by: Principal) -> Result<ForkRequest, ProblemDetails> {
    if body.definition.is_some() && body.prompts.is_some() {
        let words = "definition and prompts exclude each other";
        let problem = ProblemDetails::new(ErrorCode::ForkRefused, words);
        return Err(problem.with_hint("write the prompts into the definition"));
    }
    let mut request = ForkRequest {
        point: fork_position(body.at, body.at_frame, body.before)?,
        by,
        reason: body.reason,
        effects: match body.effects.as_deref() {
            None | Some("suppress") => Effects::Suppress,
            Some("execute") => Effects::Execute,
            Some(_) => return Err(invalid("effects must be suppress or execute")),
        },
        definition: body.definition.map(compiled).transpose()?,
        prompts: prompt_edits(body.prompts.unwrap_or_default()),
        params: Vec::new(),
        overlays: Vec::new(),
        go: body.go.unwrap_or_default(),
    };
    for (path, value) in body.set.unwrap_or_default() {
        change(&mut request, &path, value)?;
    }
    Ok(request)
}

fn prompt_edits(prompts: BTreeMap<String, wire::PromptTexts>) -> PromptEdits {
    let texts = |texts: wire::PromptTexts| {
        let wire::PromptTexts {
            system,
            user,
            reflect,
        } = texts;
        let texts = [
            (PromptName::System, system),
            (PromptName::User, user),
            (PromptName::Reflect, reflect),
        ];
        let given = texts.into_iter();
        given
            .filter_map(|(prompt, text)| Some((prompt, text?)))
            .collect()
    };
    let prompts = prompts.into_iter();
    prompts
        .map(|(agent, given)| (agent, texts(given)))
        .collect()
}

fn fork_position(
    at: Option<u64>,
    at_frame: Option<u64>,
    before: Option<String>,
) -> Result<ForkPosition, ProblemDetails> {
    if at.max(at_frame).is_some_and(|number| number > MAX_NUMBER) {
        let words = format!("at and at_frame must be integers from 0 to {MAX_NUMBER}");
        return Err(invalid(&words));
    }
    match (at, at_frame, before) {
        (None, None, None) => Ok(ForkPosition::End),
        (Some(at), None, None) => Ok(ForkPosition::At(at)),
        (None, Some(frame), None) => Ok(ForkPosition::AtFrame(frame)),
        (None, None, Some(step)) => Ok(ForkPosition::Before(step)),
        _ => Err(invalid("at, at_frame and before exclude each other")),
    }
}

fn compiled(plan: Value) -> Result<Arc<Definition>, ProblemDetails> {
    if !plan.is_object() {
        return Err(invalid("definition must be an object"));
    }
    let unusable = |words: String| {
        let words = format!("the definition cannot be used: {words}");
        ProblemDetails::new(ErrorCode::ForkRefused, words).with_hint("ktsu validate KIT")
    };
    let plan = pointer_errors::read(&plan, "/definition").map_err(|wrong| {
        let wrong = vec![wrong];
        unusable(in_words(&wrong)).with_errors(wrong)
    })?;
    let compiled = Definition::compile(plan).map_err(|faults| {
        let faults = faults.iter().map(|(at, words)| format!("{at}: {words}"));
        unusable(faults.collect::<Vec<_>>().join("; "))
    })?;
    if let Some(why) = compiled.refusal() {
        return Err(unusable(why));
    }
    Ok(Arc::new(compiled))
}

/// `params.x.y`, or `step.ID.output.FIELD`, where ID may be a path and `output.` may be left out.
fn change(request: &mut ForkRequest, path: &str, value: Value) -> Result<(), ProblemDetails> {
    let hint = "params.NAME or step.ID.output.FIELD";
    let unknown = || invalid(&format!("set cannot change {path:?}")).with_hint(hint);
    let (kind, rest) = path.split_once('.').ok_or_else(unknown)?;
    match kind {
        "params" if rest.split('.').all(|name| !name.is_empty()) => {
            let members = rest.split('.').map(str::to_owned).collect();
            request.params.push((members, value));
        }
        "step" => {
            let (step, field) = rest.split_once('.').ok_or_else(unknown)?;
            if step.is_empty() {
                return Err(unknown());
            }
            let field = field.strip_prefix("output.").unwrap_or(field);
            if field.is_empty() || rest.ends_with(".output") || field.contains('.') {
                let words = format!("{path:?} is not a top-level field of an output");
                return Err(invalid(&words).with_hint("set the whole field around it"));
            }
            let (scope, step) = step.rsplit_once('/').unwrap_or(("", step));
            request.overlays.push(OverlayCommand {
                scope: scope.to_owned(),
                step: step.to_owned(),
                field: field.to_owned(),
                value,
                reason: request
                    .reason
                    .clone()
                    .unwrap_or_else(|| "set by a fork".to_owned()),
                by: request.by.clone(),
            });
        }
        _ => return Err(unknown()),
    }
    Ok(())
}
