//! Tool calls under the new definition: whether they are permitted, and which approvals they need; and
//! who reviews outcomes. The consequences for the run are reported like those of any other change.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::{
    AgentPlan, ApprovalPolicy, ReviewPolicy, ServerPlan, StepWork, SuspendPolicy,
};
use ktsu_ledger::event::{AgentEvent, StepEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::reviews::deciding_roles;
use ktsu_projections::run::{AgentShape, RunState};
use ktsu_projections::step_name::path_in;
use serde_json::{Value, json};

use super::DivergenceKind::{
    ApprovalTimeout, GateAdded, GateRemoved, NotByProposer, OnReject, Quorum, ResumeSchema,
    ReviewRemoved, ReviewRoles, ServerRemoved, SuspendRemoved, SuspendRoles, SuspendTimeout,
    ToolNotPermitted,
};
use super::{Divergence, DivergenceKind};

/// The recorded value, and the one that there would be.
type Sides = (Option<Value>, Option<Value>);

/// A call, or the question whether to make it, as it is recorded.
struct RecordedCall<'a> {
    step: &'a str,
    item: Option<u32>,
    server: &'a str,
    tool: &'a str,
    /// The policy under which people were asked; `None` if no one was.
    policy: Option<&'a ApprovalPolicy>,
}

/// Every recorded call and question that the new definition says something else about, in the
/// order of history. Steps that the new run did not come to are told of elsewhere.
pub(super) fn policies(recorded: &[Frame], old: &RunState, new: &RunState) -> Vec<Divergence> {
    let mut found = Vec::new();
    let mut resumed_to = ResumedTo::default();
    for frame in recorded {
        resumed_to.take(frame);
        let acting = |step| resumed_to.acting(frame, step);
        if let Event::Step(StepEvent::ReviewRequested(asked)) = &frame.event {
            let by = acting(asked.step.as_str());
            let policy =
                declared(new, &frame.scope, by).and_then(|(_, agent)| agent.review.clone());
            let terms = match policy {
                None => vec![(ReviewRemoved, (Some(json!(asked.policy)), None))],
                Some(policy) => review_terms(&asked.policy, &policy),
            };
            found.extend(asked_terms(frame, (&asked.step, by), new, terms));
        }
        if let Event::Step(StepEvent::SuspendRequested(asked)) = &frame.event {
            let by = acting(asked.step.as_str());
            let policy = declared(new, &frame.scope, by).and_then(|(plan, agent)| {
                Some(agent.suspend.as_ref()?.narrowed(plan.resume.as_ref()))
            });
            let terms = match policy {
                None => vec![(SuspendRemoved, (Some(json!(asked.policy)), None))],
                Some(policy) => suspend_terms(&asked.policy, &policy),
            };
            found.extend(asked_terms(frame, (&asked.step, by), new, terms));
        }
        let Some(call) = call(&frame.event) else {
            continue;
        };
        let by = acting(call.step);
        let Some(is) = servers(new, &frame.scope, by) else {
            continue;
        };
        let was = servers(old, &frame.scope, by).unwrap_or_default();
        let step = path_in(&frame.scope, call.step);
        for (what, (history, decided)) in changed(&call, was, is) {
            let one = Divergence {
                what,
                step: step.clone(),
                item: call.item,
                server: Some(call.server.to_owned()),
                tool: Some(call.tool.to_owned()),
                field: String::new(),
                frame: Some(frame.seq),
                history,
                decided,
            };
            // The same about a later call of the tool is told once.
            let same = |other: &Divergence| {
                let frame = other.frame;
                Divergence {
                    frame,
                    ..one.clone()
                } == *other
            };
            if !found.iter().any(same) {
                found.push(one);
            }
        }
    }
    found
}

/// The terms that differ in the new definition for people who were asked about an outcome or for
/// data. A step that is there no more is reported elsewhere.
fn asked_terms(
    frame: &Frame,
    (step, by): (&str, &str),
    new: &RunState,
    terms: Vec<(DivergenceKind, Sides)>,
) -> Vec<Divergence> {
    if new.step_at(&frame.scope, by).is_none() {
        return Vec::new();
    }
    let named = terms
        .into_iter()
        .map(|(what, (history, decided))| Divergence {
            what,
            step: path_in(&frame.scope, step),
            item: None,
            server: None,
            tool: None,
            field: String::new(),
            frame: Some(frame.seq),
            history,
            decided,
        });
    named.collect()
}

fn review_terms(was: &ReviewPolicy, is: &ReviewPolicy) -> Vec<(DivergenceKind, Sides)> {
    let terms = |policy: &ReviewPolicy| {
        [
            (ApprovalTimeout, json!(policy.timeout)),
            (Quorum, json!(policy.quorum)),
            (NotByProposer, json!(policy.not_by_proposer)),
            (ReviewRoles, json!(deciding_roles(&policy.roles))),
        ]
    };
    differing_terms(terms(was), terms(is))
}

fn suspend_terms(was: &SuspendPolicy, is: &SuspendPolicy) -> Vec<(DivergenceKind, Sides)> {
    let terms = |policy: &SuspendPolicy| {
        [
            (SuspendTimeout, json!(policy.timeout_ms)),
            (SuspendRoles, json!(deciding_roles(&policy.roles))),
            (ResumeSchema, json!(policy.schema)),
        ]
    };
    differing_terms(terms(was), terms(is))
}

fn differing_terms(
    was: impl IntoIterator<Item = (DivergenceKind, Value)>,
    is: impl IntoIterator<Item = (DivergenceKind, Value)>,
) -> Vec<(DivergenceKind, Sides)> {
    let both = was.into_iter().zip(is);
    let differing = both.filter(|((_, was), (_, is))| was != is);
    differing
        .map(|((kind, was), (_, is))| (kind, (Some(was), Some(is))))
        .collect()
}

/// A call that had an approval says nothing by itself: the question before it does.
fn call(event: &Event) -> Option<RecordedCall<'_>> {
    match event {
        Event::Agent(AgentEvent::ApprovalRequested(asked)) => Some(RecordedCall {
            step: &asked.step,
            item: asked.item,
            server: &asked.server,
            tool: &asked.tool,
            policy: Some(&asked.policy),
        }),
        Event::Agent(AgentEvent::ToolCalled(called)) if called.approval.is_none() => {
            Some(RecordedCall {
                step: &called.step,
                item: called.item,
                server: &called.server,
                tool: &called.tool,
                policy: None,
            })
        }
        _ => None,
    }
}

/// By which other steps steps ran, as history has it.
#[derive(Default)]
struct ResumedTo<'f>(BTreeMap<(&'f str, &'f str), &'f str>);

impl<'f> ResumedTo<'f> {
    fn take(&mut self, frame: &'f Frame) {
        if let Event::Step(StepEvent::Started(started)) = &frame.event {
            let at = (frame.scope.as_str(), started.step.as_str());
            match &started.resume_step {
                Some(other) => self.0.insert(at, other),
                None => self.0.remove(&at),
            };
        }
    }

    fn acting<'s>(&self, frame: &'s Frame, step: &'s str) -> &'s str
    where
        'f: 's,
    {
        let other = self.0.get(&(frame.scope.as_str(), step));
        other.copied().unwrap_or(step)
    }
}

/// The servers of an agent step; nothing if there is no such step.
fn servers<'s>(state: &'s RunState, scope: &str, step: &str) -> Option<&'s [ServerPlan]> {
    let scope_at = state.scope_at(scope)?;
    state.scope(scope_at)?.shape.position(step)?;
    let agent = declared(state, scope, step);
    Some(agent.map_or(&[], |(_, agent)| &agent.servers))
}

/// The definition of an agent step and of its agent, whatever the step was resumed to.
fn declared<'s>(
    state: &'s RunState,
    scope: &str,
    step: &str,
) -> Option<(&'s AgentPlan, &'s AgentShape)> {
    let shape = &state.scope(state.scope_at(scope)?)?.shape;
    let StepWork::Agent(plan) = &shape.step(shape.position(step)?)?.work else {
        return None;
    };
    Some((plan, state.outline().agent(&plan.file)?))
}

fn changed(
    call: &RecordedCall<'_>,
    was: &[ServerPlan],
    is: &[ServerPlan],
) -> Vec<(DivergenceKind, Sides)> {
    let named = |one: &&ServerPlan| one.name == call.server;
    let before = was.iter().find(named);
    let Some(after) = is.iter().find(named) else {
        let file = before.map(|server| json!(server.file));
        return vec![(ServerRemoved, (file, None))];
    };
    if !after.permits(call.tool) {
        let sides = (before.map(allowlist), Some(allowlist(after)));
        return vec![(ToolNotPermitted, sides)];
    }
    match (call.policy, after.approval(call.tool)) {
        (None, None) => Vec::new(),
        (None, Some(policy)) => vec![(GateAdded, (None, Some(json!(policy))))],
        (Some(policy), None) => vec![(GateRemoved, (Some(json!(policy)), None))],
        (Some(was), Some(is)) => terms(was, is),
    }
}

fn allowlist(server: &ServerPlan) -> Value {
    server
        .tools
        .iter()
        .map(|rule| json!(rule.pattern))
        .collect()
}

/// The differences between two policies, term by term.
fn terms(was: &ApprovalPolicy, is: &ApprovalPolicy) -> Vec<(DivergenceKind, Sides)> {
    let terms = |policy: &ApprovalPolicy| {
        [
            (OnReject, Some(json!(policy.on_reject))),
            (
                ApprovalTimeout,
                policy.timeout.as_ref().map(|one| json!(one)),
            ),
            (Quorum, Some(json!(policy.quorum))),
            (NotByProposer, Some(json!(policy.not_by_proposer))),
        ]
    };
    let both = terms(was).into_iter().zip(terms(is));
    let differing = both.filter(|((_, was), (_, is))| was != is);
    differing
        .map(|((kind, was), (_, is))| (kind, (was, is)))
        .collect()
}
