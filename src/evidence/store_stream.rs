//! The one place that appends to the stream `store`.

use ktsu_ledger::appender::Appender;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::frame::Link;
use ktsu_ledger::store::{Entry, Tail};
use ktsu_ledger::{Actor, Cause, Draft, Event, Hash, StreamId, Timestamp};
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
        let mut tail = self.tail.lock();
        let at = (self.clock)();
        let mut end = *tail;
        let mut sealed = Vec::with_capacity(facts.len());
        for (cause, event) in facts {
            let link = Link {
                stream: StreamId::store(),
                seq: end.map_or(0, |end| end.seq + 1),
                prev: end.map_or(Hash::ZERO, |end| end.hash),
            };
            let draft = Draft {
                scope: String::new(),
                actor: self.actor.clone(),
                cause,
                event: Event::Store(event),
            };
            let one = draft.seal(link, at).map_err(|error| error.to_string())?;
            end = Some(Tail {
                seq: one.record.seq,
                hash: one.record.hash,
            });
            sealed.push(one);
        }
        let (entry, _) = Entry::from_sealed(sealed).map_err(|error| error.to_string())?;
        let appended = self.appender.append(entry);
        let last = appended.map_err(|error| error.to_string())?;
        *tail = end;
        Ok(last.last)
    }
}
