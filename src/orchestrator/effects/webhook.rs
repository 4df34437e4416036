//! Sending a webhook. The request is rendered again from the state, so that a sending after a
//! crash has the body and the id of the one before it.

use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use jmespath::Rcvar;
use ktsu_ledger::Json;
use ktsu_ledger::canonical::parse_strict;
use ktsu_ledger::event::WebhookAnswer;
use ktsu_ledger::event::plan::{WebhookPlan, Work};
use ktsu_projections::run::{Phase, RunState};
use serde_json::{Value, json};

use super::Place;
use crate::egress::{FailureCode, Request, Response};
use crate::orchestrator::Shared;
use crate::secret::Secret;
use crate::workflow::admit::Answer;
use crate::workflow::definition::{CompiledWork, Definition};
use crate::workflow::expression::{EvaluationError, Names, Root, from_value};
use crate::workflow::next::{Memo, Scoped, delivery_id};
use crate::workflow::template::{Template, text_of};

/// A request ready to go, and what its answer will be about.
pub(super) struct Sending {
    /// None if it cannot be rendered with its secrets in place: it then counts as not allowed.
    request: Option<Request>,
    scope: String,
    step: String,
    attempt: u32,
    sending: u32,
}

/// Renders the announced webhook of a step; nothing if the state no longer waits for it.
///
/// A run taken up by an engine that lacks one of its secrets waits: that this environment has no
/// such value is nothing the world said, so it must not become an answer. The next start that has
/// the value sends it.
pub(super) fn prepare(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    place: Place,
) -> Option<Sending> {
    let scope = state.scope(place.scope)?;
    let held = scope.steps.get(place.step as usize)?;
    let Phase::Sent { sending, .. } = held.phase else {
        return None;
    };
    let Work::Webhook(plan) = &scope.shape.step(place.step)?.work else {
        return None;
    };
    let step = definition
        .workflow(&scope.shape.key)?
        .steps
        .get(place.step as usize)?;
    let memo = Memo::default();
    let names = WithSecrets {
        names: Scoped::new(state, place.scope, &memo),
        shared,
        workflow: &state.outline().root().plan.name,
    };
    if let Some(secret) = names.lacked_by(&step.work) {
        let run = state.stream().name();
        tracing::warn!(
            run,
            step = step.id,
            "waits for a start with the secret {secret}"
        );
        return None;
    }
    let delivery = delivery_id(state.stream(), &scope.path, &step.id, held.attempt);
    Some(Sending {
        request: request(plan, &step.work, &names, &delivery),
        scope: scope.path.clone(),
        step: step.id.clone(),
        attempt: held.attempt,
        sending,
    })
}

fn request(
    plan: &WebhookPlan,
    work: &CompiledWork,
    names: &WithSecrets<'_>,
    delivery: &str,
) -> Option<Request> {
    let CompiledWork::Webhook { url, body } = work else {
        return None;
    };
    let url = whole(url, names).ok()?;
    let body = match body {
        Some(body) => whole(body, names).ok()?,
        None => json!({}),
    };
    Some(Request {
        method: plan.method.parse().ok()?,
        url: text_of(&url),
        headers: headers(delivery)?,
        body: Json::from_value(&body)
            .ok()?
            .to_string()
            .into_bytes()
            .into(),
        timeout: Duration::from_millis(plan.timeout_ms),
    })
}

fn headers(delivery: &str) -> Option<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(
        header::CONTENT_TYPE,
        HeaderValue::from_static("application/json"),
    );
    headers.insert("webhook-id", delivery.parse().ok()?);
    Some(headers)
}

/// Renders with secrets in place.
fn whole(template: &Template, names: &dyn Names) -> Result<Value, EvaluationError> {
    template
        .render(names, &|_| false)
        .map(|rendered| rendered.value)
}

/// The names of a scope, and the values of the secrets its run declares.
struct WithSecrets<'a> {
    names: Scoped<'a>,
    shared: &'a Shared,
    workflow: &'a str,
}

impl WithSecrets<'_> {
    /// The first secret a webhook mentions that has no value here.
    fn lacked_by(&self, work: &CompiledWork) -> Option<String> {
        let lacks = |root: Root| match root {
            Root::Env(name) => {
                let lacked = self.names.is_secret(&name) && self.secret(&name).is_none();
                lacked.then_some(name)
            }
            Root::Params | Root::Step(_) | Root::Item | Root::ItemIndex => None,
        };
        work.roots().into_iter().find_map(lacks)
    }

    fn secret(&self, name: &str) -> Option<&str> {
        let resolved = self.shared.environment.get(self.workflow)?;
        resolved.secrets.get(name).map(Secret::expose)
    }
}

impl Names for WithSecrets<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Env(name) if self.names.is_secret(name) => {
                Some(from_value(&Value::from(self.secret(name)?)))
            }
            other => self.names.get(other),
        }
    }
}

impl Sending {
    /// Sends, and puts the answer into the form a frame has. Whatever enters is redacted here.
    pub(super) async fn send(self, shared: &Shared) -> Answer {
        let mut answer = WebhookAnswer {
            attempt: self.attempt,
            code: None,
            duration_ms: 0,
            response: Json::null(),
            sending: self.sending,
            status: None,
            step: self.step,
            truncated: false,
        };
        let begun = Instant::now();
        let outcome = match self.request {
            Some(request) => shared
                .egress
                .send(request)
                .await
                .map_err(|failure| failure.code),
            None => Err(FailureCode::Refused),
        };
        match outcome {
            Ok(response) => heard(shared, &mut answer, &response),
            Err(failure) => {
                let millis = begun.elapsed().as_millis();
                answer.duration_ms = u64::try_from(millis).unwrap_or(u64::MAX);
                answer.code = Some(code_of(failure).to_owned());
            }
        }
        Answer {
            scope: self.scope,
            answer,
        }
    }
}

fn heard(shared: &Shared, answer: &mut WebhookAnswer, response: &Response) {
    answer.status = Some(response.status);
    answer.duration_ms = response.duration_ms;
    answer.truncated = response.truncated;
    answer.response = recorded_body(shared, response);
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

fn code_of(failure: FailureCode) -> &'static str {
    match failure {
        FailureCode::Refused => "webhook_refused",
        FailureCode::Timeout => "webhook_timeout",
        FailureCode::Unreachable => "webhook_unreachable",
    }
}
