//! A step of a replayed run: its value, and what that depends on.

use std::collections::BTreeMap;

use ktsu_workflow::expression::provenance::{Provenance, Tracked};
use ktsu_workflow::expression::{EvaluatedValue, from_value};
use serde_json::Value;

/// A step with its value and what it rests on.
#[derive(Debug, Clone, Default)]
pub struct StepTrack {
    /// Its value as later steps see it.
    pub value: Option<Tracked>,
    /// Its value without what people laid over it.
    pub(super) computed: Option<Tracked>,
    /// The fields that people laid over it.
    pub(super) overlays: Vec<TrackedOverlay>,
    /// The output that was refused.
    pub refused: Option<Tracked>,
    /// The places that decided whether it ran.
    pub gate: Provenance,
    /// The places that could have made it fail.
    pub risk: Provenance,
    /// For a fan-out: what its items gave, in order.
    pub items: Vec<Option<Tracked>>,
    /// The first frame about it.
    pub first: Option<u64>,
    /// The frame that ended it.
    pub ended: Option<u64>,
}

/// A field that a person laid over an output.
#[derive(Debug, Clone)]
pub(super) struct TrackedOverlay {
    /// The frame that records it.
    pub(super) seq: u64,
    /// The field.
    pub(super) field: String,
    /// Its value.
    pub(super) value: Tracked,
}

impl StepTrack {
    /// Its value as it was before a frame: with what people had laid over it by then.
    pub(super) fn before(&self, frame: u64) -> Option<Tracked> {
        let computed = self.computed.as_ref().or(self.value.as_ref())?;
        let mut members = match computed.members() {
            Some(members) if self.overlays.iter().any(|one| one.seq < frame) => {
                members.into_owned()
            }
            _ => return Some(computed.clone()),
        };
        for one in self.overlays.iter().filter(|one| one.seq < frame) {
            members.insert(one.field.clone(), one.value.clone());
        }
        Some(Tracked::map(members, computed.source()).chosen_by(computed.chosen()))
    }
}

/// An object with these members.
pub(super) fn object<'n>(members: impl IntoIterator<Item = (&'n str, Tracked)>) -> Tracked {
    let members = members.into_iter();
    let members = members.map(|(name, value)| (name.to_owned(), value));
    Tracked::map(members.collect(), Provenance::default())
}

/// A marker with one tracked member.
pub(super) fn marked(value: Value, name: &str, said: Tracked) -> Tracked {
    let members = value.as_object().into_iter().flatten();
    let mut members: BTreeMap<String, Tracked> = members
        .map(|(name, value)| (name.clone(), Tracked::literal(from_value(value))))
        .collect();
    members.insert(name.to_owned(), said);
    Tracked::map(members, Provenance::default())
}
