//! A source and a target, read side by side.

use std::collections::HashSet;

use super::error::CopyError;
use super::pages::{self, SourceFrame, SourcePlace, SourcePlaces};
use crate::hash::Hash;
use crate::merkle::{Frontier, Node};
use crate::removal::RemovedLeaves;
use crate::store::{RawFrame, Reader, StoreError};

/// What a copy has: all of it was read again, and is that of the source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Copied {
    /// Its frames, without those that were removed.
    pub frames: u64,
    /// Its streams.
    pub streams: u64,
    /// The blobs that its frames name.
    pub blobs: u64,
    /// The bytes of its frames and of those blobs.
    pub bytes: u64,
    /// The root of the tree over its frames, the removed ones included.
    pub root: Node,
    /// The position up to which the target had its frames before.
    pub frames_before: u64,
}

/// What is known before anything is copied.
pub(super) struct Survey {
    /// The position of the last frame of the source.
    pub(super) last: u64,
    /// The position up to which the target has its frames; it has no others.
    pub(super) shared: u64,
    /// The last epoch that frames of the source begin.
    pub(super) epoch: u64,
}

/// Reads the whole source, and of the target what it has. Whatever makes a copy impossible is found
/// here, but for a frame that does not follow from others.
pub(super) fn survey(from: &dyn Reader, to: &dyn Reader) -> Result<Survey, CopyError> {
    let last = from.last_position()?;
    let (mut source, mut target) = (SourcePlaces::of(from, 0)?, pages::frames(to, 0));
    let mut found = target.next()?;
    let (mut shared, mut epoch) = (0, 0);
    for position in 1..=last {
        let place = source.at(position)?;
        // Where a frame was removed, the target may have the stand-in for it, or nothing any more.
        let is_here = |found: &RawFrame| !place.is_removed() || found.position == position;
        if let Some(same) = found.take_if(|found| is_here(found)) {
            if !place.is(&same) {
                return Err(CopyError::OtherFrames(position));
            }
            shared = position;
            found = target.next()?;
        }
        if let SourcePlace::Frame(frame) = place {
            epoch = epoch.max(frame.epoch());
        }
    }
    source.must_end(last)?;
    match found {
        Some(_) => Err(CopyError::OtherFrames(last.saturating_add(1))),
        None => Ok(Survey {
            last,
            shared,
            epoch,
        }),
    }
}

/// Reads both again, every frame, blob and index row; gives what they have.
pub(super) fn compare(
    from: &dyn Reader,
    to: &dyn Reader,
    survey: &Survey,
) -> Result<Copied, CopyError> {
    let (mut source, mut target) = (SourcePlaces::of(from, 0)?, pages::frames(to, 0));
    let mut removed = RemovedLeaves::of(to)?;
    let mut trees = (Frontier::default(), Frontier::default());
    let mut blobs = Blobs::default();
    let (mut frames, mut bytes) = (0, 0);
    for position in 1..=survey.last {
        let other = || differs(format!("the frame at position {position}"));
        match source.at(position)? {
            SourcePlace::Frame(frame) => {
                let found = target.next()?.filter(|found| frame.is(found));
                let found = found.ok_or_else(other)?;
                trees.0.push(Node::leaf(frame.record.body.as_bytes()));
                trees.1.push(Node::leaf(&found.body));
                frames += 1;
                bytes += found.body.len() as u64;
                blobs.check(to, &frame)?;
            }
            SourcePlace::Removed(frame) => {
                trees.0.push(frame.leaf);
                trees.1.push(removed.leaf(position)?.ok_or_else(other)?);
            }
        }
    }
    source.must_end(survey.last)?;
    if target.next()?.is_some() || trees.0.root() != trees.1.root() {
        return Err(differs("it has frames after the last".to_owned()));
    }
    if !has_same_rows(from, to)? {
        return Err(differs("the list of runs".to_owned()));
    }
    Ok(Copied {
        frames,
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
