//! `GET /events`: the frames of all runs as a stream of events that can be resumed anywhere.

use std::convert::Infallible;

use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};

use super::parameter::{LastEventId, MAX_NUMBER, Parameter, ParameterKind, whole};
use super::query::{Query, QueryParameters, RawQuery};
use crate::problems;
use crate::stream_opener::StreamOpener;
use crate::streams::OpenStream;
use ktsu_codes::ErrorCode;
use ktsu_delivery::FramePattern;
use ktsu_history::event_page::AppendedFrame;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;
use ktsu_subscriptions::feed::FeedWaiter;
use ktsu_subscriptions::{EventFeed, FeedPage};

/// The query of a stream of events: the pattern of frames, and the position at which it begins.
#[derive(Debug)]
pub(super) struct EventsQuery {
    pattern: Option<String>,
    from: Option<u64>,
    is_live: bool,
}

impl QueryParameters for EventsQuery {
    const PARAMETERS: &'static [Parameter] = &[
        Parameter::new(
            "pattern",
            ParameterKind::Pattern,
            "Types of frames: `run.completed`, `object.*`, `*`, or several with commas; all if absent.",
        ),
        Parameter::new(
            "from",
            ParameterKind::Number(0..=MAX_NUMBER),
            "The first position in the ledger; its beginning if absent. `Last-Event-ID` goes before.",
        ),
        Parameter::new(
            "live",
            ParameterKind::Flag,
            "Begins at the end of the ledger, where no position is given.",
        ),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            pattern: given.owned("pattern"),
            from: given.number("from"),
            is_live: given.flag("live"),
        })
    }
}

/// The frames of all runs, as they become durable, in the order of the ledger. The `id` of an event
/// is the position of its frame; a stream with `Last-Event-ID` resumes after that event.
#[utoipa::path(get, path = "/events",
    params(Query::<EventsQuery>, LastEventId),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn events(
    State(orchestrator): State<Orchestrator>,
    method: Method,
    streams: StreamOpener,
    headers: HeaderMap,
    Query(wanted): Query<EventsQuery>,
) -> Result<Response, ProblemDetails> {
    let last = LastEventId::PARAMETER.header(&headers)?.and_then(whole);
    let pattern = wanted.pattern.as_deref().map(str::parse).transpose();
    let pattern: Option<FramePattern> = pattern.map_err(problems::pattern_error)?;
    if method == Method::HEAD {
        // Nobody would read the events.
        return Ok(Sse::new(stream::empty::<Result<Event, Infallible>>()).into_response());
    }
    let open = streams.open()?;
    let feed = orchestrator.events().clone();
    let waiter = feed.subscribe();
    let given = last.map(|last| last.saturating_add(1)).or(wanted.from);
    if let Some(from) = given {
        must_be_within(from, feed.last_position().await?)?;
    }
    let from = match given {
        Some(from) => from,
        None if wanted.is_live => feed.last_position().await?.saturating_add(1),
        None => 1,
    };
    let follower = EventFollower {
        feed,
        waiter,
        pattern: pattern.unwrap_or_else(FramePattern::all),
        from: from.max(1),
        told: given.map(|from| from.saturating_sub(1)),
        ready: Vec::new(),
        finished: false,
        _open: open,
    };
    let events = Sse::new(follower.into_stream()).keep_alive(KeepAlive::default());
    Ok(events.into_response())
}

/// Refuses a position beyond the ledger, which may have been restored from an earlier copy: frames
/// that are appended up to there would be skipped.
fn must_be_within(from: u64, last: u64) -> Result<(), ProblemDetails> {
    if from <= last.saturating_add(1) {
        return Ok(());
    }
    let words = format!(
        "the last position of the ledger is {last}, and frames from {from} on were asked for"
    );
    Err(ProblemDetails::new(ErrorCode::NotFound, words)
        .with_hint(format!("from={last} or an earlier position, or live=true")))
}

/// A follower that was told no newer position for this many frames is told one.
const BOOKMARK_FRAMES: u64 = 1_000;

/// A follower of all runs: has a position, and reads the ledger from there.
struct EventFollower {
    feed: EventFeed,
    waiter: FeedWaiter,
    pattern: FramePattern,
    /// The next position.
    from: u64,
    /// The last position that the client knows of.
    told: Option<u64>,
    /// The next events, last first.
    ready: Vec<Event>,
    finished: bool,
    _open: OpenStream,
}

impl EventFollower {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, async |mut follower| {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.ready.pop() {
                return Some(event);
            }
            if self.finished {
                return None;
            }
            let is_open = self.waiter.is_open();
            let wanted = |frame: &AppendedFrame| self.pattern.matches(&frame.kind);
            let page = match self.feed.page(self.from, wanted).await {
                Ok(page) => page,
                // The client would take an end for a loss of the connection, and come back.
                Err(error) => {
                    self.finished = true;
                    let problem = ProblemDetails::from(error).to_json().to_string();
                    return Some(Event::default().event("problem").data(problem));
                }
            };
            let is_end = page.is_end;
            self.take(&page);
            if !self.ready.is_empty() || !is_end {
                continue;
            }
            if let Some(bookmark) = self.bookmark() {
                return Some(bookmark);
            }
            if !is_open {
                return None;
            }
            self.waiter.changed().await;
        }
    }

    fn take(&mut self, page: &FeedPage) {
        self.from = page.next;
        if let Some(last) = page.frames.last() {
            self.told = Some(last.position);
        }
        let event = |frame: &AppendedFrame| {
            let id = frame.position.to_string();
            Event::default().id(id).data(frame.text().as_ref())
        };
        let frames = page.frames.iter().rev();
        self.ready = frames.map(|frame| event(frame)).collect();
    }

    /// A position without a frame: a client that loses its connection goes on there, and does not
    /// make us look again at everything it did not want.
    fn bookmark(&mut self) -> Option<Event> {
        let known = self.from.saturating_sub(1);
        let is_due = match self.told {
            Some(told) => known.saturating_sub(told) >= BOOKMARK_FRAMES,
            None => known > 0,
        };
        is_due.then(|| {
            self.told = Some(known);
            Event::default().id(known.to_string())
        })
    }
}
