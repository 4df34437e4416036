//! Supervision of tasks: which runtime works on which task, and when it last reported so (seed 000,
//! invariant 19; decision W3).
//!
//! Heartbeats are not frames: they are kept in memory only. The loss of a task is an input of its
//! run. Time is counted in ticks of this process, so that all workers do not seem dead after the
//! machine slept.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use ktsu_ledger::event::{LostReason, WorkerLost};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::run::Message;
use super::token::TaskName;
use ktsu_contract::report::{Heartbeat, HeartbeatAck, HeartbeatTask};

/// The length of a tick.
pub(super) const TICK_INTERVAL: Duration = Duration::from_secs(1);

/// Number of ticks that a task may be without a beat that names it.
pub(super) const MAX_SILENT_TICKS: u64 = 15;

/// Everything that is with a runtime.
#[derive(Default)]
pub(super) struct Supervisor(Mutex<SupervisedRuns>);

#[derive(Default)]
struct SupervisedRuns {
    now: u64,
    /// By run, so that the end of a run costs the same however many tasks other runs have.
    runs: HashMap<String, HashMap<TaskName, SupervisedTask>>,
    /// The last tick at which each instance was heard of.
    instances: HashMap<String, u64>,
    /// Runs that are paused.
    paused: HashSet<String>,
}

/// A task, and the instance that works on it.
struct SupervisedTask {
    task: WatchRequest,
    instance: Option<String>,
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
    /// Watches a task from now on; an earlier attempt of it is forgotten.
    pub(super) fn watch(&self, name: TaskName, task: WatchRequest) {
        let mut watched = self.0.lock();
        let worker = SupervisedTask {
            task,
            instance: None,
            heard: watched.now,
            reported: false,
        };
        let tasks = watched.runs.entry(name.root().to_owned()).or_default();
        tasks.insert(name, worker);
    }

    /// Returns `true` if an attempt is still watched.
    pub(super) fn is_watched(&self, name: &TaskName, attempt: u32) -> bool {
        let mut watched = self.0.lock();
        let worker = watched.worker(name);
        worker.is_some_and(|worker| worker.task.attempt == attempt)
    }

    /// A runtime took a task, or reported about it.
    pub(super) fn record_contact(&self, name: &TaskName, attempt: u32, instance: Option<String>) {
        let mut watched = self.0.lock();
        let now = watched.now;
        if let Some(instance) = &instance {
            watched.instances.insert(instance.clone(), now);
        }
        if let Some(worker) = watched.worker(name)
            && worker.task.attempt == attempt
        {
            worker.heard = now;
            if instance.is_some() {
                worker.instance = instance;
            }
        }
    }

    /// Forgets a task that has ended.
    pub(super) fn forget(&self, name: &TaskName) {
        if let Some(tasks) = self.0.lock().runs.get_mut(name.root()) {
            tasks.remove(name);
        }
    }

    /// A run has ended, or its task has.
    pub(super) fn forget_run(&self, run: &str) {
        let mut watched = self.0.lock();
        watched.runs.remove(run);
        watched.paused.remove(run);
    }

    /// Suspends or resumes the deadlines of a run's tasks (decision P1).
    pub(super) fn set_paused(&self, run: &str, paused: bool) {
        let mut watched = self.0.lock();
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

    /// Records a heartbeat. Returns the tasks that are no longer wanted, and whether there are
    /// tasks of another instance that it does not name: see [`Supervisor::instance_replaced`].
    pub(super) fn heartbeat(&self, beat: &Heartbeat) -> (HeartbeatAck, bool) {
        let mut heard = HeartbeatAck::default();
        let mut watched = self.0.lock();
        let now = watched.now;
        watched.instances.insert(beat.runtime_id.clone(), now);
        for task in &beat.active {
            let name = name_of(task);
            if watched.paused.contains(name.root()) {
                heard.paused.push(HeartbeatTask::clone(task));
            }
            match watched.worker(&name) {
                Some(worker)
                    if task
                        .attempt
                        .is_none_or(|attempt| attempt == worker.task.attempt) =>
                {
                    worker.heard = now;
                    worker.instance = Some(beat.runtime_id.clone());
                }
                _ => heard.stop.push(HeartbeatTask::clone(task)),
            }
        }
        let mut workers = watched.runs.values().flat_map(HashMap::values);
        let elsewhere = workers.any(|worker| worker.is_with_another_instance(beat));
        (heard, elsewhere)
    }

    /// The instance of a beat has taken the place of the one before it: what that one had and this
    /// one does not name is lost.
    pub(super) fn instance_replaced(&self, beat: &Heartbeat) {
        let named: HashSet<TaskName> = beat.active.iter().map(name_of).collect();
        for (name, worker) in self.0.lock().runs.values_mut().flatten() {
            if worker.is_with_another_instance(beat) && !named.contains(name) {
                worker.report_lost(LostReason::Instance, true);
            }
        }
    }

    /// One tick: reports tasks that no heartbeat named for too long as lost. The absence of any
    /// runtime ends a task, so no task of a paused run is lost that way: a runtime may be back when
    /// it resumes.
    pub(super) fn tick(&self) {
        let mut watched = self.0.lock();
        watched.now += 1;
        let now = watched.now;
        watched
            .instances
            .retain(|_, heard| *heard + MAX_SILENT_TICKS >= now);
        let alive = !watched.instances.is_empty();
        let SupervisedRuns { runs, paused, .. } = &mut *watched;
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
        instance.is_some_and(|instance| *instance != beat.runtime_id) && !self.reported
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
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Lab {
        supervisor: Supervisor,
        sender: mpsc::Sender<Box<Message>>,
        mailbox: mpsc::Receiver<Box<Message>>,
    }

    impl Lab {
        fn new() -> Self {
            let (sender, mailbox) = mpsc::channel(8);
            Self {
                supervisor: Supervisor::default(),
                sender,
                mailbox,
            }
        }

        fn watch(&self, step: &str) -> TaskName {
            let name = TaskName {
                run: "run_1".to_owned(),
                step: step.to_owned(),
            };
            let task = WatchRequest {
                attempt: 1,
                scope: String::new(),
                step: step.to_owned(),
                item: None,
                mailbox: self.sender.downgrade(),
            };
            self.supervisor.watch(name.clone(), task);
            name
        }

        fn beat(&self, instance: &str, steps: &[&str]) -> Vec<String> {
            let task = |step: &&str| HeartbeatTask {
                run_id: "run_1".to_owned(),
                step_id: (*step).to_owned(),
                attempt: Some(1),
            };
            let beat = Heartbeat {
                runtime_id: instance.to_owned(),
                active: steps.iter().map(task).collect(),
            };
            let (heard, elsewhere) = self.supervisor.heartbeat(&beat);
            if elsewhere {
                self.supervisor.instance_replaced(&beat);
            }
            heard.stop.into_iter().map(|task| task.step_id).collect()
        }

        fn tick(&self, times: u64) {
            (0..times).for_each(|_| self.supervisor.tick());
        }

        fn lost(&mut self) -> Vec<(String, LostReason, bool)> {
            let mut lost = Vec::new();
            while let Ok(message) = self.mailbox.try_recv() {
                if let Message::Lost { lost: one, .. } = *message {
                    lost.push((one.step, one.reason, one.runtime_alive));
                }
            }
            lost
        }
    }

    #[test]
    fn a_task_is_lost_after_fifteen_ticks_without_a_beat_that_names_it() {
        let mut lab = Lab::new();
        lab.watch("a");
        lab.watch("b");
        lab.tick(10);
        assert!(lab.beat("rt", &["b"]).is_empty());
        lab.tick(5);
        assert_eq!(lab.lost(), []);
        lab.tick(1);
        assert_eq!(lab.lost(), [("a".to_owned(), LostReason::Heartbeat, true)]);
        lab.tick(MAX_SILENT_TICKS);
        assert_eq!(lab.lost(), [("b".to_owned(), LostReason::Heartbeat, false)]);
    }

    #[test]
    fn a_new_instance_that_does_not_name_what_the_old_one_had_lost_it_at_once() {
        let mut lab = Lab::new();
        lab.watch("a");
        lab.watch("b");
        let fresh = lab.watch("c");
        lab.beat("one", &["a", "b"]);
        lab.beat("two", &["b"]);
        assert_eq!(lab.lost(), [("a".to_owned(), LostReason::Instance, true)]);
        lab.supervisor
            .record_contact(&fresh, 1, Some("two".to_owned()));
        lab.beat("two", &["b"]);
        assert_eq!(lab.lost(), []);
    }

    #[test]
    fn a_runtime_hears_what_no_one_waits_for() {
        let lab = Lab::new();
        let name = lab.watch("a");
        assert_eq!(lab.beat("rt", &["a", "gone"]), ["gone"]);
        lab.supervisor.forget(&name);
        assert_eq!(lab.beat("rt", &["a"]), ["a"]);
        lab.watch("a");
        lab.supervisor.forget_run("run_1");
        assert_eq!(lab.beat("rt", &["a"]), ["a"]);
    }

    #[test]
    fn nothing_of_a_paused_run_is_given_up_because_no_runtime_is_there() {
        let mut lab = Lab::new();
        lab.watch("a");
        lab.supervisor.set_paused("run_1", true);
        lab.tick(3 * MAX_SILENT_TICKS);
        assert!(lab.mailbox.try_recv().is_err());
        lab.supervisor.set_paused("run_1", false);
        lab.tick(MAX_SILENT_TICKS);
        assert!(lab.mailbox.try_recv().is_err(), "it has time to come back");
        lab.tick(1);
        assert!(lab.mailbox.try_recv().is_ok());
    }

    #[test]
    fn a_runtime_learns_which_of_its_tasks_are_suspended_until_their_run_continues() {
        let lab = Lab::new();
        lab.watch("a");
        let still = || {
            let task = HeartbeatTask {
                run_id: "run_1".to_owned(),
                step_id: "a".to_owned(),
                attempt: Some(1),
            };
            let beat = Heartbeat {
                runtime_id: "rt".to_owned(),
                active: vec![task],
            };
            lab.supervisor.heartbeat(&beat).0.paused.len()
        };
        assert_eq!(still(), 0);
        lab.supervisor.set_paused("run_1", true);
        assert_eq!(still(), 1);
        lab.supervisor.set_paused("run_1", false);
        assert_eq!(still(), 0);
        lab.supervisor.set_paused("run_1", true);
        lab.supervisor.forget_run("run_1");
        assert_eq!(still(), 0);
    }

    #[test]
    fn a_full_mailbox_is_tried_again_at_the_next_tick() {
        let mut lab = Lab::new();
        for step in ["a", "b", "c", "d", "e", "f", "g", "h", "i"] {
            lab.watch(step);
        }
        lab.tick(MAX_SILENT_TICKS + 1);
        assert_eq!(lab.lost().len(), 8);
        lab.tick(1);
        assert_eq!(lab.lost().len(), 1);
    }
}
