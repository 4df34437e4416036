//! Offline answers: what the ledger says, asked later. Nothing here can touch the world.

pub mod against;
mod alongside;
pub mod approvals;
pub mod diff;
pub mod find;
mod items;
pub mod listed;
pub mod many;
pub mod provenance;
pub mod recompute;
pub mod replay;
pub mod report;
pub mod shown;
pub mod steps;
pub mod tools;
pub mod trace;
pub mod verify;
pub mod why;

pub use ktsu_ledger::branch::{Blobs, frames};

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::FoldError;

/// Why a recorded run cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its frames do not fold.
    #[error("{0}; `ktsu verify` says more")]
    Fold(#[from] FoldError),
    /// The definition it carries does not compile.
    #[error("the recorded definition cannot be read: {0}")]
    Definition(String),
}

/// The fold behind the envelopes of a run; none if there is no such run.
///
/// # Errors
/// [`Unreadable`].
pub fn envelope(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<EnvelopeFold>, Unreadable> {
    let frames = frames(reader, stream)?;
    if frames.is_empty() {
        return Ok(None);
    }
    Ok(Some(EnvelopeFold::of(&frames)?))
}
