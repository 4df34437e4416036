//! The hash chain of one stream: each frame is hashed as stored and contains the hash of its
//! predecessor.
//!
//! Recovery and verification both walk frames through a [`Chain`], which knows nothing of their
//! meaning.

use crate::frame::{Frame, Record};
use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::Tail;

/// The point up to which a stream was followed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    stream: StreamId,
    next: u64,
    prev: Hash,
}

/// The fault of a frame at which a chain breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ChainError {
    /// The stored hash is not that of the stored bytes.
    #[error("its hash is not that of its bytes")]
    Hash,
    /// The body contradicts the columns about its stream or number.
    #[error("its body says another stream or number")]
    Columns,
    /// Its number is not the next one.
    #[error("its number is not {expected}, which comes next")]
    Gap {
        /// The number that comes next.
        expected: u64,
    },
    /// It does not name the hash of the frame before it.
    #[error("it does not follow from the frame before it")]
    Prev,
}

impl Chain {
    /// From the beginning of a stream.
    pub fn new(stream: StreamId) -> Self {
        Self {
            stream,
            next: 0,
            prev: Hash::ZERO,
        }
    }

    /// From behind a frame that is trusted.
    pub fn after(stream: StreamId, tail: Tail) -> Self {
        Self {
            stream,
            next: tail.seq.saturating_add(1),
            prev: tail.hash,
        }
    }

    /// Adds the next frame. After a broken link, the next frame is compared with what is stored
    /// here, so that one damaged frame is reported once.
    ///
    /// # Errors
    /// [`ChainError`].
    pub fn push(&mut self, record: &Record, frame: &Frame) -> Result<(), ChainError> {
        let hashed = Hash::of(record.body.as_bytes()) == record.hash;
        let followed = self.push_hashed(record, frame);
        if hashed {
            followed
        } else {
            Err(ChainError::Hash)
        }
    }

    /// Follows one more frame whose hash is known to be that of its bytes.
    pub(crate) fn push_hashed(&mut self, record: &Record, frame: &Frame) -> Result<(), ChainError> {
        let followed = self.check(record, frame);
        self.next = record.seq.saturating_add(1);
        self.prev = record.hash;
        followed
    }

    fn check(&self, record: &Record, frame: &Frame) -> Result<(), ChainError> {
        if frame.stream != self.stream || frame.seq != record.seq {
            Err(ChainError::Columns)
        } else if record.seq != self.next {
            Err(ChainError::Gap {
                expected: self.next,
            })
        } else if frame.prev != self.prev {
            Err(ChainError::Prev)
        } else {
            Ok(())
        }
    }

    /// The number the next frame must have.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// The last frame that was followed.
    pub fn tail(&self) -> Option<Tail> {
        let seq = self.next.checked_sub(1)?;
        Some(Tail {
            seq,
            hash: self.prev,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::event::{Event, RunCompleted, RunEvent};
    use crate::frame::{Draft, Link, Sealed};
    use crate::id::Actor;
    use crate::time::Timestamp;

    fn stream() -> StreamId {
        "run:a".parse().unwrap_or_else(|_| StreamId::store())
    }

    fn sealed(seq: u64, prev: Hash) -> Result<Sealed, crate::FrameError> {
        let draft = Draft {
            scope: String::new(),
            actor: Actor::Orchestrator,
            cause: Vec::new(),
            event: Event::Run(RunEvent::Completed(RunCompleted::default())),
        };
        let stream = stream();
        let link = Link { stream, seq, prev };
        draft.seal(link, Timestamp::default())
    }

    #[test]
    fn a_chain_breaks_where_it_was_touched_and_nowhere_else() -> Result<(), crate::FrameError> {
        let first = sealed(0, Hash::ZERO)?;
        let second = sealed(1, first.record.hash)?;
        let third = sealed(2, second.record.hash)?;
        let mut chain = Chain::new(stream());
        assert_eq!(chain.push(&first.record, &first.frame), Ok(()));
        let mut changed = second.record.clone();
        changed.body.push(' ');
        assert_eq!(chain.push(&changed, &second.frame), Err(ChainError::Hash));
        assert_eq!(chain.push(&third.record, &third.frame), Ok(()));
        let gap = chain.push(&second.record, &second.frame);
        assert_eq!(gap, Err(ChainError::Gap { expected: 3 }));
        assert_eq!(chain.push(&third.record, &third.frame), Ok(()));

        let tail = Tail {
            seq: 0,
            hash: Hash::of(b"another"),
        };
        let mut other = Chain::after(stream(), tail);
        let prev = other.push(&second.record, &second.frame);
        assert_eq!(prev, Err(ChainError::Prev));
        let mut store = Chain::new(StreamId::store());
        assert_eq!(store.tail(), None);
        let columns = store.push(&first.record, &first.frame);
        assert_eq!(columns, Err(ChainError::Columns));
        Ok(())
    }
}
