//! The queue of entries to append: bounded in bytes, closed once, failed for ever.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::AppendCallback;
use crate::store::Entry;

/// The queue between the handles and the thread.
pub(super) struct Queue {
    limit: usize,
    inner: Mutex<Inner>,
    /// Something waits, or the queue was closed.
    filled: Condvar,
    /// Signals free space, or that the queue is closed.
    drained: Condvar,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<(Entry, AppendCallback)>,
    bytes: usize,
    closed: bool,
    failure: Option<String>,
}

impl Inner {
    fn stopped(&self) -> Option<String> {
        let shut = || "it was shut down".to_owned();
        self.failure.clone().or_else(|| self.closed.then(shut))
    }
}

/// The next thing to do.
pub(super) enum Taken {
    /// Entries to append.
    Group(CommitGroup),
    /// Nothing came in this time.
    Idle,
    /// The queue is closed and empty.
    Closed,
}

/// Entries that go as one transaction.
pub(super) struct CommitGroup {
    pub(super) entries: Vec<Entry>,
    pub(super) dones: Vec<AppendCallback>,
}

impl Queue {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            inner: Mutex::default(),
            filled: Condvar::new(),
            drained: Condvar::new(),
        }
    }

    /// Adds an entry, waiting for space; returns `done` with the reason if the queue is closed. An
    /// entry larger than the whole queue is accepted when the queue is empty.
    pub(super) fn push(
        &self,
        entry: Entry,
        done: AppendCallback,
    ) -> Result<(), (AppendCallback, String)> {
        let mut inner = self.inner.lock();
        loop {
            if let Some(reason) = inner.stopped() {
                return Err((done, reason));
            }
            if inner.bytes == 0 || inner.bytes.saturating_add(entry.bytes()) <= self.limit {
                break;
            }
            self.drained.wait(&mut inner);
        }
        inner.bytes = inner.bytes.saturating_add(entry.bytes());
        inner.waiting.push_back((entry, done));
        drop(inner);
        self.filled.notify_one();
        Ok(())
    }

    /// Takes waiting entries, at least one and up to a number of bytes; blocks until there are
    /// some, for this time at most.
    pub(super) fn take(&self, bytes: usize, limit: Option<Duration>) -> Taken {
        let until = limit.map(|limit| Instant::now() + limit);
        let mut inner = self.inner.lock();
        while inner.waiting.is_empty() {
            if inner.closed {
                return Taken::Closed;
            }
            match until {
                None => self.filled.wait(&mut inner),
                Some(until) if self.filled.wait_until(&mut inner, until).timed_out() => {
                    return Taken::Idle;
                }
                Some(_) => {}
            }
        }
        let (mut entries, mut dones, mut taken) = (Vec::new(), Vec::new(), 0usize);
        while let Some((entry, _)) = inner.waiting.front() {
            let with = taken.saturating_add(entry.bytes());
            if taken > 0 && with > bytes {
                break;
            }
            taken = with;
            if let Some((entry, done)) = inner.waiting.pop_front() {
                entries.push(entry);
                dones.push(done);
            }
        }
        inner.bytes = inner.bytes.saturating_sub(taken);
        drop(inner);
        self.drained.notify_all();
        Taken::Group(CommitGroup { entries, dones })
    }

    /// Returns `true` if nothing waits.
    pub(super) fn is_empty(&self) -> bool {
        self.inner.lock().waiting.is_empty()
    }

    /// The number of entries that wait, and of their bytes.
    pub(super) fn waiting(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        (inner.waiting.len(), inner.bytes)
    }

    /// Takes nothing more; what waits is still taken out.
    pub(super) fn close(&self) {
        self.inner.lock().closed = true;
        self.filled.notify_all();
        self.drained.notify_all();
    }

    /// Fails for ever; gives back those who still waited. The first reason stays.
    pub(super) fn fail(&self, reason: &str) -> Vec<AppendCallback> {
        let mut inner = self.inner.lock();
        inner.failure.get_or_insert_with(|| reason.to_owned());
        inner.closed = true;
        inner.bytes = 0;
        let waiting = std::mem::take(&mut inner.waiting);
        drop(inner);
        self.filled.notify_all();
        self.drained.notify_all();
        waiting.into_iter().map(|(_, done)| done).collect()
    }

    /// The reason why no more entries are accepted, if none are.
    pub(super) fn stopped(&self) -> Option<String> {
        self.inner.lock().stopped()
    }

    /// The reason why it failed, if it did.
    pub(super) fn failure(&self) -> Option<String> {
        self.inner.lock().failure.clone()
    }
}
