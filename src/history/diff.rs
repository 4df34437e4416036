//! The differences of two recorded runs, branches or inline children.

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::diff::{self, CompareError, Diff, Side};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::world::comparison::PatchedEntry;
use ktsu_projections::world::{WorldComparison, WorldDiff};
use serde::Serialize;

/// The differences between two recorded runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RunComparison {
    /// Their frames, steps and envelopes.
    #[serde(flatten)]
    pub diff: Diff,
    /// Their worlds, as their last frames left them; absent unless both load worlds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub world: Option<WorldDiff>,
    /// The differences in the objects, then in the relations, that both worlds have.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub world_changes: Vec<PatchedEntry>,
}

/// The reason why two recorded runs cannot be compared.
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
) -> Result<RunComparison, DiffError> {
    let of_a = super::frames(reader, &a.0)?;
    let of_b = super::frames(reader, &b.0)?;
    let side = |frames, scope| Side { frames, scope };
    let fold = |frames| super::fold(frames).map_err(CompareError::from);
    let (fold_a, fold_b) = (fold(&of_a)?, fold(&of_b)?);
    let (a, b) = (side(&of_a, &a.1), side(&of_b, &b.1));
    let diff = diff::diff_of_folds((a, &fold_a), (b, &fold_b))?;
    let world = match a.scope.is_empty() && b.scope.is_empty() {
        true => compare_worlds(&fold_a, &fold_b),
        false => None,
    };
    let (world, world_changes) = match world {
        Some(world) => {
            let ids = world.ids();
            let changes = [world.patched_objects, world.patched_relations].concat();
            (Some(ids), changes)
        }
        None => (None, Vec::new()),
    };
    Ok(RunComparison {
        diff,
        world,
        world_changes,
    })
}

fn compare_worlds(a: &EnvelopeFold, b: &EnvelopeFold) -> Option<WorldComparison> {
    let a = a.state().responding()?;
    let b = b.state().responding()?;
    Some(WorldComparison::between(a.head(), b.head()))
}
