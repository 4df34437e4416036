//! The one place that appends to the stream `store`.

use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::removal::{PlannedRemoval, Removal};
use ktsu_ledger::store::{Entry, Tail};
use ktsu_ledger::{Actor, Cause, Draft, Event, StreamId, Timestamp};
use parking_lot::Mutex;

/// Tells the time.
pub type Clock = std::sync::Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// A fact about the ledger, and what it follows from.
pub type StoreFact = (Vec<Cause>, StoreEvent);

/// The stream and where it ends.
pub struct StoreStream {
    appender: Appender,
    clock: Clock,
    actor: Actor,
    /// Held while an entry is on its way: the next one follows from it.
    tail: Mutex<Option<Tail>>,
}

impl StoreStream {
    /// A stream that ends here, written by the owner of the ledger.
    pub fn new(appender: Appender, clock: Clock, actor: Actor, tail: Option<Tail>) -> Self {
        Self {
            appender,
            clock,
            actor,
            tail: Mutex::new(tail),
        }
    }

    /// Appends facts as one and waits until they are durable; gives the number of the last.
    ///
    /// # Errors
    /// Why they are not.
    pub fn append(&self, facts: Vec<StoreFact>) -> Result<u64, String> {
        self.append_with(facts, Vec::new())
    }

    /// Appends what records some removals, deletes what they name in the same transaction, and waits
    /// until that is durable; gives the number of the last fact.
    ///
    /// # Errors
    /// Why it is not.
    pub fn append_removals(&self, planned: Vec<PlannedRemoval>) -> Result<u64, String> {
        let (mut facts, mut removals) = (Vec::new(), Vec::new());
        for PlannedRemoval { event, removal, .. } in planned {
            facts.push((Vec::new(), StoreEvent::RunRemoved(event)));
            removals.push(removal);
        }
        self.append_with(facts, removals)
    }

    fn append_with(&self, facts: Vec<StoreFact>, removals: Vec<Removal>) -> Result<u64, String> {
        let mut tail = self.tail.lock();
        let drafts = facts.into_iter().map(|(cause, event)| Draft {
            scope: String::new(),
            actor: self.actor.clone(),
            cause,
            event: Event::Store(event),
        });
        let store = StreamId::store();
        let entry = Entry::from_drafts(&store, *tail, drafts.collect(), (self.clock)());
        let entry = entry.map_err(|error| error.to_string())?;
        let end = entry.tail();
        let entry = entry.with_removals(removals);
        let entry = entry.map_err(|error| error.to_string())?;
        let appended = self.appender.append(entry);
        let last = appended.map_err(|error| error.to_string())?;
        *tail = Some(end);
        Ok(last.last)
    }
}
