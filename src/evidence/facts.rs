//! The facts about evidence in the stream `store`: keys, checkpoints, heads.

use std::collections::BTreeMap;

use ktsu_ledger::branch;
use ktsu_ledger::event::{CheckpointSigned, OPEN, RunHead, StoreEvent};
use ktsu_ledger::keys::{Keys, origin_of};
use ktsu_ledger::store::{MAX_PAGE, Reader, StoreError};
use ktsu_ledger::{Event, Hash, StreamId};

/// The facts, as far as they were read.
#[derive(Debug, Clone)]
pub struct StoreFacts {
    /// The keys; those that are damaged are left out.
    pub keys: Keys,
    /// The last checkpoint and its number in the stream.
    pub last: Option<(u64, CheckpointSigned)>,
    /// The heads after it, and how many frames each stream had.
    pub heads: BTreeMap<StreamId, u64>,
    /// The streams whose last head says that they ended, and how.
    pub closed: BTreeMap<StreamId, String>,
}

impl StoreFacts {
    fn take_head(&mut self, head: &RunHead) {
        match head.status.as_str() {
            OPEN => self.closed.remove(&head.stream),
            _ => self.closed.insert(head.stream.clone(), head.status.clone()),
        };
    }
}

/// The name of a ledger; none while it has no frames.
///
/// # Errors
/// [`StoreError`].
pub fn origin(reader: &dyn Reader) -> Result<Option<String>, StoreError> {
    let first = reader.scan_frames(1, 1)?;
    let hash = first
        .first()
        .and_then(|frame| Hash::from_bytes(&frame.hash));
    Ok(hash.map(|hash| origin_of(&hash)))
}

/// Reads the stream.
///
/// # Errors
/// [`StoreError`].
pub fn read(reader: &dyn Reader) -> Result<StoreFacts, StoreError> {
    read_from(reader, 0)
}

/// Reads the stream from a number on. From a later one than the first, not all keys are known, and no checkpoint is
/// held against its key.
///
/// # Errors
/// [`StoreError`].
pub fn read_from(reader: &dyn Reader, from: u64) -> Result<StoreFacts, StoreError> {
    let origin = origin(reader)?.unwrap_or_default();
    let mut facts = StoreFacts {
        keys: Keys::new(&origin),
        last: None,
        heads: BTreeMap::new(),
        closed: BTreeMap::new(),
    };
    each_from(reader, from, &mut |seq, event| {
        // What is wrong with one of them is for `ktsu verify` to say.
        let taken = facts.keys.take(event);
        match event {
            StoreEvent::CheckpointSigned(signed) if taken.is_ok() || from > 0 => {
                facts.last = Some((seq, signed.clone()));
                facts.heads.clear();
            }
            StoreEvent::RunHead(head) => {
                facts.heads.insert(head.stream.clone(), head.frames);
                facts.take_head(head);
            }
            // It will not go on.
            StoreEvent::RunRemoved(removed) => {
                facts.heads.remove(&removed.stream);
                facts.closed.remove(&removed.stream);
            }
            _ => {}
        }
    })?;
    Ok(facts)
}

/// Every fact of the stream, in order.
///
/// # Errors
/// [`StoreError`].
pub fn each(reader: &dyn Reader, take: &mut dyn FnMut(u64, &StoreEvent)) -> Result<(), StoreError> {
    each_from(reader, 0, take)
}

fn each_from(
    reader: &dyn Reader,
    mut from: u64,
    take: &mut dyn FnMut(u64, &StoreEvent),
) -> Result<(), StoreError> {
    let stream = StreamId::store();
    let mut blobs = branch::Blobs::new(reader);
    loop {
        let page = reader.read(&stream, from, MAX_PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        from = last.seq.saturating_add(1);
        for record in &page {
            if let Event::Store(event) = blobs.decode(&stream, record)?.event {
                take(record.seq, &event);
            }
        }
    }
}

/// The number of frames of a ledger: the last position.
///
/// # Errors
/// [`StoreError`].
pub fn size(reader: &dyn Reader) -> Result<u64, StoreError> {
    reader.last_position()
}
