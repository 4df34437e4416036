//! Placeholder while the event types are written.
pub mod plan;
