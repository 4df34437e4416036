//! A comparison of recorded runs with the definitions of another kit.
//!
//! Nothing is called: calls without a recorded answer are reported, and stay unanswered.

use std::collections::BTreeMap;
use std::sync::Arc;

use ktsu_ledger::StreamId;
use ktsu_ledger::event::RunEvent;
use ktsu_ledger::store::Reader;
use ktsu_ledger::{Event, Frame, Timestamp};
use serde::Serialize;

use super::replay::RunReplayError;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::replay::{Definitions, ReplayError, replay};
use ktsu_workflow::simulate::{Divergence, SimulationError, compare, simulate};

/// Definitions by the name of their workflow.
pub type KitDefinitions = BTreeMap<String, Arc<Definition>>;

/// A recorded run, held against a kit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KitComparison {
    /// Its id.
    pub run_id: String,
    /// Its workflow.
    pub workflow: String,
    /// The divergences, in the order of history.
    pub divergences: Vec<Divergence>,
}

/// The reason why a run cannot be compared with a kit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KitComparisonError {
    /// It cannot be read, or does not follow from its own inputs.
    #[error(transparent)]
    Failed(#[from] RunReplayError),
    /// The kit has no such workflow.
    #[error("the kit has no workflow {0}")]
    NoWorkflow(String),
    /// It cannot be tried.
    #[error(transparent)]
    NotRehearsed(#[from] SimulationError),
}

/// A selection of runs.
#[derive(Debug, Clone, Default)]
pub struct RunSelection {
    /// Of this workflow only.
    pub workflow: Option<String>,
    /// Accepted then or later.
    pub since: Option<Timestamp>,
}

/// Holds a recorded run against a kit; nothing if it is not among those that are wanted.
///
/// # Errors
/// [`KitComparisonError`].
pub fn compare_run(
    reader: &dyn Reader,
    stream: &StreamId,
    kit: &KitDefinitions,
    wanted: &RunSelection,
    definitions: &mut Definitions,
) -> Result<Option<KitComparison>, KitComparisonError> {
    let records = reader.read(stream, 0, 1).map_err(RunReplayError::from)?;
    let first = records.first().and_then(|one| one.decode_bare().ok());
    if first.is_some_and(|first| !is_selected(&first, wanted)) {
        return Ok(None);
    }
    let frames = super::frames(reader, stream).map_err(RunReplayError::from)?;
    one(stream, &frames, kit, definitions).map(Some)
}

fn is_selected(first: &Frame, wanted: &RunSelection) -> bool {
    let Event::Run(RunEvent::Created(created)) = &first.event else {
        return true;
    };
    let workflow = wanted.workflow.as_ref();
    workflow.is_none_or(|name| *name == created.workflow)
        && wanted.since.is_none_or(|since| first.at >= since)
}

fn one(
    stream: &StreamId,
    frames: &[Frame],
    kit: &KitDefinitions,
    definitions: &mut Definitions,
) -> Result<KitComparison, KitComparisonError> {
    let begins = frames.first().ok_or(SimulationError::NoInvocation)?;
    let Event::Run(RunEvent::Created(created)) = &begins.event else {
        return Err(SimulationError::NoInvocation.into());
    };
    let workflow = created.workflow.clone();
    let definition = kit.get(&workflow);
    let definition = definition.ok_or_else(|| KitComparisonError::NoWorkflow(workflow.clone()))?;
    // A run that does not follow from its own inputs cannot be compared with other definitions.
    replay(frames, definitions).map_err(RunReplayError::from)?;
    let recorded_as = definitions
        .introduced_by(begins)
        .map_err(RunReplayError::from)?;
    let no_root = || RunReplayError::from(ReplayError::NoRoot("has no definition".to_owned()));
    let recorded_as = recorded_as.ok_or_else(no_root)?;
    let as_recorded = simulate(frames, &recorded_as, &recorded_as)?;
    let new = simulate(frames, &recorded_as, definition)?;
    let divergences = compare(frames, &as_recorded, &new).map_err(RunReplayError::from)?;
    Ok(KitComparison {
        run_id: stream.name().to_owned(),
        workflow,
        divergences,
    })
}
