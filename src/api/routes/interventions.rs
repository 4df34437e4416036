//! `POST /runs/{id}/fork`, `/overlay`, `/resume` and `/retry`: interventions in recorded runs.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::event::{Effects, Principal};
use serde_json::{Map, Value};

use super::parameter::{IfMatch, MAX_NUMBER, whole};
use super::query::{NoParameters, Query};
use super::shape::{in_words, integer};
use super::{RunTarget, pointer_errors, wire};
use crate::access::Caller;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{CommandReceipt, HumanCommand, Orchestrator};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_workflow::admit::intervention::{ForkPosition, ForkRequest, OverlayCommand};
use ktsu_workflow::definition::Definition;

/// Makes a branch of a run: a copy that shares the frames before the fork position.
#[utoipa::path(post, path = "/runs/{id}/fork",
    params(("id" = String, Path, description = "A run or a branch")),
    request_body = wire::Fork,
    responses(
        (status = 201, body = wire::Branch),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json"),
        (status = 507, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn fork(
    State(orchestrator): State<Orchestrator>,
    asker: Caller,
    run: RunTarget,
    _: Query<NoParameters>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    if !run.scope.is_empty() {
        let words = "an inline child cannot be forked on its own";
        return Err(ProblemDetails::new(ErrorCode::ForkRefused, words));
    }
    // Checked before compilation, because compile errors quote parts of the definition.
    if let Some(definition) = body.0.get("definition") {
        orchestrator
            .without_secrets(definition)
            .map_err(problems::command_error)?;
    }
    let request = fork_request(body.0, asker.principal.clone())?;
    if request.changes() {
        must_not_use_keys_of_others(&orchestrator, &run, &asker, request.definition.as_deref())
            .await?;
    }
    let branch = orchestrator
        .fork(&run.stream, request)
        .await
        .map_err(problems::command_error)?;
    let body = wire::Branch {
        run_id: branch.branch_id.clone(),
        branch_id: branch.branch_id,
        parent_run_id: branch.parent_run_id,
        fork_position: branch.fork_position,
        shared_prefix_events: branch.fork_position,
        status: branch.status,
    };
    Ok((StatusCode::CREATED, axum::Json(body)).into_response())
}

/// Replaces one top-level field of a step's output for everything that follows.
#[utoipa::path(post, path = "/runs/{id}/overlay",
    params(
        ("id" = String, Path, description = "A run, or `R%2Fcall` for an inline child"),
        IfMatch,
    ),
    request_body = wire::Overlay,
    responses(
        (status = 200, body = wire::CommandRecorded),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json"),
        (status = 507, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn overlay(
    State(orchestrator): State<Orchestrator>,
    asker: Caller,
    run: RunTarget,
    headers: HeaderMap,
    _: Query<NoParameters>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    let mut members = RequestMembers(body.0);
    let overlay = OverlayCommand {
        scope: run.scope.clone(),
        step: members.required_text("step")?,
        field: members.required_text("field")?,
        value: members.value("value")?,
        reason: members.reason()?.ok_or_else(|| missing("reason"))?,
        by: asker.principal.clone(),
    };
    members.reject_unknown()?;
    must_not_use_keys_of_others(&orchestrator, &run, &asker, None).await?;
    let receipt = orchestrator.submit_command(
        &run.stream,
        HumanCommand::Overlay(overlay),
        expected(&headers)?,
    );
    Ok(answer(
        StatusCode::OK,
        &run,
        receipt.await.map_err(problems::command_error)?,
    ))
}

/// Lets a waiting branch go on, or begins steps of a run that has ended again.
#[utoipa::path(post, path = "/runs/{id}/resume",
    params(
        ("id" = String, Path, description = "A run or a branch"),
        IfMatch,
    ),
    request_body = wire::Resume,
    responses(
        (status = 202, body = wire::CommandRecorded),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json"),
        (status = 507, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn resume(
    State(orchestrator): State<Orchestrator>,
    asker: Caller,
    run: RunTarget,
    headers: HeaderMap,
    _: Query<NoParameters>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    begins(&orchestrator, asker, &run, &headers, (body, false)).await
}

/// Restarts a step of a run and everything that depends on it: `/resume` with `from`.
#[utoipa::path(post, path = "/runs/{id}/retry",
    params(
        ("id" = String, Path, description = "A run or a branch"),
        IfMatch,
    ),
    request_body = wire::Retry,
    responses(
        (status = 202, body = wire::CommandRecorded),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json"),
        (status = 507, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn retry(
    State(orchestrator): State<Orchestrator>,
    asker: Caller,
    run: RunTarget,
    headers: HeaderMap,
    _: Query<NoParameters>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    begins(&orchestrator, asker, &run, &headers, (body, true)).await
}

/// Resumes a run, or restarts it from a step, which may be required.
async fn begins(
    orchestrator: &Orchestrator,
    asker: Caller,
    run: &RunTarget,
    headers: &HeaderMap,
    (body, needed): (JsonObject, bool),
) -> Result<Response, ProblemDetails> {
    if !run.scope.is_empty() {
        let words = "an inline child cannot be resumed on its own";
        return Err(ProblemDetails::new(ErrorCode::NotResumable, words));
    }
    let mut members = RequestMembers(body.0);
    let command = HumanCommand::Resume {
        from: match needed {
            true => Some(members.required_text("from")?),
            false => members.text("from")?,
        },
        by: asker.principal,
        reason: members.reason()?,
    };
    members.reject_unknown()?;
    let receipt = orchestrator.submit_command(&run.stream, command, expected(headers)?);
    Ok(answer(
        StatusCode::ACCEPTED,
        run,
        receipt.await.map_err(problems::command_error)?,
    ))
}

pub(super) fn answer(status: StatusCode, run: &RunTarget, receipt: CommandReceipt) -> Response {
    let body = wire::CommandRecorded {
        run_id: run.stream.name().to_owned(),
        seq: receipt.seq,
        last: receipt.last,
        status: receipt.status.as_str().to_owned(),
    };
    (status, axum::Json(body)).into_response()
}

/// `If-Match: SEQ`, quoted or not.
pub(super) fn expected(headers: &HeaderMap) -> Result<Option<u64>, ProblemDetails> {
    let Some(given) = headers.get("if-match") else {
        return Ok(None);
    };
    let number = given.to_str().ok();
    let number = number.and_then(|text| whole(text.trim().trim_matches('"')));
    number
        .filter(|number| *number <= MAX_NUMBER)
        .map(Some)
        .ok_or_else(|| invalid("If-Match must be a frame number").with_hint("If-Match: 41"))
}

/// Rejects changes that would use another principal's secrets: a run acts with the secrets of
/// whoever started it, and a foreign definition could send them anywhere.
async fn must_not_use_keys_of_others(
    orchestrator: &Orchestrator,
    run: &RunTarget,
    asker: &Caller,
    definition: Option<&Definition>,
) -> Result<(), ProblemDetails> {
    if asker.is_admin {
        return Ok(());
    }
    let theirs = orchestrator.key_of_another(&run.stream, &asker.principal, definition);
    let Some(key) = theirs.await.map_err(problems::command_error)? else {
        return Ok(());
    };
    let words = format!("the run would use a value of {key} that is not yours");
    Err(ProblemDetails::new(ErrorCode::Forbidden, words)
        .with_hint("only the principal that started the run or an admin may do this"))
}

fn fork_request(body: Map<String, Value>, by: Principal) -> Result<ForkRequest, ProblemDetails> {
    let mut members = RequestMembers(body);
    let point = point(&mut members)?;
    let reason = members.reason()?;
    let effects = match members.text("effects")?.as_deref() {
        None | Some("suppress") => Effects::Suppress,
        Some("execute") => Effects::Execute,
        Some(_) => return Err(invalid("effects must be suppress or execute")),
    };
    let definition = match members.0.remove("definition") {
        None | Some(Value::Null) => None,
        Some(plan @ Value::Object(_)) => Some(plan),
        Some(_) => return Err(invalid("definition must be an object")),
    };
    let go = members.flag("go")?;
    let mut request = ForkRequest {
        point,
        by,
        reason,
        effects,
        definition: None,
        params: Vec::new(),
        overlays: Vec::new(),
        go,
    };
    match members.0.remove("set") {
        None | Some(Value::Null) => {}
        Some(Value::Object(set)) => {
            for (path, value) in set {
                change(&mut request, &path, value)?;
            }
        }
        Some(_) => return Err(invalid("set must be an object of values by path")),
    }
    members.reject_unknown()?;
    request.definition = definition.map(compiled).transpose()?;
    Ok(request)
}

fn point(members: &mut RequestMembers) -> Result<ForkPosition, ProblemDetails> {
    let given = [
        members.number("at")?.map(ForkPosition::At),
        members.number("at_frame")?.map(ForkPosition::AtFrame),
        members.text("before")?.map(ForkPosition::Before),
    ];
    let mut given = given.into_iter().flatten();
    match (given.next(), given.next()) {
        (None, _) => Ok(ForkPosition::End),
        (Some(point), None) => Ok(point),
        (Some(_), Some(_)) => Err(invalid("at, at_frame and before exclude each other")),
    }
}

fn compiled(plan: Value) -> Result<Arc<Definition>, ProblemDetails> {
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

/// The most characters of a reason.
const MAX_REASON: usize = 4096;

/// The members of a body, taken out one by one.
pub(super) struct RequestMembers(pub(super) Map<String, Value>);

impl RequestMembers {
    pub(super) fn text(&mut self, name: &str) -> Result<Option<String>, ProblemDetails> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) if !text.is_empty() => Ok(Some(text)),
            Some(_) => Err(invalid(&format!("{name} must be a non-empty string"))),
        }
    }

    pub(super) fn required_text(&mut self, name: &str) -> Result<String, ProblemDetails> {
        self.text(name)?.ok_or_else(|| missing(name))
    }

    /// The reason for a command: a sentence or a page, not a file. It is shown wherever the run is,
    /// and may be sent to a model.
    pub(super) fn reason(&mut self) -> Result<Option<String>, ProblemDetails> {
        let reason = self.text("reason")?;
        match reason.as_ref().map_or(0, |reason| reason.chars().count()) {
            0..=MAX_REASON => Ok(reason),
            length => Err(invalid(&format!(
                "reason has {length} characters; the limit is {MAX_REASON}"
            ))),
        }
    }

    fn value(&mut self, name: &str) -> Result<Value, ProblemDetails> {
        self.0.remove(name).ok_or_else(|| missing(name))
    }

    fn number(&mut self, name: &str) -> Result<Option<u64>, ProblemDetails> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(given) => {
                let number = integer(&given).filter(|number| *number <= MAX_NUMBER);
                let words = format!("{name} must be an integer from 0 to {MAX_NUMBER}");
                number.map(Some).ok_or_else(|| invalid(&words))
            }
        }
    }

    /// `true` or `false`; absent is `false`.
    pub(super) fn flag(&mut self, name: &str) -> Result<bool, ProblemDetails> {
        match self.0.remove(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(invalid(&format!("{name} must be true or false"))),
        }
    }

    pub(super) fn reject_unknown(self) -> Result<(), ProblemDetails> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(invalid(&format!("unknown member {name:?}"))),
        }
    }
}

fn missing(name: &str) -> ProblemDetails {
    invalid(&format!("{name} is missing"))
}

pub(super) fn invalid(words: &str) -> ProblemDetails {
    ProblemDetails::new(ErrorCode::InvalidRequest, words)
}
