//! Commands that run workflows: what they ask for is judged before anything is committed, and their
//! children begin, end and complete them in the units that follow.

use std::collections::BTreeMap;

use ktsu_ledger::Event;
use ktsu_ledger::event::plan::{AgentPlan, InvokePlan};
use ktsu_ledger::event::{CommandCompleted, StepEvent, StepInput};
use ktsu_projections::life::invoked::{InvokeDue, InvokedChildren, InvokedPath};
use ktsu_projections::run::AgentTask;
use serde_json::Value;

use super::super::names::computed;
use super::super::open::{ChildOpening, Opener};
use super::super::{StepContext, StepDecision};
use super::MAX_CAUSES;
use crate::commands::OutcomeCommand;
use crate::defaults::segment;
use crate::outcome::{OutcomeRefusal, refused};
use crate::params;
use crate::permitted;

impl StepDecision<'_> {
    /// Adds what is due for what the commands of a task run. Tells the frame that the end of the step
    /// follows from, once everything has ended.
    pub(super) fn advance_invoked(
        &mut self,
        plan: &AgentPlan,
        item: Option<u32>,
        task: &AgentTask,
    ) -> Option<u64> {
        let invoked = task.invoked.as_deref()?;
        match invoked.due(task.commands) {
            InvokeDue::Start => {
                self.open_invoked(plan, item, invoked);
                None
            }
            InvokeDue::Complete => {
                let done = self.complete_command(item, task, invoked)?;
                invoked.is_last().then_some(done)
            }
            InvokeDue::End => Some(task.last),
            InvokeDue::Request | InvokeDue::Wait => None,
        }
    }

    /// Opens the scope of the next child.
    fn open_invoked(
        &mut self,
        plan: &AgentPlan,
        item: Option<u32>,
        invoked: &InvokedChildren,
    ) -> Option<()> {
        let command = invoked.current()?;
        let declared = plan.may_invoke.get(&command.target)?;
        let path = InvokedPath {
            scope: self.at.scope.path.clone(),
            step: self.step.id.clone(),
            item,
            name: command.target.clone(),
            index: invoked.next_index(),
        };
        let opening = ChildOpening {
            opener: Opener::Command,
            around: self.scope,
            plan: &declared.child,
            path: path.to_string(),
            input: self.invoked_params(declared, invoked)?,
            cause: command.seq,
        };
        opening.decide(self.state, &mut self.unit);
        Some(())
    }

    /// The params of the next child: each by its place in the outcome, unless defaults were filled in.
    fn invoked_params(
        &self,
        declared: &InvokePlan,
        invoked: &InvokedChildren,
    ) -> Option<BTreeMap<String, StepInput>> {
        let (given, place) = invoked.next_input()?;
        let child = self.definition.workflow(&declared.child.workflow);
        let schema = child.and_then(|child| child.params.as_ref());
        // It was judged before the command was recorded.
        let resolved = params::resolve(schema, given.clone(), self.rules()).ok()?;
        let entry = |(name, value): (&String, &Value)| {
            let at = format!("/{}", segment(name));
            let input = match given.get(name) == Some(value) {
                true => {
                    let mut place = place.clone();
                    place.path.push_str(&at);
                    StepInput::Ref(place)
                }
                false => computed(vec![place.frame], value),
            };
            (format!("/params{at}"), input)
        };
        Some(resolved.as_object()?.iter().map(entry).collect())
    }

    fn complete_command(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        invoked: &InvokedChildren,
    ) -> Option<u64> {
        let command = invoked.current()?;
        let children = invoked.ends();
        let mut cause = children.clone();
        cause.sort_unstable();
        cause.drain(..cause.len().saturating_sub(MAX_CAUSES));
        if cause.is_empty() {
            cause.push(command.seq);
        }
        let event = StepEvent::CommandCompleted(CommandCompleted {
            attempt: task.attempt,
            children,
            index: command.index,
            item,
            request: command.seq,
            step: self.step.id.clone(),
        });
        Some(self.unit.push(Event::Step(event), cause))
    }
}

impl StepContext<'_> {
    /// Checks that a command that runs workflows may be carried out: it is declared, has no more
    /// inputs than it may, and each fits the params of the workflow.
    pub(super) fn judge_invoke(
        &self,
        plan: &AgentPlan,
        outcome: &Value,
        command: &OutcomeCommand,
    ) -> Result<(), OutcomeRefusal> {
        let refuse = |(code, words): (&str, String)| refused(outcome, code, words);
        let agent = self.definition.agents.get(&plan.file);
        let commands = agent.and_then(|agent| agent.file.commands.as_ref());
        permitted::check_declared(commands, command).map_err(refuse)?;
        // A recompute has no workflows, and runs none.
        if self.state.created().results.is_some() {
            return Ok(());
        }
        permitted::check_inputs(self.definition, plan, self.rules(), command).map_err(refuse)
    }
}
