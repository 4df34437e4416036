//! The HTTP interface of the orchestrator: its routes, who may use them, and their description.

pub mod access;
pub mod checks;
pub mod ids;
pub mod judges;
pub mod kit_checks;
mod problems;
pub mod routes;
mod run_cache;
pub mod sessions;
mod stream_opener;
pub mod streams;
