//! The messages between the services, one file per boundary (seed 000, invariants 7 and 8).
//!
//! ```text
//! orchestrator ──runtime::Invoke──▶ runtime ──gateway::Invoke──▶ gateway ──▶ provider
//!      ▲                              │
//!      └──report::{Report, Complete, Heartbeat}
//! ```
//!
//! `docs/http.md` is the contract; these are its types. Any service can be replaced by another that
//! follows it. Unknown members are ignored, so that a newer peer can talk to an older one. Services
//! of one process pass the same messages as values: [`in_process`].

pub mod gateway;
pub mod in_process;
pub mod references;
pub mod report;
pub mod result;
pub mod runtime;

use http::HeaderName;

/// The header for a principal's token. `Authorization` may be taken by what a workflow asks its
/// callers for.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("ktsu-token");
