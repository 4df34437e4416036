//! The workflows that the commands of a step ran: the children of its step, traced like those of
//! workflow steps. Their params are parts of the outcome that has the command.

use std::collections::BTreeMap;

use ktsu_ledger::event::StepInput;
use ktsu_projections::life::invoked::InvokedAs;
use ktsu_projections::run::{StepKey, StepStatus};
use serde_json::json;

use super::story::TracedRun;
use super::story::path::name_in_pointer;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked};
use ktsu_workflow::expression::{EvaluatedValue, from_value};

impl TracedRun<'_> {
    /// Traces what the commands of a step ran; `gate` is why the step ran at all.
    pub(super) fn trace_invoked(&mut self, scope: u32, position: u32, gate: &Provenance) {
        let children: Vec<u32> = self
            .state()
            .invoked_scopes(StepKey::of(scope, position))
            .collect();
        for child in children {
            if let Some(params) = self.invoked_params(child) {
                self.trace_scope(child, params.chosen_by(gate));
            }
        }
    }

    fn invoked_params(&self, child: u32) -> Option<Tracked> {
        let held = self.state().scope(child)?;
        let shown = self.state().params(child);
        let param = |(at, given): (&String, &StepInput)| {
            let name = name_in_pointer(at.strip_prefix("/params/")?);
            let value = from_value(shown.get(&name)?);
            let tracked = match given {
                StepInput::Ref(place) => {
                    Tracked::recorded(FramePointer::new(place.frame, place.path.clone()), value)
                }
                StepInput::Value { .. } | StepInput::Template(_) => Tracked::literal(value),
            };
            Some((name, tracked))
        };
        let params: BTreeMap<String, Tracked> = held
            .invoked
            .as_ref()?
            .input
            .iter()
            .filter_map(param)
            .collect();
        Some(Tracked::map(params, Provenance::default()))
    }

    /// The value of `ktsu_invoked`: the outputs of the children of a step that completed.
    pub(super) fn invoked_outputs(&self, scope: u32, position: u32) -> Option<Tracked> {
        let step = self.state().step(StepKey::of(scope, position))?;
        let mut children = self
            .state()
            .invoked_scopes(StepKey::of(scope, position))
            .peekable();
        children
            .peek()
            .filter(|_| step.status == StepStatus::Complete)?;
        let outputs = children.map(|child| match self.output(child) {
            Some(output) => output.clone(),
            None => Tracked::literal(from_value(&json!({}))),
        });
        Some(Tracked::list(outputs.collect(), Provenance::default()))
    }

    /// The step whose commands ran a scope, and which of those the scope is.
    pub(super) fn invoked_as(&self, scope: u32) -> Option<(u32, u32, &InvokedAs)> {
        let held = self.state().scope(scope)?;
        let parent = held.parent?;
        Some((parent.scope(), parent.position()?, held.invoked.as_ref()?))
    }

    /// The child that `ktsu_invoked[at]` of a step is.
    pub(super) fn invoked_child(&self, scope: u32, position: u32, at: usize) -> Option<u32> {
        self.state()
            .invoked_scopes(StepKey::of(scope, position))
            .nth(at)
    }
}
