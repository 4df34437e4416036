//! Checks whether an entry may be appended: the same rules for every store.

use super::{AppendRefusal, Entry, StoreError, Tail};
use crate::branch::Ancestry;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::{Cause, StreamId};

/// The state of a store that an entry is checked against.
pub(super) trait StoreView {
    /// How a stream ends, counting what this call has appended so far.
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// The durable tail of a stream before this call.
    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// Whether a blob is there.
    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError>;

    /// Frames of a stream, as [`super::Reader::read`] gives them.
    fn read(
        &mut self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// Which stream has an idempotency key.
    fn owner_of(&mut self, key: &str) -> Result<Option<StreamId>, StoreError>;
}

/// The frame that an entry follows.
struct PriorTails {
    seq: Option<u64>,
    hash: Hash,
}

impl PriorTails {
    /// The last frame that a new branch shares with its parent, which must exist.
    fn of_fork(
        entry: &Entry,
        parent: &StreamId,
        view: &mut dyn StoreView,
    ) -> Result<Self, StoreError> {
        let missing = Self {
            seq: None,
            hash: Hash::ZERO,
        };
        let shared = entry.expected();
        if view.tail(parent)?.is_none() {
            // There is nothing to fork: not even an empty prefix.
            let seq = shared.is_none().then_some(0);
            return Ok(Self { seq, ..missing });
        }
        let Some(seq) = shared else {
            return Ok(missing);
        };
        let mut read = |stream: &StreamId, from: u64, limit: usize| view.read(stream, from, limit);
        let path = Ancestry::of_row(&mut read, parent)?;
        let hash = path.hash_at(&mut read, seq)?;
        Ok(hash.map_or(missing, |hash| Self {
            seq: Some(seq),
            hash,
        }))
    }
}

/// Gives the reason why an entry may not be appended; `None` if it may.
pub(super) fn check(
    entry: &Entry,
    view: &mut dyn StoreView,
) -> Result<Option<AppendRefusal>, StoreError> {
    let stream = entry.stream();
    let tail = view.tail(stream)?;
    let before = match entry.forked_from() {
        Some(parent) if tail.is_none() => PriorTails::of_fork(entry, parent, view)?,
        // A branch begins once.
        Some(_) | None => PriorTails {
            seq: tail.map(|tail| tail.seq),
            hash: tail.map_or(Hash::ZERO, |tail| tail.hash),
        },
    };
    let again = entry.forked_from().is_some() && tail.is_some();
    let expected = entry.expected();
    if expected != before.seq || again {
        return Ok(Some(AppendRefusal::Conflict {
            stream: stream.clone(),
            expected: if again { None } else { expected },
            actual: before.seq,
        }));
    }
    if before.hash != entry.prev() {
        return Ok(Some(AppendRefusal::Unchained {
            stream: stream.clone(),
            seq: entry.first(),
        }));
    }
    for (other, seq) in entry.foreign_causes() {
        let durable = other == stream || view.durable_tail(other)?.is_some_and(|t| t.seq >= *seq);
        if !durable {
            return Ok(Some(AppendRefusal::NoSuchCause {
                stream: stream.clone(),
                cause: Cause::There(other.clone(), *seq),
            }));
        }
    }
    for hash in entry.wanted_blobs() {
        if !view.has_blob(hash)? {
            return Ok(Some(AppendRefusal::NoSuchBlob {
                stream: stream.clone(),
                hash: *hash,
            }));
        }
    }
    if let Some(key) = entry.index().and_then(|row| row.key.as_deref())
        && let Some(owner) = view.owner_of(key)?
        && owner != *stream
    {
        return Ok(Some(AppendRefusal::KeyTaken { owner }));
    }
    Ok(None)
}
