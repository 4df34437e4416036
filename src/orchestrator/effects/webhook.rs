//! Sending a webhook. The request is rendered again from the state, so that a sending after a
//! crash has the body and the id of the one before it.

use std::time::Duration;

use jmespath::Rcvar;
use ktsu_ledger::Json;
use ktsu_ledger::canonical::parse_strict;
use ktsu_ledger::event::WebhookAnswer;
use ktsu_ledger::event::plan::Work;
use ktsu_projections::run::{Phase, RunState};
use serde_json::{Value, json};

use super::Place;
use crate::egress::{Failure, FailureKind, Request, Response};
use crate::orchestrator::Shared;
use crate::workflow::admit::Answer;
use crate::workflow::definition::{CompiledWork, Definition};
use crate::workflow::expression::{EvaluationError, Names, Root, from_value};
use crate::workflow::next::{Memo, Scoped, delivery_id};
use crate::workflow::template::{Template, text_of};

/// A request ready to go, and what its answer will be about.
pub(super) struct Sending {
    request: Request,
    scope: String,
    step: String,
    attempt: u32,
    sending: u32,
}

/// Renders the announced webhook of a step; nothing if the state no longer waits for it.
pub(super) fn prepare(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    place: Place,
) -> Option<Sending> {
    let scope = state.scope(place.scope)?;
    let held = scope.steps.get(place.step as usize)?;
    let Phase::Sent { sending, .. } = held.phase else { return None };
    let Work::Webhook(plan) = &scope.shape.step(place.step)?.work else { return None };
    let step = definition.workflow(&scope.shape.key)?.steps.get(place.step as usize)?;
    let CompiledWork::Webhook { url, body } = &step.work else { return None };
    let memo = Memo::default();
    let names = WithSecrets {
        names: Scoped::new(state, place.scope, &memo),
        shared,
        workflow: &state.outline().root().plan.name,
    };
    let url = whole(url, &names).ok()?;
    let body = match body {
        Some(body) => whole(body, &names).ok()?,
        None => json!({}),
    };
    let delivery = delivery_id(state.stream(), &scope.path, &step.id, held.attempt);
    Some(Sending {
        request: Request {
            method: plan.method.clone(),
            url: text_of(&url),
            headers: vec![
                ("content-type".to_owned(), "application/json".to_owned()),
                ("webhook-id".to_owned(), delivery),
            ],
            body: Json::from_value(&body).ok()?.to_string().into_bytes(),
            timeout: Duration::from_millis(plan.timeout_ms),
        },
        scope: scope.path.clone(),
        step: step.id.clone(),
        attempt: held.attempt,
        sending,
    })
}

/// Renders with secrets in place.
fn whole(template: &Template, names: &dyn Names) -> Result<Value, EvaluationError> {
    template.render(names, &|_| false).map(|rendered| rendered.value)
}

/// The names of a scope, and the values of the secrets its run declares.
struct WithSecrets<'a> {
    names: Scoped<'a>,
    shared: &'a Shared,
    workflow: &'a str,
}

impl Names for WithSecrets<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Env(name) if self.names.is_secret(name) => {
                let resolved = self.shared.environment.get(self.workflow)?;
                let secret = resolved.secrets.get(name)?;
                Some(from_value(&Value::from(secret.expose())))
            }
            other => self.names.get(other),
        }
    }
}

/// Sends, and puts the answer into the form a frame has. Whatever enters is redacted here.
pub(super) async fn send(shared: &Shared, sending: Sending) -> Answer {
    let Sending {
        request,
        scope,
        step,
        attempt,
        sending,
    } = sending;
    let outcome = shared.egress.send(request).await;
    let mut answer = WebhookAnswer {
        attempt,
        code: None,
        duration_ms: 0,
        response: Json::null(),
        sending,
        status: None,
        step,
        truncated: false,
    };
    match outcome {
        Ok(response) => heard(shared, &mut answer, response),
        Err(failure) => not_heard(&mut answer, &failure),
    }
    Answer { scope, answer }
}

fn heard(shared: &Shared, answer: &mut WebhookAnswer, response: Response) {
    answer.status = Some(response.status);
    answer.duration_ms = response.duration_ms;
    answer.truncated = response.truncated;
    answer.response = recorded_body(shared, &response);
    if !(200..300).contains(&response.status) {
        answer.code = Some("webhook_status".to_owned());
    }
}

/// JSON where it is JSON, else text; null where there is none.
fn recorded_body(shared: &Shared, response: &Response) -> Json {
    if response.body.is_empty() {
        return Json::null();
    }
    if let (false, Ok(mut value)) = (response.truncated, parse_strict(&response.body)) {
        shared.redactor.redact_value(&mut value);
        return Json::from_value(&value).unwrap_or_default();
    }
    let text = String::from_utf8_lossy(&response.body);
    Json::string(&shared.redactor.redact_text(&text))
}

fn not_heard(answer: &mut WebhookAnswer, failure: &Failure) {
    answer.duration_ms = failure.duration_ms;
    let code = match failure.kind {
        FailureKind::Refused => "webhook_refused",
        FailureKind::Timeout => "webhook_timeout",
        FailureKind::Unreachable => "webhook_unreachable",
    };
    answer.code = Some(code.to_owned());
}
