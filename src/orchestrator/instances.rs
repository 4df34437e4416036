//! Asks runtimes which instances they are: `GET /health`.

use std::time::Duration;

use futures_util::future::join_all;
use ktsu_contract::report::RuntimeHealth;
use ktsu_peer::Peer;

use super::Shared;

/// The time a runtime may take to report which instance it is.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(2);

/// The size limit of such an answer.
const MAX_HEALTH: usize = 64 * 1024;

impl Shared {
    /// Asks the runtimes of which nothing is known, so that a task chooses among all; each once.
    pub(super) async fn identify_unknown_runtimes(&self) {
        if self.peers.runtimes.len() < 2 {
            return;
        }
        let _asking = self.asking_runtimes.lock().await;
        let unknown = self.supervisor.runtimes_to_ask();
        let answers = unknown.into_iter().filter_map(|index| {
            let runtime = self.peers.runtimes.get(index)?;
            Some(async move { (index, health_of(&runtime.peer).await) })
        });
        for (index, health) in join_all(answers).await {
            if let Some(RuntimeHealth {
                runtime_id: Some(id),
                places,
            }) = health
            {
                self.supervisor.identified(index, &id, places);
            }
        }
    }

    /// Asks all runtimes, since an instance sent a heartbeat that is not known to be one of theirs.
    /// The only one is believed to be that instance, if it gives no id.
    pub(super) async fn identify_runtimes(&self, instance: &str) {
        let runtimes = &self.peers.runtimes;
        let asked = runtimes.iter().map(|runtime| health_of(&runtime.peer));
        let answers = join_all(asked).await;
        for (index, health) in answers.into_iter().enumerate() {
            let Some(health) = health else { continue };
            let believed = (runtimes.len() == 1).then(|| instance.to_owned());
            if let Some(id) = health.runtime_id.or(believed) {
                self.supervisor.identified(index, &id, health.places);
            }
        }
    }
}

/// The health of a runtime. One that answers something else gives no id.
async fn health_of(runtime: &Peer) -> Option<RuntimeHealth> {
    let answer = tokio::time::timeout(HEALTH_TIMEOUT, runtime.get("/health", "application/json"));
    let body = answer.await.ok()?.ok()?.into_body();
    let body = axum::body::to_bytes(body, MAX_HEALTH);
    let body = tokio::time::timeout(HEALTH_TIMEOUT, body)
        .await
        .ok()?
        .ok()?;
    Some(serde_json::from_slice(&body).unwrap_or_default())
}
