//! The input of a baseline, run once by the agent that a kit has for it now.

use ktsu_ledger::Frame;
use ktsu_ledger::event::{Principal, RecordedResult};

use super::Failure;
use ktsu_assemble::Engine;
use ktsu_baseline::{Baseline, BaselineStep, find_step};
use ktsu_history as history;
use ktsu_kit::Kit;
use ktsu_workflow::definition::Definition;
use ktsu_workflow::recompute::{RecordedRun, prepare_task};

/// A baseline and the file it was read from.
pub(super) struct BaselineFile {
    pub(super) file: String,
    pub(super) baseline: Baseline,
}

/// The result of running the input of a baseline.
pub(super) struct BaselineRunResult {
    pub(super) recorded: RecordedRun,
    pub(super) frames: Vec<Frame>,
}

impl BaselineFile {
    /// The failure of a test of it.
    pub(super) fn failed(&self, words: &str) -> Failure {
        Failure::could_not_run(format!("{}: {words}", self.file))
    }
}

/// The definition and the step a baseline is of.
pub(super) fn step_of<'a>(
    kit: &'a Kit,
    given: &BaselineFile,
) -> Result<(&'a Definition, BaselineStep<'a>), Failure> {
    let snapshot = &given.baseline.snapshot;
    let workflow = kit.workflows.get(&snapshot.workflow);
    let workflow = workflow.ok_or_else(|| {
        let words = format!(
            "{}: the kit has no workflow {}",
            given.file, snapshot.workflow
        );
        Failure::could_not_run(words).hint("--kit DIR")
    })?;
    let found = find_step(&workflow.definition.plan, &snapshot.step);
    let found = found.ok_or_else(|| {
        Failure::could_not_run(format!(
            "{}: workflow {} has no agent step {}",
            given.file, snapshot.workflow, snapshot.step
        ))
        .hint(format!("ktsu workflow tree {}", snapshot.workflow))
    })?;
    Ok((&workflow.definition, found))
}

/// Runs one baseline's input; `results` answer the calls that are not sent.
pub(super) async fn answer(
    engine: &Engine,
    kit: &Kit,
    given: &BaselineFile,
    results: &[RecordedResult],
) -> Result<BaselineRunResult, Failure> {
    let (definition, found) = step_of(kit, given)?;
    let snapshot = &given.baseline.snapshot;
    let principal = Principal {
        auth: "none".to_owned(),
        id: "local".to_owned(),
    };
    let failed = |words: String| given.failed(&words);
    let prepared = prepare_task(
        definition,
        found.agent,
        &snapshot.step,
        &snapshot.input,
        results,
        principal,
    );
    let prepared = prepared.map_err(|error| failed(error.to_string()))?;
    let begun = engine.orchestrator.begin(prepared).await;
    let id = begun.map_err(|error| failed(error.to_string()))?.run_id;
    let ended = engine.orchestrator.wait_until_ended(&id).await;
    ended.map_err(|error| failed(format!("the ledger has stopped: {error}")))?;
    let read = engine.orchestrator.readers().with(move |reader| {
        let stream = ktsu_ledger::StreamId::run(&id)
            .map_err(|error| ktsu_ledger::StoreError::Damaged(error.to_string()))?;
        history::frames(reader, &stream)
    });
    let frames = read.await?;
    let recorded = RecordedRun::from_frames(&frames).map_err(|error| failed(error.to_string()))?;
    Ok(BaselineRunResult { recorded, frames })
}
