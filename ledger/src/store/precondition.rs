//! Checks whether an entry may be appended: the same rules for every store.

use super::{AppendRefusal, Entry, StoreError, Tail};
use crate::branch::Ancestry;
use crate::event::RunRemoved;
use crate::frame::Record;
use crate::hash::Hash;
use crate::id::{Cause, StreamId};
use crate::removal::{ReferenceCounts, Removal};

/// The state of a store that an entry is checked against.
pub trait StoreView {
    /// The end of a stream, counting what this call has appended so far.
    fn tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// The durable tail of a stream before this call.
    fn durable_tail(&mut self, stream: &StreamId) -> Result<Option<Tail>, StoreError>;

    /// Returns `true` if a blob is there.
    fn has_blob(&mut self, hash: &Hash) -> Result<bool, StoreError>;

    /// Frames of a stream, as [`super::Reader::read`] gives them.
    fn read(
        &mut self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<Record>, StoreError>;

    /// The number after the last frame of a stream that was removed; `None` of any other stream.
    fn removed_end(&mut self, stream: &StreamId) -> Result<Option<u64>, StoreError>;

    /// The bodies of all frames after a position, those of this call included.
    fn bodies_after(&mut self, position: u64) -> Result<Vec<String>, StoreError>;

    /// The stream that has an idempotency key.
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
pub fn check(entry: &Entry, view: &mut dyn StoreView) -> Result<Option<AppendRefusal>, StoreError> {
    let stream = entry.stream();
    let tail = view.tail(stream)?;
    if tail.is_none() && view.removed_end(stream)?.is_some() {
        return Ok(Some(AppendRefusal::Removed(stream.clone())));
    }
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
        let durable = other == stream
            || view.durable_tail(other)?.is_some_and(|t| t.seq >= *seq)
            || view.removed_end(other)?.is_some_and(|end| *seq < end);
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
    for (_, removed, removal) in entry.removals() {
        if let Some(refused) = check_removal(removed, removal, view)? {
            return Ok(Some(refused));
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

/// Refuses the removal of a stream that is not as it was when its removal was planned, or of which
/// a branch was made since.
fn check_removal(
    removed: &RunRemoved,
    removal: &Removal,
    view: &mut dyn StoreView,
) -> Result<Option<AppendRefusal>, StoreError> {
    let stream = &removed.stream;
    if view.removed_end(stream)?.is_some() {
        return Ok(Some(AppendRefusal::Removed(stream.clone())));
    }
    let expected = removed.first.saturating_add(removed.frames).checked_sub(1);
    // What this call has appended to it so far counts, too.
    let found = view.tail(stream)?;
    if found.is_none_or(|tail| Some(tail.seq) != expected || tail.hash != removed.hash) {
        return Ok(Some(AppendRefusal::Conflict {
            stream: stream.clone(),
            expected,
            actual: found.map(|tail| tail.seq),
        }));
    }
    let late = late_references(removal, view)?;
    Ok(late
        .branch_of(stream)
        .map(|branch| AppendRefusal::HasBranch {
            parent: stream.clone(),
            branch: branch.clone(),
        }))
}

/// The references of frames that were appended since a removal was planned.
fn late_references(
    removal: &Removal,
    view: &mut dyn StoreView,
) -> Result<ReferenceCounts, StoreError> {
    let mut late = ReferenceCounts::default();
    for body in view.bodies_after(removal.read_to)? {
        late.note(&body);
    }
    Ok(late)
}

/// The blobs that a removal deletes: those that no frame names that was appended since it was planned.
pub fn unnamed_blobs(removal: &Removal, view: &mut dyn StoreView) -> Result<Vec<Hash>, StoreError> {
    let late = late_references(removal, view)?;
    let blobs = removal.blobs.iter().copied();
    Ok(blobs.filter(|hash| !late.names(hash)).collect())
}
