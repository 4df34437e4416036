//! The owner of a ledger on a server, whichever engine that is: a request that one could not answer goes to
//! the next.

use std::time::{Duration, Instant};

use super::Failure;
use super::location::LedgerLocation;
use ktsu_opening::ledger::owner_url;

/// The time between two looks for the next owner.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The search for the engine to ask after failures.
pub(super) struct SuccessorSearch<'a> {
    place: Option<&'a LedgerLocation>,
    window: FailureWindow,
}

impl<'a> SuccessorSearch<'a> {
    /// Of a ledger, for failures that last no longer than this.
    pub(super) fn new(place: Option<&'a LedgerLocation>, patience: Duration) -> Self {
        Self {
            place,
            window: FailureWindow::new(patience),
        }
    }

    /// The URL of the engine to ask after a failure, as soon as there is one.
    ///
    /// # Errors
    /// The failure itself: another engine would answer the same, only this one can own the ledger, or requests
    /// have failed for too long.
    pub(super) async fn after(&mut self, failure: Failure) -> Result<String, Failure> {
        let shared = self.place.filter(|place| place.ledger.is_shared());
        let Some(place) = shared.filter(|_| failure.may_pass()) else {
            return Err(failure);
        };
        while self.window.is_open(Instant::now()) {
            // An owner that is about to end still has its URL in the ledger.
            tokio::time::sleep(LOOK_INTERVAL).await;
            let ledger = place.ledger.clone();
            let looked = tokio::task::spawn_blocking(move || owner_url(&ledger)).await;
            if let Ok(Ok(Some(url))) = looked {
                return Ok(url);
            }
        }
        Err(failure)
    }
}

/// The time for which failures in a row are borne.
struct FailureWindow {
    patience: Duration,
    /// When the first and the last of them were.
    failed: Option<(Instant, Instant)>,
}

impl FailureWindow {
    fn new(patience: Duration) -> Self {
        Self {
            patience,
            failed: None,
        }
    }

    /// Notes a failure; `false` once they have lasted too long. One that comes long after the last begins anew.
    fn is_open(&mut self, now: Instant) -> bool {
        let is_in_a_row =
            |(_, last): &(Instant, Instant)| now.duration_since(*last) < self.patience;
        let first = self
            .failed
            .filter(is_in_a_row)
            .map_or(now, |(first, _)| first);
        self.failed = Some((first, now));
        now.duration_since(first) < self.patience
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_in_a_row_end_the_search_and_one_long_after_them_begins_another() {
        let mut window = FailureWindow::new(Duration::from_secs(30));
        let begin = Instant::now();
        let mut open_after = |seconds| window.is_open(begin + Duration::from_secs(seconds));
        for seconds in [0, 1, 15, 29] {
            assert!(open_after(seconds), "{seconds}");
        }
        assert!(
            !open_after(30) && !open_after(45),
            "each after the one before"
        );
        assert!(open_after(300));
    }
}
