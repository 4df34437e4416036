//! Verification: what the server itself has, read anew, and not the local copy.
//!
//! The order stream is read once from its beginning: which streams were removed, and where the frames of a
//! position are. A scan then reads the frames that it lists.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use ktsu_ledger::canonical::CanonicalJson;
use ktsu_ledger::store::{
    Audit, Cursor, Filter, Inspection, MAX_PAGE, PAGE_BYTES, Page, RawBlob, RawFrame, SqliteReader,
    Tail,
};
use ktsu_ledger::{Hash, IndexRow, Reader, Record, StoreError, StreamId};
use parking_lot::Mutex;

use crate::content::{blob_bytes, stored_hash};
use crate::copy::CopyNote;
use crate::fetch::{Fetched, fetch, fetch_blob, window};
use crate::log::{EventLog, PAGE};
use crate::order::{ListedBlob, ListedEntry, ORDER, OrderEvent};
use crate::shared::SharedLedger;

/// How many order events with frames there are between two whose place is remembered.
const STRIDE: u64 = 32;

/// What the order stream says of a ledger, as it was when it was read.
#[derive(Debug, Default)]
struct OrderSurvey {
    note: CopyNote,
    /// The position before some order events, and their revisions.
    places: Vec<(u64, u64)>,
    removed: HashMap<StreamId, u64>,
    blobs: Vec<ListedBlob>,
}

impl OrderSurvey {
    fn of(log: &EventLog) -> Result<Self, StoreError> {
        let mut survey = Self::default();
        let (mut blobs, mut appended) = (Vec::new(), 0);
        let mut deleted: HashMap<Hash, u64> = HashMap::new();
        loop {
            let page = log.read(ORDER, survey.note.next, PAGE)?;
            if page.is_empty() {
                break;
            }
            for stored in &page {
                let event = OrderEvent::of(stored)?;
                let note = survey.note.after(stored, &event)?;
                if let OrderEvent::Appended { entries, .. } = event {
                    if appended % STRIDE == 0 {
                        survey.places.push((survey.note.position, stored.revision));
                    }
                    appended += 1;
                    for entry in entries {
                        blobs.extend(entry.blobs.iter().map(|blob| (*blob, stored.revision)));
                        for removal in entry.removed {
                            let gone = removal.blobs.into_iter();
                            deleted.extend(gone.map(|hash| (hash, stored.revision)));
                            survey.removed.insert(removal.stream, removal.frames);
                        }
                    }
                }
                survey.note = note;
            }
        }
        let is_kept = |(blob, put): &(ListedBlob, u64)| {
            deleted.get(&blob.hash).is_none_or(|deleted| deleted < put)
        };
        let mut seen = HashSet::new();
        let kept = blobs.into_iter().filter(is_kept);
        let kept = kept.filter(|(blob, _)| seen.insert(blob.hash));
        survey.blobs = kept.map(|(blob, _)| blob).collect();
        Ok(survey)
    }

    /// The position before an order event that is not behind this one, and its revision.
    fn place_before(&self, position: u64) -> Option<(u64, u64)> {
        let behind = self
            .places
            .partition_point(|(before, _)| *before < position);
        self.places.get(behind.saturating_sub(1)).copied()
    }
}

/// A view of a ledger whose bytes are those of the server.
pub(crate) struct ServerReader {
    /// The local copy, which has what the survey has: for look-ups.
    view: SqliteReader,
    log: EventLog,
    survey: OrderSurvey,
    /// What the scans have found.
    problems: Mutex<Vec<String>>,
    /// Where the last scan ended: the position behind it, and the revision of the next order event.
    cursor: Mutex<Option<(u64, u64)>>,
}

impl ServerReader {
    pub(crate) fn new(shared: &Arc<SharedLedger>) -> Result<Self, StoreError> {
        let log = shared.log.clone();
        let survey = OrderSurvey::of(&log)?;
        Ok(Self {
            view: shared.view()?,
            log,
            survey,
            problems: Mutex::default(),
            cursor: Mutex::new(None),
        })
    }

    /// The entries from a position on, each with the position before it, and where to continue.
    fn entries_from(&self, position: u64) -> Result<Vec<(u64, u64, ListedEntry)>, StoreError> {
        let cursor = self.cursor.lock().take();
        let place = match cursor {
            Some((before, revision)) if before < position => Some((before, revision)),
            Some(_) | None => self.survey.place_before(position),
        };
        let Some((_, mut revision)) = place else {
            return Ok(Vec::new());
        };
        let mut entries = Vec::new();
        while revision < self.survey.note.next && entries.is_empty() {
            let page = self.log.read(ORDER, revision, PAGE)?;
            let Some(last) = page.last() else {
                let words = format!("{ORDER}@{revision} is gone from the server");
                return Err(StoreError::Damaged(words));
            };
            revision = last.revision.saturating_add(1);
            let page = page.iter().filter(|it| it.revision < self.survey.note.next);
            for stored in page {
                let OrderEvent::Appended {
                    after,
                    entries: listed,
                    ..
                } = OrderEvent::of(stored)?
                else {
                    continue;
                };
                let mut before = after;
                for entry in listed {
                    let end = before.saturating_add(entry.frames);
                    if end >= position && !self.survey.removed.contains_key(&entry.stream) {
                        entries.push((before, stored.revision, entry));
                    }
                    before = end;
                }
            }
        }
        Ok(entries)
    }

    /// The frames of an entry; what is not there is a problem.
    fn raw_frames(&self, before: u64, entry: &ListedEntry, fetched: &Fetched) -> Vec<RawFrame> {
        let mut frames = Vec::new();
        for event in fetched.frames(entry) {
            let offset = event.revision.saturating_sub(entry.at);
            let (position, seq) = (before + offset + 1, entry.seq + offset);
            let hash = stored_hash(event);
            if offset + 1 == entry.frames && hash != Some(entry.hash) {
                self.find(format!(
                    "{}#{seq} is not the frame that {ORDER} lists",
                    entry.stream
                ));
            }
            let found = self.view.positions(&entry.stream, seq, 1);
            frames.push(RawFrame {
                position,
                misplaced: None,
                stream: Some(entry.stream.to_string()),
                seq: Some(seq),
                hash: hash.map_or_else(Vec::new, |hash| hash.as_bytes().to_vec()),
                body: event.data.to_vec(),
                is_found: found.is_ok_and(|found| found == [(seq, position)]),
            });
        }
        let gone = entry.frames - frames.len() as u64;
        if gone > 0 {
            let words = format!("{gone} frames of {} are gone from the server", entry.stream);
            self.find(words);
        }
        frames
    }

    /// The frames of entries from a position on, a page at most.
    fn scan_entries(
        &self,
        entries: &[(u64, u64, ListedEntry)],
        from: u64,
        limit: usize,
    ) -> Result<Vec<RawFrame>, StoreError> {
        let (mut frames, mut bytes) = (Vec::<RawFrame>::new(), 0);
        let listed: Vec<&ListedEntry> = entries.iter().map(|(.., entry)| entry).collect();
        let (mut fetched, mut left, mut rest) = (Fetched::default(), 0, listed.as_slice());
        for (before, revision, entry) in entries {
            if frames.len() >= limit || bytes >= PAGE_BYTES {
                break;
            }
            if left == 0 {
                let (now, later) = rest.split_at(window(rest));
                (fetched, left, rest) = (fetch(&self.log, now, false)?, now.len(), later);
            }
            left -= 1;
            let raw = self.raw_frames(*before, entry, &fetched);
            for frame in raw.into_iter().filter(|frame| frame.position >= from) {
                if frames.len() >= limit || bytes >= PAGE_BYTES {
                    break;
                }
                bytes += frame.body.len();
                frames.push(frame);
            }
            *self.cursor.lock() = Some((*before, *revision));
        }
        Ok(frames)
    }

    fn find(&self, problem: String) {
        let mut problems = self.problems.lock();
        if !problems.contains(&problem) {
            problems.push(problem);
        }
    }
}

impl Audit for ServerReader {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        let (mut from, limit) = (from.max(1), limit.min(MAX_PAGE));
        loop {
            let entries = self.entries_from(from)?;
            let frames = self.scan_entries(&entries, from, limit)?;
            match entries.last() {
                // All of these are gone from the server; those behind them may be there.
                Some((before, _, entry)) if frames.is_empty() && limit > 0 => {
                    from = before.saturating_add(entry.frames).saturating_add(1);
                }
                Some(_) | None => return Ok(frames),
            }
        }
    }

    fn scan_blobs(&self, from: u64, limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        let (mut blobs, mut bytes) = (Vec::new(), 0);
        let listed = (1..).zip(&self.survey.blobs);
        let listed = listed.filter(|(position, _)| *position >= from);
        for (position, blob) in listed.take(limit.min(MAX_PAGE)) {
            let fetched = fetch_blob(&self.log, blob)?;
            let body = blob_bytes(fetched.chunks(blob).into_iter());
            bytes += body.len();
            blobs.push(RawBlob {
                position,
                misplaced: None,
                hash: blob.hash.as_bytes().to_vec(),
                body,
            });
            if bytes >= PAGE_BYTES {
                break;
            }
        }
        Ok(blobs)
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        self.view.positions(stream, from, limit)
    }

    fn removals(&self, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.view.removals(from, limit)
    }

    fn removal(&self, stream: &StreamId) -> Result<Option<Record>, StoreError> {
        self.view.removal(stream)
    }

    fn wrong_rows(&self) -> Result<Vec<(String, String)>, StoreError> {
        self.view.wrong_rows()
    }

    fn is_indexed(&self, kind: &str) -> Result<bool, StoreError> {
        self.view.is_indexed(kind)
    }

    fn inspect(&self) -> Inspection {
        let removed = self.survey.removed.iter();
        let removed = removed.map(|(stream, frames)| (stream.to_string(), *frames));
        Inspection {
            problems: self.problems.lock().clone(),
            removed: removed.collect(),
            epoch: Some(self.survey.note.epoch),
            failed: None,
        }
    }
}

impl Reader for ServerReader {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        self.view.read(stream, from, limit)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        self.view.tail(stream)
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        self.view.streams(after, limit)
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        self.view.blob_get(hash)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.view.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.view.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.view.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}
