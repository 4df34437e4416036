//! Ownership that lasts only while it is renewed, of backends that are reached over a network.
//!
//! ```text
//! owner    append, beat ──▶ the store: epoch, head and beat change
//! another  looks at them; unchanged for a whole lease ──▶ acquires, with the next epoch
//! ```
//!
//! Nothing compares clocks of two machines: another process times what it sees with its own, and an
//! owner times what it sent. The store refuses what an owner appends that was overtaken; [`Tenure`]
//! is for what no store can refuse, an answer or a request to somewhere else.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

use super::{Epoch, StoreError};

/// The time for which others leave an owner alone that changes nothing.
pub const LEASE: Duration = Duration::from_secs(5);
/// The time between two beats of an owner that appends nothing.
pub const BEAT_INTERVAL: Duration = Duration::from_secs(1);
/// The part of a lease that an owner does not use: two clocks do not run equally fast.
const MARGIN: Duration = Duration::from_millis(500);

/// The upkeep of ownership, by the owner.
pub trait Lease {
    /// The URL at which the owner listens, for what acquires next.
    fn set_url(&mut self, url: &str);

    /// Has a store renew this tenure itself, in the middle of an append that may take longer than a lease.
    fn set_tenure(&mut self, _tenure: Arc<Tenure>) {}

    /// Renews the ownership, durably; everything that was stored before is durable then, too.
    ///
    /// # Errors
    /// [`StoreError::Fenced`] if another has come; [`StoreError::Unknown`] if the server cannot be
    /// asked: it may be repeated.
    fn beat(&mut self, epoch: Epoch) -> Result<(), StoreError>;

    /// Gives the ownership up: the next owner need not wait.
    ///
    /// # Errors
    /// As [`Lease::beat`].
    fn release(&mut self, epoch: Epoch) -> Result<(), StoreError>;
}

/// A time of this machine, in microseconds, that also counts while the machine is suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BootTime(u64);

impl BootTime {
    /// The present time.
    pub fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        let seconds = u64::try_from(now.tv_sec).unwrap_or_default();
        let micros = u64::try_from(now.tv_nsec / 1_000).unwrap_or_default();
        Self(seconds.saturating_mul(1_000_000).saturating_add(micros))
    }
}

/// The time until which an owner may be sure that it is the only one.
#[derive(Debug, Default)]
pub struct Tenure {
    until_us: AtomicU64,
}

impl Tenure {
    /// Renews it: something that the store accepted since was sent at this time.
    pub fn renew(&self, BootTime(sent): BootTime) {
        let length = u64::try_from((LEASE - MARGIN).as_micros()).unwrap_or_default();
        let until = sent.saturating_add(length);
        self.until_us.fetch_max(until, Ordering::SeqCst);
    }

    /// Returns `true` while no other can have become the owner.
    pub fn is_held_at(&self, BootTime(now): BootTime) -> bool {
        now < self.until_us.load(Ordering::SeqCst)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tenure_ends_before_the_lease_that_others_count_from_later() {
        let (tenure, sent) = (Tenure::default(), BootTime(1_000));
        assert!(!tenure.is_held_at(sent));
        tenure.renew(sent);
        let after = |time: Duration| BootTime(1_000 + time.as_micros() as u64);
        assert!(tenure.is_held_at(after(Duration::from_millis(4_499))));
        assert!(!tenure.is_held_at(after(Duration::from_millis(4_500))));
        // An answer that arrives late does not shorten it.
        tenure.renew(BootTime(0));
        assert!(tenure.is_held_at(after(Duration::from_millis(4_499))));
    }
}
