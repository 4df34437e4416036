//! The time limit of a task. It is suspended while the task's run is paused (decision P1).

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};

/// See the module documentation. Clones share it.
#[derive(Clone)]
pub(super) struct PausableDeadline(Arc<watch::Sender<RemainingTime>>);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RemainingTime {
    /// It runs, and is over then.
    Running(Instant),
    /// It stands still, with so much left.
    Paused(Duration),
}

/// The time is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DeadlineElapsedError;

impl PausableDeadline {
    /// So much from now on.
    pub(super) fn of(given: Duration) -> Self {
        let until = RemainingTime::Running(Instant::now() + given);
        Self(Arc::new(watch::Sender::new(until)))
    }

    /// It stands still from now on.
    pub(super) fn pause(&self) {
        self.0.send_if_modified(|left| match *left {
            RemainingTime::Running(at) => {
                *left = RemainingTime::Paused(at.saturating_duration_since(Instant::now()));
                true
            }
            RemainingTime::Paused(_) => false,
        });
    }

    /// It runs again.
    pub(super) fn resume(&self) {
        self.0.send_if_modified(|left| match *left {
            RemainingTime::Paused(rest) => {
                *left = RemainingTime::Running(Instant::now() + rest);
                true
            }
            RemainingTime::Running(_) => false,
        });
    }

    /// The time at which it is over, if it does not pause again.
    pub(super) fn until(&self) -> Instant {
        match *self.0.borrow() {
            RemainingTime::Running(at) => at,
            RemainingTime::Paused(rest) => Instant::now() + rest,
        }
    }

    /// Resolves when it is over.
    pub(super) async fn elapsed(&self) {
        let mut left = self.0.subscribe();
        loop {
            let now = *left.borrow_and_update();
            // `self` holds the sender, so a change is one.
            let changed = left.changed();
            match now {
                RemainingTime::Running(at) => tokio::select! {
                    () = sleep_until(at) => return,
                    _ = changed => {}
                },
                RemainingTime::Paused(_) => drop(changed.await),
            }
        }
    }

    /// Waits as long as there is time.
    pub(super) async fn within<T>(
        &self,
        what: impl Future<Output = T>,
    ) -> Result<T, DeadlineElapsedError> {
        tokio::select! {
            biased;
            done = what => Ok(done),
            () = self.elapsed() => Err(DeadlineElapsedError),
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::{advance, sleep};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn time_that_is_suspended_is_over_by_as_much_later() {
        let started = Instant::now();
        let time = PausableDeadline::of(Duration::from_secs(10));
        let steered = time.clone();
        tokio::spawn(async move {
            sleep(Duration::from_secs(4)).await;
            steered.pause();
            steered.pause();
            sleep(Duration::from_secs(3600)).await;
            steered.resume();
        });
        time.elapsed().await;
        assert_eq!(started.elapsed(), Duration::from_secs(3610));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_done_in_time_is_given_and_what_is_not_is_given_up() {
        let time = PausableDeadline::of(Duration::from_secs(1));
        assert_eq!(time.within(async { 7 }).await, Ok(7));
        let late = sleep(Duration::from_secs(2));
        assert_eq!(time.within(late).await, Err(DeadlineElapsedError));
        advance(Duration::from_secs(1)).await;
        assert_eq!(
            time.within(std::future::pending::<()>()).await,
            Err(DeadlineElapsedError)
        );
    }
}
