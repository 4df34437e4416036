//! Pages of frames for the API, exports and people: the stored bytes, and what is derived from
//! them.

use std::collections::BTreeSet;

use ktsu_ledger::branch::{Ancestry, BranchOrder};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Cause, Frame, Record, StreamId};

use super::Blobs;
use super::frame_types::FrameTypes;
use ktsu_projections::world::activity::is_world_frame;
use ktsu_run_index::check_end;

/// The most frames on a page (decision H4).
pub const MAX_FRAMES: usize = 10_000;
/// The most bytes on a page, except where one frame has more (decision H4).
pub const MAX_BYTES: usize = 8 * 1024 * 1024;

/// The most that a page may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PageLimit {
    /// Frames.
    pub frames: usize,
    /// Bytes, except where one frame has more.
    pub bytes: usize,
}

impl PageLimit {
    /// A page of at most this many frames.
    pub fn frames(frames: usize) -> Self {
        Self {
            frames,
            bytes: MAX_BYTES,
        }
    }
}

/// A selection of the frames of a stream, and how they are shown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FrameSelection {
    /// Only frames of this inline child and of those inside it; empty for the whole run.
    pub scope: String,
    /// Only world frames: those that a budget of events counts (decision F5).
    pub world: bool,
    /// Only frames of these types.
    pub types: FrameTypes,
    /// Only frames with these numbers.
    pub only: Option<BTreeSet<u64>>,
    /// Values that are stored as blobs stand in their frames.
    pub expand: bool,
}

impl FrameSelection {
    fn has(&self, frame: &Frame) -> bool {
        is_within(&frame.scope, &self.scope)
            && self.types.has(frame.event.kind())
            && self
                .only
                .as_ref()
                .is_none_or(|only| only.contains(&frame.seq))
            && (!self.world || is_world_frame(frame))
    }
}

/// Some frames of a stream.
#[derive(Debug, Default)]
pub struct FramePage {
    /// Numbers and texts, in order.
    pub frames: Vec<(u64, String)>,
    /// The beginning of the next page, if there is more.
    pub next: Option<u64>,
    /// The number after the last frame that was looked at.
    pub after: u64,
}

/// Reads a page.
///
/// # Errors
/// [`StoreError`]; [`StoreError::Damaged`] where a frame of the page is missing or does not follow
/// from the one before it, or frames are missing where the page ends the stream.
pub fn page(
    reader: &dyn Reader,
    stream: &StreamId,
    selection: &FrameSelection,
    from: u64,
    bound: PageLimit,
) -> Result<FramePage, StoreError> {
    let mut page = FramePage {
        after: from,
        ..FramePage::default()
    };
    if reader.tail(stream)?.is_none() {
        check_end(reader, stream)?;
        return Ok(page);
    }
    let path = Ancestry::of(reader, stream)?;
    let mut order = BranchOrder::from(reader, &path, from)?;
    let mut blobs = Blobs::new(reader);
    let mut bytes = 0;
    loop {
        let records = path.read(reader, page.after, 1000)?;
        if records.is_empty() {
            check_end(reader, stream)?;
            return Ok(page);
        }
        for record in records {
            let bare = record.decode_bare();
            let bare = bare.map_err(|error| {
                let why = format!("{stream}#{}: {error}", record.seq);
                reader.found_damage(&why);
                StoreError::Damaged(why)
            })?;
            order.take(reader, &path, &record, &bare)?;
            if selection.has(&bare) {
                let text = text(&mut blobs, &path, &record, &bare, selection.expand)?;
                let full = page.frames.len() == bound.frames || bytes + text.len() > bound.bytes;
                if full && !page.frames.is_empty() {
                    page.next = Some(record.seq);
                    return Ok(page);
                }
                bytes += text.len();
                page.frames.push((record.seq, text));
            }
            page.after = record.seq + 1;
        }
    }
}

/// The most frames that are looked at for what a frame rests on.
const MAX_CAUSES: usize = 64;

/// The end of the task that a frame about its outcome rests on, with all its values.
///
/// # Errors
/// [`StoreError`].
pub fn end_of_task(
    reader: &dyn Reader,
    path: &Ancestry,
    frame: &Frame,
) -> Result<Option<Frame>, StoreError> {
    let mut cause = frame.cause.first().cloned();
    for _ in 0..MAX_CAUSES {
        let Some(Cause::Here(seq)) = cause else {
            return Ok(None);
        };
        let Some(record) = path.read(reader, seq, 1)?.into_iter().next() else {
            return Ok(None);
        };
        let stream = path.owner(seq).unwrap_or(&frame.stream);
        let before = Blobs::new(reader).decode(stream, &record)?;
        if before.event.finished().is_some() {
            return Ok(Some(before));
        }
        cause = before.cause.first().cloned();
    }
    Ok(None)
}

/// Returns `true` if a frame's scope is a scope or lies inside it.
pub fn is_within(scope: &str, outer: &str) -> bool {
    outer.is_empty()
        || scope
            .strip_prefix(outer)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

fn text(
    blobs: &mut Blobs<'_>,
    path: &Ancestry,
    record: &Record,
    bare: &Frame,
    expand: bool,
) -> Result<String, StoreError> {
    let text = if expand && !bare.ext.is_empty() {
        let whole = blobs.decode(&bare.stream, record)?;
        record.to_json_with(&whole)
    } else {
        record.to_json()
    };
    let owner = |seq| path.owner(seq).unwrap_or(&bare.stream);
    let source = bare.cause.first().map(|cause| source_frame(cause, owner));
    Ok(with_derived(text, &bare.id(), source.as_deref()))
}

/// The frame that a first cause names. `owner`: the stream that holds a number.
pub(super) fn source_frame<'a>(cause: &Cause, owner: impl Fn(u64) -> &'a StreamId) -> String {
    match cause {
        Cause::Here(seq) => format!("{}#{seq}", owner(*seq)),
        there @ Cause::There(..) => there.to_string(),
    }
}

/// Adds what is derived from a frame to its JSON.
pub(super) fn with_derived(mut text: String, id: &str, source: Option<&str>) -> String {
    text.truncate(text.len().saturating_sub(1));
    text.push_str(&format!(r#","id":"{id}""#));
    if let Some(source) = source {
        text.push_str(&format!(r#","source_frame_id":"{source}""#));
    }
    text.push('}');
    text
}
