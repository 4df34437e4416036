//! Where a value of an envelope came from: every decision on values made once more, on values that
//! know their places.
//!
//! ```text
//! frames ─▶ Story: each step's value, tracked ─▶ the envelope, tracked ─▶ one field: an Answer
//! ```
//!
//! An origin is a leaf: a field of the params, a variable of the environment, a field of a model's
//! reply, the status a webhook was answered with. A prompt is not looked through: what a model
//! says is where its words begin. What only decided is told apart, in two groups: what chose the
//! value or the steps on its way (a condition, a filter, a schema, a verdict), and what could have
//! ended the run before.

mod answer;
mod defined;
mod facts;
mod hops;
mod names;
mod path;
mod story;
#[cfg(test)]
mod story_tests;
mod track;
mod view;

pub use answer::{Decider, DeciderRole, Hop, ProvenanceAnswer, ValueOrigin, answer, origins};
pub use path::{FieldNotFoundError, FieldPath};
pub use story::TracedRun;
pub use track::StepTrack;
