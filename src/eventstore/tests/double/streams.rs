//! What a server keeps, and how it answers appends: by the rules that the protocol's documentation has for
//! expected revisions.

use std::collections::{HashMap, VecDeque};

use super::messages::{AppendOptions, Id, ProposedMessage, StreamIdentifier};

/// The most bytes of an append.
const MAX_APPEND: usize = 1024 * 1024;

/// An event that is kept.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct KeptEvent {
    pub(crate) id: String,
    pub(crate) revision: u64,
    pub(crate) position: u64,
    pub(crate) metadata: HashMap<String, String>,
    pub(crate) custom_metadata: Vec<u8>,
    pub(crate) data: Vec<u8>,
}

#[derive(Debug, Default)]
struct KeptStream {
    events: Vec<KeptEvent>,
    /// Events before this revision are not read.
    begin: u64,
    max_count: Option<usize>,
    is_tombstone: bool,
}

/// What becomes of an append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fate {
    /// It is stored, and the answer is lost with the connection.
    ReplyLost,
    /// It is lost on the way.
    RequestLost,
    /// It is stored, and from then on nothing is answered until the test says so.
    StoredThenSilent,
    /// The server says that it took too long, and has stored it.
    DeadlineStored,
    /// The server says that it took too long, and stores it later: when the test says so.
    Late,
}

/// Why an append was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AppendFault {
    Conflict { current: Option<u64> },
    TooLarge,
    Deleted,
}

/// The outcome of an append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DoubleAnswer {
    Stored {
        last: u64,
        position: u64,
    },
    AppendFault(AppendFault),
    /// The connection ends.
    Nothing,
    /// It took too long.
    Deadline,
}

/// An append as it arrives.
#[derive(Debug, Clone)]
pub(crate) struct Arrived {
    pub(crate) options: AppendOptions,
    pub(crate) events: Vec<ProposedMessage>,
}

/// What the servers of a cluster keep.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    streams: HashMap<String, KeptStream>,
    position: u64,
    /// What becomes of the next append to a stream whose name ends so.
    fates: VecDeque<(String, Fate)>,
    held: Vec<Arrived>,
    pub(crate) appends: u64,
    /// True while nothing can be asked.
    pub(crate) is_silent: bool,
    /// True while nothing can be deleted.
    pub(crate) keeps_all: bool,
}

impl Kept {
    pub(crate) fn expect(&mut self, stream: &str, fate: Fate) {
        self.fates.push_back((stream.to_owned(), fate));
    }

    /// What becomes of an append that has arrived.
    pub(crate) fn take(&mut self, arrived: Arrived) -> DoubleAnswer {
        self.appends += 1;
        if self.is_silent {
            return DoubleAnswer::Nothing;
        }
        let stream = StreamIdentifier::name(&arrived.options.stream);
        let found = self.fates.iter().position(|(end, _)| stream.ends_with(end));
        let fate = found.and_then(|at| self.fates.remove(at));
        match fate.map(|(_, fate)| fate) {
            None => self.append(&arrived),
            Some(Fate::ReplyLost) => {
                self.append(&arrived);
                DoubleAnswer::Nothing
            }
            Some(Fate::RequestLost) => DoubleAnswer::Nothing,
            Some(Fate::StoredThenSilent) => {
                self.append(&arrived);
                self.is_silent = true;
                DoubleAnswer::Nothing
            }
            Some(Fate::DeadlineStored) => {
                self.append(&arrived);
                DoubleAnswer::Deadline
            }
            Some(Fate::Late) => {
                self.held.push(arrived);
                DoubleAnswer::Deadline
            }
        }
    }

    /// Stores what is late.
    pub(crate) fn land(&mut self) -> Vec<DoubleAnswer> {
        let held = std::mem::take(&mut self.held);
        held.iter().map(|arrived| self.append(arrived)).collect()
    }

    fn append(&mut self, arrived: &Arrived) -> DoubleAnswer {
        let bytes = arrived.events.iter();
        let bytes = bytes.map(|event| event.data.len() + event.custom_metadata.len());
        if bytes.sum::<usize>() > MAX_APPEND {
            return DoubleAnswer::AppendFault(AppendFault::TooLarge);
        }
        let name = StreamIdentifier::name(&arrived.options.stream);
        if name.starts_with("$$") {
            return self.set_metadata(&name, arrived);
        }
        let stream = self.streams.entry(name).or_default();
        if stream.is_tombstone {
            return DoubleAnswer::AppendFault(AppendFault::Deleted);
        }
        let current = (stream.events.len() as u64).checked_sub(1);
        let is_deleted = stream.begin > 0 && stream.begin == stream.events.len() as u64;
        let options = &arrived.options;
        let expected = match (options.revision, options.no_stream) {
            (Some(revision), _) => Some(Some(revision)),
            (None, Some(_)) => Some(None),
            (None, None) => None,
        };
        if let Some(expected) = expected
            && expected != current
            && !(expected.is_none() && is_deleted)
        {
            return stream.known(expected, current, arrived);
        }
        for event in &arrived.events {
            // Positions of a server are places in its log: never dense.
            self.position += 173 + event.data.len() as u64;
            stream.events.push(KeptEvent {
                id: Id::text(&event.id),
                revision: stream.events.len() as u64,
                position: self.position,
                metadata: event.metadata.clone(),
                custom_metadata: event.custom_metadata.clone(),
                data: event.data.clone(),
            });
        }
        DoubleAnswer::Stored {
            last: (stream.events.len() as u64).saturating_sub(1),
            position: self.position,
        }
    }

    fn set_metadata(&mut self, name: &str, arrived: &Arrived) -> DoubleAnswer {
        let data = arrived.events.first().map(|event| event.data.clone());
        let set: serde_json::Value = serde_json::from_slice(&data.unwrap()).unwrap();
        let stream = name.trim_start_matches("$$").to_owned();
        let count = set["$maxCount"].as_u64().map(|count| count as usize);
        self.streams.entry(stream).or_default().max_count = count;
        DoubleAnswer::Stored {
            last: 0,
            position: self.position,
        }
    }

    pub(crate) fn delete(&mut self, name: &str, for_good: bool) -> bool {
        let Some(stream) = self.streams.get_mut(name) else {
            return false;
        };
        stream.begin = stream.events.len() as u64;
        stream.is_tombstone |= for_good;
        true
    }

    /// What a reader sees of a stream; `None` if there is none, and an error if it was deleted for good.
    pub(crate) fn seen(&self, name: &str) -> Result<Option<&[KeptEvent]>, AppendFault> {
        let Some(stream) = self.streams.get(name) else {
            return Ok(None);
        };
        if stream.is_tombstone {
            return Err(AppendFault::Deleted);
        }
        let events = stream.events.as_slice();
        let kept = stream.max_count.unwrap_or(usize::MAX);
        let begin = (stream.begin as usize).max(events.len().saturating_sub(kept));
        let seen = &events[begin..];
        Ok(Some(seen).filter(|seen| !seen.is_empty()))
    }

    /// Changes what is kept, as no server does.
    pub(crate) fn change(&mut self, name: &str, change: impl FnOnce(&mut Vec<KeptEvent>)) {
        change(&mut self.streams.get_mut(name).unwrap().events);
    }

    /// Begins anew, as another server.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.streams.keys().cloned().collect()
    }
}

impl KeptStream {
    /// An append for another end than the stream has: all of it is there already, or it conflicts.
    fn known(
        &self,
        expected: Option<u64>,
        current: Option<u64>,
        arrived: &Arrived,
    ) -> DoubleAnswer {
        let begin = expected.map_or(0, |revision| revision + 1) as usize;
        let stored = self.events.get(begin..).unwrap_or_default();
        let wanted = arrived.events.iter().map(|event| Id::text(&event.id));
        let same = stored.len() >= arrived.events.len()
            && stored
                .iter()
                .map(|event| event.id.clone())
                .zip(wanted)
                .all(|(a, b)| a == b);
        match stored.get(arrived.events.len().saturating_sub(1)) {
            Some(last) if same => DoubleAnswer::Stored {
                last: last.revision,
                position: last.position,
            },
            Some(_) | None => DoubleAnswer::AppendFault(AppendFault::Conflict { current }),
        }
    }
}
