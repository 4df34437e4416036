//! Judging an archive of evidence: claim by claim, each proven, not covered, or failed.
//!
//! ```text
//! frames      manifest, chain, causes, blobs, completeness        check/frames
//! tree        inclusion, signatures, keys, held checkpoints       check/tree
//! content     extracts, definitions, replay                       check/content
//! lock        what runs were locked to                            check/lock
//! tools       every call asked for, permitted and answered        check/tools ─┐ check/story,
//! approvals   every gated call approved, by whom it has to be     check/approvals ─┘ check/history
//! ```
//!
//! Nothing here believes the archive: what it says of itself is compared with what its bytes give.

mod approvals;
mod content;
mod frames;
mod history;
mod lock;
mod models;
mod repeated;
mod story;
mod tools;
mod tree;

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::note::{Checkpoint, PublicKey};
use ktsu_ledger::{Hash, Record, strict};
use serde::Serialize;

use super::archive::{FRAMES, MANIFEST, MAX_JSON, Manifest, PLACES, Placed, TREE, Tree};
use super::tar::{self, Files};

/// What an archive is judged against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Against {
    /// Checkpoints that the auditor has kept, or got from a witness.
    pub held: Vec<Checkpoint>,
    /// The key that the auditor knows the ledger by.
    pub key: Option<PublicKey>,
}

/// What is shown of one claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// It holds.
    Proven,
    /// Nothing speaks against it, and not everything for it.
    NotCovered,
    /// It does not hold.
    Failed,
}

/// One claim, and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Claim {
    /// Its name, the same in every verifier.
    pub claim: &'static str,
    /// The frame that decides it, if it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<String>,
    /// In words.
    pub reason: String,
    /// What is shown.
    pub verdict: Verdict,
}

impl Claim {
    fn proven(claim: &'static str, reason: impl Into<String>) -> Self {
        Self {
            claim,
            frame: None,
            reason: reason.into(),
            verdict: Verdict::Proven,
        }
    }

    fn not_covered(claim: &'static str, reason: impl Into<String>) -> Self {
        Self {
            verdict: Verdict::NotCovered,
            ..Self::proven(claim, reason)
        }
    }

    fn failed(claim: &'static str, wrong: Wrong) -> Self {
        Self {
            claim,
            frame: wrong.frame,
            reason: wrong.reason,
            verdict: Verdict::Failed,
        }
    }
}

/// What speaks against a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wrong {
    frame: Option<String>,
    reason: String,
}

impl Wrong {
    fn new(reason: impl Into<String>) -> Self {
        Self {
            frame: None,
            reason: reason.into(),
        }
    }

    fn at(frame: impl Into<String>, reason: impl Into<String>) -> Self {
        Self {
            frame: Some(frame.into()),
            reason: reason.into(),
        }
    }
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Outcome {
    /// Every claim, in one order.
    pub claims: Vec<Claim>,
    /// Frames in the archive.
    pub frames: u64,
    /// Which ledger it says it is of.
    pub origin: String,
    /// How many frames the tree of the last checkpoint is over.
    pub size: u64,
    /// Streams in the archive.
    pub streams: u64,
}

impl Outcome {
    /// Whether no claim failed.
    pub fn is_sound(&self) -> bool {
        self.claims
            .iter()
            .all(|claim| claim.verdict != Verdict::Failed)
    }
}

/// An archive, taken apart.
struct Evidence {
    files: Files,
    manifest: Manifest,
    frames: Vec<Placed>,
    bodies: Vec<String>,
    /// Where a frame is among the frames.
    places: HashMap<(String, u64), usize>,
    /// What is wrong with the frames themselves.
    chain: Option<Wrong>,
    tree: Tree,
}

/// Judges an archive.
///
/// # Errors
/// Why there is nothing to judge: it is no archive of evidence, or not one this version reads.
pub fn verify(bytes: &[u8], against: &Against) -> Result<Outcome, String> {
    let evidence = Evidence::read(bytes)?;
    let signed = tree::Signed::of(&evidence);
    let mut claims = vec![
        evidence.manifest(),
        evidence.chain_claim(),
        evidence.causes(),
        evidence.blobs(),
        evidence.completeness(),
    ];
    claims.extend(signed.claims(&evidence, against));
    claims.push(evidence.extracts());
    claims.push(evidence.definitions());
    claims.push(evidence.lock());
    claims.push(evidence.replay());
    claims.push(evidence.approvals());
    claims.push(evidence.tools());
    Ok(Outcome {
        claims,
        frames: evidence.frames.len() as u64,
        origin: evidence.manifest.origin.clone(),
        size: evidence.tree.size,
        streams: evidence.manifest.streams.len() as u64,
    })
}

impl Evidence {
    fn read(bytes: &[u8]) -> Result<Self, String> {
        let files = tar::read(bytes).map_err(|error| error.to_string())?;
        let manifest: Manifest = json(&files, MANIFEST)?;
        if manifest.format != super::archive::FORMAT {
            let format = manifest.format;
            return Err(format!(
                "the archive is in format {format}, which this version does not know"
            ));
        }
        let tree: Tree = json(&files, TREE)?;
        let (records, positions, streams) = rows(&files)?;
        let mut evidence = Self {
            manifest,
            frames: Vec::with_capacity(records.len()),
            bodies: Vec::with_capacity(records.len()),
            places: HashMap::new(),
            chain: None,
            tree,
            files,
        };
        for ((record, position), stream) in records.into_iter().zip(positions).zip(streams) {
            evidence.take(record, position, &stream);
        }
        evidence.chain = evidence.chain.take().or_else(|| evidence.follow().err());
        Ok(evidence)
    }

    /// Takes one frame; one that does not read is told once, and left out.
    fn take(&mut self, record: Record, position: u64, stream: &str) {
        let id = format!("{stream}#{}", record.seq);
        let wrong = |reason: String| Wrong::at(&id, reason);
        let read = frames::read(&record, stream).map_err(wrong);
        let last = self.frames.last().map_or(0, |last| last.position);
        let read = read.and_then(|frame| match position > last {
            true => Ok(frame),
            false => Err(Wrong::at(&id, "its position is not above the one before")),
        });
        match read {
            Ok(frame) => {
                let place = self.frames.len();
                let before = self.places.insert((stream.to_owned(), frame.seq), place);
                if before.is_some() {
                    self.chain
                        .get_or_insert(Wrong::at(&id, "it is there twice"));
                }
                self.frames.push(Placed { position, frame });
                self.bodies.push(record.body);
            }
            Err(wrong) => drop(self.chain.get_or_insert(wrong)),
        }
    }

    fn frame(&self, stream: &str, seq: u64) -> Option<&Placed> {
        let place = self.places.get(&(stream.to_owned(), seq))?;
        self.frames.get(*place)
    }

    fn blob(&self, hash: &Hash) -> Option<&Vec<u8>> {
        self.files.get(&format!("blobs/{hash}.json"))
    }

    /// The frames of each stream, in order.
    fn by_stream(&self) -> BTreeMap<&str, Vec<&Placed>> {
        let mut streams: BTreeMap<&str, Vec<&Placed>> = BTreeMap::new();
        for placed in &self.frames {
            streams
                .entry(placed.frame.stream.as_str())
                .or_default()
                .push(placed);
        }
        streams
    }
}

fn file<'a>(files: &'a Files, name: &str) -> Result<&'a [u8], String> {
    let bytes = files
        .get(name)
        .ok_or_else(|| format!("the archive has no {name}"))?;
    match bytes.len() <= MAX_JSON || name == FRAMES {
        true => Ok(bytes),
        false => Err(format!("{name} is too large")),
    }
}

fn json<T: serde::de::DeserializeOwned>(files: &Files, name: &str) -> Result<T, String> {
    let text = std::str::from_utf8(file(files, name)?);
    let text = text.map_err(|error| format!("{name}: {error}"))?;
    // No key twice: two readers could read two things.
    strict::check_value(text).map_err(|error| format!("{name}: {error}"))?;
    serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))
}

type Rows = (Vec<Record>, Vec<u64>, Vec<String>);

/// The lines of both tables, side by side.
fn rows(files: &Files) -> Result<Rows, String> {
    let text = |name| {
        let text = std::str::from_utf8(file(files, name)?);
        text.map_err(|_| format!("{name} is not UTF-8"))
    };
    let whole = |name: &str, text: &str| match text.is_empty() || text.ends_with('\n') {
        true => Ok(()),
        false => Err(format!("the last line of {name} is cut")),
    };
    let (bodies, places) = (text(FRAMES)?, text(PLACES)?);
    whole(FRAMES, bodies)?;
    whole(PLACES, places)?;
    let mut places = places.split_terminator('\n');
    if places.next() != Some(super::archive::COLUMNS) {
        return Err(format!(
            "{PLACES} does not begin with {}",
            super::archive::COLUMNS
        ));
    }
    let mut bodies = bodies.split_terminator('\n');
    let (mut records, mut positions, mut streams) = (Vec::new(), Vec::new(), Vec::new());
    for (number, line) in places.enumerate() {
        let damaged = || format!("{PLACES}: line {} is damaged", number + 2);
        let mut cells = line.split(',');
        let (Some(position), Some(stream), Some(seq), Some(hash), None) = (
            cells.next(),
            cells.next(),
            cells.next(),
            cells.next(),
            cells.next(),
        ) else {
            return Err(damaged());
        };
        let body = bodies
            .next()
            .ok_or_else(|| format!("{FRAMES} has fewer lines than {PLACES}"))?;
        records.push(Record {
            seq: number_of(seq).ok_or_else(damaged)?,
            hash: hash.parse().map_err(|_| damaged())?,
            body: body.to_owned(),
        });
        positions.push(
            number_of(position)
                .filter(|it| *it > 0)
                .ok_or_else(damaged)?,
        );
        streams.push(stream.to_owned());
    }
    match bodies.next() {
        None => Ok((records, positions, streams)),
        Some(_) => Err(format!("{FRAMES} has more lines than {PLACES}")),
    }
}

/// A number, written the one way there is.
fn number_of(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text && number < 1 << 53).then_some(number)
}
