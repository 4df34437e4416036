//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod assemble;
pub mod cli;
pub mod eval_file;
pub mod project;
pub mod receiver;
