//! The SDK's transport: sends its messages, and passes on only the answers to them.
//!
//! Everything else that a server sends ends here. Its requests are answered at once ("method not
//! found"), and its notifications are dropped, except the one that says that its tools have
//! changed, so that no flood of them reaches the SDK, which would start a task for each.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::body::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use parking_lot::Mutex;
use rmcp::RoleClient;
use rmcp::model::{
    ClientJsonRpcMessage, CustomResult, ErrorCode, ErrorData, GetExtensions, JsonRpcMessage,
    NumberOrString, ProtocolVersion, ServerJsonRpcMessage, ServerResult,
};
use rmcp::transport::Transport;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::dialect::{Dialect, DialectCache};
use super::endpoint::{Endpoint, status_error};
use super::legacy::Legacy;
use super::limits::SessionLimits;
use super::message::{self, RpcOutcome};
use super::session::Connector;
use super::streamable;
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{SlotKind, StreamRequest};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");

/// The member of `_meta` by which a server can tell a call it has seen (decision A4).
const IDEMPOTENCY_KEY_META: &str = "ktsu/idempotency-key";

/// The member of `_meta` of `initialize` with the server's settings.
const CONFIG_META: &str = "ktsu/config";

/// A `tools/call`, as far as it is not in the SDK's message.
#[derive(Clone)]
pub(super) struct OutgoingToolCall {
    pub(super) key: String,
    pub(super) limit: Duration,
    /// Its sender lives as long as a caller waits for the result.
    pub(super) alive: watch::Receiver<()>,
    pub(super) progress: Arc<CallProgress>,
}

/// The progress of a call.
#[derive(Debug, Default)]
pub(super) struct CallProgress {
    /// It is a call, which may be silent for as long as it may last: a tool that works for minutes
    /// has nothing to say meanwhile.
    pub(super) may_be_silent: bool,
    /// It may have been sent.
    pub(super) begun: AtomicBool,
    /// The number of its request, once it has begun.
    pub(super) id: AtomicI64,
    /// From sending to answer.
    pub(super) took_ms: AtomicU64,
}

/// A request of ours, and what limits it.
pub(super) struct RpcRequest {
    pub(super) id: i64,
    body: Bytes,
    /// From sending it to its whole answer.
    limit: Duration,
    progress: Arc<CallProgress>,
}

impl RpcRequest {
    /// The request that is posted. The answer to a call may be silent for as long as the call may
    /// last.
    pub(super) fn head(&self, shared: &SessionShared) -> StreamRequest {
        let mut head = shared.head(Method::POST, self.body.clone());
        if self.progress.may_be_silent {
            head.timeout = self.limit;
            head.idle = Some(self.limit);
        }
        head
    }

    /// Measures and limits the time from sending to answer.
    pub(super) async fn timed<T>(
        &self,
        exchange: impl Future<Output = Result<T, ToolError>>,
    ) -> Result<T, ToolError> {
        self.progress.begun.store(true, Ordering::Release);
        let started = Instant::now();
        let outcome = timeout(self.limit, exchange).await;
        let took = u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.progress.took_ms.store(took, Ordering::Release);
        outcome.unwrap_or_else(|_| {
            let message = format!("no whole answer within {} ms", self.limit.as_millis());
            Err(ToolError::sent(ToolErrorCode::Timeout, message))
        })
    }
}

/// The HTTP state of a session.
pub(super) struct SessionShared {
    pub(super) url: String,
    pub(super) endpoint: Endpoint,
    pub(super) limits: Arc<SessionLimits>,
    dialects: Arc<DialectCache>,
    /// With every request; marked as sensitive, so that nothing prints it.
    auth: Option<(HeaderName, HeaderValue)>,
    params: BTreeMap<String, String>,
    state: Mutex<TransportState>,
    /// The server has said that its tools are others than it listed.
    changed: AtomicBool,
    /// The server has said that it knows the session no more.
    forgotten: AtomicBool,
    /// Notifications about cancelled calls, under way.
    cancelling: Mutex<Vec<JoinHandle<()>>>,
    answers: mpsc::UnboundedSender<ServerJsonRpcMessage>,
}

#[derive(Default)]
struct TransportState {
    session_id: Option<HeaderValue>,
    version: Option<HeaderValue>,
    legacy: Option<Arc<Legacy>>,
    listener: Option<AbortOnDrop>,
}

/// Aborts a task when dropped.
pub(super) struct AbortOnDrop(pub(super) tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// The SDK's end of a session.
pub(super) struct SessionTransport {
    shared: Arc<SessionShared>,
    inbox: mpsc::UnboundedReceiver<ServerJsonRpcMessage>,
}

/// The two ends of a session that is not open yet.
pub(super) fn session_transport(
    connector: &Connector,
) -> Result<(Arc<SessionShared>, SessionTransport), ToolError> {
    let server = &connector.server;
    let auth = match &server.auth {
        None => None,
        Some((name, secret)) => {
            let mut value = HeaderValue::from_str(secret.expose()).map_err(|_| {
                ToolError::unsent(
                    ToolErrorCode::Refused,
                    format!("{name} is not a valid header value"),
                )
            })?;
            value.set_sensitive(true);
            Some((name.clone(), value))
        }
    };
    // As many messages as there are requests under way: an answer is taken in only for one of them.
    let (answers, inbox) = mpsc::unbounded_channel();
    let shared = Arc::new(SessionShared {
        url: server.url.clone(),
        endpoint: connector.endpoint.clone(),
        limits: Arc::clone(&connector.limits),
        dialects: Arc::clone(&connector.dialects),
        auth,
        params: server.params.clone(),
        state: Mutex::default(),
        changed: AtomicBool::new(false),
        forgotten: AtomicBool::new(false),
        cancelling: Mutex::default(),
        answers,
    });
    let transport = SessionTransport {
        shared: Arc::clone(&shared),
        inbox,
    };
    Ok((shared, transport))
}

impl Transport<RoleClient> for SessionTransport {
    type Error = ToolError;

    fn name() -> Cow<'static, str> {
        "ktsu".into()
    }

    fn send(
        &mut self,
        item: ClientJsonRpcMessage,
    ) -> impl Future<Output = Result<(), ToolError>> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        async move {
            let written = serde_json::to_value(&item)
                .map_err(|error| ToolError::unsent(ToolErrorCode::Protocol, error.to_string()))?;
            match item {
                JsonRpcMessage::Request(request) => {
                    let NumberOrString::Number(id) = request.id else {
                        let message = "requests are numbered";
                        return Err(ToolError::unsent(ToolErrorCode::Protocol, message));
                    };
                    let call = request
                        .request
                        .extensions()
                        .get::<OutgoingToolCall>()
                        .cloned();
                    shared.request(id, written, call).await
                }
                JsonRpcMessage::Notification(_) => shared.notify(&written).await,
                // No request of the server reaches the SDK, so there is nothing to answer.
                JsonRpcMessage::Response(_) | JsonRpcMessage::Error(_) => Ok(()),
            }
        }
    }

    async fn receive(&mut self) -> Option<ServerJsonRpcMessage> {
        self.inbox.recv().await
    }

    async fn close(&mut self) -> Result<(), ToolError> {
        self.shared.end_session().await;
        Ok(())
    }
}

impl SessionShared {
    /// Returns `true` if the server has said that its tools are others than it listed.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.load(Ordering::Acquire)
    }

    /// A list is asked for, or was not given.
    pub(super) fn set_changed(&self, changed: bool) {
        self.changed.store(changed, Ordering::Release);
    }

    /// Returns `true` if nothing can be sent in the session any more.
    pub(super) fn is_lost(&self) -> bool {
        let over = |legacy: &Arc<Legacy>| legacy.is_over();
        self.forgotten.load(Ordering::Acquire)
            || self.state.lock().legacy.as_ref().is_some_and(over)
    }

    /// A status that is no success, as a failure; see [`status_error`].
    pub(super) fn status_error(&self, status: StatusCode) -> ToolError {
        let in_session = {
            let state = self.state.lock();
            state.session_id.is_some() || state.legacy.is_some()
        };
        let error = status_error(status, in_session);
        if error.code == ToolErrorCode::SessionExpired {
            self.forgotten.store(true, Ordering::Release);
        }
        error
    }

    async fn request(
        self: &Arc<Self>,
        id: i64,
        mut written: Value,
        call: Option<OutgoingToolCall>,
    ) -> Result<(), ToolError> {
        let opens = written["method"] == "initialize";
        self.address(&mut written, opens, call.as_ref());
        let request = RpcRequest {
            id,
            body: Bytes::from(written.to_string()),
            limit: call.as_ref().map_or(self.limits.open, |call| call.limit),
            progress: call
                .as_ref()
                .map(|call| Arc::clone(&call.progress))
                .unwrap_or_default(),
        };
        request.progress.id.store(id, Ordering::Release);
        let exchange = self.exchange(&request, opens);
        let outcome = match call {
            None => exchange.await,
            Some(mut call) => tokio::select! {
                outcome = exchange => outcome,
                // Whoever waited for the result is gone. The SDK would see it through.
                _ = call.alive.changed() => return Ok(()),
            },
        };
        let id = NumberOrString::Number(id);
        let answer = match outcome? {
            RpcOutcome::Result(result) if opens => {
                let result = streamable::negotiate(self, &result)?;
                JsonRpcMessage::response(ServerResult::InitializeResult(result), id)
            }
            // As it came: what a tool gives is read by us, not by the SDK's types, which would leave
            // out what they do not know.
            RpcOutcome::Result(result) => {
                let result = ServerResult::CustomResult(CustomResult::new(result));
                JsonRpcMessage::response(result, id)
            }
            RpcOutcome::Error { code, message } => {
                let code = i32::try_from(code).unwrap_or(i32::MIN);
                JsonRpcMessage::error(ErrorData::new(ErrorCode(code), message, None), Some(id))
            }
        };
        // Nobody takes it where the session has been given up.
        let _ = self.answers.send(answer);
        Ok(())
    }

    /// Puts into `_meta` what belongs there, and nothing else: the SDK numbers its requests for
    /// progress, which is not listened to.
    fn address(&self, written: &mut Value, opens: bool, call: Option<&OutgoingToolCall>) {
        let Some(params) = written.get_mut("params").and_then(Value::as_object_mut) else {
            return;
        };
        params.remove("_meta");
        if let Some(call) = call {
            params.insert(
                "_meta".to_owned(),
                json!({ IDEMPOTENCY_KEY_META: call.key }),
            );
        }
        if opens && !self.params.is_empty() {
            params.insert("_meta".to_owned(), json!({ CONFIG_META: self.params }));
            params.insert("config".to_owned(), json!(self.params));
        }
    }

    async fn exchange(
        self: &Arc<Self>,
        request: &RpcRequest,
        opens: bool,
    ) -> Result<RpcOutcome, ToolError> {
        if opens {
            return self.open(request).await;
        }
        let legacy = self.state.lock().legacy.clone();
        match legacy {
            Some(legacy) => legacy.exchange(self, request).await,
            None => streamable::exchange(self, request).await,
        }
    }

    /// The first request of a session, which shows what the URL speaks.
    async fn open(self: &Arc<Self>, request: &RpcRequest) -> Result<RpcOutcome, ToolError> {
        let known = self.dialects.get(&self.url);
        let first = match &known {
            Some(Dialect::Legacy(_)) => None,
            Some(Dialect::Streamable) | None => match streamable::probe(self, request).await? {
                streamable::Probe::Outcome(outcome) => {
                    self.dialects.learn(&self.url, Dialect::Streamable);
                    return Ok(outcome);
                }
                streamable::Probe::Status(status) => Some(status),
            },
        };
        let legacy = Legacy::find(self, known.as_ref()).await;
        let legacy = match (legacy, first) {
            (Ok(legacy), _) => Arc::new(legacy),
            (Err(error), Some(status)) => return Err(preferred_error(error, status)),
            (Err(error), None) => {
                self.dialects.forget(&self.url);
                return Err(error);
            }
        };
        self.state.lock().legacy = Some(Arc::clone(&legacy));
        let outcome = legacy.exchange(self, request).await?;
        let dialect = Dialect::Legacy(legacy.stream_url.clone());
        self.dialects.learn(&self.url, dialect);
        Ok(outcome)
    }

    async fn notify(self: &Arc<Self>, written: &Value) -> Result<(), ToolError> {
        let status = self.post_message(written).await?;
        if !status.is_success() {
            return Err(self.status_error(status));
        }
        if written["method"] == "notifications/initialized" {
            let listens = {
                let state = self.state.lock();
                state.session_id.is_some() && state.legacy.is_none()
            };
            if listens {
                let listener = streamable::listen(self);
                self.state.lock().listener = Some(listener);
            }
        }
        Ok(())
    }

    /// Posts what has no answer.
    async fn post_message(&self, written: &Value) -> Result<StatusCode, ToolError> {
        let url = match &self.state.lock().legacy {
            Some(legacy) => legacy.endpoint.clone(),
            None => self.url.clone(),
        };
        let place = self.endpoint.prepare(&url, SlotKind::Control).await?;
        let body = Bytes::from(written.to_string());
        let mut head = self.head(Method::POST, body);
        head.timeout = self.limits.control;
        let mut answer = place.send(head).await?;
        // Read to its end, so that the connection can be used again; there is nothing in it.
        let _ = timeout(self.limits.control, answer.read_to_end(4096)).await;
        Ok(answer.status)
    }

    /// Tells the server that nobody waits for the result of a call any more: hanging up alone is no
    /// cancellation in MCP. The end of the session waits for it, and nobody else does.
    pub(super) fn cancel(self: &Arc<Self>, id: i64) {
        let Ok(here) = Handle::try_current() else {
            return;
        };
        let shared = Arc::clone(self);
        let notifying = here.spawn(async move {
            let cancelled = message::cancelled(id);
            let sent = timeout(shared.limits.control, shared.post_message(&cancelled)).await;
            if !matches!(sent, Ok(Ok(status)) if status.is_success()) {
                tracing::debug!("could not notify a tool server of a cancelled call");
            }
        });
        let mut cancelling = self.cancelling.lock();
        cancelling.retain(|task| !task.is_finished());
        cancelling.push(notifying);
    }

    /// Answers a request of the server, as well as that goes.
    pub(super) async fn answer(&self, id: &Value, method: &str) {
        if let Err(error) = self.post_message(&message::reply(id, method)).await {
            tracing::debug!(%error, "could not answer a request of a tool server");
        }
    }

    /// Takes in a notification.
    pub(super) fn handle_notification(&self, method: &str) {
        if method == "notifications/tools/list_changed" {
            self.set_changed(true);
        }
    }

    /// The parts that every request of a session has in common.
    pub(super) fn head(&self, method: Method, body: Bytes) -> StreamRequest {
        let mut headers = HeaderMap::new();
        let accept = if method == Method::GET {
            "text/event-stream"
        } else {
            "application/json, text/event-stream"
        };
        headers.insert(header::ACCEPT, HeaderValue::from_static(accept));
        if method == Method::POST {
            let json = HeaderValue::from_static("application/json");
            headers.insert(header::CONTENT_TYPE, json);
        }
        if let Some((name, value)) = &self.auth {
            headers.insert(name.clone(), value.clone());
        }
        let state = self.state.lock();
        if let Some(session_id) = &state.session_id {
            headers.insert(SESSION_ID, session_id.clone());
        }
        if let Some(version) = &state.version {
            headers.insert(VERSION, version.clone());
        }
        StreamRequest {
            method,
            headers,
            body,
            timeout: self.limits.head,
            idle: Some(self.limits.idle),
            max_bytes: self.limits.stream_bytes,
        }
    }

    /// Keeps what the server calls the session.
    pub(super) fn set_session_id(&self, headers: &HeaderMap) -> Result<(), ToolError> {
        let Some(name) = headers.get(SESSION_ID) else {
            return Ok(());
        };
        let bytes = name.as_bytes();
        if bytes.is_empty() || bytes.len() > 1024 || !bytes.iter().all(u8::is_ascii_graphic) {
            let message = "the session's id is not visible ASCII of at most 1024 characters";
            return Err(ToolError::protocol(message));
        }
        self.state.lock().session_id = Some(name.clone());
        Ok(())
    }

    /// Keeps what was agreed on.
    pub(super) fn set_protocol_version(&self, version: &ProtocolVersion) {
        self.state.lock().version = HeaderValue::from_str(version.as_str()).ok();
    }

    /// Says goodbye, once.
    pub(super) async fn end_session(&self) {
        // Each takes no longer than a short message may.
        let cancelling = std::mem::take(&mut *self.cancelling.lock());
        for notifying in cancelling {
            let _ = notifying.await;
        }
        let head = self.head(Method::DELETE, Bytes::new());
        let state = std::mem::take(&mut *self.state.lock());
        if state.session_id.is_none() || state.legacy.is_some() {
            return;
        }
        let goodbye = async {
            let place = self.endpoint.prepare(&self.url, SlotKind::Control).await?;
            place.send(head).await.map(drop)
        };
        let _ = timeout(self.limits.control, goodbye).await;
    }
}

/// The one of two refusals that is reported: that of the newer dialect's request, or that of the
/// older one's stream. Mostly the first says more than that the older is not spoken either.
fn preferred_error(stream: ToolError, request: StatusCode) -> ToolError {
    match stream.code {
        ToolErrorCode::Refused | ToolErrorCode::Unauthorized | ToolErrorCode::Unreachable => stream,
        _ => status_error(request, false),
    }
}
