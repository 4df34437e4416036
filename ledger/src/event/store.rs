//! Facts about the ledger as a whole, in the stream `store`.

use serde::{Deserialize, Serialize};

use crate::hash::Hash;
use crate::id::StreamId;
use crate::merkle::Node;

/// A fact about the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreEvent {
    /// `store.opened`: an owner took the ledger.
    Opened(StoreOpened),
    /// `store.recovered`: unfinished runs were resumed.
    Recovered(StoreRecovered),
    /// `run.head`: how a stream ended, for whoever counts them.
    RunHead(RunHead),
    /// `checkpoint.signed`: the tree over all frames before, signed.
    CheckpointSigned(CheckpointSigned),
    /// `signing_key.added`: a key signs from here on; the one before vouches for it.
    KeyAdded(KeyAdded),
    /// `signing_key.revoked`: a key counts for nothing from here on.
    KeyRevoked(KeyRevoked),
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

/// The status in the head of a run that had ended and was resumed.
pub const OPEN: &str = "open";

/// `run.head`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHead {
    /// How many frames the stream has, those it shares with a parent included.
    pub frames: u64,
    /// The hash of the last one.
    pub hash: Hash,
    /// Its final status; [`OPEN`] if a run with a head continues.
    pub status: String,
    /// The run, or the branch.
    pub stream: StreamId,
}

/// `checkpoint.signed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckpointSigned {
    /// The roots of the tree's complete subtrees, largest first: the next start continues from here
    /// without hashing anything twice.
    pub frontier: Vec<Node>,
    /// The id of the key, eight hexadecimal digits.
    pub key: String,
    /// The signed note, as sent to witnesses.
    pub note: String,
    /// Which ledger.
    pub origin: String,
    /// The root.
    pub root: Node,
    /// How many frames the tree is over, in the order of appending.
    pub size: u64,
}

/// `signing_key.added`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyAdded {
    /// Its id, eight hexadecimal digits.
    pub id: String,
    /// The note by which `signed_by` vouches for it.
    pub note: String,
    /// The key: 32 bytes in base64.
    pub public_key: String,
    /// The public key that vouches for it, in base64; itself, where there was none before or the
    /// one before is lost.
    pub signed_by: String,
}

/// `signing_key.revoked`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRevoked {
    /// Its id, eight hexadecimal digits.
    pub id: String,
    /// The note by which `signed_by` revokes it.
    pub note: String,
    /// The key: 32 bytes in base64.
    pub public_key: String,
    /// The reason given.
    pub reason: String,
    /// The public key that revokes it, in base64.
    pub signed_by: String,
}
