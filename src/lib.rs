//! ktsu: an event-sourced engine for AI-agent workflows.

pub mod assemble;
pub use ktsu_baseline as baseline;
pub mod cli;
pub use ktsu_api as api;
pub use ktsu_codes as codes;
pub use ktsu_config as config;
pub use ktsu_contract as contract;
pub use ktsu_damage as damage;
pub use ktsu_egress as egress;
pub use ktsu_environment as environment;
pub use ktsu_evidence as evidence;
pub use ktsu_gateway as gateway;
pub use ktsu_history as history;
pub use ktsu_kit as kit;
pub use ktsu_orchestrator as orchestrator;
pub use ktsu_peer as peer;
pub use ktsu_server as server;
pub mod project;
pub use ktsu_readers as readers;
pub mod receiver;
pub use ktsu_rows as rows;
pub use ktsu_runtime as runtime;
pub use ktsu_schema as schema;
pub use ktsu_secret as secret;
pub use ktsu_telemetry as telemetry;
pub use ktsu_tools as tools;
pub use ktsu_workflow as workflow;
