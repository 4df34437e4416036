//! Projections: pure folds over the frames of a ledger, which say what it means.
//!
//! No I/O, no clock, no randomness: the same frames give the same result anywhere, for ever. The
//! engine decides from [`run::RunState`]; [`envelope`], [`usage`], [`index`] and [`lineage`] are
//! views for people and programs.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod approvals;
mod asked_records;
pub mod attempts;
pub mod calls;
mod commanded_names;
pub mod diff;
pub mod envelope;
pub mod index;
pub mod life;
pub mod lineage;
pub mod normalize;
pub mod person_requests;
mod pointer;
pub mod retention;
pub mod reviews;
pub mod run;
pub mod step_name;
mod step_questions;
pub mod suspensions;
pub mod usage;
pub mod used_time;
pub mod value_diff;
pub mod world;

pub use envelope::Envelope;
pub use lineage::Lineage;
pub use run::{Outline, RunState};

/// Returns `true` if a member is left out when it is serialized.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
