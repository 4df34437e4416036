//! The end of all programs of a sandbox, because the person wants to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends programs, and begins no further ones, once it is set. All clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Interrupt {
    own: Arc<AtomicBool>,
    /// The one that this is a part of.
    above: Option<Arc<Interrupt>>,
}

impl Interrupt {
    /// Ends what runs, for good.
    pub fn set(&self) {
        self.own.store(true, Ordering::Relaxed);
    }

    /// One for a part of the programs; this one ends those, too.
    pub(crate) fn part(&self) -> Self {
        Self {
            own: Arc::default(),
            above: Some(Arc::new(self.clone())),
        }
    }

    /// Returns `true` if it is set.
    pub fn is_set(&self) -> bool {
        self.own.load(Ordering::Relaxed) || self.above.as_ref().is_some_and(|above| above.is_set())
    }
}
