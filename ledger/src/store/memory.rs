//! A ledger that lives as long as the process: for tests and `--ephemeral`.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use parking_lot::Mutex;

use super::precondition::{StoreView, check, unnamed_blobs};
use super::{
    AppendRefusal, Audit, Backlog, Cursor, Entry, Epoch, Filter, IndexRow, Inspection, MAX_PAGE,
    Maintenance, PAGE_BYTES, Page, RawBlob, RawFrame, Reader, StandIn, Store, StoreError, Tail,
    WalCheckpoint,
};
use crate::canonical::CanonicalJson;
use crate::event::{Event, StoreEvent};
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;

/// The store. A clone of it is another view of the same ledger.
#[derive(Debug, Clone, Default)]
pub struct MemoryStore(Arc<Mutex<Shelves>>);

#[derive(Debug, Default)]
struct Shelves {
    epoch: u64,
    streams: BTreeMap<StreamId, Vec<Record>>,
    order: Vec<(StreamId, u64)>,
    blobs: HashMap<Hash, CanonicalJson>,
    blob_order: Vec<Hash>,
    rows: BTreeMap<StreamId, IndexRow>,
    keys: HashMap<String, StreamId>,
    /// The number of the frame of `store` that removed a stream.
    removed: BTreeMap<StreamId, u64>,
}

impl MemoryStore {
    /// An empty ledger.
    pub fn new() -> Self {
        Self::default()
    }

    /// The removed streams, and how many frames each had.
    fn removed_streams(&self) -> Vec<(String, u64)> {
        let shelves = self.0.lock();
        let mut frames: BTreeMap<&StreamId, u64> = BTreeMap::new();
        for (stream, _) in &shelves.order {
            if shelves.removed.contains_key(stream) {
                *frames.entry(stream).or_default() += 1;
            }
        }
        let named = frames.into_iter();
        named
            .map(|(stream, frames)| (stream.to_string(), frames))
            .collect()
    }
}

impl Shelves {
    fn tail(&self, stream: &StreamId) -> Option<Tail> {
        let last = self.streams.get(stream)?.last()?;
        Some(Tail {
            seq: last.seq,
            hash: last.hash,
        })
    }

    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Vec<Record> {
        let records = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
        let start = records.partition_point(|record| record.seq < from);
        let mut bytes = 0;
        let page = records.iter().skip(start).take(limit.min(MAX_PAGE));
        page.take_while(|record| {
            let fits = bytes < PAGE_BYTES;
            bytes += record.body.len();
            fits
        })
        .cloned()
        .collect()
    }

    fn by_key(&self, key: &str) -> Option<&IndexRow> {
        self.rows.get(self.keys.get(key)?)
    }

    fn put_row(&mut self, row: &IndexRow) {
        let before = self.rows.insert(row.stream.clone(), row.clone());
        if let Some(key) = before.and_then(|before| before.key) {
            self.keys.remove(&key);
        }
        if let Some(key) = &row.key {
            self.keys.insert(key.clone(), row.stream.clone());
        }
    }

    fn fence(&self, ours: Epoch) -> Result<(), StoreError> {
        if self.epoch == ours.0 {
            return Ok(());
        }
        Err(StoreError::Fenced {
            ours: ours.0,
            stored: self.epoch,
        })
    }

    fn put(&mut self, entry: &Entry) {
        for blob in entry.blobs() {
            if self.blobs.insert(blob.hash, blob.text.clone()).is_none() {
                self.blob_order.push(blob.hash);
            }
        }
        let stream = self.streams.entry(entry.stream().clone()).or_default();
        for record in entry.records() {
            stream.push(record.clone());
            self.order.push((entry.stream().clone(), record.seq));
        }
        if let Some(row) = entry.index() {
            self.put_row(row);
        }
    }
}

impl Shelves {
    /// The frame of `store` with a number.
    fn of_store(&self, seq: u64) -> Option<Record> {
        self.read(&StreamId::store(), seq, 1).into_iter().next()
    }

    /// The number after the last frame of a removed stream.
    fn removed_end(&self, stream: &StreamId) -> Option<u64> {
        let frame = self.of_store(*self.removed.get(stream)?)?;
        let Ok(Event::Store(StoreEvent::RunRemoved(removed))) =
            frame.decode_bare().map(|frame| frame.event)
        else {
            return None;
        };
        Some(removed.first.saturating_add(removed.frames))
    }

    /// The frames after a position.
    fn after(&self, position: u64) -> impl Iterator<Item = (u64, &StreamId, &Record)> {
        let placed = (1..)
            .zip(&self.order)
            .skip(start(position.saturating_add(1)));
        placed.filter_map(|(position, (stream, seq))| {
            let records = self.streams.get(stream)?;
            let at = records.partition_point(|record| record.seq < *seq);
            Some((position, stream, records.get(at)?))
        })
    }

    /// Deletes a stream. `order` keeps its places, so that positions stay what they are.
    fn remove(&mut self, stream: &StreamId, blobs: &[Hash], authority: u64) {
        self.streams.remove(stream);
        for blob in blobs {
            self.blobs.remove(blob);
        }
        if !blobs.is_empty() {
            let kept = &self.blobs;
            self.blob_order.retain(|hash| kept.contains_key(hash));
        }
        if let Some(key) = self.rows.remove(stream).and_then(|row| row.key) {
            self.keys.remove(&key);
        }
        self.removed.insert(stream.clone(), authority);
    }
}

/// The state of the store during an append, with the tails that were durable before it.
struct MemoryView<'a> {
    shelves: &'a Shelves,
    before: &'a HashMap<StreamId, Option<Tail>>,
}

impl StoreView for MemoryView<'_> {
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.shelves.tail(stream))
    }

    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let before = self.before.get(stream).copied();
        Ok(before.unwrap_or_else(|| self.shelves.tail(stream)))
    }

    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError> {
        Ok(self.shelves.blobs.contains_key(hash))
    }

    fn read(
        &mut self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        Ok(self.shelves.read(stream, from, limit))
    }

    fn removed_end(&mut self, stream: &StreamId) -> Result<Option<u64>, StoreError> {
        Ok(self.shelves.removed_end(stream))
    }

    fn bodies_after(&mut self, position: u64) -> Result<Vec<String>, StoreError> {
        let after = self.shelves.after(position);
        Ok(after.map(|(_, _, record)| record.body.clone()).collect())
    }

    fn owner_of(&mut self, key: &str) -> Result<Option<StreamId>, StoreError> {
        Ok(self.shelves.by_key(key).map(|row| row.stream.clone()))
    }
}

impl Reader for MemoryStore {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        Ok(self.0.lock().read(stream, from, limit))
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        Ok(self.0.lock().tail(stream))
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        let shelves = self.0.lock();
        let names = shelves.streams.keys();
        let names = names.filter(|name| after.is_none_or(|after| *name > after));
        Ok(names.take(limit.min(MAX_PAGE)).cloned().collect())
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        Ok(self.0.lock().blobs.get(hash).cloned())
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        let limit = limit.min(MAX_PAGE);
        let shelves = self.0.lock();
        let wanted = |row: &&IndexRow| {
            filter.admits(row) && cursor.is_none_or(|cursor| row.cursor() < *cursor)
        };
        let mut rows: Vec<&IndexRow> = shelves.rows.values().filter(wanted).collect();
        rows.sort_by(|left, right| {
            (right.created_us, &right.stream).cmp(&(left.created_us, &left.stream))
        });
        let found = rows.into_iter().take(limit.saturating_add(1)).cloned();
        Ok(Page::of(found.collect(), limit))
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        Ok(self.0.lock().rows.get(stream).cloned())
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        Ok(self.0.lock().by_key(key).cloned())
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

impl Audit for MemoryStore {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        let shelves = self.0.lock();
        let frames = shelves.after(from.saturating_sub(1));
        let frames = frames.take(limit.min(MAX_PAGE));
        Ok(frames
            .map(|(position, stream, record)| RawFrame {
                position,
                misplaced: None,
                stream: Some(stream.to_string()),
                seq: Some(record.seq),
                hash: record.hash.as_bytes().to_vec(),
                body: record.body.clone().into_bytes(),
                is_found: true,
            })
            .collect())
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        let shelves = self.0.lock();
        let start = start(from);
        let page = shelves.blob_order.iter().enumerate().skip(start);
        Ok(page
            .filter_map(|(place, hash)| {
                Some(RawBlob {
                    position: place as u64 + 1,
                    misplaced: None,
                    hash: hash.as_bytes().to_vec(),
                    body: shelves.blobs.get(hash)?.as_str().as_bytes().to_vec(),
                })
            })
            .take(limit.min(MAX_PAGE))
            .collect())
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let shelves = self.0.lock();
        let of_stream = shelves.after(0).filter(|(_, of, _)| *of == stream);
        let places = of_stream.map(|(position, _, record)| (record.seq, position));
        let wanted = places.filter(|(seq, _)| *seq >= from);
        Ok(wanted.take(limit.min(MAX_PAGE)).collect())
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let shelves = self.0.lock();
        let mut seqs: Vec<u64> = shelves.removed.values().copied().collect();
        seqs.sort_unstable();
        let wanted = seqs.into_iter().filter(|seq| *seq >= from);
        let records = wanted.filter_map(|seq| shelves.of_store(seq));
        Ok(records.take(limit.min(MAX_PAGE)).collect())
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        let shelves = self.0.lock();
        let seq = shelves.removed.get(stream);
        Ok(seq.and_then(|seq| shelves.of_store(*seq)))
    }

    fn inspect(&self) -> Inspection {
        let removed = self.removed_streams();
        Inspection {
            epoch: Some(self.0.lock().epoch),
            removed,
            ..Inspection::default()
        }
    }
}

/// The number of entries before a position.
fn start(from: u64) -> usize {
    usize::try_from(from.saturating_sub(1)).unwrap_or(usize::MAX)
}

impl Store for MemoryStore {
    fn acquire(&mut self) -> Result<Epoch, StoreError> {
        let mut shelves = self.0.lock();
        shelves.epoch += 1;
        Ok(Epoch(shelves.epoch))
    }

    fn append(
        &mut self,
        epoch: Epoch,
        entries: &[Entry],
    ) -> Result<Vec<Result<u64, AppendRefusal>>, StoreError> {
        let mut shelves = self.0.lock();
        shelves.fence(epoch)?;
        let mut before = HashMap::new();
        let mut results = Vec::with_capacity(entries.len());
        for entry in entries {
            let mut view = MemoryView {
                shelves: &shelves,
                before: &before,
            };
            if let Some(refused) = check(entry, &mut view)? {
                results.push(Err(refused));
                continue;
            }
            let mut deleted = Vec::new();
            for (seq, removed, removal) in entry.removals() {
                let blobs = unnamed_blobs(removal, &mut view)?;
                deleted.push((removed.stream.clone(), blobs, seq));
            }
            let tail = shelves.tail(entry.stream());
            before.entry(entry.stream().clone()).or_insert(tail);
            shelves.put(entry);
            for (stream, blobs, seq) in deleted {
                let tail = shelves.tail(&stream);
                before.entry(stream.clone()).or_insert(tail);
                shelves.remove(&stream, &blobs, seq);
            }
            results.push(Ok(entry.tail().seq));
        }
        Ok(results)
    }

    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(self.clone()))
    }

    fn maintenance(&mut self) -> Option<&mut dyn Maintenance> {
        Some(self)
    }
}

impl Maintenance for MemoryStore {
    fn clear_index(&mut self, epoch: Epoch) -> Result<(), StoreError> {
        let mut shelves = self.0.lock();
        shelves.fence(epoch)?;
        shelves.rows.clear();
        shelves.keys.clear();
        Ok(())
    }

    fn put_rows(&mut self, epoch: Epoch, rows: &[IndexRow]) -> Result<(), StoreError> {
        let mut shelves = self.0.lock();
        shelves.fence(epoch)?;
        for row in rows {
            let owner = row.key.as_ref().and_then(|key| shelves.keys.get(key));
            if owner.is_some_and(|owner| *owner != row.stream) {
                return Err(StoreError::KeyTwice(row.stream.clone()));
            }
            shelves.put_row(row);
        }
        Ok(())
    }

    fn takes_stand_ins(&self) -> bool {
        true
    }

    fn put_stand_ins(&mut self, epoch: Epoch, of: &[StandIn]) -> Result<(), StoreError> {
        let mut shelves = self.0.lock();
        shelves.fence(epoch)?;
        for StandIn { stream, record } in of {
            shelves.order.push((stream.clone(), record.seq));
            let records = shelves.streams.entry(stream.clone()).or_default();
            records.push(record.clone());
        }
        Ok(())
    }

    fn backlog(&self) -> u64 {
        0
    }

    fn checkpoint(&mut self, _kind: WalCheckpoint) -> Result<Backlog, StoreError> {
        Ok(Backlog::default())
    }

    fn abandon(&mut self) {}
}
