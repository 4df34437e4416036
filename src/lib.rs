//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod egress;
pub mod error;
pub mod http;
