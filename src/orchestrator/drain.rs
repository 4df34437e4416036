//! Draining, before an engine stops: nothing new starts in any run, and what becomes of the effects in
//! flight is recorded, as far as it is known in time. What is left over is found by the next start.

use std::time::Duration;

use super::Orchestrator;

/// The effects in flight that an engine waits for before it stops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEffects {
    /// Calls of models and tools. A webhook without an answer is sent again by the next start, under
    /// the same delivery id.
    Calls,
    /// These, and the answers to webhooks.
    CallsAndWebhooks,
}

impl Orchestrator {
    /// Starts nothing new from now on, and returns once no effect is in flight, or after this time.
    /// Returns the number of runs that still have effects in flight.
    pub async fn drain(&self, awaited: AwaitedEffects, limit: Duration) -> usize {
        let runs = &self.shared.runs;
        runs.drain(awaited);
        let drained = async {
            // A run that was accepted just before is found the second time.
            loop {
                let undrained = runs.undrained();
                if undrained.is_empty() {
                    return;
                }
                for mut run in undrained {
                    // An error says that the run's task has ended.
                    let _ = run
                        .wait_for(|progress| progress.drained || progress.failed.is_some())
                        .await;
                }
                tokio::task::yield_now().await;
            }
        };
        match tokio::time::timeout(limit, drained).await {
            Ok(()) => 0,
            Err(_) => runs.undrained().len(),
        }
    }

    /// Returns `true` if nothing new starts, because the engine is about to stop.
    pub fn is_draining(&self) -> bool {
        self.shared.runs.is_draining()
    }
}
