//! Evals: what checks found about finished runs, as it is recorded.

use std::collections::BTreeMap;

use ktsu_eval::{
    EvalRecord, EvalSpec, Held, JudgedRun, RecordFault, ServiceRecords, Subject, judge_again,
};
use ktsu_ledger::event::{
    CheckResult, EvalFinished, EvalStarted, ReplicaTotals, ScenarioFinished, ScenarioStarted, Score,
};
use ktsu_ledger::store::Reader;
use ktsu_ledger::verify::{ProblemKind, VerifyProblem};
use ktsu_ledger::{Hash, StreamId, Timestamp};
use ktsu_workflow::admit::ENGINE;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::checked_run::{CheckedRun, CheckedRunError};
pub use super::eval_record::{EvalReadError, record, started};
pub use super::judge_usage::JudgeUsage;
pub use super::making_checks::{BesideRun, CheckedScenario, check, check_read};
pub use super::tool_outcomes::ToolOutcomes;

/// The prefix of the ids of evals.
pub const EVAL: &str = "eval_";

/// An eval, as commands and responses show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EvalReport {
    /// The time at which it was made.
    pub at: String,
    /// The person who asked for it.
    pub by: String,
    /// The version of ktsu that judged.
    pub engine: String,
    /// Scenarios with a check that could not be made.
    pub errors: u64,
    /// `eval_…`.
    pub eval_id: String,
    /// Scenarios that failed.
    pub failed: u64,
    /// The usage of models by its checks; absent if none was asked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub judges: Option<JudgeUsage>,
    /// Scenarios some of whose replicas passed and some failed; each counts among the others, too.
    #[serde(default)]
    pub flaky: u64,
    /// Scenarios that passed.
    pub passed: u64,
    /// The counts of how replicas ended, where scenarios have several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replicas: Option<ReplicaTotals>,
    /// `none` if programs of checks ran without a sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<String>,
    /// The scenarios that were checked.
    pub scenarios: Vec<ScenarioReport>,
    /// The spec that it was checked by.
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

/// The verdict on a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScenarioReport {
    /// It ran once.
    Run(RunVerdict),
    /// It ran several times.
    Replicas(ReplicasVerdict),
}

/// The verdict on one run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunVerdict {
    /// Runs of the same replica that were interrupted, and are not judged.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub abandoned: Vec<String>,
    /// The composite score; absent as long as it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composite: Option<Score>,
    /// The reason why no check was made: `waiting`, `timeout` or `not_kept`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The number of frames of the run.
    pub frames: u64,
    /// The hash of the last of them.
    pub head: Hash,
    /// The composite at which it passes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pass_threshold: Option<Score>,
    /// True if it passes.
    pub passed: bool,
    /// The result of every check.
    pub results: Vec<CheckResult>,
    /// The run.
    pub run_id: String,
    /// `passed`, `failed`, `error`, or `running`.
    pub status: String,
}

/// The verdict on a scenario with several replicas.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ReplicasVerdict {
    /// The mean of the replicas' composites; absent as long as it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub composite: Option<Score>,
    /// The estimated probability, where the aggregation has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Score>,
    /// True if some replicas passed and some failed.
    pub flaky: bool,
    /// True if it passes.
    pub passed: bool,
    /// The replicas, in order.
    pub replicas: Vec<RunVerdict>,
    /// `passed`, `failed`, `error`, or `running`.
    pub status: String,
}

impl ScenarioReport {
    /// The verdicts on its runs.
    pub fn runs(&self) -> &[RunVerdict] {
        match self {
            Self::Run(run) => std::slice::from_ref(run),
            Self::Replicas(all) => &all.replicas,
        }
    }

    /// `passed`, `failed`, `error`, or `running`.
    pub fn status(&self) -> &str {
        match self {
            Self::Run(run) => &run.status,
            Self::Replicas(all) => &all.status,
        }
    }

    /// The composite score.
    pub fn composite(&self) -> Option<Score> {
        match self {
            Self::Run(run) => run.composite,
            Self::Replicas(all) => all.composite,
        }
    }

    /// True if some replicas passed and some failed.
    pub fn is_flaky(&self) -> bool {
        matches!(self, Self::Replicas(all) if all.flaky)
    }

    pub(crate) fn without_results(&mut self) {
        match self {
            Self::Run(run) => run.results.clear(),
            Self::Replicas(all) => all.replicas.iter_mut().for_each(|run| run.results.clear()),
        }
    }
}

impl EvalReport {
    /// The report on the record of an eval.
    pub fn of(stream: &StreamId, record: EvalRecord) -> Self {
        let (totals, is_finished) = (record.totals(), record.finished.is_some());
        let judges = JudgeUsage::of(record.usage());
        let mut report = Self::empty(stream, record.started, record.at, (totals, is_finished));
        report.judges = judges;
        let mut aggregated = record.aggregated.into_iter().peekable();
        let mut runs = record.runs.into_iter().peekable();
        while let Some(first) = runs.next() {
            let scenario = first.started.scenario;
            let mut verdicts = vec![RunVerdict::of(first)];
            while let Some(next) = runs.next_if(|run| run.started.scenario == scenario) {
                verdicts.push(RunVerdict::of(next));
            }
            report
                .scenarios
                .push(match (totals.replicas, verdicts.pop()) {
                    (None, Some(run)) => ScenarioReport::Run(run),
                    (_, last) => {
                        verdicts.extend(last);
                        let verdict = aggregated.next_if(|verdict| verdict.scenario == scenario);
                        ScenarioReport::Replicas(ReplicasVerdict {
                            composite: verdict.as_ref().map(|verdict| verdict.composite),
                            estimate: verdict.as_ref().and_then(|verdict| verdict.estimate),
                            flaky: verdict.as_ref().is_some_and(|verdict| verdict.flaky),
                            passed: verdict.as_ref().is_some_and(|verdict| verdict.passed),
                            replicas: verdicts,
                            status: verdict
                                .map_or("running", |verdict| verdict.status.as_str())
                                .to_owned(),
                        })
                    }
                });
        }
        report
    }

    /// The mean of the composite scores of the scenarios that have one.
    pub fn score(&self) -> Option<Score> {
        let composites = self.scenarios.iter().filter_map(ScenarioReport::composite);
        let (count, total) = composites.fold((0_u32, 0.0), |(count, total), composite| {
            (count + 1, total + composite.get())
        });
        (count > 0).then(|| Score::new(total / f64::from(count)))
    }

    /// A report without its scenarios.
    pub(crate) fn empty(
        stream: &StreamId,
        started: EvalStarted,
        at: Timestamp,
        (totals, is_finished): (EvalFinished, bool),
    ) -> Self {
        let status = match (is_finished, totals.errors, totals.failed) {
            (false, ..) => "running",
            (true, 0, 0) => "passed",
            (true, 0, _) => "failed",
            (true, ..) => "error",
        };
        Self {
            at: at.to_string(),
            by: started.by.id,
            engine: started.engine,
            errors: totals.errors.into(),
            eval_id: stream.name().to_owned(),
            failed: totals.failed.into(),
            judges: None,
            flaky: totals.flaky.into(),
            passed: totals.passed.into(),
            replicas: totals.replicas,
            sandbox: started.sandbox,
            scenarios: Vec::new(),
            spec: SpecReport {
                digest: started.spec_digest,
                file: started.file,
            },
            status: status.to_owned(),
        }
    }
}

impl RunVerdict {
    fn of(run: JudgedRun) -> Self {
        let results = run.results.into_iter().map(|(_, one)| one).collect();
        Self::with(run.started, run.finished, results)
    }

    pub(crate) fn with(
        started: ScenarioStarted,
        finished: Option<ScenarioFinished>,
        results: Vec<CheckResult>,
    ) -> Self {
        let abandoned = started.abandoned.iter();
        let status = finished.as_ref().map_or("running", |it| it.status.as_str());
        Self {
            abandoned: abandoned.map(|run| run.name().to_owned()).collect(),
            composite: finished.as_ref().map(|finished| finished.composite),
            frames: started.frames,
            head: started.head,
            pass_threshold: finished.as_ref().map(|finished| finished.pass_threshold),
            passed: finished.as_ref().is_some_and(|finished| finished.passed),
            results,
            run_id: started.run.name().to_owned(),
            status: status.to_owned(),
            error: finished.and_then(|finished| finished.error),
        }
    }
}

/// Reads an eval; none if there is no such stream.
///
/// # Errors
/// [`EvalReadError`].
pub fn read(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalReport>, EvalReadError> {
    if reader.tail(stream)?.is_none() {
        return Ok(None);
    }
    let record = record(reader, stream, Held::WithoutContents)?;
    Ok(Some(EvalReport::of(stream, record)))
}

/// An eval in a list; one that cannot be read has its name alone.
pub fn listed_in_json(eval: &Result<EvalReport, StreamId>) -> Value {
    match eval {
        Ok(report) => json!(report),
        Err(stream) => json!({"eval_id": stream.name(), "status": "unreadable"}),
    }
}

/// The most frames times checks that a verification judges again.
const MAX_JUDGED: u64 = 100_000_000;

/// Judges evals again, by the runs as they were, while a ledger is verified.
#[derive(Debug)]
pub(crate) struct EvalVerifier {
    /// The run that was read last, and how many of its frames.
    last: Option<(StreamId, u64, CheckedRun)>,
    /// The amount of work that judging may still take.
    left: u64,
    /// The reasons why verdicts were not judged again: for each the first eval, and how many there
    /// are.
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

    /// The problem with an eval: with its frames, or its verdicts.
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
        let record = match record(reader, stream, Held::WithoutContents) {
            Err(EvalReadError::Store(error)) => return Some(problem(None, error.to_string())),
            Err(EvalReadError::Record(fault)) => Err(fault),
            Ok(record) => Ok(record),
        };
        let judged = record.and_then(|record| {
            let Some(spec) = record.spec(ENGINE)? else {
                self.note(
                    "judged by another version of ktsu, by a spec that this one cannot read",
                    stream,
                );
                return Ok(());
            };
            let mut runs = record.runs.iter();
            runs.try_for_each(|one| self.judge(reader, stream, (&record, one), &spec))
        });
        let fault = judged.err()?;
        Some(problem(Some(fault.seq), fault.reason.to_owned()))
    }

    /// The verdicts that were not judged again, in words.
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

    /// Judges a run again, if it is still here.
    fn judge(
        &mut self,
        reader: &dyn Reader,
        stream: &StreamId,
        (record, judged): (&EvalRecord, &JudgedRun),
        spec: &EvalSpec,
    ) -> Result<(), RecordFault> {
        let started = &judged.started;
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
                Err(_) => return Err(of(judged, "its run had not ended, or cannot be read")),
            }
        }
        let Some((_, _, run)) = &self.last else {
            return Ok(());
        };
        if run.head != started.head || run.frames.len() as u64 != started.frames {
            return Err(of(judged, "its run has other frames"));
        }
        let services = match spec.looks_at_services() {
            true => received(reader, stream, judged),
            false => None,
        };
        let subject = Subject {
            envelope: &run.envelope,
            frames: &run.frames,
            workspace: None,
            services: services.as_ref(),
            replies: None,
        };
        let again = judge_again(record, judged, spec, &subject, ENGINE)?;
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

/// The records of what services received of a run that an eval judged: the record of the eval does
/// not hold them.
fn received(reader: &dyn Reader, eval: &StreamId, judged: &JudgedRun) -> Option<ServiceRecords> {
    // What cannot be read is reported of the frame itself.
    let started = started(reader, eval, judged.seq).ok()??;
    started.services.as_ref().map(ServiceRecords::of)
}

/// A fault of a judged run, at its first frame.
fn of(judged: &JudgedRun, reason: &'static str) -> RecordFault {
    RecordFault {
        seq: judged.seq,
        reason,
    }
}
