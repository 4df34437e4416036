//! The reasons why interventions of people are refused.

use ktsu_ledger::event::Violation;
use ktsu_projections::run::FoldError;

use crate::admit::fields::UnknownFieldError;
use crate::admit::fork_place::InsideFiringError;
use crate::admit::prompt_edits::PromptEditError;
use crate::rules::UnknownRulesError;
use crate::turn::InvariantViolation;

/// The reason why an intervention is refused. Nothing is recorded.
#[derive(Debug, thiserror::Error)]
pub enum InterventionError {
    /// No such step.
    #[error("the run has no step {0:?}")]
    NoStep(String),
    /// The step has no output yet, or none that has fields.
    #[error("step {step:?} is {status}; only the output of a complete step can be laid over")]
    NotComplete {
        /// The step.
        step: String,
        /// The status of the step.
        status: &'static str,
    },
    /// People are asked whether its output counts.
    #[error("the output of step {step:?} waits for the review {review}")]
    UnderReview {
        /// The step.
        step: String,
        /// The review.
        review: String,
    },
    /// Its output is no object.
    #[error("the output of step {0:?} is not an object, so it has no field to lay over")]
    NotAnObject(String),
    /// `ktsu_…`.
    #[error("{0:?} is reserved: what an agent says of itself is not for people to say")]
    Reserved(String),
    /// The output cannot have such a field.
    #[error(transparent)]
    NoField(UnknownFieldError),
    /// The params cannot have such a field.
    #[error(transparent)]
    NoParam(UnknownFieldError),
    /// The value does not pass the air-lock.
    #[error("step {step:?} would have an output that its schema refuses")]
    Refused {
        /// The step.
        step: String,
        /// The violations.
        violations: Vec<Violation>,
    },
    /// The prompts of the definition cannot be edited like this.
    #[error("the prompts cannot be used: {0}")]
    Prompts(#[from] PromptEditError),
    /// The params do not fit their schema.
    #[error("the params would not fit their schema")]
    Params(Vec<Violation>),
    /// The run goes on by itself.
    #[error(
        "the run is {0}; only one that is paused or has ended, or a branch that waits, can be resumed"
    )]
    NotResumable(&'static str),
    /// It goes on first; then its steps can begin again.
    #[error("the run is paused; resume it without a step first")]
    Paused,
    /// Somebody else's run.
    #[error("another principal started the run, so this needs one of the roles operator, admin")]
    NotYours,
    /// The run stands where it is wanted, or has ended.
    #[error("the run is {status}, so there is nothing to {word}")]
    ChangesNothing {
        /// The value that was asked for.
        word: &'static str,
        /// The status of the run.
        status: &'static str,
    },
    /// A recompute is what models said again; nobody goes on from there.
    #[error("this is a recompute, not a run; its run can be forked, resumed and corrected")]
    IsRecompute,
    /// A run that has ended goes on only from some step.
    #[error("the run is {0}; name the step to restart")]
    EndedWithoutFrom(&'static str),
    /// It is complete, and no question or workflow of its responders can begin again.
    #[error(
        "the run is complete, and no question or workflow of its responders is left to repeat: failures \
         under on_error: continue are final; a post reopens the run"
    )]
    NothingUnanswered,
    /// A responder, or an address, all of whose questions and workflows have ended well or are final.
    #[error("no question or workflow of {0:?} is left to repeat")]
    NothingLeftOf(String),
    /// A step that only other steps run by, once they are resumed to it.
    #[error("step {0:?} runs only in place of a step that is resumed to it")]
    OnResume(String),
    /// Something that failed would stay failed.
    #[error("step {failed:?} failed and does not depend on {from:?}")]
    LeavesAFailure {
        /// The value that was asked for.
        from: String,
        /// The step that failed.
        failed: String,
    },
    /// A step inside an inline child.
    #[error("{0:?} is inside a child workflow, which restarts as a whole")]
    Inside(String),
    /// The fork position is not in the run.
    #[error("the run has {frames} frames, so it cannot be forked at {position}")]
    Position {
        /// The value that was asked for.
        position: u64,
        /// The number of frames that there are.
        frames: u64,
    },
    /// The branch changes what responders make, and they are in the middle of it.
    #[error(transparent)]
    InsideFiring(InsideFiringError),
    /// The other definition declares a variable the run has no value for.
    #[error("the definition declares {0}, for which the run has no value")]
    NoValue(String),
    /// The other definition has no workflow that can be invoked.
    #[error("the definition has no workflow that can be invoked")]
    NotARoot,
    /// It has no worlds, and so no budget of theirs.
    #[error("the run loads no worlds, so it has no budget that could be raised")]
    NoWorlds,
    /// It ended for another reason.
    #[error(
        "the run is {0}; a budget is raised while a run goes on, when it is complete, or when the \
         budget was used up"
    )]
    NotRaisable(&'static str),
    /// No limit is named.
    #[error("no limit is raised")]
    NothingRaised,
    /// A limit is as high already.
    #[error("a limit can only be raised, and {0} holds now")]
    NotHigher(String),
    /// The run failed because of limits that still hold.
    #[error("the budget of the world is used up: {0}")]
    UsedUp(String),
    /// It was decided by rules that this version does not have.
    #[error("the run is {0}")]
    Rules(#[from] UnknownRulesError),
    /// A value nested too deeply.
    #[error("the value is nested too deeply")]
    TooDeep,
    /// The recorded frames do not fold.
    #[error(transparent)]
    Fold(#[from] FoldError),
    /// A promise of ours.
    #[error(transparent)]
    Broken(#[from] InvariantViolation),
}
