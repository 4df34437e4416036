//! Webhook steps: announced in one unit, ended by the unit that follows the answer.

use std::collections::BTreeMap;

use jmespath::Rcvar;
use ktsu_ledger::event::plan::WebhookPlan;
use ktsu_ledger::event::{StepInput, WebhookDead, WebhookEvent, WebhookSent};
use ktsu_ledger::{CanonicalJson, Event, Hash, StreamId};
use ktsu_projections::envelope::REDACTED;
use ktsu_projections::run::{Phase, RunState, Step as StepState};
use serde_json::{Value, json};

use super::{Memo, ScopedNames, StepContext, StepDecision, WorkOutcome, notice_body};
use crate::definition::{CompiledStep, CompiledWork, Definition};
use crate::expression::{EvaluationError, NameLookup, Root, from_value};
use crate::template::{Template, text_of};

/// The names of the headers that every request has.
pub const REQUEST_HEADERS: [&str; 6] = [
    "accept",
    "content-length",
    "content-type",
    "host",
    "user-agent",
    "webhook-id",
];

/// The names of the headers that a signed one has beside them.
pub const SIGNATURE_HEADERS: [&str; 2] = ["webhook-signature", "webhook-timestamp"];

/// A request as far as a ledger may know it: secrets stand as their templates.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebhookPreview {
    /// The URL that it goes to.
    pub url: String,
    /// The body of the request.
    pub body: CanonicalJson,
    /// True if it is signed.
    pub signed: bool,
}

/// The request of a webhook step that is announced in this state, or of its notice about the call
/// that the frame `approval` asks people about.
///
/// # Errors
/// Why it cannot be rendered, in words.
pub fn webhook_preview(
    (definition, state): (&Definition, &RunState),
    (scope, step): (&str, &str),
    approval: Option<u64>,
) -> Result<WebhookPreview, String> {
    let memo = Memo::default();
    let place = state.scope_at(scope).and_then(|at| {
        let position = state.scope(at)?.shape.position(step)?;
        Some((at, position))
    });
    let (at, position) = place.ok_or("the run has no such step")?;
    let here = StepContext::new(definition, state, &memo, at, Some(position));
    let here = here.ok_or("the definition has no such workflow")?;
    let compiled = here.workflow.steps.get(position as usize);
    let compiled = compiled.ok_or("the definition has no such step")?;
    let CompiledWork::Webhook { secret, .. } = &compiled.work else {
        return Err("the step is no webhook".to_owned());
    };
    let failed = |error: EvaluationError| error.message;
    let (url, body) = match approval {
        None => {
            let rendered = here.render(compiled).map_err(failed)?;
            (rendered.url, rendered.body)
        }
        Some(request) => {
            let body = notice_body(state, request);
            let body = body.ok_or("nobody is asked about such a call")?;
            (here.url(compiled).map_err(failed)?.0, body)
        }
    };
    Ok(WebhookPreview {
        url,
        body,
        signed: secret.is_some(),
    })
}

/// A webhook as it is announced.
struct RenderedRequest {
    target: String,
    url: String,
    body: CanonicalJson,
    input: BTreeMap<String, StepInput>,
}

impl StepDecision<'_> {
    /// Starts the step and announces its first sending.
    pub(super) fn announce(&mut self, plan: &WebhookPlan) {
        let rendered = self.render(self.step);
        let input = rendered.as_ref().map(|rendered| rendered.input.clone());
        let started = self.started(input.unwrap_or_default());
        match rendered {
            Ok(rendered) => self.sent(plan, &rendered, 1, started),
            Err(error) => self.unrenderable(&error, started),
        }
    }

    /// Announces a sending of a step that has started.
    pub(super) fn send(&mut self, plan: &WebhookPlan, sending: u32, cause: u64) {
        match self.render(self.step) {
            Ok(rendered) => self.sent(plan, &rendered, sending, cause),
            Err(error) => self.unrenderable(&error, cause),
        }
    }

    fn unrenderable(&mut self, error: &EvaluationError, cause: u64) {
        let failed = WorkOutcome::failed("expression_failed", error.message.clone());
        self.settle(self.attempt(), failed, vec![cause]);
    }

    fn sent(&mut self, plan: &WebhookPlan, rendered: &RenderedRequest, sending: u32, cause: u64) {
        let (step, attempt) = (&self.step.id, self.attempt());
        let event = WebhookEvent::Sent(WebhookSent {
            approval: None,
            attempt,
            body_hash: Hash::of(rendered.body.as_str().as_bytes()).to_string(),
            delivery_id: delivery_id(self.state.stream(), &self.scope.path, step, attempt),
            method: plan.method.clone(),
            sending,
            step: step.clone(),
            target: rendered.target.clone(),
        });
        self.unit.push(Event::Webhook(event), vec![cause]);
    }

    /// Ends a step whose webhook was answered, or failed for good.
    pub(super) fn answered(&mut self, held: &StepState) -> Option<()> {
        match &held.phase {
            Phase::Delivered { seq, status } => {
                let output = WorkOutcome::Output(json!({"sent": true, "status_code": status}));
                self.settle(held.attempt, output, vec![*seq]);
            }
            Phase::Undelivered {
                seq,
                code,
                status,
                sending,
                dead,
            } => {
                let mut cause = *seq;
                if *sending > 1 && !dead {
                    let event = WebhookEvent::Dead(WebhookDead {
                        approval: None,
                        attempt: held.attempt,
                        sendings: *sending,
                        step: self.step.id.clone(),
                    });
                    cause = self.unit.push(Event::Webhook(event), vec![cause]);
                }
                let failed =
                    WorkOutcome::failed(code, self.failure_message(self.step, code, *status));
                self.settle(held.attempt, failed, vec![cause]);
            }
            // The verdict is recorded, the end is not: a log cut between the two.
            Phase::Checked { .. } => {
                let delivered = self.delivered_status()?;
                let output = WorkOutcome::Output(json!({"sent": true, "status_code": delivered}));
                self.settle(held.attempt, output, vec![held.started?]);
            }
            Phase::Begun
            | Phase::Sent { .. }
            | Phase::Backoff { .. }
            | Phase::ToResend { .. }
            | Phase::Child { .. } => return None,
        }
        Some(())
    }
}

impl StepContext<'_> {
    fn delivered_status(&self) -> Option<u16> {
        self.scope.steps.get(self.position as usize)?.delivered
    }

    fn failure_message(&self, step: &CompiledStep, code: &str, status: Option<u16>) -> String {
        let method = match self.workflow_work() {
            Some(ktsu_ledger::event::plan::StepWork::Webhook(plan)) => plan.method.as_str(),
            _ => "POST",
        };
        let target = self.render(step).map(|rendered| rendered.target);
        let target = target.unwrap_or_default();
        match (code, status) {
            (_, Some(status)) => format!("webhook {method} {target} returned status {status}"),
            ("webhook_timeout", None) => {
                format!("webhook {method} {target} was not answered in time")
            }
            ("webhook_refused", None) if self.rules().names_what_is_no_web_address() => {
                self.malformed_url(step).unwrap_or_else(|| {
                    format!(
                        "webhook {method} {target} was not sent: the environment does not allow it"
                    )
                })
            }
            ("webhook_refused", None) => {
                format!("webhook {method} {target} was not sent: the environment does not allow it")
            }
            ("webhook_unsigned", None) => format!(
                "webhook {method} {target} was not sent: the key it is signed with is empty"
            ),
            ("reference_gone", None) => format!(
                "webhook {method} {target} was not sent: the service was known to the eval that started the \
                 run, and to nothing else"
            ),
            (_, None) => format!("webhook {method} {target} could not be reached"),
        }
    }

    /// The fault of a URL that is not valid, whatever the environment allows.
    fn malformed_url(&self, step: &CompiledStep) -> Option<String> {
        let CompiledWork::Webhook { url, .. } = &step.work else {
            return None;
        };
        let names = WithPlaceholders(&self.names);
        let rendered = url.render(&names, &|_| false, self.rules()).ok()?;
        malformed_url(&text_of(&rendered.value, self.rules()))
    }

    /// The URL that a notice goes to.
    pub(super) fn notice_target(&self, step: &CompiledStep) -> Result<String, EvaluationError> {
        let CompiledWork::Webhook { url, .. } = &step.work else {
            return Err(not_a_webhook());
        };
        self.target(url)
    }

    /// The URL, and how what is filled in there is recorded.
    fn url(
        &self,
        step: &CompiledStep,
    ) -> Result<(String, BTreeMap<String, StepInput>), EvaluationError> {
        let CompiledWork::Webhook { url, .. } = &step.work else {
            return Err(not_a_webhook());
        };
        let secret = |name: &str| self.names.is_secret(name);
        let url = url.render(&self.names, &secret, self.rules())?;
        let given = self.names.recorded_inputs("/url", &url);
        Ok((text_of(&url.value, self.rules()), given))
    }

    /// Returns `true` if the URL begins with a reference to a service of the run.
    pub(super) fn is_to_a_service(&self, step: &CompiledStep) -> bool {
        let CompiledWork::Webhook { url, .. } = &step.work else {
            return false;
        };
        let references = &self.state.created().references;
        // What a URL is with its secrets is known only where it is sent.
        if references.is_empty() || self.has_secrets(url) {
            return false;
        }
        let rendered = url.render(&WithPlaceholders(&self.names), &|_| false, self.rules());
        rendered.is_ok_and(|url| {
            let url = text_of(&url.value, self.rules());
            service_of(&url).is_some_and(|(name, _)| references.iter().any(|one| one == name))
        })
    }

    fn has_secrets(&self, url: &Template) -> bool {
        let mut roots = url.roots().iter();
        roots.any(|root| matches!(root, Root::Env(name) if self.names.is_secret(name)))
    }

    /// Host and port; one that a secret is part of is not shown.
    fn target(&self, url: &Template) -> Result<String, EvaluationError> {
        let secrets = self.has_secrets(url);
        let rendered = url.render(&WithPlaceholders(&self.names), &|_| false, self.rules())?;
        let target = target_of(&text_of(&rendered.value, self.rules()));
        let hidden = secrets && (target.contains(PLACEHOLDER) || target.contains("no URL"));
        Ok(if hidden { REDACTED.to_owned() } else { target })
    }

    fn render(&self, step: &CompiledStep) -> Result<RenderedRequest, EvaluationError> {
        let CompiledWork::Webhook { url, body, .. } = &step.work else {
            return Err(not_a_webhook());
        };
        let secret = |name: &str| self.names.is_secret(name);
        let target = self.target(url)?;
        let (url, mut input) = self.url(step)?;
        let mut json = Value::Object(serde_json::Map::new());
        if let Some(body) = body {
            let body = body.render(&self.names, &secret, self.rules())?;
            input.extend(self.names.recorded_inputs("/body", &body));
            json = body.value;
        }
        Ok(RenderedRequest {
            target,
            url,
            body: CanonicalJson::from_value(&json).map_err(|_| EvaluationError {
                code: "depth",
                message: "the body is nested too deeply".to_owned(),
            })?,
            input,
        })
    }
}

fn not_a_webhook() -> EvaluationError {
    EvaluationError {
        code: "template",
        message: "not a webhook".to_owned(),
    }
}

/// The id that distinguishes deliveries: the same for every sending of an attempt, before and after
/// a crash (DESIGN 1, decision S6).
pub fn delivery_id(stream: &StreamId, scope: &str, step: &str, attempt: u32) -> String {
    let name = format!("{stream}\n{scope}\n{step}\n{attempt}");
    let digest = Hash::of(name.as_bytes()).to_string();
    format!("whd_{}", digest.get(..32).unwrap_or_default())
}

/// The text in the place of a secret while the host of a URL is looked for.
const PLACEHOLDER: &str = "redacted";

/// The names of a scope, with a placeholder for every secret.
struct WithPlaceholders<'a>(&'a ScopedNames<'a>);

impl NameLookup for WithPlaceholders<'_> {
    fn get(&self, root: &Root) -> Option<Rcvar> {
        match root {
            Root::Env(name) if self.0.is_secret(name) => {
                Some(from_value(&Value::from(PLACEHOLDER)))
            }
            other => self.0.get(other),
        }
    }
}

/// Host and port of a URL: what may be shown of it, since a path or a query may hold anything. Read
/// by the parser that the sending uses, so that both name the same host.
fn target_of(url: &str) -> String {
    if let Some((_, reference)) = service_of(url) {
        return reference.to_owned();
    }
    let Ok(parsed) = url::Url::parse(url) else {
        return "an address that is no URL".to_owned();
    };
    match (parsed.host_str(), parsed.port()) {
        (Some(host), Some(port)) => format!("{host}:{port}"),
        (Some(host), None) => host.to_owned(),
        (None, _) => "an address without a host".to_owned(),
    }
}

/// The reference to a service of the run that a URL begins with: its name, and as it is written.
pub fn service_of(url: &str) -> Option<(&str, &str)> {
    let (inner, after) = url.strip_prefix("{{ ")?.split_once(" }}")?;
    let name = inner.strip_prefix("services.")?.strip_suffix(".url")?;
    let is_begin = after.is_empty() || after.starts_with(['/', '?']);
    let is_name = !name.is_empty() && !name.contains(['{', '}', ' ']);
    let written = url.len() - after.len();
    (is_begin && is_name).then_some((inner, url.get(..written)?))
}

/// The fault of a text that does not begin as a URL does. At most its host is shown.
fn malformed_url(text: &str) -> Option<String> {
    let begins = |scheme: &str| {
        let start = text.get(..scheme.len());
        start.is_some_and(|start| start.eq_ignore_ascii_case(scheme))
    };
    // What a secret begins with is not looked at.
    if begins("http://") || begins("https://") || begins(PLACEHOLDER) {
        return None;
    }
    let (scheme, rest) = match text.split_once("://") {
        Some((scheme, rest)) => (format!("{scheme}://"), rest),
        None => (String::new(), text),
    };
    let host = rest.split(['/', '?', '#', '\\']).next().unwrap_or_default();
    let is_host = |one: char| one.is_ascii_alphanumeric() || ".-:[]".contains(one);
    let shown = match host.chars().all(is_host) && !text.contains(PLACEHOLDER) {
        true if host.len() < rest.len() => format!("\"{scheme}{host}/…\" "),
        true => format!("\"{scheme}{host}\" "),
        // A name and a password, or a secret.
        false => String::new(),
    };
    let why = match scheme.as_str() {
        "" => "http:// or https:// is missing",
        _ => "it begins with neither http:// nor https://",
    };
    Some(format!("the webhook URL {shown}is not a valid URL ({why})"))
}

#[cfg(test)]
mod tests {
    use super::{PLACEHOLDER, malformed_url, target_of};

    #[test]
    fn a_url_without_a_scheme_is_named_as_such_with_its_host_at_most() {
        for (text, shown, why) in [
            ("127.0.0.1:99/a?k=v", "\"127.0.0.1:99/…\" ", "is missing"),
            ("localhost:99", "\"localhost:99\" ", "is missing"),
            (
                "hooks.example.com/T0/x",
                "\"hooks.example.com/…\" ",
                "is missing",
            ),
            ("user:word@h/x", "", "is missing"),
            (&format!("h-{PLACEHOLDER}/x"), "", "is missing"),
            ("", "\"\" ", "is missing"),
            ("ftp://h/x", "\"ftp://h/…\" ", "neither"),
        ] {
            let words = malformed_url(text).unwrap();
            let begins = format!("the webhook URL {shown}is not a valid URL (");
            assert!(words.starts_with(&begins) && words.contains(why), "{words}");
        }
        for text in ["http://h/x", "HTTPS://h", "http://", PLACEHOLDER] {
            assert_eq!(malformed_url(text), None, "{text}");
        }
    }

    #[test]
    fn the_target_is_the_host_that_is_called() {
        for (url, target) in [
            ("http://h:81/p?k=v", "h:81"),
            ("https://user:word@h/", "h"),
            (
                "http://127.0.0.1:7799\\@trusted.example.com/ok",
                "127.0.0.1:7799",
            ),
            ("http://[::1]:9/", "[::1]:9"),
            ("nothing", "an address that is no URL"),
        ] {
            assert_eq!(target_of(url), target, "{url}");
        }
    }
}
