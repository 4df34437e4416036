//! The removal of whole streams: what may be deleted, and what is left of it.
//!
//! A removal is one transaction: the frame `run.removed` is appended, the frames, the index row and
//! the blobs that nothing else names are deleted. So there is no step at which a crash leaves half of
//! it. Planning it means to know which blobs are named by no other stream; [`ReferenceCounts`] learns that
//! by reading the ledger once, a page at a time, outside of the writer. What is appended between the
//! plan and the transaction is looked at within the transaction.
//!
//! ```text
//! References::advance ─▶ … ─▶ plan ─▶ PlannedRemoval {event, removal} ─▶ Entry ─▶ Store::append
//!                                                  ▲ frames after `read_to` ──────────┘
//! ```

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::event::{Event, RunRemoved, StoreEvent};
use crate::frame::{Frame, Record};
use crate::hash::Hash;
use crate::id::StreamId;
use crate::merkle::Node;
use crate::store::{MAX_PAGE, Reader, StoreError};

/// The data that are deleted together with the frames of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removal {
    /// The stream.
    pub stream: StreamId,
    /// The position up to which the ledger was read to find the blobs.
    pub read_to: u64,
    /// The blobs that only frames of this stream name, as far as the ledger was read.
    pub blobs: Vec<Hash>,
}

/// A removal that can be carried out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedRemoval {
    /// The event that the stream `store` records.
    pub event: RunRemoved,
    /// The data that are deleted.
    pub removal: Removal,
    /// The number of times that frames of the stream name each blob.
    named: HashMap<Hash, u32>,
    parent: Option<StreamId>,
}

/// The reason why a stream cannot be removed now.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanRemovalError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A branch reads its frames.
    #[error("{0} is the parent of a branch")]
    HasBranch(StreamId),
    /// The first frame of a ledger names the ledger.
    #[error("{0} has the first frame of the ledger")]
    FirstFrame(StreamId),
    /// There is no such stream, or frames were appended while it was read.
    #[error("{0} changed while it was read")]
    Changed(StreamId),
}

/// Counts of the blobs and the parents that frames refer to. Blobs are counted under the first half
/// of their hash: two that share it are counted as one, which can only keep a blob.
#[derive(Debug, Default)]
pub struct ReferenceCounts {
    read_to: u64,
    blobs: HashMap<[u8; 16], u32>,
    /// Of every stream that was forked: how many branches it has, and one of them.
    branches: BTreeMap<StreamId, (u32, StreamId)>,
}

fn half(hash: &Hash) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(hash.as_bytes().split_at(16).0);
    half
}

/// Reads a body if it may refer to something. Most frames do not, and are not parsed.
fn referring(body: &str) -> Option<Frame> {
    let may_refer = body.contains(r#""ext":[{"#) || body.contains(r#""type":"branch.created""#);
    let record = may_refer.then(|| Record {
        seq: 0,
        hash: Hash::of(body.as_bytes()),
        body: body.to_owned(),
    })?;
    record.decode_bare().ok()
}

fn parent_of(frame: &Frame) -> Option<StreamId> {
    let branch = frame.event.branched()?;
    branch.parent().ok()
}

impl ReferenceCounts {
    /// Reads on, by a page of at most so many frames; whether there may be more.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn advance(&mut self, reader: &dyn Reader, frames: usize) -> Result<bool, StoreError> {
        let page = reader.scan_frames(self.read_to.saturating_add(1), frames)?;
        for raw in &page {
            self.note(&String::from_utf8_lossy(&raw.body));
            self.read_to = self.read_to.max(raw.position);
        }
        Ok(!page.is_empty())
    }

    /// Notes what a frame refers to.
    pub(crate) fn note(&mut self, body: &str) {
        let Some(frame) = referring(body) else {
            return;
        };
        for external in &frame.ext {
            let count = self.blobs.entry(half(&external.hash)).or_default();
            *count = count.saturating_add(1);
        }
        if let Some(parent) = parent_of(&frame) {
            let first = (0, frame.stream.clone());
            self.branches.entry(parent).or_insert(first).0 += 1;
        }
    }

    pub(crate) fn names(&self, hash: &Hash) -> bool {
        self.blobs.contains_key(&half(hash))
    }

    pub(crate) fn branch_of(&self, stream: &StreamId) -> Option<&StreamId> {
        self.branches.get(stream).map(|(_, branch)| branch)
    }

    /// Plans the removal of a stream that ended with this status. The ledger must have been read to
    /// its end not long ago: what was appended since is read again when the removal is carried out.
    ///
    /// # Errors
    /// [`PlanRemovalError`].
    pub fn plan(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
        status: &str,
        reason: &str,
    ) -> Result<PlannedRemoval, PlanRemovalError> {
        if self.branches.contains_key(stream) {
            return Err(PlanRemovalError::HasBranch(stream.clone()));
        }
        let changed = || PlanRemovalError::Changed(stream.clone());
        let mut read = StreamToRemove::default();
        read.read(reader, stream)?;
        let (first, last) = read.ends.ok_or_else(changed)?;
        let frames = read.leaves.len() as u64;
        let places = positions(reader, stream)?;
        let is_whole = places.iter().map(|(_, count)| count).sum::<u64>() == frames
            && last.seq.checked_sub(first) == frames.checked_sub(1);
        match places.first() {
            Some((1, _)) => return Err(PlanRemovalError::FirstFrame(stream.clone())),
            Some(_) if is_whole => {}
            Some(_) | None => return Err(changed()),
        }
        let leaves: Vec<u8> = read
            .leaves
            .iter()
            .flat_map(Node::as_bytes)
            .copied()
            .collect();
        let alone = |(hash, own): &(&Hash, &u32)| self.blobs.get(&half(hash)) == Some(*own);
        let mut blobs: Vec<Hash> = read.named.iter().filter(alone).map(|(it, _)| *it).collect();
        blobs.sort_unstable();
        Ok(PlannedRemoval {
            event: RunRemoved {
                first,
                frames,
                hash: last.hash,
                leaves: STANDARD.encode(leaves),
                positions: places,
                reason: reason.to_owned(),
                status: status.to_owned(),
                stream: stream.clone(),
            },
            removal: Removal {
                stream: stream.clone(),
                read_to: self.read_to,
                blobs,
            },
            named: read.named,
            parent: read.parent,
        })
    }

    /// Forgets what a stream referred to that was removed.
    pub fn forget(&mut self, planned: &PlannedRemoval) {
        for (hash, own) in &planned.named {
            let half = half(hash);
            let left = self
                .blobs
                .get(&half)
                .map_or(0, |all| all.saturating_sub(*own));
            match left {
                0 => drop(self.blobs.remove(&half)),
                left => drop(self.blobs.insert(half, left)),
            }
        }
        let parent = planned.parent.as_ref();
        let parent = parent.and_then(|parent| self.branches.remove_entry(parent));
        if let Some((parent, (branches @ 2.., one))) = parent {
            self.branches.insert(parent, (branches - 1, one));
        }
    }
}

/// The data that are read of a stream before it is removed.
#[derive(Default)]
struct StreamToRemove {
    leaves: Vec<Node>,
    named: HashMap<Hash, u32>,
    parent: Option<StreamId>,
    ends: Option<(u64, crate::store::Tail)>,
}

impl StreamToRemove {
    fn read(&mut self, reader: &dyn Reader, stream: &StreamId) -> Result<(), StoreError> {
        let mut from = 0;
        loop {
            let page = reader.read(stream, from, MAX_PAGE)?;
            let Some(last) = page.last() else {
                return Ok(());
            };
            from = last.seq.saturating_add(1);
            let tail = crate::store::Tail {
                seq: last.seq,
                hash: last.hash,
            };
            let first = page.first().map_or(last.seq, |first| first.seq);
            self.ends = Some((self.ends.map_or(first, |(first, _)| first), tail));
            for record in &page {
                self.leaves.push(Node::leaf(record.body.as_bytes()));
                let Some(frame) = referring(&record.body) else {
                    continue;
                };
                for external in &frame.ext {
                    *self.named.entry(external.hash).or_default() += 1;
                }
                self.parent = self.parent.take().or_else(|| parent_of(&frame));
            }
        }
    }
}

/// The positions of the frames of a stream, as ranges.
fn positions(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<(u64, u64)>, StoreError> {
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    let mut from = 0;
    loop {
        let page = reader.auditor()?.positions(stream, from, MAX_PAGE)?;
        let Some((last, _)) = page.last() else {
            return Ok(ranges);
        };
        from = last.saturating_add(1);
        for (_, position) in page {
            match ranges.last_mut() {
                Some((first, count)) if *first + *count == position => *count += 1,
                Some(_) | None => ranges.push((position, 1)),
            }
        }
    }
}

/// What is left of a removed frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RemovedFrame {
    /// Its leaf of the tree.
    pub(crate) leaf: Node,
    pub(crate) stream: Arc<StreamId>,
    pub(crate) seq: u64,
    /// Its hash, if it was the last frame of its stream.
    pub(crate) end: Option<Hash>,
}

/// The leaves of removed frames by their positions, read as a scan comes to them: those of a stream
/// are held only between its first position and its last.
pub struct RemovedLeaves<'a> {
    reader: &'a dyn Reader,
    /// The first position of each removal, and the frame that records it; the last ones first.
    ahead: Vec<(u64, u64)>,
    /// The number of `store` from which on removals are not listed yet.
    next: u64,
    here: BTreeMap<u64, RemovedFrame>,
}

impl<'a> RemovedLeaves<'a> {
    /// The removals of a ledger.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn of(reader: &'a dyn Reader) -> Result<Self, StoreError> {
        let mut leaves = Self {
            reader,
            ahead: Vec::new(),
            next: 0,
            here: BTreeMap::new(),
        };
        leaves.list()?;
        Ok(leaves)
    }

    fn list(&mut self) -> Result<(), StoreError> {
        let Some(audit) = self.reader.audit() else {
            return Ok(());
        };
        loop {
            let page = audit.removals(self.next, MAX_PAGE)?;
            let Some(last) = page.last() else {
                break;
            };
            self.next = last.seq.saturating_add(1);
            for record in page {
                let removed = removed_by(self.reader, &record)?;
                let first = removed.and_then(|removed| removed.positions.first().copied());
                self.ahead
                    .extend(first.map(|(first, _)| (first, record.seq)));
            }
        }
        self.ahead.sort_unstable_by(|left, right| right.cmp(left));
        Ok(())
    }

    /// The leaf of the removed frame at a position; `None` if none was removed there. Positions must
    /// be asked for in ascending order.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn leaf(&mut self, position: u64) -> Result<Option<Node>, StoreError> {
        Ok(self.frame(position)?.map(|removed| removed.leaf))
    }

    /// What is left of the removed frame at a position, as [`RemovedLeaves::leaf`].
    pub(crate) fn frame(&mut self, position: u64) -> Result<Option<RemovedFrame>, StoreError> {
        if let Some(removed) = self.listed_frame(position)? {
            return Ok(Some(removed));
        }
        // It may have been removed since the removals were listed.
        self.list()?;
        self.listed_frame(position)
    }

    /// Gives the leaves of a range of positions, all of whose frames must have been removed; stops
    /// and gives false at the first that was not.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn each(
        &mut self,
        positions: std::ops::Range<u64>,
        take: &mut dyn FnMut(Node),
    ) -> Result<bool, StoreError> {
        for position in positions {
            match self.leaf(position)? {
                Some(leaf) => take(leaf),
                None => return Ok(false),
            }
        }
        Ok(true)
    }

    /// As [`RemovedLeaves::leaf`], among the removals that are listed already.
    pub(crate) fn listed(&mut self, position: u64) -> Result<Option<Node>, StoreError> {
        Ok(self.listed_frame(position)?.map(|removed| removed.leaf))
    }

    fn listed_frame(&mut self, position: u64) -> Result<Option<RemovedFrame>, StoreError> {
        while let Some((first, seq)) = self.ahead.last().copied()
            && first <= position
        {
            self.ahead.pop();
            self.load(seq)?;
        }
        self.here = self.here.split_off(&position);
        Ok(self.here.remove(&position))
    }

    fn load(&mut self, seq: u64) -> Result<(), StoreError> {
        let records = self.reader.read(&StreamId::store(), seq, 1)?;
        let Some(record) = records.first() else {
            return Ok(());
        };
        if let Some(removed) = removed_by(self.reader, record)? {
            self.here.extend(frames(&removed));
        }
        Ok(())
    }
}

/// The removal that a frame of `store` records, with its blobs; `None` if it records none.
///
/// # Errors
/// [`StoreError`].
pub fn removed_by(reader: &dyn Reader, record: &Record) -> Result<Option<RunRemoved>, StoreError> {
    let frame = crate::branch::Blobs::new(reader).decode(&StreamId::store(), record)?;
    let Event::Store(StoreEvent::RunRemoved(removed)) = frame.event else {
        return Ok(None);
    };
    Ok(Some(removed))
}

/// The number after the last frame of a removed stream, by the frame of `store` that removed it.
///
/// # Errors
/// [`StoreError::Damaged`] where that frame is another.
pub fn end_of_removed(stream: &StreamId, record: &Record) -> Result<u64, StoreError> {
    let frame = record.decode_bare();
    let frame = frame.map_err(|error| StoreError::Damaged(error.to_string()))?;
    let Event::Store(StoreEvent::RunRemoved(removed)) = frame.event else {
        let words = format!("{stream} was removed without an authority");
        return Err(StoreError::Damaged(words));
    };
    Ok(removed.first.saturating_add(removed.frames))
}

/// The positions of removed frames, with what is left of them.
fn frames(removed: &RunRemoved) -> impl Iterator<Item = (u64, RemovedFrame)> {
    let bytes = STANDARD.decode(&removed.leaves).unwrap_or_default();
    let nodes: Vec<Node> = bytes.chunks(32).filter_map(Node::from_bytes).collect();
    let counted = nodes.len() as u64;
    let ranges = removed.positions.iter();
    // A count from a forged frame must not decide how long this takes.
    let places = ranges.flat_map(move |(first, count)| {
        (0..(*count).min(counted)).map_while(|at| first.checked_add(at))
    });
    let (stream, first, hash) = (
        Arc::new(removed.stream.clone()),
        removed.first,
        removed.hash,
    );
    places
        .zip(nodes)
        .zip(0..)
        .map(move |((position, leaf), at)| {
            let frame = RemovedFrame {
                leaf,
                stream: Arc::clone(&stream),
                seq: first.saturating_add(at),
                end: (at + 1 == counted).then_some(hash),
            };
            (position, frame)
        })
}
