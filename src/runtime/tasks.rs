//! The tasks in progress: at most one attempt of each.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::task::AbortHandle;

use super::deadline::PausableDeadline;
use ktsu_contract::report::HeartbeatTask;

/// Run and step.
pub(super) type TaskKey = (String, String);

/// The outcome of a dispatch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StartOutcome {
    /// It is worked on; since now, or since an earlier dispatch of the same attempt.
    Running,
    /// A later attempt is worked on.
    Superseded(u32),
    /// All places are taken; so many there are.
    Busy(u32),
    /// The runtime is stopping.
    Closed,
}

/// See the module documentation.
#[derive(Default)]
pub(super) struct TaskRegistry(Mutex<RegistryState>);

/// The parts of a task that are reached from outside of its work.
#[derive(Clone)]
pub(super) struct TaskHandle {
    /// Its time.
    pub(super) time: PausableDeadline,
    /// It has nothing left to do but to report its end: its place is free.
    pub(super) ending: EndingFlag,
}

/// Set once a task reports its end.
#[derive(Clone, Default)]
pub(super) struct EndingFlag(Arc<AtomicBool>);

impl EndingFlag {
    /// The task reports its end.
    pub(super) fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

impl From<PausableDeadline> for TaskHandle {
    fn from(time: PausableDeadline) -> Self {
        let ending = EndingFlag::default();
        Self { time, ending }
    }
}

#[derive(Default)]
struct RegistryState {
    closed: bool,
    /// Number of tasks at once, at most, if that is bounded.
    places: Option<u32>,
    started: u64,
    active: HashMap<TaskKey, ActiveTask>,
}

struct ActiveTask {
    attempt: u32,
    /// Tells this start from a later one of the same task.
    start: u64,
    shared: TaskHandle,
    /// Absent for the moment between being listed and being spawned.
    handle: Option<AbortHandle>,
}

/// Takes a task off the list when its work ends, however it ends.
struct RegistrationGuard {
    tasks: Arc<TaskRegistry>,
    key: TaskKey,
    start: u64,
}

impl TaskRegistry {
    /// Of a runtime that works on so many tasks at once.
    pub(super) fn with_places(places: Option<u32>) -> Self {
        let registry = Self::default();
        registry.0.lock().places = places;
        registry
    }

    /// Starts the work of an attempt in a task of its own. An earlier attempt is aborted.
    pub(super) fn start(
        self: &Arc<Self>,
        key: TaskKey,
        attempt: u32,
        shared: impl Into<TaskHandle>,
        work: impl Future<Output = ()> + Send + 'static,
    ) -> StartOutcome {
        let start = match self.register(&key, attempt, shared.into()) {
            Ok(start) => start,
            Err(started) => return started,
        };
        let listed = RegistrationGuard {
            tasks: Arc::clone(self),
            key: key.clone(),
            start,
        };
        let mut work = Box::pin(async move {
            work.await;
            drop(listed);
        });
        // Not under the lock: it may end, and take itself off the list, at once. It goes as far as
        // it can here, so that whoever starts it soon has its first report.
        if work.as_mut().now_or_never().is_some() {
            return StartOutcome::Running;
        }
        let handle = tokio::spawn(work).abort_handle();
        match self.0.lock().active.get_mut(&key) {
            Some(active) if active.start == start => active.handle = Some(handle),
            // It has ended, or was stopped in between.
            Some(_) | None => handle.abort(),
        }
        StartOutcome::Running
    }

    fn register(
        &self,
        key: &TaskKey,
        attempt: u32,
        shared: TaskHandle,
    ) -> Result<u64, StartOutcome> {
        let mut state = self.0.lock();
        if state.closed {
            return Err(StartOutcome::Closed);
        }
        match state.active.get(key) {
            Some(active) if active.attempt == attempt => return Err(StartOutcome::Running),
            Some(active) if active.attempt > attempt => {
                return Err(StartOutcome::Superseded(active.attempt));
            }
            Some(_) => {}
            None => state.has_place()?,
        }
        state.started += 1;
        let start = state.started;
        let active = ActiveTask {
            attempt,
            start,
            shared,
            handle: None,
        };
        if let Some(earlier) = state.active.insert(key.clone(), active) {
            earlier.abort();
        }
        Ok(start)
    }

    /// All of them, as a heartbeat names them.
    pub(super) fn active(&self) -> Vec<HeartbeatTask> {
        let state = self.0.lock();
        let tasks = state
            .active
            .iter()
            .map(|((run_id, step_id), active)| HeartbeatTask {
                run_id: run_id.clone(),
                step_id: step_id.clone(),
                attempt: Some(active.attempt),
            });
        tasks.collect()
    }

    /// Aborts a task, unless another attempt of it is meant.
    pub(super) fn abort(&self, task: HeartbeatTask) {
        let mut state = self.0.lock();
        let key = (task.run_id, task.step_id);
        let meant = state
            .active
            .get(&key)
            .is_some_and(|active| task.attempt.is_none_or(|attempt| attempt == active.attempt));
        if meant && let Some(active) = state.active.remove(&key) {
            active.abort();
        }
    }

    /// The time of these stands still, and that of all others goes on.
    pub(super) fn pause_only(&self, paused: &[HeartbeatTask]) {
        let paused: HashSet<(&str, &str)> = paused
            .iter()
            .map(|task| (task.run_id.as_str(), task.step_id.as_str()))
            .collect();
        for ((run, step), active) in &self.0.lock().active {
            match paused.contains(&(run.as_str(), step.as_str())) {
                true => active.shared.time.pause(),
                false => active.shared.time.resume(),
            }
        }
    }

    /// Aborts all and takes no more.
    pub(super) fn close(&self) {
        let mut state = self.0.lock();
        state.closed = true;
        for (_, active) in state.active.drain() {
            active.abort();
        }
    }
}

impl RegistryState {
    /// # Errors
    /// [`StartOutcome::Busy`], if a further task would be one too many.
    fn has_place(&self) -> Result<(), StartOutcome> {
        let Some(places) = self.places else {
            return Ok(());
        };
        let most = usize::try_from(places).unwrap_or(usize::MAX);
        // Counting them is worth it only where there may be too many.
        if self.active.len() < most {
            return Ok(());
        }
        let working = self.active.values().filter(|it| !it.shared.ending.is_set());
        match working.count() < most {
            true => Ok(()),
            false => Err(StartOutcome::Busy(places)),
        }
    }
}

impl ActiveTask {
    fn abort(self) {
        if let Some(handle) = self.handle {
            handle.abort();
        }
    }
}

impl Drop for RegistrationGuard {
    fn drop(&mut self) {
        let mut state = self.tasks.0.lock();
        let own = |active: &ActiveTask| active.start == self.start;
        if state.active.get(&self.key).is_some_and(own) {
            state.active.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use tokio::sync::oneshot;

    use super::*;

    fn key() -> TaskKey {
        ("run_1".to_owned(), "s".to_owned())
    }

    fn hour() -> PausableDeadline {
        PausableDeadline::of(std::time::Duration::from_secs(3600))
    }

    /// Work that never ends, and what tells that it was dropped.
    fn endless() -> (
        impl Future<Output = ()> + Send + 'static,
        oneshot::Receiver<()>,
    ) {
        let (held, dropped) = oneshot::channel();
        let work = async move {
            let _held = held;
            pending::<()>().await;
        };
        (work, dropped)
    }

    #[tokio::test]
    async fn the_same_attempt_again_starts_nothing_and_aborts_nothing() {
        let tasks = Arc::<TaskRegistry>::default();
        let (first, mut first_dropped) = endless();
        let (second, second_dropped) = endless();
        assert_eq!(tasks.start(key(), 2, hour(), first), StartOutcome::Running);
        assert_eq!(tasks.start(key(), 2, hour(), second), StartOutcome::Running);
        assert_eq!(tasks.0.lock().started, 1);
        assert!(second_dropped.await.is_err(), "the second never runs");
        assert!(first_dropped.try_recv() == Err(oneshot::error::TryRecvError::Empty));
        assert_eq!(
            tasks.start(key(), 1, hour(), async {}),
            StartOutcome::Superseded(2)
        );
        assert_eq!(
            tasks.start(key(), 3, hour(), async {}),
            StartOutcome::Running
        );
        assert!(first_dropped.await.is_err(), "a later attempt replaces it");
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_of_a_task_that_is_named_is_suspended_until_it_is_not() {
        let tasks = Arc::<TaskRegistry>::default();
        let (held, other) = (hour(), hour());
        let key_of = |step: &str| ("run_1".to_owned(), step.to_owned());
        tasks.start(key_of("held"), 1, held.clone(), std::future::pending());
        tasks.start(key_of("other"), 1, other.clone(), std::future::pending());
        let started = tokio::time::Instant::now();
        let mut named = tasks.active();
        named.retain(|task| task.step_id == "held");
        tasks.pause_only(&named);
        other.elapsed().await;
        tasks.pause_only(&[]);
        held.elapsed().await;
        assert_eq!(started.elapsed().as_secs(), 2 * 3600);
    }

    #[tokio::test]
    async fn a_task_too_many_is_refused_and_a_later_attempt_of_one_is_not_another() {
        let tasks = Arc::new(TaskRegistry::with_places(Some(1)));
        let start = |step: &str, attempt| {
            let key = ("run_1".to_owned(), step.to_owned());
            tasks.start(key, attempt, hour(), pending())
        };
        assert_eq!(start("a", 1), StartOutcome::Running);
        assert_eq!(start("b", 1), StartOutcome::Busy(1));
        assert_eq!(start("a", 1), StartOutcome::Running);
        assert_eq!(start("a", 2), StartOutcome::Running);
        tasks.abort(tasks.active().remove(0));
        assert_eq!(start("b", 1), StartOutcome::Running);
    }

    #[tokio::test]
    async fn a_task_that_only_reports_its_end_takes_no_place() {
        let tasks = Arc::new(TaskRegistry::with_places(Some(1)));
        let first = TaskHandle::from(hour());
        tasks.start(key(), 1, first.clone(), pending());
        let other = ("run_1".to_owned(), "other".to_owned());
        let busy = tasks.start(other.clone(), 1, hour(), pending());
        assert_eq!(busy, StartOutcome::Busy(1));
        first.ending.set();
        let started = tasks.start(other, 1, hour(), pending());
        assert_eq!(started, StartOutcome::Running);
        assert_eq!(tasks.active().len(), 2, "a heartbeat names both");
    }

    #[tokio::test]
    async fn a_task_is_off_the_list_when_it_ends_and_not_when_its_predecessor_does() {
        let tasks = Arc::<TaskRegistry>::default();
        let (first, first_dropped) = endless();
        let (go, gone) = oneshot::channel::<()>();
        tasks.start(key(), 1, hour(), first);
        tasks.start(key(), 2, hour(), async { drop(gone.await) });
        assert!(first_dropped.await.is_err());
        tokio::task::yield_now().await;
        assert_eq!(tasks.active()[0].attempt, Some(2));
        drop(go);
        while !tasks.active().is_empty() {
            tokio::task::yield_now().await;
        }
    }
}
