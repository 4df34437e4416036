//! Outputs, and where they are recorded.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::Reference;

/// A value and where it stands.
#[derive(Debug, Clone)]
pub struct StoredOutput {
    /// The value.
    pub json: CanonicalJson,
    /// The frame and member that hold it, without overlays; see [`StoredOutput::locate`].
    pub location: Reference,
    /// The fields a person laid over it, and where those are.
    pub overlaid: BTreeMap<String, Reference>,
}
