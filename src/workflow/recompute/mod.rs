//! Recomputing a run: the model calls of its agents are made once more, with the recorded inputs.
//!
//! ```text
//! frames of a run ─recorded─▶ tasks of agents ─plan─▶ a definition of agents alone, and its params
//!                                   └──── compare ◀── frames of the run of that definition
//! ```
//!
//! Every agent step becomes a fan-out over the recorded inputs of its tasks that tolerates any
//! number of failures, because a failed answer says nothing about the others. Webhooks, transforms
//! and children are left out, so only model and tool calls can result. Tool calls that change
//! something lasting, or that need an approval, are not sent: the recorded `results` answer them.
//!
//! What responders asked is asked again by responders of a world that has nothing else (`questions`).
//! Once the replies are compared, `worlds` decides the run again with them, without calling anybody, and
//! says which objects would differ.

mod asks;
pub mod compare;
pub mod plan;
mod questions;
pub mod recorded;
pub mod results;
mod task_end;
pub mod worlds;

pub use asks::RecordedAsk;
pub use compare::{
    OutputSchemas, PriorOutput, compare, compare_task, is_of_commands, with_commands, with_original,
};
pub use plan::{PreparedRecompute, prepare, prepare_task};
pub use recorded::{RecordedRun, RecordedTask};
pub use task_end::TaskEnd;
pub use worlds::{RecomputedWorld, StatusChange, recomputed_world};

use ktsu_ledger::Frame;
use ktsu_projections::run::FoldError;

use super::rules::UnknownRulesError;

/// The most bytes of recorded results that a recompute takes over.
pub const MAX_RESULTS: usize = 8 << 20;

/// The history of a run up to the frame with this hash: what a recompute was made of. Nothing, if no
/// frame has it.
pub fn until(mut history: Vec<Frame>, head: &str) -> Option<Vec<Frame>> {
    let mut hashes = history.iter().map(|frame| frame.hash.to_string());
    let end = hashes.position(|hash| hash == head)?;
    history.truncate(end + 1);
    Some(history)
}

/// The reason why a run cannot be recomputed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecomputeError {
    /// Its frames do not fold.
    #[error("{0}")]
    Fold(#[from] FoldError),
    /// No agent or question of it has ended yet, or it has none.
    #[error(
        "no agent step of the run has ended and no question of a responder was answered, so there is \
         nothing to recompute"
    )]
    Nothing,
    /// It has no such step or question, or not one that an agent or a model worked on.
    #[error("no agent worked on that step; there are: {}", .0.join(", "))]
    NoSuchStep(Vec<String>),
    /// It was decided by rules that this version does not have.
    #[error("the run is {0}")]
    Rules(#[from] UnknownRulesError),
    /// It is a recompute itself.
    #[error("a recompute cannot be recomputed; recompute the run it is of")]
    IsRecompute,
    /// More is recorded of its tools than a frame should carry.
    #[error(
        "the recorded results of its tools come to {0} bytes, more than {MAX_RESULTS}; \
         recompute one step of it"
    )]
    TooMuch(usize),
    /// The result is not a valid definition.
    #[error("the recorded inputs cannot be given again: {0}")]
    Unusable(String),
}
