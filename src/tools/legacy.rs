//! HTTP with server-sent events, as of 2024-11-05: one stream for the whole session, which first
//! names the URL to post to, and carries all answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;

use super::dialect::Dialect;
use super::endpoint::Endpoint;
use super::event_stream::EventStream;
use super::message::RpcOutcome;
use super::transport::{AbortOnDrop, RpcRequest, SessionShared};
use super::{ToolError, ToolErrorCode};
use ktsu_egress::SlotKind;

/// A session's stream.
pub(super) struct Legacy {
    /// The URL at which the stream was found.
    pub(super) stream_url: String,
    /// The URL to post to.
    pub(super) endpoint: String,
    waiting: Arc<PendingRequests>,
    _reader: AbortOnDrop,
}

/// The requests that wait for an answer on the stream.
#[derive(Default)]
struct PendingRequests {
    calls: Mutex<PendingTable>,
    /// The largest number of a request so far.
    last: AtomicI64,
}

#[derive(Default)]
struct PendingTable {
    open: HashMap<i64, oneshot::Sender<Result<RpcOutcome, ToolError>>>,
    /// The reason why the stream has ended.
    closed: Option<ToolError>,
}

impl PendingRequests {
    /// Hands an answer to whoever waits. One that comes too late is dropped; one to a request that
    /// was never sent is no answer.
    fn deliver(&self, id: Option<i64>, outcome: RpcOutcome) -> Result<(), ToolError> {
        let Some(id) = id else {
            return Err(ToolError::protocol("the answer names no request"));
        };
        if let Some(caller) = self.calls.lock().open.remove(&id) {
            let _ = caller.send(Ok(outcome));
        } else if id < 0 || id > self.last.load(Ordering::Acquire) {
            return Err(ToolError::protocol("the answer is to another request"));
        }
        Ok(())
    }

    fn end(&self, error: &ToolError) {
        let mut calls = self.calls.lock();
        for (_, caller) in calls.open.drain() {
            let _ = caller.send(Err(error.clone()));
        }
        calls.closed = Some(error.clone());
    }
}

impl Legacy {
    /// Looks for the stream: where it was the last time, at the URL itself, and at `/sse` below it.
    pub(super) async fn find(
        shared: &Arc<SessionShared>,
        known: Option<&Dialect>,
    ) -> Result<Self, ToolError> {
        if let Some(Dialect::Legacy(url)) = known {
            return Self::connect(shared, url).await;
        }
        let first = match Self::connect(shared, &shared.url).await {
            Ok(legacy) => return Ok(legacy),
            Err(error) => error,
        };
        if first.code != ToolErrorCode::Status {
            return Err(first);
        }
        match sse_url(&shared.endpoint, &shared.url) {
            Some(below) => Self::connect(shared, &below).await,
            None => Err(first),
        }
    }

    async fn connect(shared: &Arc<SessionShared>, url: &str) -> Result<Self, ToolError> {
        let mut events = EventStream::open(shared, url, SlotKind::Session).await?;
        let unnamed = "the stream names no endpoint";
        let first = timeout(shared.limits.head, events.next_event()).await;
        let first = first.map_err(|_| ToolError::sent(ToolErrorCode::Timeout, unnamed))??;
        if first.name != "endpoint" {
            return Err(ToolError::protocol(unnamed));
        }
        let endpoint = resolve(&shared.endpoint, url, &first.data)?;
        let waiting = Arc::new(PendingRequests::default());
        let (session, pending) = (Arc::downgrade(shared), Arc::clone(&waiting));
        let task = tokio::spawn(async move {
            let error = loop {
                let response = events.next_response(&session).await;
                let delivered = response.and_then(|(id, outcome)| pending.deliver(id, outcome));
                if let Err(error) = delivered {
                    break error;
                }
            };
            pending.end(&error);
        });
        Ok(Self {
            stream_url: url.to_owned(),
            endpoint,
            waiting,
            _reader: AbortOnDrop(task.abort_handle()),
        })
    }

    /// Returns `true` if its stream has ended, and the session with it.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.calls.lock().closed.is_some()
    }

    /// Posts a request, and waits for its answer on the stream.
    pub(super) async fn exchange(
        &self,
        shared: &Arc<SessionShared>,
        request: &RpcRequest,
    ) -> Result<RpcOutcome, ToolError> {
        let slot = shared.endpoint.prepare(&self.endpoint, SlotKind::Exchange);
        let slot = slot.await?;
        let (caller, answered) = oneshot::channel();
        {
            let mut calls = self.waiting.calls.lock();
            if let Some(over) = &calls.closed {
                // Another session can be opened, and nothing was sent in this one.
                let message = over.message.clone();
                return Err(ToolError::unsent(ToolErrorCode::SessionExpired, message));
            }
            calls.open.insert(request.id, caller);
            self.waiting.last.fetch_max(request.id, Ordering::AcqRel);
        }
        // Taken back in any case, also where nobody waits any more.
        let _taken_back = PendingGuard(&self.waiting, request.id);
        let exchange = async {
            let mut response = slot.send(request.head(shared)).await?;
            if !response.status.is_success() {
                return Err(shared.status_error(response.status));
            }
            // "Accepted", in some words: the answer comes on the stream.
            let _ = timeout(shared.limits.control, response.read_to_end(4096)).await;
            drop(response);
            let gone = |_| ToolError::sent(ToolErrorCode::Closed, "the session is over");
            answered.await.map_err(gone)?
        };
        request.timed(exchange).await
    }
}

struct PendingGuard<'a>(&'a PendingRequests, i64);

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().open.remove(&self.1);
    }
}

/// Reads an endpoint against the stream's URL. Another origin would get what is meant for this one,
/// credentials included.
fn resolve(server: &Endpoint, stream: &str, named: &str) -> Result<String, ToolError> {
    let strange = || ToolError::protocol("the endpoint is not at the server's own origin");
    let base = parse(server, stream).ok_or_else(strange)?;
    let url = base.join(named.trim()).map_err(|_| strange())?;
    if url.origin() != base.origin() || !url.username().is_empty() || url.password().is_some() {
        return Err(strange());
    }
    Ok(text(server, &url))
}

/// The place below a URL where servers of this dialect have their stream. Its query stays: in it may
/// be what proves who calls.
fn sse_url(server: &Endpoint, url: &str) -> Option<String> {
    let mut url = parse(server, url)?;
    let path = format!("{}/sse", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(text(server, &url))
}

/// The origin that a path of our own has while it is worked on.
const BUILTIN_ORIGIN: &str = "http://own.invalid";

fn parse(server: &Endpoint, url: &str) -> Option<Url> {
    match server {
        Endpoint::Builtin(_) => Url::parse(&format!("{BUILTIN_ORIGIN}{url}")).ok(),
        Endpoint::External(_) => Url::parse(url).ok(),
    }
}

fn text(server: &Endpoint, url: &Url) -> String {
    let text = url.to_string();
    match server {
        Endpoint::Builtin(_) => text.trim_start_matches(BUILTIN_ORIGIN).to_owned(),
        Endpoint::External(_) => text,
    }
}
