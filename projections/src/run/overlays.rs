//! Values that people set for fields of outputs: by themselves, or in a review.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::Reference;

use super::{Step, StoredOutput};

/// What the places of fields that people replaced begin with, in a `review.decided`.
pub(super) const REVIEWED_FIELDS: &str = "/overlay/";

/// A person's value for a field of an output.
#[derive(Debug, Clone)]
pub struct OverlayValue {
    /// Where it is: in an `overlay.set`, or in a `review.decided`.
    pub place: Reference,
    /// The value.
    pub value: CanonicalJson,
}

impl OverlayValue {
    /// Whether a person replaced the field in a review.
    fn is_of_review(&self) -> bool {
        self.place.path.starts_with(REVIEWED_FIELDS)
    }
}

impl Step {
    /// Begins again; gives what it was. What people replaced in a review was about the outcome of that
    /// attempt; what a person set holds for all of them.
    pub(super) fn begin_again(&mut self) -> Self {
        let tasks = self.tasks.iter().flat_map(|tasks| &tasks.list);
        let attempt = tasks.map(|task| task.attempt).max().unwrap_or_default();
        let overlay = self.overlay.iter().filter(|(_, over)| !over.is_of_review());
        let overlay = overlay.map(|(field, over)| (field.clone(), over.clone()));
        let again = Self {
            attempt: attempt.max(self.attempt),
            overlay: overlay.collect(),
            ..Self::pending(0)
        };
        std::mem::replace(self, again)
    }

    /// Works out the effective output: the computed one with a person's fields over it.
    pub(super) fn apply_overlay(&mut self) {
        self.effective = None;
        let Some(held) = self.output.as_ref().filter(|_| !self.overlay.is_empty()) else {
            return;
        };
        let serde_json::Value::Object(mut members) = held.json.to_value() else {
            return;
        };
        let mut overlaid = BTreeMap::new();
        for (field, over) in &self.overlay {
            members.insert(field.clone(), over.value.to_value());
            overlaid.insert(field.clone(), over.place.clone());
        }
        if let Ok(json) = CanonicalJson::from_value(&serde_json::Value::Object(members)) {
            let place = held.location.clone();
            self.effective = Some(StoredOutput {
                json,
                location: place,
                overlaid,
            });
        }
    }
}
