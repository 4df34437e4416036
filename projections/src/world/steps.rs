//! Completed steps as objects `step/ID`: projected from their frames, without frames of their own.

use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{ObjectCreated, ObjectPatched, WorldEvent};
use serde_json::value::RawValue;

use super::graph::{World, WorldChange};

/// The type of such an object.
pub const STEP_OBJECT: &str = "step";
/// The prefix of its id. No other object may have it.
pub const STEP_ID_PREFIX: &str = "step/";

/// The object that stands for a step of the run itself.
pub fn step_object(id: &str) -> String {
    format!("{STEP_ID_PREFIX}{id}")
}

impl World {
    /// A step completed, again perhaps. An output that is no object is the member `output` of one.
    pub fn complete_step(&mut self, seq: u64, step: &str, output: &CanonicalJson) -> WorldChange {
        let data = match output.as_str().starts_with('{') {
            true => output.clone(),
            false => member("output", output),
        };
        let created = ObjectCreated {
            by: None,
            data,
            derived: None,
            id: step_object(step),
            key: None,
            kind: STEP_OBJECT.to_owned(),
            post: None,
        };
        self.apply_event(seq, &WorldEvent::ObjectCreated(created))
    }

    /// A person replaced a field of a step's output. Gives the patch, too.
    pub fn overlay_step(
        &mut self,
        seq: u64,
        step: &str,
        (field, value): (&str, &CanonicalJson),
    ) -> (WorldChange, CanonicalJson) {
        let patch = member(field, value);
        let patched = ObjectPatched {
            by: None,
            derived: None,
            id: step_object(step),
            patch: patch.clone(),
            post: None,
            withheld: CanonicalJson::null(),
        };
        let change = self.apply_event(seq, &WorldEvent::ObjectPatched(patched));
        debug_assert!(matches!(
            change,
            WorldChange::Object(_) | WorldChange::Nothing
        ));
        (change, patch)
    }
}

/// An object of one member, however deep that is.
pub(crate) fn member(name: &str, value: &CanonicalJson) -> CanonicalJson {
    let raw = serde_json::from_str::<&RawValue>(value.as_str()).unwrap_or(RawValue::NULL);
    let object = std::collections::BTreeMap::from([(name, raw)]);
    let text = serde_json::value::to_raw_value(&object);
    text.map(CanonicalJson::from).unwrap_or_default()
}

/// Returns `true` if an id is that of the object of a step.
pub fn is_step_object(id: &str) -> bool {
    id.starts_with(STEP_ID_PREFIX)
}

/// The object of a change, if it is one.
pub(super) fn changed_object(change: &WorldChange) -> Option<&Arc<super::object::WorldObject>> {
    match change {
        WorldChange::Object(object) => Some(object),
        WorldChange::Nothing
        | WorldChange::Relation(_)
        | WorldChange::Removed(_)
        | WorldChange::Exhausted
        | WorldChange::Raised => None,
    }
}
