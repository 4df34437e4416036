//! The tool servers of a task: one session with each, opened at its start and closed with it.
//!
//! ```text
//! dispatch ─▶ catalogue (pure: names, allowlists, gates, schemas, pins)
//!                ▲ lists                       │ verdicts
//!            sessions ──▶ ToolClient ──▶ MCP   ▼
//!                ▲ sends, gives results    conversation
//! ```
//!
//! The protocol is in [`ktsu_tools`]: a [`ToolClient`] opens sessions, and nothing here knows of
//! transports. Tools, results and failures have the same types on both sides.

pub(super) mod catalogue;
mod mcp;
mod names;
mod pins;
pub(super) mod sessions;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderName;
use serde_json::{Map, Value};

use ktsu_peer::Peer;
use ktsu_secret::Secret;
pub use ktsu_tools::{ServerTool, ToolCallResult, ToolError, ToolErrorCode, ToolList};

/// Something that takes its time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A server to open a session with.
#[derive(Clone)]
pub struct DispatchedServer {
    /// The agent's name for it.
    pub name: String,
    /// Where it is.
    pub reach: ServerLocation,
    /// The header that proves who calls, and its value.
    pub auth: Option<(HeaderName, Secret)>,
    /// What it is told when the session begins.
    pub params: BTreeMap<String, String>,
}

/// Where a server is, and by which way it is reached.
#[derive(Clone)]
pub enum ServerLocation {
    /// A URL somewhere: through the guarded client.
    External(String),
    /// One of the orchestrator's own: reached as its callbacks are, by this path with its query,
    /// which holds the task's token.
    Builtin(Peer, String),
}

/// A call, as it goes out.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionCall {
    /// The server's name for the tool.
    pub tool: String,
    /// What it is called with.
    pub arguments: Map<String, Value>,
    /// The name of the call: a server that has seen it need not do it again (decision A4).
    pub key: String,
    /// How long the whole exchange may take.
    pub limit: Duration,
}

/// Opens sessions.
pub trait ToolClient: Send + Sync {
    /// The whole handshake, and the list of the server's tools.
    fn open(
        &self,
        server: DispatchedServer,
    ) -> BoxFuture<'_, Result<Arc<dyn ToolSession>, ToolError>>;
}

/// A session with one server. Dropped, it leaves nothing running.
pub trait ToolSession: Send + Sync {
    /// What the server offers, as far as it is known.
    fn tools(&self) -> ToolList;
    /// What the server offers now: another list if it has said that there is one, another session
    /// if it has forgotten this one. Asked before each call, and checked by who asks.
    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>>;
    /// Calls, once: no answer is an answer, too.
    fn call(&self, call: SessionCall) -> BoxFuture<'_, Result<ToolCallResult, ToolError>>;
    /// Tells the server that the session is over.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;
}
