//! The shapes of a kit's files.

pub mod agent;
pub mod kit;
pub mod server;
pub mod workflow;

pub use ktsu_config::shape::*;
