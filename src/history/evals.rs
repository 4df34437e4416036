//! Evals: what checks found about finished runs, as it is recorded.

use std::collections::BTreeMap;
use std::time::Instant;

use ktsu_eval::{
    EvalRecord, EvalSpec, Invariant, RecordFault, ScenarioRecord, Subject, Workspace, judge_again,
    judge_each,
};
use ktsu_ledger::branch;
use ktsu_ledger::event::{CheckResult, EvalEvent, ScenarioStarted, Score};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::verify::{ProblemKind, VerifyProblem};
use ktsu_ledger::{Event, Frame, Hash, StreamId};
use ktsu_workflow::admit::ENGINE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked_run::{CheckedRun, CheckedRunError};

/// What the ids of evals begin with.
pub const EVAL: &str = "eval_";

/// The results of all checks of a run.
#[derive(Debug, Clone)]
pub struct CheckedScenario {
    /// What was checked.
    pub started: ScenarioStarted,
    /// What was found, in the order of the spec.
    pub results: Vec<CheckResult>,
    /// The envelope of the run.
    pub envelope: Value,
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
    let subject = Subject {
        envelope: &checked.envelope,
        frames: &checked.frames,
        workspace,
    };
    let mut results = Vec::with_capacity(invariants.len());
    let mut began = Instant::now();
    judge_each(invariants, &subject, &mut |mut result| {
        result.duration_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        results.push(result);
        began = Instant::now();
    });
    Ok(CheckedScenario {
        started: ScenarioStarted {
            frames: checked.frames.len() as u64,
            head: checked.head,
            run: run.clone(),
            scenario: 0,
        },
        results,
        envelope: checked.envelope,
    })
}

/// An eval, as commands and responses show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// When it was made.
    pub at: String,
    /// Who asked for it.
    pub by: String,
    /// The version of ktsu that judged.
    pub engine: String,
    /// Scenarios with a check that could not be made.
    pub errors: u64,
    /// `eval_…`.
    pub eval_id: String,
    /// Scenarios that failed.
    pub failed: u64,
    /// Scenarios that passed.
    pub passed: u64,
    /// What was checked.
    pub scenarios: Vec<ScenarioReport>,
    /// What it was checked by.
    pub spec: SpecReport,
    /// `passed`, `failed`, `error`, or `running`.
    pub status: String,
}

/// The spec of an eval.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpecReport {
    /// BLAKE3 of its text.
    pub digest: Hash,
    /// The name of its file.
    pub file: String,
}

/// The verdict on one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ScenarioReport {
    /// The composite score; absent as long as it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composite: Option<Score>,
    /// Why no check was made: `waiting`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// How many frames the run had.
    pub frames: u64,
    /// The hash of the last of them.
    pub head: Hash,
    /// The composite at which it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_threshold: Option<Score>,
    /// Whether it passes.
    pub passed: bool,
    /// What every check found.
    pub results: Vec<CheckResult>,
    /// The run.
    pub run_id: String,
    /// `passed`, `failed`, `error`, or `running`.
    pub status: String,
}

impl EvalReport {
    /// What the record of an eval says.
    pub fn of(stream: &StreamId, record: EvalRecord) -> Self {
        let totals = record.totals();
        let status = match (record.finished, totals.errors, totals.failed) {
            (None, ..) => "running",
            (Some(_), 0, 0) => "passed",
            (Some(_), 0, _) => "failed",
            (Some(_), ..) => "error",
        };
        Self {
            at: record.at.to_string(),
            by: record.started.by.id,
            engine: record.started.engine,
            errors: totals.errors.into(),
            eval_id: stream.name().to_owned(),
            failed: totals.failed.into(),
            passed: totals.passed.into(),
            scenarios: record.scenarios.into_iter().map(scenario_report).collect(),
            spec: SpecReport {
                digest: record.started.spec_digest,
                file: record.started.file,
            },
            status: status.to_owned(),
        }
    }
}

fn scenario_report(scenario: ScenarioRecord) -> ScenarioReport {
    let finished = scenario.finished;
    let status = finished.as_ref().map_or("running", |it| it.status.as_str());
    ScenarioReport {
        composite: finished.as_ref().map(|finished| finished.composite),
        error: finished
            .as_ref()
            .and_then(|finished| finished.error.clone()),
        frames: scenario.started.frames,
        head: scenario.started.head,
        pass_threshold: finished.as_ref().map(|finished| finished.pass_threshold),
        passed: finished.as_ref().is_some_and(|finished| finished.passed),
        results: scenario.results.into_iter().map(|(_, one)| one).collect(),
        run_id: scenario.started.run.name().to_owned(),
        status: status.to_owned(),
    }
}

/// Why an eval cannot be shown.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EvalReadError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Its frames do not fold.
    #[error("{0}; `ktsu verify` says more")]
    Record(#[from] RecordFault),
}

/// Reads an eval; none if there is no such stream.
///
/// # Errors
/// [`EvalReadError`].
pub fn read(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalReport>, EvalReadError> {
    let frames = branch::frames(reader, stream)?;
    if frames.is_empty() {
        return Ok(None);
    }
    let record = EvalRecord::of(&frames)?;
    Ok(Some(EvalReport::of(stream, record)))
}

/// An eval without the results of its checks. Of an eval of one run only its first and last two frames
/// are read, and not checked against the others.
fn summary(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalReport>, EvalReadError> {
    if let Some(record) = ends(reader, stream)? {
        return Ok(Some(EvalReport::of(stream, record)));
    }
    let mut report = read(reader, stream)?;
    let scenarios = report.iter_mut().flat_map(|report| &mut report.scenarios);
    scenarios.for_each(|scenario| scenario.results.clear());
    Ok(report)
}

/// What the first and last two frames of an eval of one run say; none if they say something else.
fn ends(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalRecord>, StoreError> {
    let Some(tail) = reader.tail(stream)? else {
        return Ok(None);
    };
    let first = reader.read(stream, 0, 2)?;
    let last = reader.read(stream, tail.seq.saturating_sub(1).max(2), 2)?;
    let frames = first.iter().chain(&last);
    let frames: Vec<Frame> = frames.filter_map(|one| one.decode_bare().ok()).collect();
    let events: Vec<&Event> = frames.iter().map(|frame| &frame.event).collect();
    Ok(match events.as_slice() {
        [
            Event::Eval(EvalEvent::Started(started)),
            Event::Eval(EvalEvent::ScenarioStarted(scenario)),
            Event::Eval(EvalEvent::ScenarioFinished(verdict)),
            Event::Eval(EvalEvent::Finished(finished)),
        ] if finished.scenarios == 1 => Some(EvalRecord {
            started: started.as_ref().clone(),
            at: frames.first().map(|first| first.at).unwrap_or_default(),
            scenarios: vec![ScenarioRecord {
                started: scenario.clone(),
                results: Vec::new(),
                finished: Some(verdict.clone()),
            }],
            finished: Some(*finished),
        }),
        _ => None,
    })
}

/// An eval in a list; one that cannot be read has its name alone.
pub fn listed_in_json(eval: &Result<EvalReport, StreamId>) -> Value {
    match eval {
        Ok(report) => json!(report),
        Err(stream) => json!({"eval_id": stream.name(), "status": "unreadable"}),
    }
}

/// The newest evals, of one run or of all, without the results of their checks; at most `limit`. One
/// that cannot be read has its name alone.
///
/// # Errors
/// [`StoreError`].
pub fn list(
    reader: &dyn Reader,
    run: Option<&StreamId>,
    limit: usize,
) -> Result<Vec<Result<EvalReport, StreamId>>, StoreError> {
    let mut found = Vec::new();
    for stream in ktsu_run_index::evals(reader)?.into_iter().rev() {
        if found.len() >= limit {
            break;
        }
        let report = match summary(reader, &stream) {
            Ok(None) => continue,
            Ok(Some(report)) => Ok(report),
            Err(EvalReadError::Record(_) | EvalReadError::Store(StoreError::Damaged(_))) => {
                Err(stream.clone())
            }
            Err(EvalReadError::Store(error)) => return Err(error),
        };
        let is_of = |report: &EvalReport| {
            run.is_none_or(|run| {
                let mut scenarios = report.scenarios.iter();
                scenarios.any(|scenario| scenario.run_id == run.name())
            })
        };
        if report.as_ref().map_or(run.is_none(), is_of) {
            found.push(report);
        }
    }
    Ok(found)
}

/// The most frames times checks that a verification judges again.
const MAX_JUDGED: u64 = 100_000_000;

/// Judges evals again, by the runs as they were, while a ledger is verified.
#[derive(Debug)]
pub(crate) struct EvalVerifier {
    /// The run that was read last, and how many of its frames.
    last: Option<(StreamId, u64, CheckedRun)>,
    /// How much may still be judged.
    left: u64,
    /// What was not judged again, and why: by the first eval, and how many there are.
    not_covered: BTreeMap<&'static str, (String, u64)>,
}

impl EvalVerifier {
    pub(crate) fn new() -> Self {
        Self {
            last: None,
            left: MAX_JUDGED,
            not_covered: BTreeMap::new(),
        }
    }

    /// What is wrong with an eval: its frames, or its verdicts.
    pub(crate) fn problem(
        &mut self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Option<VerifyProblem> {
        let problem = |seq: Option<u64>, message: String| VerifyProblem {
            kind: ProblemKind::Unreadable,
            message,
            seq,
            stream: Some(stream.to_string()),
        };
        let frames = match branch::frames(reader, stream) {
            Ok(frames) => frames,
            Err(error) => return Some(problem(None, error.to_string())),
        };
        let judged = EvalRecord::of(&frames).and_then(|record| {
            let Some(spec) = record.spec(ENGINE)? else {
                self.note(
                    "judged by another version of ktsu, by a spec that this one cannot read",
                    stream,
                );
                return Ok(());
            };
            let mut scenarios = record.scenarios.iter();
            scenarios.try_for_each(|one| self.judge(reader, stream, (&record, one), &spec))
        });
        let fault = judged.err()?;
        Some(problem(Some(fault.seq), fault.reason.to_owned()))
    }

    /// What was not judged again, in words.
    pub(crate) fn not_covered(self) -> impl Iterator<Item = String> {
        self.not_covered.into_iter().map(|(why, (first, count))| {
            let more = match count {
                1 => String::new(),
                count => format!(" and {} more", count - 1),
            };
            format!("verdicts of {first}{more}: {why}")
        })
    }

    fn note(&mut self, why: &'static str, stream: &StreamId) {
        let first = || (stream.name().to_owned(), 0);
        self.not_covered.entry(why).or_insert_with(first).1 += 1;
    }

    /// Judges a scenario again, if its run is still here.
    fn judge(
        &mut self,
        reader: &dyn Reader,
        stream: &StreamId,
        (record, scenario): (&EvalRecord, &ScenarioRecord),
        spec: &EvalSpec,
    ) -> Result<(), RecordFault> {
        let started = &scenario.started;
        let cost = (spec.invariants.len() as u64 + 1).saturating_mul(started.frames);
        let Some(left) = self.left.checked_sub(cost) else {
            self.note("more than one verification judges again", stream);
            return Ok(());
        };
        self.left = left;
        let wanted = (started.run.clone(), started.frames);
        let is_read = |(run, frames, _): &(StreamId, u64, CheckedRun)| {
            (run, frames) == (&wanted.0, &wanted.1)
        };
        if !self.last.as_ref().is_some_and(is_read) {
            match CheckedRun::read(reader, &started.run, Some(started.frames)) {
                Ok(run) => self.last = Some((wanted.0, wanted.1, run)),
                // What is wrong with a run is reported of the run itself.
                Err(CheckedRunError::Missing | CheckedRunError::Read(_)) => {
                    self.note("the run is not here, or cannot be read", stream);
                    return Ok(());
                }
                Err(_) => return Err(of(scenario, "its run had not ended, or cannot be read")),
            }
        }
        let Some((_, _, run)) = &self.last else {
            return Ok(());
        };
        if run.head != started.head || run.frames.len() as u64 != started.frames {
            return Err(of(scenario, "its run has other frames"));
        }
        let subject = Subject {
            envelope: &run.envelope,
            frames: &run.frames,
            workspace: None,
        };
        let again = judge_again(record, scenario, spec, &subject, ENGINE)?;
        if again.is_of_another_version {
            self.note(
                "judged by another version of ktsu: the words of reasons",
                stream,
            );
        }
        if !again.not_covered.is_empty() {
            self.note("checks of what is not in the run", stream);
        }
        Ok(())
    }
}

/// What is wrong with a scenario, at its first frame.
fn of(scenario: &ScenarioRecord, reason: &'static str) -> RecordFault {
    let first = scenario.results.first();
    RecordFault {
        seq: first.map_or(1, |(seq, _)| seq.saturating_sub(1)),
        reason,
    }
}
