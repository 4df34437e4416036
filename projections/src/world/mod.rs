//! The knowledge of a run: objects and typed relations, projected from frames (seed 002).
//!
//! ```text
//! World::default() ──apply(frame)*──▶ World: objects, relations, indexes
//! Responding: a world at the head, and one as of the trigger that responders look at
//! ```
//!
//! A [`World`] shares structure with its clones: a snapshot costs a few pointers, and stays what it
//! was. [`Responding`] is the part of a run's state that says which frames responders have not seen
//! yet, which trigger is under way and what is asked; it is folded from frames alone.
//!
//! Pieces: [`graph`] the world and its rules; [`object`] what it holds; `index` and [`find`]
//! look-ups whose cost does not grow with it; [`hash`] and [`diff`] its identity and its
//! differences; [`derivation`] keys and ids; [`activity`] depth and counts of world frames;
//! [`responding`] the queue; `posts` what people posted; `failures` those that did not stop the run;
//! `budget` and `wall_time` limits and the time used up; [`steps`] completed steps as objects;
//! [`comparison`] two worlds field by field.

pub mod activity;
mod budget;
pub mod candidates;
pub mod comparison;
pub mod derivation;
pub mod describe;
pub mod diff;
mod failures;
pub mod find;
pub mod graph;
pub mod hash;
mod hashed_text;
mod index;
pub mod object;
mod posts;
pub mod reactions;
pub mod responding;
pub mod steps;
mod tasks;
pub mod trigger;
pub(crate) mod wall_time;

pub use activity::Activity;
pub use comparison::WorldComparison;
pub use derivation::TriggerKey;
pub use diff::WorldDiff;
pub use failures::ResponderFailures;
pub use find::Condition;
pub use graph::World;
pub use index::{IndexValue, IndexedFields};
pub use object::{WorldObject, WorldRelation};
pub use posts::PostRecord;
pub use reactions::Reactions;
pub use responding::{MAX_TIMERS, ResponderTimer, Responding};
pub use tasks::{MAX_TASKS, ResponderTaskPhase, WorldTask};
pub use trigger::{TaskContext, Trigger, TriggerSubject};

#[cfg(test)]
mod fold_tests;
