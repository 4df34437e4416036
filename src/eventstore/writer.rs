//! Writing: the frames of a group to their streams, and then one order event that commits them.
//!
//! ```text
//! local copy   BEGIN, check, insert ─────────────────────────────┐ COMMIT
//! server                              blobs ─▶ frames ─▶ order event
//! ```
//!
//! What is checked is the local copy, which has exactly what the order stream has before the revision at
//! which the event is appended. Where that revision is taken by another event nothing was committed: the
//! frames are orphans then, which no reader looks at, and which are adopted where they are appended again.

use std::collections::HashMap;
use std::sync::Arc;

use ktsu_ledger::store::{
    AppendRefusal, Backlog, IndexRow, Lease, Maintenance, MirrorChange, OwnerState, WalCheckpoint,
};
use ktsu_ledger::{Blob, Entry, Epoch, Hash, StoreError, StreamId};

use crate::beat::Beat;
use crate::content::{blob_events, blob_stream, chunks_of, frame_event};
use crate::copy::{CopyNote, LocalCopy};
use crate::log::{EventLog, PAGE, Placement, PutError};
use crate::order::{ListedBlob, ListedEntry, ListedRow, MAX_ORDER_BYTES, ORDER, OrderEvent};
use crate::shared::SharedLedger;

/// What is done when a group is not stored.
const APPENDING: &str = "append to the ledger";
/// What is done when the ledger is not acquired.
const ACQUIRING: &str = "become the owner of the ledger";
/// How many streams are remembered.
const MAX_ENDS: usize = 65_536;
/// How often a process tries to become the owner while others do, too.
const MAX_ATTEMPTS: usize = 5;

/// The end of a ledger that writes.
pub(crate) struct EventWriter {
    pub(crate) shared: Arc<SharedLedger>,
    /// The state in which the ledger was free, if its owner is to be the next one after that.
    free: Option<OwnerState>,
    epoch: Option<Epoch>,
    /// The revision of the last beat, as far as it is known.
    beat: Option<u64>,
    url: String,
    /// The revisions of the last events of streams.
    ends: HashMap<StreamId, u64>,
    /// False once it is not known what was stored.
    is_settled: bool,
}

impl Drop for EventWriter {
    fn drop(&mut self) {
        if self.epoch.is_some() {
            self.shared.set_current(false);
        }
    }
}

impl EventWriter {
    pub(crate) fn new(shared: Arc<SharedLedger>, free: Option<OwnerState>) -> Self {
        Self {
            shared,
            free,
            epoch: None,
            beat: None,
            url: String::new(),
            ends: HashMap::new(),
            is_settled: true,
        }
    }

    fn owner_log(&self) -> &EventLog {
        &self.shared.owner_log
    }

    /// Brings the local copy up to date after an append of which nothing is known; returns `true` if there
    /// was one.
    pub(crate) fn settle(&self) -> Result<bool, StoreError> {
        match self.is_settled {
            true => Ok(false),
            false => unknown(self.shared.synced(self.owner_log(), |_| Ok(true))),
        }
    }

    /// Raises the epoch.
    pub(crate) fn acquire(&mut self) -> Result<Epoch, StoreError> {
        let free = self.free.take();
        let shared = Arc::clone(&self.shared);
        for _ in 0..MAX_ATTEMPTS {
            let acquired = shared.synced(&shared.owner_log, |copy| {
                self.acquire_once(copy, free.as_ref())
            });
            match acquired {
                Ok(Some(epoch)) => return Ok(epoch),
                Ok(None) => {}
                // Nothing was appended: another attempt finds out.
                Err(StoreError::Unknown(why)) => {
                    return Err(StoreError::Unreachable {
                        doing: ACQUIRING,
                        why,
                    });
                }
                Err(error) => return Err(error),
            }
        }
        Err(StoreError::failed(ACQUIRING, "other processes do, too"))
    }

    /// Returns `None` if another process was faster, and this one may try again.
    fn acquire_once(
        &mut self,
        copy: &mut LocalCopy,
        free: Option<&OwnerState>,
    ) -> Result<Option<Epoch>, StoreError> {
        let last = Beat::last(self.owner_log())?;
        let (beat, beaten) = last.map_or((None, 0), |(at, beat)| (Some(at), beat.epoch));
        let stored = copy.note.epoch.max(beaten);
        let seen = (
            copy.note.next.saturating_sub(1),
            beat.map_or(0, |beat| beat.saturating_add(1)),
        );
        let ours = match (self.epoch, free) {
            (Some(Epoch(ours)), _) if ours != stored => Some(ours),
            (None, Some(free)) if (free.head, free.beat) != seen => Some(free.epoch),
            _ => None,
        };
        if let Some(ours) = ours {
            return Err(StoreError::Fenced { ours, stored });
        }
        let epoch = Epoch(stored.saturating_add(1));
        let is_exact = self.epoch.is_some() || free.is_some();
        let overtaken = || match is_exact {
            true => Err(StoreError::Fenced {
                ours: stored,
                stored: epoch.0,
            }),
            false => Ok(None),
        };
        let beat = match Beat::of(epoch, &self.url).write(self.owner_log(), beat) {
            Ok(beat) => beat,
            Err(PutError::Conflict) => return overtaken(),
            Err(PutError::Store(error)) => return Err(error),
        };
        let event = OrderEvent::Owned { epoch: epoch.0 };
        let note = match publish(self.owner_log(), &copy.note, &event) {
            Ok(note) => note,
            Err(PutError::Conflict) => return overtaken(),
            Err(PutError::Store(error)) => return Err(error),
        };
        copy.mirror.put_note(&note.text()?, epoch.0)?;
        copy.note = note;
        (self.epoch, self.beat) = (Some(epoch), Some(beat));
        self.ends.clear();
        self.is_settled = true;
        self.erase(copy);
        self.shared.set_current(true);
        Ok(Some(epoch))
    }

    /// Does something as the owner, with a local copy that has all there is. After an error nothing is
    /// known of what was stored.
    fn owning<T>(
        &mut self,
        epoch: Epoch,
        work: impl FnOnce(&mut Self, &mut LocalCopy) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.settle()?;
        let shared = Arc::clone(&self.shared);
        let mut guard = shared.copy()?;
        let copy = guard.as_mut().ok_or_else(crate::shared::gone)?;
        let stored = copy.note.epoch;
        if stored != epoch.0 {
            let Epoch(ours) = epoch;
            return Err(StoreError::Fenced { ours, stored });
        }
        let done = work(self, copy);
        self.is_settled = done.is_ok();
        self.shared.set_current(done.is_ok());
        if done.is_err() {
            self.ends.clear();
        }
        done
    }

    /// See [`ktsu_ledger::Store::append`].
    pub(crate) fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        self.owning(epoch, |writer, copy| {
            let mut note = copy.note.clone();
            let change = copy.mirror.append(entries, &mut |change| {
                note = writer.commit(&note, entries, change)?;
                note.text().map(Some)
            })?;
            copy.note = note;
            if !change.deleted.is_empty() {
                writer.erase(copy);
            }
            Ok(change.results)
        })
    }

    /// Stores on the server what the entries change; gives the note after it.
    fn commit(
        &mut self,
        note: &CopyNote,
        entries: &[Entry],
        change: &MirrorChange,
    ) -> Result<CopyNote, StoreError> {
        let accepted = entries.iter().zip(&change.results);
        let accepted = accepted.filter(|(_, result)| result.is_ok());
        let accepted: Vec<&Entry> = accepted.map(|(entry, _)| entry).collect();
        if accepted.is_empty() {
            self.must_be_last(note)?;
            return Ok(note.clone());
        }
        let blobs = self.store_blobs(&accepted, change)?;
        let places = self.store_frames(&accepted)?;
        let mut note = note.clone();
        let (mut group, mut bytes, mut sent) = (Vec::new(), 0, blobs);
        for (entry, at) in accepted.iter().zip(places) {
            let new = entry
                .blobs()
                .iter()
                .filter_map(|blob| sent.remove(&blob.hash));
            let listed = ListedEntry::of(entry, at, new.collect(), change);
            if bytes + listed.bytes() > MAX_ORDER_BYTES && !group.is_empty() {
                note = self.commit_group(&note, std::mem::take(&mut group))?;
                bytes = 0;
            }
            bytes += listed.bytes();
            group.push(listed);
        }
        self.commit_group(&note, group)
    }

    fn commit_group(
        &self,
        note: &CopyNote,
        entries: Vec<ListedEntry>,
    ) -> Result<CopyNote, StoreError> {
        let event = OrderEvent::Appended {
            epoch: note.epoch,
            after: note.position,
            entries,
        };
        self.published(note, &event)
    }

    /// Stores the blobs that the ledger does not have.
    fn store_blobs(
        &self,
        entries: &[&Entry],
        change: &MirrorChange,
    ) -> Result<HashMap<Hash, ListedBlob>, StoreError> {
        let brought = entries.iter().flat_map(|entry| entry.blobs());
        let new: HashMap<Hash, &Blob> = brought
            .filter(|blob| change.new_blobs.contains(&blob.hash))
            .map(|blob| (blob.hash, blob))
            .collect();
        let placements = new.values().map(|blob| Placement {
            stream: blob_stream(&blob.hash),
            after: None,
            events: blob_events(blob),
        });
        let placements: Vec<Placement> = placements.collect();
        let places = self.owner_log().place(&placements, APPENDING)?;
        let listed = new.values().zip(places).map(|(blob, at)| {
            let (hash, chunks) = (blob.hash, chunks_of(blob));
            (hash, ListedBlob { hash, at, chunks })
        });
        Ok(listed.collect())
    }

    /// Stores the frames, one append for a stream; gives the revision of the first of each entry.
    fn store_frames(&mut self, entries: &[&Entry]) -> Result<Vec<u64>, StoreError> {
        let mut placements: Vec<Placement> = Vec::new();
        let mut known: HashMap<&StreamId, usize> = HashMap::new();
        let mut offsets = Vec::with_capacity(entries.len());
        for entry in entries {
            let events = entry.records().iter().map(frame_event);
            let index = match known.get(entry.stream()) {
                Some(index) => *index,
                None => {
                    placements.push(Placement {
                        stream: entry.stream().to_string(),
                        after: self.end_of(entry)?,
                        events: Vec::new(),
                    });
                    known.insert(entry.stream(), placements.len() - 1);
                    placements.len() - 1
                }
            };
            let Some(placement) = placements.get_mut(index) else {
                continue;
            };
            offsets.push((index, placement.events.len() as u64));
            placement.events.extend(events);
        }
        let places = self.owner_log().place(&placements, APPENDING)?;
        if self.ends.len() + known.len() > MAX_ENDS {
            self.ends.clear();
        }
        for (stream, index) in known {
            if let (Some(at), Some(placement)) = (places.get(index), placements.get(index)) {
                let end = at.saturating_add(placement.events.len() as u64);
                self.ends.insert(stream.clone(), end.saturating_sub(1));
            }
        }
        let places = offsets.into_iter().map(|(index, offset)| {
            let at = places.get(index).copied().unwrap_or_default();
            at.saturating_add(offset)
        });
        Ok(places.collect())
    }

    /// The revision that a stream is taken to end with; where it does not, that is found out.
    fn end_of(&self, entry: &Entry) -> Result<Option<u64>, StoreError> {
        if let Some(end) = self.ends.get(entry.stream()) {
            return Ok(Some(*end));
        }
        if entry.forked_from().is_none() && entry.stream().kind() == "branch" {
            let last = unknown(self.owner_log().last(entry.stream().as_str()))?;
            return Ok(last.map(|last| last.revision));
        }
        Ok(entry.expected().filter(|_| entry.forked_from().is_none()))
    }

    /// Makes an order event the next one; gives the note after it.
    fn published(&self, note: &CopyNote, event: &OrderEvent) -> Result<CopyNote, StoreError> {
        match publish(self.owner_log(), note, event) {
            Ok(note) => Ok(note),
            Err(PutError::Conflict) => Err(self.overtaken(note)),
            Err(PutError::Store(error)) => Err(error),
        }
    }

    /// Makes sure that no other process has appended an order event.
    fn must_be_last(&self, note: &CopyNote) -> Result<(), StoreError> {
        match unknown(self.owner_log().read(ORDER, note.next, 1))?.is_empty() {
            true => Ok(()),
            false => Err(self.overtaken(note)),
        }
    }

    /// The error of an owner whose place in the order stream is taken.
    fn overtaken(&self, note: &CopyNote) -> StoreError {
        let (ours, mut from) = (note.epoch, note.next);
        loop {
            let page = match self.owner_log().read(ORDER, from, PAGE) {
                Ok(page) => page,
                Err(error) => return unknown::<()>(Err(error)).err().unwrap_or_else(late),
            };
            let Some(last) = page.last() else {
                return late();
            };
            from = last.revision.saturating_add(1);
            for stored in &page {
                match OrderEvent::of(stored) {
                    Ok(OrderEvent::Owned { epoch: stored }) => {
                        return StoreError::Fenced { ours, stored };
                    }
                    Ok(_) => {}
                    Err(error) => return error,
                }
            }
        }
    }

    /// Deletes from its streams what was removed. Where this fails, the next owner does it.
    fn erase(&self, copy: &mut LocalCopy) {
        if copy.note.removed <= copy.note.erased {
            return;
        }
        // Everything is durable, and no reader sees what is left.
        let _ = self.try_erase(copy);
    }

    fn try_erase(&self, copy: &mut LocalCopy) -> Result<(), StoreError> {
        let (mut from, end) = (copy.note.erased, copy.note.removed);
        while from < end {
            let page = self.owner_log().read(ORDER, from, PAGE)?;
            let Some(last) = page.last() else {
                break;
            };
            from = last.revision.saturating_add(1);
            for stored in &page {
                let OrderEvent::Appended { entries, .. } = OrderEvent::of(stored)? else {
                    continue;
                };
                for removal in entries.iter().flat_map(|entry| &entry.removed) {
                    self.owner_log().tombstone(removal.stream.as_str())?;
                    for hash in &removal.blobs {
                        // It may have come again.
                        if copy.mirror.view().blob_get(hash)?.is_none() {
                            self.owner_log().delete(&blob_stream(hash))?;
                        }
                    }
                }
            }
        }
        let event = OrderEvent::Erased {
            epoch: copy.note.epoch,
            before: end,
        };
        let note = self.published(&copy.note, &event)?;
        copy.mirror.put_note(&note.text()?, note.epoch)?;
        copy.note = note;
        Ok(())
    }

    fn change_rows(
        &mut self,
        epoch: Epoch,
        clear: bool,
        rows: &[IndexRow],
    ) -> Result<(), StoreError> {
        self.owning(epoch, |writer, copy| {
            let mut note = copy.note.clone();
            copy.mirror.change_rows(clear, rows, &mut || {
                let (mut clear, mut part, mut bytes) = (clear, Vec::new(), 0);
                for row in rows.iter().map(ListedRow::from) {
                    if bytes + row.bytes() > MAX_ORDER_BYTES && !part.is_empty() {
                        note = writer.commit_rows(&note, clear, std::mem::take(&mut part))?;
                        (clear, bytes) = (false, 0);
                    }
                    bytes += row.bytes();
                    part.push(row);
                }
                note = writer.commit_rows(&note, clear, part)?;
                note.text()
            })?;
            copy.note = note;
            Ok(())
        })
    }

    fn commit_rows(
        &self,
        note: &CopyNote,
        clear: bool,
        rows: Vec<ListedRow>,
    ) -> Result<CopyNote, StoreError> {
        let epoch = note.epoch;
        self.published(note, &OrderEvent::Rows { epoch, clear, rows })
    }

    fn beat_as(&mut self, epoch: Epoch, beat: &Beat) -> Result<(), StoreError> {
        if self.epoch != Some(epoch) {
            let stored = self.epoch.map_or(0, |Epoch(epoch)| epoch);
            let Epoch(ours) = epoch;
            return Err(StoreError::Fenced { ours, stored });
        }
        match beat.write(self.owner_log(), self.beat) {
            Ok(revision) => {
                self.beat = Some(revision);
                Ok(())
            }
            Err(PutError::Store(error)) => Err(error),
            Err(PutError::Conflict) => Err(self.beaten(epoch)?),
        }
    }

    /// The error of an owner whose place among the beats is taken: by another owner, or by a beat of its
    /// own that came late.
    fn beaten(&mut self, Epoch(ours): Epoch) -> Result<StoreError, StoreError> {
        let last = unknown(Beat::last(self.owner_log()))?;
        let (revision, stored) = last.map_or((None, 0), |(at, beat)| (Some(at), beat.epoch));
        if stored == ours {
            self.beat = revision;
            return Ok(late());
        }
        self.shared.set_current(false);
        Ok(StoreError::Fenced { ours, stored })
    }
}

/// Makes an order event the next one.
fn publish(log: &EventLog, note: &CopyNote, event: &OrderEvent) -> Result<CopyNote, PutError> {
    let made = event.at(note.next).map_err(PutError::Store)?;
    let stored = crate::client::StoredEvent {
        id: made.id,
        revision: note.next,
        data: made.data.clone(),
        metadata: made.metadata.clone(),
    };
    let after = note.after(&stored, event).map_err(PutError::Store)?;
    log.put(ORDER, note.next.checked_sub(1), made, APPENDING)?;
    Ok(after)
}

/// The error of an owner that finds a message of its own that came late.
fn late() -> StoreError {
    StoreError::Unknown("an earlier message came late".to_owned())
}

/// An answer that an owner needs to know what is stored: without it, that is not known.
fn unknown<T>(answer: Result<T, StoreError>) -> Result<T, StoreError> {
    answer.map_err(|error| match error {
        StoreError::Unreachable { why, .. } => StoreError::Unknown(why),
        error => error,
    })
}

impl Lease for EventWriter {
    fn set_url(&mut self, url: &str) {
        url.clone_into(&mut self.url);
    }

    fn beat(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        let beat = Beat::of(epoch, &self.url);
        self.beat_as(epoch, &beat)
    }

    fn release(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.shared.set_current(false);
        self.beat_as(epoch, &Beat::farewell(epoch))
    }
}

impl Maintenance for EventWriter {
    fn backlog(&self) -> u64 {
        0
    }

    fn checkpoint(&mut self, _kind: WalCheckpoint) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    fn abandon(&mut self) {}

    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        self.change_rows(epoch, true, &[])
    }

    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        self.change_rows(epoch, false, rows)
    }
}
