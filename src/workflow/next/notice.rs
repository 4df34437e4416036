//! Notices: webhooks that notify people of a pending call (`spec` A11; decision S6).

use ktsu_ledger::event::plan::StepWork;
use ktsu_ledger::event::{WebhookDead, WebhookEvent, WebhookSent};
use ktsu_ledger::{CanonicalJson, Draft, Event, Hash, StreamId};
use ktsu_projections::approvals::approval_id;
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::notices::Notice;
use ktsu_projections::run::{RunState, Scope, StepKey};
use serde_json::{Value, json};

use super::{DecisionBatch, Memo, StepContext};
use crate::definition::Definition;

/// The id that distinguishes notices: one for a webhook step and a call that people are asked about.
pub fn notice_id(stream: &StreamId, scope: &str, step: &str, request: u64) -> String {
    let name = format!("notice\n{stream}\n{scope}\n{step}\n{request}");
    let digest = Hash::of(name.as_bytes()).to_string();
    format!("whd_{}", digest.get(..32).unwrap_or_default())
}

/// Announces the first notice that is due.
pub(super) fn announce(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
) -> Option<Vec<Draft>> {
    let notice = due(state)?;
    let (request, step) = (notice.request, notice.webhook.position()?);
    let scope = notice.webhook.scope();
    let at = StepContext::new(definition, state, memo, scope, Some(step))?;
    let compiled = at.workflow.steps.get(step as usize)?;
    let Some(StepWork::Webhook(plan)) = at.workflow_work() else {
        return None;
    };
    let mut unit = DecisionBatch::new(state, &at.scope.path);
    let body = notice_body(state, request).unwrap_or_default();
    let event = match at.notice_target(compiled) {
        Ok(target) => WebhookEvent::Sent(WebhookSent {
            approval: Some(request),
            attempt: 1,
            body_hash: Hash::of(body.as_str().as_bytes()).to_string(),
            delivery_id: notice_id(state.stream(), &at.scope.path, &compiled.id, request),
            method: plan.method.clone(),
            sending: 1,
            step: compiled.id.clone(),
            target,
        }),
        // It cannot be rendered, so nobody is told; what waits, waits.
        Err(_) => WebhookEvent::Dead(WebhookDead {
            approval: Some(request),
            attempt: 1,
            sendings: 0,
            step: compiled.id.clone(),
        }),
    };
    unit.push(Event::Webhook(event), vec![request]);
    Some(unit.drafts)
}

/// The first notice that is to be announced: one for each call that waits and webhook that speaks of it,
/// once.
fn due(state: &RunState) -> Option<Notice> {
    // Mostly nobody waits, or no webhook speaks of it.
    if !state.has_suspended() || !state.scopes().iter().any(notifies) {
        return None;
    }
    let asked = state.pending_decisions().into_iter();
    let mut gates = asked.filter(|asked| asked.call.state.gate().is_some());
    gates.find_map(|asked| {
        let notice = |webhook: StepKey| Notice {
            request: asked.request,
            webhook,
        };
        let mut notices = state.notifiers(asked.at.step).map(notice);
        notices.find(|notice| state.notice(*notice).is_none())
    })
}

fn notifies(scope: &Scope) -> bool {
    let mut steps = scope.shape.plan.steps.iter();
    steps.any(|step| matches!(&step.work, StepWork::Webhook(webhook) if webhook.on_approval))
}

/// The body of a notice about a request: the part of the record that people need for a decision.
pub fn notice_body(state: &RunState, request: u64) -> Option<CanonicalJson> {
    let asked = state.pending_decisions();
    let asked = asked.iter().find(|asked| asked.request == request)?;
    let gate = asked.call.state.gate()?;
    let scope = state.scope_of(asked.at.step)?;
    let step = state.step_id(asked.at.step)?;
    let mut body = json!({
        "approval_id": approval_id(state.stream(), request),
        "arguments": asked.call.arguments.to_value(),
        "digest": asked.call.digest,
        "run_id": match scope.path.as_str() {
            "" => state.stream().name().to_owned(),
            path => format!("{}/{path}", state.stream().name()),
        },
        "server": gate.server,
        "status": "pending",
        "step_id": item_name(step, asked.at.item),
        "tool_name": gate.tool,
        "tool_use_id": asked.call.id,
    });
    if let Some(until) = gate.announced_deadline() {
        body["expires_at"] = Value::from(until.to_string());
    }
    CanonicalJson::from_value(&body).ok()
}
