//! Values that people set for fields of outputs: by themselves, or in a review.

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::Reference;

/// The prefix of the places of fields that people replaced, in a `review.decided`.
pub(crate) const REVIEWED_FIELDS: &str = "/overlay/";

/// A person's value for a field of an output.
#[derive(Debug, Clone)]
pub struct OverlayValue {
    /// The place of the value: in an `overlay.set`, or in a `review.decided`.
    pub place: Reference,
    /// The value.
    pub value: CanonicalJson,
}

impl OverlayValue {
    /// Returns `true` if a person replaced the field in a review.
    pub(crate) fn is_of_review(&self) -> bool {
        self.place.path.starts_with(REVIEWED_FIELDS)
    }
}
