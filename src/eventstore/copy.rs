//! The local copy of a ledger: fed from its order stream, event by event.

use std::collections::HashSet;
use std::path::PathBuf;

use ktsu_ledger::removal::Removal;
use ktsu_ledger::store::SqliteMirror;
use ktsu_ledger::{Entry, Hash, IndexRow, StoreError, StreamId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::cache::CacheFolder;
use crate::client::StoredEvent;
use crate::content::{blob_bytes, blob_of, record_of};
use crate::fetch::{Fetched, fetch, window};
use crate::log::{EventLog, PAGE};
use crate::order::{ListedEntry, ORDER, OrderEvent};

/// How far a ledger was copied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CopyNote {
    /// The ledger that it is a copy of.
    pub(crate) ledger: String,
    /// The revision of the next order event.
    pub(crate) next: u64,
    /// The id of the last one.
    pub(crate) last: Uuid,
    pub(crate) epoch: u64,
    /// The position of the last frame.
    pub(crate) position: u64,
    /// The revision behind the last order event that removes something.
    pub(crate) removed: u64,
    /// The revision up to which what was removed is deleted from its streams.
    pub(crate) erased: u64,
    /// True while the copy has a part of the next order event.
    #[serde(default)]
    pub(crate) is_partial: bool,
}

impl CopyNote {
    pub(crate) fn text(&self) -> Result<String, StoreError> {
        let text = serde_json::to_string(self);
        text.map_err(|error| StoreError::failed("write to the local copy", error))
    }

    /// The note after an order event; refuses one that does not follow.
    pub(crate) fn after(
        &self,
        stored: &StoredEvent,
        event: &OrderEvent,
    ) -> Result<Self, StoreError> {
        let mut note = self.clone();
        note.is_partial = false;
        if stored.revision != self.next {
            return Err(misplaced(stored, "events before it are gone"));
        }
        note.next = self.next.saturating_add(1);
        note.last = stored.id;
        let epoch = match event {
            OrderEvent::Made { ledger, .. } => {
                if self.next > 0 {
                    return Err(misplaced(stored, "the ledger was made before"));
                }
                note.ledger.clone_from(ledger);
                return Ok(note);
            }
            OrderEvent::Owned { epoch } => {
                if *epoch <= self.epoch {
                    return Err(misplaced(stored, "epochs only rise"));
                }
                note.epoch = *epoch;
                return Ok(note);
            }
            OrderEvent::Appended {
                epoch,
                after,
                entries,
            } => {
                if *after != self.position {
                    return Err(misplaced(
                        stored,
                        "it does not follow from the position before",
                    ));
                }
                let frames = entries.iter().map(|entry| entry.frames);
                note.position = frames.fold(note.position, u64::saturating_add);
                if entries.iter().any(|entry| !entry.removed.is_empty()) {
                    note.removed = note.next;
                }
                epoch
            }
            OrderEvent::Rows { epoch, .. } => epoch,
            OrderEvent::Erased { epoch, before } => {
                note.erased = note.erased.max(*before);
                epoch
            }
        };
        match *epoch == self.epoch && self.next > 0 {
            true => Ok(note),
            false => Err(misplaced(stored, "it is of another epoch")),
        }
    }
}

/// The error of an order event that cannot be at its place.
fn misplaced(stored: &StoredEvent, why: &str) -> StoreError {
    StoreError::Damaged(format!("{ORDER}@{}: {why}", stored.revision))
}

/// What later order events remove.
#[derive(Debug, Default)]
struct Doomed {
    streams: HashSet<StreamId>,
    blobs: HashSet<Hash>,
}

/// The local copy.
#[derive(Debug)]
pub(crate) struct LocalCopy {
    pub(crate) mirror: SqliteMirror,
    pub(crate) note: CopyNote,
    path: PathBuf,
    /// Known once something was missing.
    doomed: Option<Doomed>,
}

impl LocalCopy {
    /// Opens the copy of a ledger that this process uses. One of another ledger is thrown away.
    pub(crate) fn open(folder: &CacheFolder, log: &EventLog) -> Result<Self, StoreError> {
        let ledger = ledger_id(log)?;
        let (mirror, path) = folder.open()?;
        let note = match mirror.note()? {
            Some(text) => serde_json::from_str(&text).unwrap_or_default(),
            None => CopyNote::default(),
        };
        let is_new = note == CopyNote::default();
        if is_new || note.ledger == ledger && !note.is_partial {
            return Ok(Self {
                mirror,
                note,
                path,
                doomed: None,
            });
        }
        drop(mirror);
        Ok(Self {
            mirror: CacheFolder::remake(&path)?,
            note: CopyNote::default(),
            path,
            doomed: None,
        })
    }

    /// Copies what the order stream has behind what was copied.
    pub(crate) fn sync(&mut self, log: &EventLog) -> Result<(), StoreError> {
        let mut page = self.continuation(log)?;
        while !page.is_empty() {
            self.apply_page(log, &page)?;
            page = log.read(ORDER, self.note.next, PAGE)?;
        }
        self.doomed = None;
        Ok(())
    }

    /// The order events behind those that were copied. Refuses a ledger that is not what it was when it was
    /// copied: one that was restored from an old backup, or whose server has lost what it acknowledged.
    fn continuation(&self, log: &EventLog) -> Result<Vec<StoredEvent>, StoreError> {
        let Some(last) = self.note.next.checked_sub(1) else {
            return log.read(ORDER, 0, PAGE);
        };
        let mut found = log.read(ORDER, last, PAGE)?.into_iter();
        match found.next() {
            Some(event) if event.id == self.note.last => Ok(found.collect()),
            Some(_) | None => Err(StoreError::Damaged(format!(
                "it has lost what this machine has seen of it, {} frames; if that is known, remove {} \
                 and start again",
                self.note.position,
                self.path.display()
            ))),
        }
    }

    fn apply_page(&mut self, log: &EventLog, page: &[StoredEvent]) -> Result<(), StoreError> {
        let mut events = Vec::with_capacity(page.len());
        for stored in page {
            events.push((stored, OrderEvent::of(stored)?));
        }
        let listed = events.iter().filter_map(|(_, event)| match event {
            OrderEvent::Appended { entries, .. } => Some(entries),
            _ => None,
        });
        let listed: Vec<&ListedEntry> = listed.flatten().collect();
        let (mut fetched, mut left, mut rest) = (Fetched::default(), 0, listed.as_slice());
        for (stored, event) in &events {
            let note = self.note.after(stored, event)?;
            if let OrderEvent::Appended { entries, .. } = event {
                let mut batch = Batch::default();
                for entry in entries {
                    if left == 0 {
                        let (now, later) = rest.split_at(window(rest));
                        (fetched, left, rest) = (fetch(log, now, true)?, now.len(), later);
                    }
                    left -= 1;
                    self.take(log, entry, &fetched, &mut batch)?;
                }
                self.append(batch, &note)?;
            } else {
                self.apply(event, &note)?;
            }
            self.note = note;
        }
        Ok(())
    }

    /// Applies an order event that lists no frames.
    fn apply(&mut self, event: &OrderEvent, note: &CopyNote) -> Result<(), StoreError> {
        let text = note.text()?;
        match event {
            OrderEvent::Rows { clear, rows, .. } => {
                let rows: Vec<IndexRow> = rows.iter().map(IndexRow::from).collect();
                let mut commit = || Ok(text.clone());
                self.mirror.change_rows(*clear, &rows, &mut commit)
            }
            _ => self.mirror.put_note(&text, note.epoch),
        }
    }

    /// Takes the frames and blobs of an entry into a batch.
    fn take(
        &mut self,
        log: &EventLog,
        listed: &ListedEntry,
        fetched: &Fetched,
        batch: &mut Batch,
    ) -> Result<(), StoreError> {
        let frames = fetched.frames(listed);
        if frames.len() as u64 != listed.frames {
            let doomed = self.doomed(log)?;
            if !doomed.streams.contains(&listed.stream) {
                let words = format!("{}#{} is gone from the server", listed.stream, listed.seq);
                return Err(StoreError::Damaged(words));
            }
            self.note.is_partial = true;
            let partial = self.note.text()?;
            self.mirror.put_note(&partial, self.note.epoch)?;
            // The frames before it have to be there first.
            let before = std::mem::take(batch);
            self.append_noting(&before, None)?;
            let frames = (listed.seq, listed.frames);
            return self.mirror.skip(&listed.stream, frames, listed.hash);
        }
        let mut records = Vec::with_capacity(frames.len());
        for (event, seq) in frames.into_iter().zip(listed.seq..) {
            records.push(record_of(event, seq)?);
        }
        let mut blobs = Vec::new();
        for blob in &listed.blobs {
            let chunks = fetched.chunks(blob);
            let is_whole = chunks.len() as u64 == blob.chunks;
            if !is_whole && self.doomed(log)?.blobs.contains(&blob.hash) {
                continue;
            }
            blobs.push(blob_of(blob.hash, blob_bytes(chunks.into_iter()))?);
        }
        batch.0.push(entry_of(listed, records, blobs)?);
        Ok(())
    }

    /// Appends what a batch has, as an order event lists it.
    fn append(&mut self, batch: Batch, note: &CopyNote) -> Result<(), StoreError> {
        let text = note.text()?;
        self.append_noting(&batch, Some(text))
    }

    fn append_noting(&mut self, batch: &Batch, note: Option<String>) -> Result<(), StoreError> {
        let change = self.mirror.append(&batch.0, &mut |change| {
            let refused = change.results.iter().find_map(|it| it.as_ref().err());
            match refused {
                Some(refused) => {
                    let words = format!("{ORDER} lists what cannot be appended: {refused}");
                    Err(StoreError::Damaged(words))
                }
                None => Ok(note.clone()),
            }
        });
        change.map(drop)
    }

    /// What the order stream removes behind what was copied.
    fn doomed(&mut self, log: &EventLog) -> Result<&Doomed, StoreError> {
        if self.doomed.is_none() {
            let mut doomed = Doomed::default();
            let mut from = self.note.next;
            loop {
                let page = log.read(ORDER, from, PAGE)?;
                let Some(last) = page.last() else {
                    break;
                };
                from = last.revision.saturating_add(1);
                for stored in &page {
                    if let OrderEvent::Appended { entries, .. } = OrderEvent::of(stored)? {
                        for removal in entries.into_iter().flat_map(|entry| entry.removed) {
                            doomed.streams.insert(removal.stream);
                            doomed.blobs.extend(removal.blobs);
                        }
                    }
                }
            }
            self.doomed = Some(doomed);
        }
        Ok(self.doomed.get_or_insert_default())
    }
}

/// Entries that are appended to the copy together.
#[derive(Debug, Default)]
struct Batch(Vec<Entry>);

/// An entry as it was appended.
fn entry_of(
    listed: &ListedEntry,
    records: Vec<ktsu_ledger::Record>,
    blobs: Vec<ktsu_ledger::Blob>,
) -> Result<Entry, StoreError> {
    let damaged = |why: &dyn std::fmt::Display| {
        let words = format!("{}#{}: {why}", listed.stream, listed.seq);
        StoreError::Damaged(words)
    };
    let entry = Entry::from_records(&listed.stream, records, blobs);
    let mut entry = entry.map_err(|error| damaged(&error))?;
    if entry.tail().hash != listed.hash {
        return Err(damaged(&"its frames are not those that were appended"));
    }
    if let Some(row) = listed.row.as_ref().map(IndexRow::from) {
        entry = entry.with_index(row).map_err(|error| damaged(&error))?;
    }
    let removals = listed.removed.iter().map(|removal| Removal {
        stream: removal.stream.clone(),
        // What was deleted is known: nothing is looked for.
        read_to: u64::MAX,
        blobs: removal.blobs.clone(),
    });
    let removals: Vec<Removal> = removals.collect();
    entry
        .with_removals(removals)
        .map_err(|error| damaged(&error))
}

/// The name of the ledger of a server.
pub(crate) fn ledger_id(log: &EventLog) -> Result<String, StoreError> {
    let found = log.read(ORDER, 0, 1)?;
    let made = found.first().map(OrderEvent::of).transpose()?;
    match made {
        Some(OrderEvent::Made { ledger, .. }) => Ok(ledger),
        Some(_) => Err(StoreError::Damaged(format!(
            "{ORDER}@0 is not its beginning"
        ))),
        None => Err(StoreError::failed(
            "open the ledger",
            "there is none at this address; `ktsu ledger init` makes it",
        )),
    }
}
