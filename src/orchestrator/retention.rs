//! Retention: removes the runs that ended longer ago than the environment says, and keeps those
//! under legal hold.
//!
//! ```text
//! every SWEEP_INTERVAL ─▶ rows of ended runs, a page at a time ─▶ Families::due
//!     ─▶ plan, off the appender's thread ─▶ run.removed + deletion, one transaction ─▶ pause
//! ```
//!
//! One turn removes a few runs and then pauses for several times as long as it took, so few requests
//! meet one, and they wait for one short transaction at most. Nothing is remembered between sweeps that a restart would lose: what
//! is due follows from the rows, the holds and the time.

mod clock_gap;

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ktsu_ledger::StreamId;
use ktsu_ledger::event::{
    EvalEvent, HoldLifted, HoldPlaced, Principal, RETENTION, RecomputeEvent, StoreEvent,
};
use ktsu_ledger::removal::{PlanRemovalError, PlannedRemoval, ReferenceCounts};
use ktsu_ledger::store::{Cursor, Filter, Reader, StoreError};
use ktsu_ledger::{Cause, Event, Timestamp};
use ktsu_projections::index::RunRow;
use ktsu_projections::retention::{EndedRun, Families, Holds, RetentionLimits};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Orchestrator, Shared};
use ktsu_evidence::facts;
use ktsu_evidence::store_stream::StoreStream;
use ktsu_run_index as rows;

/// The time between two searches for due runs.
const SWEEP_INTERVAL: Duration = Duration::from_mins(10);

/// The time until due runs are searched for again if the ledger could not be read: another process
/// may have been recovering its log.
const RETRY: Duration = Duration::from_secs(10);
/// Number of rows that are looked at at a time.
const ROWS: usize = 500;
/// Number of frames that are read at a time to learn which blobs they name.
const SCANNED_FRAMES: usize = 500;
/// A turn removes no further run once it has this many frames: some two milliseconds.
const MAX_FRAMES_PER_TURN: u64 = 64;
/// The most runs a turn removes.
const MAX_RUNS_PER_TURN: usize = 16;
/// The pause after a turn, in times of what it took: fewer than one request in ten meets a turn.
const PAUSE_FACTOR: u32 = 9;
/// The longest pause: a turn that takes long waited for something else.
const MAX_PAUSE: Duration = Duration::from_millis(200);

/// The parts that retention works with.
pub struct RetentionParts {
    /// The limits up to which ended runs are kept.
    pub limits: RetentionLimits,
    /// The stream in which removals and holds are recorded.
    pub store: Arc<StoreStream>,
}

/// The state of retention.
pub(super) struct Retention {
    limits: RetentionLimits,
    store: Arc<StoreStream>,
    /// Held while a hold is recorded and while runs are removed, so that a run is not removed while
    /// somebody places a hold on it. Empty until the recorded holds are read.
    holds: tokio::sync::Mutex<Option<Holds>>,
    /// Held during a sweep.
    references: tokio::sync::Mutex<Arc<Mutex<ReferenceCounts>>>,
    /// Until when nothing is removed, since the clock may be wrong; set by the start.
    postponed: OnceLock<Postponed>,
}

/// Removals wait, by the monotonic clock.
struct Postponed {
    until: Instant,
    why: String,
}

impl Retention {
    pub(super) fn new(parts: RetentionParts) -> Self {
        Self {
            limits: parts.limits,
            store: parts.store,
            holds: tokio::sync::Mutex::default(),
            references: tokio::sync::Mutex::default(),
            postponed: OnceLock::new(),
        }
    }

    /// The reason why nothing is removed at the moment, although runs may be due.
    fn postponed(&self) -> Option<&Postponed> {
        let postponed = self.postponed.get();
        postponed.filter(|postponed| Instant::now() < postponed.until)
    }
}

/// The receipt for a hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldReceipt {
    /// The number of the frame of `store` that records it.
    pub seq: u64,
}

/// The reason why no hold was placed or lifted. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HoldError {
    /// The run is held already.
    #[error("the run is under hold already")]
    AlreadyHeld,
    /// The run is not held.
    #[error("the run is not under hold")]
    NotHeld,
    /// The run was removed meanwhile.
    #[error("the run was removed")]
    Removed,
    /// The disk is nearly full.
    #[error("the disk is nearly full, so nothing is recorded")]
    DiskFull,
    /// The ledger cannot be read or written.
    #[error("{0}")]
    Ledger(String),
}

impl Orchestrator {
    /// Places a run under legal hold, or lifts the hold; returns once that is durable.
    ///
    /// # Errors
    /// [`HoldError`].
    pub async fn hold(
        &self,
        run: &StreamId,
        by: Principal,
        reason: &str,
        release: bool,
    ) -> Result<HoldReceipt, HoldError> {
        let shared = &self.shared;
        if shared.appender.low_on_disk() {
            return Err(HoldError::DiskFull);
        }
        let reason = shared.secrets.redactor().redact_text(reason);
        let ledger = |error: StoreError| HoldError::Ledger(error.to_string());
        let mut known = shared.retention.holds.lock().await;
        let mut holds = match known.take() {
            Some(holds) => holds,
            None => read_holds(shared).await.map_err(ledger)?,
        };
        let stream = run.clone();
        let is_recorded = move |reader: &dyn Reader| Ok(reader.tail(&stream)?.is_some());
        let is_recorded = shared.readers.with(is_recorded).await.map_err(ledger)?;
        let outcome = match (release, holds.contains(run)) {
            _ if !is_recorded => Err(HoldError::Removed),
            (false, true) => Err(HoldError::AlreadyHeld),
            (true, false) => Err(HoldError::NotHeld),
            (true, true) => Ok(StoreEvent::HoldLifted(HoldLifted {
                by,
                reason,
                stream: run.clone(),
            })),
            (false, false) => Ok(StoreEvent::HoldPlaced(HoldPlaced {
                by,
                reason,
                stream: run.clone(),
            })),
        };
        let appended = match outcome {
            Ok(event) => {
                let appended = append(shared, event.clone()).await;
                if appended.is_ok() {
                    holds.apply(&event);
                }
                appended.map_err(HoldError::Ledger)
            }
            Err(refused) => Err(refused),
        };
        *known = Some(holds);
        appended.map(|seq| HoldReceipt { seq })
    }

    /// The reason why no run is removed at the moment, although some may be due.
    pub fn postponed_removals(&self) -> Option<String> {
        let postponed = self.shared.retention.postponed()?;
        let left = postponed.until.saturating_duration_since(Instant::now());
        let hours = left.as_secs().div_ceil(3600);
        Some(format!("{}; {hours} h are left", postponed.why))
    }

    /// Removes every run that is due, and returns how many were.
    ///
    /// # Errors
    /// Why it stopped: the ledger cannot be read or written.
    pub async fn remove_due_runs(&self) -> Result<u64, String> {
        sweep(&self.shared).await
    }
}

async fn append(shared: &Arc<Shared>, event: StoreEvent) -> Result<u64, String> {
    let store = Arc::clone(&shared.retention.store);
    let appended = tokio::task::spawn_blocking(move || store.append(vec![(Vec::new(), event)]));
    appended.await.map_err(|error| error.to_string())?
}

async fn read_holds(shared: &Arc<Shared>) -> Result<Holds, StoreError> {
    let read = |reader: &dyn Reader| {
        let mut holds = Holds::default();
        facts::each(reader, &mut |_, event| holds.apply(event))?;
        Ok(holds)
    };
    shared.readers.with(read).await
}

/// Postpones removals if the clock is far ahead of what was recorded last.
///
/// # Errors
/// Why the ledger cannot be read.
pub(super) async fn check_clock(shared: &Arc<Shared>) -> Result<(), String> {
    let retention = &shared.retention;
    if retention.limits.least_us().is_none() {
        return Ok(());
    }
    let now = (shared.clock)();
    let readers = &shared.readers;
    let found = readers.with(move |reader| clock_gap::recent_gap(reader, now));
    let Some(gap) = found.await.map_err(|error: StoreError| error.to_string())? else {
        return Ok(());
    };
    let days = gap.length.as_secs() / (24 * 60 * 60);
    let why = format!(
        "the clock is {days} d ahead of what was recorded before, and may be wrong: retention \
         removes nothing for a day"
    );
    tracing::warn!("{why}");
    let until = Instant::now() + gap.left;
    let _ = retention.postponed.set(Postponed { until, why });
    Ok(())
}

/// Looks for due runs now and then, until the engine is gone.
pub(super) async fn sweep_regularly(shared: Weak<Shared>) {
    loop {
        let Some(strong) = shared.upgrade() else {
            return;
        };
        if strong.retention.limits.least_us().is_none() || *strong.runs.stopping().borrow() {
            return;
        }
        // What is deleted takes space in the log first.
        let swept = match strong.appender.low_on_disk() {
            true => Ok(0),
            false => sweep(&strong).await,
        };
        let wait = match swept {
            Ok(removed) => {
                if removed > 0 {
                    tracing::info!(removed, "retention removed runs");
                }
                SWEEP_INTERVAL
            }
            Err(why) => {
                tracing::warn!(%why, "retention stopped; it is tried again in {} s", RETRY.as_secs());
                RETRY
            }
        };
        let mut stopping = strong.runs.stopping();
        drop(strong);
        let stopped = stopping.wait_for(|stopping| *stopping);
        if tokio::time::timeout(wait, stopped).await.is_ok() {
            return;
        }
    }
}

/// Removes what is due.
async fn sweep(shared: &Arc<Shared>) -> Result<u64, String> {
    let retention = &shared.retention;
    let Some(least_us) = retention.limits.least_us() else {
        return Ok(0);
    };
    if retention.postponed().is_some() {
        return Ok(0);
    }
    let now = (shared.clock)();
    let words = |error: StoreError| error.to_string();
    let references = retention.references.lock().await;
    read_references(shared, &references).await.map_err(words)?;
    let read = |reader: &dyn Reader| children(reader);
    let families = Arc::new(shared.readers.with(read).await.map_err(words)?);
    let mut sweep = Sweep {
        shared,
        references: Arc::clone(&references),
        families: Arc::clone(&families),
        now,
        removed: 0,
    };
    let newest = now.as_micros().saturating_sub(least_us);
    let mut cursor = Some(Cursor {
        created_us: newest.saturating_add(1),
        stream: StreamId::store(),
    });
    while let Some(after) = cursor {
        let page = shared.readers.with(move |reader| {
            let filter = Filter {
                kinds: vec!["run".to_owned()],
                open: Some(false),
                ..Filter::default()
            };
            reader.list(&filter, Some(&after), ROWS)
        });
        let page = page.await.map_err(words)?;
        cursor = page.next;
        let roots = page.rows.iter().filter_map(|row| {
            let run: RunRow = serde_json::from_str(row.row.as_str()).ok()?;
            Some((
                row.stream.clone(),
                Some(EndedRun::of_row(&row.stream, &run, None)),
            ))
        });
        if !sweep.remove(roots.collect()).await? {
            return Ok(sweep.removed);
        }
    }
    // Families whose first run was never recorded here.
    let without_root = move |reader: &dyn Reader| {
        let mut found = Vec::new();
        for root in families.roots() {
            if reader.row(root)?.is_none() || root.kind() != "run" {
                found.push((root.clone(), None));
            }
        }
        Ok(found)
    };
    let roots = shared.readers.with(without_root).await.map_err(words)?;
    sweep.remove(roots).await?;
    Ok(sweep.removed)
}

/// Reads the ledger to where it ends now, to learn which blobs and parents its frames name, a page at a
/// time. The first time that is the whole ledger, so it pauses in between.
async fn read_references(
    shared: &Arc<Shared>,
    references: &Arc<Mutex<ReferenceCounts>>,
) -> Result<(), StoreError> {
    let last = |reader: &dyn Reader| reader.last_position();
    let last = shared.readers.with(last).await?;
    for _ in 0..=last / SCANNED_FRAMES as u64 {
        let started = Instant::now();
        let references = Arc::clone(references);
        let advance = move |reader: &dyn Reader| references.lock().advance(reader, SCANNED_FRAMES);
        if !shared.readers.with(advance).await? {
            break;
        }
        tokio::time::sleep(started.elapsed()).await;
    }
    Ok(())
}

/// Every branch, recompute and eval, by families.
fn children(reader: &dyn Reader) -> Result<Families, StoreError> {
    let filter = Filter {
        kinds: vec!["branch".to_owned(), "recompute".to_owned()],
        ..Filter::default()
    };
    let mut found = Vec::new();
    let mut cursor = None;
    loop {
        let page = reader.list(&filter, cursor.as_ref(), ROWS)?;
        for row in &page.rows {
            let of = match row.stream.kind() {
                "recompute" => recomputed(reader, &row.stream)?,
                _ => None,
            };
            let Ok(run) = serde_json::from_str::<RunRow>(row.row.as_str()) else {
                continue;
            };
            found.push(EndedRun::of_row(&row.stream, &run, of));
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    for eval in rows::evals(reader)? {
        found.extend(EndedRun::evals(&eval, &judged(reader, &eval)?));
    }
    Ok(Families::of(found))
}

/// The runs that an eval judges, or has asked models about.
fn judged(reader: &dyn Reader, eval: &StreamId) -> Result<BTreeSet<StreamId>, StoreError> {
    let (mut runs, mut from) = (BTreeSet::new(), 1);
    loop {
        let page = reader.read(eval, from, SCANNED_FRAMES)?;
        let Some(last) = page.last() else {
            return Ok(runs);
        };
        from = last.seq.saturating_add(1);
        for frame in page.iter().filter_map(|record| record.decode_bare().ok()) {
            if let Event::Eval(EvalEvent::ScenarioStarted(scenario)) = frame.event {
                runs.insert(scenario.run);
            } else if let Event::Agent(_) = frame.event {
                runs.extend(frame.cause.into_iter().filter_map(run_of));
            }
        }
    }
}

/// The run that a cause is a frame of.
fn run_of(cause: Cause) -> Option<StreamId> {
    match cause {
        Cause::There(run, _) => Some(run),
        Cause::Here(_) => None,
    }
}

/// The stream that a recompute is of.
fn recomputed(reader: &dyn Reader, stream: &StreamId) -> Result<Option<StreamId>, StoreError> {
    let first = reader.read(stream, 0, 1)?;
    let first = first.first().and_then(|record| record.decode_bare().ok());
    let Some(Event::Recompute(RecomputeEvent::Created(created))) = first.map(|first| first.event)
    else {
        return Ok(None);
    };
    Ok(created.of.and_then(|of| of.stream.parse().ok()))
}

/// A sweep in progress.
struct Sweep<'a> {
    shared: &'a Arc<Shared>,
    references: Arc<Mutex<ReferenceCounts>>,
    families: Arc<Families>,
    now: Timestamp,
    removed: u64,
}

impl Sweep<'_> {
    /// Removes what is due of some families; false if the engine stops.
    async fn remove(&mut self, roots: Vec<(StreamId, Option<EndedRun>)>) -> Result<bool, String> {
        let mut left = roots.into_iter().peekable();
        while left.peek().is_some() {
            if *self.shared.runs.stopping().borrow() || self.shared.runs.is_draining() {
                return Ok(false);
            }
            let started = Instant::now();
            let removed = self.turn(&mut left).await?;
            self.removed += removed;
            if removed > 0 {
                let pause = started.elapsed() * PAUSE_FACTOR;
                tokio::time::sleep(pause.min(MAX_PAUSE)).await;
            }
        }
        Ok(true)
    }

    /// Removes some families in one transaction.
    async fn turn(
        &self,
        left: &mut (impl Iterator<Item = (StreamId, Option<EndedRun>)> + Send),
    ) -> Result<u64, String> {
        let shared = self.shared;
        let retention = &shared.retention;
        // Nobody places a hold meanwhile, and no ended run goes on.
        let mut known = retention.holds.lock().await;
        if known.is_none() {
            let read = read_holds(shared).await;
            *known = Some(read.map_err(|error| error.to_string())?);
        }
        let holds = known.as_ref().cloned().unwrap_or_default();
        let mut due = Vec::new();
        for (name, root) in left {
            let family =
                self.families
                    .due(&name, root.as_ref(), &holds, retention.limits, self.now);
            due.extend(family);
            if due.len() >= MAX_RUNS_PER_TURN {
                break;
            }
        }
        // An eval of several runs is in the family of each.
        let mut seen = BTreeSet::new();
        due.retain(|one: &EndedRun| seen.insert(one.stream.clone()));
        let mut removed = 0;
        let mut due = due.into_iter().peekable();
        while due.peek().is_some() {
            let none_goes_on = shared.runs.keep_ended().await;
            let is_idle = |run: &EndedRun| shared.runs.get(run.stream.name()).is_none();
            let idle: Vec<EndedRun> = due.by_ref().filter(is_idle).collect();
            let planned = self.plan(idle.clone()).await;
            let planned = planned.map_err(|error| error.to_string())?;
            due = idle
                .into_iter()
                .skip(planned.looked_at)
                .collect::<Vec<_>>()
                .into_iter()
                .peekable();
            let runs = planned.removals.len() as u64;
            if runs > 0 {
                let carried_out = self.carry_out(planned.removals).await;
                if carried_out.is_err() {
                    // What was forgotten is not what was removed: learned again next time.
                    *self.references.lock() = ReferenceCounts::default();
                }
                carried_out?;
            }
            removed += runs;
            drop(none_goes_on);
        }
        Ok(removed)
    }

    /// Plans the removal of as many runs as a turn removes.
    async fn plan(&self, due: Vec<EndedRun>) -> Result<PlannedTurn, StoreError> {
        loop {
            let references = Arc::clone(&self.references);
            let advance =
                move |reader: &dyn Reader| references.lock().advance(reader, SCANNED_FRAMES);
            if !self.shared.readers.with(advance).await? {
                break;
            }
        }
        let references = Arc::clone(&self.references);
        let plan = move |reader: &dyn Reader| {
            let mut references = references.lock();
            let mut turn = PlannedTurn::default();
            let mut frames = 0;
            for run in &due {
                turn.looked_at += 1;
                let planned = references.plan(reader, &run.stream, run.status_name(), RETENTION);
                let planned = match planned {
                    Ok(planned) => planned,
                    Err(PlanRemovalError::Store(error)) => return Err(error),
                    // It is looked at again in the next sweep.
                    Err(
                        PlanRemovalError::HasBranch(_)
                        | PlanRemovalError::FirstFrame(_)
                        | PlanRemovalError::Changed(_),
                    ) => continue,
                };
                references.forget(&planned);
                frames += planned.event.frames;
                turn.removals.push(planned);
                if frames >= MAX_FRAMES_PER_TURN {
                    break;
                }
            }
            Ok(turn)
        };
        self.shared.readers.with(plan).await
    }

    async fn carry_out(&self, planned: Vec<PlannedRemoval>) -> Result<(), String> {
        let streams = planned.iter().map(|one| one.removal.stream.clone());
        let streams: Vec<_> = streams.collect();
        let store = Arc::clone(&self.shared.retention.store);
        let append = move || store.append_removals(planned);
        let appended = tokio::task::spawn_blocking(append).await;
        for stream in &streams {
            self.shared.recent.forget(stream);
        }
        appended.map_err(|error| error.to_string())?.map(drop)
    }
}

/// The removals of one transaction.
#[derive(Default)]
struct PlannedTurn {
    removals: Vec<PlannedRemoval>,
    /// Number of due runs that were looked at.
    looked_at: usize,
}
