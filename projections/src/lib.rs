//! What it means: pure folds over the frames of a ledger.
//!
//! No IO, no clock, no randomness: the same frames give the same answer anywhere, for ever.
//! [`run::RunState`] is what the engine decides from; [`envelope`], [`usage`], [`index`] and
//! [`lineage`] are what people and programs ask for.

#![warn(clippy::wildcard_enum_match_arm)]

pub mod approvals;
pub mod calls;
pub mod diff;
pub mod envelope;
pub mod index;
pub mod lineage;
pub mod normalize;
pub mod run;
pub mod step_name;
pub mod usage;
pub mod value_diff;

pub use envelope::Envelope;
pub use lineage::Lineage;
pub use run::{Outline, RunState};
