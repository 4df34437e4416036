//! The successive definitions of a run, and which of them decided a step.

use ktsu_ledger::Frame;
use ktsu_projections::run::{RunStatus, StepKey};

use super::TracedRun;
use crate::RunReadError;
use ktsu_workflow::definition::{CompiledStep, CompiledWorkflow, CompiledWorlds, Definition};

/// Each with the frame that brought it: the run's own, then those of forks that changed it.
#[derive(Debug)]
pub(in crate::provenance) struct DefinitionHistory(Vec<(u64, Definition)>);

impl DefinitionHistory {
    /// Compiles what the frames bring.
    pub(in crate::provenance) fn of(frames: &[Frame]) -> Result<Self, RunReadError> {
        let mut all = Vec::new();
        for frame in frames {
            let Some((definition, _)) = frame.event.definition() else {
                continue;
            };
            let bad = |words: String| RunReadError::Definition(words);
            let plan = serde_json::from_str(definition.as_str());
            let plan = plan.map_err(|error| bad(error.to_string()))?;
            let compiled = Definition::compile(plan).map_err(|faults| {
                let first = faults.into_iter().next();
                bad(first.map_or_else(String::new, |(at, words)| format!("{at}: {words}")))
            })?;
            all.push((frame.seq, compiled));
        }
        match all.is_empty() {
            true => Err(RunReadError::Definition("there is none".to_owned())),
            false => Ok(Self(all)),
        }
    }

    /// The one that held when a frame was decided; without one, the last.
    fn before(&self, frame: Option<u64>) -> Option<&Definition> {
        let holds = |(since, _): &&(u64, Definition)| frame.is_none_or(|frame| *since < frame);
        let found = self.0.iter().rev().find(holds).or(self.0.first());
        found.map(|(_, definition)| definition)
    }
}

impl TracedRun<'_> {
    /// The worlds that were in force when a frame was decided.
    pub(crate) fn worlds_before(&self, frame: u64) -> Option<&CompiledWorlds> {
        self.defined.before(Some(frame))?.worlds()
    }

    /// The workflow of a scope as it was when a frame was decided.
    pub(in crate::provenance) fn workflow(
        &self,
        scope: u32,
        frame: Option<u64>,
    ) -> Option<&CompiledWorkflow> {
        let definition = self.defined.before(frame)?;
        match scope {
            0 => definition.root(),
            scope => definition.workflow(&self.state().scope(scope)?.shape.key),
        }
    }

    /// The workflow of a child as it was when a step began.
    pub(in crate::provenance) fn child_of(
        &self,
        scope: u32,
        position: u32,
        child: &str,
    ) -> Option<&CompiledWorkflow> {
        self.defined
            .before(self.begun(scope, position))?
            .workflow(child)
    }

    /// The workflow of a scope as it was when the scope ended.
    pub(in crate::provenance) fn ended_as(&self, scope: u32) -> Option<&CompiledWorkflow> {
        self.workflow(scope, self.end_of(scope))
    }

    /// The frame that ended a scope. A run that a person ended has no frame of its own for that.
    pub(in crate::provenance) fn end_of(&self, scope: u32) -> Option<u64> {
        let held = self.state().scope(scope)?;
        let ended = held.ended.as_ref()?;
        (held.status != RunStatus::Cancelled).then_some(ended.seq)
    }

    /// A step as it was when it began, and the ids of the steps it waited for.
    pub(in crate::provenance) fn compiled(
        &self,
        scope: u32,
        position: u32,
    ) -> Option<(&CompiledStep, Vec<&str>)> {
        let id = &self.state().scope(scope)?.shape.step(position)?.id;
        let workflow = self.workflow(scope, self.begun(scope, position))?;
        let step = workflow.steps.get(*workflow.by_id.get(id)?)?;
        let needs = step
            .needs
            .iter()
            .filter_map(|need| workflow.steps.get(*need));
        Some((step, needs.map(|need| need.id.as_str()).collect()))
    }

    /// The step by whose definition another ran: itself, or the one that it was resumed to.
    pub(in crate::provenance) fn acting(&self, scope: u32, position: u32) -> Option<&CompiledStep> {
        let acting = self.state().resume_step(StepKey::of(scope, position));
        let Some(acting) = acting else {
            return Some(self.compiled(scope, position)?.0);
        };
        let id = &self.state().scope(scope)?.shape.step(acting)?.id;
        self.workflow(scope, self.begun(scope, position))?.step(id)
    }

    /// The frame with which a step that has not begun since was taken back.
    pub fn reset_frame(&self, scope: u32, position: u32) -> Option<u64> {
        let held = self.state().scope(scope)?;
        let id = &held.shape.step(position)?.id;
        self.facts.reset(&held.path, id)
    }

    /// The first frame about a step's last beginning.
    pub(in crate::provenance) fn begun(&self, scope: u32, position: u32) -> Option<u64> {
        let held = self.state().scope(scope)?;
        let id = &held.shape.step(position)?.id;
        self.facts.get(&held.path, id, None).first
    }
}
