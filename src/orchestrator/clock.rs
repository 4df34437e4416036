//! The one place where time enters, and where a wall clock that jumps is noticed.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ktsu_ledger::Timestamp;
use tokio::time::Instant;

/// Tells the time. A function, so that tests can stop it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// By how much the wall clock has to go ahead of the time that passed to have jumped. Smaller
/// differences come from reading two clocks one after the other.
const MIN_JUMP: Duration = Duration::from_secs(1);

/// How often a run with a deadline looks whether the clock has jumped, at the least.
pub(super) const CLOCK_LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// The machine's wall clock.
pub fn system() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    })
}

/// The wall clock and the monotonic one, read together.
#[derive(Debug, Clone, Copy)]
pub(super) struct Observed {
    /// What the wall clock said.
    pub(super) clock: Timestamp,
    instant: Instant,
}

impl Observed {
    pub(super) fn now(clock: &Clock) -> Self {
        Self {
            clock: clock(),
            instant: Instant::now(),
        }
    }

    /// Reads both clocks again. By how many milliseconds the wall clock went forward beyond the
    /// time that passed, if it has jumped. One that went back is no jump here: timers count down
    /// monotonically, and no frame is earlier than the one before it.
    pub(super) fn jumped(&mut self, clock: &Clock) -> Option<u64> {
        let before = std::mem::replace(self, Self::now(clock));
        let passed = self.instant.duration_since(before.instant);
        let shown = Duration::from_millis(self.clock.millis_since(before.clock));
        let jump = shown.saturating_sub(passed);
        (jump >= MIN_JUMP).then(|| u64::try_from(jump.as_millis()).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const HOUR_MICROS: u64 = 3_600_000_000;

    /// A clock that shows what it is set to.
    fn settable() -> (Arc<AtomicU64>, Clock) {
        let micros = Arc::new(AtomicU64::new(HOUR_MICROS));
        let read = Arc::clone(&micros);
        let clock = move || Timestamp::from_micros(read.load(Ordering::SeqCst));
        (micros, Arc::new(clock))
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_with_the_time_has_not_jumped() {
        let (micros, clock) = settable();
        let mut observed = Observed::now(&clock);
        tokio::time::advance(Duration::from_hours(1)).await;
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_did_not_pass_counts_as_a_jump_and_only_once() {
        let (micros, clock) = settable();
        let mut observed = Observed::now(&clock);
        tokio::time::advance(Duration::from_mins(10)).await;
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), Some(50 * 60 * 1000));
        assert_eq!(observed.jumped(&clock), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_back_has_not_jumped_forward() {
        let (micros, clock) = settable();
        let mut observed = Observed::now(&clock);
        micros.store(0, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
    }
}
