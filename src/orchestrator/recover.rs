//! Starting again: read, fold, ask what comes next. There is no other recovery code.

use std::sync::Arc;

use ktsu_ledger::branch::frames;
use ktsu_ledger::event::RunEvent;
use ktsu_ledger::store::{Filter, Reader, Store, StoreError};
use ktsu_ledger::{Event, Frame, StreamId};
use ktsu_projections::run::RunState;

use super::run::{RunTask, index_row};
use super::{Shared, lock};
use crate::workflow::definition::Definition;
use crate::workflow::next::Memo;

/// What was found at the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Unfinished runs.
    pub unfinished: u64,
    /// Webhooks without an answer, sent again under their delivery ids.
    pub resent: u64,
    /// Unfinished runs that cannot be folded; `ktsu verify` says why.
    pub unreadable: u64,
}

/// Makes the index again if it is not whole: rows are derived, so anybody may delete them.
///
/// # Errors
/// [`StoreError`] if the ledger cannot be read or written. A run that cannot be folded gets no row;
/// `ktsu verify` names it.
pub fn rebuild_index(store: &mut dyn Store) -> Result<(), StoreError> {
    if store.is_indexed("run")? {
        return Ok(());
    }
    let epoch = store.acquire()?;
    store.clear_index(epoch)?;
    let mut after: Option<StreamId> = None;
    loop {
        let page = store.streams(after.as_ref(), PAGE)?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = Some(last.clone());
        let mut rows = Vec::new();
        for stream in page.iter().filter(|stream| stream.kind() == "run") {
            let frames = frames(store, stream)?;
            match RunState::fold(&frames) {
                Ok(state) => rows.push(index_row(&state)),
                Err(error) => tracing::error!(run = stream.name(), "cannot be indexed: {error}"),
            }
        }
        store.put_rows(epoch, &rows)?;
    }
}

/// How many runs are folded between two looks at the index.
const PAGE: usize = 256;

/// Takes up every unfinished run.
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
            .with(move |reader| reader.list(&filter, at.as_ref(), PAGE))
            .await;
        let page = page.map_err(|error| error.to_string())?;
        for row in &page.rows {
            resume(shared, row.stream.clone(), &mut found).await;
        }
        match page.next {
            Some(next) => cursor = Some(next),
            None => return Ok(found),
        }
    }
}

async fn resume(shared: &Arc<Shared>, stream: StreamId, found: &mut Recovered) {
    found.unfinished += 1;
    let folding = Arc::clone(shared);
    let name = stream.name().to_owned();
    let folded = shared
        .readers
        .with(move |reader| fold(&folding, reader, &stream))
        .await;
    match folded {
        Ok((definition, state)) => {
            found.resent += state.unanswered().len() as u64;
            let (task, _) = RunTask::new(shared, definition, state, Memo::default());
            task.resume((shared.clock)());
        }
        Err(reason) => {
            found.unreadable += 1;
            tracing::error!(run = name, "the run cannot be taken up again: {reason}");
        }
    }
}

/// Why a run cannot be taken up again.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Lost(String);

impl From<StoreError> for Lost {
    fn from(error: StoreError) -> Self {
        Self(error.to_string())
    }
}

fn fold(
    shared: &Shared,
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<(Arc<Definition>, RunState), Lost> {
    let frames = frames(reader, stream)?;
    let (first, rest) = frames
        .split_first()
        .ok_or(Lost("the stream is empty".to_owned()))?;
    let definition = definition_of(shared, first)?;
    let state = RunState::begin(first, Arc::clone(&definition.outline));
    let mut state = state.map_err(|refusal| Lost(refusal.to_string()))?;
    for frame in rest {
        let taken = state.apply(frame);
        taken.map_err(|refusal| Lost(format!("frame {}: {refusal}", frame.seq)))?;
    }
    Ok((definition, state))
}

/// The recorded definition, compiled once however many runs share it.
fn definition_of(shared: &Shared, first: &Frame) -> Result<Arc<Definition>, Lost> {
    let Event::Run(RunEvent::Created(created)) = &first.event else {
        return Err(Lost(
            "the stream does not begin with run.created".to_owned(),
        ));
    };
    if let Some(known) = lock(&shared.definitions).get(&created.digest) {
        return Ok(Arc::clone(known));
    }
    let plan = serde_json::from_str(created.definition.as_str());
    let plan =
        plan.map_err(|error| Lost(format!("the recorded definition cannot be read: {error}")))?;
    let definition = Definition::compile(plan).map_err(|faults| {
        let first = faults
            .first()
            .map(|(place, words)| format!("{place}: {words}"));
        Lost(format!(
            "the recorded definition does not compile: {}",
            first.unwrap_or_default()
        ))
    })?;
    let definition = Arc::new(definition);
    lock(&shared.definitions).insert(created.digest.clone(), Arc::clone(&definition));
    Ok(definition)
}
