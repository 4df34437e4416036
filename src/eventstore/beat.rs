//! Who owns a ledger, and since when it does nothing: a stream of beats, of which the server keeps the last.
//!
//! A beat is appended right behind the one before, so another process that writes one ends an owner's. An
//! owner that comes writes one first, with its epoch, and then an order event: from the first on the old
//! owner cannot renew its ownership, from the second on it cannot append.

use ktsu_ledger::store::{Holder, OwnerState};
use ktsu_ledger::{Epoch, StoreError};
use serde::{Deserialize, Serialize};

use crate::log::{EventLog, PutError};
use crate::order::{BEATS, ORDER, OrderEvent, as_event};

/// What is done when the ownership is not renewed.
const RENEWING: &str = "renew the ownership of the ledger";

/// A sign of life of an owner.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Beat {
    pub(crate) epoch: u64,
    /// The text of a [`Holder`]; empty once the ownership was given up.
    pub(crate) holder: String,
    pub(crate) url: String,
}

impl Beat {
    /// A sign of life of this process.
    pub(crate) fn of(Epoch(epoch): Epoch, url: &str) -> Self {
        Self {
            epoch,
            holder: Holder::this().to_string(),
            url: url.to_owned(),
        }
    }

    /// The sign that an ownership was given up.
    pub(crate) fn farewell(Epoch(epoch): Epoch) -> Self {
        Self {
            epoch,
            ..Self::default()
        }
    }

    /// Writes it behind a revision; gives its own.
    pub(crate) fn write(&self, log: &EventLog, after: Option<u64>) -> Result<u64, PutError> {
        let place = after.map_or(0, |after| after.saturating_add(1));
        let event = as_event("ktsu.beat", self, place).map_err(PutError::Store)?;
        log.put(BEATS, after, event, RENEWING)?;
        Ok(place)
    }

    /// The last one, and its revision.
    pub(crate) fn last(log: &EventLog) -> Result<Option<(u64, Self)>, StoreError> {
        let Some(event) = log.last(BEATS)? else {
            return Ok(None);
        };
        let beat = serde_json::from_slice(&event.data);
        let beat = beat.map_err(|error| {
            StoreError::Damaged(format!(
                "{BEATS}@{} cannot be read: {error}",
                event.revision
            ))
        })?;
        Ok(Some((event.revision, beat)))
    }
}

/// What a ledger shows of its owner.
pub(crate) fn owner_state(log: &EventLog) -> Result<OwnerState, StoreError> {
    let beat = Beat::last(log)?;
    let head = log.last(ORDER)?.map_or(0, |event| event.revision);
    let (beat, Beat { epoch, holder, url }) = match beat {
        Some((revision, beat)) => (revision.saturating_add(1), beat),
        None => (0, Beat::default()),
    };
    Ok(OwnerState {
        epoch,
        head,
        beat,
        holder,
        url,
    })
}

/// The epoch and the position at the end of the order stream.
pub(crate) fn order_end(log: &EventLog) -> Result<(u64, u64), StoreError> {
    let mut end = log.last(ORDER)?;
    let mut epoch = None;
    loop {
        let Some(stored) = end else {
            return Ok((epoch.unwrap_or_default(), 0));
        };
        match OrderEvent::of(&stored)? {
            OrderEvent::Appended {
                epoch: its,
                after,
                entries,
            } => {
                let frames: u64 = entries.iter().map(|entry| entry.frames).sum();
                return Ok((epoch.unwrap_or(its), after.saturating_add(frames)));
            }
            OrderEvent::Owned { epoch: its }
            | OrderEvent::Rows { epoch: its, .. }
            | OrderEvent::Erased { epoch: its, .. } => epoch = epoch.or(Some(its)),
            OrderEvent::Made { .. } => {}
        }
        end = match stored.revision.checked_sub(1) {
            Some(before) => log.read(ORDER, before, 1)?.into_iter().next(),
            None => None,
        };
    }
}
