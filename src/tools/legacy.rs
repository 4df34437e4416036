//! HTTP with server-sent events, as of 2024-11-05: one stream for the whole session, which first
//! names the URL to post to, and carries all answers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::body::Bytes;
use http::Method;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;

use super::dialect::Dialect;
use super::endpoint::{self, Endpoint, EndpointBody};
use super::message::RpcOutcome;
use super::sse::{SseEvent, SseReader};
use super::streamable::{handle_event, sse_error, timed, with_call_timeouts};
use super::transport::{AbortOnDrop, CallProgress, SessionShared};
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{BodyError, SlotKind};

/// A session's stream.
pub(super) struct Legacy {
    /// Where the stream was found.
    pub(super) stream_url: String,
    /// Where to post to.
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
    /// Why the stream has ended.
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
        match sse_url(&shared.way, &shared.url) {
            Some(below) => Self::connect(shared, &below).await,
            None => Err(first),
        }
    }

    async fn connect(shared: &Arc<SessionShared>, url: &str) -> Result<Self, ToolError> {
        let place = shared.way.prepare(url, SlotKind::Session).await?;
        let mut head = shared.head(Method::GET, Bytes::new());
        head.idle = None;
        head.max_bytes = shared.limits.session_bytes;
        let answer = place.send(head).await?;
        if !answer.status.is_success() {
            return Err(endpoint::status_error(answer.status, false));
        }
        if answer.content_type() != "text/event-stream" {
            let message = "it offers no stream of events";
            return Err(ToolError::sent(ToolErrorCode::Status, message));
        }
        if !answer.is_plain() {
            return Err(ToolError::protocol("the stream is encoded"));
        }
        let mut body = answer.body;
        let mut reader = SseReader::new(shared.limits.message_bytes);
        let found = timeout(shared.limits.head, read_endpoint(&mut body, &mut reader)).await;
        let Ok(found) = found else {
            let message = "the stream names no endpoint";
            return Err(ToolError::sent(ToolErrorCode::Timeout, message));
        };
        let (named, rest) = found?;
        let endpoint = resolve(&shared.way, url, &named)?;
        let waiting = Arc::new(PendingRequests::default());
        let task = tokio::spawn(listen(
            Arc::downgrade(shared),
            Arc::clone(&waiting),
            body,
            reader,
            rest,
        ));
        Ok(Self {
            stream_url: url.to_owned(),
            endpoint,
            waiting,
            _reader: AbortOnDrop(task.abort_handle()),
        })
    }

    /// Whether its stream has ended, and the session with it.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.calls.lock().closed.is_some()
    }

    /// Posts a request, and waits for its answer on the stream.
    pub(super) async fn exchange(
        &self,
        shared: &Arc<SessionShared>,
        id: i64,
        body: Bytes,
        limit: Duration,
        fate: &CallProgress,
    ) -> Result<RpcOutcome, ToolError> {
        let place = shared
            .way
            .prepare(&self.endpoint, SlotKind::Exchange)
            .await?;
        let (caller, answered) = oneshot::channel();
        {
            let mut calls = self.waiting.calls.lock();
            if let Some(over) = &calls.closed {
                // Another session can be opened, and nothing was sent in this one.
                let message = over.message.clone();
                return Err(ToolError::unsent(ToolErrorCode::SessionExpired, message));
            }
            calls.open.insert(id, caller);
            self.waiting.last.fetch_max(id, Ordering::AcqRel);
        }
        // Taken back in any case, also where nobody waits any more.
        let _taken_back = PendingGuard(&self.waiting, id);
        timed(limit, fate, async {
            let head = with_call_timeouts(shared.head(Method::POST, body), limit, fate);
            let mut answer = place.send(head).await?;
            if !answer.status.is_success() {
                return Err(shared.status_error(answer.status));
            }
            // "Accepted", in some words: the answer comes on the stream.
            let _ = timeout(shared.limits.control, answer.body.read_to_end(4096)).await;
            drop(answer);
            let gone = |_| ToolError::sent(ToolErrorCode::Closed, "the session is over");
            answered.await.map_err(gone)?
        })
        .await
    }
}

struct PendingGuard<'a>(&'a PendingRequests, i64);

impl Drop for PendingGuard<'_> {
    fn drop(&mut self) {
        self.0.calls.lock().open.remove(&self.1);
    }
}

/// The first event: where to post to. What came with it is handed on.
async fn read_endpoint(
    body: &mut EndpointBody,
    reader: &mut SseReader,
) -> Result<(String, Vec<SseEvent>), ToolError> {
    loop {
        let bytes = body.chunk().await.map_err(endpoint::body_error)?;
        let Some(bytes) = bytes else {
            return Err(endpoint::body_error(BodyError::Disconnected));
        };
        let mut events = reader.push(&bytes).map_err(sse_error)?.into_iter();
        if let Some(first) = events.next() {
            if first.name == "endpoint" {
                return Ok((first.data, events.collect()));
            }
            return Err(ToolError::protocol("the stream names no endpoint"));
        }
    }
}

/// Reads an endpoint against the stream's URL. Another origin would get what is meant for this one,
/// credentials included.
fn resolve(way: &Endpoint, stream: &str, named: &str) -> Result<String, ToolError> {
    let strange = || ToolError::protocol("the endpoint is not at the server's own origin");
    let base = parse(way, stream).ok_or_else(strange)?;
    let url = base.join(named.trim()).map_err(|_| strange())?;
    if url.origin() != base.origin() || !url.username().is_empty() || url.password().is_some() {
        return Err(strange());
    }
    Ok(text(way, &url))
}

/// The place below a URL where servers of this dialect have their stream. Its query stays: in it may
/// be what proves who calls.
fn sse_url(way: &Endpoint, url: &str) -> Option<String> {
    let mut url = parse(way, url)?;
    let path = format!("{}/sse", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(text(way, &url))
}

/// The origin that a path of our own has while it is worked on.
const BUILTIN_ORIGIN: &str = "http://own.invalid";

fn parse(way: &Endpoint, url: &str) -> Option<Url> {
    match way {
        Endpoint::Builtin(_) => Url::parse(&format!("{BUILTIN_ORIGIN}{url}")).ok(),
        Endpoint::External(_) => Url::parse(url).ok(),
    }
}

fn text(way: &Endpoint, url: &Url) -> String {
    let text = url.to_string();
    match way {
        Endpoint::Builtin(_) => text.trim_start_matches(BUILTIN_ORIGIN).to_owned(),
        Endpoint::External(_) => text,
    }
}

async fn listen(
    shared: Weak<SessionShared>,
    waiting: Arc<PendingRequests>,
    mut body: EndpointBody,
    mut reader: SseReader,
    mut events: Vec<SseEvent>,
) {
    let mut asked = 0;
    let error = loop {
        let Some(session) = shared.upgrade() else {
            return;
        };
        if let Err(error) = dispatch_events(&session, &waiting, &events, &mut asked).await {
            break error;
        }
        // Not held while waiting: the session's end must end this.
        drop(session);
        let bytes = match body.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break endpoint::body_error(BodyError::Disconnected),
            Err(broken) => break endpoint::body_error(broken),
        };
        events = match reader.push(&bytes) {
            Ok(events) => events,
            Err(error) => break sse_error(error),
        };
    };
    waiting.end(&error);
}

async fn dispatch_events(
    shared: &SessionShared,
    waiting: &PendingRequests,
    events: &[SseEvent],
    asked: &mut usize,
) -> Result<(), ToolError> {
    for event in events {
        if let Some((id, outcome)) = handle_event(shared, event, asked).await? {
            waiting.deliver(id, outcome)?;
        }
    }
    Ok(())
}
