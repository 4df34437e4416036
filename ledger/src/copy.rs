//! Copies a whole ledger from one store to another: every frame with its bytes and its position, the
//! blobs that frames name, and every index row.
//!
//! Positions are those of the source, so the tree over the frames has the same root. An interrupted
//! copy is continued: a target that has exactly the first frames of the source keeps them.
//!
//! ```text
//! survey   both are read: what is refused, what the target has already     nothing is written
//! frames   adjacent frames of a stream ─▶ Entry ─▶ batch ─▶ Store::append
//!          a removed frame ─▶ stand-in, until its removal is appended
//! rows     Reader::list ─▶ Maintenance::put_rows
//! compare  both are read again, frame by frame
//! ```
//!
//! No more than a page is held at a time, besides the hashes of blobs. A frame that does not follow
//! from others (its chain, a cause, a fork) is found only where it is appended; what
//! [`crate::verify`] finds sound has none.

mod batch;
mod compare;
mod error;
mod pages;

use std::collections::HashSet;

use crate::frame::Blob;
use crate::hash::Hash;
use crate::store::{Epoch, Reader, StandIn, Store, StoreError, WalCheckpoint};

use batch::{Batch, OpenEntry};
use pages::{SourceFrame, SourcePlace, SourcePlaces};

pub use compare::Copied;
pub use error::CopyError;

/// The most times that the target is acquired, so that its epoch is not before those of its frames.
const MAX_OWNERS: u64 = 100_000;

/// The most stand-ins that are put at once.
const STAND_INS: usize = 1_000;

/// Copies a ledger, or continues an interrupted copy of it. The owner of the source must be stopped,
/// and the caller must be allowed to own the target. `progress` is called with the number of frames
/// that the target has.
///
/// # Errors
/// [`CopyError`]. What the source or the target is refused for is found before anything is written,
/// but for a damaged blob and [`CopyError::Entry`], [`CopyError::Refused`] and [`CopyError::Grew`].
pub fn copy(
    from: &dyn Reader,
    to: &mut dyn Store,
    progress: &mut dyn FnMut(u64),
) -> Result<Copied, CopyError> {
    let Some(maintenance) = to.maintenance() else {
        return Err(CopyError::NoIndex);
    };
    if !maintenance.takes_stand_ins() && !from.auditor()?.removals(0, 1)?.is_empty() {
        return Err(CopyError::HasRemovals);
    }
    check_rows(from)?;
    let survey = compare::survey(from, to)?;
    if survey.epoch > MAX_OWNERS {
        return Err(CopyError::TooManyOwners(survey.epoch));
    }
    let epoch = own(to, survey.epoch)?;
    let view: &dyn Reader = to;
    if view.last_position()? != survey.shared {
        return Err(CopyError::OtherFrames(survey.shared.saturating_add(1)));
    }
    progress(survey.shared);
    let mut copying = Copying {
        from,
        to,
        epoch,
        entry: None,
        batch: Batch::default(),
        stand_ins: Vec::new(),
        sent: HashSet::new(),
        copied: survey.shared,
        progress,
    };
    copying.copy_frames(survey.last)?;
    copy_rows(from, to, epoch)?;
    let copied = compare::compare(from, to, &survey)?;
    if let Some(maintenance) = to.maintenance() {
        maintenance.checkpoint(WalCheckpoint::Full)?;
    }
    if let Some(lease) = to.lease() {
        lease.release(epoch)?;
    }
    Ok(copied)
}

/// Reads every index row of the source, so that a damaged one is found before anything is written.
fn check_rows(from: &dyn Reader) -> Result<(), StoreError> {
    let mut rows = pages::rows(from);
    while rows.next()?.is_some() {}
    Ok(())
}

/// Becomes the owner of the target, in an epoch that is not before those of its frames.
fn own(to: &mut dyn Store, epoch: u64) -> Result<Epoch, StoreError> {
    let mut owned = to.acquire()?;
    while owned.0 < epoch {
        owned = to.acquire()?;
    }
    Ok(owned)
}

/// Makes the index rows of the target those of the source. Where they are, nothing is written.
fn copy_rows(from: &dyn Reader, to: &mut dyn Store, epoch: Epoch) -> Result<(), StoreError> {
    if matches!(compare::has_same_rows(from, to), Ok(true)) {
        return Ok(());
    }
    to.clear_index(epoch)?;
    let mut rows = pages::rows(from);
    loop {
        let page = rows.take(pages::ROWS)?;
        if page.is_empty() {
            return Ok(());
        }
        to.put_rows(epoch, &page)?;
    }
}

/// A copy at work.
struct Copying<'a> {
    from: &'a dyn Reader,
    to: &'a mut dyn Store,
    epoch: Epoch,
    /// The entry that the next frame may belong to.
    entry: Option<OpenEntry>,
    /// The entries before it that are not appended yet.
    batch: Batch,
    /// The stand-ins after them that are not put yet.
    stand_ins: Vec<StandIn>,
    /// The blobs that were given to the target.
    sent: HashSet<Hash>,
    copied: u64,
    progress: &'a mut dyn FnMut(u64),
}

impl Copying<'_> {
    /// Copies the frames that the target does not have, up to a position.
    fn copy_frames(&mut self, last: u64) -> Result<(), CopyError> {
        let mut places = SourcePlaces::of(self.from, self.copied)?;
        for position in self.copied.saturating_add(1)..=last {
            match places.at(position)? {
                SourcePlace::Frame(frame) => {
                    self.put_stand_ins()?;
                    self.add(frame)?;
                }
                SourcePlace::Removed(frame) => {
                    self.close_entry()?;
                    self.flush()?;
                    let stand_in = StandIn::new(&frame.stream, frame.seq, frame.end);
                    self.stand_ins.push(stand_in);
                    if self.stand_ins.len() >= STAND_INS {
                        self.put_stand_ins()?;
                    }
                }
            }
        }
        self.put_stand_ins()?;
        self.close_entry()?;
        self.flush()
    }

    /// Puts the stand-ins at the next positions of the target.
    fn put_stand_ins(&mut self) -> Result<(), CopyError> {
        let stand_ins = std::mem::take(&mut self.stand_ins);
        if let (false, Some(maintenance)) = (stand_ins.is_empty(), self.to.maintenance()) {
            maintenance.put_stand_ins(self.epoch, &stand_ins)?;
            self.copied += stand_ins.len() as u64;
            (self.progress)(self.copied);
        }
        Ok(())
    }

    fn add(&mut self, frame: SourceFrame) -> Result<(), CopyError> {
        if self.entry.as_ref().is_some_and(|open| !open.admits(&frame)) {
            self.close_entry()?;
        }
        let blobs = self.new_blobs(&frame)?;
        let open = self
            .entry
            .get_or_insert_with(|| OpenEntry::new(frame.stream));
        open.add(frame.record, blobs);
        Ok(())
    }

    /// The blobs that a frame names and no frame before it did.
    fn new_blobs(&mut self, frame: &SourceFrame) -> Result<Vec<Blob>, CopyError> {
        let bare = frame.record.decode_bare();
        let bare = bare.map_err(|error| frame.damaged(error.to_string()))?;
        let mut blobs = Vec::new();
        for external in &bare.ext {
            if self.sent.insert(external.hash) {
                blobs.push(blob_of(self.from, frame, external.hash)?);
            }
        }
        Ok(blobs)
    }

    fn close_entry(&mut self) -> Result<(), CopyError> {
        let Some(open) = self.entry.take() else {
            return Ok(());
        };
        let entry = open.close()?;
        if self.batch.is_needed_by(&entry) {
            self.flush()?;
        }
        self.batch.push(entry);
        match self.batch.is_full() {
            true => self.flush(),
            false => Ok(()),
        }
    }

    fn flush(&mut self) -> Result<(), CopyError> {
        let batch = std::mem::take(&mut self.batch);
        let frames = batch.append(self.to, self.epoch)?;
        if frames > 0 {
            self.copied += frames;
            (self.progress)(self.copied);
        }
        Ok(())
    }
}

/// A blob of the source that a frame names.
fn blob_of(from: &dyn Reader, frame: &SourceFrame, hash: Hash) -> Result<Blob, CopyError> {
    let text = match from.blob_get(&hash) {
        Err(StoreError::Damaged(why)) => return Err(frame.damaged(why)),
        other => other?,
    };
    let text = text.ok_or_else(|| frame.damaged(format!("the blob {hash} is missing")))?;
    if Hash::of(text.as_str().as_bytes()) != hash {
        return Err(frame.damaged(format!("the blob {hash} is not what its hash says")));
    }
    Ok(Blob { hash, text })
}
