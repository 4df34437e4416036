//! How much a provider is asked at once and in a minute. Who comes too early waits in order.
//!
//! Waiting is bounded twice: by the deadline of each call, and by the number of calls that wait. Who
//! stops waiting leaves nothing behind: a turn is taken by the call that goes, not by those that
//! stand in line.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, sleep_until, timeout_at};

use super::config::Limit;

/// What the rate is counted over.
const WINDOW: Duration = Duration::from_secs(60);
/// The most calls that wait for one provider: some more than its host takes connections, far fewer
/// than would hurt.
const MOST_WAITING: usize = 1024;

/// The door to a provider.
#[derive(Debug)]
pub(super) struct Door {
    places: Option<Semaphore>,
    rate: Option<Rate>,
    seats: Semaphore,
}

/// A call that may go; held until it is answered.
#[derive(Debug)]
pub(super) struct Entered<'d> {
    _place: Option<SemaphorePermit<'d>>,
}

/// Why a call may not go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shut {
    /// Its turn comes after its deadline.
    TooLate,
    /// Too many wait already.
    TooMany,
}

impl Door {
    pub(super) fn new(limit: Limit) -> Self {
        let most = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        Self {
            places: limit.concurrent.map(|count| Semaphore::new(most(count))),
            rate: limit.per_minute.map(|count| Rate::new(most(count))),
            seats: Semaphore::new(MOST_WAITING),
        }
    }

    /// Waits for a place and a turn, in the order of asking.
    pub(super) async fn enter(&self, deadline: Instant) -> Result<Entered<'_>, Shut> {
        if self.places.is_none() && self.rate.is_none() {
            return Ok(Entered { _place: None });
        }
        let _seat = self.seats.try_acquire().map_err(|_| Shut::TooMany)?;
        let entering = async {
            // The place first: a turn that is taken is a call that goes now.
            let place = match &self.places {
                Some(places) => Some(places.acquire().await.map_err(|_| Shut::TooMany)?),
                None => None,
            };
            if let Some(rate) = &self.rate {
                rate.turn(deadline).await?;
            }
            Ok(Entered { _place: place })
        };
        let entered = timeout_at(deadline, entering).await;
        entered.unwrap_or(Err(Shut::TooLate))
    }
}

/// At most so many calls begin within any minute.
#[derive(Debug)]
struct Rate {
    most: usize,
    /// One call at a time looks for its turn, in the order of asking.
    line: Semaphore,
    /// When the last calls began, the oldest first; never more than `most`.
    begun: Mutex<VecDeque<Instant>>,
}

impl Rate {
    fn new(most: usize) -> Self {
        Self {
            most,
            line: Semaphore::new(1),
            begun: Mutex::default(),
        }
    }

    async fn turn(&self, deadline: Instant) -> Result<(), Shut> {
        let _first = self.line.acquire().await.map_err(|_| Shut::TooMany)?;
        let free = self.free();
        if let Some(free) = free {
            if free > deadline {
                return Err(Shut::TooLate);
            }
            sleep_until(free).await;
        }
        let mut begun = self.begun();
        if free.is_some() {
            begun.pop_front();
        }
        begun.push_back(Instant::now());
        Ok(())
    }

    /// When the next call may begin; at once if nothing is said.
    fn free(&self) -> Option<Instant> {
        let begun = self.begun();
        let oldest = begun.front().filter(|_| begun.len() >= self.most)?;
        Some(*oldest + WINDOW)
    }

    fn begun(&self) -> MutexGuard<'_, VecDeque<Instant>> {
        // Held for a few lines that look at a queue or move it on.
        self.begun.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn door(per_minute: Option<u32>, concurrent: Option<u32>) -> Arc<Door> {
        Arc::new(Door::new(Limit {
            per_minute,
            concurrent,
        }))
    }

    fn in_seconds(seconds: u64) -> Instant {
        Instant::now() + Duration::from_secs(seconds)
    }

    #[tokio::test(start_paused = true)]
    async fn no_minute_sees_more_calls_begin_than_the_limit() {
        let door = door(Some(3), None);
        let start = Instant::now();
        let mut begun = Vec::new();
        for _ in 0..8 {
            door.enter(in_seconds(600)).await.unwrap();
            begun.push(start.elapsed().as_secs());
        }
        assert_eq!(begun, [0, 0, 0, 60, 60, 60, 120, 120]);
        // A pause counts: the window slides.
        tokio::time::advance(Duration::from_secs(30)).await;
        door.enter(in_seconds(1)).await.unwrap();
        assert_eq!(door.enter(in_seconds(29)).await.unwrap_err(), Shut::TooLate);
        door.enter(in_seconds(31)).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 180);
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_told_at_once() {
        let door = door(Some(1), None);
        let start = Instant::now();
        door.enter(in_seconds(1)).await.unwrap();
        assert_eq!(door.enter(in_seconds(59)).await.unwrap_err(), Shut::TooLate);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn who_stops_waiting_takes_nobodys_turn() {
        let door = door(Some(1), Some(5));
        door.enter(in_seconds(1)).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        for _ in 0..10 {
            let mut gone = Box::pin(door.enter(in_seconds(600)));
            assert!(gone.as_mut().poll(&mut context).is_pending());
        }
        let start = Instant::now();
        door.enter(in_seconds(61)).await.unwrap();
        assert_eq!(start.elapsed().as_secs(), 60);
        assert_eq!(door.seats.available_permits(), MOST_WAITING);
    }

    #[tokio::test(start_paused = true)]
    async fn turns_come_in_the_order_of_asking() {
        let door = door(Some(1), None);
        door.enter(in_seconds(1)).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let (mut first, mut second) = (
            Box::pin(door.enter(in_seconds(600))),
            Box::pin(door.enter(in_seconds(600))),
        );
        assert!(first.as_mut().poll(&mut context).is_pending());
        assert!(second.as_mut().poll(&mut context).is_pending());
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(second.as_mut().poll(&mut context).is_pending());
        assert!(matches!(
            first.as_mut().poll(&mut context),
            Poll::Ready(Ok(_))
        ));
        assert!(second.as_mut().poll(&mut context).is_pending());
        second.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_place_is_free_again_when_its_call_ends() {
        let door = door(None, Some(2));
        let (one, two) = (
            door.enter(in_seconds(1)).await.unwrap(),
            door.enter(in_seconds(1)).await.unwrap(),
        );
        assert_eq!(door.enter(in_seconds(5)).await.unwrap_err(), Shut::TooLate);
        drop(one);
        let three = door.enter(in_seconds(5)).await.unwrap();
        drop((two, three));
        assert_eq!(door.places.as_ref().unwrap().available_permits(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_line_is_bounded() {
        let door = door(None, Some(1));
        let _busy = door.enter(in_seconds(1)).await.unwrap();
        let mut context = Context::from_waker(Waker::noop());
        let mut line: Vec<_> = (0..MOST_WAITING)
            .map(|_| Box::pin(door.enter(in_seconds(9))))
            .collect();
        for waiting in &mut line {
            assert!(waiting.as_mut().poll(&mut context).is_pending());
        }
        assert_eq!(door.enter(in_seconds(9)).await.unwrap_err(), Shut::TooMany);
        line.pop();
        assert_eq!(door.enter(in_seconds(9)).await.unwrap_err(), Shut::TooLate);
    }
}
