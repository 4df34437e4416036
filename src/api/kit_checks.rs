//! The checks of the files of a kit that is being written: the last one, for pages and for those that follow them.

use std::sync::Arc;

use ktsu_config::fault::Faults;
use tokio::sync::watch;

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KitVerdict {
    /// True if nothing of it hinders a start.
    pub is_sound: bool,
    /// The faults, in files relative to the kit.
    pub faults: Faults,
    /// The variables without a usable value, in words.
    pub unset: Vec<String>,
}

/// The last check of the files of a kit; none where they are not watched. Clones share it.
#[derive(Debug, Clone)]
pub struct KitChecks(Arc<watch::Sender<Option<Arc<KitVerdict>>>>);

impl Default for KitChecks {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }
}

impl KitChecks {
    /// Makes a verdict the last one, and wakes those that follow.
    pub fn set(&self, verdict: KitVerdict) {
        self.0.send_replace(Some(Arc::new(verdict)));
    }

    /// The last verdict.
    pub(crate) fn last(&self) -> Option<Arc<KitVerdict>> {
        self.0.borrow().clone()
    }

    /// A position from which changes are seen.
    pub(crate) fn subscribe(&self) -> watch::Receiver<Option<Arc<KitVerdict>>> {
        self.0.subscribe()
    }
}
