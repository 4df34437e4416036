//! Offline answers: what the ledger says, asked later. Nothing here can touch the world.

pub mod against;
mod alongside;
pub mod approvals;
pub mod diff;
pub mod find;
mod items;
pub mod listed;
pub mod many;
mod overlaid;
pub mod provenance;
pub mod recompute;
pub mod replay;
pub mod report;
pub mod shown;
pub mod steps;
pub mod tools;
pub mod trace;
pub mod verify;
mod walk;
pub mod why;

pub use ktsu_ledger::branch::{Blobs, frames};
pub use overlaid::fold;

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{IndexRow, Reader, StoreError};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::FoldError;

use crate::rows::{UNREADABLE, is_ahead};

/// Why a recorded run cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The list of runs says that it went further than its frames do.
    #[error("its frames say less than the list of runs does; `ktsu verify` says more")]
    Cut,
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
    let row = || reader.row(stream).ok().flatten();
    let listed = row();
    let frames = frames(reader, stream)?;
    if frames.is_empty() && listed.is_none() {
        return Ok(None);
    }
    if frames.is_empty() {
        reader.found_damage(&format!("{stream}: all its frames are missing"));
    }
    let folded = fold(&frames)?;
    let status = folded.state().status().as_str();
    let is_cut = |row: &IndexRow| row.status == UNREADABLE || is_ahead(&row.status, status);
    // A run may have begun again between the two looks; then its row is another one by now.
    let cut = listed.filter(is_cut);
    let Some(cut) = cut.filter(|cut| row().as_ref() == Some(cut)) else {
        return Ok(Some(folded));
    };
    if cut.status != UNREADABLE {
        reader.found_damage(&format!("{stream}: frames are missing at its end"));
    }
    Err(Unreadable::Cut)
}
