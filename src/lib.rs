//! ktsu: an event-sourced engine for AI-agent workflows.
//!
//! The crates that tests and benchmarks use, under one name, and the allocator of every program that
//! links them.

pub use ktsu_assemble as assemble;
pub use ktsu_cli as cli;
pub use ktsu_project::eval_file;
pub use ktsu_receiver as receiver;

/// Frames are made on one thread and freed on another, some hundred small pieces a step. The
/// system's allocator spends a quarter of a step's time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
