//! The records of subscriptions: appends to their streams, and reading them back.
//!
//! Cursors are gathered and appended together, so that a delivery does not cost a transaction of its
//! own. What is lost of them in a crash is sent again, under the same ids.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ktsu_delivery::SubscriptionState;
use ktsu_ledger::appender::{AppendError, Appender, Committed};
use ktsu_ledger::branch::Blobs;
use ktsu_ledger::event::{DeliveryAdvanced, DeliveryEvent, DeliverySettled};
use ktsu_ledger::store::{Entry, MAX_PAGE, Reader, StoreError, Tail};
use ktsu_ledger::{Actor, Draft, Event, StreamId, Timestamp};
use ktsu_readers::ReaderPool;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Tells the time.
pub type LedgerClock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The end of a stream, as far as it is known; locked while an entry is being appended.
type KnownTail = Arc<tokio::sync::Mutex<Option<Option<Tail>>>>;

/// The streams of subscriptions.
pub(crate) struct SubscriptionJournal {
    readers: ReaderPool,
    appender: Appender,
    clock: LedgerClock,
    tails: Mutex<HashMap<StreamId, KnownTail>>,
    /// The progress that is to be recorded with the next flush, by the ids of subscriptions.
    unsaved: Mutex<BTreeMap<String, Progress>>,
}

/// The progress of a subscription since the last flush.
#[derive(Debug, Clone, Default)]
struct Progress {
    cursor: Option<u64>,
    settled: Vec<u64>,
}

/// A subscription as the ledger has it.
#[derive(Debug, Clone, Default)]
pub(crate) struct RecordedSubscription {
    pub(crate) state: SubscriptionState,
    /// The position up to which nothing is left to send.
    pub(crate) cursor: u64,
}

/// The stream of what happened to a subscription.
pub(crate) fn stream(id: &str) -> Result<StreamId, String> {
    named("subscription", id)
}

fn named(kind: &str, id: &str) -> Result<StreamId, String> {
    let stream = format!("{kind}:{id}").parse::<StreamId>();
    stream.map_err(|error| error.to_string())
}

impl SubscriptionJournal {
    pub(crate) fn new(readers: ReaderPool, appender: Appender, clock: LedgerClock) -> Self {
        Self {
            readers,
            appender,
            clock,
            tails: Mutex::default(),
            unsaved: Mutex::default(),
        }
    }

    /// The reason why nothing can be recorded, if there is one.
    pub(crate) fn stopped(&self) -> Option<String> {
        self.appender.failed()
    }

    /// Returns `true` if the disk has too little space left for anything new.
    pub(crate) fn is_low_on_disk(&self) -> bool {
        self.appender.low_on_disk()
    }

    /// The time, as frames have it.
    pub(crate) fn now(&self) -> Timestamp {
        (self.clock)()
    }

    /// Every subscription that the ledger knows of, removed ones included.
    pub(crate) async fn read_all(
        &self,
    ) -> Result<BTreeMap<String, RecordedSubscription>, StoreError> {
        self.readers.with(read_all).await
    }

    /// One subscription.
    pub(crate) async fn read(&self, id: &str) -> Result<Option<RecordedSubscription>, StoreError> {
        let Ok(stream) = stream(id) else {
            return Ok(None);
        };
        self.readers
            .with(move |reader| match reader.tail(&stream)? {
                Some(_) => read_one(reader, &stream).map(Some),
                None => Ok(None),
            })
            .await
    }

    /// Appends a fact about a subscription, and waits until it is durable.
    ///
    /// # Errors
    /// Why it is not.
    pub(crate) async fn append(
        &self,
        id: &str,
        actor: Actor,
        event: DeliveryEvent,
    ) -> Result<(), String> {
        self.append_all(vec![(stream(id)?, actor, event)]).await
    }

    /// Notes that everything up to a position is settled, for the next flush.
    pub(crate) fn note_cursor(&self, id: &str, cursor: u64) {
        let mut unsaved = self.unsaved.lock();
        unsaved.entry(id.to_owned()).or_default().cursor = Some(cursor);
    }

    /// Notes that a redriven frame was delivered, for the next flush.
    pub(crate) fn note_settled(&self, id: &str, position: u64) {
        let mut unsaved = self.unsaved.lock();
        unsaved
            .entry(id.to_owned())
            .or_default()
            .settled
            .push(position);
    }

    /// Records what was noted, all of it together.
    ///
    /// # Errors
    /// Why it could not be.
    pub(crate) async fn flush(&self) -> Result<(), String> {
        let noted = std::mem::take(&mut *self.unsaved.lock());
        let recorded = self.record(noted.clone()).await;
        if recorded.is_err() {
            self.note_again(noted);
        }
        recorded
    }

    /// Notes what could not be recorded, behind what was noted since: the next flush tries it again.
    /// What was recorded all the same says nothing new then.
    fn note_again(&self, noted: BTreeMap<String, Progress>) {
        let mut unsaved = self.unsaved.lock();
        for (id, before) in noted {
            let progress = unsaved.entry(id).or_default();
            progress.cursor = progress.cursor.or(before.cursor);
            progress.settled.splice(..0, before.settled);
        }
    }

    async fn record(&self, noted: BTreeMap<String, Progress>) -> Result<(), String> {
        let mut appends = Vec::new();
        for (id, progress) in noted {
            if !progress.settled.is_empty() {
                let positions = progress.settled;
                let settled = DeliveryEvent::Settled(DeliverySettled { positions });
                appends.push((stream(&id)?, Actor::Orchestrator, settled));
            }
            if let Some(position) = progress.cursor {
                let advanced = DeliveryEvent::Advanced(DeliveryAdvanced { position });
                appends.push((named("delivery", &id)?, Actor::Orchestrator, advanced));
            }
        }
        self.append_all(appends).await
    }

    /// Appends events to streams, each named once, in one transaction, and waits until they are
    /// durable.
    async fn append_all(
        &self,
        appends: Vec<(StreamId, Actor, DeliveryEvent)>,
    ) -> Result<(), String> {
        let (mut entries, mut held) = (Vec::new(), Vec::new());
        for (stream, actor, event) in appends {
            let known = self.known_tail(&stream);
            let mut tail = known.lock_owned().await;
            let before = self.tail_of(&stream, *tail).await?;
            let (entry, end) = self.sealed(stream, before, actor, event)?;
            // Unknown until the append has come to an end: whoever is next reads it then.
            *tail = None;
            entries.push(entry);
            held.push((tail, end));
        }
        self.submit(entries).await?;
        for (mut tail, end) in held {
            *tail = Some(Some(end));
        }
        Ok(())
    }

    fn known_tail(&self, stream: &StreamId) -> KnownTail {
        let mut tails = self.tails.lock();
        Arc::clone(tails.entry(stream.clone()).or_default())
    }

    async fn tail_of(
        &self,
        stream: &StreamId,
        known: Option<Option<Tail>>,
    ) -> Result<Option<Tail>, String> {
        if let Some(known) = known {
            return Ok(known);
        }
        let stream = stream.clone();
        let read = self.readers.with(move |reader| reader.tail(&stream)).await;
        read.map_err(|error: StoreError| error.to_string())
    }

    fn sealed(
        &self,
        stream: StreamId,
        before: Option<Tail>,
        actor: Actor,
        event: DeliveryEvent,
    ) -> Result<(Entry, Tail), String> {
        let draft = Draft {
            scope: String::new(),
            actor,
            cause: Vec::new(),
            event: Event::Delivery(event),
        };
        let entry = Entry::from_drafts(&stream, before, vec![draft], (self.clock)());
        let entry = entry.map_err(|error| error.to_string())?;
        let end = entry.tail();
        Ok((entry, end))
    }

    /// Appends entries one behind the other, which the appender makes one transaction of, and waits
    /// until they are durable. They are handed over on a thread that may wait: the queue of the
    /// appender may be full.
    async fn submit(&self, entries: Vec<Entry>) -> Result<(), String> {
        let appender = self.appender.clone();
        let handed_over = tokio::task::spawn_blocking(move || {
            let submitted = entries.into_iter().map(|entry| {
                let (sender, receiver) = oneshot::channel();
                let done = Box::new(move |outcome| drop(sender.send(outcome)));
                appender.submit(entry, done);
                receiver
            });
            submitted.collect::<Vec<oneshot::Receiver<Result<Committed, AppendError>>>>()
        });
        for outcome in handed_over.await.map_err(|error| error.to_string())? {
            let outcome = outcome.await.map_err(|error| error.to_string())?;
            outcome.map_err(|error| error.to_string())?;
        }
        Ok(())
    }
}

fn read_all(reader: &dyn Reader) -> Result<BTreeMap<String, RecordedSubscription>, StoreError> {
    let mut found = BTreeMap::new();
    // Their names are the next ones in the order of streams.
    let mut after = StreamId::store();
    loop {
        let page = reader.streams(Some(&after), MAX_PAGE)?;
        let Some(last) = page.last() else {
            return Ok(found);
        };
        after = last.clone();
        for stream in page {
            if stream.kind() == "subscription" {
                let one = read_one(reader, &stream)?;
                found.insert(stream.name().to_owned(), one);
            }
        }
    }
}

fn read_one(reader: &dyn Reader, stream: &StreamId) -> Result<RecordedSubscription, StoreError> {
    let mut state = SubscriptionState::default();
    let mut blobs = Blobs::new(reader);
    let mut from = 0;
    loop {
        let page = reader.read(stream, from, MAX_PAGE)?;
        let Some(last) = page.last() else { break };
        from = last.seq.saturating_add(1);
        for record in &page {
            state.apply(&blobs.decode(stream, record)?);
        }
    }
    let cursor = cursor(reader, stream.name(), &mut blobs)?;
    let cursor = cursor.unwrap_or(state.from);
    Ok(RecordedSubscription { state, cursor })
}

/// The last position that was recorded.
fn cursor(reader: &dyn Reader, id: &str, blobs: &mut Blobs<'_>) -> Result<Option<u64>, StoreError> {
    let Ok(stream) = named("delivery", id) else {
        return Ok(None);
    };
    let Some(tail) = reader.tail(&stream)? else {
        return Ok(None);
    };
    let last = reader.read(&stream, tail.seq, 1)?;
    let Some(record) = last.first() else {
        return Ok(None);
    };
    let frame = blobs.decode(&stream, record)?;
    let Event::Delivery(DeliveryEvent::Advanced(advanced)) = frame.event else {
        return Ok(None);
    };
    Ok(Some(advanced.position))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use ktsu_ledger::appender::Options;
    use ktsu_ledger::event::{DeliveryDead, DeliveryRedriven, Principal};
    use ktsu_ledger::store::MemoryStore;

    use super::*;

    fn dead(position: u64) -> DeliveryEvent {
        DeliveryEvent::Dead(DeliveryDead {
            attempts: 1,
            code: "webhook_status".to_owned(),
            delivery_id: format!("msg_{position}"),
            position,
            seq: position,
            status: Some(500),
            stream: StreamId::run("run_a").unwrap(),
        })
    }

    #[tokio::test]
    async fn progress_that_could_not_be_recorded_is_recorded_with_the_next_flush() {
        let store = MemoryStore::new();
        let (appender, thread) =
            Appender::start(Box::new(store.clone()), Options::default()).unwrap();
        let is_unreadable = Arc::new(AtomicBool::new(false));
        let journal = || {
            let (store, reads) = (store.clone(), Arc::clone(&is_unreadable));
            let readers = ReaderPool::new(move || match reads.load(Ordering::SeqCst) {
                true => Err(StoreError::Damaged("for the test".to_owned())),
                false => Ok(Box::new(store.clone())),
            });
            let clock = Arc::new(|| Timestamp::from_micros(1));
            SubscriptionJournal::new(readers, appender.clone(), clock)
        };
        let first = journal();
        let by = Principal {
            auth: "none".to_owned(),
            id: "local".to_owned(),
        };
        for event in [
            dead(7),
            dead(9),
            DeliveryEvent::Redriven(DeliveryRedriven { by, count: 2 }),
        ] {
            first
                .append("sub_a", Actor::Orchestrator, event)
                .await
                .unwrap();
        }
        // It does not know yet where the streams end, and cannot read it.
        let journal = journal();
        journal.note_settled("sub_a", 7);
        journal.note_cursor("sub_a", 20);
        is_unreadable.store(true, Ordering::SeqCst);
        assert!(journal.flush().await.is_err());
        journal.note_settled("sub_a", 9);
        journal.note_cursor("sub_a", 21);
        is_unreadable.store(false, Ordering::SeqCst);
        journal.flush().await.unwrap();
        let recorded = journal.read("sub_a").await.unwrap().unwrap();
        assert!(recorded.state.dead.is_empty(), "{:?}", recorded.state);
        assert_eq!(recorded.cursor, 21);
        drop((journal, first, appender));
        thread.shutdown().unwrap();
    }
}
