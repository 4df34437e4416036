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
mod references;
pub(super) mod sessions;

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

pub use ktsu_tools::{McpServer, ServerTool, ToolCallResult, ToolError, ToolErrorCode, ToolList};

/// Something that takes its time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Opens sessions.
pub trait ToolClient: Send + Sync {
    /// The whole handshake, and the list of the server's tools.
    fn open(&self, server: McpServer) -> BoxFuture<'_, Result<Arc<dyn ToolSession>, ToolError>>;
}

/// A session with one server. Dropped, it leaves nothing running.
pub trait ToolSession: Send + Sync {
    /// The tools that the server offers, as far as they are known.
    fn tools(&self) -> ToolList;
    /// The tools that the server offers now: another list if it has said that there is one, another
    /// session if it has forgotten this one. Asked before each call, and checked by the caller.
    fn renew(&self) -> BoxFuture<'_, Result<ToolList, ToolError>>;
    /// Calls a tool once, under this key, and waits no longer than `limit` (decision A4).
    fn call<'a>(
        &'a self,
        tool: &'a str,
        arguments: &'a Map<String, Value>,
        key: &'a str,
        limit: Duration,
    ) -> BoxFuture<'a, Result<ToolCallResult, ToolError>>;
    /// Tells the server that the session is over.
    fn close(self: Arc<Self>) -> BoxFuture<'static, ()>;
}
