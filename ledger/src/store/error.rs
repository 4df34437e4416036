//! Errors between a caller and a store.

use std::path::PathBuf;

use crate::hash::Hash;
use crate::id::{Cause, StreamId};

/// The operation that a container refused, for whatever reason.
pub(crate) const USE: &str = "use the ledger";
/// The operation that a container refused because it may only be read.
pub(crate) const CHANGE: &str = "change the ledger";

/// A failed operation of a store. While appending, the first error is final, unless it is
/// [`StoreError::Unknown`]: what is stored is then known only after the ledger is opened again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is nothing at the path.
    #[error("there is no ledger at {}", .0.display())]
    Missing(PathBuf),
    /// There is something else at the path.
    #[error("{} is not a ledger: {why}", path.display())]
    NotALedger {
        /// The path.
        path: PathBuf,
        /// The reason why it is not one.
        why: String,
    },
    /// The ledger was written by a later version of ktsu.
    #[error("the ledger has format {found}, but this version of ktsu supports up to {known}")]
    NewerFormat {
        /// The version found.
        found: u64,
        /// The newest supported version.
        known: u64,
    },
    /// Another owner has taken the ledger since.
    #[error("the ledger has a newer owner: its epoch is {stored}, this owner's is {ours}")]
    Fenced {
        /// The epoch the caller acquired.
        ours: u64,
        /// The epoch the ledger is in.
        stored: u64,
    },
    /// The stored data contradicts itself.
    #[error("the ledger is damaged: {0}")]
    Damaged(String),
    /// An index row differs from what was put. Rows are derived, so nothing that was appended is
    /// damaged.
    #[error("the list of runs is damaged: {0}")]
    WrongRow(String),
    /// An index row has the idempotency key of another stream.
    #[error("the idempotency key of {0} belongs to another stream")]
    KeyTwice(StreamId),
    /// It is unknown whether the entries were stored: a response was lost or late. Reading back
    /// tells. Only for backends reached over a network: on a local disk, reading cannot make up for
    /// a failed sync.
    #[error("it is unknown whether the ledger stored the entries: {0}")]
    Unknown(String),
    /// A backend over a network did not answer a question. Nothing is wrong with the ledger as far as is
    /// known, and another attempt may succeed.
    #[error("cannot {doing}: {why}")]
    Unreachable {
        /// The operation.
        doing: &'static str,
        /// The reason.
        why: String,
    },
    /// The system refused something.
    #[error("cannot {doing}: {why}")]
    Failed {
        /// The operation.
        doing: &'static str,
        /// The system's error.
        why: String,
    },
}

impl StoreError {
    /// Returns `true` if the system refused something, so that it is not known whether the ledger
    /// is sound. A refusal of the container itself does not count: its own bytes may be the reason.
    pub(crate) fn is_failed(&self) -> bool {
        matches!(self, Self::Failed { doing, .. } if *doing != USE && *doing != CHANGE)
    }

    /// A failure of the system while doing something.
    pub fn failed(doing: &'static str, why: impl ToString) -> Self {
        Self::Failed {
            doing,
            why: why.to_string(),
        }
    }
}

/// The reason why one entry was not appended. Nothing of it is stored; its neighbours are not
/// affected.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AppendRefusal {
    /// The stream does not end where the entry expects.
    #[error("{stream} ends at {}, not at {}", hash_text(*actual), hash_text(*expected))]
    Conflict {
        /// The stream.
        stream: StreamId,
        /// The end that the entry expects; `None`: the stream is not to exist.
        expected: Option<u64>,
        /// The end that it has.
        actual: Option<u64>,
    },
    /// The first frame's `prev` is not the hash of the stream's last frame.
    #[error("{stream}#{seq} does not follow from the frame before it")]
    Unchained {
        /// The stream.
        stream: StreamId,
        /// The first frame of the entry.
        seq: u64,
    },
    /// A cause names a frame of another stream that is not durable.
    #[error("{stream} names the cause {cause}, which does not exist")]
    NoSuchCause {
        /// The stream of the entry.
        stream: StreamId,
        /// The cause.
        cause: Cause,
    },
    /// A frame names a blob that is neither in the entry nor in the store.
    #[error("{stream} names the blob {hash}, which does not exist")]
    NoSuchBlob {
        /// The stream of the entry.
        stream: StreamId,
        /// The blob.
        hash: Hash,
    },
    /// The stream was removed; its name is not used again.
    #[error("{0} was removed")]
    Removed(StreamId),
    /// A stream that is to be removed is the parent of a branch.
    #[error("{parent} is the parent of {branch}, which reads its frames")]
    HasBranch {
        /// The stream that is to be removed.
        parent: StreamId,
        /// The branch.
        branch: StreamId,
    },
    /// Another stream has the idempotency key.
    #[error("the idempotency key belongs to {owner}")]
    KeyTaken {
        /// That stream.
        owner: StreamId,
    },
}

fn hash_text(seq: Option<u64>) -> String {
    seq.map_or_else(|| "nothing".to_owned(), |seq| seq.to_string())
}
