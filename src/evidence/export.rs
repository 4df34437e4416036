//! Makes an archive of evidence: the same ledger and selection give the same bytes.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::keys::origin_of;
use ktsu_ledger::merkle::{Node, multiproof};
use ktsu_ledger::removal::RemovedLeaves;
use ktsu_ledger::store::{MAX_PAGE, RawFrame, Reader, StoreError};
use ktsu_ledger::{Cause, Event, Frame, Hash, Record, StreamId};

use super::archive::{
    self, Extract, FORMAT, FRAMES, MANIFEST, Manifest, PLACES, PositionedFrame, TREE, Tree,
};
use super::derived;
use super::tar::{self, Files};
use ktsu_workflow::admit::ENGINE;

/// The independent verifier: how to use it, the file that is run, and its parts.
pub(super) const VERIFIER: [(&str, &str); 14] = [
    ("VERIFY.md", include_str!("VERIFY.md")),
    ("verify.py", include_str!("verify.py")),
    ("verify_calls.py", include_str!("verify_calls.py")),
    ("verify_commands.py", include_str!("verify_commands.py")),
    ("verify_content.py", include_str!("verify_content.py")),
    ("verify_evals.py", include_str!("verify_evals.py")),
    ("verify_outputs.py", include_str!("verify_outputs.py")),
    ("verify_queue.py", include_str!("verify_queue.py")),
    ("verify_repeated.py", include_str!("verify_repeated.py")),
    ("verify_reviews.py", include_str!("verify_reviews.py")),
    ("verify_signed.py", include_str!("verify_signed.py")),
    (
        "verify_suspensions.py",
        include_str!("verify_suspensions.py"),
    ),
    ("verify_values.py", include_str!("verify_values.py")),
    ("verify_world.py", include_str!("verify_world.py")),
];

/// A selection of what to export.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportSelection {
    /// Every run, within the times below.
    pub all: bool,
    /// These runs and branches.
    pub streams: Vec<StreamId>,
    /// True if verdicts about what is selected belong to it; one that is named does anyway.
    pub evals: bool,
    /// Only runs that began then or later, as frames write times; any beginning of one serves.
    pub from: Option<String>,
    /// Only runs that began before.
    pub to: Option<String>,
}

/// The reason why there is no archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The ledger is damaged where it is asked for.
    #[error("{0}; `ktsu verify` says more")]
    Damaged(String),
    /// More has to be read or held than the [`ExportBound`] allows.
    #[error("the ledger or the archive is larger than is allowed here")]
    TooLarge,
}

/// The most that an export reads and holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExportBound {
    /// Frames of the ledger, each of which is hashed.
    pub ledger_frames: u64,
    /// Bytes of the frames and values in the archive. Several times as much is held.
    pub bytes: usize,
}

impl ExportBound {
    /// None: on a machine of one's own.
    pub const NONE: Self = Self {
        ledger_frames: u64::MAX,
        bytes: usize::MAX,
    };

    fn check(self, bytes: usize) -> Result<(), ExportError> {
        match bytes > self.bytes {
            true => Err(ExportError::TooLarge),
            false => Ok(()),
        }
    }
}

/// An archive, and counts of what was put into it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExportedArchive {
    /// The archive.
    pub bytes: Vec<u8>,
    /// Frames in it.
    pub frames: u64,
    /// Runs and branches in it.
    pub streams: u64,
    /// The number of frames that no signed checkpoint covers, the last checkpoint's own apart.
    pub unsigned: u64,
}

/// Makes an archive.
///
/// # Errors
/// [`ExportError`].
pub fn export(
    reader: &dyn Reader,
    wanted: &ExportSelection,
) -> Result<ExportedArchive, ExportError> {
    export_within(reader, wanted, ExportBound::NONE)
}

/// As [`export`], within a bound.
///
/// # Errors
/// [`ExportError`].
pub fn export_within(
    reader: &dyn Reader,
    wanted: &ExportSelection,
    bound: ExportBound,
) -> Result<ExportedArchive, ExportError> {
    if reader.last_position()? > bound.ledger_frames {
        return Err(ExportError::TooLarge);
    }
    let selected = select(reader, wanted)?;
    let mut found = scan(reader, &selected, bound)?;
    let blobs = blobs(reader, &found, bound)?;
    let whole = wanted.all && wanted.from.is_none() && wanted.to.is_none();
    let mut files = files(&mut found, blobs)?;
    let manifest = Manifest {
        all: whole,
        engine: ENGINE.to_owned(),
        files: files
            .iter()
            .map(|(name, file)| (name.clone(), archive::describe(name, file)))
            .collect(),
        format: FORMAT,
        origin: found.origin.clone(),
        runs: wanted.streams.iter().map(StreamId::to_string).collect(),
        streams: archive::ranges(&found.frames),
    };
    let manifest = serde_json::to_vec_pretty(&manifest);
    let manifest = manifest.map_err(|error| ExportError::Damaged(error.to_string()))?;
    files.insert(MANIFEST.to_owned(), [&manifest[..], b"\n"].concat());
    let size = found.last.as_ref().map_or(0, |(size, _)| *size);
    let of_runs = |placed: &&PositionedFrame| placed.frame.stream != StreamId::store();
    Ok(ExportedArchive {
        bytes: tar::write(&files).map_err(ExportError::Damaged)?,
        frames: found.frames.len() as u64,
        streams: selected.len() as u64,
        unsigned: found
            .frames
            .iter()
            .filter(of_runs)
            .filter(|it| it.position > size)
            .count() as u64,
    })
}

/// The streams that belong together with those that are asked for: branches with what they were
/// forked from, runs with what was forked or recomputed from them.
pub(super) fn select(
    reader: &dyn Reader,
    wanted: &ExportSelection,
) -> Result<BTreeSet<StreamId>, ExportError> {
    let mut links: Vec<(StreamId, StreamId)> = Vec::new();
    let mut selected: BTreeSet<StreamId> = wanted.streams.iter().cloned().collect();
    let mut after: Option<StreamId> = None;
    loop {
        let page = reader.streams(after.as_ref(), MAX_PAGE)?;
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        for stream in page {
            match stream.kind() {
                "store" => {}
                "eval" if !wanted.evals && !wanted.streams.contains(&stream) => {}
                "run" if !wanted.all => {}
                "run" => {
                    if began_within(reader, &stream, wanted)? {
                        selected.insert(stream);
                    }
                }
                _ => {
                    let parents = parents(reader, &stream)?;
                    // What a baseline is held against hangs from no run.
                    let alone = wanted.all && parents.is_empty();
                    if alone && began_within(reader, &stream, wanted)? {
                        selected.insert(stream.clone());
                    }
                    links.extend(parents.into_iter().map(|it| (it, stream.clone())));
                }
            }
        }
        // Names are in order: with `run:` come those that nothing else hangs from.
        if !wanted.all && after.as_ref().is_some_and(|last| last.kind() >= "run") {
            break;
        }
    }
    Ok(connected(selected, &links))
}

/// Some streams, and all that hang together with them by such links.
fn connected(
    mut selected: BTreeSet<StreamId>,
    links: &[(StreamId, StreamId)],
) -> BTreeSet<StreamId> {
    let mut beside: BTreeMap<&StreamId, Vec<&StreamId>> = BTreeMap::new();
    for (parent, child) in links {
        beside.entry(parent).or_default().push(child);
        beside.entry(child).or_default().push(parent);
    }
    let mut open: Vec<StreamId> = selected.iter().cloned().collect();
    while let Some(stream) = open.pop() {
        for other in beside.remove(&stream).unwrap_or_default() {
            if selected.insert(other.clone()) {
                open.push(other.clone());
            }
        }
    }
    selected
}

fn began_within(
    reader: &dyn Reader,
    stream: &StreamId,
    wanted: &ExportSelection,
) -> Result<bool, ExportError> {
    if wanted.from.is_none() && wanted.to.is_none() {
        return Ok(true);
    }
    let first = reader.read(stream, 0, 1)?;
    let at = first.first().and_then(|record| record.decode_bare().ok());
    let at = at.map(|frame| frame.at.to_string()).unwrap_or_default();
    let from = wanted.from.as_ref().is_none_or(|from| at >= *from);
    Ok(from && wanted.to.as_ref().is_none_or(|to| at < *to))
}

/// The streams that a stream hangs from: those its first frame names, and of some those that any frame
/// does.
fn parents(reader: &dyn Reader, stream: &StreamId) -> Result<BTreeSet<StreamId>, ExportError> {
    let mut parents = BTreeSet::new();
    let (mut next, limit) = match names_others_later(stream) {
        true => (0, MAX_PAGE),
        false => (0, 1),
    };
    loop {
        let page = reader.read(stream, next, limit)?;
        let Some(last) = page.last() else {
            return Ok(parents);
        };
        next = last.seq.saturating_add(1);
        let frames = page.iter().filter_map(|record| record.decode_bare().ok());
        parents.extend(frames.flat_map(|frame| referenced_streams(&frame)));
        if !names_others_later(stream) {
            return Ok(parents);
        }
    }
}

/// Returns `true` if also frames behind the first name streams that it hangs from: what runs keep
/// with `ktsu/kv` follows from each of them, and an eval from every run that it judges.
pub(super) fn names_others_later(stream: &StreamId) -> bool {
    matches!(stream.kind(), "kv" | "eval")
}

/// The streams that a frame names.
pub(super) fn referenced_streams(frame: &Frame) -> Vec<StreamId> {
    let mut named = Vec::new();
    if let Some(branch) = frame.event.branched() {
        named.extend(branch.parent().ok());
    }
    for cause in &frame.cause {
        if let Cause::There(other, _) = cause {
            named.push(other.clone());
        }
    }
    named
}

/// The result of scanning the ledger.
struct ScannedLedger {
    origin: String,
    frames: Vec<PositionedFrame>,
    bodies: Vec<u8>,
    leaves: Vec<Node>,
    sizes: BTreeSet<u64>,
    /// The last checkpoint: its size, and the name of the ledger as it says.
    last: Option<(u64, String)>,
}

/// Reads the whole ledger once, in the order of appending.
fn scan(
    reader: &dyn Reader,
    selected: &BTreeSet<StreamId>,
    bound: ExportBound,
) -> Result<ScannedLedger, ExportError> {
    let mut found = ScannedLedger {
        origin: String::new(),
        frames: Vec::new(),
        bodies: Vec::new(),
        leaves: Vec::new(),
        sizes: BTreeSet::new(),
        last: None,
    };
    let wanted: BTreeMap<&str, &StreamId> = selected
        .iter()
        .map(|stream| (stream.as_str(), stream))
        .collect();
    let mut removed = RemovedLeaves::of(reader)?;
    let mut from = 1;
    loop {
        let page = reader.scan_frames(from, MAX_PAGE)?;
        let Some(last) = page.last() else { break };
        from = last.position.saturating_add(1);
        for raw in page {
            let position = raw.position;
            let gap = found.leaves.len() as u64 + 1..position;
            if !removed.each(gap, &mut |leaf| found.leaves.push(leaf))? {
                let words = format!(
                    "the frame at position {} is missing",
                    found.leaves.len() + 1
                );
                return Err(ExportError::Damaged(words));
            }
            found.leaves.push(Node::leaf(&raw.body));
            if found.origin.is_empty() {
                found.origin = origin_of(&Hash::from_bytes(&raw.hash).unwrap_or_default());
            }
            let name = raw.stream.as_deref().unwrap_or_default();
            if name == "store" || wanted.contains_key(name) {
                found.take(position, raw)?;
                bound.check(found.bodies.len())?;
            }
        }
    }
    // A checkpoint over more than there is would be a defect, or a forgery: `verify` says so.
    let leaves = found.leaves.len() as u64;
    found.sizes.retain(|size| *size <= leaves);
    if found.last.as_ref().is_some_and(|(size, _)| *size > leaves) {
        found.last = None;
    }
    Ok(found)
}

impl ScannedLedger {
    fn take(&mut self, position: u64, raw: RawFrame) -> Result<(), ExportError> {
        let (stream, seq) = (raw.stream.as_deref().unwrap_or_default(), raw.seq);
        let place = seq.map_or_else(|| stream.to_owned(), |seq| format!("{stream}#{seq}"));
        let damaged = |why: &dyn std::fmt::Display| ExportError::Damaged(format!("{place}: {why}"));
        let body = String::from_utf8(raw.body).map_err(|error| damaged(&error))?;
        if body.contains('\n') {
            return Err(damaged(&"its bytes do not fit on a line"));
        }
        let record = Record {
            seq: seq.ok_or_else(|| damaged(&"its number is negative"))?,
            hash: Hash::from_bytes(&raw.hash).ok_or_else(|| damaged(&"its hash is damaged"))?,
            body,
        };
        let frame = record.decode_bare().map_err(|error| damaged(&error))?;
        if let Event::Store(StoreEvent::CheckpointSigned(signed)) = &frame.event {
            self.sizes.insert(signed.size);
            self.last = Some((signed.size, signed.origin.clone()));
        }
        self.bodies.extend_from_slice(record.body.as_bytes());
        self.bodies.push(b'\n');
        self.frames.push(PositionedFrame { position, frame });
        Ok(())
    }

    /// The tree around the frames.
    fn tree(&self) -> Tree {
        let Some((size, _)) = &self.last else {
            return Tree {
                format: FORMAT,
                ..Tree::default()
            };
        };
        let shown = self.frames.iter().map(|placed| placed.position - 1);
        let shown = shown.filter(|index| index < size).collect();
        let sizes = self
            .sizes
            .iter()
            .filter(|one| *one <= size)
            .copied()
            .collect();
        let leaves = usize::try_from(*size).unwrap_or(usize::MAX);
        let leaves = self.leaves.get(..leaves).unwrap_or_default();
        Tree {
            format: FORMAT,
            hashes: multiproof::prove(leaves, &shown, &sizes),
            size: *size,
        }
    }
}

fn blobs(
    reader: &dyn Reader,
    found: &ScannedLedger,
    bound: ExportBound,
) -> Result<BTreeMap<Hash, Vec<u8>>, ExportError> {
    let mut blobs = BTreeMap::new();
    let mut bytes = found.bodies.len();
    let frames = found.frames.iter();
    for external in frames.flat_map(|placed| &placed.frame.ext) {
        if blobs.contains_key(&external.hash) {
            continue;
        }
        let text = reader.blob_get(&external.hash)?;
        let missing = || ExportError::Damaged(format!("the blob {} is missing", external.hash));
        let text = text.ok_or_else(missing)?;
        bytes = bytes.saturating_add(text.as_str().len());
        bound.check(bytes)?;
        blobs.insert(external.hash, text.as_str().as_bytes().to_vec());
    }
    Ok(blobs)
}

/// The files of an archive; the bodies go into one of them.
fn files(found: &mut ScannedLedger, blobs: BTreeMap<Hash, Vec<u8>>) -> Result<Files, ExportError> {
    let mut files = Files::new();
    for placed in &found.frames {
        for (name, extract) in archive::extracts(&found.origin, placed) {
            let text = match extract {
                Extract::Text(text) => Some(text),
                Extract::Blob(hash) => blobs.get(&hash).cloned(),
            };
            files.extend(text.map(|text| (name, text)));
        }
    }
    for (hash, text) in blobs {
        files.insert(format!("blobs/{hash}.json"), text);
    }
    let tree = serde_json::to_vec(&found.tree());
    let tree = tree.map_err(|error| ExportError::Damaged(error.to_string()))?;
    let mut put = |name: &str, bytes: Vec<u8>| files.insert(name.to_owned(), bytes);
    put(FRAMES, std::mem::take(&mut found.bodies));
    put(PLACES, archive::frame_index(&found.frames).into_bytes());
    put(TREE, tree);
    for (name, text) in VERIFIER {
        put(name, text.as_bytes().to_vec());
    }
    for (name, text) in derived::files(&found.frames) {
        put(name, text.into_bytes());
    }
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_forks_of_forks_hang_together() {
        let name = |at: u32| StreamId::run(&format!("branch_{at:07}")).unwrap();
        let links: Vec<_> = (0..1_000_000).map(|at| (name(at + 1), name(at))).collect();
        for asked in [0, 500_000, 1_000_000] {
            let found = connected(BTreeSet::from([name(asked)]), &links);
            assert_eq!(found.len(), 1_000_001);
        }
        let alone = StreamId::run("run_x").unwrap();
        assert_eq!(connected(BTreeSet::from([alone]), &links).len(), 1);
    }
}
