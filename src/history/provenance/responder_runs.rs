//! The parts of a traced run that its worlds add: what responders made, and what they ran.

use std::collections::BTreeMap;

use ktsu_ledger::event::StepInput;
use ktsu_projections::world::activity::is_address;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked};
use ktsu_workflow::expression::{EvaluatedValue, from_json};

use super::story::TracedRun;
use super::story::path::name_in_pointer;
use super::worlds::WorldFacts;

impl TracedRun<'_> {
    /// The facts about the worlds of the run; nothing if it loads none.
    pub(crate) fn worlds(&self) -> Option<&WorldFacts> {
        self.worlds.as_ref()
    }

    /// Tells the workflows that responders ran. Their params are as their first frame records them.
    pub(super) fn trace_responder_runs(&mut self) {
        let scopes = (0u32..).zip(self.state().scopes());
        let runs = scopes.filter(|(_, scope)| is_address(&scope.path) && !scope.path.contains('/'));
        let runs: Vec<(u32, u64)> = runs
            .filter_map(|(at, scope)| Some((at, scope.started?)))
            .collect();
        for (at, started) in runs {
            let given = self.recorded_params(at, started);
            self.trace_scope(at, given);
        }
    }

    fn recorded_params(&self, scope: u32, started: u64) -> Tracked {
        let state = self.state();
        let holder = state.scope(scope).and_then(|scope| scope.parent);
        let holder = holder.and_then(|step| state.step(step));
        let input = holder.map(|step| &step.input);
        let mut members = BTreeMap::new();
        for (place, given) in input.into_iter().flatten() {
            if let (Some(name), StepInput::Value { value, .. }) =
                (place.strip_prefix("/params/"), given)
            {
                let at = FramePointer::new(started, "/input").below(place);
                let at = at.below("value").below("value");
                members.insert(
                    name_in_pointer(name),
                    Tracked::recorded(at, from_json(value)),
                );
            }
        }
        Tracked::map(members, Provenance::default())
    }
}
