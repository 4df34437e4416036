//! Judging an entry against a store: the same rules for every store, in one place.

use super::{Entry, Refused, StoreError, Tail};
use crate::hash::Hash;
use crate::id::{Cause, StreamId};

/// What a store must be able to say for an entry to be judged.
pub(super) trait Facts {
    /// How a stream ends, counting what this call has appended so far.
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// How a stream ended before this call: what is durable.
    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// Whether a blob is there.
    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError>;

    /// Which stream has an idempotency key.
    fn owner_of(&mut self, key: &str) -> Result<Option<StreamId>, StoreError>;
}

/// Says why an entry may not be appended, if so.
pub(super) fn judge(entry: &Entry, facts: &mut dyn Facts) -> Result<Option<Refused>, StoreError> {
    let stream = entry.stream();
    let tail = facts.tail(stream)?;
    let (expected, actual) = (entry.expected(), tail.map(|tail| tail.seq));
    if expected != actual {
        let stream = stream.clone();
        return Ok(Some(Refused::Conflict {
            stream,
            expected,
            actual,
        }));
    }
    if tail.map_or(Hash::ZERO, |tail| tail.hash) != entry.prev() {
        return Ok(Some(Refused::Unchained {
            stream: stream.clone(),
            seq: entry.first(),
        }));
    }
    for (other, seq) in entry.foreign_causes() {
        let durable = other == stream || facts.durable_tail(other)?.is_some_and(|t| t.seq >= *seq);
        if !durable {
            return Ok(Some(Refused::NoSuchCause {
                stream: stream.clone(),
                cause: Cause::There(other.clone(), *seq),
            }));
        }
    }
    for hash in entry.wanted_blobs() {
        if !facts.has_blob(hash)? {
            return Ok(Some(Refused::NoSuchBlob {
                stream: stream.clone(),
                hash: *hash,
            }));
        }
    }
    if let Some(key) = entry.index().and_then(|row| row.key.as_deref())
        && let Some(owner) = facts.owner_of(key)?
        && owner != *stream
    {
        return Ok(Some(Refused::KeyTaken { owner }));
    }
    Ok(None)
}
