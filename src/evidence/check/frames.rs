//! The frames of an archive: bytes, chains, causes, blobs, and whether anything is missing.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::{AgentEvent, OPEN, StoreEvent, WebhookEvent};
use ktsu_ledger::{Cause, Event, Frame, Hash, StreamId};

use super::super::archive::{MANIFEST, PositionedFrame, Range};
use super::reading::{EvidenceArchive, FrameRow};
use super::{CheckResult, ClaimFailure, counted, for_one, not_covered, proven};

impl EvidenceArchive {
    /// Checks that the files are those the manifest names.
    pub(super) fn manifest(&self) -> CheckResult {
        let listed = &self.manifest.files;
        for name in self.files.names() {
            if name != MANIFEST && listed.get(name) != self.describe(name).as_ref() {
                return Err(ClaimFailure::new(format!("{name} is not as listed")));
            }
        }
        let missing = |name: &&String| self.files.place(name).is_none();
        match listed.keys().find(missing) {
            Some(name) => Err(ClaimFailure::new(format!("{name} is missing"))),
            None => proven(counted(listed.len(), "file")),
        }
    }

    /// Checks that each stream is one chain from its beginning.
    pub(super) fn chain_claim(&self) -> CheckResult {
        match &self.chain {
            Some(wrong) => Err(wrong.clone()),
            None => {
                let (frames, streams) = (self.count(), self.manifest.streams.len());
                {
                    let frames = counted(frames, "frame");
                    proven(format!("{frames} of {}", counted(streams, "stream")))
                }
            }
        }
    }

    /// Follows every stream.
    pub(super) fn follow(&self) -> Result<(), ClaimFailure> {
        let mut ranges: BTreeMap<String, Range> = BTreeMap::new();
        for placed in self.each() {
            let frame = &placed.frame;
            let range = ranges.get_mut(frame.stream.as_str());
            let (seq, prev) = match &range {
                Some(range) => (range.first + range.frames, range.head),
                None => self.beginning(frame)?,
            };
            if frame.seq != seq {
                let words = format!("its number is not {seq}, which comes next");
                return Err(ClaimFailure::at(frame.id(), words));
            }
            if frame.prev != prev {
                let words = "it does not follow from the frame before it";
                return Err(ClaimFailure::at(frame.id(), words));
            }
            match range {
                Some(range) => {
                    range.frames += 1;
                    range.head = frame.hash;
                }
                None => {
                    let fresh = Range {
                        first: frame.seq,
                        frames: 1,
                        head: frame.hash,
                    };
                    ranges.insert(frame.stream.to_string(), fresh);
                }
            }
        }
        match ranges == self.manifest.streams {
            true => Ok(()),
            false => Err(ClaimFailure::new(
                "the manifest names other streams, or more of them",
            )),
        }
    }

    /// The beginning of a stream: at nothing, or behind the frame that a branch shares.
    fn beginning(&self, first: &Frame) -> Result<(u64, Hash), ClaimFailure> {
        let Some(branch) = first.event.branched() else {
            return Ok((0, Hash::ZERO));
        };
        let wrong = |words: &str| ClaimFailure::at(first.id(), words);
        let Some(last) = branch.fork_position.checked_sub(1) else {
            return Ok((0, Hash::ZERO));
        };
        let parent = branch
            .parent()
            .map_err(|_| wrong("its parent has no name"))?;
        // A parent may share that frame itself.
        match self.shared_row(parent.as_str(), last) {
            Some(shared) => Ok((branch.fork_position, shared.hash)),
            None => Err(wrong("the frame it was forked from is not in the archive")),
        }
    }

    /// Checks that every cause is an earlier frame.
    pub(super) fn causes(&self) -> CheckResult {
        let mut outside = 0u64;
        for placed in self.each() {
            let PositionedFrame { position, frame } = &*placed;
            for cause in &frame.cause {
                let wrong = || {
                    let words =
                        format!("it names the cause {cause}, which is not an earlier frame");
                    Err(ClaimFailure::at(frame.id(), words))
                };
                match cause {
                    Cause::Here(seq) if *seq < frame.seq => {}
                    Cause::Here(_) => return wrong(),
                    Cause::There(stream, seq) => {
                        if !self.manifest.streams.contains_key(stream.as_str()) {
                            outside += u64::from(frame.stream.kind() != "store");
                            continue;
                        }
                        let found = self.row(stream.as_str(), *seq);
                        if found.is_none_or(|found| found.position >= *position) {
                            return wrong();
                        }
                    }
                }
            }
        }
        match outside {
            0 => proven("every cause is an earlier frame"),
            some => not_covered(format!("in other streams: {}", counted(some, "cause"))),
        }
    }

    /// Checks that every blob is what its hash says, and is named.
    pub(super) fn blobs(&self) -> CheckResult {
        let mut named = BTreeSet::new();
        for placed in self.each() {
            let frame = &placed.frame;
            for external in &frame.ext {
                let name = Self::blob_name(&external.hash);
                let right = self.describe(&name).is_some_and(|blob| {
                    blob.bytes == external.bytes && blob.blake3 == external.hash.to_string()
                });
                named.insert(name);
                if !right {
                    let words = format!("the blob {} is missing or another", external.hash);
                    return Err(ClaimFailure::at(frame.id(), words));
                }
            }
        }
        let found = self.files.names().filter(|name| name.starts_with("blobs/"));
        let found: Vec<&str> = found.collect();
        match found.iter().find(|name| !named.contains(**name)) {
            Some(name) => Err(ClaimFailure::new(format!("no frame names {name}"))),
            None => proven(counted(found.len(), "blob")),
        }
    }

    /// Checks that nothing is missing: every run that ended ends as its head says, and no frame of
    /// the signed tree is left out.
    pub(super) fn completeness(&self) -> CheckResult {
        let mut headed = BTreeMap::new();
        let removed = self.removed();
        for placed in self.each() {
            let PositionedFrame { position, frame } = &*placed;
            let Event::Store(StoreEvent::RunHead(head)) = &frame.event else {
                continue;
            };
            let stream = head.stream.as_str();
            if !self.manifest.streams.contains_key(stream) {
                if self.manifest.all && !removed.contains(&head.stream) {
                    let words = format!("{stream} ended, and is not in an archive of all runs");
                    return Err(ClaimFailure::at(frame.id(), words));
                }
                continue;
            }
            let last = head.frames.checked_sub(1);
            let found = last.and_then(|last| self.shared_row(stream, last));
            if found.is_none_or(|found| found.hash != head.hash) {
                let words = format!(
                    "{stream} does not have the {} frames it ended with",
                    head.frames
                );
                return Err(ClaimFailure::at(frame.id(), words));
            }
            // What is not signed shows nothing, and a run that was resumed has not ended.
            match *position <= self.tree.size && head.status != OPEN {
                true => headed.insert(stream.to_owned(), head.frames),
                false => headed.remove(stream),
            };
        }
        let mut requested = self.manifest.runs.iter();
        let missing = requested.find(|run| !self.manifest.streams.contains_key(*run));
        if let Some(missing) = missing {
            let words = format!("{missing} was asked for and is not here");
            return Err(ClaimFailure::new(words));
        }
        let mut open = Vec::new();
        for (stream, (_, last)) in self.by_stream() {
            if matches!(stream.split(':').next(), Some("run" | "branch"))
                && headed.get(stream) != Some(&(last + 1))
            {
                open.push(stream.to_owned());
            }
        }
        let doubt = self.in_doubt();
        let signed = |row: &&FrameRow| row.position <= self.tree.size;
        let here = self.all().iter().filter(signed).count() as u64;
        match (open.first(), self.tree.size.saturating_sub(here)) {
            (Some(first), _) => {
                let words = format!(
                    "{} {} no head after the last frame, such as {first}: later frames could be \
                     missing",
                    counted(open.len(), "run"),
                    for_one(&open.len(), "has", "have")
                );
                not_covered(words)
            }
            (None, left_out @ 1..) => {
                let words = format!(
                    "{}; {} of the ledger {} not here, and may include later frames, branches or \
                     recomputes of these runs",
                    as_headed(headed.len()),
                    counted(left_out, "frame"),
                    for_one(&left_out, "is", "are")
                );
                not_covered(words)
            }
            (None, 0) => {
                let words = format!(
                    "{}; {} in doubt",
                    as_headed(headed.len()),
                    counted(doubt, "call")
                );
                proven(words)
            }
        }
    }

    /// The streams that were removed from the ledger, as the archive says.
    fn removed(&self) -> BTreeSet<StreamId> {
        let mut removed = BTreeSet::new();
        for placed in self.each() {
            if let Event::Store(StoreEvent::RunRemoved(event)) = &placed.frame.event {
                removed.insert(event.stream.clone());
            }
        }
        removed
    }

    /// Calls to the world that have no answer in the archive.
    fn in_doubt(&self) -> usize {
        let mut open = BTreeSet::new();
        for placed in self.each() {
            let frame = &placed.frame;
            let stream = frame.stream.to_string();
            match &frame.event {
                Event::Webhook(WebhookEvent::Sent(_)) | Event::Agent(AgentEvent::Request(_)) => {
                    open.insert((stream, frame.seq));
                }
                Event::Webhook(_) | Event::Agent(AgentEvent::Response(_)) => {
                    for cause in &frame.cause {
                        if let Cause::Here(seq) = cause {
                            open.remove(&(stream.clone(), *seq));
                        }
                    }
                }
                _ => {}
            }
        }
        open.len()
    }
}

/// `1 run ends as its head says`.
fn as_headed(count: usize) -> String {
    let ends = for_one(&count, "ends as its head says", "end as their heads say");
    format!("{} {ends}", counted(count, "run"))
}
