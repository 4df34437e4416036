//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod environment;
pub mod kit;
pub mod secret;
pub mod workflow;
