//! A unit of appending: frames of one stream, the blobs they reference, and their index row.
//!
//! An [`Entry`] is always consistent in itself: its frames are of one stream, without gaps, each
//! follows from the one before, each hash matches its bytes, and a cause in the same stream is an
//! earlier frame. What only the store knows (where the stream ends, whether a frame of another
//! stream exists) is checked when the entry is appended.

use std::collections::HashSet;

use super::{IndexRow, Tail};
use crate::event::{Event, RunRemoved, StoreEvent};
use crate::frame::{Blob, Draft, Frame, FrameError, Link, MAX_BODY, Record, Sealed};
use crate::hash::Hash;
use crate::id::{Cause, StreamId};
use crate::removal::Removal;
use crate::strict;
use crate::time::Timestamp;

/// Frames to be appended to one stream, all or none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    stream: StreamId,
    prev: Hash,
    records: Vec<Record>,
    blobs: Vec<Blob>,
    wanted_blobs: Vec<Hash>,
    foreign_causes: Vec<(StreamId, u64)>,
    forked_from: Option<StreamId>,
    index: Option<IndexRow>,
    removed: Vec<(u64, RunRemoved)>,
    removals: Vec<Removal>,
    bytes: usize,
}

/// The reason why some frames do not make an entry.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EntryError {
    /// There are none.
    #[error("an entry without frames")]
    Empty,
    /// A draft cannot be a frame.
    #[error(transparent)]
    Unsealed(FrameError),
    /// A frame is of another stream, out of order, or does not follow from the one before.
    #[error("{stream}#{seq} is out of place: {why}")]
    Misplaced {
        /// The stream of the entry.
        stream: StreamId,
        /// The frame.
        seq: u64,
        /// The fault of the frame.
        why: &'static str,
    },
    /// The bytes of a frame do not read.
    #[error("{stream}#{seq}: {source}")]
    Unreadable {
        /// The stream of the entry.
        stream: StreamId,
        /// The frame.
        seq: u64,
        /// The error.
        source: FrameError,
    },
    /// A type this version does not know, and which is not a kit's own.
    #[error("{stream}#{seq} is of the type {kind:?}, which this version of ktsu does not know")]
    UnknownType {
        /// The stream of the entry.
        stream: StreamId,
        /// The frame.
        seq: u64,
        /// The type.
        kind: String,
    },
    /// A blob's hash is not that of its text, or its text is not canonical.
    #[error("the blob {0} is not what its hash says")]
    WrongBlob(Hash),
    /// The index row is about another stream.
    #[error("an index row of {0} beside frames of another stream")]
    IndexOfAnother(StreamId),
    /// The removals are not those that the frames record.
    #[error("the removals do not match the frames of the type run.removed")]
    OtherRemovals,
}

impl Entry {
    /// Builds an entry from frames that were just sealed, in order. Also returns the decoded
    /// frames.
    ///
    /// # Errors
    /// [`EntryError`], which would be a defect of the caller.
    pub fn from_sealed(sealed: Vec<Sealed>) -> Result<(Self, Vec<Frame>), EntryError> {
        let mut building = Building::of(sealed.first().map(|first| &first.frame))?;
        let mut frames = Vec::with_capacity(sealed.len());
        for Sealed {
            record,
            blobs,
            frame,
        } in sealed
        {
            if !frame.event.is_known() {
                return Err(EntryError::UnknownType {
                    stream: frame.stream,
                    seq: frame.seq,
                    kind: frame.event.kind().to_owned(),
                });
            }
            building.add_blobs(blobs)?;
            building.add(record, &frame)?;
            frames.push(frame);
        }
        Ok((building.finish(), frames))
    }

    /// Seals drafts, one behind the other, as what follows `after` in a stream.
    ///
    /// # Errors
    /// [`EntryError::Unsealed`] where a draft cannot be a frame; otherwise a defect of the caller.
    pub fn from_drafts(
        stream: &StreamId,
        after: Option<Tail>,
        drafts: Vec<Draft>,
        at: Timestamp,
    ) -> Result<Self, EntryError> {
        let mut end = after;
        let mut sealed = Vec::with_capacity(drafts.len());
        for draft in drafts {
            let link = Link {
                stream: stream.clone(),
                seq: end.map_or(0, |end| end.seq + 1),
                prev: end.map_or(Hash::ZERO, |end| end.hash),
            };
            let one = draft.seal(link, at).map_err(EntryError::Unsealed)?;
            end = Some(Tail {
                seq: one.record.seq,
                hash: one.record.hash,
            });
            sealed.push(one);
        }
        Ok(Self::from_sealed(sealed)?.0)
    }

    /// From stored bytes, as an import has them. Every body is read, strictly; types this version
    /// does not know are taken as they are.
    ///
    /// # Errors
    /// [`EntryError`].
    pub fn from_records(
        stream: &StreamId,
        records: Vec<Record>,
        blobs: Vec<Blob>,
    ) -> Result<Self, EntryError> {
        let mut frames = Vec::with_capacity(records.len());
        for record in &records {
            let unreadable = |source| EntryError::Unreadable {
                stream: stream.clone(),
                seq: record.seq,
                source,
            };
            if record.body.len() > MAX_BODY {
                return Err(unreadable(FrameError::TooLarge(record.body.len())));
            }
            strict::check_body(&record.body)
                .map_err(|unfit| unreadable(FrameError::Malformed(unfit.to_string())))?;
            frames.push(record.decode_bare().map_err(unreadable)?);
        }
        let mut building = Building::of(frames.first())?;
        building.stream = stream.clone();
        building.add_blobs(blobs)?;
        for (record, frame) in records.into_iter().zip(&frames) {
            building.add(record, frame)?;
        }
        Ok(building.finish())
    }

    /// Sets the index row that is true once the frames are appended.
    ///
    /// # Errors
    /// [`EntryError::IndexOfAnother`].
    pub fn with_index(mut self, row: IndexRow) -> Result<Self, EntryError> {
        if row.stream != self.stream {
            return Err(EntryError::IndexOfAnother(row.stream));
        }
        self.bytes += row.row.as_str().len() + 200;
        self.index = Some(row);
        Ok(self)
    }

    /// Deletes what the frames of the type `run.removed` say, in the same transaction.
    ///
    /// # Errors
    /// [`EntryError::OtherRemovals`].
    pub fn with_removals(mut self, removals: Vec<Removal>) -> Result<Self, EntryError> {
        let of_frames = self.removed.iter().map(|(_, removed)| &removed.stream);
        if !removals.iter().map(|removal| &removal.stream).eq(of_frames) {
            return Err(EntryError::OtherRemovals);
        }
        self.removals = removals;
        Ok(self)
    }

    /// The stream.
    pub fn stream(&self) -> &StreamId {
        &self.stream
    }

    /// The frame the stream must end with; `None`: the stream must not exist.
    pub fn expected(&self) -> Option<u64> {
        self.first().checked_sub(1)
    }

    /// The number of the first frame.
    pub fn first(&self) -> u64 {
        self.records.first().map_or(0, |record| record.seq)
    }

    /// The end of the stream once this is appended.
    pub fn tail(&self) -> Tail {
        self.records.last().map_or_else(
            || Tail {
                seq: 0,
                hash: self.prev,
            },
            |record| Tail {
                seq: record.seq,
                hash: record.hash,
            },
        )
    }

    /// The frames.
    pub fn records(&self) -> &[Record] {
        &self.records
    }

    /// The blobs that come with it.
    pub fn blobs(&self) -> &[Blob] {
        &self.blobs
    }

    /// The index row, if it changes.
    pub fn index(&self) -> Option<&IndexRow> {
        self.index.as_ref()
    }

    /// Roughly what it weighs: what queues and transactions are bounded by.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The removals that belong to it, each with the frame that records it and its number.
    pub fn removals(&self) -> impl Iterator<Item = (u64, &RunRemoved, &Removal)> {
        let removals = self.removed.iter().zip(&self.removals);
        removals.map(|((seq, removed), removal)| (*seq, removed, removal))
    }

    /// The streams that its frames say were removed.
    pub(crate) fn removed_streams(&self) -> impl Iterator<Item = &StreamId> {
        self.removed.iter().map(|(_, removed)| &removed.stream)
    }

    /// `prev` of the first frame.
    pub(crate) fn prev(&self) -> Hash {
        self.prev
    }

    /// Blobs the frames name that do not come with it.
    pub fn wanted_blobs(&self) -> &[Hash] {
        &self.wanted_blobs
    }

    /// The stream that it was forked from, if it begins a branch.
    pub fn forked_from(&self) -> Option<&StreamId> {
        self.forked_from.as_ref()
    }

    /// Causes in other streams.
    pub fn foreign_causes(&self) -> &[(StreamId, u64)] {
        &self.foreign_causes
    }
}

/// Returns `true` if a frame is `branch.created` exactly if a branch begins with it.
fn begins_well(stream: &StreamId, is_first: bool, frame: &Frame) -> bool {
    let Some(branch) = frame.event.branched() else {
        return stream.kind() != "branch" || frame.seq > 0;
    };
    is_first
        && stream.kind() == "branch"
        && branch.branch_id == stream.name()
        && branch.fork_position == frame.seq
        && branch.parent().is_ok_and(|parent| parent != *stream)
}

/// An entry under construction.
struct Building {
    stream: StreamId,
    first_prev: Hash,
    last: Option<(u64, Hash)>,
    first_seq: u64,
    records: Vec<Record>,
    blobs: Vec<Blob>,
    own_blobs: HashSet<Hash>,
    wanted_blobs: Vec<Hash>,
    foreign_causes: Vec<(StreamId, u64)>,
    forked_from: Option<StreamId>,
    removed: Vec<(u64, RunRemoved)>,
    bytes: usize,
}

impl Building {
    fn of(first: Option<&Frame>) -> Result<Self, EntryError> {
        let first = first.ok_or(EntryError::Empty)?;
        Ok(Self {
            stream: first.stream.clone(),
            first_prev: first.prev,
            last: None,
            first_seq: first.seq,
            records: Vec::new(),
            blobs: Vec::new(),
            own_blobs: HashSet::new(),
            wanted_blobs: Vec::new(),
            foreign_causes: Vec::new(),
            forked_from: None,
            removed: Vec::new(),
            bytes: 0,
        })
    }

    fn add_blobs(&mut self, blobs: Vec<Blob>) -> Result<(), EntryError> {
        for blob in blobs {
            if Hash::of(blob.text.as_str().as_bytes()) != blob.hash {
                return Err(EntryError::WrongBlob(blob.hash));
            }
            if self.own_blobs.insert(blob.hash) {
                self.bytes += blob.text.as_str().len() + 64;
                self.blobs.push(blob);
            }
        }
        Ok(())
    }

    fn add(&mut self, record: Record, frame: &Frame) -> Result<(), EntryError> {
        if let Some(why) = self.misplaced(&record, frame) {
            return Err(EntryError::Misplaced {
                stream: self.stream.clone(),
                seq: record.seq,
                why,
            });
        }
        if let Some(branch) = frame.event.branched() {
            self.forked_from = branch.parent().ok();
        }
        if let Event::Store(StoreEvent::RunRemoved(removed)) = &frame.event {
            self.removed.push((frame.seq, removed.clone()));
        }
        for cause in &frame.cause {
            if let Cause::There(stream, seq) = cause {
                self.foreign_causes.push((stream.clone(), *seq));
            }
        }
        for external in &frame.ext {
            if !self.own_blobs.contains(&external.hash) {
                self.wanted_blobs.push(external.hash);
            }
        }
        self.last = Some((record.seq, record.hash));
        self.bytes += record.body.len() + 64;
        self.records.push(record);
        Ok(())
    }

    /// The reason why a frame must not be at this position, if there is one.
    fn misplaced(&self, record: &Record, frame: &Frame) -> Option<&'static str> {
        let (seq, prev) = match self.last {
            Some((seq, hash)) => (seq.checked_add(1)?, hash),
            None => (self.first_seq, self.first_prev),
        };
        let earlier = |cause: &Cause| match cause {
            Cause::Here(cause) => *cause < frame.seq,
            Cause::There(stream, cause) => *stream != self.stream || *cause < frame.seq,
        };
        if frame.stream != self.stream {
            Some("it is of another stream")
        } else if !begins_well(&self.stream, self.last.is_none(), frame) {
            Some("only branch.created begins a branch, at the position it names")
        } else if record.seq != frame.seq || frame.seq != seq {
            Some("its number is not the next")
        } else if frame.seq == 0 && frame.prev != Hash::ZERO {
            Some("the first frame of a stream follows from nothing")
        } else if frame.prev != prev {
            Some("it does not follow from the frame before it")
        } else if Hash::of(record.body.as_bytes()) != record.hash || frame.hash != record.hash {
            Some("its hash is not that of its bytes")
        } else if !frame.cause.iter().all(earlier) {
            Some("it names a cause that is not an earlier frame")
        } else {
            None
        }
    }

    fn finish(self) -> Entry {
        Entry {
            stream: self.stream,
            prev: self.first_prev,
            records: self.records,
            blobs: self.blobs,
            wanted_blobs: self.wanted_blobs,
            foreign_causes: self.foreign_causes,
            forked_from: self.forked_from,
            index: None,
            removed: self.removed,
            removals: Vec::new(),
            bytes: self.bytes,
        }
    }
}
