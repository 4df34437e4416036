//! Inline children: the one place that opens a scope, for a workflow step, a command, or a responder.

use std::collections::BTreeMap;

use ktsu_ledger::Event;
use ktsu_ledger::event::plan::{ChildPlan, Webhooks};
use ktsu_ledger::event::{RunEvent, RunStarted, StepInput};
use ktsu_projections::run::{RunState, Scope};

use super::DecisionBatch;
use crate::rules::DecisionRules;

/// The kind of opener of a child's scope.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opener {
    /// A workflow step.
    Step,
    /// A command of an outcome.
    Command,
    /// A responder.
    Responder,
}

/// A child that begins.
pub(super) struct ChildOpening<'o> {
    /// Its opener.
    pub(super) opener: Opener,
    /// The scope around it.
    pub(super) around: &'o Scope,
    /// The workflow, as what opens it declares it.
    pub(super) plan: &'o ChildPlan,
    /// The path of its scope.
    pub(super) path: String,
    /// Its params, unless its step has them.
    pub(super) input: BTreeMap<String, StepInput>,
    /// The frame that it follows from.
    pub(super) cause: u64,
}

impl ChildOpening<'_> {
    /// Adds the `run.started` of the child.
    pub(super) fn decide(self, state: &RunState, unit: &mut DecisionBatch) {
        let event = RunEvent::Started(RunStarted {
            webhooks: Some(self.webhooks(state)),
            input: self.input,
            plan: Some(self.plan.workflow.clone()),
        });
        unit.push_in(self.path, Event::Run(event), vec![self.cause]);
    }

    /// The setting of its webhooks: they are sent where the scope around it sends them, and both
    /// sides of the agreement say `execute` (seed 000, invariant 31; decision S7). Under earlier
    /// rules one side was enough where a responder opens it.
    fn webhooks(&self, state: &RunState) -> Webhooks {
        let own = self.plan.webhooks == Webhooks::Execute;
        let child = state.outline().workflow(&self.plan.workflow);
        let child = child.is_some_and(|child| child.sends_webhooks());
        let rules = DecisionRules::of(state);
        let agreed = match self.opener == Opener::Responder && !rules.all_sides_agree() {
            true => own || child,
            false => own && child,
        };
        match self.around.webhooks && agreed {
            true => Webhooks::Execute,
            false => Webhooks::Suppress,
        }
    }
}
