//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod cli;
pub mod egress;
pub mod error;
pub mod http;
pub mod receiver;
