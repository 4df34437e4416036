//! Sends webhooks. The request is rendered again from the state, so that a webhook sent again after
//! a crash has the same body and id.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use axum::http::{HeaderMap, HeaderValue, header};
use ktsu_ledger::canonical::parse_strict;
use ktsu_ledger::event::WebhookAnswer;
use ktsu_ledger::event::plan::{StepWork, WebhookPlan};
use ktsu_ledger::{CanonicalJson, Timestamp};
use ktsu_projections::run::{Phase, RunState, TaskId};
use serde_json::{Value, json};

use super::secrets::SecretValues;
use crate::Shared;
use ktsu_contract::references::resolved;
use ktsu_egress::{EgressErrorCode, EgressRequest, EgressResponse, MAX_KEPT_BYTES};
use ktsu_secret::{Redactor, Secret, WebhookKey};
use ktsu_workflow::admit::WebhookOutcome;
use ktsu_workflow::definition::{CompiledWork, Definition};
use ktsu_workflow::expression::{EvaluationError, NameLookup};
use ktsu_workflow::next::{Memo, delivery_id, notice_body, notice_id, service_of};
use ktsu_workflow::rules::DecisionRules;
use ktsu_workflow::template::{Template, text_of};

/// Nothing is sent where the environment does not allow it, or where a request cannot be made with
/// its secrets in place.
const REFUSED: &str = "webhook_refused";
/// An empty key would give a signature that anybody could make, so nothing is sent.
const UNSIGNED: &str = "webhook_unsigned";

/// It goes to a service of a run that this process did not create.
const REFERENCE_GONE: &str = "reference_gone";

/// A request ready to go, and what its answer will be about.
pub(super) struct WebhookSend {
    /// Or the code of why nothing is sent.
    request: Result<EgressRequest, &'static str>,
    /// References, and the values that are sent in their place.
    texts: BTreeMap<String, String>,
    outcome: WebhookOutcome,
}

/// Renders the announced webhook of a step, or its notice about a request to people; nothing if the
/// state no longer waits for it, or if the step has to wait for a secret.
pub(super) fn prepare(
    shared: &Shared,
    state: &RunState,
    definition: &Definition,
    (place, about): (TaskId, Option<u64>),
) -> Option<WebhookSend> {
    let scope = state.scope_of(place.step)?;
    let position = place.step.position()?;
    let held = scope.steps.get(position as usize)?;
    let sending = match (about, &held.phase) {
        (Some(_), _) => 1,
        (None, Phase::Sent { sending, .. }) => *sending,
        (None, _) => return None,
    };
    let StepWork::Webhook(plan) = &scope.shape.step(position)?.work else {
        return None;
    };
    let workflow = definition.workflow(&scope.shape.key)?;
    let step = workflow.steps.get(position as usize)?;
    let memo = Memo::default();
    let names = SecretValues::new(shared, state, &memo, place);
    if names.waits_for_secret(&step.id, step.work.roots()) {
        return None;
    }
    let (delivery, fixed) = match about {
        None => {
            let id = delivery_id(state.stream(), &scope.path, &step.id, held.attempt);
            (id, None)
        }
        Some(request) => {
            // There is no notice for a call that is no longer pending.
            let body = notice_body(state, request)?;
            let id = notice_id(state.stream(), &scope.path, &step.id, request);
            (id, Some(body))
        }
    };
    let now = (shared.clock)();
    let values = TemplateValues {
        names: &names,
        rules: DecisionRules::of(state),
    };
    let references = shared.references.get(state.stream().name());
    let texts = references.map(|references| references.own_texts());
    let texts = texts.unwrap_or_default();
    let request = request(plan, &step.work, values, &delivery, fixed).ok_or(REFUSED);
    let request = request.and_then(|request| {
        // A run without effects sends to its services alone.
        match state.suppresses_effects() && service_of(&request.url).is_none() {
            true => Err(REFUSED),
            false => resolved_in(request, &texts),
        }
    });
    let request = request.and_then(|mut request| {
        request.keep += response_margin(&shared.secrets.redactor());
        send_finished(request, &step.work, values, &delivery, now)
    });
    let answer = WebhookAnswer {
        approval: about,
        attempt: held.attempt.max(1),
        code: None,
        duration_ms: 0,
        response: CanonicalJson::null(),
        sending,
        status: None,
        step: step.id.clone(),
        truncated: false,
    };
    let scope = scope.path.clone();
    let outcome = WebhookOutcome { scope, answer };
    Some(WebhookSend {
        request,
        texts,
        outcome,
    })
}

/// A request with values in place of references. What goes to a service of the run may go there, whatever
/// else the environment allows.
fn resolved_in(
    mut request: EgressRequest,
    texts: &BTreeMap<String, String>,
) -> Result<EgressRequest, &'static str> {
    if let Some((_, reference)) = service_of(&request.url) {
        let Some(value) = texts.get(reference) else {
            return Err(REFERENCE_GONE);
        };
        let rest = request.url.strip_prefix(reference).unwrap_or_default();
        request.url = format!("{value}{rest}");
        request.is_to_itself = true;
    }
    if let Ok(body) = std::str::from_utf8(&request.body)
        && !texts.is_empty()
    {
        request.body = resolved(body, texts).into_bytes().into();
    }
    Ok(request)
}

fn request(
    plan: &WebhookPlan,
    work: &CompiledWork,
    values: TemplateValues<'_>,
    delivery: &str,
    fixed: Option<CanonicalJson>,
) -> Option<EgressRequest> {
    let CompiledWork::Webhook { url, body, .. } = work else {
        return None;
    };
    let url = values.of(url).ok()?;
    let body = match (fixed, body) {
        (Some(fixed), _) => fixed,
        (None, Some(body)) => CanonicalJson::from_value(&values.of(body).ok()?).ok()?,
        (None, None) => CanonicalJson::from_value(&json!({})).ok()?,
    };
    Some(EgressRequest {
        method: plan.method.parse().ok()?,
        url: text_of(&url, values.rules),
        headers: headers(delivery)?,
        body: body.to_string().into_bytes().into(),
        timeout: Duration::from_millis(plan.timeout_ms),
        keep: MAX_KEPT_BYTES,
        is_to_itself: false,
    })
}

/// Signs a request if the step has a secret for it, as Standard Webhooks defines, so that a
/// receiver can verify the sender and the time.
fn send_finished(
    mut request: EgressRequest,
    work: &CompiledWork,
    values: TemplateValues<'_>,
    delivery: &str,
    now: Timestamp,
) -> Result<EgressRequest, &'static str> {
    let CompiledWork::Webhook {
        secret: Some(secret),
        ..
    } = work
    else {
        return Ok(request);
    };
    let secret = values.of(secret).map_err(|_| REFUSED)?;
    let secret = Secret::new(text_of(&secret, values.rules));
    let key = WebhookKey::of(&secret).ok_or(UNSIGNED)?;
    let at = (now.as_micros() / 1_000_000).to_string();
    let signature = key.sign(delivery, &at, &request.body).ok_or(UNSIGNED)?;
    for (name, value) in [("webhook-timestamp", at), ("webhook-signature", signature)] {
        let value = HeaderValue::try_from(value).map_err(|_| REFUSED)?;
        request.headers.insert(name, value);
    }
    Ok(request)
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

/// The values that templates are rendered with, secrets in place.
#[derive(Clone, Copy)]
struct TemplateValues<'a> {
    names: &'a dyn NameLookup,
    rules: DecisionRules,
}

impl TemplateValues<'_> {
    fn of(self, template: &Template) -> Result<Value, EvaluationError> {
        let rendered = template.render(self.names, &|_| false, self.rules)?;
        Ok(rendered.value)
    }
}

impl WebhookSend {
    /// Sends the request and converts the response for its frame, redacted.
    pub(super) async fn send(self, shared: &Shared) -> WebhookOutcome {
        let mut outcome = self.outcome;
        let answer = &mut outcome.answer;
        let begun = Instant::now();
        let response = match self.request {
            Ok(request) => shared.peers.egress.send(request).await,
            Err(code) => {
                answer.code = Some(code.to_owned());
                return outcome;
            }
        };
        match response {
            Ok(mut response) => {
                for (reference, value) in &self.texts {
                    if let Ok(text) = std::str::from_utf8(&response.body) {
                        response.body = text.replace(value, reference).into_bytes();
                    }
                }
                response_received(shared, answer, &response);
            }
            Err(failure) => {
                let millis = begun.elapsed().as_millis();
                answer.duration_ms = u64::try_from(millis).unwrap_or(u64::MAX);
                answer.code = Some(code_of(failure.code).to_owned());
            }
        }
        outcome
    }
}

fn response_received(shared: &Shared, answer: &mut WebhookAnswer, response: &EgressResponse) {
    answer.status = Some(response.status);
    answer.duration_ms = response.duration_ms;
    let (recorded, whole) = recorded_body(&shared.secrets.redactor(), response);
    answer.truncated = !whole;
    answer.response = recorded;
    if !(200..300).contains(&response.status) {
        answer.code = Some("webhook_status".to_owned());
    }
}

/// Number of bytes of a body that are read beyond the recorded part, so that a secret at the cut is
/// seen whole, plus a few bytes for a cut character.
fn response_margin(redactor: &Redactor) -> usize {
    match redactor.longest() {
        0 => 0,
        longest => longest + 4,
    }
}

/// JSON if the body is JSON, otherwise text; null if there is none. Also whether it is complete.
///
/// Redacted before it is cut: otherwise a secret at the cut would leave its beginning. For the same
/// reason the last bytes of a body that ended early are dropped.
fn recorded_body(redactor: &Redactor, response: &EgressResponse) -> (CanonicalJson, bool) {
    if response.body.is_empty() {
        return (CanonicalJson::null(), !response.truncated);
    }
    let whole = !response.truncated && response.body.len() <= MAX_KEPT_BYTES;
    if whole && let Ok(mut value) = parse_strict(&response.body) {
        redactor.redact_value(&mut value);
        return (CanonicalJson::from_value(&value).unwrap_or_default(), true);
    }
    let text = String::from_utf8_lossy(&response.body);
    let seen = match response.truncated {
        true => text.len().saturating_sub(response_margin(redactor)),
        false => text.len(),
    };
    let mut kept = redactor.redact_beginning(&text, seen.min(MAX_KEPT_BYTES));
    let fits = kept.len() <= MAX_KEPT_BYTES && text.len() <= MAX_KEPT_BYTES;
    kept.truncate(kept.floor_char_boundary(MAX_KEPT_BYTES));
    (CanonicalJson::string(&kept), whole && fits)
}

fn code_of(failure: EgressErrorCode) -> &'static str {
    match failure {
        EgressErrorCode::Refused => REFUSED,
        EgressErrorCode::Timeout => "webhook_timeout",
        EgressErrorCode::Unreachable => "webhook_unreachable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_secret::Secret;

    const SECRET: &str = "s3cret-w0rd/€";

    /// The recorded form of a body of which the engine read as much as it asks for.
    fn recorded(body: &str, broke_off: bool) -> (String, bool) {
        let redactor = Redactor::new(&[Secret::new(SECRET)]);
        let keep = MAX_KEPT_BYTES + response_margin(&redactor);
        let response = EgressResponse {
            status: 200,
            headers: HeaderMap::new(),
            body: body.as_bytes()[..body.len().min(keep)].to_vec(),
            timed_out: false,
            truncated: broke_off || body.len() > keep,
            duration_ms: 0,
        };
        let (json, whole) = recorded_body(&redactor, &response);
        (json.as_str().to_owned(), whole)
    }

    #[test]
    fn no_part_of_a_secret_is_at_the_cut() {
        for form in [SECRET, "s3cret-w0rd%2F%E2%82%AC", "czNjcmV0LXcwcmQv4oKs"] {
            for before in MAX_KEPT_BYTES - form.len() - 1..=MAX_KEPT_BYTES {
                for after in ["", "b", &"b".repeat(500)] {
                    let body = format!("{}{form}{after}", "a".repeat(before));
                    let (text, whole) = recorded(&body, false);
                    let rest = text.trim_start_matches('"').trim_start_matches('a');
                    assert!(!rest.contains(&form[..1]), "{before} {after}: {rest}");
                    assert!(text.len() <= MAX_KEPT_BYTES + 2, "{before}");
                    assert_eq!(whole, body.len() <= MAX_KEPT_BYTES, "{before}");
                }
            }
        }
    }

    #[test]
    fn no_part_of_a_secret_is_where_a_body_broke_off() {
        for cut in 1..=SECRET.len() {
            let body = &SECRET.as_bytes()[..cut];
            let body = format!("{}{}", "a".repeat(2_000), String::from_utf8_lossy(body));
            let (text, whole) = recorded(&body, true);
            assert!(text.len() > 50 && !text.contains("s"), "{cut}: {text}");
            assert!(!whole);
        }
    }

    #[test]
    fn escapes_do_not_carry_a_secret_past_the_redactor() {
        let hidden = r"{'k': 's\u0033cret-w0rd/\u20ac'}";
        assert_eq!(recorded(hidden, false), ("\"[REDACTED]\"".to_owned(), true));
        let before = "a".repeat(MAX_KEPT_BYTES - 5);
        let (text, _) = recorded(&format!("{before}s\\u0033cret-w0rd/\\u20ac"), false);
        assert_eq!(text, "\"[REDACTED]\"");
    }
}
