//! The frames of a stream as projections see them: in order, with blobs inserted and forks
//! resolved.
//!
//! A branch stores only its own frames. Those before its fork position are in its parent, and so on
//! up to the run: an [`Ancestry`] maps frame numbers to streams, and hides from readers that the
//! frames are in several places.

use std::collections::HashMap;

use crate::canonical::CanonicalJson;
use crate::event::{BranchCreated, Event, RunEvent};
use crate::frame::{External, Frame, FrameError, Record};
use crate::frame_head::FrameHead;
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::{MAX_PAGE, Reader, StoreError};

/// The most forks between a branch and its run. Each was made by hand; a longer way is damage.
const MAX_FORKS: usize = 10_000;

/// The streams that hold the frames of an effective stream, each a part of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ancestry {
    /// From the run down to the stream itself, each with the number its part begins at.
    parts: Vec<(u64, StreamId)>,
}

impl Ancestry {
    /// The way from a stream up to the run it was forked from.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Damaged`] for a branch whose beginning cannot be read.
    pub fn of(reader: &dyn Reader, stream: &StreamId) -> Result<Self, StoreError> {
        Self::of_row(
            &mut |stream, from, limit| reader.read(stream, from, limit),
            stream,
        )
    }

    /// As [`Ancestry::of`], with a function that reads frames of a stream.
    pub(crate) fn of_row(read: ReadResult<'_>, stream: &StreamId) -> Result<Self, StoreError> {
        let mut parts = Vec::new();
        let mut stream = stream.clone();
        let mut until = u64::MAX;
        let mut steps = 0;
        while let Some(branch) = beginning(read, &stream)? {
            let parent = branch.parent().map_err(|error| damaged(&stream, &error))?;
            steps += 1;
            if steps > MAX_FORKS {
                return Err(damaged(
                    &stream,
                    &"too many forks lie between it and its run",
                ));
            }
            // A fork before the fork position of its parent shares nothing of the parent's own.
            if branch.fork_position < until {
                until = branch.fork_position;
                parts.push((until, stream));
            }
            stream = parent;
        }
        // If nothing is shared, the run has no part in it.
        if until > 0 {
            parts.push((0, stream));
        }
        parts.reverse();
        Ok(Self { parts })
    }

    /// The stream that holds a frame.
    pub fn owner(&self, seq: u64) -> Option<&StreamId> {
        let at = self.parts.partition_point(|(from, _)| *from <= seq);
        self.parts.get(at.checked_sub(1)?).map(|(_, stream)| stream)
    }

    /// The fork position, if it is a branch.
    pub fn forked(&self) -> Option<u64> {
        let (from, stream) = self.parts.last()?;
        (stream.kind() == "branch").then_some(*from)
    }

    /// The numbers that its parts begin at, from the run down to the stream itself.
    pub fn beginnings(&self) -> impl Iterator<Item = u64> {
        self.parts.iter().map(|(from, _)| *from)
    }

    /// Frames in order, `from` included; see [`Reader::read`].
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn read(
        &self,
        reader: &dyn Reader,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let read = self.read_by(
            &mut |stream, from, limit| reader.read(stream, from, limit),
            from,
            limit,
        );
        fork_error(reader, read)
    }

    fn read_by(
        &self,
        read: ReadResult<'_>,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError> {
        let at = self.parts.partition_point(|(first, _)| *first <= from);
        let Some((_, stream)) = at.checked_sub(1).and_then(|at| self.parts.get(at)) else {
            return Ok(Vec::new());
        };
        let Some((until, _)) = self.parts.get(at) else {
            return read(stream, from, limit);
        };
        let left = usize::try_from(until - from).unwrap_or(usize::MAX);
        let records = read(stream, from, limit.min(left))?;
        match records.is_empty() && limit > 0 {
            true => Err(damaged(
                stream,
                &format!("frame {from} is missing, which a branch shares"),
            )),
            false => Ok(records),
        }
    }

    fn missing(&self, seq: u64) -> StoreError {
        let place = self.owner(seq).map_or("", StreamId::as_str);
        StoreError::Damaged(format!("{place}: frame {seq} is missing"))
    }

    /// The hash of a frame, if there is such a frame.
    pub(crate) fn hash_at(
        &self,
        read: ReadResult<'_>,
        seq: u64,
    ) -> Result<Option<Hash>, StoreError> {
        let found = self.read_by(read, seq, 1)?;
        let found = found.first().filter(|record| record.seq == seq);
        Ok(found.map(|record| record.hash))
    }
}

/// Reads frames of a stream: from a number, up to a limit.
pub(crate) type ReadResult<'a> =
    &'a mut dyn FnMut(&StreamId, u64, usize) -> Result<Vec<Record>, StoreError>;

/// The `branch.created` of a branch; `None` for other kinds of streams.
fn beginning(
    read: ReadResult<'_>,
    stream: &StreamId,
) -> Result<Option<Box<BranchCreated>>, StoreError> {
    if stream.kind() != "branch" {
        return Ok(None);
    }
    let first = read(stream, 0, 1)?;
    let Some(first) = first.first() else {
        return Err(damaged(stream, &"it has no frames"));
    };
    match first.decode_bare().map(|frame| frame.event) {
        Ok(Event::Run(RunEvent::Branched(branch))) if branch.fork_position == first.seq => {
            Ok(Some(branch))
        }
        Ok(_) => Err(damaged(stream, &"it does not begin with branch.created")),
        Err(error) => Err(damaged(stream, &error)),
    }
}

fn damaged(stream: &StreamId, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Damaged(format!("{stream}: {why}"))
}

fn blob_error(stream: &StreamId, record: &Record, error: &FrameError) -> StoreError {
    StoreError::Damaged(format!("{stream}#{}: {error}", record.seq))
}

/// Reports damage in the data to the reader it came from.
fn fork_error<T>(reader: &dyn Reader, read: Result<T, StoreError>) -> Result<T, StoreError> {
    if let Err(StoreError::Damaged(why)) = &read {
        reader.found_damage(why);
    }
    read
}

/// The place of a frame as it says itself: its stream, its number, and the hash of the frame before it.
#[derive(Debug, Clone, Copy)]
pub struct FramePlace<'a>(&'a StreamId, u64, &'a Hash);

impl<'a> From<&'a Frame> for FramePlace<'a> {
    fn from(frame: &'a Frame) -> Self {
        Self(&frame.stream, frame.seq, &frame.prev)
    }
}

impl<'a> From<&'a FrameHead> for FramePlace<'a> {
    fn from(head: &'a FrameHead) -> Self {
        Self(&head.stream, head.seq, &head.prev)
    }
}

/// The expected next frame of a stream: the one after the frame that was read last.
#[derive(Debug, Clone)]
pub struct BranchOrder {
    next: u64,
    /// The hash of the frame before it; none where there is no such frame yet.
    before: Option<Hash>,
}

impl BranchOrder {
    /// From the beginning of a stream.
    pub fn new() -> Self {
        Self {
            next: 0,
            before: Some(Hash::ZERO),
        }
    }

    /// From a number on.
    ///
    /// # Errors
    /// [`StoreError`]; [`StoreError::Damaged`] if the frame before it is missing, and later ones are
    /// not.
    pub fn from(reader: &dyn Reader, path: &Ancestry, next: u64) -> Result<Self, StoreError> {
        let Some(last) = next.checked_sub(1) else {
            return Ok(Self::new());
        };
        let found = path.read(reader, last, 1)?;
        match found.first() {
            Some(record) if record.seq != last => fork_error(reader, Err(path.missing(last))),
            found => Ok(Self {
                next,
                before: found.map(|record| record.hash),
            }),
        }
    }

    /// Takes the next frame.
    ///
    /// # Errors
    /// [`StoreError::Damaged`] if one is missing before it, it belongs to another stream, or it does
    /// not follow from the one before it.
    pub fn take<'a>(
        &mut self,
        reader: &dyn Reader,
        path: &Ancestry,
        record: &Record,
        says: impl Into<FramePlace<'a>>,
    ) -> Result<(), StoreError> {
        fork_error(reader, self.check(path, record, says.into()))
    }

    /// As [`BranchOrder::take`], where the reader is not at hand: damage is not reported to it.
    ///
    /// # Errors
    /// As [`BranchOrder::take`].
    pub fn check(
        &mut self,
        path: &Ancestry,
        record: &Record,
        FramePlace(stream, seq, prev): FramePlace<'_>,
    ) -> Result<(), StoreError> {
        if record.seq != self.next {
            return Err(path.missing(self.next));
        }
        let follows = self.before.is_none_or(|before| *prev == before);
        let is_own = path.owner(record.seq) == Some(stream);
        if seq != record.seq || !follows || !is_own {
            let stream = path.owner(record.seq).unwrap_or(stream);
            let seq = record.seq;
            let words = format!("frame {seq} does not follow from what is before it");
            return Err(damaged(stream, &words));
        }
        self.next = record.seq.saturating_add(1);
        self.before = Some(record.hash);
        Ok(())
    }
}

impl Default for BranchOrder {
    fn default() -> Self {
        Self::new()
    }
}

/// The stored frames of a stream, those it shares with its parents before its own. A stream that
/// does not exist has none.
///
/// # Errors
/// [`StoreError`].
pub fn records(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Record>, StoreError> {
    Ok(read(reader, stream)?.map_or_else(Vec::new, |(_, records)| records))
}

fn read(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<(Ancestry, Vec<Record>)>, StoreError> {
    if reader.tail(stream)?.is_none() {
        return Ok(None);
    }
    let path = Ancestry::of(reader, stream)?;
    let mut records: Vec<Record> = Vec::new();
    loop {
        let next = records.last().map_or(0, |last| last.seq.saturating_add(1));
        let page = path.read(reader, next, MAX_PAGE)?;
        if page.is_empty() {
            return Ok(Some((path, records)));
        }
        let gap = (next..).zip(&page).find(|(seq, record)| *seq != record.seq);
        if let Some((seq, _)) = gap {
            return fork_error(reader, Err(path.missing(seq)));
        }
        records.extend(page);
    }
}

/// The frames that a stream itself stores, each checked against the one before it.
///
/// # Errors
/// [`StoreError`], also for a frame that cannot be read or does not follow from the one before it.
pub fn own(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Record>, StoreError> {
    let Some((path, mut records)) = read(reader, stream)? else {
        return Ok(Vec::new());
    };
    let mut order = BranchOrder::new();
    for record in &records {
        let frame = record.decode_bare();
        let frame = frame.map_err(|error| blob_error(stream, record, &error));
        order.take(reader, &path, record, &fork_error(reader, frame)?)?;
    }
    records.retain(|record| path.owner(record.seq) == Some(stream));
    Ok(records)
}

/// All frames of a stream, blobs put back.
///
/// # Errors
/// [`StoreError`], also for a frame that cannot be read or does not follow from the one before it.
pub fn frames(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Frame>, StoreError> {
    let mut blobs = Blobs::new(reader);
    let Some((path, records)) = read(reader, stream)? else {
        return Ok(Vec::new());
    };
    let mut order = BranchOrder::new();
    let follow = |record: &Record| {
        let frame = blobs.decode(stream, record)?;
        order.take(reader, &path, record, &frame)?;
        Ok(frame)
    };
    records.iter().map(follow).collect()
}

/// The frames of a stream one after another. What is held is a page of stored frames, and no blob.
pub struct FrameStream<'a> {
    reader: &'a dyn Reader,
    stream: &'a StreamId,
    is_wanted: fn(&External) -> bool,
    /// None before the first page is read.
    path: Option<Ancestry>,
    order: BranchOrder,
    page: std::vec::IntoIter<Record>,
    is_over: bool,
}

impl<'a> FrameStream<'a> {
    /// Those of a stream, with the blobs that are wanted; where another one belongs, they have null.
    pub fn new(
        reader: &'a dyn Reader,
        stream: &'a StreamId,
        is_wanted: fn(&External) -> bool,
    ) -> Self {
        Self {
            reader,
            stream,
            is_wanted,
            path: None,
            order: BranchOrder::new(),
            page: Vec::new().into_iter(),
            is_over: false,
        }
    }

    fn read(&mut self) -> Result<Option<Frame>, StoreError> {
        if self.path.is_none() && self.reader.tail(self.stream)?.is_some() {
            self.path = Some(Ancestry::of(self.reader, self.stream)?);
        }
        let Some(path) = &self.path else {
            return Ok(None);
        };
        if self.page.len() == 0 {
            let page = path.read(self.reader, self.order.next, MAX_PAGE)?;
            self.page = page.into_iter();
        }
        let Some(record) = self.page.next() else {
            return Ok(None);
        };
        let mut blobs = Blobs::new(self.reader);
        let frame = blobs.decode_some(self.is_wanted, self.stream, &record)?;
        self.order.take(self.reader, path, &record, &frame)?;
        Ok(Some(frame))
    }
}

impl Iterator for FrameStream<'_> {
    type Item = Result<Frame, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let read = self.read().transpose();
        self.is_over = !matches!(read, Some(Ok(_)));
        read
    }
}

/// Puts blobs back into frames, reading each blob once.
pub struct Blobs<'a> {
    reader: &'a dyn Reader,
    seen: HashMap<Hash, CanonicalJson>,
}

impl<'a> Blobs<'a> {
    /// Blobs as a reader has them.
    pub fn new(reader: &'a dyn Reader) -> Self {
        Self {
            reader,
            seen: HashMap::new(),
        }
    }

    /// Reads a frame.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn decode(&mut self, stream: &StreamId, record: &Record) -> Result<Frame, StoreError> {
        self.decode_some(|_| true, stream, record)
    }

    /// Reads a frame with those blobs alone that are wanted.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn decode_some(
        &mut self,
        is_wanted: fn(&External) -> bool,
        stream: &StreamId,
        record: &Record,
    ) -> Result<Frame, StoreError> {
        let decoded = record.decode_some(&is_wanted, &mut |hash| {
            if let Some(text) = self.seen.get(hash) {
                return Ok(Some(text.clone()));
            }
            let text = self.reader.blob_get(hash)?;
            if let Some(text) = &text {
                self.seen.insert(*hash, text.clone());
            }
            Ok::<_, BranchReadError>(text)
        });
        let decoded = decoded.map_err(|failed| match failed {
            BranchReadError::Store(error) => error,
            BranchReadError::Frame(error) => blob_error(stream, record, &error),
        });
        fork_error(self.reader, decoded)
    }
}

enum BranchReadError {
    Store(StoreError),
    Frame(FrameError),
}

impl From<FrameError> for BranchReadError {
    fn from(error: FrameError) -> Self {
        Self::Frame(error)
    }
}

impl From<StoreError> for BranchReadError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first frame of a branch of a branch of a branch, as text: a ledger of any depth, made
    /// link by link as it is asked for.
    fn link(at: u64) -> Record {
        let body = format!(
            r#"{{"v":1,"stream":"branch:branch_{at}","seq":1,"type":"branch.created","scope":"","actor":"principal:local","cause":[],"at":"2027-01-15T08:00:00.000000Z","data":{{"branch_id":"branch_{at}","by":{{"auth":"none","id":"local"}},"effects":"suppress","engine":"test","fork_position":1,"parent_run_id":"branch_{}","rules":1}},"ext":[],"prev":"{}"}}"#,
            at + 1,
            Hash::ZERO
        );
        Record {
            seq: 1,
            hash: Hash::of(body.as_bytes()),
            body,
        }
    }

    #[test]
    fn a_million_forks_of_forks_are_refused_where_a_ledger_has_no_more() {
        let mut asked = 0u64;
        let path = Ancestry::of_row(
            &mut |stream, _, _| {
                asked += 1;
                let at = stream.name().trim_start_matches("branch_");
                let at: u64 = at.parse().unwrap_or(u64::MAX);
                Ok((at < 1_000_000).then(|| link(at)).into_iter().collect())
            },
            &"branch:branch_0".parse().unwrap(),
        );
        let error = path.unwrap_err().to_string();
        assert!(error.contains("too many forks"), "{error}");
        assert_eq!(asked, MAX_FORKS as u64 + 1);
    }
}
