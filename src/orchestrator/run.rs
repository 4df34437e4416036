//! The task that owns a run: its state, its tail, its timers.
//!
//! Memory runs ahead of the disk: a turn is decided and sent to the appender, and the next may be
//! decided before it is durable. Everything that leaves the process waits until the frames it
//! depends on are durable: effects start, and followers are notified, at the watermark. Turns that
//! are decided one after another, because their inputs are there, go to the appender together.

mod drain;
mod effects;
mod envelope;
mod messages;
mod recovery;
mod unsent;

pub use envelope::AwaitedEnvelope;
pub(crate) use envelope::EnvelopeForCaller;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ktsu_contract::report::ReportAck;
use ktsu_ledger::event::{AgentEvent, ContinueReason, RecomputeCompared, RunEvent, WorkerLost};
use ktsu_ledger::{Draft, Event, Timestamp};
use ktsu_projections::run::RunState;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::Shared;
use super::blocking;
use super::clock::{CLOCK_LOOK_INTERVAL, ClockReading};
use super::human_commands::{CommandReply, HumanCommand};
use super::registry::RunHandle;
use super::reports;
use super::tools::{BuiltinCall, BuiltinCaller};
use ktsu_telemetry::RunObserver;
use ktsu_workflow::admit::{self, WebhookOutcome};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::next::Memo;
use ktsu_workflow::timers;
use ktsu_workflow::turn::{self, InvariantViolation, Turn};
use unsent::{IndexFingerprint, UnsentTurns};

/// The mailbox size. Senders wait for space, so that a burst of answers is not held twice. Messages
/// are boxed because a channel allocates space for thirty-two of them at once: some kilobytes for
/// every waiting run.
const MAX_MAILBOX_MESSAGES: usize = 64;

/// The most bytes that are decided before they go to the appender, whatever else waits to be
/// decided.
const MAX_UNSENT_BYTES: usize = 256 * 1024;

/// A message to a run.
#[derive(Debug)]
pub(super) enum Message {
    /// A webhook was answered.
    Answer(WebhookOutcome),
    /// A runtime reports about a task.
    Report(ReportMessage),
    /// A person wants something of the run.
    Command {
        /// The command.
        command: HumanCommand,
        /// The last frame the person knows of.
        expected: Option<u64>,
        /// The channel for the outcome.
        reply: CommandReply,
    },
    /// A runtime calls a tool server that comes with ktsu: which call is that?
    BuiltinCall {
        /// The task that calls, and the server.
        caller: BuiltinCaller,
        /// The idempotency key.
        key: String,
        /// The channel for the call.
        reply: oneshot::Sender<Option<BuiltinCall>>,
    },
    /// A runtime lists the tools of commands: which steps may its step be resumed to?
    ResumeSteps {
        /// Whose task.
        task: super::reports::TaskAddress,
        /// The channel for their names.
        reply: oneshot::Sender<Vec<String>>,
    },
    /// A task's worker is lost.
    Lost {
        /// The scope's path.
        scope: String,
        /// The lost worker.
        lost: WorkerLost,
    },
    /// A recompute is compared with its run.
    Compared(RecomputeCompared),
}

/// The outcome of a report.
#[derive(Debug)]
pub(super) enum ReportOutcome {
    /// Accepted, and on its way to the ledger.
    New {
        /// The last of its frames and of the decisions about its task that followed.
        last: u64,
        /// The recorded part of it.
        ack: Box<ReportAck>,
    },
    /// It was taken before, as these frames.
    Again {
        /// The first.
        first: u64,
        /// The last.
        last: u64,
    },
    /// The task is not waiting for it.
    Stale,
    /// It does not follow from earlier reports.
    Malformed(String),
}

/// The origin of a report, which decides what its answer says, and when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReportOrigin {
    /// A socket: the answer comes once the report is durable, and lists what is recorded of it.
    Socket,
    /// A runtime of this process, which ends with it. The answer waits for the disk only where what
    /// follows leaves the process: a call of a model or a tool. What was reported before such a call
    /// is durable by then, too, as it stands before it in the run's stream. The answer to a report
    /// that ends its task lists nothing, since nobody goes on with it.
    Process,
}

/// A report of a runtime.
#[derive(Debug)]
pub(super) struct ReportMessage {
    /// The scope's path.
    pub(super) scope: String,
    /// Its events.
    pub(super) events: Vec<AgentEvent>,
    /// Its origin, which decides which events the answer lists.
    pub(super) origin: ReportOrigin,
    /// The channel for the outcome.
    pub(super) reply: oneshot::Sender<ReportOutcome>,
}

/// The progress of a run, as others may know it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Progress {
    /// The last durable frame.
    pub durable: Option<u64>,
    /// True if the run has ended and all of it is durable.
    pub ended: bool,
    /// The reason why the run's task stopped before the end.
    pub failed: Option<String>,
    /// True if the engine is draining and none of the run's effects is in flight any more.
    pub drained: bool,
}

/// The point at which the last turn of a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum TurnEnd {
    /// At the point where nothing is left to decide without another input.
    Complete,
    /// At the bound of every turn, which the run records.
    RecordedBound,
    /// At the bound of the run's first turn, which is smaller and not recorded.
    UnrecordedBound,
}

/// See the module documentation.
pub(super) struct RunTask {
    shared: Arc<Shared>,
    definition: Arc<Definition>,
    state: RunState,
    memo: Memo,
    mailbox: mpsc::Receiver<Box<Message>>,
    sender: mpsc::Sender<Box<Message>>,
    progress: Arc<watch::Sender<Progress>>,
    durable: watch::Receiver<Progress>,
    /// The decided turns that are not yet with the appender.
    unsent: UnsentTurns,
    /// Effects due up to this frame have started.
    effects_begun_up_to: u64,
    /// The announcements of later effects that have started nevertheless.
    begun_early: BTreeSet<u64>,
    /// The last frame of an earlier process; 0 if there was none.
    inherited: u64,
    /// Reports that wait for the budget to allow their model calls (decision F4), for the reply to an
    /// identical request, or for a paused run to continue (decision P1).
    held: VecDeque<ReportMessage>,
    /// Answers that depend on what the next start decides, as runtimes wait for them.
    unanswered: Vec<oneshot::Sender<ReportOutcome>>,
    /// Webhooks on their way.
    webhooks: Vec<AbortHandle>,
    indexed: Option<IndexFingerprint>,
    last_turn: TurnEnd,
    /// True if a runtime of this process is about to report again.
    report_is_due: bool,
    /// The timer that is set: what it is for by the wall clock, and when it fires.
    armed: Option<(Timestamp, Instant)>,
    /// The clock reading when the run last read it.
    observed: ClockReading,
    /// Logs and counts durable frames.
    observer: RunObserver,
    /// True if the caller is answered before the run continues.
    replies_first: bool,
    /// The caller who waits for the end, if one does.
    awaited: Option<EnvelopeForCaller>,
}

impl RunTask {
    /// A task that is not started, and its public view. `observed` is the clock reading of the
    /// state's last frame, or of the moment it was read.
    pub(super) fn new(
        shared: &Arc<Shared>,
        definition: Arc<Definition>,
        state: RunState,
        memo: Memo,
        observed: ClockReading,
    ) -> (Self, watch::Receiver<Progress>) {
        let (sender, mailbox) = mpsc::channel(MAX_MAILBOX_MESSAGES);
        let (progress, durable) = watch::channel(Progress::default());
        let task = Self {
            shared: Arc::clone(shared),
            observer: RunObserver::new(&shared.telemetry, &state),
            definition,
            state,
            memo,
            mailbox,
            sender,
            progress: Arc::new(progress),
            durable: durable.clone(),
            unsent: UnsentTurns::default(),
            effects_begun_up_to: 0,
            begun_early: BTreeSet::new(),
            inherited: 0,
            held: VecDeque::new(),
            unanswered: Vec::new(),
            webhooks: Vec::new(),
            indexed: None,
            last_turn: TurnEnd::Complete,
            report_is_due: false,
            armed: None,
            observed,
            replies_first: false,
            awaited: None,
        };
        (task, durable)
    }

    /// Shows the end to a caller, too.
    pub(super) fn show_end(&mut self, caller: EnvelopeForCaller) {
        self.awaited = Some(caller);
    }

    /// Submits the first turn and spawns the task. Returns the number of the turn's last frame.
    pub(super) fn start(mut self, first: Turn) -> u64 {
        let last = first.sealed.last().map_or(0, |sealed| sealed.record.seq);
        self.replies_first = self.awaited.is_none();
        let is_cut = first.more;
        self.register();
        self.submit_turn(first);
        if is_cut {
            self.last_turn = TurnEnd::UnrecordedBound;
        }
        tokio::spawn(self.live());
        last
    }

    /// Spawns the task for a recorded run: because it is unfinished, or because of a message.
    pub(super) fn resume(mut self, message: Option<Message>) {
        self.indexed = Some(self.index_fingerprint());
        self.observer.restore(&self.state);
        let last = self.state.next_seq().saturating_sub(1);
        self.inherited = last;
        self.progress
            .send_modify(|progress| progress.durable = Some(last));
        self.register();
        let recovered = match message {
            Some(message) => self.recover_with(message),
            None => self.recover(),
        };
        if let Err(broken) = recovered {
            return self.give_up(&broken.to_string());
        }
        tokio::spawn(self.live());
    }

    fn register(&self) {
        let handle = RunHandle {
            progress: self.durable.clone(),
            mailbox: self.sender.downgrade(),
        };
        self.shared
            .runs
            .register(self.state.stream().name(), handle);
    }

    async fn live(mut self) {
        let mut stop = self.shared.runs.stopping();
        let mut drain = self.shared.runs.draining();
        loop {
            let draining = *drain.borrow_and_update();
            if let Some(awaited) = draining {
                return self.drain(awaited, stop).await;
            }
            self.begin_effects();
            if let Err(broken) = self.take_waiting() {
                return self.give_up(&broken.to_string());
            }
            if self.shared.runs.is_draining() {
                continue;
            }
            // After the messages: what became durable meanwhile is not announced again.
            if self.has_ended() {
                break;
            }
            if std::mem::take(&mut self.report_is_due) {
                // It goes to the appender together with what it follows.
                tokio::task::yield_now().await;
                continue;
            }
            self.send();
            let is_cut = self.last_turn != TurnEnd::Complete;
            if is_cut && self.mailbox.is_empty() && !self.holds_for_reply() {
                // Yields to other runs first.
                tokio::task::yield_now().await;
                if self.mailbox.is_empty() {
                    // A world that never rests ends with its time, too.
                    let now = self.now();
                    let is_recorded = self.last_turn == TurnEnd::RecordedBound;
                    let used_up = timers::world_time_up(&self.state, now).filter(|_| is_recorded);
                    let bound = || turn::continuation(&self.state, ContinueReason::Bound);
                    let input = used_up.unwrap_or_else(bound);
                    if let Err(broken) = self.handle_message(input) {
                        return self.give_up(&broken.to_string());
                    }
                }
                continue;
            }
            if !is_cut && self.state.worlds_are_idle() && self.mailbox.is_empty() {
                // What comes meanwhile is before the end, or takes the run up again.
                tokio::task::yield_now().await;
                if self.mailbox.is_empty() {
                    let input = turn::continuation(&self.state, ContinueReason::Idle);
                    if let Err(broken) = self.handle_message(input) {
                        return self.give_up(&broken.to_string());
                    }
                }
                continue;
            }
            if !is_cut {
                self.memo.clear();
            }
            self.arm();
            tokio::select! {
                Some(message) = self.mailbox.recv() => {
                    // Effects of what was durable before the message had started by then.
                    self.begin_effects();
                    if let Err(broken) = self.take_message(*message) {
                        return self.give_up(&broken.to_string());
                    }
                }
                changed = self.durable.changed(), if self.waits_for_commit() => {
                    if changed.is_err() || self.durable.borrow().failed.is_some() {
                        break;
                    }
                }
                () = sleep_until(self.armed) => {
                    let whole = self.continue_first_turn();
                    let taken = whole.and_then(|()| self.observe_clock());
                    if let Err(broken) = taken.and_then(|()| self.timer()) {
                        return self.give_up(&broken.to_string());
                    }
                }
                _ = drain.changed() => {}
                _ = stop.wait_for(|stop| *stop) => break,
            }
        }
    }

    /// Takes the messages that wait, and those that come meanwhile: as many as the mailbox holds, so
    /// that a flood of them does not keep the run from its timers.
    fn take_waiting(&mut self) -> Result<(), InvariantViolation> {
        for _ in 0..MAX_MAILBOX_MESSAGES {
            if self.unsent.bytes >= MAX_UNSENT_BYTES {
                break;
            }
            let Ok(message) = self.mailbox.try_recv() else {
                break;
            };
            // Effects of what was durable before the message had started by then.
            self.begin_effects();
            self.take_message(*message)?;
        }
        Ok(())
    }

    fn waits_for_commit(&self) -> bool {
        let settled = self.is_at_rest() || self.state.status().is_terminal();
        let mut announced = self.state.announced(self.effects_begun_up_to + 1..);
        let announced = announced.any(|(seq, _)| !self.begun_early.contains(&seq));
        settled || announced || self.observer.is_urgent() || self.holds_for_reply()
    }

    /// Returns `true` if the run continues only once its first turn is durable: its caller waits
    /// for that, and for nothing else.
    fn holds_for_reply(&self) -> bool {
        let is_cut = self.last_turn != TurnEnd::Complete;
        is_cut && self.replies_first && self.durable.borrow().durable.is_none()
    }

    /// Returns `true` if only a person can move the run.
    fn is_at_rest(&self) -> bool {
        self.state.is_over() || self.state.is_parked()
    }

    /// Returns `true` if nothing is left to do: the end is durable, or the ledger has stopped.
    fn has_ended(&self) -> bool {
        let durable = self.durable.borrow();
        let last = self.state.next_seq().saturating_sub(1);
        let done = self.is_at_rest() && durable.durable >= Some(last) && self.mailbox.is_empty();
        done || durable.failed.is_some()
    }

    /// Arms the next timer. It counts down monotonically in the run's own time: a wall clock that
    /// jumps moves nothing, and a restart does not extend the wait (decision F3).
    fn arm(&mut self) {
        let timer = timers::next(&self.state);
        if self.armed.map(|(until, _)| until) == timer.map(|timer| timer.until) {
            return;
        }
        let now = self.observed.time(&self.shared.clock);
        self.armed = timer.map(|timer| {
            let left = timer.until.millis_since(now).min(timer.span_ms);
            (timer.until, Instant::now() + Duration::from_millis(left))
        });
    }

    /// Records that the wall clock went forward by more than the time that passed, if any deadline
    /// depends on it: every pending one moves by as much (decision F3). Soon after another it is left
    /// for later, and the run goes by its own time until then.
    fn observe_clock(&mut self) -> Result<(), InvariantViolation> {
        let Some(by_ms) = self.observed.jumped(&self.shared.clock) else {
            return Ok(());
        };
        match admit::jumped(&self.state, self.observed.clock, by_ms) {
            Some(_) if !self.observed.may_record() => Ok(()),
            Some(input) => {
                self.observed.record();
                self.handle_message_at(input, self.observed.clock)
            }
            None => {
                self.observed.record_clock_jumps();
                Ok(())
            }
        }
    }

    /// Handles an expired timer, unless it was only a check of the clock. The frame's time is never
    /// before the due time, so that a recorded timeout is never early.
    fn timer(&mut self) -> Result<(), InvariantViolation> {
        let run_down = |(_, due): &(Timestamp, Instant)| *due <= Instant::now();
        let Some((until, _)) = self.armed.take_if(|armed| run_down(armed)) else {
            return Ok(());
        };
        let before = self.spend_if_held();
        if let Some(input) = timers::due(&self.state, until) {
            let now = self.now().max(until);
            self.handle_message_at(input, now)?;
        }
        self.release_held_reports(before)
    }

    /// The moment an input is taken, by the run's own time and never before the one before it
    /// (DESIGN 1).
    fn now(&mut self) -> Timestamp {
        let time = self.observed.time(&self.shared.clock);
        time.max(self.state.at())
    }

    fn handle_message(&mut self, input: Draft) -> Result<(), InvariantViolation> {
        let now = self.now();
        self.handle_message_at(input, now)
    }

    /// Takes an input at the clock reading it was validated with.
    fn handle_message_at(&mut self, input: Draft, at: Timestamp) -> Result<(), InvariantViolation> {
        let turn = self.decide(vec![input], at)?;
        self.submit_turn(turn);
        Ok(())
    }

    /// Takes a report, and says what is recorded of it.
    fn take_report(
        &mut self,
        input: Vec<Draft>,
        origin: ReportOrigin,
    ) -> Result<ReportOutcome, InvariantViolation> {
        let now = self.now();
        let turn = self.decide(input, now)?;
        let outcome = reports::outcome(&turn.sealed, origin);
        self.submit_turn(turn);
        Ok(outcome)
    }

    /// While the engine drains, an input is recorded, and what follows from it is left to the next
    /// start: a step might. Ending a run starts nothing.
    fn decide(&mut self, input: Vec<Draft>, at: Timestamp) -> Result<Turn, InvariantViolation> {
        let (definition, state, memo) = (&self.definition, &mut self.state, &self.memo);
        self.awaited.take_if(|caller| caller.is_abandoned());
        let awaited = &mut self.awaited;
        if self.shared.runs.is_draining() && !ends_run(&input) && state.stopped().is_none() {
            return match awaited {
                Some(caller) => turn::record_input(&mut caller.noting(state), input, at, memo),
                None => turn::record_input(state, input, at, memo),
            };
        }
        blocking::block_if(definition.checks_may_grow(), || match awaited {
            Some(caller) => {
                turn::apply_report(definition, &mut caller.noting(state), input, at, memo)
            }
            None => turn::apply_report(definition, state, input, at, memo),
        })
    }

    /// Puts a turn with what is to be appended, and starts what need not wait for that.
    fn submit_turn(&mut self, turn: Turn) {
        self.last_turn = match turn.more {
            true => TurnEnd::RecordedBound,
            false => TurnEnd::Complete,
        };
        self.forget_tasks(&turn);
        let frames = turn.sealed.iter().map(|sealed| &sealed.frame);
        self.observer.note(frames, &self.state);
        let first = turn.sealed.first().map(|sealed| sealed.record.seq);
        self.add_unsent(turn.sealed);
        if let Some(first) = first {
            self.begin_effects_early(first);
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

    /// Ends the task after a violated invariant, without writing what violates it; the process
    /// continues.
    fn give_up(mut self, reason: &str) {
        self.send();
        self.failed(reason);
    }
}

/// Returns `true` if a person ends the run.
fn ends_run(input: &[Draft]) -> bool {
    let ends = |draft: &Draft| {
        matches!(
            draft.event,
            Event::Run(RunEvent::Cancelled(_) | RunEvent::Terminated(_))
        )
    };
    input.iter().any(ends)
}

/// However a task ends, even by a panic, its run must no longer count as active.
impl Drop for RunTask {
    fn drop(&mut self) {
        let run = self.state.stream().name();
        self.shared.runs.remove(run);
        self.shared.supervisor.forget_run(run);
    }
}

/// Sleeps until an armed timer is due, or until it is time to look at the clock again; for ever if
/// none is armed.
async fn sleep_until(armed: Option<(Timestamp, Instant)>) {
    match armed {
        None => std::future::pending().await,
        Some((_, due)) => {
            let look = Instant::now() + CLOCK_LOOK_INTERVAL;
            tokio::time::sleep_until(due.min(look)).await;
        }
    }
}
