//! The appender's thread: groups entries, appends them, reports outcomes, checkpoints.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::queue::{CommitGroup, Taken};
use super::settle::{Unsettled, answer_each};
use super::{AppendCallback, AppendError, Commit, Committed, OnCommit, OnFatal, OnWritten, Shared};
use crate::store::lease::{BEAT_INTERVAL, BootTime, Tenure};
use crate::store::{AppendRefusal, Entry, Store, StoreError, WalCheckpoint};

/// A log of this size is truncated when the appender is idle.
const WORTH_SHRINKING: u64 = 32 * 1024 * 1024;
/// The pause between two beats of which the store does not know what became of them.
const BEAT_PAUSE: Duration = Duration::from_millis(100);

pub(super) struct AppendWorker {
    pub(super) store: Box<dyn Store>,
    pub(super) shared: Arc<Shared>,
    pub(super) transaction_bytes: usize,
    pub(super) checkpoint_bytes: u64,
    pub(super) unknown_timeout: Duration,
    pub(super) on_commit: Option<OnCommit>,
    pub(super) on_written: Option<OnWritten>,
    pub(super) on_fatal: Option<OnFatal>,
}

impl AppendWorker {
    /// Works until the queue is closed and empty, or until something fails.
    pub(super) fn run(mut self) {
        let worked = catch_unwind(AssertUnwindSafe(|| self.work()));
        let error = match worked {
            Ok(Ok(())) => return,
            Ok(Err(error)) => error,
            // A defect of ours, or of a callback.
            Err(_) => StoreError::failed("append", "the appender panicked"),
        };
        self.fail(&error, Vec::new());
    }

    fn work(&mut self) -> Result<(), StoreError> {
        let shared = Arc::clone(&self.shared);
        let idle = shared.tenure.as_ref().map(|_| BEAT_INTERVAL);
        loop {
            let group = match shared.queue.take(self.transaction_bytes, idle) {
                Taken::Group(group) => group,
                Taken::Idle => {
                    self.beat()?;
                    continue;
                }
                Taken::Closed => break,
            };
            // Checked here, so that new runs are refused before active ones run out of space.
            shared.disk_space.look();
            self.append(group)?;
            let failed = shared.queue.failure().is_some();
            if !failed && self.backlog() >= self.checkpoint_bytes {
                self.checkpoint(WalCheckpoint::Incremental)?;
            }
        }
        if shared.queue.failure().is_some() {
            self.store.abandon();
            return Ok(());
        }
        self.checkpoint(WalCheckpoint::Full)?;
        if let Some(lease) = self.store.lease() {
            // Everything is durable: where this fails, the next owner waits for a lease, and no more.
            let _ = lease.release(shared.epoch);
        }
        Ok(())
    }

    /// Renews the ownership, where it lasts only while it is renewed.
    fn beat(&mut self) -> Result<(), StoreError> {
        let (shared, started) = (Arc::clone(&self.shared), Instant::now());
        let Some(tenure) = &shared.tenure else {
            return Ok(());
        };
        loop {
            let sent = BootTime::now();
            let beat = self.store.lease().map(|lease| lease.beat(shared.epoch));
            match beat.unwrap_or(Ok(())) {
                Ok(()) => {
                    tenure.renew(sent);
                    return Ok(());
                }
                Err(StoreError::Unknown(_))
                    if started.elapsed() < self.unknown_timeout
                        && shared.queue.failure().is_none() =>
                {
                    std::thread::sleep(BEAT_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Counts what the store has accepted, and was sent at this time, as a renewal. An owner that was
    /// suspended meanwhile makes sure that no other has come before anything is acknowledged.
    fn renew(&mut self, sent: BootTime) -> Result<(), StoreError> {
        let is_held = |tenure: &Arc<Tenure>| {
            tenure.renew(sent);
            tenure.is_held_at(BootTime::now())
        };
        match self.shared.tenure.as_ref().is_none_or(is_held) {
            true => Ok(()),
            false => self.beat(),
        }
    }

    fn backlog(&mut self) -> u64 {
        let maintenance = self.store.maintenance();
        maintenance.map_or(0, |maintenance| maintenance.backlog())
    }

    fn append(&mut self, group: CommitGroup) -> Result<(), StoreError> {
        let CommitGroup { entries, dones } = group;
        let started = Instant::now();
        // After a panic in the store every caller must still get an answer.
        let stored = catch_unwind(AssertUnwindSafe(|| self.store(&entries)));
        let stored = stored.unwrap_or_else(|_| {
            let broken = "it answered with a panic";
            Err(StoreError::failed("use the store", broken))
        });
        match stored {
            Ok((outcomes, is_ordered)) => {
                if let Some(on_written) = &mut self.on_written {
                    quietly(|| on_written(started.elapsed()));
                }
                self.count(&entries, &outcomes);
                let outcomes = committed(&entries, outcomes);
                // Followers first: a caller that learns its entry is durable may stop everything,
                // and followers must have seen the entry by then.
                if let Some(on_commit) = &mut self.on_commit {
                    let mut taken = outcomes.iter().map(Result::is_ok);
                    let mut entries = entries;
                    entries.retain(|_| taken.next().unwrap_or_default());
                    let commit = Commit {
                        entries,
                        is_ordered,
                    };
                    quietly(|| on_commit(commit));
                }
                for (outcome, done) in outcomes.into_iter().zip(dones) {
                    quietly(|| done(outcome));
                }
                Ok(())
            }
            Err(error) => {
                self.fail(&error, dones);
                Err(error)
            }
        }
    }

    /// Stores entries. Returns the outcome of each, and whether they are stored in this order.
    fn store(
        &mut self,
        entries: &[Entry],
    ) -> Result<(Vec<Result<u64, AppendRefusal>>, bool), StoreError> {
        let epoch = self.shared.epoch;
        let sent = BootTime::now();
        let appended = self.store.append(epoch, entries);
        if !matches!(appended, Err(StoreError::Unknown(_))) {
            let outcomes = answer_each(entries, appended)?;
            self.renew(sent)?;
            return Ok((outcomes, true));
        }
        self.shared.counts.settled.fetch_add(1, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let unsettled = Unsettled {
            epoch,
            entries,
            timeout: self.unknown_timeout,
            is_stopped: &|| shared.queue.failure().is_some(),
        };
        let outcomes = unsettled.settle(self.store.as_mut())?;
        // What was read back may be stored, and not be durable yet: a server shows what waits for its
        // standby.
        self.beat()?;
        Ok((outcomes, false))
    }

    fn checkpoint(&mut self, kind: WalCheckpoint) -> Result<(), StoreError> {
        let Some(maintenance) = self.store.maintenance() else {
            return Ok(());
        };
        let started = Instant::now();
        let mut left = maintenance.checkpoint(kind)?;
        let idle = left.left == 0 && self.shared.queue.is_empty();
        if kind == WalCheckpoint::Incremental && idle && left.log >= WORTH_SHRINKING {
            left = maintenance.checkpoint(WalCheckpoint::Full)?;
        }
        let took = u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX);
        let counts = &self.shared.counts;
        counts.checkpoints.fetch_add(1, Ordering::Relaxed);
        counts.checkpoint_us.fetch_add(took, Ordering::Relaxed);
        counts
            .longest_checkpoint_us
            .fetch_max(took, Ordering::Relaxed);
        counts.log_bytes.store(left.log, Ordering::Relaxed);
        Ok(())
    }

    fn count(&self, entries: &[Entry], outcomes: &[Result<u64, AppendRefusal>]) {
        let counts = &self.shared.counts;
        let (mut taken, mut frames, mut bytes) = (0, 0, 0);
        for (entry, outcome) in entries.iter().zip(outcomes) {
            if outcome.is_ok() {
                taken += 1;
                frames += entry.records().len() as u64;
                bytes += entry.bytes() as u64;
            }
        }
        counts
            .commits
            .fetch_add(u64::from(taken > 0), Ordering::Relaxed);
        counts.entries.fetch_add(taken, Ordering::Relaxed);
        counts.frames.fetch_add(frames, Ordering::Relaxed);
        counts.bytes.fetch_add(bytes, Ordering::Relaxed);
        let refused = (entries.len() as u64).saturating_sub(taken);
        counts.refused.fetch_add(refused, Ordering::Relaxed);
    }

    /// Stops permanently and notifies all waiting callers, those of the failed transaction first.
    fn fail(&mut self, error: &StoreError, failed: Vec<AppendCallback>) {
        let reason = &error.to_string();
        let waiting = self.shared.queue.fail(reason);
        let on_fatal = self.on_fatal.take();
        if let Some(on_fatal) = on_fatal {
            quietly(|| on_fatal(error));
        }
        for done in failed.into_iter().chain(waiting) {
            quietly(|| {
                done(Err(AppendError::Stopped {
                    reason: reason.to_owned(),
                }));
            });
        }
    }
}

/// The outcome of every entry of a durable transaction.
fn committed(
    entries: &[Entry],
    outcomes: Vec<Result<u64, AppendRefusal>>,
) -> Vec<Result<Committed, AppendError>> {
    let one = |(entry, outcome): (&Entry, Result<u64, AppendRefusal>)| {
        outcome.map_err(AppendError::Refused).map(|last| Committed {
            first: entry.first(),
            last,
            hash: entry.tail().hash,
        })
    };
    entries.iter().zip(outcomes).map(one).collect()
}

/// One caller's panic is not the next one's.
pub(super) fn quietly(work: impl FnOnce()) {
    let worked = catch_unwind(AssertUnwindSafe(work));
    drop(worked);
}
