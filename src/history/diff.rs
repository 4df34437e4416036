//! The differences of two recorded runs, branches or inline children.

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::diff::{self, CompareError, Diff, Side};

/// Why two recorded runs cannot be compared.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DiffError {
    /// The store failed, or one of them cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// One of them does not fold, or has no such child.
    #[error(transparent)]
    NotCompared(#[from] CompareError),
}

/// Compares two runs, each named by its stream and the path of a child, or none.
///
/// # Errors
/// [`DiffError`].
pub fn compare_runs(
    reader: &dyn Reader,
    a: &(StreamId, String),
    b: &(StreamId, String),
) -> Result<Diff, DiffError> {
    let of_a = super::frames(reader, &a.0)?;
    let of_b = super::frames(reader, &b.0)?;
    let side = |frames, scope| Side { frames, scope };
    let fold = |frames| super::fold(frames).map_err(CompareError::from);
    let (fold_a, fold_b) = (fold(&of_a)?, fold(&of_b)?);
    let (a, b) = (side(&of_a, &a.1), side(&of_b, &b.1));
    Ok(diff::diff_of_folds((a, &fold_a), (b, &fold_b))?)
}
