//! Supervision of tasks: which runtime works on which task, and when it last reported so (seed 000,
//! invariant 19; decision W3).
//!
//! Heartbeats are not frames: they are kept in memory only. The loss of a task is an input of its
//! run. Time is counted in ticks of this process, so that all workers do not seem dead after the
//! machine slept.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::event::{LostReason, WorkerLost};
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};

use super::run::Message;
use super::runtimes::{Fleet, Instances, MAX_SILENT_TICKS, TaskPlacement, Unavailability};
use super::token::TaskName;
use ktsu_contract::report::{Heartbeat, HeartbeatAck, HeartbeatTask};

/// The length of a tick.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Everything that is with a runtime.
#[derive(Default)]
pub(super) struct Supervisor {
    state: Mutex<SupervisedRuns>,
    /// Notified when a runtime may have a free place.
    freed: Notify,
}

#[derive(Default)]
struct SupervisedRuns {
    now: u64,
    /// By run, so that the end of a run costs the same however many tasks other runs have.
    runs: HashMap<String, HashMap<TaskName, SupervisedTask>>,
    /// The instances that were heard of.
    instances: Instances,
    /// The runtimes that tasks are dispatched to.
    fleet: Fleet,
    /// Runs that are paused.
    paused: HashSet<String>,
}

/// A task, and the instance that works on it.
struct SupervisedTask {
    task: WatchRequest,
    instance: Option<Arc<str>>,
    /// A runtime has this attempt: it said so, or reported about it.
    taken: bool,
    heard: u64,
    reported: bool,
}

/// A task that begins to be watched.
pub(super) struct WatchRequest {
    pub(super) attempt: u32,
    pub(super) scope: String,
    pub(super) step: String,
    pub(super) item: Option<u32>,
    pub(super) mailbox: mpsc::WeakSender<Box<Message>>,
}

impl Supervisor {
    /// Of an engine with these runtimes.
    pub(super) fn new(fleet: Fleet) -> Self {
        let supervisor = Self::default();
        supervisor.state.lock().fleet = fleet;
        supervisor
    }

    /// Watches a task from now on; an earlier attempt of it is forgotten.
    pub(super) fn watch(&self, name: TaskName, task: WatchRequest) {
        let mut watched = self.state.lock();
        let worker = SupervisedTask {
            task,
            instance: None,
            taken: false,
            heard: watched.now,
            reported: false,
        };
        let tasks = watched.runs.entry(name.root().to_owned()).or_default();
        if tasks.insert(name, worker).is_some() {
            self.freed.notify_one();
        }
    }

    /// Returns `true` if an attempt is still watched.
    pub(super) fn is_watched(&self, name: &TaskName, attempt: u32) -> bool {
        let mut watched = self.state.lock();
        let worker = watched.worker(name);
        worker.is_some_and(|worker| worker.task.attempt == attempt)
    }

    /// Returns `true` if an attempt is still to be given to a runtime.
    pub(super) fn awaits_runtime(&self, name: &TaskName, attempt: u32) -> bool {
        let mut watched = self.state.lock();
        let worker = watched.worker(name);
        worker.is_some_and(|worker| worker.task.attempt == attempt && !worker.taken)
    }

    /// A place at a runtime, for a task that was offered to some of them in this round.
    pub(super) fn place(&self, tried: &[bool]) -> TaskPlacement {
        let watched = self.state.lock();
        watched.fleet.place(&watched.instances, tried, watched.now)
    }

    /// An attempt waits for a place, and is not lost meanwhile.
    pub(super) fn waits_for_place(&self, name: &TaskName, attempt: u32) {
        self.contact(name, attempt, |worker, now| worker.heard = now);
    }

    /// Resolves when a runtime may have a free place.
    pub(super) async fn place_freed(&self) {
        self.freed.notified().await;
    }

    /// The runtime of an index took a task. The place of the dispatch is the task's from now on.
    pub(super) fn accepted(
        &self,
        (index, name, attempt): (usize, &TaskName, u32),
        instance: Option<&str>,
        places: Option<u32>,
    ) {
        let mut watched = self.state.lock();
        watched.fleet.accepted(index, instance);
        let now = watched.now;
        let held = instance.map(|id| watched.instances.heard(id, places, now));
        if let Some(held) = held {
            watched.assign(name, attempt, held);
        }
        drop(watched);
        self.record_contact(name, attempt);
    }

    /// The runtime of an index did not take a task.
    pub(super) fn unavailable(&self, index: usize, why: Unavailability) {
        self.state.lock().fleet.unavailable(index, why);
    }

    /// A dispatch is over, whatever came of it: what it does not need any more is free.
    pub(super) fn offer_ended(&self) {
        self.freed.notify_one();
    }

    /// The runtime of an index answered which instance it is.
    pub(super) fn identified(&self, index: usize, instance: &str, places: Option<u32>) {
        let mut watched = self.state.lock();
        let now = watched.now;
        watched.instances.heard(instance, places, now);
        watched.fleet.is_instance(index, instance);
    }

    /// The runtimes whose health is to be asked for before a task chooses one.
    pub(super) fn runtimes_to_ask(&self) -> Vec<usize> {
        self.state.lock().fleet.take_unasked()
    }

    /// A runtime took a task, or reported about it.
    pub(super) fn record_contact(&self, name: &TaskName, attempt: u32) {
        self.contact(name, attempt, |worker, now| {
            worker.heard = now;
            worker.taken = true;
        });
    }

    fn contact(&self, name: &TaskName, attempt: u32, note: impl FnOnce(&mut SupervisedTask, u64)) {
        let mut watched = self.state.lock();
        let now = watched.now;
        if let Some(worker) = watched.worker(name)
            && worker.task.attempt == attempt
        {
            note(worker, now);
        }
    }

    /// Forgets a task that has ended.
    pub(super) fn forget(&self, name: &TaskName) {
        let mut watched = self.state.lock();
        let tasks = watched.runs.get_mut(name.root());
        let had = tasks.and_then(|tasks| tasks.remove(name));
        if had.is_some() {
            self.freed.notify_one();
        }
    }

    /// A run has ended, or its task has.
    pub(super) fn forget_run(&self, run: &str) {
        let mut watched = self.state.lock();
        let had = watched.runs.remove(run);
        watched.paused.remove(run);
        for _ in had.into_iter().flatten() {
            self.freed.notify_one();
        }
    }

    /// Suspends or resumes the deadlines of a run's tasks (decision P1).
    pub(super) fn set_paused(&self, run: &str, paused: bool) {
        let mut watched = self.state.lock();
        if paused {
            watched.paused.insert(run.to_owned());
        } else if watched.paused.remove(run) {
            // The full timeout starts again after a pause.
            let now = watched.now;
            for worker in watched.runs.get_mut(run).into_iter().flatten() {
                worker.1.heard = now;
            }
        }
    }

    /// Records a heartbeat. Returns the tasks that are no longer wanted, and whether it is to be
    /// asked whose instance it is: it is not known to be the one of a URL, and there are several, or
    /// tasks of another instance that it does not name.
    pub(super) fn heartbeat(&self, beat: &Heartbeat) -> (HeartbeatAck, bool) {
        let mut watched = self.state.lock();
        let now = watched.now;
        let held = watched.instances.heard(&beat.runtime_id, beat.places, now);
        let mut heard = HeartbeatAck::default();
        for task in &beat.active {
            let name = name_of(task);
            if watched.paused.contains(name.root()) {
                heard.paused.push(HeartbeatTask::clone(task));
            }
            if !watched.is_worked_on(&name, task.attempt, &held) {
                heard.stop.push(HeartbeatTask::clone(task));
            }
        }
        if watched.fleet.beats(&beat.runtime_id) {
            watched.instance_replaced(beat);
            return (heard, false);
        }
        let mut workers = watched.runs.values().flat_map(HashMap::values);
        let elsewhere = workers.any(|worker| worker.is_with_another_instance(beat));
        (heard, elsewhere || watched.fleet.is_several())
    }

    /// After it was asked whose instance sends a beat: if it is the one of a URL, what the instances
    /// before it had and this one does not name is lost.
    pub(super) fn instance_replaced(&self, beat: &Heartbeat) {
        let mut watched = self.state.lock();
        if watched.fleet.beats(&beat.runtime_id) {
            watched.instance_replaced(beat);
        }
    }

    /// One tick: reports tasks that no heartbeat named for too long as lost. The absence of any
    /// runtime ends a task, so no task of a paused run is lost that way: a runtime may be back when
    /// it resumes.
    pub(super) fn tick(&self) {
        let mut watched = self.state.lock();
        watched.now += 1;
        let now = watched.now;
        let alive = watched.instances.prune(now);
        let SupervisedRuns {
            runs,
            paused,
            instances,
            fleet,
            ..
        } = &mut *watched;
        fleet.prune(instances);
        for (run, workers) in runs {
            let may_lose = alive || !paused.contains(run);
            let silent = |worker: &&mut SupervisedTask| worker.heard + MAX_SILENT_TICKS < now;
            for worker in workers.values_mut().filter(silent).filter(|_| may_lose) {
                worker.report_lost(LostReason::Heartbeat, alive);
            }
        }
    }
}

impl SupervisedRuns {
    /// Notes that an instance works on a task. Returns `false` if it is not to: the task is not
    /// wanted any more, or an instance beside it works on the same attempt.
    fn is_worked_on(&mut self, name: &TaskName, attempt: Option<u32>, held: &Arc<str>) -> bool {
        let now = self.now;
        let Some(worker) = self.worker(name) else {
            return false;
        };
        let current = worker.task.attempt;
        if attempt.is_some_and(|attempt| attempt != current) {
            return false;
        }
        if !self.assign(name, current, Arc::clone(held)) {
            return false;
        }
        if let Some(worker) = self.worker(name) {
            worker.heard = now;
            // Without its number, it may be an earlier attempt.
            worker.taken |= attempt.is_some();
        }
        true
    }

    /// Gives an attempt to an instance, unless one beside it has it.
    fn assign(&mut self, name: &TaskName, attempt: u32, held: Arc<str>) -> bool {
        let now = self.now;
        let Self {
            runs,
            instances,
            fleet,
            ..
        } = self;
        let tasks = runs.get_mut(name.root());
        let worker = tasks.and_then(|tasks| tasks.get_mut(name));
        let Some(worker) = worker.filter(|worker| worker.task.attempt == attempt) else {
            return false;
        };
        let is_with_other = worker.instance.as_ref().is_some_and(|other| {
            instances.is_alive(other, now) && fleet.are_beside_each_other(&held, other)
        });
        if !is_with_other {
            worker.instance = Some(held);
        }
        !is_with_other
    }

    /// The instance of a beat has taken the place of those before it: what they had and it does not
    /// name is lost.
    fn instance_replaced(&mut self, beat: &Heartbeat) {
        let named: HashSet<TaskName> = beat.active.iter().map(name_of).collect();
        let Self { runs, fleet, .. } = self;
        for (name, worker) in runs.values_mut().flatten() {
            if worker.is_with_another_instance(beat)
                && let Some(earlier) = &worker.instance
                && fleet.has_replaced(&beat.runtime_id, earlier)
                && !named.contains(name)
            {
                worker.report_lost(LostReason::Instance, true);
            }
        }
    }

    fn worker(&mut self, name: &TaskName) -> Option<&mut SupervisedTask> {
        self.runs.get_mut(name.root())?.get_mut(name)
    }
}

fn name_of(task: &HeartbeatTask) -> TaskName {
    TaskName {
        run: task.run_id.clone(),
        step: task.step_id.clone(),
    }
}

impl SupervisedTask {
    /// Returns `true` if another instance than that of a beat has the task.
    fn is_with_another_instance(&self, beat: &Heartbeat) -> bool {
        let instance = self.instance.as_ref();
        instance.is_some_and(|instance| **instance != *beat.runtime_id) && !self.reported
    }

    /// Reports a lost task to its run. If the mailbox is full, the next tick tries again.
    fn report_lost(&mut self, reason: LostReason, runtime_alive: bool) {
        if self.reported {
            return;
        }
        let message = Message::Lost {
            scope: self.task.scope.clone(),
            lost: WorkerLost {
                attempt: self.task.attempt,
                item: self.task.item,
                reason,
                runtime_alive,
                step: self.task.step.clone(),
            },
        };
        let mailbox = self.task.mailbox.upgrade();
        let sent = mailbox.map(|mailbox| mailbox.try_send(Box::new(message)));
        self.reported = !matches!(sent, Some(Err(mpsc::error::TrySendError::Full(_))));
        if self.reported {
            self.instance = None;
        }
    }
}

#[cfg(test)]
mod tests;
