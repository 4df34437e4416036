//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod assemble;
pub mod baseline;
pub mod cli;
pub mod contract;
pub mod damage;
pub mod egress;
pub mod environment;
pub mod error;
pub mod evidence;
pub mod gateway;
pub mod history;
pub mod http;
pub mod kit;
pub mod orchestrator;
pub mod peer;
pub mod project;
pub mod readers;
pub mod receiver;
pub mod rows;
pub mod runtime;
pub use ktsu_schema as schema;
pub mod secret;
pub mod telemetry;
pub mod tools;
pub use ktsu_workflow as workflow;
