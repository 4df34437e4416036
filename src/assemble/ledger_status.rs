//! Looks at the server of a ledger from time to time: what follows it, and what may be lost.

use std::time::Duration;

use ktsu_ledger::{Ledger, LedgerPlace};
use ktsu_orchestrator::Orchestrator;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::MissedTickBehavior;

use super::network::stopped;

/// The time between two looks.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks until everything is to stop; not at all at a file.
pub(super) fn keep_current(
    orchestrator: Orchestrator,
    place: LedgerPlace,
    stop: &watch::Sender<bool>,
) -> JoinHandle<()> {
    let stopped = stopped(stop);
    tokio::spawn(async move {
        if place.is_shared() {
            tokio::select! {
                () = look_again(&orchestrator, &place) => {}
                () = stopped => {}
            }
        }
    })
}

async fn look_again(orchestrator: &Orchestrator, place: &LedgerPlace) {
    let mut looks = tokio::time::interval(LOOK_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        let ledger = Ledger::open(place);
        let looked = tokio::task::spawn_blocking(move || ledger.status()).await;
        match looked {
            Ok(Ok(status)) => orchestrator.note_ledger_status(status),
            Ok(Err(error)) => tracing::debug!(%error, "cannot look at the server of the ledger"),
            Err(error) => tracing::debug!(%error, "cannot look at the server of the ledger"),
        }
    }
}
