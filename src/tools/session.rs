//! A session: opened, used by one caller, closed. Nothing of it is shared with another.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use rmcp::RoleClient;
use rmcp::model::{
    CallToolRequest, CallToolRequestParams, ClientCapabilities, ClientConfig, ClientRequest,
    Implementation, ListToolsRequest, PaginatedRequestParams, ProtocolVersion, ServerResult,
};
use rmcp::service::{ClientInitializeError, Peer, RunningService, ServiceError, serve_client};
use rmcp::transport::DynamicTransportError;
use serde_json::{Map, Value};
use tokio::sync::watch;
use tokio::time::timeout;

use super::answer;
use super::dialect::Dialects;
use super::limits::Limits;
use super::listing::Listing;
use super::way::Way;
use super::wire::{Call, Fate, Shared, wire};
use super::{Returned, Server, Tool, ToolError, ToolErrorCode};

/// An open session with one server. Dropping it ends it, too: what is under way is given up, and
/// the server is told in the background.
pub struct Session {
    name: String,
    tools: Vec<Tool>,
    running: RunningService<RoleClient, ClientConfig>,
    shared: Arc<Shared>,
}

/// Opens a session.
pub(super) async fn open(
    way: Way,
    server: &Server,
    dialects: &Arc<Dialects>,
    limits: &Arc<Limits>,
) -> Result<Session, ToolError> {
    let unsent = |error: ToolError| ToolError {
        sent: false,
        ..error.of(&server.name)
    };
    let (shared, wire) = wire(way, server, dialects, limits).map_err(unsent)?;
    // Boxed: the SDK's handshake is large, and there may be hundreds of sessions.
    let opening = Box::pin(async {
        let client = Implementation::new("ktsu", env!("CARGO_PKG_VERSION"));
        let config = ClientConfig::new(ClientCapabilities::default(), client)
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
        let running = serve_client(config, wire).await.map_err(not_opened)?;
        let tools = list(running.peer(), limits).await?;
        Ok((running, tools))
    });
    let opened = match timeout(limits.open, opening).await {
        Ok(opened) => opened,
        Err(_) => {
            let message = format!("no session within {} ms", limits.open.as_millis());
            Err(ToolError::sent(ToolErrorCode::Timeout, message))
        }
    };
    match opened {
        Ok((running, tools)) => Ok(Session {
            name: server.name.clone(),
            tools,
            running,
            shared,
        }),
        Err(error) => {
            // What the server may keep of it, it can forget.
            shared.end().await;
            Err(unsent(error))
        }
    }
}

/// The list of tools, page by page.
async fn list(peer: &Peer<RoleClient>, limits: &Limits) -> Result<Vec<Tool>, ToolError> {
    let mut listing = Listing::default();
    let mut params = None;
    loop {
        let request = ListToolsRequest {
            params,
            ..ListToolsRequest::default()
        };
        let request = ClientRequest::ListToolsRequest(request);
        let page = peer.send_request(request).await.map_err(|error| {
            let refused =
                |code| ToolError::protocol(format!("tools/list was refused with error {code}"));
            not_answered(error, &Fate::default(), refused)
        })?;
        let ServerResult::CustomResult(page) = page else {
            return Err(ToolError::protocol("the list of tools is none"));
        };
        let Some(cursor) = listing.page(&page.0, limits)? else {
            return Ok(listing.end());
        };
        params = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
}

impl Session {
    /// What the server offers, as of the beginning of the session.
    pub fn tools(&self) -> &[Tool] {
        &self.tools
    }

    /// Calls a tool, once, and waits for its result no longer than `limit`. An error of the tool,
    /// or one of JSON-RPC, is a result. Dropping the future gives the call up.
    ///
    /// # Errors
    /// [`ToolError`]; whether the call may have reached the server is in it.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        key: &str,
        limit: Duration,
    ) -> Result<Returned, ToolError> {
        let returned = self.call_once(tool, arguments, key, limit).await;
        returned.map_err(|error| error.of(&self.name))
    }

    async fn call_once(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        key: &str,
        limit: Duration,
    ) -> Result<Returned, ToolError> {
        if self.shared.has_changed() {
            let message = "its tools have changed since the session was opened";
            return Err(ToolError::unsent(ToolErrorCode::ToolsChanged, message));
        }
        if !self.tools.iter().any(|offered| offered.name == tool) {
            let message = format!("it offers no tool {tool:?}");
            return Err(ToolError::unsent(ToolErrorCode::UnknownTool, message));
        }
        let fate = Arc::new(Fate {
            may_be_silent: true,
            ..Fate::default()
        });
        let (_alive, alive) = watch::channel(());
        let params = CallToolRequestParams::new(tool.to_owned());
        let mut request = CallToolRequest::new(params.with_arguments(arguments.clone()));
        request.extensions.insert(Call {
            key: key.to_owned(),
            limit,
            alive,
            fate: Arc::clone(&fate),
        });
        let request = ClientRequest::CallToolRequest(request);
        let answered = self.running.peer().send_request(request).await;
        let most = self.shared.limits.result_bytes;
        let took = fate.took_ms.load(Ordering::Acquire);
        match answered {
            Ok(ServerResult::CustomResult(result)) => answer::read(result.0, most, took),
            Ok(_) => Err(ToolError::protocol("the result is none")),
            Err(ServiceError::McpError(error)) => {
                answer::refused(error.code.0, &error.message, most, took)
            }
            Err(error) => {
                let never = |_| ToolError::protocol("the result is none");
                Err(not_answered(error, &fate, never))
            }
        }
    }

    /// Ends the session, and tells the server.
    pub async fn close(self) {
        // Its error is that of a task that panicked: there is nothing left to end.
        let _ = self.running.cancel().await;
    }
}

/// Why a handshake failed.
fn not_opened(error: ClientInitializeError) -> ToolError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's to extend; the rest is one case to us"
    )]
    match error {
        ClientInitializeError::TransportError { error, .. } => transport(error),
        ClientInitializeError::JsonRpcError(error) => {
            let code = error.code.0;
            ToolError::protocol(format!("initialize was refused with error {code}"))
        }
        _ => ToolError::protocol("the handshake failed"),
    }
}

/// Why a request was not answered.
fn not_answered(
    error: ServiceError,
    fate: &Fate,
    refused: impl FnOnce(i32) -> ToolError,
) -> ToolError {
    #[expect(
        clippy::wildcard_enum_match_arm,
        reason = "the SDK's to extend; the rest is one case to us"
    )]
    match error {
        ServiceError::TransportSend(error) => transport(error),
        ServiceError::McpError(error) => refused(error.code.0),
        _ => ToolError {
            code: ToolErrorCode::Closed,
            message: "the session is over".to_owned(),
            sent: fate.begun.load(Ordering::Acquire),
        },
    }
}

/// The SDK hands back what [`super::wire`] said.
fn transport(error: DynamicTransportError) -> ToolError {
    match error.error.downcast::<ToolError>() {
        Ok(error) => *error,
        Err(_) => ToolError::sent(ToolErrorCode::Closed, "the session is over"),
    }
}
