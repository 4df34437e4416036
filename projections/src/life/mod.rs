//! Lives: what begins, moves and ends in a run. One file each: the states, and what leads from one to
//! the next. The tables of steps, items, tasks and webhooks name the rule that a frame breaks; those of
//! calls, reviews, suspensions and commands say whether it follows, and their callers name the
//! rule. What may happen to a scope is decided in [`crate::run`].
//!
//! | Life | File |
//! |---|---|
//! | a run, an inline child | `scope` |
//! | a step | `step` |
//! | an item of a fan-out | `item` |
//! | a task of an agent, and the tasks of one step | `task`, `tasks` |
//! | a call of a model | `model_call` |
//! | a call of a tool, with its approval | `call` |
//! | a review, a suspension | `review`, `suspension` |
//! | a webhook | `webhook` |
//! | the commands of an outcome, and what they run | `command_order`, `invoked` |
//!
//! [`crate::run`] composes them. What a frame changes in them, [`change`] says to everyone else.

pub mod call;
pub mod change;
pub mod command_order;
pub mod commanded;
pub mod invoked;
pub mod item;
pub mod key;
pub mod model_call;
mod outcome;
pub mod output;
pub mod overlays;
pub mod recorded_results;
pub mod refusal;
pub mod reports;
pub mod reserved;
pub mod review;
pub mod scope;
pub mod step;
pub mod suspension;
pub mod task;
pub mod tasks;
pub mod webhook;

pub use change::{
    Change, DeadlineShift, Expiry, Given, PersonAnswer, PersonQuestion, QuestionKind, Task,
    changes, run_end,
};
pub use key::{StepKey, TaskId};
pub use refusal::{Allowed, Refusal, Rule};
