//! One run per idempotency key, however many requests carry it at once.
//!
//! A key is claimed in memory first, then looked up in the ledger's index: of two simultaneous
//! requests, one waits for the other, and a request after a restart finds the recorded run.

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::event::Effects;
use ktsu_ledger::{CanonicalJson, Hash};
use ktsu_projections::index::RunRow;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{InvokeError, InvokeRequest};
use ktsu_readers::ReaderPool;

/// Digest of the content of a request, to distinguish a repeated one from another under the same
/// key.
pub(super) fn digest_of(request: &InvokeRequest) -> String {
    let body = CanonicalJson::from_value(&request.body).unwrap_or_default();
    let mut text = format!("{}\n{body}", request.workflow);
    if request.no_cache {
        text.push_str("\nno_cache");
    }
    if request.effects == Effects::Suppress {
        text.push_str("\nsuppress");
    }
    for (wanted, other) in &request.groups {
        text.push_str(&format!("\ngroup {wanted:?} {other:?}"));
    }
    for name in request.references.iter().flat_map(|it| it.names()) {
        text.push_str(&format!("\nreference {name:?}"));
    }
    Hash::of(text.as_bytes()).to_string()
}

/// Keys whose first request is under way, each with what came of it.
#[derive(Default)]
pub(super) struct IdempotencyKeys {
    claimed: Arc<Mutex<HashMap<String, PendingClaim>>>,
}

#[derive(Clone)]
struct PendingClaim {
    digest: String,
    outcome: watch::Receiver<Option<Option<String>>>,
}

/// The result of a claim: whether the request was made before.
pub enum ClaimOutcome {
    /// It started this run.
    Existing(String),
    /// It is the first; the claim must be settled.
    New(KeyClaim),
}

/// The right to start the run of a key. Dropping it gives the key free.
pub struct KeyClaim {
    keys: Arc<Mutex<HashMap<String, PendingClaim>>>,
    key: String,
    outcome: watch::Sender<Option<Option<String>>>,
}

impl IdempotencyKeys {
    /// Claims a key, or returns the run it started.
    pub(super) async fn claim(
        &self,
        readers: &ReaderPool,
        key: &str,
        digest: &str,
    ) -> Result<ClaimOutcome, InvokeError> {
        loop {
            let (sender, receiver) = watch::channel(None);
            let before = {
                let mut claimed = self.claimed.lock();
                let before = claimed.get(key).cloned();
                if before.is_none() {
                    let mine = PendingClaim {
                        digest: digest.to_owned(),
                        outcome: receiver,
                    };
                    claimed.insert(key.to_owned(), mine);
                }
                before
            };
            let Some(mut before) = before else {
                let claim = KeyClaim {
                    keys: self.claimed.clone(),
                    key: key.to_owned(),
                    outcome: sender,
                };
                return look_up(readers, claim, digest).await;
            };
            let settled = before.outcome.wait_for(Option::is_some).await;
            if let Ok(Some(Some(run_id))) = settled.map(|outcome| outcome.clone()) {
                return if before.digest == digest {
                    Ok(ClaimOutcome::Existing(run_id))
                } else {
                    Err(InvokeError::KeyReused)
                };
            }
            // The first request was refused: this one tries for itself.
        }
    }
}

async fn look_up(
    readers: &ReaderPool,
    claim: KeyClaim,
    digest: &str,
) -> Result<ClaimOutcome, InvokeError> {
    let key = claim.key.clone();
    let row = readers.with(move |reader| reader.by_key(&key)).await;
    let row = row.map_err(InvokeError::Unread)?;
    let Some(row) = row else {
        return Ok(ClaimOutcome::New(claim));
    };
    let row: RunRow = serde_json::from_str(row.row.as_str())
        .map_err(|error| InvokeError::Internal(error.to_string()))?;
    // Compared before waiting requests are notified: they may have the same digest.
    if row.idempotency_digest.as_deref() != Some(digest) {
        claim.settle(None);
        return Err(InvokeError::KeyReused);
    }
    claim.settle(Some(row.run_id.clone()));
    Ok(ClaimOutcome::Existing(row.run_id))
}

impl KeyClaim {
    /// Notifies waiting requests which run the key started, if any.
    pub(super) fn settle(self, run_id: Option<String>) {
        self.outcome.send_replace(Some(run_id));
    }
}

impl Drop for KeyClaim {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.key);
    }
}
