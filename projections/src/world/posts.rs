//! The posts of people and peers: the number of the last post, and the idempotency keys that were
//! used.

use ktsu_ledger::Frame;
use ktsu_ledger::event::{Post, Principal};
use rpds::HashTrieMapSync;

use super::derivation::TriggerKey;

/// The posts of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct Posts {
    last: Option<LastPost>,
    /// By principal and key. Shared with the states that this one was cloned from.
    by_key: HashTrieMapSync<(String, String), PostRecord>,
}

/// The last post, some of whose events may be yet to come.
#[derive(Debug, Clone)]
struct LastPost {
    n: u64,
    digest: String,
    by: String,
    /// The place of its last event that was taken, counted from 0.
    taken: u32,
    /// The frame of that event.
    seq: u64,
}

/// A post that had an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PostRecord {
    /// BLAKE3 of its events.
    pub digest: String,
    /// Its first frame.
    pub first: u64,
    /// Its number.
    pub n: u64,
}

impl Posts {
    /// The number that the next post has.
    pub(super) fn next(&self) -> u64 {
        self.last.as_ref().map_or(0, |last| last.n) + 1
    }

    /// The post that a principal made with a key in this stream.
    pub(super) fn with_key(&self, principal: &str, key: &str) -> Option<&PostRecord> {
        self.by_key.get(&(principal.to_owned(), key.to_owned()))
    }

    /// Returns `true` if a frame is another event of the last post: it follows at once, and comes
    /// from the same request.
    pub(super) fn continues(&self, frame: &Frame, by: &Principal, post: &Post) -> bool {
        self.last.as_ref().is_some_and(|last| {
            let adjacent = frame.seq == last.seq + 1;
            adjacent && last.n == post.n && last.digest == post.digest && last.by == by.id
        })
    }

    /// Takes a posted event; gives what ids of what it leads to are made from.
    pub(super) fn take(&mut self, frame: &Frame, by: &Principal, post: &Post) -> TriggerKey {
        let taken = match &self.last {
            Some(last) if last.n == post.n => last.taken.saturating_add(1),
            _ => 0,
        };
        if taken == 0
            && let Some(key) = &post.key
        {
            let record = PostRecord {
                digest: post.digest.clone(),
                first: frame.seq,
                n: post.n,
            };
            self.by_key.insert_mut((by.id.clone(), key.clone()), record);
        }
        self.last = Some(LastPost {
            n: post.n,
            digest: post.digest.clone(),
            by: by.id.clone(),
            taken,
            seq: frame.seq,
        });
        TriggerKey::post(post.n, taken)
    }

    /// A branch begins: requests to its parent were not for the branch (decision F1).
    pub(super) fn begin_branch(&mut self) {
        self.by_key = HashTrieMapSync::default();
    }
}
