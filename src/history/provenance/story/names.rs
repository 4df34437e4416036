//! The values that the expressions of a scope mention, with their provenance.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::EnvValue;
use ktsu_projections::life::suspension::Resumption;
use ktsu_projections::run::StepKey;
use serde_json::Value;

use super::TracedRun;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked};
use ktsu_workflow::expression::{
    EvaluatedValue, InvokedMention, NameLookup, Root, from_json, from_value,
};
use ktsu_workflow::rules::DecisionRules;

/// The names of a scope, and of one item in it.
pub(in crate::provenance) struct ScopeNames<'s> {
    pub(in crate::provenance) story: &'s TracedRun<'s>,
    pub(in crate::provenance) scope: u32,
    /// The step that asks, which may have waited for data.
    pub(in crate::provenance) step: Option<u32>,
    pub(in crate::provenance) item: Option<(Tracked, u32)>,
    /// The frame whose decision asks: overlays after it do not count.
    pub(in crate::provenance) before: u64,
}

impl ScopeNames<'_> {
    /// The same names, with `resume` of a step.
    pub(in crate::provenance) fn of_step(self, step: u32) -> Self {
        Self {
            step: Some(step),
            ..self
        }
    }

    /// The checkpoint and the data that the step that asks was given after a suspension.
    fn given(&self) -> Option<&Resumption> {
        self.story
            .state()
            .resumption(StepKey::of(self.scope, self.step?))
    }

    /// The places that let the step begin again, if it was suspended: the commands of the attempt
    /// before.
    pub(in crate::provenance) fn let_begin(&self) -> Provenance {
        self.given().map_or_else(Provenance::default, |given| {
            let place = FramePointer::new(given.finished, "/outcome/commands");
            Tracked::recorded(place, from_value(&Value::Null)).dependencies()
        })
    }

    /// `resume`: what a step left behind when it was suspended, and the data that it waited for.
    fn resume(&self) -> Tracked {
        let given = self.given();
        let part = |name: &str, value: Option<&CanonicalJson>| {
            let place = given.and_then(|given| given.locate(&format!("/{name}")));
            let tracked = match (place, value) {
                (Some(place), Some(value)) => {
                    let place = FramePointer::new(place.frame, &place.path);
                    Tracked::recorded(place, from_json(value))
                }
                _ => Tracked::literal(from_value(&Value::Null)),
            };
            (name.to_owned(), tracked)
        };
        let members = BTreeMap::from([
            part("checkpoint", given.map(|given| &given.checkpoint)),
            part("data", given.map(|given| &given.data)),
        ]);
        Tracked::map(members, Provenance::default())
    }
}

impl NameLookup<Tracked> for ScopeNames<'_> {
    fn get(&self, root: &Root) -> Option<Tracked> {
        let state = self.story.state();
        match root {
            Root::Params if self.scope == 0 => Some(self.story.params_before(self.before)),
            Root::Params => self.story.params(self.scope).cloned(),
            Root::Env(name) if self.scope == 0 => self.story.env_value(name),
            Root::Env(_) => None,
            Root::Step(id) => {
                let step = state.scope(self.scope)?.shape.position(id)?;
                self.story
                    .step(StepKey::of(self.scope, step))?
                    .before(self.before)
            }
            Root::Item => self.item.as_ref().map(|(item, _)| item.clone()),
            Root::ItemIndex => {
                let index = self.item.as_ref().map(|(_, index)| *index)?;
                Some(Tracked::literal(from_value(&Value::from(index))))
            }
            Root::Resume => Some(self.resume()),
            Root::Name(_) => None,
        }
    }

    fn invoked(&self, id: &str, mention: InvokedMention) -> Option<Tracked> {
        let state = self.story.state();
        let step = state.scope(self.scope)?.shape.position(id)?;
        let outputs = self.story.invoked_outputs(self.scope, step);
        let found = DecisionRules::of(state).has_invoked(outputs.is_some(), mention);
        let none = || Tracked::list(Vec::new(), Provenance::default());
        found.then(|| outputs.unwrap_or_else(none))
    }
}

impl TracedRun<'_> {
    /// A variable of the run; nothing for a secret.
    pub(in crate::provenance) fn env_value(&self, name: &str) -> Option<Tracked> {
        let state = self.state();
        match state.created().env.get(name)? {
            EnvValue::Value(value) => {
                let place = FramePointer::new(state.env_frame(), "/env");
                let place = place.below(name).below("value");
                let value = from_value(&Value::from(value.as_str()));
                Some(Tracked::recorded(place, value))
            }
            EnvValue::Secret => None,
        }
    }
}
