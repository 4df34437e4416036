//! The reasons why a ledger is not copied.

use crate::id::StreamId;
use crate::store::{AppendRefusal, EntryError, StoreError};

/// A copy that was refused, or that failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CopyError {
    /// The source or the target failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Streams were removed from the source, and the target cannot record that.
    #[error("runs were removed from it, and the target does not support a copy of such a ledger")]
    HasRemovals,
    /// The positions of the source are not dense, or begin elsewhere than at 1.
    #[error(
        "the positions of its frames are not 1, 2, 3 and so on: {0} is missing or out of place; \
         to see what is damaged: ktsu verify"
    )]
    Gap(u64),
    /// A frame of the source is not readable as a frame of any stream.
    #[error("the frame at position {position}: {why}; to see what is damaged: ktsu verify")]
    NoFrame {
        /// Its position.
        position: u64,
        /// The fault.
        why: &'static str,
    },
    /// A frame of the source, or a blob that it names, is damaged.
    #[error("{stream}#{seq}: {why}; to see what is damaged: ktsu verify")]
    Damaged {
        /// The stream.
        stream: StreamId,
        /// The number of the frame.
        seq: u64,
        /// The fault.
        why: String,
    },
    /// Frames of the source do not make an entry; the error names one.
    #[error("{0}; to see what is damaged: ktsu verify")]
    Entry(#[from] EntryError),
    /// The target refused a frame.
    #[error("{stream}#{seq} was refused: {why}")]
    Refused {
        /// The stream.
        stream: StreamId,
        /// The number of the frame.
        seq: u64,
        /// The reason of the target.
        why: AppendRefusal,
    },
    /// The target has a frame that the source does not have at the same position.
    #[error(
        "the target has another frame at position {0}; \
         copy to an empty ledger, or continue an interrupted copy of the same one"
    )]
    OtherFrames(u64),
    /// The target has no index that rows can be put into.
    #[error("the target does not support a copy of the list of runs")]
    NoIndex,
    /// The frames of the source are from an epoch that the target cannot be raised to.
    #[error("the ledger is from its owner number {0}, which is too many to copy")]
    TooManyOwners(u64),
    /// The source has frames that it did not have at the start.
    #[error("the ledger grew while it was copied; stop its owner, and copy again to continue")]
    Grew,
    /// What was copied does not read as what the source has.
    #[error("the copy differs from the ledger: {0}")]
    Differs(String),
}
