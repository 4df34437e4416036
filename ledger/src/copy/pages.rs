//! What a ledger has, one by one, read in pages.

use std::vec::IntoIter;

use super::error::CopyError;
use crate::event::{Event, StoreEvent};
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::removal::{RemovedFrame, RemovedLeaves};
use crate::store::{Cursor, Filter, IndexRow, RawFrame, Reader, StoreError};

/// The most frames or streams of a page. A store ends a page of frames earlier if it has
/// [`crate::store::PAGE_BYTES`].
const PAGE: usize = 1_000;
/// The number of index rows of a page.
pub(super) const ROWS: usize = 500;

/// Reads the next page; an empty one is the end.
type Fetch<'a, T> = Box<dyn FnMut() -> Result<Vec<T>, StoreError> + 'a>;

/// A sequence that is read in pages.
pub(super) struct Pages<'a, T> {
    fetch: Fetch<'a, T>,
    page: IntoIter<T>,
}

impl<'a, T> Pages<'a, T> {
    fn new(fetch: impl FnMut() -> Result<Vec<T>, StoreError> + 'a) -> Self {
        Self {
            fetch: Box::new(fetch),
            page: Vec::new().into_iter(),
        }
    }

    /// The next one; `None` at the end.
    pub(super) fn next(&mut self) -> Result<Option<T>, StoreError> {
        if let Some(next) = self.page.next() {
            return Ok(Some(next));
        }
        self.page = (self.fetch)()?.into_iter();
        Ok(self.page.next())
    }

    /// The next ones, up to a number; none at the end.
    pub(super) fn take(&mut self, most: usize) -> Result<Vec<T>, StoreError> {
        let mut taken = Vec::new();
        while taken.len() < most
            && let Some(next) = self.next()?
        {
            taken.push(next);
        }
        Ok(taken)
    }
}

/// All frames after a position in the order of appending; after 0, also those at no position.
pub(super) fn frames(reader: &dyn Reader, after: u64) -> Pages<'_, RawFrame> {
    let mut from = after.checked_add(1).filter(|from| *from > 1).unwrap_or(0);
    Pages::new(move || {
        let page = reader.scan_frames(from, PAGE)?;
        if let Some(last) = page.last() {
            from = last.position.max(from).saturating_add(1);
        }
        Ok(page)
    })
}

/// All index rows, newest first.
pub(super) fn rows(reader: &dyn Reader) -> Pages<'_, IndexRow> {
    let mut next: Option<Option<Cursor>> = Some(None);
    Pages::new(move || {
        let Some(cursor) = next.take() else {
            return Ok(Vec::new());
        };
        let page = reader.list(&Filter::default(), cursor.as_ref(), ROWS)?;
        next = page.next.map(Some);
        Ok(page.rows)
    })
}

/// The names of all streams.
pub(super) fn streams(reader: &dyn Reader) -> Pages<'_, StreamId> {
    let mut after: Option<StreamId> = None;
    Pages::new(move || {
        let page = reader.streams(after.as_ref(), PAGE)?;
        after = page.last().cloned().or_else(|| after.take());
        Ok(page)
    })
}

/// What the source has at a position.
pub(super) enum SourcePlace {
    Frame(SourceFrame),
    /// A frame that was removed.
    Removed(RemovedFrame),
}

impl SourcePlace {
    pub(super) fn is_removed(&self) -> bool {
        matches!(self, Self::Removed(_))
    }

    /// Returns `true` if a frame of the target is the same, or the stand-in for it.
    pub(super) fn is(&self, found: &RawFrame) -> bool {
        match self {
            Self::Frame(frame) => frame.is(found),
            Self::Removed(frame) => {
                let end = frame.end.unwrap_or(Hash::ZERO);
                found.stream.as_deref() == Some(frame.stream.as_str())
                    && found.seq == Some(frame.seq)
                    && found.hash == end.as_bytes()
                    && found.body.is_empty()
            }
        }
    }
}

/// What the source has at each position, in the order of appending.
pub(super) struct SourcePlaces<'a> {
    frames: Pages<'a, RawFrame>,
    next: Option<RawFrame>,
    removed: RemovedLeaves<'a>,
}

impl<'a> SourcePlaces<'a> {
    /// From behind a position.
    pub(super) fn of(reader: &'a dyn Reader, after: u64) -> Result<Self, StoreError> {
        let mut frames = frames(reader, after);
        Ok(Self {
            next: frames.next()?,
            frames,
            removed: RemovedLeaves::of(reader)?,
        })
    }

    /// What is at a position. Each must be asked for, one after the other.
    pub(super) fn at(&mut self, position: u64) -> Result<SourcePlace, CopyError> {
        let is_later = |next: &RawFrame| next.misplaced.is_none() && next.position > position;
        if self.next.as_ref().is_none_or(is_later)
            && let Some(removed) = self.removed.frame(position)?
        {
            return Ok(SourcePlace::Removed(removed));
        }
        let raw = self.next.take().ok_or(CopyError::Gap(position))?;
        self.next = self.frames.next()?;
        Ok(SourcePlace::Frame(SourceFrame::of(raw, position)?))
    }

    /// Refuses a frame after the last position.
    pub(super) fn must_end(&self, last: u64) -> Result<(), CopyError> {
        match &self.next {
            None => Ok(()),
            Some(beyond) if beyond.position > last => Err(CopyError::Grew),
            // It is at no position.
            Some(_) => Err(CopyError::Gap(last.saturating_add(1))),
        }
    }
}

/// A frame of the source, the hash of which is that of its bytes.
pub(super) struct SourceFrame {
    pub(super) position: u64,
    pub(super) stream: StreamId,
    pub(super) record: Record,
}

impl SourceFrame {
    /// Checks the frame that is to be at a position.
    pub(super) fn of(raw: RawFrame, position: u64) -> Result<Self, CopyError> {
        let no_frame = |why| CopyError::NoFrame { position, why };
        if raw.misplaced.is_some() || raw.position != position {
            return Err(CopyError::Gap(position));
        }
        let name = raw.stream.ok_or(no_frame("it is of no stream"))?;
        let stream: StreamId = name
            .parse()
            .map_err(|_| no_frame("the name of its stream is not valid"))?;
        let seq = raw.seq.ok_or(no_frame("its number is negative"))?;
        let damaged = |why: &str| CopyError::Damaged {
            stream: stream.clone(),
            seq,
            why: why.to_owned(),
        };
        let hash = Hash::from_bytes(&raw.hash).filter(|hash| Hash::of(&raw.body) == *hash);
        let hash = hash.ok_or_else(|| damaged("its hash is not that of its bytes"))?;
        let body = String::from_utf8(raw.body);
        let body = body.map_err(|_| damaged("its bytes are not UTF-8"))?;
        if !raw.is_found {
            return Err(damaged("a look-up by stream and number does not find it"));
        }
        let record = Record { seq, hash, body };
        Ok(Self {
            position,
            stream,
            record,
        })
    }

    /// Returns `true` if a frame of the target is the same, at the same position.
    pub(super) fn is(&self, found: &RawFrame) -> bool {
        found.misplaced.is_none()
            && found.is_found
            && found.position == self.position
            && found.stream.as_deref() == Some(self.stream.as_str())
            && found.seq == Some(self.record.seq)
            && found.hash == self.record.hash.as_bytes()
            && found.body == self.record.body.as_bytes()
    }

    /// The epoch that begins with it; 0 of any other frame.
    pub(super) fn epoch(&self) -> u64 {
        if self.stream.kind() != "store" {
            return 0;
        }
        match self.record.decode_bare().map(|frame| frame.event) {
            Ok(Event::Store(StoreEvent::Opened(opened))) => opened.epoch,
            Ok(_) | Err(_) => 0,
        }
    }

    /// A fault of it.
    pub(super) fn damaged(&self, why: String) -> CopyError {
        CopyError::Damaged {
            stream: self.stream.clone(),
            seq: self.record.seq,
            why,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn raw() -> RawFrame {
        RawFrame {
            position: 4,
            misplaced: None,
            stream: Some("run:a".to_owned()),
            seq: Some(2),
            hash: Hash::of(b"{}").as_bytes().to_vec(),
            body: b"{}".to_vec(),
            is_found: true,
        }
    }

    /// Each change that makes it another frame.
    fn changes() -> [fn(&mut RawFrame); 8] {
        [
            |raw| raw.position = 5,
            |raw| raw.misplaced = Some("-1".to_owned()),
            |raw| raw.stream = None,
            |raw| raw.stream = Some("of no kind".to_owned()),
            |raw| raw.seq = None,
            |raw| raw.hash = vec![0; 32],
            |raw| raw.body = vec![0xff],
            |raw| raw.is_found = false,
        ]
    }

    #[test]
    fn a_frame_with_a_wrong_column_is_not_copied() {
        assert!(SourceFrame::of(raw(), 4).is_ok());
        for (number, change) in changes().into_iter().enumerate() {
            let mut changed = raw();
            change(&mut changed);
            assert!(SourceFrame::of(changed, 4).is_err(), "change {number}");
        }
    }

    #[test]
    fn a_frame_of_the_target_is_the_same_in_every_column() -> Result<(), CopyError> {
        let frame = SourceFrame::of(raw(), 4)?;
        assert!(frame.is(&raw()));
        for (number, change) in changes().into_iter().enumerate() {
            let mut changed = raw();
            change(&mut changed);
            assert!(!frame.is(&changed), "change {number}");
        }
        Ok(())
    }
}
