//! The work that an answer takes while it is made, and its bound. A unit is about a microsecond.

/// So many bytes are copied in the time of one unit.
const BYTES_A_UNIT: usize = 64;

/// The answer takes more work than the bound allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the answer takes more work than is allowed here")]
pub struct TooMuchWork;

/// Counts work. It depends on the frames and on what was asked, and on nothing else.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkMeter {
    done: u64,
    limit: Option<u64>,
}

impl WorkMeter {
    /// A meter that lets everything pass.
    pub fn unlimited() -> Self {
        Self::default()
    }

    /// A meter that lets this much pass.
    pub fn limited_to(units: u64) -> Self {
        Self {
            done: 0,
            limit: Some(units),
        }
    }

    /// The work so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Counts work that is about to be done.
    ///
    /// # Errors
    /// [`TooMuchWork`].
    pub fn spend(&mut self, units: u64) -> Result<(), TooMuchWork> {
        self.done = self.done.saturating_add(units);
        match self.limit.is_some_and(|limit| self.done > limit) {
            true => Err(TooMuchWork),
            false => Ok(()),
        }
    }

    /// Counts the copy of so many bytes.
    ///
    /// # Errors
    /// [`TooMuchWork`].
    pub fn spend_copy(&mut self, bytes: usize) -> Result<(), TooMuchWork> {
        self.spend(1 + (bytes / BYTES_A_UNIT) as u64)
    }
}
