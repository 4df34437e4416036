//! `GET /summaries`: which runs change, as a stream of events. The latest state of each is sent, not all between.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, Method};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream};
use ktsu_ledger::StreamId;
use parking_lot::Mutex;
use serde_json::{Value, json as value};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::parameter::{LastEventId, whole};
use super::query::{NoParameters, Query};
use super::run_list::run_json;
use crate::kit_checks::{KitChecks, KitVerdict};
use crate::stream_opener::StreamOpener;
use crate::streams::OpenStream;
use ktsu_history::run_list::{RunChanges, changes_of, count_asks};
use ktsu_ledger::store::StoreError;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;
use ktsu_subscriptions::feed::FeedWaiter;

/// The time between two events, so that there are four in a second at most.
const INTERVAL: Duration = Duration::from_millis(250);
/// The most runs that one event is about; of more, it says that there are more.
const MAX_RUNS: usize = 200;
/// The most frames that are looked at for one event; a client that was away longer gets several.
const MAX_FRAMES: u64 = 10_000;
/// How long a stream lasts: its client comes back, and its token or session is looked at again.
const LONGEST: Duration = Duration::from_secs(600);

/// The runs that change, as their rows are by then, with the number of questions to people in all runs. At most
/// four events a second; a run that changed often in between is sent once. The `id` of an event is a position of the
/// ledger: a stream with `Last-Event-ID` begins with everything that changed since.
#[utoipa::path(get, path = "/summaries", params(LastEventId),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn summaries(
    State(orchestrator): State<Orchestrator>,
    method: Method,
    streams: StreamOpener,
    Extension(questions): Extension<OpenQuestions>,
    Extension(checks): Extension<KitChecks>,
    headers: HeaderMap,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let last = LastEventId::PARAMETER.header(&headers)?.and_then(whole);
    if method == Method::HEAD {
        return Ok(Sse::new(stream::empty::<Result<Event, Infallible>>()).into_response());
    }
    let open = streams.open()?;
    let waiter = orchestrator.events().subscribe();
    let now = orchestrator.events().last_position().await?;
    let follower = SummaryFollower {
        waiter,
        // A ledger that was restored from an earlier copy has fewer positions.
        from: last.unwrap_or(now).min(now).saturating_add(1),
        is_first: true,
        next_at: Instant::now(),
        until: Instant::now() + LONGEST,
        finished: false,
        orchestrator,
        questions,
        checked: checks.subscribe(),
        _checks: checks,
        _open: open,
    };
    let events = Sse::new(follower.into_stream()).keep_alive(KeepAlive::default());
    Ok(events.into_response())
}

/// The same for pages, whose sessions count below `/inspector/` alone.
#[utoipa::path(get, path = "/inspector/live", params(LastEventId),
    responses((status = 200, body = String, content_type = "text/event-stream")))]
pub(super) async fn for_pages(
    orchestrator: State<Orchestrator>,
    method: Method,
    streams: StreamOpener,
    questions: Extension<OpenQuestions>,
    checks: Extension<KitChecks>,
    headers: HeaderMap,
    query: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    summaries(
        orchestrator,
        method,
        streams,
        questions,
        checks,
        headers,
        query,
    )
    .await
}

/// A follower of all runs: a position, and the time of its next event.
struct SummaryFollower {
    orchestrator: Orchestrator,
    questions: OpenQuestions,
    /// Whether the files of the kit were checked since the last event.
    checked: watch::Receiver<Option<Arc<KitVerdict>>>,
    /// As long as they are there, they may be checked.
    _checks: KitChecks,
    waiter: FeedWaiter,
    /// The next position.
    from: u64,
    is_first: bool,
    next_at: Instant,
    until: Instant,
    finished: bool,
    _open: OpenStream,
}

impl SummaryFollower {
    fn into_stream(self) -> impl Stream<Item = Result<Event, Infallible>> {
        stream::unfold(self, async |mut follower| {
            let event = follower.next().await?;
            Some((Ok(event), follower))
        })
    }

    async fn next(&mut self) -> Option<Event> {
        loop {
            if self.finished || Instant::now() >= self.until {
                return None;
            }
            // What is appended until then comes with the same event.
            sleep_until(self.next_at).await;
            let is_open = self.waiter.is_open();
            let changed = match self.changed().await {
                Ok(changed) => changed,
                Err(error) => {
                    self.finished = true;
                    let problem = ProblemDetails::from(error).to_json().to_string();
                    return Some(Event::default().event("problem").data(problem));
                }
            };
            if let Some(body) = changed {
                self.is_first = false;
                self.next_at = Instant::now() + INTERVAL;
                let position = self.from.saturating_sub(1).to_string();
                return Some(Event::default().id(position).data(body.to_string()));
            }
            if !is_open {
                return None;
            }
            let changed = async {
                tokio::select! {
                    _ = self.waiter.changed() => {}
                    _ = self.checked.changed() => self.checked.mark_changed(),
                }
            };
            if timeout_at(self.until, changed).await.is_err() {
                return None;
            }
        }
    }

    /// The event about the runs with frames since the last one, if there are any. The first event may be about none: it
    /// says where the stream begins.
    async fn changed(&mut self) -> Result<Option<Value>, StoreError> {
        let mut runs: BTreeSet<StreamId> = BTreeSet::new();
        let mut is_more = false;
        let until = self.from.saturating_add(MAX_FRAMES);
        while self.from < until {
            let page = self.orchestrator.events().page(self.from, |_| true).await?;
            self.from = page.next;
            for frame in &page.frames {
                match runs.len() < MAX_RUNS || runs.contains(&frame.run) {
                    true => drop(runs.insert(frame.run.clone())),
                    false => is_more = true,
                }
            }
            if page.is_end {
                break;
            }
        }
        runs.retain(StreamId::is_run);
        let is_checked = self.checked.has_changed().unwrap_or_default();
        if runs.is_empty() && !self.is_first && !is_checked && self.from < until {
            return Ok(None);
        }
        let readers = self.orchestrator.readers();
        let known = self.questions.known();
        let read = readers.with(move |reader| {
            let asks = known.map_or_else(|| count_asks(reader), Ok)?;
            Ok((changes_of(reader, &runs)?, asks))
        });
        let (changes, asks): (RunChanges, u64) = read.await?;
        if known.is_none() {
            self.questions.keep(asks);
        }
        let rows: Vec<Value> = changes.rows.iter().map(run_json).collect();
        let mut body = value!({
            "runs": rows,
            "removed": changes.removed,
            "more": is_more,
            "asks": asks,
        });
        if is_checked {
            self.checked.mark_unchanged();
            body["kit"] = Value::Bool(true);
        }
        Ok(Some(body))
    }
}

/// The number of open questions to people in all runs, counted once an interval for all followers.
#[derive(Debug, Clone, Default)]
pub(super) struct OpenQuestions(Arc<Mutex<Option<(Instant, u64)>>>);

impl OpenQuestions {
    fn known(&self) -> Option<u64> {
        let known = *self.0.lock();
        let known = known.filter(|(at, _)| at.elapsed() < INTERVAL);
        known.map(|(_, asks)| asks)
    }

    fn keep(&self, asks: u64) {
        *self.0.lock() = Some((Instant::now(), asks));
    }
}
