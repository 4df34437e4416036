//! Frames of all runs in the order in which they were appended, as followers and subscribers get
//! them.
//!
//! A frame is named here by its position in the ledger, which is where a follower goes on. Only
//! frames of runs, branches, recomputes and evals are shown; the others are passed over.

use std::borrow::Cow;
use std::sync::{Arc, OnceLock};

use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::store::{RawFrame, Reader, StoreError};
use ktsu_ledger::{Cause, Hash, Record, StreamId};
use serde::Deserialize;

use super::frame_page::{source_frame, with_derived};
use ktsu_run_index::is_run;

/// A frame of a run, and its place in the ledger.
#[derive(Debug)]
pub struct AppendedFrame {
    /// Its place in the order of appending, from 1.
    pub position: u64,
    /// The run or the eval it belongs to.
    pub run: StreamId,
    /// Its type.
    pub kind: String,
    record: Record,
    /// The first frame it follows from.
    source: Option<String>,
    text: OnceLock<Arc<str>>,
}

/// Frames of runs from a position on.
#[derive(Debug, Default)]
pub struct AppendedPage {
    /// In the order of appending.
    pub frames: Vec<AppendedFrame>,
    /// The position after the last frame that was looked at, frames of other streams included.
    pub next: u64,
    /// True if there was nothing to look at.
    pub is_end: bool,
}

impl AppendedFrame {
    /// `stream#seq`, the identity of the frame.
    pub fn id(&self) -> String {
        format!("{}#{}", self.run, self.record.seq)
    }

    /// The frame as it is stored.
    pub(crate) fn record(&self) -> &Record {
        &self.record
    }

    /// Its bytes as they are stored.
    pub(crate) fn body(&self) -> &str {
        &self.record.body
    }

    /// Its number in its run.
    pub fn seq(&self) -> u64 {
        self.record.seq
    }

    /// Roughly what it takes in memory.
    pub fn bytes(&self) -> usize {
        // The record, its text, and what stands around them.
        2 * self.record.body.len() + 512
    }

    /// The frame as `/runs/{id}/frames` shows it, with `run_id`. Made when it is first needed.
    pub fn text(&self) -> &Arc<str> {
        self.text.get_or_init(|| {
            let source = self.source.as_deref();
            let mut text = with_derived(self.record.to_json(), &self.id(), source);
            text.truncate(text.len().saturating_sub(1));
            let owner = match self.run.is_eval() {
                true => "eval_id",
                false => "run_id",
            };
            text.push_str(&format!(r#","{owner}":"{}"}}"#, self.run.name()));
            Arc::from(text)
        })
    }
}

/// The part of a body that is read: as little as is needed to choose frames.
#[derive(Deserialize)]
struct FrameHead<'a> {
    #[serde(borrow, rename = "type")]
    kind: Cow<'a, str>,
    cause: Vec<Cause>,
}

/// Reads frames in the order of appending, beginning at a position.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Damaged`] where a frame is not what was appended.
pub fn page(reader: &dyn Reader, from: u64, limit: usize) -> Result<AppendedPage, StoreError> {
    let from = from.max(1);
    let scanned = reader.scan_frames(from, limit)?;
    let mut page = AppendedPage {
        next: from,
        is_end: scanned.is_empty(),
        frames: Vec::new(),
    };
    // Neighbours are mostly of one branch.
    let mut path: Option<(StreamId, Ancestry)> = None;
    for raw in scanned {
        page.next = raw.position.saturating_add(1);
        let position = raw.position;
        let shown = shown(reader, raw, &mut path);
        let shown = shown.map_err(|why| damaged(reader, position, why))?;
        page.frames.extend(shown);
    }
    Ok(page)
}

/// The frame, if it is one of a run or an eval.
fn shown(
    reader: &dyn Reader,
    raw: RawFrame,
    path: &mut Option<(StreamId, Ancestry)>,
) -> Result<Option<AppendedFrame>, FrameFault> {
    let stream = raw.stream.ok_or("its stream has no name")?;
    let run: StreamId = stream.parse().map_err(|_| "its stream has no valid name")?;
    if !is_run(&run) && !run.is_eval() {
        return Ok(None);
    }
    let seq = raw.seq.ok_or("its number is negative")?;
    let hash = Hash::from_bytes(&raw.hash).ok_or("its hash has not 32 bytes")?;
    let is_whole = raw.is_found && Hash::of(&raw.body) == hash;
    let body = String::from_utf8(raw.body).ok().filter(|_| is_whole);
    let body = body.ok_or("it is not what its hash says")?;
    let head: FrameHead<'_> = serde_json::from_str(&body).map_err(|_| "it is not a frame")?;
    let kind = head.kind.into_owned();
    let source = match head.cause.first() {
        Some(cause @ Cause::Here(_)) if run.kind() == "branch" => {
            let path = ancestry(reader, &run, path)?;
            Some(source_frame(cause, |seq| path.owner(seq).unwrap_or(&run)))
        }
        cause => cause.map(|cause| source_frame(cause, |_| &run)),
    };
    Ok(Some(AppendedFrame {
        position: raw.position,
        kind,
        record: Record { seq, hash, body },
        source,
        text: OnceLock::new(),
        run,
    }))
}

fn ancestry<'a>(
    reader: &dyn Reader,
    run: &StreamId,
    known: &'a mut Option<(StreamId, Ancestry)>,
) -> Result<&'a Ancestry, StoreError> {
    let path = match known.take() {
        Some((of, path)) if of == *run => path,
        Some(_) | None => Ancestry::of(reader, run)?,
    };
    let (_, path) = known.insert((run.clone(), path));
    Ok(path)
}

/// The fault of a frame, or of reading what belongs to it.
enum FrameFault {
    Words(&'static str),
    Store(StoreError),
}

impl From<&'static str> for FrameFault {
    fn from(words: &'static str) -> Self {
        Self::Words(words)
    }
}

impl From<StoreError> for FrameFault {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

fn damaged(reader: &dyn Reader, position: u64, fault: FrameFault) -> StoreError {
    match fault {
        FrameFault::Store(error) => error,
        FrameFault::Words(words) => {
            let why = format!("frame {position} of the ledger: {words}");
            reader.found_damage(&why);
            StoreError::Damaged(why)
        }
    }
}
