//! The clock: the only source of time, and where jumps of the wall clock are detected.
//!
//! A run has its own time: the wall clock's, minus jumps that the run has not recorded yet. All
//! decisions use the run's time, so an unrecorded jump ends nothing and moves nothing.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ktsu_ledger::Timestamp;
use tokio::time::Instant;

/// The current time. A function, so that tests can control it.
pub type MicrosClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// By how many microseconds the wall clock has to go ahead of the time that passed to have jumped. Smaller
/// differences come from reading two clocks one after the other.
const MIN_JUMP: u64 = 1_000_000;

/// The time a run waits after it has recorded a jump before it records the next: all that the clock
/// jumps meanwhile is one jump. A clock that jumps whenever it is read would otherwise keep its
/// runs busy with nothing but recording that.
const MIN_RECORD_INTERVAL: Duration = Duration::from_mins(1);

/// The longest time between two checks, by a run with a deadline, whether the clock has jumped.
pub(super) const CLOCK_LOOK_INTERVAL: Duration = Duration::from_mins(1);

/// As many as there are, or as can be counted.
fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The machine's wall clock.
pub fn system_clock() -> MicrosClock {
    Arc::new(|| {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    })
}

/// The wall clock and the monotonic one, read together, and how far the first has jumped.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClockReading {
    /// The wall clock.
    pub(super) clock: Timestamp,
    instant: Instant,
    /// By how many microseconds it is ahead of the run's own time.
    ahead: u64,
    /// By how many microseconds it went back, as far as it did not go forward again.
    behind: u64,
    /// Time at which the last jump was recorded.
    recorded: Option<Instant>,
}

impl ClockReading {
    pub(super) fn now(clock: &MicrosClock) -> Self {
        Self {
            clock: clock(),
            instant: Instant::now(),
            ahead: 0,
            behind: 0,
            recorded: None,
        }
    }

    /// Reads both clocks and returns the run's own time. A wall clock that goes back first cancels
    /// an earlier forward jump; otherwise it is no jump: timers count down monotonically, and no
    /// frame is earlier than the one before it.
    pub(super) fn time(&mut self, clock: &MicrosClock) -> Timestamp {
        let before = *self;
        (self.clock, self.instant) = (clock(), Instant::now());
        let passed = self.instant.duration_since(before.instant);
        let is = self.clock.as_micros();
        let expected = before.clock.as_micros().saturating_add(micros(passed));
        if let Some(forward) = is.checked_sub(expected).filter(|by| *by >= MIN_JUMP) {
            let put_right = forward.min(self.behind);
            self.behind -= put_right;
            self.ahead = self.ahead.saturating_add(forward - put_right);
        }
        if let Some(back) = expected.checked_sub(is).filter(|by| *by >= MIN_JUMP) {
            let taken_back = back.min(self.ahead);
            self.ahead -= taken_back;
            self.behind = self.behind.saturating_add(back - taken_back);
        }
        Timestamp::from_micros(is.saturating_sub(self.ahead))
    }

    /// By how many milliseconds the wall clock has jumped, if it has.
    pub(super) fn jumped(&mut self, clock: &MicrosClock) -> Option<u64> {
        self.time(clock);
        let by_ms = self.ahead / 1000;
        (by_ms > 0).then_some(by_ms)
    }

    /// Returns `true` if it is long enough since a jump was recorded to record another.
    pub(super) fn may_record(&self) -> bool {
        let since = |recorded| self.instant.duration_since(recorded);
        self.recorded
            .is_none_or(|recorded| since(recorded) >= MIN_RECORD_INTERVAL)
    }

    /// Marks the jump as recorded: from now on the run's time is the wall clock's, up to a
    /// millisecond, the resolution of frames.
    pub(super) fn record(&mut self) {
        self.recorded = Some(self.instant);
        self.ahead %= 1000;
    }

    /// The run's own time is the wall clock's.
    pub(super) fn record_clock_jumps(&mut self) {
        self.ahead = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    const HOUR_MICROS: u64 = 3_600_000_000;

    /// A clock that shows what it is set to.
    fn settable() -> (Arc<AtomicU64>, MicrosClock) {
        let micros = Arc::new(AtomicU64::new(HOUR_MICROS));
        let read = Arc::clone(&micros);
        let clock = move || Timestamp::from_micros(read.load(Ordering::SeqCst));
        (micros, Arc::new(clock))
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_with_the_time_has_not_jumped() {
        let (micros, clock) = settable();
        let mut observed = ClockReading::now(&clock);
        tokio::time::advance(Duration::from_hours(1)).await;
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_back_and_is_put_right_has_not_jumped() {
        let (micros, clock) = settable();
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        let mut observed = ClockReading::now(&clock);
        micros.fetch_sub(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
        tokio::time::advance(Duration::from_secs(3)).await;
        micros.fetch_add(HOUR_MICROS + 3_000_000, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
        // What goes beyond is one.
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), Some(HOUR_MICROS / 1000));
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_did_not_pass_counts_as_a_jump_and_only_once() {
        let (micros, clock) = settable();
        let mut observed = ClockReading::now(&clock);
        tokio::time::advance(Duration::from_mins(10)).await;
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), Some(50 * 60 * 1000));
        observed.record();
        assert_eq!(observed.jumped(&clock), None);
        assert_eq!(observed.time(&clock), clock());
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_goes_back_has_not_jumped_forward() {
        let (micros, clock) = settable();
        let mut observed = ClockReading::now(&clock);
        micros.store(0, Ordering::SeqCst);
        assert_eq!(observed.jumped(&clock), None);
        assert_eq!(observed.time(&clock), clock());
    }

    #[tokio::test(start_paused = true)]
    async fn a_jump_that_is_taken_back_was_none() {
        let (micros, clock) = settable();
        let mut observed = ClockReading::now(&clock);
        let begun = clock();
        micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.time(&clock), begun);
        micros.fetch_sub(HOUR_MICROS, Ordering::SeqCst);
        assert_eq!(observed.time(&clock), begun);
        assert_eq!(observed.jumped(&clock), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_clock_that_jumps_whenever_it_is_read_is_recorded_once_a_minute() {
        let (micros, settable) = settable();
        let clock: MicrosClock = Arc::new(move || {
            micros.fetch_add(HOUR_MICROS, Ordering::SeqCst);
            settable()
        });
        let mut observed = ClockReading::now(&clock);
        let begun = observed.clock;
        let mut recorded = Vec::new();
        for _ in 0..180 {
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(observed.time(&clock) <= observed.clock);
            if let Some(by_ms) = observed.jumped(&clock).filter(|_| observed.may_record()) {
                observed.record();
                recorded.push(by_ms);
            }
        }
        assert_eq!(recorded.len(), 3, "{recorded:?}");
        let passed_ms = observed.time(&clock).millis_since(begun);
        let jumped_ms: u64 = recorded.iter().sum();
        let slack_ms = passed_ms.abs_diff(jumped_ms + 180_000);
        assert!(
            slack_ms == 0,
            "no time is lost, and none is won: {slack_ms}"
        );
    }
}
