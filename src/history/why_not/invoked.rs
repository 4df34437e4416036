//! The workflows that the commands of a step run, as reasons why it is not done.

use ktsu_projections::life::invoked::InvokedPath;
use ktsu_projections::run::{RunStatus, Scope, Step, StepKey, StepStatus};
use ktsu_projections::step_name::StepName;
use ktsu_workflow::expression::provenance::Provenance;

use super::Explainer;

impl Explainer<'_, '_> {
    /// The status of a workflow that a command runs, if that is what a name is of, and the step to
    /// explain.
    pub(super) fn invoked_child(
        &mut self,
        name: &StepName,
    ) -> Option<(&'static str, Option<StepKey>)> {
        let state = self.story.state();
        let path = name.to_string();
        InvokedPath::parse(&path)?;
        let at = state.scope_at(&path)?;
        let scope = state.scope(at)?;
        let wanted = match scope.status {
            RunStatus::Complete => None,
            RunStatus::Failed | RunStatus::Cancelled => Some(StepStatus::Failed),
            RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => {
                Some(StepStatus::Running)
            }
        };
        let text = match scope.status {
            RunStatus::Complete => "it completed",
            RunStatus::Failed | RunStatus::Cancelled => "it failed",
            RunStatus::Pending | RunStatus::Running | RunStatus::Waiting => {
                "it waits for one of its steps"
            }
        };
        let frame = scope.ended.as_ref().map(|ended| ended.seq);
        self.push_reason(&path, frame.or(scope.started), text, &Provenance::default());
        let step = self.step_of(at, |step| wanted == Some(step.status));
        Some((scope.status.as_str(), step))
    }

    /// The step of a scope for which this holds; one that waits for people before any other.
    fn step_of(&self, at: u32, holds: impl Fn(&Step) -> bool) -> Option<StepKey> {
        let state = self.story.state();
        let steps: Vec<(u32, &Step)> = (0u32..).zip(&state.scope(at)?.steps).collect();
        let mut found = steps.iter().filter(|(_, step)| holds(step));
        let asks = found.clone().find(|(_, step)| state.awaits_people(step));
        let (position, _) = asks.or_else(|| found.next())?;
        Some(StepKey::of(at, *position))
    }

    /// The step to explain of the workflows that the commands of a step, or of one of its items, run:
    /// of one that waits for people before any other.
    pub(super) fn in_invoked(&self, at: StepKey, item: Option<u32>) -> Option<(String, StepKey)> {
        let state = self.story.state();
        let open: Vec<(u32, &Scope)> = state
            .invoked_scopes(at)
            .filter_map(|child| Some((child, state.scope(child)?)))
            .filter(|(_, child)| child.status == RunStatus::Running)
            .filter(|(_, child)| {
                let of = child.invoked.as_ref().and_then(|invoked| invoked.item);
                item.is_none() || of == item
            })
            .collect();
        let asks = |(child, _): &&(u32, &Scope)| state.waits_only_for_people(*child);
        let (child, scope) = open.iter().find(asks).or_else(|| open.first())?;
        let step = self.step_of(*child, |step| step.status == StepStatus::Running)?;
        Some((scope.path.clone(), step))
    }
}
