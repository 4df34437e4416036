//! Third-party tool servers, over MCP: one session per caller; only connections are shared.
//!
//! ```text
//! open:  initialize -> notifications/initialized -> tools/list, page by page
//! renew: (the server forgot the session, or says that its tools changed) open or list again
//! call:  tools/call {name, arguments, the idempotency key} -> the result, as it came
//! close: DELETE
//! ```
//!
//! The protocol is that of the official SDK ([`rmcp`]): its messages, its handshake, its ids. Its
//! messages go through `transport`, which is ours: every byte is sent by [`ktsu_egress`], every
//! received byte is counted and parsed strictly, and only an answer to a pending request reaches
//! the SDK. A server is untrusted; what it does to one session affects no other.
//!
//! Nothing is ever sent twice from here. Whether a call without an answer is sent again is decided
//! by the ledger, and whether one that met a forgotten session is, by the caller, which is why
//! [`ToolError::sent`] is exact.

mod answer;
#[cfg(test)]
mod cancel_tests;
mod dialect;
mod endpoint;
mod error;
mod event_stream;
#[cfg(test)]
mod hostile_tests;
mod legacy;
#[cfg(test)]
mod legacy_tests;
mod limits;
mod listing;
mod message;
#[cfg(test)]
mod renew_tests;
#[cfg(test)]
mod scripted_tests;
mod session;
mod sse;
mod streamable;
#[cfg(test)]
mod tests;
mod transport;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderName;
use serde_json::Value;

pub use error::{ToolError, ToolErrorCode};
pub use session::McpSession;

use dialect::DialectCache;
use endpoint::Endpoint;
use ktsu_egress as egress;
use ktsu_peer::Peer;
use ktsu_secret::Secret;
use limits::SessionLimits;
use session::Connector;

/// A tool server, with everything that is needed to call it.
#[derive(Clone)]
pub struct McpServer {
    /// The agent's name for it, for messages.
    pub name: String,
    /// The URL at which it listens, `http` or `https`; for a built-in server the path, with its
    /// query.
    pub url: String,
    /// The service that a built-in server is part of. All others are reached by the guarded client.
    pub builtin: Option<Peer>,
    /// Goes with every request.
    pub auth: Option<(HeaderName, Secret)>,
    /// Its settings; they go with `initialize`.
    pub params: BTreeMap<String, String>,
}

/// A tool that a server offers.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ServerTool {
    /// The name the server has for it.
    pub name: String,
    /// The purpose of the tool, in the server's words; empty if it says nothing.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
    /// BLAKE3 of `{"description", "input_schema", "name"}` as canonical JSON: what a lock pins.
    pub digest: String,
}

impl ServerTool {
    /// The same tool, described in other words, with the digest of these.
    #[must_use]
    pub fn described(&self, description: String, input_schema: Value) -> Self {
        let digest = listing::digest(&self.name, &description, &input_schema);
        Self {
            name: self.name.clone(),
            description,
            input_schema,
            digest: digest.unwrap_or_else(|| self.digest.clone()),
        }
    }
}

/// A tool that a server lists and that is not offered to anybody.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExcludedTool {
    /// The name the server has for it, cut where it is no name.
    pub tool: String,
    /// The reason why it is excluded.
    pub reason: &'static str,
}

/// All that a server offers, at one time. Cheap to clone.
pub type ToolList = Arc<[Arc<ServerTool>]>;

/// The result of a tool.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolCallResult {
    /// The blocks of the result, as they came: each an object with a `type`.
    pub content: Vec<Value>,
    /// The structured content.
    pub structured: Option<Value>,
    /// True if the tool, or the server in its name, says that it failed.
    pub is_error: bool,
    /// From sending to answer.
    pub duration_ms: u64,
}

/// Opens sessions. Cheap to clone; clones share connections, and what is known of URLs.
#[derive(Clone)]
pub struct McpClient {
    client: egress::Client,
    dialects: Arc<DialectCache>,
    limits: Arc<SessionLimits>,
}

impl McpClient {
    /// Over the one outgoing client.
    pub fn new(client: egress::Client) -> Self {
        Self {
            client,
            dialects: Arc::default(),
            limits: Arc::default(),
        }
    }

    /// Opens a session of its own: the whole handshake, and the list of tools with all its pages.
    ///
    /// # Errors
    /// [`ToolError`]; no call was sent.
    pub async fn open(&self, server: &McpServer) -> Result<McpSession, ToolError> {
        let (endpoint, dialects) = match &server.builtin {
            None => (Endpoint::External(self.client.clone()), &self.dialects),
            Some(peer) => (Endpoint::Builtin(peer.clone()), &Arc::default()),
        };
        let connector = Connector {
            endpoint,
            server: server.clone(),
            dialects: Arc::clone(dialects),
            limits: Arc::clone(&self.limits),
        };
        connector.connect().await
    }
}
