//! A session: opened, used by one caller, closed. It is not shared.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
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
use super::dialect::DialectCache;
use super::endpoint::Endpoint;
use super::limits::SessionLimits;
use super::listing::{ToolListing, ToolListingBuilder};
use super::transport::{CallProgress, OutgoingToolCall, SessionShared, session_transport};
use super::{ExcludedTool, McpServer, ToolCallResult, ToolError, ToolErrorCode, ToolList};

/// An open session with one server. Dropping it ends it, too: calls under way are given up, and the
/// server is notified in the background.
pub struct McpSession {
    connector: Connector,
    now: Mutex<SessionState>,
    /// Held by the one caller that lists the tools again; the others take the result.
    renewing: tokio::sync::Mutex<()>,
}

/// The parts that are needed to open a session, and another one in its place.
pub(super) struct Connector {
    pub(super) endpoint: Endpoint,
    pub(super) server: McpServer,
    pub(super) dialects: Arc<DialectCache>,
    pub(super) limits: Arc<SessionLimits>,
}

/// A session as it is at one time. A call under way keeps the one it began in.
#[derive(Clone)]
struct SessionState {
    link: Arc<SessionLink>,
    listed: ToolListing,
}

struct SessionLink {
    running: RunningService<RoleClient, ClientConfig>,
    shared: Arc<SessionShared>,
}

impl Connector {
    /// Opens a session.
    pub(super) async fn connect(self) -> Result<McpSession, ToolError> {
        let now = self.open().await?;
        Ok(McpSession {
            connector: self,
            now: Mutex::new(now),
            renewing: tokio::sync::Mutex::default(),
        })
    }

    async fn open(&self) -> Result<SessionState, ToolError> {
        let limit = self.limits.open;
        let (shared, transport) = session_transport(self).map_err(|error| self.unsent(error))?;
        // Boxed: the SDK's handshake is large, and there may be hundreds of sessions.
        let opening = Box::pin(async {
            let client = Implementation::new("ktsu", env!("CARGO_PKG_VERSION"));
            let config = ClientConfig::new(ClientCapabilities::default(), client)
                .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE);
            let running = serve_client(config, transport).await;
            let running = running.map_err(handshake_error)?;
            let listed = list(running.peer(), &shared).await?;
            Ok((running, listed))
        });
        let opened = timeout(limit, opening).await;
        let opened = opened.unwrap_or_else(|_| Err(timeout_error("no session", limit)));
        match opened {
            Ok((running, listed)) => {
                let link = Arc::new(SessionLink { running, shared });
                Ok(SessionState { link, listed })
            }
            Err(error) => {
                // What the server may keep of it, it can forget.
                shared.end_session().await;
                // A session that was never open was not forgotten either.
                let mut error = self.unsent(error);
                if error.code == ToolErrorCode::SessionExpired {
                    error.code = ToolErrorCode::Status;
                }
                Err(error)
            }
        }
    }

    /// The same session with the list as it is now.
    async fn list_again(&self, link: &Arc<SessionLink>) -> Result<SessionState, ToolError> {
        let limit = self.limits.open;
        let listed = timeout(limit, list(link.running.peer(), &link.shared)).await;
        let listed = listed.unwrap_or_else(|_| Err(timeout_error("no list of tools", limit)));
        let listed = listed.map_err(|error| self.unsent(error))?;
        let link = Arc::clone(link);
        Ok(SessionState { link, listed })
    }

    /// A failure before there was a call.
    fn unsent(&self, error: ToolError) -> ToolError {
        ToolError {
            sent: false,
            ..error.of(&self.server.name)
        }
    }
}

fn timeout_error(what: &str, limit: Duration) -> ToolError {
    let message = format!("{what} within {} ms", limit.as_millis());
    ToolError::sent(ToolErrorCode::Timeout, message)
}

/// The list of tools, page by page. What the server said of its tools before this is settled by it,
/// what it says meanwhile is not.
async fn list(peer: &Peer<RoleClient>, shared: &SessionShared) -> Result<ToolListing, ToolError> {
    let mut guard = ListingGuard(Some(shared));
    shared.set_changed(false);
    let listed = pages(peer, &shared.limits).await?;
    guard.0 = None;
    Ok(listed)
}

/// A list that is asked for. Until it is there, and also if nobody waits for it any more, what the
/// server said of its tools is not settled.
struct ListingGuard<'a>(Option<&'a SessionShared>);

impl Drop for ListingGuard<'_> {
    fn drop(&mut self) {
        if let Some(shared) = self.0 {
            shared.set_changed(true);
        }
    }
}

async fn pages(peer: &Peer<RoleClient>, limits: &SessionLimits) -> Result<ToolListing, ToolError> {
    let mut listing = ToolListingBuilder::default();
    let mut params = None;
    loop {
        let request = ListToolsRequest {
            params,
            ..ListToolsRequest::default()
        };
        let request = ClientRequest::ListToolsRequest(request);
        let page = peer.send_request(request).await;
        let page = page.map_err(|error| request_error(error, false))?;
        let ServerResult::CustomResult(page) = page else {
            return Err(ToolError::protocol("the list of tools is not valid"));
        };
        let Some(cursor) = listing.page(&page.0, limits)? else {
            return Ok(listing.end());
        };
        params = Some(PaginatedRequestParams::default().with_cursor(Some(cursor)));
    }
}

impl McpSession {
    fn current(&self) -> SessionState {
        self.now.lock().clone()
    }

    fn replace(&self, by: SessionState) -> ToolList {
        let tools = Arc::clone(&by.listed.tools);
        // What was there ends with the last call in it.
        *self.now.lock() = by;
        tools
    }

    /// The tools that the server offers, as far as they are known.
    pub fn tools(&self) -> ToolList {
        self.current().listed.tools
    }

    /// The tools that the server lists and that are not offered.
    pub fn excluded_tools(&self) -> Arc<[ExcludedTool]> {
        self.current().listed.left_out
    }

    /// The tools that the server offers now, to be asked before each call. Nothing is sent unless
    /// the server has said that its tools have changed, which has them listed again, once; or has
    /// forgotten the session, which has another one opened in its place. The caller checks the
    /// result: the tools may be others than those that were agreed on.
    ///
    /// # Errors
    /// [`ToolError`]; no call was sent.
    pub async fn renew(&self) -> Result<ToolList, ToolError> {
        let _renewing = self.renewing.lock().await;
        let now = self.current();
        let shared = &now.link.shared;
        if shared.has_changed() && !shared.is_lost() {
            match self.connector.list_again(&now.link).await {
                Ok(now) => return Ok(self.replace(now)),
                Err(error) if !shared.is_lost() => return Err(error),
                // It was forgotten, which shows only now.
                Err(_) => {}
            }
        }
        if shared.is_lost() {
            return Ok(self.replace(self.connector.open().await?));
        }
        Ok(now.listed.tools)
    }

    /// Calls a tool, once, and waits for its result no longer than `limit`. An error of the tool,
    /// or one of JSON-RPC, is a result. Dropping the future cancels the call.
    ///
    /// # Errors
    /// [`ToolError`]; whether the server may have acted on the call is in it. After
    /// [`ToolErrorCode::SessionExpired`] it has not, and the call can be made again in the session
    /// that [`McpSession::renew`] opens.
    pub async fn call(
        &self,
        tool: &str,
        arguments: &Map<String, Value>,
        key: &str,
        limit: Duration,
    ) -> Result<ToolCallResult, ToolError> {
        let server = &self.connector.server.name;
        let SessionState { link, listed } = self.current();
        if !listed.tools.iter().any(|offered| offered.name == tool) {
            let message = format!("it offers no tool {tool:?}");
            return Err(ToolError::unsent(ToolErrorCode::UnknownTool, message).of(server));
        }
        let progress = Arc::new(CallProgress {
            may_be_silent: true,
            ..CallProgress::default()
        });
        let mut pending = PendingCall {
            shared: Arc::clone(&link.shared),
            progress: Arc::clone(&progress),
            cancels: true,
        };
        let (_alive, alive) = watch::channel(());
        let params = CallToolRequestParams::new(tool.to_owned());
        let mut request = CallToolRequest::new(params.with_arguments(arguments.clone()));
        request.extensions.insert(OutgoingToolCall {
            key: key.to_owned(),
            limit,
            alive,
            progress: Arc::clone(&progress),
        });
        let request = ClientRequest::CallToolRequest(request);
        let answered = link.running.peer().send_request(request).await;
        let most = self.connector.limits.result_bytes;
        let took = progress.took_ms.load(Ordering::Acquire);
        let returned = match answered {
            Ok(ServerResult::CustomResult(result)) => answer::read(result.0, most, took),
            Ok(_) => Err(ToolError::protocol("the result is none")),
            Err(ServiceError::McpError(error)) => {
                answer::refused(error.code.0, &error.message, most, took)
            }
            Err(error) => Err(request_error(error, progress.begun.load(Ordering::Acquire))),
        };
        let late = |error: &ToolError| error.sent && error.code == ToolErrorCode::Timeout;
        pending.cancels = returned.as_ref().is_err_and(late);
        returned.map_err(|error| error.after(took).of(server))
    }

    /// Ends the session, and tells the server.
    pub async fn close(self) {
        let link = self.now.into_inner().link;
        // A call that is still under way keeps it: it ends when that is dropped.
        if let Some(link) = Arc::into_inner(link) {
            // Its error is that of a task that panicked: there is nothing left to end.
            let _ = link.running.cancel().await;
        }
    }
}

/// A call that waits for its result. One that is dropped, or had no answer in time, is cancelled.
struct PendingCall {
    shared: Arc<SessionShared>,
    progress: Arc<CallProgress>,
    cancels: bool,
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if self.cancels && self.progress.begun.load(Ordering::Acquire) {
            self.shared.cancel(self.progress.id.load(Ordering::Acquire));
        }
    }
}

/// The error for a handshake that failed.
fn handshake_error(error: ClientInitializeError) -> ToolError {
    match error {
        ClientInitializeError::TransportError { error, .. } => transport_error(error),
        ClientInitializeError::JsonRpcError(error) => {
            let code = error.code.0;
            ToolError::protocol(format!("initialize was refused with error {code}"))
        }
        _ => ToolError::protocol("the handshake failed"),
    }
}

/// The error where there is no list of tools, or no answer to a call; `begun` if it may have been
/// sent.
fn request_error(error: ServiceError, begun: bool) -> ToolError {
    let over = "the session is over";
    match error {
        ServiceError::TransportSend(error) => transport_error(error),
        ServiceError::McpError(error) => {
            let code = error.code.0;
            ToolError::protocol(format!("tools/list was refused with error {code}"))
        }
        _ if begun => ToolError::sent(ToolErrorCode::Closed, over),
        _ => ToolError::unsent(ToolErrorCode::Closed, over),
    }
}

/// The SDK hands back what [`super::transport`] returned.
fn transport_error(error: DynamicTransportError) -> ToolError {
    match error.error.downcast::<ToolError>() {
        Ok(error) => *error,
        Err(_) => ToolError::sent(ToolErrorCode::Closed, "the session is over"),
    }
}
