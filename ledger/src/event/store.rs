//! Facts about the ledger as a whole, in the stream `store`.

use serde::{Deserialize, Serialize};

/// A fact about the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreEvent {
    /// `store.opened`: an owner took the ledger.
    Opened(StoreOpened),
    /// `store.recovered`: unfinished runs were taken up again.
    Recovered(StoreRecovered),
}

/// `store.opened`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreOpened {
    /// Name and version of the engine.
    pub engine: String,
    /// Raised by every owner; a transaction of an earlier epoch is refused.
    pub epoch: u64,
    /// The owner's process id.
    pub pid: u32,
}

/// `store.recovered`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreRecovered {
    /// How many webhooks without an answer were sent again, under their delivery ids.
    pub resent: u64,
    /// How many unfinished runs were found.
    pub unfinished: u64,
}
