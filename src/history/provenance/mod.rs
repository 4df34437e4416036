//! The origins of a value of an envelope: every decision is repeated on values with provenance.
//!
//! ```text
//! frames ─▶ Story: each step's value, tracked ─▶ the envelope, tracked ─▶ one field: an Answer
//! ```
//!
//! An origin is a leaf: a field of the params, a variable of the environment, a field of a model's
//! reply, the status of a webhook response. Prompts are not searched: a model's reply is an origin.
//! Values that only influenced decisions are listed separately, in two groups: those that chose the
//! value or the steps on its path (a condition, a filter, a schema, a verdict), and those that
//! could have ended the run before.
//!
//! What responders made is not repeated as a whole: a world may be large. `world_answer` begins at one
//! field and repeats what made it, then what that was made of.

mod answer;
mod derived;
mod envelope_answer;
mod facts;
mod hops;
mod invoked;
mod responder_runs;
mod story;
#[cfg(test)]
mod story_tests;
mod track;
mod view;
mod world_answer;
pub(crate) mod world_names;
mod world_path;
pub(crate) mod worlds;

pub use answer::{Decider, DeciderRole, Hop, ProvenanceAnswer, ValueOrigin, origins};
pub use story::TracedRun;
pub use story::memo::TraceError;
pub use story::path::{FieldNotFoundError, FieldPath, field_path};
pub(crate) use story::path::{dotted, pointer_of, segments};
pub use track::StepTrack;
pub(crate) use world_path::find as find_in_world;

/// The JSON of a field of an envelope, as it is recorded; `within` is the child that was asked about.
///
/// # Errors
/// [`TraceError`].
pub fn recorded_field(
    story: &TracedRun<'_>,
    within: &str,
    path: &str,
) -> Result<String, TraceError> {
    story.within_bound(story::path::recorded_field(story, within, path))
}

/// The origins of a field of an envelope, or of an object in the world of the run; `within` is the
/// child that was asked about. What the envelope has comes first.
///
/// # Errors
/// [`TraceError`].
pub fn answer(
    story: &TracedRun<'_>,
    within: &str,
    path: &str,
) -> Result<ProvenanceAnswer, TraceError> {
    let in_world = within.is_empty() && story.state().responding().is_some();
    let answer = match envelope_answer::answer(story, within, path) {
        Err(_) if in_world => world_answer::answer(story, path),
        found => found,
    };
    story.within_bound(answer)
}
