//! A source and a target, read side by side.

use std::collections::HashSet;

use super::error::CopyError;
use super::pages::{self, SourceFrame};
use crate::hash::Hash;
use crate::merkle::{Frontier, Node};
use crate::store::{RawFrame, Reader, StoreError};

/// What a copy has: all of it was read again, and is that of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its frames.
    pub frames: u64,
    /// Its streams.
    pub streams: u64,
    /// The blobs that its frames name.
    pub blobs: u64,
    /// The bytes of its frames and of those blobs.
    pub bytes: u64,
    /// The root of the tree over its frames.
    pub root: Node,
    /// The number of frames that the target had before.
    pub frames_before: u64,
}

/// What is known before anything is copied.
pub(super) struct Survey {
    /// The position of the last frame of the source.
    pub(super) last: u64,
    /// The number of its first frames that the target has; it has no others.
    pub(super) shared: u64,
    /// The last epoch that frames of the source begin.
    pub(super) epoch: u64,
}

/// Reads the whole source, and of the target what it has. Whatever makes a copy impossible is found
/// here, but for a frame that does not follow from others.
pub(super) fn survey(from: &dyn Reader, to: &dyn Reader) -> Result<Survey, CopyError> {
    must_have_no_removals(from)?;
    let last = from.last_position()?;
    let (mut source, mut target) = (pages::frames(from, 0), pages::frames(to, 0));
    let mut found = target.next()?;
    let (mut shared, mut epoch) = (0, 0);
    for position in 1..=last {
        let raw = source.next()?.ok_or(CopyError::Gap(position))?;
        let frame = SourceFrame::of(raw, position)?;
        if let Some(same) = found.take() {
            if !frame.is(&same) {
                return Err(CopyError::OtherFrames(position));
            }
            shared = position;
            found = target.next()?;
        }
        epoch = epoch.max(frame.epoch());
    }
    must_end(last, source.next()?)?;
    match found {
        Some(_) => Err(CopyError::OtherFrames(last.saturating_add(1))),
        None => Ok(Survey {
            last,
            shared,
            epoch,
        }),
    }
}

/// Refuses a ledger that streams were removed from.
fn must_have_no_removals(from: &dyn Reader) -> Result<(), CopyError> {
    match from.auditor()?.removals(0, 1)?.is_empty() {
        true => Ok(()),
        false => Err(CopyError::HasRemovals),
    }
}

/// Refuses a frame of the source after its last.
fn must_end(last: u64, beyond: Option<RawFrame>) -> Result<(), CopyError> {
    match beyond {
        None => Ok(()),
        Some(beyond) if beyond.position > last => Err(CopyError::Grew),
        // It is at no position.
        Some(_) => Err(CopyError::Gap(last.saturating_add(1))),
    }
}

/// Reads both again, every frame, blob and index row; gives what they have.
pub(super) fn compare(
    from: &dyn Reader,
    to: &dyn Reader,
    survey: &Survey,
) -> Result<Copied, CopyError> {
    let (mut source, mut target) = (pages::frames(from, 0), pages::frames(to, 0));
    let mut trees = (Frontier::default(), Frontier::default());
    let mut blobs = Blobs::default();
    let mut bytes = 0;
    for position in 1..=survey.last {
        let raw = source.next()?.ok_or(CopyError::Gap(position))?;
        let frame = SourceFrame::of(raw, position)?;
        let found = target.next()?.filter(|found| frame.is(found));
        let found = found.ok_or_else(|| differs(format!("the frame at position {position}")))?;
        trees.0.push(Node::leaf(frame.record.body.as_bytes()));
        trees.1.push(Node::leaf(&found.body));
        bytes += found.body.len() as u64;
        blobs.check(to, &frame)?;
    }
    must_end(survey.last, source.next()?)?;
    if target.next()?.is_some() || trees.0.root() != trees.1.root() {
        return Err(differs("it has frames after the last".to_owned()));
    }
    if !has_same_rows(from, to)? {
        return Err(differs("the list of runs".to_owned()));
    }
    Ok(Copied {
        frames: survey.last,
        streams: count_streams(to)?,
        blobs: blobs.seen.len() as u64,
        bytes: bytes + blobs.bytes,
        root: trees.1.root(),
        frames_before: survey.shared,
    })
}

fn differs(what: String) -> CopyError {
    CopyError::Differs(what)
}

/// The blobs of the target that were read.
#[derive(Default)]
struct Blobs {
    seen: HashSet<Hash>,
    bytes: u64,
}

impl Blobs {
    /// Reads the blobs that a frame names. Those of a hash are the same everywhere.
    fn check(&mut self, to: &dyn Reader, frame: &SourceFrame) -> Result<(), CopyError> {
        let bare = frame.record.decode_bare();
        let bare = bare.map_err(|error| frame.damaged(error.to_string()))?;
        for external in &bare.ext {
            let hash = external.hash;
            if !self.seen.insert(hash) {
                continue;
            }
            let text = to.blob_get(&hash)?;
            let text = text.filter(|text| Hash::of(text.as_str().as_bytes()) == hash);
            let text = text.ok_or_else(|| differs(format!("the blob {hash}")))?;
            self.bytes += text.as_str().len() as u64;
        }
        Ok(())
    }
}

/// Returns `true` if both have the same index rows.
pub(super) fn has_same_rows(from: &dyn Reader, to: &dyn Reader) -> Result<bool, StoreError> {
    let (mut source, mut target) = (pages::rows(from), pages::rows(to));
    loop {
        match (source.next()?, target.next()?) {
            (None, None) => return Ok(true),
            (left, right) if left != right => return Ok(false),
            _ => {}
        }
    }
}

fn count_streams(reader: &dyn Reader) -> Result<u64, StoreError> {
    let mut streams = pages::streams(reader);
    let mut count = 0;
    while streams.next()?.is_some() {
        count += 1;
    }
    Ok(count)
}
