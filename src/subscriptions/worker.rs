//! The task of one subscription: reads the ledger behind its cursor, and sends what is wanted.
//!
//! It holds a bounded window of frames and nothing else. A receiver that hangs, fails or is slow
//! delays its own window; the rest waits in the ledger.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, header};
use ktsu_delivery::{AttemptFailure, DeliveryFilter, DeliveryWindow, MAX_DEAD, delivery_id};
use ktsu_egress::{self as egress, EgressErrorCode, EgressRequest};
use ktsu_history::emitted::topic_of;
use ktsu_history::event_page::AppendedFrame;
use ktsu_ledger::event::{DeliveryDead, DeliveryEvent};
use ktsu_ledger::store::StoreError;
use ktsu_ledger::{Actor, StreamId, Timestamp};
use ktsu_secret::WebhookKey;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::feed::{EventFeed, FeedWaiter};
use super::journal::{RecordedSubscription, SubscriptionJournal, stream};

/// The time that a receiver may take to answer.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(15);
/// The time after a failure to read the ledger until it is read again.
const READ_AGAIN_INTERVAL: Duration = Duration::from_secs(1);
/// After so many frames that were not wanted, the cursor is recorded all the same, so that the next
/// start does not search them again.
const MAX_UNSAVED_SEARCH: u64 = 10_000;

/// The parts that a task works with.
pub(crate) struct WorkerParts {
    pub(crate) id: String,
    pub(crate) filter: DeliveryFilter,
    pub(crate) url: String,
    pub(crate) key: WebhookKey,
    pub(crate) recorded: RecordedSubscription,
    pub(crate) feed: EventFeed,
    pub(crate) journal: Arc<SubscriptionJournal>,
    pub(crate) egress: egress::Client,
    pub(crate) status: Arc<Mutex<DeliveryStatus>>,
}

/// A command to a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WorkerCommand {
    /// All dead frames are to be sent again, as recorded.
    Redrive,
    /// The subscription is gone.
    End,
}

/// The status of the deliveries of a subscription, as far as its task knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryStatus {
    /// Failures since the last success.
    pub failures: u32,
    /// The last failure, if nothing was delivered since.
    pub error: Option<DeliveryFailure>,
    /// True if too many frames are dead for anything to be sent.
    pub is_stalled: bool,
    /// The position up to which nothing is left to send.
    pub cursor: u64,
    /// Number of frames that are dead and not being sent again.
    pub dead: u64,
}

/// The reason why an attempt failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveryFailure {
    /// `webhook_status`, `webhook_timeout`, `webhook_unreachable` or `webhook_refused`.
    pub code: &'static str,
    /// The status of the answer, if there was one.
    pub status: Option<u16>,
    /// The time at which it failed.
    pub at: Timestamp,
}

/// A frame, and what is sent of it.
#[derive(Clone)]
struct Outgoing {
    frame: Arc<AppendedFrame>,
    /// Its message about its topic; absent: the frame is sent as it is.
    told: Option<Bytes>,
}

/// The outcome of one attempt.
struct Attempt {
    frame: Arc<AppendedFrame>,
    result: Result<(), (&'static str, Option<u16>)>,
}

/// See the module documentation.
pub(crate) struct DeliveryWorker {
    parts: WorkerParts,
    stream: StreamId,
    window: DeliveryWindow<Outgoing>,
    /// Frames that are dead, by position, and not being sent again.
    resting: BTreeSet<u64>,
    /// Dead frames that are to be sent again, and are not in the window yet.
    redriven: BTreeSet<u64>,
    waiter: FeedWaiter,
    /// True if nothing more is in the ledger, as far as is known.
    is_at_end: bool,
    /// The cursor that was noted last.
    saved: u64,
    /// True if a frame was settled since.
    is_unsaved: bool,
    begun: Instant,
}

impl DeliveryWorker {
    pub(crate) fn new(parts: WorkerParts) -> Result<Self, String> {
        let recorded = &parts.recorded;
        let state = &recorded.state;
        Ok(Self {
            stream: stream(&parts.id)?,
            window: DeliveryWindow::new(state.retry(), recorded.cursor),
            resting: state.resting().collect(),
            redriven: state.redriven.clone(),
            waiter: parts.feed.subscribe(),
            is_at_end: false,
            saved: recorded.cursor,
            is_unsaved: false,
            begun: Instant::now(),
            parts,
        })
    }

    /// Delivers until it is told to end, or the engine stops.
    pub(crate) async fn run(mut self, mut commands: mpsc::Receiver<WorkerCommand>) {
        let mut sending = JoinSet::new();
        loop {
            let is_open = self.waiter.is_open();
            if !is_open || !self.read_more().await {
                break;
            }
            while let Some(outgoing) = self.start() {
                sending.spawn(self.attempt(outgoing));
            }
            self.note();
            // Searching a long ledger does not keep it from anything else.
            let may_read = self.may_read();
            let next = self.next_start();
            let due = tokio::time::sleep_until(next.unwrap_or(self.begun));
            tokio::select! {
                biased;
                command = commands.recv() => match command {
                    Some(WorkerCommand::Redrive) => self.redrive(),
                    Some(WorkerCommand::End) | None => break,
                },
                Some(done) = sending.join_next() => {
                    let done = match done {
                        Ok(done) => done,
                        // A defect of ours: the next start tries it again.
                        Err(error) => {
                            let id = &self.parts.id;
                            tracing::error!(subscription = id, "deliveries stop: {error}");
                            break;
                        }
                    };
                    if let Err(why) = self.settle(done).await {
                        let id = &self.parts.id;
                        tracing::warn!(subscription = id, "deliveries stop: {why}");
                        break;
                    }
                }
                () = due, if next.is_some() => {}
                () = self.waiter.changed(), if !may_read => self.is_at_end = false,
                () = tokio::task::yield_now(), if may_read => {}
            }
        }
    }

    /// Milliseconds since the task began.
    fn now(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn is_stalled(&self) -> bool {
        self.resting.len() >= MAX_DEAD
    }

    fn may_read(&self) -> bool {
        !self.is_stalled()
            && self.window.has_room()
            && (!self.is_at_end || !self.redriven.is_empty())
    }

    fn start(&mut self) -> Option<Outgoing> {
        match self.is_stalled() {
            true => None,
            false => self.window.start(self.now()).map(|(_, frame)| frame),
        }
    }

    fn next_start(&self) -> Option<Instant> {
        let next = self.window.next_start().filter(|_| !self.is_stalled());
        next.map(|next| self.begun + Duration::from_millis(next))
    }

    /// Reads a page of the ledger if there is room; false once that cannot be done any more.
    async fn read_more(&mut self) -> bool {
        if !self.may_read() {
            return true;
        }
        match self.read_page().await {
            Ok(()) => true,
            Err(error) => {
                let id = &self.parts.id;
                tracing::warn!(subscription = id, "cannot read what to deliver: {error}");
                tokio::time::sleep(READ_AGAIN_INTERVAL).await;
                self.parts.journal.stopped().is_none()
            }
        }
    }

    async fn read_page(&mut self) -> Result<(), StoreError> {
        if let Some(position) = self.redriven.first().copied() {
            let feed = &self.parts.feed;
            let page = feed.page(position, |frame| frame.position == position);
            let page = page.await?;
            self.redriven.remove(&position);
            match page.frames.into_iter().next() {
                Some(frame) => self.push(frame, true).await?,
                // No frame of a run stands there, so there is nothing that could be sent.
                None => self.parts.journal.note_settled(&self.parts.id, position),
            }
            return Ok(());
        }
        let from = self.window.scanned().saturating_add(1);
        let filter = &self.parts.filter;
        let wanted = |frame: &AppendedFrame| match filter {
            DeliveryFilter::Frames(pattern) => pattern.matches(&frame.kind),
            DeliveryFilter::Topics(topics) => {
                topic_of(frame).is_some_and(|topic| topics.matches(&topic))
            }
        };
        let page = self.parts.feed.page(from, wanted).await?;
        self.is_at_end = page.is_end;
        for frame in page.frames {
            if !self.window.has_room() {
                return Ok(());
            }
            // It died before the cursor was recorded.
            match self.resting.contains(&frame.position) {
                true => self.window.search_reached(frame.position),
                false if self.parts.feed.is_held_back(&frame.run).await? => {
                    self.window.search_reached(frame.position);
                }
                false => self.push(frame, false).await?,
            }
        }
        self.window.search_reached(page.next.saturating_sub(1));
        Ok(())
    }

    async fn push(
        &mut self,
        frame: Arc<AppendedFrame>,
        is_redriven: bool,
    ) -> Result<(), StoreError> {
        let told = match &self.parts.filter {
            DeliveryFilter::Frames(_) => None,
            DeliveryFilter::Topics(_) => {
                let told = self.parts.feed.told(&frame).await?;
                Some(Bytes::from(told))
            }
        };
        let (position, run, now) = (frame.position, frame.run.clone(), self.now());
        let bytes = frame.bytes() + told.as_ref().map_or(0, Bytes::len);
        let outgoing = (Outgoing { frame, told }, bytes);
        self.window.push(position, run, outgoing, is_redriven, now);
        Ok(())
    }

    /// Everything that is dead now is sent again.
    fn redrive(&mut self) {
        self.redriven.append(&mut self.resting);
        self.show();
    }

    /// One attempt at a frame.
    fn attempt(&self, outgoing: Outgoing) -> impl Future<Output = Attempt> + Send + use<> {
        let request = self.request(&outgoing);
        let frame = outgoing.frame;
        let egress = self.parts.egress.clone();
        async move {
            let result = match request {
                Some(request) => send(&egress, request).await,
                None => Err(("webhook_refused", None)),
            };
            Attempt { frame, result }
        }
    }

    /// The frame, or what it tells, signed as Standard Webhooks defines.
    fn request(&self, Outgoing { frame, told }: &Outgoing) -> Option<EgressRequest> {
        let id = delivery_id(&self.stream, &frame.run, frame.seq());
        let at = (self.parts.journal.now().as_micros() / 1_000_000).to_string();
        let body = match told {
            Some(told) => told.clone(),
            None => Bytes::copy_from_slice(frame.text().as_bytes()),
        };
        let signature = self.parts.key.sign(&id, &at, &body)?;
        let mut headers = HeaderMap::new();
        let json = HeaderValue::from_static("application/json");
        headers.insert(header::CONTENT_TYPE, json);
        for (name, value) in [
            ("webhook-id", id),
            ("webhook-timestamp", at),
            ("webhook-signature", signature),
        ] {
            headers.insert(name, HeaderValue::try_from(value).ok()?);
        }
        Some(EgressRequest {
            method: Method::POST,
            url: self.parts.url.clone(),
            headers,
            body,
            timeout: DELIVERY_TIMEOUT,
            keep: 0,
            is_to_itself: false,
        })
    }

    /// Takes the outcome of an attempt; an error if its end could not be recorded.
    async fn settle(&mut self, attempt: Attempt) -> Result<(), String> {
        let (position, now) = (attempt.frame.position, self.now());
        let (code, status) = match attempt.result {
            Ok(()) => {
                if self.window.succeeded(position, now) {
                    self.parts.journal.note_settled(&self.parts.id, position);
                }
                self.is_unsaved = true;
                let mut shown = self.parts.status.lock();
                (shown.failures, shown.error) = (0, None);
                return Ok(());
            }
            Err(failed) => failed,
        };
        let at = self.parts.journal.now();
        {
            let mut shown = self.parts.status.lock();
            shown.failures = shown.failures.saturating_add(1);
            shown.error = Some(DeliveryFailure { code, status, at });
        }
        let AttemptFailure::Last { attempts } = self.window.failed(position, now) else {
            return Ok(());
        };
        let (run, seq) = (&attempt.frame.run, attempt.frame.seq());
        let dead = DeliveryEvent::Dead(DeliveryDead {
            attempts,
            code: code.to_owned(),
            delivery_id: delivery_id(&self.stream, run, seq),
            position,
            seq,
            status,
            stream: run.clone(),
        });
        let (id, journal) = (&self.parts.id, &self.parts.journal);
        journal.append(id, Actor::Orchestrator, dead).await?;
        tracing::warn!(
            subscription = id,
            frame = attempt.frame.id(),
            code,
            "a frame is dead"
        );
        self.window.settle(position);
        self.resting.insert(position);
        self.is_unsaved = true;
        Ok(())
    }

    /// Notes the cursor where it is worth a frame, and shows how it goes.
    fn note(&mut self) {
        let cursor = self.window.cursor();
        let is_due = self.is_unsaved || cursor.saturating_sub(self.saved) >= MAX_UNSAVED_SEARCH;
        if is_due && cursor > self.saved {
            self.parts.journal.note_cursor(&self.parts.id, cursor);
            self.saved = cursor;
            self.is_unsaved = false;
        }
        self.show();
    }

    fn show(&self) {
        let mut shown = self.parts.status.lock();
        shown.cursor = self.window.cursor();
        shown.dead = self.resting.len() as u64;
        shown.is_stalled = self.is_stalled();
    }
}

/// Sends once. Any 2xx status is a delivery.
async fn send(
    egress: &egress::Client,
    request: EgressRequest,
) -> Result<(), (&'static str, Option<u16>)> {
    match egress.send(request).await {
        Ok(answer) if (200..300).contains(&answer.status) => Ok(()),
        Ok(answer) => Err(("webhook_status", Some(answer.status))),
        Err(error) => Err((code_of(error.code), None)),
    }
}

fn code_of(failure: EgressErrorCode) -> &'static str {
    match failure {
        EgressErrorCode::Refused => "webhook_refused",
        EgressErrorCode::Timeout => "webhook_timeout",
        EgressErrorCode::Unreachable => "webhook_unreachable",
    }
}
