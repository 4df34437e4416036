//! One task owns a run: its state, its tail, its timers.
//!
//! Memory runs ahead of the disk: a turn is decided, handed to the appender, and the next may be
//! decided before it is durable. Whatever leaves the process waits until the frames it rests on
//! are: an effect starts, and a follower is told, at the watermark.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::event::{WebhookEvent, Why};
use ktsu_ledger::store::{Entry, IndexRow};
use ktsu_ledger::{Draft, Event, Timestamp};
use ktsu_projections::run::{RunState, RunStatus};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Shared, effects, lock};
use crate::rows;
use crate::workflow::admit::{self, Answer};
use crate::workflow::definition::Definition;
use crate::workflow::next::Memo;
use crate::workflow::turn::{self, Broken, Turn};

/// Only effects of the run itself send here, each once, and each waits for room: the bound keeps a
/// burst of answers from being held twice, here and by their senders. Boxed, since a channel makes
/// room for thirty-two messages before the first: some kilobytes in every run that waits.
const MAILBOX: usize = 64;

/// How far a run is, as others may know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last durable frame.
    pub durable: Option<u64>,
    /// Whether the run has ended and all of it is durable.
    pub ended: bool,
    /// Why the run's task stopped before the end.
    pub failed: Option<String>,
}

/// See the module documentation.
pub(super) struct RunTask {
    shared: Arc<Shared>,
    definition: Arc<Definition>,
    state: RunState,
    memo: Memo,
    mailbox: mpsc::Receiver<Box<Answer>>,
    sender: mpsc::Sender<Box<Answer>>,
    progress: Arc<watch::Sender<Progress>>,
    durable: watch::Receiver<Progress>,
    /// Effects that wait for their announcement to be durable.
    waiting: VecDeque<(u64, effects::Place)>,
    indexed: Option<RunStatus>,
    more: bool,
    /// The timer that is set: what it is for by the wall clock, and when it fires.
    armed: Option<(Timestamp, Instant)>,
}

impl RunTask {
    /// A task that has not begun, and the view others have of it.
    pub(super) fn new(
        shared: &Arc<Shared>,
        definition: Arc<Definition>,
        state: RunState,
        memo: Memo,
    ) -> (Self, watch::Receiver<Progress>) {
        let (sender, mailbox) = mpsc::channel(MAILBOX);
        let (progress, durable) = watch::channel(Progress::default());
        let task = Self {
            shared: Arc::clone(shared),
            definition,
            state,
            memo,
            mailbox,
            sender,
            progress: Arc::new(progress),
            durable: durable.clone(),
            waiting: VecDeque::new(),
            indexed: None,
            more: false,
            armed: None,
        };
        (task, durable)
    }

    /// Hands the first turn over and lives on by itself. Tells the number of the turn's last frame.
    pub(super) fn start(mut self, first: Turn) -> u64 {
        let last = first.sealed.last().map_or(0, |sealed| sealed.record.seq);
        self.register();
        self.hand_over(first);
        tokio::spawn(self.live());
        last
    }

    /// Takes a run up again, all of which is durable.
    pub(super) fn resume(mut self, clock: Timestamp) {
        self.indexed = Some(self.state.status());
        let last = self.state.next_seq().saturating_sub(1);
        self.progress
            .send_modify(|progress| progress.durable = Some(last));
        self.register();
        for (scope, step) in self.state.unanswered() {
            self.waiting
                .push_back((last, effects::Place { scope, step }));
        }
        for input in admit::restart(&self.definition, &self.state, clock, false) {
            if let Err(broken) = self.take(input) {
                return self.give_up(&broken.to_string());
            }
        }
        tokio::spawn(self.live());
    }

    fn register(&self) {
        let run_id = self.state.stream().name().to_owned();
        lock(&self.shared.active).insert(run_id, self.durable.clone());
    }

    async fn live(mut self) {
        let mut stop = self.shared.stop.subscribe();
        loop {
            self.start_effects();
            if self.has_ended() {
                break;
            }
            if self.more && self.mailbox.is_empty() {
                // Other runs have their turn first: the continuation stands behind the mailbox.
                tokio::task::yield_now().await;
                if self.mailbox.is_empty() {
                    let input = turn::continued(&self.state, Why::Bound);
                    self.more = false;
                    if let Err(broken) = self.take(input) {
                        return self.give_up(&broken.to_string());
                    }
                }
                continue;
            }
            if !self.more {
                self.memo.clear();
            }
            self.arm();
            tokio::select! {
                Some(answer) = self.mailbox.recv() => {
                    if let Err(broken) = self.answered(*answer) {
                        return self.give_up(&broken.to_string());
                    }
                }
                changed = self.durable.changed(), if self.waits_for_the_disk() => {
                    if changed.is_err() || self.durable.borrow().failed.is_some() {
                        break;
                    }
                }
                () = sleep_until(self.armed) => {
                    if let Err(broken) = self.timer() {
                        return self.give_up(&broken.to_string());
                    }
                }
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
    }

    fn waits_for_the_disk(&self) -> bool {
        !self.waiting.is_empty() || self.state.status().is_terminal()
    }

    /// Whether nothing is left to do: the end is durable, or the ledger has stopped.
    fn has_ended(&self) -> bool {
        let durable = self.durable.borrow();
        durable.ended || durable.failed.is_some()
    }

    fn answered(&mut self, answer: Answer) -> Result<(), Broken> {
        match admit::answer(&self.state, answer) {
            Some(input) => self.take(input),
            None => Ok(()),
        }
    }

    /// Sets the next timer. It counts down monotonically from here: a wall clock that jumps moves
    /// nothing, and after a restart no more is left than there was at first (decision F3).
    fn arm(&mut self) {
        let timer = admit::next_timer(&self.state);
        if self.armed.map(|(until, _)| until) == timer.map(|timer| timer.until) {
            return;
        }
        let now = (self.shared.clock)();
        self.armed = timer.map(|timer| {
            let left = timer.until.millis_since(now).min(timer.span_ms);
            (timer.until, Instant::now() + Duration::from_millis(left))
        });
    }

    fn timer(&mut self) -> Result<(), Broken> {
        let Some((until, _)) = self.armed.take() else {
            return Ok(());
        };
        match admit::timer(&self.state, until) {
            Some(input) => self.take(input),
            None => Ok(()),
        }
    }

    /// The moment an input is taken, never before the one before it (DESIGN 1).
    fn now(&self) -> Timestamp {
        (self.shared.clock)().max(self.state.at())
    }

    fn take(&mut self, input: Draft) -> Result<(), Broken> {
        let at = self.now();
        let turn = turn::take(&self.definition, &mut self.state, input, at, &self.memo)?;
        self.hand_over(turn);
        Ok(())
    }

    /// Hands a turn to the appender, and notes what is to be done once it is durable.
    fn hand_over(&mut self, turn: Turn) {
        self.more = turn.more;
        let last = self.state.next_seq().saturating_sub(1);
        for sealed in &turn.sealed {
            if let Event::Webhook(WebhookEvent::Sent(sent)) = &sealed.frame.event
                && let Some(place) =
                    effects::Place::find(&self.state, &sealed.frame.scope, &sent.step)
            {
                self.waiting.push_back((sealed.record.seq, place));
            }
        }
        let ended = self.state.status().is_terminal();
        let progress = Arc::clone(&self.progress);
        let entry = Entry::from_sealed(turn.sealed);
        let entry = match entry {
            Ok((entry, _)) => match self.index_row() {
                Some(row) => entry.with_index(row),
                None => Ok(entry),
            },
            Err(error) => Err(error),
        };
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return self.failed(&error.to_string()),
        };
        self.shared.appender.submit(
            entry,
            Box::new(move |outcome| {
                progress.send_modify(|progress| match outcome {
                    Ok(_) => {
                        progress.durable = Some(last);
                        progress.ended = ended;
                    }
                    Err(error) => progress.failed = Some(error.to_string()),
                });
            }),
        );
    }

    /// The run's row, where its status has changed: lists need nothing else, and rows cost.
    fn index_row(&mut self) -> Option<IndexRow> {
        let status = self.state.status();
        if self.indexed == Some(status) {
            return None;
        }
        self.indexed = Some(status);
        Some(rows::row(&self.state))
    }

    /// Starts every effect whose announcement is durable.
    fn start_effects(&mut self) {
        let durable = self.durable.borrow_and_update().durable;
        while let Some((seq, place)) = self.waiting.front().copied() {
            if durable < Some(seq) {
                break;
            }
            self.waiting.pop_front();
            effects::start(
                &self.shared,
                &self.state,
                &self.definition,
                place,
                &self.sender,
            );
        }
    }

    fn failed(&self, reason: &str) {
        tracing::error!(
            run = self.state.stream().name(),
            "the run's task stopped: {reason}"
        );
        self.progress
            .send_modify(|progress| progress.failed = Some(reason.to_owned()));
    }

    /// A promise did not hold: the task ends and writes nothing; the process goes on.
    fn give_up(self, reason: &str) {
        self.failed(reason);
    }
}

/// However a task ends, by a panic too, nobody finds its run under way any more.
impl Drop for RunTask {
    fn drop(&mut self) {
        lock(&self.shared.active).remove(self.state.stream().name());
    }
}

/// Sleeps until an armed timer is due; for ever if none is armed.
async fn sleep_until(armed: Option<(Timestamp, Instant)>) {
    match armed {
        None => std::future::pending().await,
        Some((_, due)) => tokio::time::sleep_until(due).await,
    }
}
