//! The owner of a ledger on a server, whichever engine that is: a request that one could not answer goes to
//! the next.

use std::time::{Duration, Instant};

use super::Failure;
use super::location::LedgerLocation;
use ktsu_opening::ledger::owner_url;

/// The time between two looks for the next owner.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// The URL of the engine to ask after a failure, as soon as there is one.
///
/// # Errors
/// The failure itself: another engine would answer the same, only this one can own the ledger, or none does
/// within `patience`.
pub(super) async fn after(
    failure: Failure,
    place: Option<&LedgerLocation>,
    patience: Duration,
) -> Result<String, Failure> {
    let shared = place.filter(|place| place.ledger.is_shared());
    let Some(place) = shared.filter(|_| failure.may_pass()) else {
        return Err(failure);
    };
    let until = Instant::now() + patience;
    while Instant::now() < until {
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
