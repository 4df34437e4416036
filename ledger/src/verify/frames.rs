//! Frames of all streams, in the order they were appended.

use std::collections::{BTreeMap, HashMap};

use super::blobs::BlobReferences;
use super::checkpoints::Checkpoints;
use super::report::{ProblemKind, VerifyReport};
use super::{Findings, Head, PAGE, TrustedCheckpoint, VerifyObserver, VerifyOptions};
use crate::branch::Ancestry;
use crate::chain::{Chain, ChainError};
use crate::event::{BranchCreated, Event, RunRemoved, StoreEvent};
use crate::frame::{Frame, MAX_BODY, Record};
use crate::hash::Hash;
use crate::id::{Cause, StreamId};
use crate::removal::RemovedLeaves;
use crate::store::{RawFrame, Reader, Tail};
use crate::strict;

/// The state of the ledger as far as its frames were read.
pub(super) struct SeenFrames {
    streams: Vec<SeenStream>,
    by_name: HashMap<String, usize>,
    /// Blobs that frames name.
    pub(super) blobs: BlobReferences,
    heads: HashMap<String, Vec<(Head, bool)>>,
    held: Vec<(TrustedCheckpoint, bool)>,
    tree: Checkpoints,
    /// Frames of types this version does not know.
    pub(super) unknown: BTreeMap<String, u64>,
    last_epoch: u64,
    /// The streams that were removed, as the frames of `store` say that were read.
    pub(super) removed: BTreeMap<String, RunRemoved>,
    /// The position after the last frame that was read.
    next: u64,
}

/// One stream.
struct SeenStream {
    name: String,
    chain: Chain,
    broken: bool,
}

impl SeenFrames {
    pub(super) fn new(options: &VerifyOptions) -> Self {
        let mut heads: HashMap<String, Vec<(Head, bool)>> = HashMap::new();
        for head in &options.heads {
            let of_stream = heads.entry(head.stream.to_string()).or_default();
            of_stream.push((head.clone(), false));
        }
        Self {
            streams: Vec::new(),
            by_name: HashMap::new(),
            blobs: BlobReferences::default(),
            heads,
            held: options
                .checkpoints
                .iter()
                .map(|held| (held.clone(), false))
                .collect(),
            tree: Checkpoints::default(),
            unknown: BTreeMap::new(),
            last_epoch: 0,
            removed: BTreeMap::new(),
            next: 1,
        }
    }

    /// Reads all frames.
    pub(super) fn scan(
        &mut self,
        reader: &dyn Reader,
        report: &mut VerifyReport,
        onlooker: &mut dyn VerifyObserver,
    ) {
        let mut from = 0;
        let mut removed = match RemovedLeaves::of(reader) {
            Ok(removed) => Some(removed),
            Err(error) => {
                report.note_failure(&error);
                let message = format!("the removals cannot be read: {error}");
                report.find(None, None, ProblemKind::Container, message);
                None
            }
        };
        loop {
            let page = match reader.scan_frames(from, PAGE) {
                Ok(page) => page,
                Err(error) => {
                    report.note_failure(&error);
                    let from = from.max(1);
                    let message = format!("the frames from {from} on cannot be read: {error}");
                    return report.find(None, None, ProblemKind::Container, message);
                }
            };
            match page.last() {
                Some(last) if last.position >= from => from = last.position.saturating_add(1),
                Some(_) | None => return,
            }
            for frame in page {
                report.frames += 1;
                if let Some(removed) = &mut removed {
                    self.pass_removed(removed, &frame, report);
                }
                self.check_next(reader, frame, report, onlooker);
            }
            onlooker.progress(report.frames);
        }
    }

    /// Adds the leaves of the frames that were removed before a frame.
    fn pass_removed(
        &mut self,
        removed: &mut RemovedLeaves<'_>,
        before: &RawFrame,
        report: &mut VerifyReport,
    ) {
        let position = before.position;
        for gone in self.next..position {
            match removed.leaf(gone) {
                Ok(Some(leaf)) => self.tree.add_leaf(leaf, &mut self.held),
                // The container counts the frames that are gone.
                Ok(None) => break,
                Err(error) => {
                    let message = format!("the frame removed from {gone}: {error}");
                    report.find(None, None, ProblemKind::Container, message);
                    break;
                }
            }
        }
        if before.misplaced.is_none() {
            if let Ok(Some(_)) = removed.listed(position) {
                let message = format!("the frame at {position} is said to have been removed");
                let name = before.stream.as_deref();
                report.find(name, before.seq, ProblemKind::Container, message);
            }
            self.next = position.saturating_add(1);
        }
    }

    fn check_next(
        &mut self,
        reader: &dyn Reader,
        mut raw: RawFrame,
        report: &mut VerifyReport,
        onlooker: &mut dyn VerifyObserver,
    ) {
        let position = raw.position;
        let Some(name) = raw.stream.take() else {
            let message = format!("the frame at {position} is of no stream");
            return report.find(None, None, ProblemKind::Container, message);
        };
        let seq = raw.seq;
        if let Some(at) = &raw.misplaced {
            // It was never appended, so it does not affect the other frames.
            let message = format!("its position is {at}, but positions begin at 1");
            return report.find(Some(&name), seq, ProblemKind::Container, message);
        }
        self.tree.add(&raw.body, &raw.hash, &mut self.held);
        let at = self.stream(name);
        if let Err((kind, message)) = self.check_frame(reader, at, raw, onlooker) {
            // If frames are damaged, their tree differs anyway.
            if kind == ProblemKind::Checkpoint && !report.is_sound() {
                return;
            }
            let Some(seen) = self.streams.get_mut(at) else {
                return;
            };
            if !std::mem::replace(&mut seen.broken, true) {
                report.find(Some(&seen.name), seq, kind, message);
            }
        }
    }

    /// The index of a stream among those seen.
    fn stream(&mut self, name: String) -> usize {
        if let Some(at) = self.by_name.get(&name) {
            return *at;
        }
        let at = self.streams.len();
        self.by_name.insert(name.clone(), at);
        self.streams.push(SeenStream {
            chain: Chain::new(id(&name)),
            broken: false,
            name,
        });
        at
    }

    fn seen(&self, name: &str) -> Option<&SeenStream> {
        self.streams.get(*self.by_name.get(name)?)
    }

    /// Checks one frame; its stream is followed further even if it is damaged.
    fn check_frame(
        &mut self,
        reader: &dyn Reader,
        at: usize,
        raw: RawFrame,
        onlooker: &mut dyn VerifyObserver,
    ) -> Result<(), Findings> {
        let (record, found) = record_of(raw)?;
        let read = read(&record);
        let shared = match &read {
            Ok(frame) => self.shared(reader, at, frame),
            Err(_) => None,
        };
        let Some(seen) = self.streams.get_mut(at) else {
            return Ok(());
        };
        let frame = match read {
            Ok(frame) => frame,
            Err(wrong) => {
                let tail = Tail {
                    seq: record.seq,
                    hash: record.hash,
                };
                seen.chain = Chain::after(id(&seen.name), tail);
                return Err(wrong);
            }
        };
        if let (Some(tail), Ok(stream)) = (shared, seen.name.parse()) {
            seen.chain = Chain::after(stream, tail);
        }
        seen.chain
            .push_hashed(&record, &frame)
            .map_err(|broken| (kind_of(broken), broken.to_string()))?;
        if seen.name != frame.stream.as_str() {
            return Err((ProblemKind::Column, ChainError::Columns.to_string()));
        }
        if !found {
            let message = "a look-up by stream and number finds another frame, or none";
            return Err((ProblemKind::Container, message.to_owned()));
        }
        self.causes(reader, &frame)?;
        for external in &frame.ext {
            let named = self.blobs.note(frame.stream.as_str(), frame.seq, external);
            named.map_err(|message| (ProblemKind::Blob, message))?;
        }
        self.note(&frame);
        onlooker.frame(reader, &frame, record.body.len());
        if let (Event::Store(event), "store") = (&frame.event, frame.stream.as_str()) {
            return self.tree.take(event);
        }
        Ok(())
    }

    /// The last frame that a branch shares with its parent, if this frame is its first and the
    /// parent was read that far.
    fn shared(&self, reader: &dyn Reader, at: usize, frame: &Frame) -> Option<Tail> {
        let branch = frame.event.branched()?;
        if self.streams.get(at)?.chain.next() != 0 {
            return None;
        }
        let (stream, tail) = shared(reader, branch)?;
        let known = self.seen(stream.as_str())?;
        (tail.seq < known.chain.next()).then_some(tail)
    }

    /// Checks that every cause is an earlier frame.
    fn causes(&self, reader: &dyn Reader, frame: &Frame) -> Result<(), Findings> {
        for cause in &frame.cause {
            let exists = match cause {
                Cause::Here(seq) => *seq < frame.seq,
                Cause::There(stream, seq) if *stream == frame.stream => *seq < frame.seq,
                Cause::There(stream, seq) => {
                    let seen = self.seen(stream.as_str());
                    seen.is_some_and(|other| *seq < other.chain.next())
                        || self.was_removed(reader, stream, *seq)
                }
            };
            if !exists {
                let message = format!("it names the cause {cause}, which does not exist before it");
                return Err((ProblemKind::Cause, message));
            }
        }
        Ok(())
    }

    /// Returns `true` if a frame was one of a stream that was removed.
    fn was_removed(&self, reader: &dyn Reader, stream: &StreamId, seq: u64) -> bool {
        let removed = reader.removed(stream).ok().flatten();
        removed.is_some_and(|removed| seq < end_of(&removed.event))
    }

    /// Remembers what a sound frame states about others.
    fn note(&mut self, frame: &Frame) {
        let heads = self.heads.get_mut(frame.stream.as_str());
        for (head, found) in heads.into_iter().flatten() {
            *found |= head.seq == frame.seq && head.hash == frame.hash;
        }
        if !frame.event.is_known() {
            let count = self.unknown.entry(frame.event.kind().to_owned());
            *count.or_default() += 1;
        }
        if let (Event::Store(StoreEvent::RunRemoved(removed)), "store") =
            (&frame.event, frame.stream.as_str())
        {
            let stream = removed.stream.to_string();
            // A recorded head of it is found here, if it is its last.
            for (head, found) in self.heads.get_mut(&stream).into_iter().flatten() {
                *found |= head.seq < end_of(removed).saturating_sub(1)
                    || head.seq.checked_add(1) == Some(end_of(removed))
                        && head.hash == removed.hash;
            }
            self.removed.insert(stream, removed.clone());
        }
        if let Event::Store(StoreEvent::Opened(opened)) = &frame.event {
            self.last_epoch = self.last_epoch.max(opened.epoch);
        }
    }

    /// Reports problems that only the whole ledger shows.
    pub(super) fn finish(&mut self, epoch: Option<u64>, report: &mut VerifyReport) {
        report.streams = self.streams.len() as u64;
        report.checkpoints = self.tree.signed;
        report.signed_frames = self.tree.covered;
        for (id, position) in &self.tree.strangers {
            report.not_covered.push(format!(
                "the key {id} signs from frame {position} of the ledger on, and no earlier key \
                 vouches for it"
            ));
        }
        for (held, _) in self.held.iter().filter(|(_, found)| !found) {
            let message = format!(
                "the ledger does not go on from the checkpoint over {} frames of {} that was kept \
                 elsewhere",
                held.size, held.origin
            );
            report.find(None, None, ProblemKind::Checkpoint, message);
        }
        if epoch.is_some_and(|epoch| epoch < self.last_epoch) {
            let message = format!(
                "the ledger says epoch {}, its frames say {}",
                epoch.unwrap_or_default(),
                self.last_epoch
            );
            report.find(None, None, ProblemKind::Container, message);
        }
        let mut missing: Vec<&Head> = self
            .heads
            .values()
            .flatten()
            .filter(|(_, found)| !found)
            .map(|(head, _)| head)
            .collect();
        missing.sort_by(|left, right| (&left.stream, left.seq).cmp(&(&right.stream, right.seq)));
        for head in missing {
            let message = format!("the recorded head {} is not there", head.hash);
            report.find(
                Some(head.stream.as_str()),
                Some(head.seq),
                ProblemKind::Head,
                message,
            );
        }
    }

    /// Every stream that was seen, with its end, by name.
    pub(super) fn tails(&self) -> Vec<(&str, Option<Tail>)> {
        let streams = self.streams.iter();
        let mut tails: Vec<_> = streams
            .map(|seen| (seen.name.as_str(), seen.chain.tail()))
            .collect();
        tails.sort_unstable_by_key(|(name, _)| *name);
        tails
    }
}

/// The number after the last frame that was removed.
fn end_of(removed: &RunRemoved) -> u64 {
    removed.first.saturating_add(removed.frames)
}

/// The id of a stream; invalid names share a placeholder that never chains.
fn id(name: &str) -> StreamId {
    name.parse().unwrap_or_else(|_| StreamId::store())
}

/// The last frame that a branch shares, and the stream that holds it.
fn shared(reader: &dyn Reader, branch: &BranchCreated) -> Option<(StreamId, Tail)> {
    let path = Ancestry::of(reader, &branch.parent().ok()?).ok()?;
    let seq = branch.fork_position.checked_sub(1)?;
    let found = path.read(reader, seq, 1).ok()?;
    let hash = found.first().filter(|record| record.seq == seq)?.hash;
    Some((path.owner(seq)?.clone(), Tail { seq, hash }))
}

/// The columns, as a record; and whether a look-up finds it.
fn record_of(raw: RawFrame) -> Result<(Record, bool), Findings> {
    let wrong = |kind, message: &str| (kind, message.to_owned());
    let found = raw.is_found;
    let seq = raw.seq;
    let seq = seq.ok_or_else(|| wrong(ProblemKind::Column, "its number is negative"))?;
    let hash = Hash::from_bytes(&raw.hash)
        .ok_or_else(|| wrong(ProblemKind::Hash, "its hash has not 32 bytes"))?;
    let body = String::from_utf8(raw.body).map_err(|error| {
        let changed = Hash::of(error.as_bytes()) != hash;
        let kind = if changed {
            ProblemKind::Hash
        } else {
            ProblemKind::Unreadable
        };
        wrong(kind, "its bytes are not UTF-8")
    })?;
    Ok((Record { seq, hash, body }, found))
}

/// Reads a body both ways: typed, and by the full strict check.
fn read(record: &Record) -> Result<Frame, Findings> {
    if Hash::of(record.body.as_bytes()) != record.hash {
        return Err((ProblemKind::Hash, ChainError::Hash.to_string()));
    }
    if record.body.len() > MAX_BODY {
        let message = format!("it has {} bytes", record.body.len());
        return Err((ProblemKind::Unreadable, message));
    }
    strict::check_body(&record.body)
        .map_err(|unfit| (ProblemKind::Unreadable, unfit.to_string()))?;
    let frame = record.decode_bare();
    frame.map_err(|error| (ProblemKind::Unreadable, error.to_string()))
}

fn kind_of(broken: ChainError) -> ProblemKind {
    match broken {
        ChainError::Hash => ProblemKind::Hash,
        ChainError::Columns => ProblemKind::Column,
        ChainError::Gap { .. } => ProblemKind::Gap,
        ChainError::Prev => ProblemKind::Prev,
    }
}
