//! Recovery at a start: reads unfinished runs, folds them, and continues them. There is no other
//! recovery code.

use std::sync::Arc;

use ktsu_ledger::branch::frames;
use ktsu_ledger::event::plan::Visibility;
use ktsu_ledger::store::{Filter, IndexRow, Reader, Store, StoreError};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::{RunState, RunStatus, TransitionError};

use super::registry::RunRegistry;
use super::{RecentRuns, Shared};
use ktsu_run_index as rows;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::effects::{Effect, EffectKind, effects_due};
use ktsu_workflow::rules::{self, UnknownRulesError};

/// The findings of the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Unfinished runs.
    pub unfinished: u64,
    /// Webhooks without an answer, sent again under their delivery ids.
    pub resent: u64,
    /// Unfinished runs that cannot be folded; `ktsu verify` shows why.
    pub unreadable: u64,
    /// Unfinished runs whose model groups this gateway lacks: they wait for a start with their own
    /// kit.
    pub left: u64,
    /// Unfinished runs recorded under decision rules that this version does not have: they wait for
    /// a version that has them.
    pub other_rules: u64,
}

/// Rebuilds the run index if it is incomplete. Rows are derived, so they may be deleted or changed.
///
/// A run that cannot be folded is logged and gets a row that says so; `ktsu verify` shows why. It
/// is tried again at every start, in case a later version understands it.
///
/// # Errors
/// [`StoreError`] if the ledger cannot be read or written, [`StoreError::Damaged`] also if one run
/// is not what was appended.
pub fn rebuild_index(store: &mut dyn Store) -> Result<(), StoreError> {
    if store.maintenance().is_none() {
        // The store writes its index by itself.
        return Ok(());
    }
    let reader: &dyn Reader = store;
    let wrong = reader.wrong_rows();
    if rows::is_index_complete(store)? && wrong.is_ok_and(|wrong| wrong.is_empty()) {
        return refold_row(store);
    }
    let epoch = store.acquire()?;
    store.clear_index(epoch)?;
    let mut after: Option<StreamId> = None;
    loop {
        let (runs, last) = rows::runs_after(store, after.as_ref())?;
        let mut page = Vec::new();
        for run in &runs {
            page.push(derive_rows(store, run)?);
        }
        rows::put_rows(store, epoch, &page)?;
        if last.is_none() {
            return Ok(());
        }
        after = last;
    }
}

fn derive_rows(store: &dyn Store, run: &StreamId) -> Result<IndexRow, StoreError> {
    let made = rows::derive_row(store, run)?;
    match made.fault {
        Some(fault) if fault.is_damage => Err(StoreError::Damaged(fault.why)),
        Some(fault) => {
            tracing::error!(run = run.name(), "cannot read the run: {}", fault.why);
            Ok(made.row)
        }
        None => Ok(made.row),
    }
}

/// Tries unreadable runs again.
fn refold_row(store: &mut dyn Store) -> Result<(), StoreError> {
    let filter = Filter {
        status: Some(rows::UNREADABLE.to_owned()),
        ..Filter::default()
    };
    let (mut changed, mut cursor) = (Vec::new(), None);
    loop {
        let page = store.list(&filter, cursor.as_ref(), ROWS_PER_PAGE)?;
        for before in &page.rows {
            let row = derive_rows(store, &before.stream)?;
            if row != *before {
                changed.push(row);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            break;
        }
    }
    if changed.is_empty() {
        return Ok(());
    }
    let epoch = store.acquire()?;
    rows::put_rows(store, epoch, &changed)
}

/// Number of rows that are looked at at a time.
const ROWS_PER_PAGE: usize = 256;

/// Counts the runs that have not ended: metrics go on from there. Workflows of the kit are shown
/// before their first run, too.
pub(super) async fn count_unfinished(shared: &Arc<Shared>) -> Result<(), String> {
    let metrics = shared.telemetry.metrics();
    let workflows = shared.kit.workflows.iter();
    for (name, _) in workflows.filter(|(_, one)| one.visibility == Visibility::Root) {
        metrics.declare_workflow(name);
    }
    for status in [RunStatus::Pending, RunStatus::Running, RunStatus::Waiting] {
        let filter = Filter {
            status: Some(status.as_str().to_owned()),
            kinds: rows::listed_kinds(),
            ..Filter::default()
        };
        let mut cursor = None;
        loop {
            let (asked, at) = (filter.clone(), cursor.take());
            let page = shared
                .readers
                .with(move |reader| reader.list(&asked, at.as_ref(), ROWS_PER_PAGE))
                .await;
            let page = page.map_err(|error| error.to_string())?;
            for row in &page.rows {
                metrics.add_unfinished(&row.workflow, status);
            }
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    Ok(())
}

/// Resumes every unfinished run.
pub(super) async fn resume_all(shared: &Arc<Shared>) -> Result<Recovered, String> {
    let mut found = Recovered::default();
    let mut cursor = None;
    loop {
        let filter = Filter {
            open: Some(true),
            ..Filter::default()
        };
        let at = cursor.take();
        let page = shared
            .readers
            .with(move |reader| reader.list(&filter, at.as_ref(), ROWS_PER_PAGE))
            .await;
        let page = page.map_err(|error| error.to_string())?;
        for row in &page.rows {
            resume(shared, &row.stream, &mut found).await;
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(found),
        }
    }
}

async fn resume(shared: &Arc<Shared>, run: &StreamId, found: &mut Recovered) {
    found.unfinished += 1;
    let mut resent = 0;
    let admits = |definition: &Definition, state: &RunState| {
        if let Some(group) = shared.peers.missing_group(definition) {
            return Err(ResumeRunError::LacksGroup(group));
        }
        let webhook = |effect: &&Effect| matches!(effect.kind, EffectKind::Webhook(_));
        resent = effects_due(state).iter().filter(webhook).count() as u64;
        Ok(())
    };
    let run_id = run.name();
    match RunRegistry::recover(shared, run, admits).await {
        Ok(()) => found.resent += resent,
        Err(ResumeRunError::LacksGroup(group)) => {
            found.left += 1;
            tracing::warn!(
                run = run_id,
                "waiting for a start with the model group {group}"
            );
        }
        Err(ResumeRunError::Lost(LoadRunError::Rules(unknown))) => {
            found.other_rules += 1;
            tracing::warn!(run = run_id, "needs another version of ktsu: {unknown}");
        }
        Err(ResumeRunError::Lost(reason @ LoadRunError::Unreadable(_))) => {
            found.unreadable += 1;
            tracing::error!(run = run_id, "cannot resume the run: {reason}");
        }
    }
}

/// The reason why an unfinished run does not continue.
enum ResumeRunError {
    /// The gateway has no such model group.
    LacksGroup(String),
    /// It cannot be loaded.
    Lost(LoadRunError),
}

impl From<LoadRunError> for ResumeRunError {
    fn from(lost: LoadRunError) -> Self {
        Self::Lost(lost)
    }
}

/// The reason why a run cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadRunError {
    /// It was decided by rules that this version does not have.
    #[error(transparent)]
    Rules(#[from] UnknownRulesError),
    /// It cannot be read or folded.
    #[error("{0}")]
    Unreadable(String),
}

impl From<StoreError> for LoadRunError {
    fn from(error: StoreError) -> Self {
        Self::Unreadable(error.to_string())
    }
}

pub(super) fn fold(
    shared: &Shared,
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<(Arc<Definition>, RunState), LoadRunError> {
    let recent = shared.recent.find(reader, stream)?;
    if let Some(run) = &recent
        && let Some(definition) = run.definition()
    {
        return Ok((Arc::clone(definition), run.fold().state().clone()));
    }
    let frames = frames(reader, stream)?;
    let (first, rest) = frames
        .split_first()
        .ok_or(LoadRunError::Unreadable("the stream is empty".to_owned()))?;
    rules::check_rules_known(&frames)?;
    let begun = definition_in(shared, std::slice::from_ref(first))?;
    let state = RunState::begin(first, Arc::clone(&begun.outline));
    let mut state = state.map_err(|refusal| LoadRunError::Unreadable(refusal.to_string()))?;
    let definition = definition_in(shared, &frames)?;
    let refused = |frame: &Frame, refusal: TransitionError| {
        LoadRunError::Unreadable(format!("frame {}: {refusal}", frame.seq))
    };
    if !RecentRuns::is_long(frames.len()) {
        for frame in rest {
            let taken = state.apply(frame);
            taken.map_err(|refusal| refused(frame, refusal))?;
        }
        return Ok((definition, state));
    }
    // It may be read soon again: for a post, for its envelope, for its world.
    let mut fold = EnvelopeFold::begin(state, first);
    for frame in rest {
        let taken = fold.apply(frame);
        taken.map_err(|refusal| refused(frame, refusal))?;
    }
    let run = shared.recent.keep(stream, fold, &frames);
    run.set_definition(Arc::clone(&definition));
    Ok((definition, run.fold().state().clone()))
}

/// The definition that holds at the end of some frames, compiled once however many runs share it.
pub(super) fn definition_in(
    shared: &Shared,
    frames: &[Frame],
) -> Result<Arc<Definition>, LoadRunError> {
    let brought = frames
        .iter()
        .rev()
        .find_map(|frame| frame.event.definition());
    let (definition, digest) = brought.ok_or_else(|| {
        LoadRunError::Unreadable("the stream does not begin with run.created".to_owned())
    })?;
    if let Some(known) = shared.runs.definitions.lock().get(digest) {
        return Ok(Arc::clone(known));
    }
    let plan = serde_json::from_str(definition.as_str());
    let plan = plan.map_err(|error| {
        LoadRunError::Unreadable(format!("the recorded definition cannot be read: {error}"))
    })?;
    let definition = Definition::compile(plan).map_err(|faults| {
        let first = faults
            .first()
            .map(|(place, words)| format!("{place}: {words}"));
        LoadRunError::Unreadable(format!(
            "the recorded definition does not compile: {}",
            first.unwrap_or_default()
        ))
    })?;
    let definition = Arc::new(definition);
    shared
        .runs
        .definitions
        .lock()
        .insert(digest.to_owned(), Arc::clone(&definition));
    Ok(definition)
}
