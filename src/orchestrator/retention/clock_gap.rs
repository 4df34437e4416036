//! A check whether the clock may be wrong: what is due for removal follows from it, and removal
//! cannot be undone.
//!
//! A gap of more than a day between two frames means that nothing was recorded for so long, or that
//! the clock jumped. So nothing is removed for a day after one, by the time that was recorded since:
//! restarts in between do not shorten it.

use std::time::Duration;

use ktsu_ledger::frame::Record;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Hash, Timestamp};

const DAY_MICROS: u64 = 24 * 60 * 60 * 1_000_000;

/// A gap between two frames, or between the last frame and now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClockGap {
    /// The time for which nothing was recorded.
    pub(super) length: Duration,
    /// The rest of the day for which nothing is removed.
    pub(super) left: Duration,
}

/// The gap of more than a day that ended within the last day, if there is one.
///
/// # Errors
/// [`StoreError`].
pub(super) fn recent_gap(
    reader: &dyn Reader,
    now: Timestamp,
) -> Result<Option<ClockGap>, StoreError> {
    if reader.audit().is_none() {
        return Ok(None);
    }
    let now = now.as_micros();
    let recent = now.saturating_sub(DAY_MICROS);
    // Halves: the last frame that is older than a day, and the first that is not.
    let (mut older, mut before) = (0, 0);
    let mut younger = reader.last_position()?.saturating_add(1);
    while younger - older > 1 {
        let middle = older + (younger - older) / 2;
        match frame_from(reader, middle)? {
            Some((position, at)) if position < younger && at < recent => {
                (older, before) = (position, at);
            }
            Some(_) | None => younger = middle,
        }
    }
    if older == 0 {
        return Ok(None);
    }
    let since = frame_from(reader, younger)?.map_or(now, |(_, at)| at.min(now));
    let length = since.saturating_sub(before);
    let left = DAY_MICROS.saturating_sub(now.saturating_sub(since));
    let gap = ClockGap {
        length: Duration::from_micros(length),
        left: Duration::from_micros(left),
    };
    Ok((length > DAY_MICROS && left > 0).then_some(gap))
}

/// The position and the time of the first frame from a position on.
fn frame_from(reader: &dyn Reader, from: u64) -> Result<Option<(u64, u64)>, StoreError> {
    let page = reader.scan_frames(from, 1)?;
    let Some(raw) = page.first() else {
        return Ok(None);
    };
    let record = Record {
        seq: raw.seq.unwrap_or_default(),
        hash: Hash::of(&raw.body),
        body: String::from_utf8_lossy(&raw.body).into_owned(),
    };
    let frame = record.decode_bare();
    let frame = frame.map_err(|error| StoreError::Damaged(error.to_string()))?;
    Ok(Some((raw.position, frame.at.as_micros())))
}
