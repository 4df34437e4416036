//! Webhook steps: announced in one unit, ended by the unit that follows the answer.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::WebhookPlan;
use ktsu_ledger::event::{Given, WebhookDead, WebhookEvent, WebhookSent};
use ktsu_ledger::{Event, Hash, Json, StreamId};
use ktsu_projections::run::{Phase, Step as StepState};
use serde_json::{Value, json};

use super::{At, Outcome, Unit};
use crate::workflow::definition::{CompiledWork, Step};
use crate::workflow::expression::EvaluationError;

/// A webhook as far as a ledger may know it: secrets stand as their templates.
struct Rendered {
    url: String,
    body: Json,
    input: BTreeMap<String, Given>,
}

impl At<'_> {
    /// Starts the step and announces its first sending.
    pub(super) fn announce(&self, unit: &mut Unit, step: &Step, plan: &WebhookPlan) {
        let rendered = self.render(step);
        let input = rendered.as_ref().map(|rendered| rendered.input.clone());
        let started = self.started(unit, step, input.unwrap_or_default());
        match rendered {
            Ok(rendered) => self.sent(unit, step, plan, &rendered, 1, started),
            Err(error) => self.unrenderable(unit, step, &error, started),
        }
    }

    /// Announces a sending of a step that has started.
    pub(super) fn send(
        &self,
        unit: &mut Unit,
        step: &Step,
        plan: &WebhookPlan,
        sending: u32,
        cause: u64,
    ) {
        match self.render(step) {
            Ok(rendered) => self.sent(unit, step, plan, &rendered, sending, cause),
            Err(error) => self.unrenderable(unit, step, &error, cause),
        }
    }

    fn unrenderable(&self, unit: &mut Unit, step: &Step, error: &EvaluationError, cause: u64) {
        let failed = Outcome::failed("expression_failed", error.message.clone());
        self.settle(unit, step, self.attempt(), failed, vec![cause]);
    }

    fn sent(
        &self,
        unit: &mut Unit,
        step: &Step,
        plan: &WebhookPlan,
        rendered: &Rendered,
        sending: u32,
        cause: u64,
    ) {
        let attempt = self.attempt();
        let event = WebhookEvent::Sent(WebhookSent {
            attempt,
            body_hash: Hash::of(rendered.body.as_str().as_bytes()).to_string(),
            delivery_id: delivery_id(self.state.stream(), &self.scope.path, &step.id, attempt),
            method: plan.method.clone(),
            sending,
            step: step.id.clone(),
            target: target_of(&rendered.url).to_owned(),
        });
        unit.push(Event::Webhook(event), vec![cause]);
    }

    /// Ends a step whose webhook was answered, or failed for good.
    pub(super) fn answered(&self, unit: &mut Unit, step: &Step, held: &StepState) -> Option<()> {
        match &held.phase {
            Phase::Delivered { seq, status } => {
                let output = Outcome::Output(json!({"sent": true, "status_code": status}));
                self.settle(unit, step, held.attempt, output, vec![*seq]);
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
                        attempt: held.attempt,
                        sendings: *sending,
                        step: step.id.clone(),
                    });
                    cause = unit.push(Event::Webhook(event), vec![cause]);
                }
                let failed = Outcome::failed(code, self.what_failed(step, code, *status));
                self.settle(unit, step, held.attempt, failed, vec![cause]);
            }
            // The verdict is recorded, the end is not: a log cut between the two.
            Phase::Checked { .. } => {
                let delivered = self.delivered_status()?;
                let output = Outcome::Output(json!({"sent": true, "status_code": delivered}));
                self.settle(unit, step, held.attempt, output, vec![held.started?]);
            }
            Phase::Begun
            | Phase::Sent { .. }
            | Phase::Backoff { .. }
            | Phase::Again { .. }
            | Phase::Child { .. } => return None,
        }
        Some(())
    }

    fn delivered_status(&self) -> Option<u16> {
        self.scope.steps.get(self.position as usize)?.delivered
    }

    fn what_failed(&self, step: &Step, code: &str, status: Option<u16>) -> String {
        let method = match self.workflow_work() {
            Some(ktsu_ledger::event::plan::Work::Webhook(plan)) => plan.method.as_str(),
            _ => "POST",
        };
        let url = self
            .render(step)
            .map(|rendered| rendered.url)
            .unwrap_or_default();
        let target = target_of(&url);
        match (code, status) {
            (_, Some(status)) => format!("webhook {method} {target} returned status {status}"),
            ("webhook_timeout", None) => {
                format!("webhook {method} {target} was not answered in time")
            }
            ("webhook_refused", None) => {
                format!("webhook {method} {target} was not sent: the environment does not allow it")
            }
            (_, None) => format!("webhook {method} {target} could not be reached"),
        }
    }

    fn attempt(&self) -> u32 {
        let held = self.scope.steps.get(self.position as usize);
        held.map_or(1, |step| step.attempt.max(1))
    }

    fn render(&self, step: &Step) -> Result<Rendered, EvaluationError> {
        let CompiledWork::Webhook { url, body } = &step.work else {
            return Err(EvaluationError {
                code: "template",
                message: "not a webhook".to_owned(),
            });
        };
        let secret = |name: &str| self.names.is_secret(name);
        let url = url.render(&self.names, &secret)?;
        let mut input = self.names.givens("/url", &url);
        let mut json = Value::Object(serde_json::Map::new());
        if let Some(body) = body {
            let body = body.render(&self.names, &secret)?;
            input.extend(self.names.givens("/body", &body));
            json = body.value;
        }
        Ok(Rendered {
            url: crate::workflow::template::text_of(&url.value),
            body: Json::from_value(&json).map_err(|_| EvaluationError {
                code: "depth",
                message: "the body is nested too deeply".to_owned(),
            })?,
            input,
        })
    }
}

/// The id that tells deliveries apart: the same for every sending of an attempt, before and after
/// a crash (DESIGN 1, decision S6).
pub fn delivery_id(stream: &StreamId, scope: &str, step: &str, attempt: u32) -> String {
    let name = format!("{stream}\n{scope}\n{step}\n{attempt}");
    let digest = Hash::of(name.as_bytes()).to_string();
    format!("whd_{}", digest.get(..32).unwrap_or_default())
}

/// Host and port of a URL: what may be shown of it, since a path or a query may hold anything.
pub fn target_of(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    authority.rsplit('@').next().unwrap_or_default()
}
