//! The frames that a subscriber is being sent: a bounded number, in order within each run.
//!
//! ```text
//! ledger ──push──▶ waiting ──start──▶ in flight ──succeeded──▶ gone, and the cursor follows
//!                     ▲                   │
//!                     └──── a pause ──── failed ──the last attempt──▶ dead, once that is recorded
//! ```
//!
//! Runs overtake each other, frames of one run do not. What is not in here is in the ledger behind
//! the cursor. Times are milliseconds of any clock that does not go back.

use std::collections::{BTreeMap, HashSet};

use ktsu_ledger::StreamId;

use super::retry::{DeliveryRetry, MAX_PAUSE_MS};

/// The most frames in here.
pub const MAX_WINDOW_FRAMES: usize = 64;
/// The most bytes of frames in here, except where one frame has more.
pub const MAX_WINDOW_BYTES: usize = 1024 * 1024;
/// The most frames in flight to a subscriber that answers; one that does not gets one at a time.
pub const MAX_IN_FLIGHT: usize = 4;
/// After this many failures in a row the subscriber was away, rather than unable to take a frame.
const OUTAGE_FAILURES: u32 = 3;

/// See the module documentation. `T` is what is sent.
#[derive(Debug)]
pub struct DeliveryWindow<T> {
    retry: DeliveryRetry,
    /// By position, which is the order within a run, too.
    items: BTreeMap<u64, WindowItem<T>>,
    bytes: usize,
    in_flight: usize,
    /// Every wanted frame up to here is in here, or settled.
    scanned: u64,
    /// Failures since the last success.
    failures: u32,
    /// Nothing starts before this time.
    paused_until: u64,
}

#[derive(Debug)]
struct WindowItem<T> {
    run: StreamId,
    payload: T,
    bytes: usize,
    is_redriven: bool,
    attempts: u32,
    due: u64,
    is_in_flight: bool,
}

/// The consequence of a failed attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptFailure {
    /// Another one follows.
    Again,
    /// It was the last: the frame stays in its place until [`DeliveryWindow::settle`].
    Last {
        /// Number of attempts.
        attempts: u32,
    },
}

impl<T: Clone> DeliveryWindow<T> {
    /// An empty one: everything up to a position is settled.
    pub fn new(retry: DeliveryRetry, cursor: u64) -> Self {
        Self {
            retry,
            items: BTreeMap::new(),
            bytes: 0,
            in_flight: 0,
            scanned: cursor,
            failures: 0,
            paused_until: 0,
        }
    }

    /// Returns `true` if another frame may be pushed.
    pub fn has_room(&self) -> bool {
        self.items.len() < MAX_WINDOW_FRAMES && self.bytes < MAX_WINDOW_BYTES
    }

    /// Returns `true` if nothing is being sent or waits for it.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The position up to which the ledger was searched.
    pub fn scanned(&self) -> u64 {
        self.scanned
    }

    /// Takes a frame, due at once. `bytes`: what it takes in memory. A redriven one does not hold
    /// the cursor.
    pub fn push(
        &mut self,
        position: u64,
        run: StreamId,
        (payload, bytes): (T, usize),
        is_redriven: bool,
        now: u64,
    ) {
        let item = WindowItem {
            run,
            payload,
            bytes,
            is_redriven,
            attempts: 0,
            due: now,
            is_in_flight: false,
        };
        self.bytes += bytes;
        if !is_redriven {
            self.scanned = self.scanned.max(position);
        }
        if let Some(before) = self.items.insert(position, item) {
            self.bytes -= before.bytes;
            self.in_flight -= usize::from(before.is_in_flight);
        }
    }

    /// Every wanted frame up to a position was pushed.
    pub fn search_reached(&mut self, position: u64) {
        self.scanned = self.scanned.max(position);
    }

    /// The position up to which every wanted frame is settled.
    pub fn cursor(&self) -> u64 {
        let mut held = self.items.iter().filter(|(_, item)| !item.is_redriven);
        held.next()
            .map_or(self.scanned, |(position, _)| position.saturating_sub(1))
    }

    /// The first frames of their runs: the ones that may be sent.
    fn heads(&self) -> impl Iterator<Item = (u64, &WindowItem<T>)> {
        let mut runs = HashSet::new();
        let items = self.items.iter();
        let heads = items.filter(move |(_, item)| runs.insert(&item.run));
        heads.map(|(position, item)| (*position, item))
    }

    fn has_free_slot(&self) -> bool {
        self.in_flight < if self.failures > 0 { 1 } else { MAX_IN_FLIGHT }
    }

    /// Starts the next attempt, if one is due: the one that has been due longest.
    pub fn start(&mut self, now: u64) -> Option<(u64, T)> {
        if !self.has_free_slot() || self.paused_until > now {
            return None;
        }
        let due = |(_, item): &(u64, &WindowItem<T>)| !item.is_in_flight && item.due <= now;
        let heads = self.heads().filter(due);
        let (position, _) = heads.min_by_key(|(position, item)| (item.due, *position))?;
        let item = self.items.get_mut(&position)?;
        item.is_in_flight = true;
        self.in_flight += 1;
        Some((position, item.payload.clone()))
    }

    /// The time at which the next attempt is due, if none has to end before.
    pub fn next_start(&self) -> Option<u64> {
        if !self.has_free_slot() {
            return None;
        }
        let waiting = self.heads().filter(|(_, item)| !item.is_in_flight);
        let due = waiting.map(|(_, item)| item.due).min()?;
        Some(due.max(self.paused_until))
    }

    /// An attempt succeeded. Returns whether the frame was redriven.
    pub fn succeeded(&mut self, position: u64, now: u64) -> bool {
        let was_away = self.failures >= OUTAGE_FAILURES;
        self.failures = 0;
        self.paused_until = 0;
        let removed = self.settle(position);
        if was_away {
            for item in self.items.values_mut() {
                item.due = item.due.min(now);
            }
        }
        removed
    }

    /// An attempt failed.
    pub fn failed(&mut self, position: u64, now: u64) -> AttemptFailure {
        self.failures = self.failures.saturating_add(1);
        let pause = self.retry.pause_after(self.failures).min(MAX_PAUSE_MS);
        self.paused_until = now.saturating_add(pause);
        let retry = self.retry;
        let Some(item) = self.items.get_mut(&position) else {
            return AttemptFailure::Again;
        };
        item.attempts = item.attempts.saturating_add(1);
        if retry.is_exhausted(item.attempts) {
            return AttemptFailure::Last {
                attempts: item.attempts,
            };
        }
        item.due = now.saturating_add(retry.pause_after(item.attempts));
        if std::mem::take(&mut item.is_in_flight) {
            self.in_flight -= 1;
        }
        AttemptFailure::Again
    }

    /// Lets a frame go: it was delivered, or it is recorded as dead. Returns whether it was redriven.
    pub fn settle(&mut self, position: u64) -> bool {
        let Some(item) = self.items.remove(&position) else {
            return false;
        };
        self.bytes -= item.bytes;
        self.in_flight -= usize::from(item.is_in_flight);
        item.is_redriven
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> StreamId {
        StreamId::run(name).unwrap()
    }

    fn window(frames: &[(u64, &str)]) -> DeliveryWindow<()> {
        let retry = DeliveryRetry {
            attempts: 3,
            backoff_ms: 100,
        };
        let mut window = DeliveryWindow::new(retry, 0);
        for (position, name) in frames {
            window.push(*position, run(name), ((), 10), false, 0);
        }
        window
    }

    fn started(window: &mut DeliveryWindow<()>, now: u64) -> Vec<u64> {
        std::iter::from_fn(|| window.start(now).map(|(position, ())| position)).collect()
    }

    #[test]
    fn runs_overtake_each_other_and_frames_of_one_run_do_not() {
        let mut window = window(&[(1, "a"), (2, "a"), (3, "b"), (5, "c"), (6, "b")]);
        assert_eq!(started(&mut window, 0), [1, 3, 5]);
        assert_eq!(window.cursor(), 0);
        window.succeeded(3, 0);
        assert_eq!(started(&mut window, 0), [6]);
        assert_eq!(window.cursor(), 0, "the first frame holds the cursor");
        window.succeeded(1, 0);
        assert_eq!(window.cursor(), 1);
        assert_eq!(started(&mut window, 0), [2]);
        for position in [2, 5, 6] {
            window.succeeded(position, 0);
        }
        assert_eq!(window.cursor(), 6);
        window.search_reached(40);
        assert_eq!((window.cursor(), window.is_empty()), (40, true));
    }

    #[test]
    fn no_more_than_a_few_are_in_flight_and_one_alone_after_a_failure() {
        let names = ["a", "b", "c", "d", "e", "f", "g"];
        let frames: Vec<(u64, &str)> = (1..).zip(names).collect();
        let mut window = window(&frames);
        assert_eq!(started(&mut window, 0), [1, 2, 3, 4]);
        assert_eq!(window.next_start(), None, "an attempt has to end first");
        for position in [1, 2, 3, 4] {
            assert_eq!(window.failed(position, 0), AttemptFailure::Again);
        }
        assert_eq!(
            window.next_start(),
            Some(800),
            "the pause doubles with each failure"
        );
        assert!(started(&mut window, 799).is_empty());
        assert_eq!(started(&mut window, 800), [5]);
        window.succeeded(5, 801);
        assert_eq!(
            started(&mut window, 801),
            [6, 7, 1, 2],
            "it was away: all is due again"
        );
    }

    #[test]
    fn a_frame_that_is_refused_again_and_again_delays_its_own_run_alone() {
        let mut window = window(&[(1, "a"), (2, "a"), (3, "b"), (4, "b")]);
        assert_eq!(started(&mut window, 0), [1, 3]);
        window.succeeded(3, 0);
        assert_eq!(window.failed(1, 0), AttemptFailure::Again);
        assert_eq!(started(&mut window, 100), [4]);
        window.succeeded(4, 100);
        assert_eq!(started(&mut window, 100), [1]);
        assert_eq!(window.failed(1, 100), AttemptFailure::Again);
        assert_eq!(
            window.next_start(),
            Some(300),
            "the pause of the frame doubles"
        );
        assert_eq!(started(&mut window, 300), [1]);
        assert_eq!(window.failed(1, 300), AttemptFailure::Last { attempts: 3 });
        assert!(
            started(&mut window, 9_999).is_empty(),
            "until its death is recorded"
        );
        assert_eq!(window.cursor(), 0);
        window.settle(1);
        assert_eq!(window.cursor(), 1);
        assert_eq!(started(&mut window, 9_999), [2]);
    }

    #[test]
    fn the_window_has_room_for_a_bounded_number_of_frames_and_bytes() {
        let mut window = window(&[]);
        for position in 1..=MAX_WINDOW_FRAMES as u64 {
            assert!(window.has_room());
            window.push(position, run("a"), ((), 1), false, 0);
        }
        assert!(!window.has_room());
        window.settle(1);
        assert!(window.has_room());
        window.push(99, run("a"), ((), MAX_WINDOW_BYTES), false, 0);
        assert!(!window.has_room());
        window.settle(99);
        window.settle(2);
        assert!(window.has_room());
    }

    #[test]
    fn redriven_frames_do_not_hold_the_cursor_and_go_before_later_ones_of_their_run() {
        let mut window = window(&[(7, "a")]);
        window.push(2, run("a"), ((), 10), true, 0);
        assert_eq!(window.cursor(), 6);
        assert_eq!(started(&mut window, 0), [2]);
        assert!(window.succeeded(2, 0));
        assert_eq!(started(&mut window, 0), [7]);
        assert!(!window.succeeded(7, 0));
        assert_eq!(window.cursor(), 7);
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        /// Whatever fails in whatever order: frames of a run are delivered in order, the cursor never
        /// passes one that is not settled, and everything is settled in the end.
        #[test]
        fn whatever_fails_the_order_of_a_run_holds(
            runs in proptest::collection::vec(0u8..4, 1..40),
            verdicts in proptest::collection::vec(0u8..3, 1..200),
        ) {
            let mut window = window(&[]);
            for (position, name) in (1..).zip(&runs) {
                window.push(position, run(&format!("r{name}")), ((), 1), false, 0);
            }
            let (mut now, mut settled) = (0, Vec::new());
            let mut verdicts = verdicts.into_iter().cycle();
            let mut flying: Vec<u64> = Vec::new();
            while !window.is_empty() {
                flying.extend(started(&mut window, now));
                proptest::prop_assert!(flying.len() <= MAX_IN_FLIGHT);
                if flying.is_empty() {
                    let next = window.next_start().unwrap();
                    proptest::prop_assert!(next > now);
                    now = next;
                    continue;
                }
                let position = flying.remove(usize::from(verdicts.next().unwrap()) % flying.len());
                let is_settled = match verdicts.next().unwrap() {
                    0 => {
                        window.succeeded(position, now);
                        true
                    }
                    _ => matches!(window.failed(position, now), AttemptFailure::Last { .. }),
                };
                if is_settled {
                    window.settle(position);
                    settled.push(position);
                }
                let open = (1..=runs.len() as u64).find(|one| !settled.contains(one));
                let cursor = open.map_or(runs.len() as u64, |open| open - 1);
                proptest::prop_assert_eq!(window.cursor(), cursor);
            }
            for name in 0..4 {
                let of_run = |position: &&u64| runs[**position as usize - 1] == name;
                let order: Vec<u64> = settled.iter().filter(of_run).copied().collect();
                proptest::prop_assert!(order.is_sorted(), "{:?}", order);
            }
        }
    }
}
