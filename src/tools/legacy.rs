//! HTTP with server-sent events, as of 2024-11-05: one stream for as long as the session lasts,
//! which first names the URL to post to, and on which all answers come.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use axum::body::Bytes;
use http::Method;
use tokio::sync::oneshot;
use tokio::time::timeout;
use url::Url;

use super::dialect::Dialect;
use super::message::Outcome;
use super::sse::{Event, Reader};
use super::streamable::{heard, patient, unreadable, within};
use super::way::{self, Body, Way};
use super::wire::{Fate, Listener, Shared};
use super::{ToolError, ToolErrorCode};
use ktsu_egress::{Broken, Use};

/// A session's stream.
pub(super) struct Legacy {
    /// Where the stream was found.
    pub(super) stream_url: String,
    /// Where to post to.
    pub(super) endpoint: String,
    waiting: Arc<Waiting>,
    _reader: Listener,
}

/// The requests that wait for an answer on the stream.
#[derive(Default)]
struct Waiting {
    calls: Mutex<Calls>,
    /// The largest number of a request so far.
    last: AtomicI64,
}

#[derive(Default)]
struct Calls {
    open: HashMap<i64, oneshot::Sender<Result<Outcome, ToolError>>>,
    /// Why the stream has ended.
    over: Option<ToolError>,
}

impl Waiting {
    fn calls(&self) -> MutexGuard<'_, Calls> {
        // Held for single lines; a panic in one leaves a map that is still whole.
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Hands an answer to whoever waits. One that comes too late is dropped; one to a request that
    /// was never sent is no answer.
    fn answered(&self, id: Option<i64>, outcome: Outcome) -> Result<(), ToolError> {
        let Some(id) = id else {
            return Err(ToolError::protocol("the answer names no request"));
        };
        if let Some(caller) = self.calls().open.remove(&id) {
            let _ = caller.send(Ok(outcome));
        } else if id < 0 || id > self.last.load(Ordering::Acquire) {
            return Err(ToolError::protocol("the answer is to another request"));
        }
        Ok(())
    }

    fn end(&self, error: &ToolError) {
        let mut calls = self.calls();
        for (_, caller) in calls.open.drain() {
            let _ = caller.send(Err(error.clone()));
        }
        calls.over = Some(error.clone());
    }
}

impl Legacy {
    /// Looks for the stream: where it was the last time, at the URL itself, and at `/sse` below it.
    pub(super) async fn find(
        shared: &Arc<Shared>,
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
        match below(&shared.way, &shared.url) {
            Some(below) => Self::connect(shared, &below).await,
            None => Err(first),
        }
    }

    async fn connect(shared: &Arc<Shared>, url: &str) -> Result<Self, ToolError> {
        let place = shared.way.place(url, Use::Session).await?;
        let mut head = shared.head(Method::GET, Bytes::new());
        head.idle = None;
        head.most = shared.limits.session_bytes;
        let answer = place.send(head).await?;
        if !answer.status.is_success() {
            return Err(way::status(answer.status, false));
        }
        if answer.content_type() != "text/event-stream" {
            let message = "it offers no stream of events";
            return Err(ToolError::sent(ToolErrorCode::Status, message));
        }
        if !answer.is_plain() {
            return Err(ToolError::protocol("the stream is encoded"));
        }
        let mut body = answer.body;
        let mut reader = Reader::new(shared.limits.message_bytes);
        let found = timeout(shared.limits.head, endpoint(&mut body, &mut reader)).await;
        let Ok(found) = found else {
            let message = "the stream names no endpoint";
            return Err(ToolError::sent(ToolErrorCode::Timeout, message));
        };
        let (named, rest) = found?;
        let endpoint = resolve(&shared.way, url, &named)?;
        let waiting = Arc::new(Waiting::default());
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
            _reader: Listener(task.abort_handle()),
        })
    }

    /// Whether its stream has ended, and the session with it.
    pub(super) fn is_over(&self) -> bool {
        self.waiting.calls().over.is_some()
    }

    /// Posts a request, and waits for its answer on the stream.
    pub(super) async fn exchange(
        &self,
        shared: &Arc<Shared>,
        id: i64,
        body: Bytes,
        limit: Duration,
        fate: &Fate,
    ) -> Result<Outcome, ToolError> {
        let place = shared.way.place(&self.endpoint, Use::Exchange).await?;
        let (caller, answered) = oneshot::channel();
        {
            let mut calls = self.waiting.calls();
            if let Some(over) = &calls.over {
                // Another session can be opened, and nothing was sent in this one.
                let message = over.message.clone();
                return Err(ToolError::unsent(ToolErrorCode::SessionExpired, message));
            }
            calls.open.insert(id, caller);
            self.waiting.last.fetch_max(id, Ordering::AcqRel);
        }
        // Taken back in any case, also where nobody waits any more.
        let _taken_back = TakenBack(&self.waiting, id);
        within(limit, fate, async {
            let head = patient(shared.head(Method::POST, body), limit, fate);
            let mut answer = place.send(head).await?;
            if !answer.status.is_success() {
                return Err(shared.refused(answer.status));
            }
            // "Accepted", in some words: the answer comes on the stream.
            let _ = timeout(shared.limits.control, answer.body.whole(4096)).await;
            drop(answer);
            let gone = |_| ToolError::sent(ToolErrorCode::Closed, "the session is over");
            answered.await.map_err(gone)?
        })
        .await
    }
}

struct TakenBack<'a>(&'a Waiting, i64);

impl Drop for TakenBack<'_> {
    fn drop(&mut self) {
        self.0.calls().open.remove(&self.1);
    }
}

/// The first event: where to post to. What came with it is handed on.
async fn endpoint(body: &mut Body, reader: &mut Reader) -> Result<(String, Vec<Event>), ToolError> {
    loop {
        let bytes = body.chunk().await.map_err(way::broken)?;
        let Some(bytes) = bytes else {
            return Err(way::broken(Broken::Off));
        };
        let mut events = reader.take(&bytes).map_err(unreadable)?.into_iter();
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
fn resolve(way: &Way, stream: &str, named: &str) -> Result<String, ToolError> {
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
fn below(way: &Way, url: &str) -> Option<String> {
    let mut url = parse(way, url)?;
    let path = format!("{}/sse", url.path().trim_end_matches('/'));
    url.set_path(&path);
    Some(text(way, &url))
}

/// The origin that a path of our own has while it is worked on.
const OWN: &str = "http://own.invalid";

fn parse(way: &Way, url: &str) -> Option<Url> {
    match way {
        Way::Own(_) => Url::parse(&format!("{OWN}{url}")).ok(),
        Way::Out(_) => Url::parse(url).ok(),
    }
}

fn text(way: &Way, url: &Url) -> String {
    let text = url.to_string();
    match way {
        Way::Own(_) => text.trim_start_matches(OWN).to_owned(),
        Way::Out(_) => text,
    }
}

async fn listen(
    shared: Weak<Shared>,
    waiting: Arc<Waiting>,
    mut body: Body,
    mut reader: Reader,
    mut events: Vec<Event>,
) {
    let mut asked = 0;
    let error = loop {
        let Some(session) = shared.upgrade() else {
            return;
        };
        if let Err(error) = take_in(&session, &waiting, &events, &mut asked).await {
            break error;
        }
        // Not held while waiting: the session's end must end this.
        drop(session);
        let bytes = match body.chunk().await {
            Ok(Some(bytes)) => bytes,
            Ok(None) => break way::broken(Broken::Off),
            Err(broken) => break way::broken(broken),
        };
        events = match reader.take(&bytes) {
            Ok(events) => events,
            Err(error) => break unreadable(error),
        };
    };
    waiting.end(&error);
}

async fn take_in(
    shared: &Shared,
    waiting: &Waiting,
    events: &[Event],
    asked: &mut usize,
) -> Result<(), ToolError> {
    for event in events {
        if let Some((id, outcome)) = heard(shared, event, asked).await? {
            waiting.answered(id, outcome)?;
        }
    }
    Ok(())
}
