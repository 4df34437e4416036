//! The content of the frames and the plans of one side about its steps.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::plan::{StepPlan, StepWork};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::normalize::{FrameKey, NormalizedFrame};
use ktsu_projections::run::{RunState, StepKey};
use ktsu_projections::step_name::path_in;
use serde_json::Value;

use crate::effects::{EffectKind, effects_due};
use crate::timers;

/// The steps of every scope that began, by path.
pub(super) type StepPlans = BTreeMap<String, StepPlan>;

pub(super) fn plans(state: &RunState) -> StepPlans {
    let mut plans = BTreeMap::new();
    for scope in state.scopes() {
        for plan in &scope.shape.plan.steps {
            plans.insert(path_in(&scope.path, &plan.id), plan.clone());
        }
    }
    plans
}

pub(super) fn path_of(key: &FrameKey) -> String {
    path_in(&key.scope, key.step.as_deref().unwrap_or_default())
}

/// The result of each condition: `true` for a step that started, else why it was skipped.
pub(super) fn conditions(kept: &[NormalizedFrame<'_>]) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for one in kept {
        let told = match one.key.kind.as_str() {
            "step.started" => "true".to_owned(),
            "step.skipped" => match one.data.get("reason").and_then(Value::as_str) {
                Some("condition_false") => "false".to_owned(),
                Some("condition_error") => "error".to_owned(),
                _ => continue,
            },
            _ => continue,
        };
        found.insert(path_of(&one.key), told);
    }
    found
}

/// The number of times that each webhook step was sent.
pub(super) fn sendings(kept: &[NormalizedFrame<'_>]) -> BTreeMap<String, u32> {
    let mut counts = BTreeMap::new();
    for one in kept.iter().filter(|one| one.key.kind == "webhook.sent") {
        *counts.entry(path_of(&one.key)).or_default() += 1;
    }
    counts
}

/// The declared pause of a webhook step, if it declares one.
pub(super) fn pause(plans: &StepPlans, path: &str) -> Option<u64> {
    match &plans.get(path)?.work {
        StepWork::Webhook(plan) => plan.retry.as_ref().map(|retry| retry.backoff_ms),
        StepWork::Agent(_) | StepWork::Transform(_) | StepWork::Workflow(_) => None,
    }
}

/// The steps of each scope, in the order of the first decision about them.
pub(super) fn come_to(frames: &[Frame]) -> BTreeMap<String, Vec<String>> {
    let mut orders: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for frame in frames {
        let Event::Step(event) = &frame.event else {
            continue;
        };
        let order = orders.entry(frame.scope.clone()).or_default();
        if !order.iter().any(|step| step == event.step()) {
            order.push(event.step().to_owned());
        }
    }
    orders
}

/// The input of a step at a place: its value, or the reference to it.
pub(super) fn given(data: &Value, place: &str) -> Option<Value> {
    let given = data.get("input")?.get(place)?;
    let computed = given.get("value").and_then(|one| one.get("value"));
    Some(computed.unwrap_or(given).clone())
}

/// Webhooks without a response, tasks that runtimes work on, and reviews and data that people are asked
/// for.
pub(super) fn open_effects(state: &RunState) -> BTreeSet<(String, Option<u32>)> {
    if state.status().is_terminal() {
        return BTreeSet::new();
    }
    // What responders ask is no step of a workflow.
    let path = |at: StepKey| {
        let held = state.scope_of(at)?;
        Some(path_in(&held.path, state.step_id(at)?))
    };
    let due = effects_due(state).into_iter();
    let due = due.filter_map(|effect| match effect.kind {
        EffectKind::Webhook(at) | EffectKind::Task(at) => Some((path(at.step)?, at.item)),
        EffectKind::Notice(_) | EffectKind::Comparison => None,
    });
    let timer = timers::retries(state).min();
    let timer = timer.and_then(|retry| Some((path(retry.step)?, None)));
    let asked = state.pending_reviews().into_iter();
    let asked = asked.filter_map(|asked| Some((path(asked.step)?, None)));
    let waits = state.pending_suspensions().into_iter();
    let waits = waits.filter_map(|asked| Some((path(asked.step)?, None)));
    due.chain(timer).chain(asked).chain(waits).collect()
}

/// Returns `true` if a frame's place depends on the budget.
pub(super) fn is_budget(frame: &Frame) -> bool {
    matches!(frame.event.kind(), "budget.exhausted" | "llm.request")
}
