//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod assemble;
pub mod cli;
pub mod egress;
pub mod environment;
pub mod error;
pub mod history;
pub mod http;
pub mod kit;
pub mod orchestrator;
pub mod peer;
pub mod receiver;
pub mod secret;
pub mod workflow;

/// Frames are made on one thread and freed on another, some hundred small pieces a step. The
/// system's allocator spends a quarter of a step's time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
