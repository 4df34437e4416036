//! The output of a scope, on tracked values.

use ktsu_projections::run::{StepKey, StepStatus};
use ktsu_workflow::expression::provenance::{Tracked, union};
use ktsu_workflow::expression::{EvaluatedValue as _, Tracker};

use super::{ScopeTrack, TracedRun};

impl TracedRun<'_> {
    /// See `scope_output` of the engine.
    pub(super) fn trace_output(&self, scope: u32) -> Option<ScopeTrack> {
        let held = self.state().scope(scope)?;
        let workflow = self.ended_as(scope)?;
        let (map, schema) = match &workflow.output {
            Some((map, schema)) => (map.as_ref(), schema.is_some()),
            None => (None, false),
        };
        let mut tracker = Tracker::default();
        let output = match map {
            Some(map) => {
                let ended = self.end_of(scope);
                // What was laid over a step since is part of the output that is shown.
                let later = self.fold.has_overlay_after_end(scope);
                let before = ended.filter(|_| !later).unwrap_or(u64::MAX);
                let names = self.names_before(scope, before);
                self.render(map, &names, &mut tracker)
            }
            None => self.last_output(scope),
        };
        if let (true, Some(output)) = (schema, &output) {
            tracker.inspect(output.dependencies());
        }
        let risk = tracker.inspected();
        let has = held.ended.as_ref().is_some_and(|end| end.output.is_some());
        Some(ScopeTrack {
            output: output.filter(|_| has).map(|output| output.chosen_by(&risk)),
            risk,
        })
    }

    /// The output of the last step that completed, chosen by whatever kept later ones from it.
    fn last_output(&self, scope: u32) -> Option<Tracked> {
        let count = u32::try_from(self.state().scope(scope)?.steps.len()).ok()?;
        let mut why = Vec::new();
        for position in (0..count).rev() {
            let Some(track) = self.step(StepKey::of(scope, position)) else {
                continue;
            };
            let status = self.state().step(StepKey::of(scope, position))?.status;
            match (status, &track.value) {
                (StepStatus::Complete, Some(value)) => {
                    return Some(value.clone().chosen_by(&union(&why)));
                }
                _ => why.extend([track.gate.clone(), track.risk.clone()]),
            }
        }
        None
    }
}
