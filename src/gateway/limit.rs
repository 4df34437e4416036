//! Limits the concurrent calls to a provider, and the calls per minute. Calls beyond a limit wait
//! in order.
//!
//! Waiting is bounded twice: by the deadline of each call, and by the number of waiting calls. A
//! new call is refused at once if its turn cannot come in time, counting everything that waits
//! before it. A call that stops waiting leaves nothing behind: a slot is used by the call that is
//! made, not by those that wait.

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::config::RateLimit;

/// The time over which the rate is counted.
const WINDOW: Duration = Duration::from_secs(60);
/// The most calls that wait for one provider: some more than its host takes connections, far fewer
/// than would hurt.
const MAX_WAITING: usize = 1024;

/// Admits calls to a provider.
#[derive(Debug)]
pub(super) struct RateLimiter {
    places: Option<Semaphore>,
    rate: Option<RateWindow>,
    seats: Semaphore,
}

/// A call that may go; held until it is answered.
#[derive(Debug)]
pub(super) struct Permit<'d> {
    _place: Option<SemaphorePermit<'d>>,
}

/// The reason why a call may not begin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Rejected {
    /// Its turn comes after its deadline.
    TooLate,
    /// Too many wait already.
    TooMany,
}

impl RateLimiter {
    pub(super) fn new(limit: RateLimit) -> Self {
        let most = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            places: limit.concurrent.map(|count| Semaphore::new(most(count))),
            rate: limit.per_minute.map(|count| RateWindow::new(most(count))),
            seats: Semaphore::new(MAX_WAITING),
        }
    }

    /// A place and a turn if both are there now and nobody waits for them; never waits.
    pub(super) fn try_acquire(&self) -> Option<Permit<'_>> {
        let place = match &self.places {
            Some(places) => Some(places.try_acquire().ok()?),
            None => None,
        };
        let goes = self.rate.as_ref().is_none_or(RateWindow::try_begin);
        goes.then_some(Permit { _place: place })
    }

    /// Waits for a place and a turn, in the order of asking. A call whose turn comes too late, behind
    /// all those that wait already, does not wait for it.
    pub(super) async fn acquire(&self, deadline: Instant) -> Result<Permit<'_>, Rejected> {
        if self.places.is_none() && self.rate.is_none() {
            return Ok(Permit { _place: None });
        }
        let _seat = self.seats.try_acquire().map_err(|_| Rejected::TooMany)?;
        let in_line = match &self.rate {
            Some(rate) => Some(rate.enqueue(deadline)?),
            None => None,
        };
        let entering = async {
            // The place first: a turn that is taken is a call that goes now.
            let place = match &self.places {
                Some(places) => Some(places.acquire().await.map_err(|_| Rejected::TooMany)?),
                None => None,
            };
            if let Some(in_line) = in_line {
                in_line.turn(deadline).await?;
            }
            Ok(Permit { _place: place })
        };
        let entered = timeout_at(deadline, entering).await;
        entered.unwrap_or(Err(Rejected::TooLate))
    }
}

/// At most so many calls begin within any minute.
#[derive(Debug)]
struct RateWindow {
    /// One call at a time looks for its turn, in the order of asking.
    line: Semaphore,
    turns: Mutex<WindowState>,
}

/// Turns that are taken, and those that are spoken for.
#[derive(Debug)]
struct WindowState {
    /// At least 1.
    most: usize,
    /// The times at which the last calls began, the oldest first; never more than `most`.
    begun: VecDeque<Instant>,
    /// Number of calls that wait, be it for a place or for their turn.
    waiting: usize,
}

impl RateWindow {
    fn new(most: usize) -> Self {
        let turns = WindowState {
            most: most.max(1),
            begun: VecDeque::new(),
            waiting: 0,
        };
        Self {
            line: Semaphore::new(1),
            turns: Mutex::new(turns),
        }
    }

    /// Takes a turn that is free now and that nobody waits for.
    fn try_begin(&self) -> bool {
        let mut turns = self.turns.lock();
        let now = Instant::now();
        let is_free = turns.due(turns.waiting, now) <= now;
        if is_free {
            turns.begin(now);
        }
        is_free
    }

    fn enqueue(&self, deadline: Instant) -> Result<QueuedCall<'_>, Rejected> {
        let mut turns = self.turns.lock();
        if turns.due(turns.waiting, Instant::now()) > deadline {
            return Err(Rejected::TooLate);
        }
        turns.waiting += 1;
        Ok(QueuedCall {
            rate: self,
            waits: true,
        })
    }
}

impl WindowState {
    /// The time at which a call may begin behind so many others, if each of them begins as soon as
    /// it may.
    fn due(&self, ahead: usize, now: Instant) -> Instant {
        // Every turn is a window behind the one `most` turns before it.
        let at = self.begun.len().saturating_add(ahead);
        let windows = |count: usize| WINDOW * u32::try_from(count).unwrap_or_default();
        match (at / self.most, self.begun.get(at % self.most)) {
            (count, Some(begun)) => (*begun + WINDOW).max(now) + windows(count.saturating_sub(1)),
            (count, None) => now + windows(count),
        }
    }

    fn begin(&mut self, now: Instant) {
        self.begun.push_back(now);
        if self.begun.len() > self.most {
            self.begun.pop_front();
        }
    }
}

/// A call that waits for its turn. Who drops it leaves the line, and those behind move up.
#[derive(Debug)]
struct QueuedCall<'r> {
    rate: &'r RateWindow,
    waits: bool,
}

impl QueuedCall<'_> {
    async fn turn(mut self, deadline: Instant) -> Result<(), Rejected> {
        let rate = self.rate;
        let _first = rate.line.acquire().await.map_err(|_| Rejected::TooMany)?;
        while let Some(due) = self.try_begin_or_due() {
            // Those ahead may have been slower than they might.
            if due > deadline {
                return Err(Rejected::TooLate);
            }
            sleep_until(due).await;
        }
        Ok(())
    }

    /// The time at which the turn of the first in line comes; none if it is taken with this. A call
    /// is never counted twice, as one that began and as one that waits.
    fn try_begin_or_due(&mut self) -> Option<Instant> {
        let mut turns = self.rate.turns.lock();
        let now = Instant::now();
        let due = turns.due(0, now);
        if due > now {
            return Some(due);
        }
        turns.begin(now);
        turns.waiting -= 1;
        self.waits = false;
        None
    }
}

impl Drop for QueuedCall<'_> {
    fn drop(&mut self) {
        if self.waits {
            self.rate.turns.lock().waiting -= 1;
        }
    }
}

#[cfg(test)]
mod tests;
