//! What an operator wants to know of a ledger.

use serde::Serialize;

/// The state of a ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct LedgerStatus {
    /// The process that owns it.
    pub owner: Option<LedgerOwner>,
    /// How often its owner has changed; absent where the backend does not count it for others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// The position of its last frame.
    pub position: u64,
    /// The bytes that it takes on the disk.
    pub bytes: u64,
    /// The servers that follow the server of the ledger.
    pub replicas: Vec<Replica>,
    /// What may lose acknowledged frames.
    pub warnings: Vec<String>,
}

/// What a process that waits for its turn sees of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerSight {
    /// The process that owns it.
    pub owner: Option<LedgerOwner>,
    /// True if another process may become the owner: nothing owns the ledger, or its owner has done nothing for a
    /// whole lease, as far as the one who looks has looked that long.
    pub is_free: bool,
    /// How far it has grown: the position of its last frame, or a number that rises with it.
    pub position: u64,
}

/// The process that owns a ledger, as others see it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LedgerOwner {
    /// Its name for people: `process 7`, and where.
    pub name: String,
    /// The URL at which it listens, once it does.
    pub url: Option<String>,
}

/// A server that follows the server of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Replica {
    /// Its name.
    pub name: String,
    /// True if an append waits for it; absent if the role may not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub is_synchronous: Option<bool>,
    /// The bytes of the log that it does not have yet; absent if the role may not know.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub behind: Option<u64>,
}
