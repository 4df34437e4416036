//! A start on a full disk: uses the reserved space, answers reads, and continues once there is
//! space.
//!
//! Resuming runs and the notary both write, so both wait: a failed commit is final.

use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::appender::{Appender, MIN_FREE_BYTES};
use ktsu_ledger::event::{StoreEvent, StoreRecovered};
use ktsu_ledger::reserve::Reserve;
use tokio::sync::watch;

use super::OpenEngineError;
use super::notary::note_parts;
use ktsu_evidence::notary::Notary;
use ktsu_evidence::store_stream::StoreStream;
use ktsu_orchestrator::{Orchestrator, Recovered};

/// The time between two checks of free space.
const DISK_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The part of a start that waits for disk space.
pub(super) struct DeferredStart {
    pub(super) orchestrator: Orchestrator,
    pub(super) appender: Appender,
    pub(super) notary: Arc<Notary>,
    pub(super) facts: Arc<StoreStream>,
    pub(super) reserve: Option<Reserve>,
    pub(super) resume_unfinished: bool,
}

impl DeferredStart {
    /// Starts now, or once there is space. Returns whether it is waiting.
    pub(super) async fn begin(
        self,
        full: bool,
        stopped: impl Future<Output = ()> + Send + 'static,
    ) -> watch::Receiver<bool> {
        let waits = watch::Sender::new(full);
        let waiting = waits.subscribe();
        if !full {
            self.start().await;
            return waiting;
        }
        // What the start did not need serves the next one, should this one be killed.
        if let Some(reserve) = self.reserve.clone() {
            let _ = tokio::task::spawn_blocking(move || reserve.put_back()).await;
        }
        tracing::warn!("the disk is full: serving reads only until there is space");
        tokio::spawn(async move {
            tokio::select! {
                () = stopped => return,
                () = self.wait_for_disk_space() => {}
            }
            if let Err(why) = self.resume().await {
                // The ledger has stopped, which is logged elsewhere.
                tracing::error!(%why, "cannot resume unfinished runs");
                return;
            }
            self.start().await;
            waits.send_replace(false);
        });
        waiting
    }

    async fn wait_for_disk_space(&self) {
        let mut looks = tokio::time::interval(DISK_POLL_INTERVAL);
        loop {
            looks.tick().await;
            if !self.appender.low_on_disk() {
                return;
            }
        }
    }

    async fn resume(&self) -> Result<(), String> {
        let recovered = self
            .orchestrator
            .resume_after_disk_full(self.resume_unfinished)
            .await?;
        tracing::info!(
            unfinished = recovered.unfinished,
            resent = recovered.resent,
            left = recovered.left,
            "disk space is available again"
        );
        let noted = note_recovered(&self.facts, recovered).await;
        noted.map_err(|error| error.to_string())
    }

    /// Sets space aside for the next time, and lets the notary work.
    async fn start(&self) {
        if let Some(reserve) = self.reserve.clone() {
            let kept = tokio::task::spawn_blocking(move || reserve.keep(MIN_FREE_BYTES));
            // Continues without a reserve if there is no space for one.
            let _ = kept.await;
        }
        self.notary.begin();
        if self.resume_unfinished {
            let begun = self.orchestrator.subscriptions().begin().await;
            if let Err(why) = begun {
                // The ledger has stopped, or cannot be read: runs fail for the same reason.
                tracing::error!(%why, "nothing is sent to subscribers");
            }
        }
    }
}

/// Records that unfinished runs were resumed, if there were any.
pub(super) async fn note_recovered(
    facts: &Arc<StoreStream>,
    recovered: Recovered,
) -> Result<(), OpenEngineError> {
    if recovered.unfinished == 0 {
        return Ok(());
    }
    let found = StoreEvent::Recovered(StoreRecovered {
        resent: recovered.resent,
        unfinished: recovered.unfinished,
    });
    note_parts(facts, found).await
}
