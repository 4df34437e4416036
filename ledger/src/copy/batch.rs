//! Entries of frames that were read from another ledger, and the batches that they are appended in.

use std::collections::HashSet;

use super::error::CopyError;
use super::pages::SourceFrame;
use crate::frame::{Blob, Record};
use crate::id::{Cause, StreamId};
use crate::removal::Removal;
use crate::store::{AppendRefusal, Entry, EntryError, Epoch, Store};

/// A batch, and an entry, ends once its frames and blobs have this many bytes.
pub(super) const BATCH_BYTES: usize = 1024 * 1024;

/// Adjacent frames of one stream that become an entry, and the blobs that come with them.
pub(super) struct OpenEntry {
    stream: StreamId,
    records: Vec<Record>,
    blobs: Vec<Blob>,
    bytes: usize,
}

impl OpenEntry {
    pub(super) fn new(stream: StreamId) -> Self {
        Self {
            stream,
            records: Vec::new(),
            blobs: Vec::new(),
            bytes: 0,
        }
    }

    /// Returns `true` if a frame may be added.
    pub(super) fn admits(&self, frame: &SourceFrame) -> bool {
        self.stream == frame.stream && self.bytes < BATCH_BYTES
    }

    pub(super) fn add(&mut self, record: Record, blobs: Vec<Blob>) {
        let texts = blobs.iter().map(|blob| blob.text.as_str().len());
        self.bytes += record.body.len() + texts.sum::<usize>();
        self.records.push(record);
        self.blobs.extend(blobs);
    }

    pub(super) fn close(self) -> Result<Entry, EntryError> {
        let entry = Entry::from_records(&self.stream, self.records, self.blobs)?;
        let removals = entry.removed_streams().map(|stream| Removal {
            stream: stream.clone(),
            // What its frames named and others do not was not copied.
            read_to: u64::MAX,
            blobs: Vec::new(),
        });
        let removals = removals.collect();
        entry.with_removals(removals)
    }
}

/// Entries that are appended in one call.
#[derive(Default)]
pub(super) struct Batch {
    entries: Vec<Entry>,
    streams: HashSet<StreamId>,
    frames: u64,
    bytes: usize,
}

impl Batch {
    /// Returns `true` if an entry names causes in streams of the batch: those must be durable first.
    pub(super) fn is_needed_by(&self, entry: &Entry) -> bool {
        let mut causes = entry.foreign_causes().iter();
        causes.any(|(other, _)| other != entry.stream() && self.streams.contains(other))
    }

    pub(super) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes();
        self.frames += entry.records().len() as u64;
        self.streams.insert(entry.stream().clone());
        self.entries.push(entry);
    }

    pub(super) fn is_full(&self) -> bool {
        self.bytes >= BATCH_BYTES
    }

    /// Appends all of them; gives the number of their frames.
    pub(super) fn append(self, to: &mut dyn Store, epoch: Epoch) -> Result<u64, CopyError> {
        if self.entries.is_empty() {
            return Ok(0);
        }
        let answers = to.append(epoch, &self.entries)?;
        for (entry, answer) in self.entries.iter().zip(answers) {
            if let Err(why) = answer {
                return Err(refused(entry, why));
            }
        }
        Ok(self.frames)
    }
}

/// The refusal of an entry, with the frame that it is about.
fn refused(entry: &Entry, why: AppendRefusal) -> CopyError {
    let seq = match &why {
        AppendRefusal::NoSuchCause { cause, .. } => seq_of_cause(entry, cause),
        AppendRefusal::Conflict { .. }
        | AppendRefusal::Unchained { .. }
        | AppendRefusal::NoSuchBlob { .. }
        | AppendRefusal::Removed(_)
        | AppendRefusal::HasBranch { .. }
        | AppendRefusal::KeyTaken { .. } => None,
    };
    CopyError::Refused {
        stream: entry.stream().clone(),
        seq: seq.unwrap_or_else(|| entry.first()),
        why,
    }
}

/// The number of the frame of an entry that names a cause.
fn seq_of_cause(entry: &Entry, cause: &Cause) -> Option<u64> {
    let mut frames = entry.records().iter().map(Record::decode_bare);
    let naming = frames.find_map(|frame| frame.ok().filter(|frame| frame.cause.contains(cause)));
    naming.map(|frame| frame.seq)
}
