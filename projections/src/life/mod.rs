//! Lives: what can begin, move and end in a run. See [`change`] for how others follow them.

pub mod change;

pub use change::{
    Answer, Change, Delay, Expiry, Given, Question, QuestionKind, Task, changes, run_end,
};
