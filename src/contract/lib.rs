//! What the services say to each other, one file a boundary (seed 000, invariants 7 and 8).
//!
//! ```text
//! orchestrator ──runtime::Invoke──▶ runtime ──gateway::Invoke──▶ gateway ──▶ provider
//!      ▲                              │
//!      └──report::{Report, Complete, Heartbeat}
//! ```
//!
//! `docs/http.md` is the contract; these are its shapes. Whoever keeps to them can replace any one
//! service. Members that are not known are ignored, so that a newer peer can talk to an older one.

pub mod gateway;
pub mod report;
pub mod result;
pub mod runtime;

use http::HeaderName;

/// The header for a principal's token. `Authorization` may be taken by what a workflow asks its
/// callers for.
pub const TOKEN_HEADER: HeaderName = HeaderName::from_static("ktsu-token");
