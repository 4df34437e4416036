//! Recomputing a run: the model calls of its agents asked for once more, on the inputs it recorded.
//!
//! ```text
//! frames of a run ─recorded─▶ tasks of agents ─plan─▶ a definition of agents alone, and its params
//!                                   └──── compare ◀── frames of the run of that definition
//! ```
//!
//! Every agent step becomes a fan-out over what its tasks were given, one that bears any failure:
//! what goes wrong with one answer says nothing about the others. Webhooks, transforms and children
//! are not part of it, so nothing but calls of models and of tools can come of it; tools that keep
//! something, or that a person has to approve, are withheld when its tasks are sent out.

pub mod compare;
pub mod plan;
pub mod recorded;

pub use compare::{Before, compare, judge};
pub use plan::{Prepared, prepare, prepare_one};
pub use recorded::{End, Recorded, Task};

use ktsu_projections::run::FoldError;

/// Why a run cannot be recomputed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRecomputed {
    /// Its frames do not fold.
    #[error("{0}")]
    Fold(#[from] FoldError),
    /// No agent of it has ended yet, or it has none.
    #[error("no agent step of the run has ended, so there is nothing to recompute")]
    Nothing,
    /// It has no such step, or not one that an agent worked on.
    #[error("no agent worked on that step; there are: {}", .0.join(", "))]
    NoSuchStep(Vec<String>),
    /// It is a recompute itself.
    #[error("a recompute cannot be recomputed; recompute the run it is of")]
    IsRecompute,
    /// What came out is no definition.
    #[error("the recorded inputs cannot be given again: {0}")]
    Unusable(String),
}
