//! The end of all programs of a sandbox, because the person wants to stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ends programs, and begins no further ones, once it is set. All clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Ends what runs, for good.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether it is set.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
