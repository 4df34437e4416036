//! The differences of two recorded runs, branches or inline children.

use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::diff::{self, CompareError, Diff, Side};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::world::comparison::PatchedEntry;
use ktsu_projections::world::{WorldComparison, WorldDiff};
use serde::Serialize;

use super::fork_outcome::{ForkOutcome, fork_outcome};
use super::skeleton::{RunSkeleton, skeleton};

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
    compare(&ReadRun::of(reader, a)?, &ReadRun::of(reader, b)?)
}

/// The same, with the times of the steps of both; those of their items are not among them.
///
/// # Errors
/// [`DiffError`].
pub fn compare_spans(
    reader: &dyn Reader,
    a: &(StreamId, String),
    b: &(StreamId, String),
) -> Result<ComparedSpans, DiffError> {
    let (a, b) = (ReadRun::of(reader, a)?, ReadRun::of(reader, b)?);
    let is_whole = a.scope.is_empty() && b.scope.is_empty();
    Ok(ComparedSpans {
        comparison: compare(&a, &b)?,
        a: a.spans()?,
        b: b.spans()?,
        outcome: match is_whole {
            true => ReadRun::outcome(&a, &b)?.or(ReadRun::outcome(&b, &a)?),
            false => None,
        },
    })
}

/// Two runs, compared, and the times of each.
#[derive(Debug, Clone, PartialEq)]
pub struct ComparedSpans {
    /// What differs.
    pub comparison: RunComparison,
    /// The first.
    pub a: RunSkeleton,
    /// The second.
    pub b: RunSkeleton,
    /// If one is a branch of the other: what came of the fork.
    pub outcome: Option<ForkOutcome>,
}

/// A run that was read.
struct ReadRun<'s> {
    frames: Vec<Frame>,
    fold: EnvelopeFold,
    scope: &'s str,
}

impl<'s> ReadRun<'s> {
    fn of(reader: &dyn Reader, (stream, scope): &'s (StreamId, String)) -> Result<Self, DiffError> {
        let frames = super::frames(reader, stream)?;
        let fold = super::fold(&frames).map_err(CompareError::from)?;
        Ok(Self {
            frames,
            fold,
            scope,
        })
    }

    fn spans(&self) -> Result<RunSkeleton, CompareError> {
        let spans = skeleton(&self.fold, &self.frames, self.scope, 0);
        spans.ok_or_else(|| CompareError::NoChild {
            run: self.fold.state().stream().name().to_owned(),
            scope: self.scope.to_owned(),
        })
    }

    /// What came of a branch, if it is one of this parent.
    fn outcome(parent: &Self, branch: &Self) -> Result<Option<ForkOutcome>, CompareError> {
        let fork = branch.fold.state().fork();
        match fork.is_some_and(|fork| fork.parent == parent.fold.state().stream().name()) {
            true => Ok(fork_outcome(&parent.frames, &branch.frames)?),
            false => Ok(None),
        }
    }

    fn side(&self) -> Side<'_> {
        Side {
            frames: &self.frames,
            scope: self.scope,
        }
    }
}

fn compare(a: &ReadRun<'_>, b: &ReadRun<'_>) -> Result<RunComparison, DiffError> {
    let diff = diff::diff_of_folds((a.side(), &a.fold), (b.side(), &b.fold))?;
    let world = match a.scope.is_empty() && b.scope.is_empty() {
        true => compare_worlds(&a.fold, &b.fold),
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
