//! Kits, ledgers and engines, opened for a command or for a tool, with failures that say what to
//! type.
//!
//! Nothing here prints: the caller shows the [`Failure`].

pub mod engine;
pub mod environment;
mod failure;
pub mod faults;
pub mod files;
pub mod find;
pub mod input;
pub mod kit;
pub mod ledger;
pub mod peer;
pub mod quoting;

pub use failure::Failure;
