//! Appending to streams such that what became of it is known: a conflict, a lost answer and a late one are
//! read back, and compared.

use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ktsu_ledger::StoreError;

use crate::address::Address;
use crate::call_error::EventCallError;
use crate::client::{EventClient, NewEvent, Proposal, StoredEvent};

/// The longest wait for the answer to an append.
const APPEND_TIMEOUT: Duration = Duration::from_millis(1_500);
/// The longest wait for the answer to a question: many large frames may come over a slow network.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
/// The time for which a question is asked again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(5);
/// The time for which what became of an append is looked for; less than the lease of an owner.
const SETTLE_TIMEOUT: Duration = Duration::from_secs(3);
/// The pause between two attempts.
const PAUSE: Duration = Duration::from_millis(10);
/// The most bytes of an append: a server takes a mebibyte at once.
const MAX_APPEND_BYTES: usize = 900 * 1024;
/// What an event takes besides its data.
const EVENT_BYTES: usize = 400;
/// The number of events that are read at once.
pub(crate) const PAGE: usize = 256;

/// The streams of a ledger on a server.
#[derive(Clone)]
pub(crate) struct EventLog {
    client: Arc<EventClient>,
    address: Address,
    /// The longest wait for an answer, and the time for which a question is asked again.
    patience: (Duration, Duration),
}

/// Events for a stream, wherever its end is.
#[derive(Debug, Clone)]
pub(crate) struct Placement {
    pub(crate) stream: String,
    /// The revision of its last event, as far as it is known.
    pub(crate) after: Option<u64>,
    pub(crate) events: Vec<NewEvent>,
}

/// Why an event is not at its place.
#[derive(Debug)]
pub(crate) enum PutError {
    /// Another event is.
    Conflict,
    /// The error of the append.
    Store(StoreError),
}

impl EventLog {
    pub(crate) fn new(address: &Address) -> Self {
        Self {
            client: Arc::new(EventClient::new(address)),
            address: address.clone(),
            patience: (READ_TIMEOUT, RETRY_TIMEOUT),
        }
    }

    /// The same streams, for an owner: it cannot wait for longer than its lease.
    pub(crate) fn of_owner(&self) -> Self {
        Self {
            patience: (SETTLE_TIMEOUT, SETTLE_TIMEOUT),
            ..self.clone()
        }
    }

    fn named(&self, stream: &str) -> String {
        self.address.stream(stream)
    }

    /// Events of a stream from a revision on, at most a page.
    pub(crate) fn read(
        &self,
        stream: &str,
        from: u64,
        count: usize,
    ) -> Result<Vec<StoredEvent>, StoreError> {
        self.retried(|| {
            let count = count.min(PAGE);
            self.client
                .read(&self.named(stream), from, count, self.patience.0)
        })
    }

    /// Ranges of streams: stream, first revision, number of events. What is not there is left out.
    pub(crate) fn read_ranges(
        &self,
        ranges: &[(String, u64, usize)],
    ) -> Result<Vec<Vec<StoredEvent>>, StoreError> {
        let named: Vec<_> = ranges
            .iter()
            .map(|(stream, from, count)| (self.named(stream), *from, *count))
            .collect();
        self.retried(|| self.client.read_ranges(&named, self.patience.0))
    }

    /// The last event of a stream.
    pub(crate) fn last(&self, stream: &str) -> Result<Option<StoredEvent>, StoreError> {
        self.retried(|| self.client.last(&self.named(stream), self.patience.0))
    }

    /// Asks a second time where the way to the server was the reason: another one may lead now.
    fn retried<T>(&self, ask: impl Fn() -> Result<T, EventCallError>) -> Result<T, StoreError> {
        let until = Instant::now() + self.patience.1;
        loop {
            match ask() {
                Ok(answer) => return Ok(answer),
                Err(error) if error.is_final() || Instant::now() >= until => {
                    return Err(error.reading("read the ledger"));
                }
                Err(_) => sleep(PAUSE),
            }
        }
    }

    /// Has a stream keep its last event only.
    pub(crate) fn keep_last(&self, stream: &str) -> Result<(), StoreError> {
        let kept = self.client.keep_last(&self.named(stream), SETTLE_TIMEOUT);
        kept.map_err(|error| error.writing("make the ledger"))
    }

    /// Deletes a stream for good.
    pub(crate) fn tombstone(&self, stream: &str) -> Result<(), StoreError> {
        let gone = self.client.tombstone(&self.named(stream), APPEND_TIMEOUT);
        gone.map_err(|error| error.reading("delete a stream"))
    }

    /// Deletes what a stream has.
    pub(crate) fn delete(&self, stream: &str) -> Result<(), StoreError> {
        let gone = self.client.delete(&self.named(stream), APPEND_TIMEOUT);
        gone.map_err(|error| error.reading("delete a stream"))
    }

    /// Puts an event right behind a revision of a stream, and nowhere else.
    pub(crate) fn put(
        &self,
        stream: &str,
        after: Option<u64>,
        event: NewEvent,
        doing: &'static str,
    ) -> Result<(), PutError> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        let proposal = Proposal {
            stream: self.named(stream),
            after,
            events: vec![event.clone()],
        };
        let proposals = std::slice::from_ref(&proposal);
        let answers = self.client.append_all(proposals, APPEND_TIMEOUT);
        if answers.iter().all(Result::is_ok) {
            return Ok(());
        }
        let place = after.map_or(0, |after| after.saturating_add(1));
        loop {
            let error = match self.put_once(&proposal, place, &event) {
                Ok(true) => return Ok(()),
                Ok(false) => return Err(PutError::Conflict),
                Err(error) => error,
            };
            if error.is_final() || Instant::now() >= until {
                return Err(PutError::Store(error.writing(doing)));
            }
            sleep(PAUSE);
        }
    }

    /// Returns `false` if another event is at the place.
    fn put_once(
        &self,
        proposal: &Proposal,
        place: u64,
        event: &NewEvent,
    ) -> Result<bool, EventCallError> {
        let stored = |count| {
            let client = &self.client;
            client.read(&proposal.stream, place, count, APPEND_TIMEOUT)
        };
        if let Some(found) = stored(1)?.first() {
            return Ok(event.is(found));
        }
        match self.client.append(proposal, APPEND_TIMEOUT) {
            Ok(_) => Ok(true),
            Err(EventCallError::Conflict) => match stored(1)?.first() {
                Some(found) => Ok(event.is(found)),
                None => Ok(false),
            },
            Err(error) => Err(error),
        }
    }

    /// Puts events at the ends of streams, or finds them there; gives the revision of the first of each.
    pub(crate) fn place(
        &self,
        placements: &[Placement],
        doing: &'static str,
    ) -> Result<Vec<u64>, StoreError> {
        let until = Instant::now() + SETTLE_TIMEOUT;
        let is_small = |it: &&Placement| bytes_of(&it.events) <= MAX_APPEND_BYTES;
        let proposals = placements.iter().filter(is_small).map(|it| Proposal {
            stream: self.named(&it.stream),
            after: it.after,
            events: it.events.clone(),
        });
        let proposals: Vec<Proposal> = proposals.collect();
        let answers = match proposals.is_empty() {
            true => Vec::new(),
            false => self.client.append_all(&proposals, APPEND_TIMEOUT),
        };
        let mut answers = answers.into_iter();
        let mut places = Vec::with_capacity(placements.len());
        for placement in placements {
            let answer = match is_small(&placement) {
                true => answers.next(),
                false => None,
            };
            places.push(match answer {
                Some(Ok(last)) => first_of(last, placement.events.len()),
                Some(Err(_)) | None => self.settle(placement, until, doing)?,
            });
        }
        Ok(places)
    }

    /// Places events one append after the other, after a look at what the stream has.
    fn settle(
        &self,
        placement: &Placement,
        until: Instant,
        doing: &'static str,
    ) -> Result<u64, StoreError> {
        loop {
            match self.settle_once(placement) {
                Ok(first) => return Ok(first),
                Err(error) if error.is_final() || Instant::now() >= until => {
                    return Err(error.writing(doing));
                }
                Err(_) => sleep(PAUSE),
            }
        }
    }

    fn settle_once(&self, placement: &Placement) -> Result<u64, EventCallError> {
        let stream = self.named(&placement.stream);
        let from = placement.after.map_or(0, |after| after.saturating_add(1));
        let found = self.read_behind(&stream, from)?;
        let mut end = match found.last() {
            Some(last) => Some(last.revision),
            None => {
                let last = self.client.last(&stream, APPEND_TIMEOUT)?;
                last.map(|last| last.revision)
            }
        };
        let (mut first, mut rest) = (None, placement.events.as_slice());
        if let Some((at, stored)) = overlap(&found, rest) {
            (first, rest) = (Some(at), rest.get(stored..).unwrap_or_default());
        }
        while !rest.is_empty() {
            let (part, after) = rest.split_at(part_of(rest));
            let proposal = Proposal {
                stream: stream.clone(),
                after: end,
                events: part.to_vec(),
            };
            let last = self.client.append(&proposal, APPEND_TIMEOUT)?;
            first = first.or(Some(first_of(last, part.len())));
            (end, rest) = (Some(last), after);
        }
        Ok(first.unwrap_or_default())
    }

    fn read_behind(&self, stream: &str, from: u64) -> Result<Vec<StoredEvent>, EventCallError> {
        let (mut found, mut from) = (Vec::new(), from);
        loop {
            let page = self.client.read(stream, from, PAGE, APPEND_TIMEOUT)?;
            let Some(last) = page.last() else {
                return Ok(found);
            };
            from = last.revision.saturating_add(1);
            found.extend(page);
        }
    }
}

/// The revision of the first of some events, from that of the last.
fn first_of(last: u64, events: usize) -> u64 {
    last.saturating_add(1).saturating_sub(events as u64)
}

fn bytes_of(events: &[NewEvent]) -> usize {
    let bytes = events.iter().map(|event| event.data.len() + EVENT_BYTES);
    bytes.sum()
}

/// How many of some events an append takes; one at least.
fn part_of(events: &[NewEvent]) -> usize {
    let mut bytes = 0;
    let fits = events.iter().take_while(|event| {
        bytes += event.data.len() + EVENT_BYTES;
        bytes <= MAX_APPEND_BYTES
    });
    fits.count().max(1)
}

/// Where a stream has the first of some events already, and how many: all of them, or those at its end.
fn overlap(found: &[StoredEvent], wanted: &[NewEvent]) -> Option<(u64, usize)> {
    (0..found.len()).find_map(|start| {
        let stored = found.get(start..)?;
        let common = stored.len().min(wanted.len());
        let mut pairs = stored.iter().zip(wanted);
        let first = stored.first()?;
        pairs
            .all(|(stored, wanted)| wanted.is(stored))
            .then_some((first.revision, common))
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use uuid::Uuid;

    use super::*;

    fn wanted(number: u128) -> NewEvent {
        NewEvent {
            id: Uuid::from_u128(number),
            kind: "x",
            data: Bytes::from(number.to_string()),
            metadata: Bytes::new(),
        }
    }

    fn stored(numbers: &[u128]) -> Vec<StoredEvent> {
        let events = numbers.iter().zip(5..);
        events
            .map(|(number, revision)| StoredEvent {
                id: Uuid::from_u128(*number),
                revision,
                data: Bytes::from(number.to_string()),
                metadata: Bytes::new(),
            })
            .collect()
    }

    #[test]
    fn events_that_a_stream_has_already_are_adopted_if_they_are_whole_or_at_its_end() {
        let events = [wanted(1), wanted(2)];
        assert_eq!(overlap(&stored(&[]), &events), None);
        assert_eq!(overlap(&stored(&[1, 2]), &events), Some((5, 2)));
        assert_eq!(overlap(&stored(&[9, 1]), &events), Some((6, 1)));
        assert_eq!(overlap(&stored(&[1, 9, 1, 2, 9]), &events), Some((7, 2)));
        // What is behind the first event is another one: it is not adopted.
        assert_eq!(overlap(&stored(&[1, 9]), &events), None);
        let mut changed = stored(&[1, 2]);
        changed.first_mut().unwrap().data = Bytes::from("x");
        assert_eq!(overlap(&changed, &events), None);
    }
}
