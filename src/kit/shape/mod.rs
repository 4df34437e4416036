//! The shapes of a kit's files.

pub mod agent;
pub mod kit;
pub mod server;
pub mod workflow;
pub mod world;

pub(crate) use ktsu_config::shape::*;
