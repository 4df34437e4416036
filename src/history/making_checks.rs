//! Checks of a finished run, as they are made for the first time.

use std::time::Instant;

use ktsu_eval::{Invariant, JudgeReplies, ServiceRecords, Subject, Workspace, judge_each};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{CheckResult, ScenarioStarted};
use ktsu_ledger::store::Reader;
use serde_json::Value;

use super::checked_run::{CheckedRun, CheckedRunError};
use super::tool_outcomes::ToolOutcomes;

/// The results of all checks of a run.
#[derive(Debug, Clone)]
pub struct CheckedScenario {
    /// The event that says what was checked.
    pub started: ScenarioStarted,
    /// The results of the checks, in the order of the spec.
    pub results: Vec<CheckResult>,
    /// The envelope of the run.
    pub envelope: Value,
    /// The outcomes of its tool calls.
    pub tools: ToolOutcomes,
}

/// Makes checks of a finished run, and measures how long each takes.
///
/// # Errors
/// [`CheckedRunError`].
pub fn check(
    reader: &dyn Reader,
    run: &StreamId,
    invariants: &[Invariant],
    workspace: Option<&dyn Workspace>,
) -> Result<CheckedScenario, CheckedRunError> {
    let checked = CheckedRun::read(reader, run, None)?;
    let beside = BesideRun {
        workspace,
        ..BesideRun::default()
    };
    Ok(check_read(checked, run, invariants, beside))
}

/// The things beside the record of a run that are checked.
#[derive(Clone, Copy, Default)]
pub struct BesideRun<'b> {
    /// The files it left.
    pub workspace: Option<&'b dyn Workspace>,
    /// The records of what services of the suite received.
    pub services: Option<&'b ServiceRecords>,
    /// The replies of models.
    pub replies: Option<&'b JudgeReplies>,
}

/// As [`check`], of a run that has been read.
pub fn check_read(
    checked: CheckedRun,
    run: &StreamId,
    invariants: &[Invariant],
    beside: BesideRun<'_>,
) -> CheckedScenario {
    let replies = beside.replies;
    let subject = Subject {
        envelope: &checked.envelope,
        frames: &checked.frames,
        workspace: beside.workspace,
        services: beside.services,
        replies,
    };
    let mut results = Vec::with_capacity(invariants.len());
    let mut began = Instant::now();
    judge_each(invariants, &subject, &mut |mut result| {
        let asked = replies.map_or(0, |replies| replies.duration_ms(&result.name));
        let took = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        result.duration_ms = took.saturating_add(asked);
        results.push(result);
        began = Instant::now();
    });
    CheckedScenario {
        started: ScenarioStarted {
            abandoned: Vec::new(),
            frames: checked.frames.len() as u64,
            head: checked.head,
            replica: 0,
            run: run.clone(),
            scenario: 0,
            services: None,
            workspace: None,
        },
        results,
        tools: ToolOutcomes::of(&checked.frames),
        envelope: checked.envelope,
    }
}
