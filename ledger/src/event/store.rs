//! Facts about the ledger as a whole, in the stream `store`.

use serde::{Deserialize, Serialize};

use super::start::Principal;
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
    /// `run.head`: the number of frames and the last hash with which a run ended.
    RunHead(RunHead),
    /// `checkpoint.signed`: the tree over all frames before, signed.
    CheckpointSigned(CheckpointSigned),
    /// `signing_key.added`: a key signs from here on; the one before vouches for it.
    KeyAdded(KeyAdded),
    /// `signing_key.revoked`: a key counts for nothing from here on.
    KeyRevoked(KeyRevoked),
    /// `hold.placed` (input): a person had a run kept, whatever the environment's retention says.
    HoldPlaced(HoldPlaced),
    /// `hold.lifted` (input): a person ended such a hold.
    HoldLifted(HoldLifted),
    /// `run.removed`: the frames of a run were deleted, in the same transaction.
    RunRemoved(RunRemoved),
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
    /// The number of webhooks without an answer that were sent again, under their delivery ids.
    pub resent: u64,
    /// The number of unfinished runs that were found.
    pub unfinished: u64,
}

/// The status in the head of a run that had ended and was resumed.
pub const OPEN: &str = "open";

/// `run.head`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunHead {
    /// The number of frames of the stream, those it shares with a parent included.
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
    /// The name of the ledger.
    pub origin: String,
    /// The root.
    pub root: Node,
    /// The number of frames that the tree is over, in the order of appending.
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

/// `hold.placed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldPlaced {
    /// The principal that placed it.
    pub by: Principal,
    /// The reason given.
    pub reason: String,
    /// The run, the branch or the recompute.
    pub stream: StreamId,
}

/// `hold.lifted`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldLifted {
    /// The principal that lifted it.
    pub by: Principal,
    /// The reason given.
    pub reason: String,
    /// The run, the branch or the recompute.
    pub stream: StreamId,
}

/// The reason of a removal that the environment's `retention` asked for.
pub const RETENTION: &str = "retention";

/// `run.removed`. What is left of the frames is what the signed tree is made of: where each of them
/// was, and its leaf. So every checkpoint can still be verified, and so can an archive that was
/// exported before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunRemoved {
    /// The number of the first frame that was deleted: 0, or where a branch was forked.
    pub first: u64,
    /// The number of frames that were deleted.
    pub frames: u64,
    /// The hash of the last one.
    pub hash: Hash,
    /// The leaves of the frames in the signed tree, 32 bytes each, in order, in base64.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub leaves: String,
    /// The positions of the frames in the ledger, in order: of each range its first, and how many.
    #[serde(deserialize_with = "super::null_is_empty")]
    pub positions: Vec<(u64, u64)>,
    /// The reason: [`RETENTION`].
    pub reason: String,
    /// The status with which the run had ended.
    pub status: String,
    /// The run, the branch or the recompute.
    pub stream: StreamId,
}
