//! An engine at work, and its end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use ktsu_ledger::appender::{Appender, AppenderThread};
use ktsu_ledger::lock::OwnerLock;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::reload::PrincipalReload;
use ktsu_api::judges::JudgeModels;
use ktsu_evidence::notary::Notary;
use ktsu_gateway::Gateway;
use ktsu_orchestrator::{AwaitedEffects, Orchestrator, Recovered};
use ktsu_runtime::{LocalOrchestrator, Runtime};

/// An engine at work.
pub struct Engine {
    /// The handle on it.
    pub orchestrator: Orchestrator,
    /// Its routes, for calls within the process.
    pub router: Router,
    /// The URL at which it listens.
    pub url: String,
    /// The findings of the start.
    pub recovered: Recovered,
    /// Reads its principals again.
    pub principals: PrincipalReload,
    pub(super) appender: Appender,
    pub(super) thread: AppenderThread,
    pub(super) notary: Arc<Notary>,
    /// True while it waits for space after a start on a full disk.
    pub(super) waiting: watch::Receiver<bool>,
    pub(super) serving: Vec<JoinHandle<()>>,
    /// The URLs of runtime and gateway, where they listen.
    pub services: Vec<(&'static str, String)>,
    pub(super) runtime: Option<Runtime>,
    pub(super) gateway: Option<Gateway>,
    /// The models that checks ask.
    pub models: JudgeModels,
    /// The orchestrator that the runtime of this process reports to.
    pub(super) _callbacks: Arc<OnceLock<LocalOrchestrator>>,
    pub(super) stop: watch::Sender<bool>,
    /// Held until the last frame is durable.
    pub(super) lock: Option<OwnerLock>,
}

impl Engine {
    /// The model groups that only scripts answer.
    pub fn scripted_groups(&self) -> BTreeSet<String> {
        let gateway = self.gateway.as_ref();
        gateway.map(Gateway::scripted_groups).unwrap_or_default()
    }

    /// The first model of each group of which no price is known.
    pub fn unpriced_models(&self) -> BTreeMap<String, String> {
        let gateway = self.gateway.as_ref();
        gateway.map(Gateway::unpriced_models).unwrap_or_default()
    }

    /// Stops in two phases: first, no new requests are accepted and no run continues; then
    /// everything sent to the ledger is made durable.
    ///
    /// # Errors
    /// Why the ledger had stopped before.
    pub async fn close(self) -> Result<(), String> {
        if let Some(runtime) = &self.runtime {
            runtime.stop();
        }
        self.orchestrator.stop();
        self.orchestrator.subscriptions().stop().await;
        self.stop.send_replace(true);
        join_all(self.serving).await;
        drop(self.appender);
        let (thread, notary, mut lock) = (self.thread, self.notary, self.lock);
        let waits = *self.waiting.borrow();
        let finished = tokio::task::spawn_blocking(move || {
            match waits {
                true => notary.abandon(),
                false => notary.finish(),
            }
            if let Some(lock) = &mut lock {
                lock.clear_log_epoch();
            }
            let outcome = thread.shutdown();
            // Given back last: closing it drops the locks that SQLite has on the same file.
            drop(lock);
            outcome
        });
        let outcome = finished.await.map_err(|error| error.to_string())?;
        outcome.map_err(|error| error.to_string())
    }

    /// Starts nothing new from now on, and returns once no effect is in flight, or after this time.
    /// Returns the number of runs that still have effects in flight.
    pub async fn drain(&self, awaited: AwaitedEffects, limit: Duration) -> usize {
        // Other engines may call the gateway of this one.
        let calls = async {
            if let Some(gateway) = &self.gateway {
                let _ = tokio::time::timeout(limit, gateway.drain()).await;
            }
        };
        tokio::join!(self.orchestrator.drain(awaited, limit), calls).0
    }

    /// The ledger's writer, with what it has done so far.
    pub fn appender(&self) -> &Appender {
        &self.appender
    }
}
