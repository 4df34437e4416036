//! The record of an eval: its events, the fold that reads them, and judging it again.
//!
//! ```text
//! spec, results ─EvalWriter─▶ events ─▶ frames ─EvalRecord::of─▶ EvalRecord ─judge_again─▶ JudgedAgain
//! ```

use std::borrow::Borrow;
use std::collections::BTreeSet;
use std::path::Path;

use ktsu_ledger::event::{
    AgentEvent, CheckResult, EvalEvent, EvalFinished, EvalStarted, EvalStatus, LlmRequest,
    LlmResponse, ScenarioAggregated, ScenarioFinished, ScenarioStarted, Score,
};
use ktsu_ledger::{Cause, Event, Frame, Hash, StreamId, Timestamp};
use ktsu_projections::usage::Usage;
use serde::Deserialize;

use crate::aggregate::is_possible;
use crate::held::Held;
use crate::judge::{Subject, judge_each};
use crate::model_judge::calls::JudgeCall;
use crate::model_judge::finding::JudgeReplies;
use crate::model_judge::open::{OpenCalls, scope_of};
use crate::model_judge::question::seal_answer;
use crate::rests_on::{RestsOn, is_made_up, rests_on};
use crate::score::{ScenarioVerdict, verdict};
use crate::spec::EvalSpec;
use crate::tally::Tally;

/// The type of checks that a model makes.
pub const JUDGE: &str = "llm_as_judge";

/// An eval, as its frames have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EvalRecord {
    /// The first event, with what it was asked to check.
    pub started: EvalStarted,
    /// The time at which it began.
    pub at: Timestamp,
    /// The runs that were judged, in order.
    pub runs: Vec<JudgedRun>,
    /// The verdicts on scenarios with several replicas, in order.
    pub aggregated: Vec<ScenarioAggregated>,
    /// The totals; none as long as it is under way.
    pub finished: Option<EvalFinished>,
    /// The model calls about runs that have no verdict.
    open: OpenCalls,
    tally: Tally,
    /// The number of the next frame.
    next: u64,
    held: Held,
}

/// A run that an eval judged: a scenario, or a replica of one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgedRun {
    /// The number of the frame that says what was checked.
    pub seq: u64,
    /// The event that says what was checked.
    pub started: ScenarioStarted,
    /// The results, each with the number of its frame.
    pub results: Vec<(u64, CheckResult)>,
    /// The replies of models to its checks.
    pub replies: JudgeReplies,
    /// The verdict; none as long as it is under way.
    pub finished: Option<ScenarioFinished>,
}

/// A fault in the record of an eval.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("frame {seq}: {reason}")]
pub struct RecordFault {
    /// The frame that shows it.
    pub seq: u64,
    /// In words.
    pub reason: &'static str,
}

/// The result of judging a scenario again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct JudgedAgain {
    /// The number of checks that gave the recorded result.
    pub judged: u64,
    /// The types of checks that rest on more than the run.
    pub not_covered: BTreeSet<&'static str>,
    /// True if another version of ktsu judged: the words of its reasons were not compared.
    pub is_of_another_version: bool,
}

/// The content of [`EvalStarted::checks`].
#[derive(Deserialize)]
struct RecordedSpec {
    checks: Vec<RecordedCheck>,
    pass_threshold: Score,
}

#[derive(Deserialize)]
struct RecordedCheck {
    check: RecordedType,
    gate: bool,
    index: u32,
    name: String,
    weight: Score,
}

#[derive(Deserialize)]
struct RecordedType {
    r#type: String,
}

/// An event, with what it follows from.
pub type CausedEvent = (Vec<Cause>, EvalEvent);

/// A model call of a check, with what it follows from, in the scope of the run that it is about.
pub type RecordedCall = (String, Vec<Cause>, AgentEvent);

/// Writes an eval: the events that are to be appended, one scenario after another.
#[derive(Debug, Clone)]
pub struct EvalWriter {
    tally: Tally,
    /// The number of the next frame.
    next: u64,
}

impl EvalWriter {
    /// Begins an eval.
    pub fn begin(started: EvalStarted, pass_threshold: f64) -> (Self, Vec<CausedEvent>) {
        let writer = Self {
            tally: Tally::new(started.suite.clone(), Score::new(pass_threshold)),
            next: 1,
        };
        let started = EvalEvent::Started(Box::new(started));
        (writer, vec![(Vec::new(), started)])
    }

    /// Continues an eval after what is recorded of it; none if it has ended, or ends within a run.
    pub fn resume(record: &EvalRecord) -> Option<Self> {
        let is_within = record.runs.last().is_some_and(|run| run.finished.is_none());
        let has_next = record.finished.is_none() && record.tally.next_run().is_some();
        (has_next && !is_within).then(|| Self {
            tally: record.tally.clone(),
            next: record.next,
        })
    }

    /// Requests of the checks of a run, and the calls that they begin. They follow from the last frame
    /// of the run.
    pub fn requests(
        &mut self,
        place: (u32, u32),
        run: &(StreamId, u64),
        requests: Vec<LlmRequest>,
    ) -> (Vec<JudgeCall>, Vec<RecordedCall>) {
        let recorded = requests.into_iter().map(|request| {
            let call = JudgeCall::of(self.next, run.clone(), &request);
            self.next += 1;
            let cause = vec![Cause::Here(0), Cause::There(run.0.clone(), run.1)];
            (call, (scope_of(place), cause, AgentEvent::Request(request)))
        });
        recorded.unzip()
    }

    /// The reply to a call, as it is recorded; the call has it from now on. None if it has one.
    pub fn answer(
        &mut self,
        place: (u32, u32),
        call: &mut JudgeCall,
        mut answer: LlmResponse,
    ) -> Option<RecordedCall> {
        seal_answer(call, &mut answer);
        call.take(self.next, &answer).ok()?;
        self.next += 1;
        let cause = vec![Cause::Here(call.request)];
        let answer = AgentEvent::Response(Box::new(answer));
        Some((scope_of(place), cause, answer))
    }

    /// The scenario and the replica that are judged next.
    pub fn next_run(&self) -> (u32, u32) {
        self.tally.next_run().unwrap_or_default()
    }

    /// The events of the next run: it follows from the last frame of the run, and its verdict from the
    /// results, or from why there are none. After the last replica of a scenario comes the verdict on all.
    pub fn judged(
        &mut self,
        mut started: ScenarioStarted,
        results: Result<Vec<CheckResult>, String>,
    ) -> Vec<CausedEvent> {
        let place = self.next_run();
        (started.scenario, started.replica) = place;
        let last_of_run = Cause::There(started.run.clone(), started.frames.saturating_sub(1));
        let begun_at = self.next;
        let mut events = vec![(
            vec![Cause::Here(0), last_of_run],
            EvalEvent::ScenarioStarted(started),
        )];
        let (results, error) = match results {
            Ok(results) => (results, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        let finished = verdict_on(&results, error, place, self.tally.pass_threshold());
        for mut result in results {
            (result.scenario, result.replica) = place;
            let mut cause = vec![Cause::Here(begun_at)];
            // What models replied is in frames of the eval itself.
            if result.check == JUDGE {
                let replies = result.looked_at.frames.iter();
                cause.extend(replies.map(|reply| Cause::Here(*reply)));
            }
            events.push((cause, EvalEvent::Checked(Box::new(result))));
        }
        let verdict_at = begun_at + events.len() as u64;
        let results = (begun_at + 1..verdict_at).map(Cause::Here);
        let mut cause: Vec<Cause> = results.collect();
        if cause.is_empty() {
            cause.push(Cause::Here(begun_at));
        }
        events.push((cause, EvalEvent::ScenarioFinished(finished.clone())));
        self.tally.add(verdict_at, finished);
        self.next = verdict_at + 1;
        if let Some(verdict) = self.tally.aggregated() {
            let cause = self.tally.open().map(Cause::Here).collect();
            self.tally.close(self.next, &verdict);
            events.push((cause, EvalEvent::Aggregated(verdict)));
            self.next += 1;
        }
        events
    }

    /// The totals of the scenarios so far.
    pub fn totals(&self) -> EvalFinished {
        self.tally.totals()
    }

    /// The end of the eval, which follows from all verdicts.
    pub fn finish(&self) -> Vec<CausedEvent> {
        let cause = self.tally.verdicts().map(Cause::Here).collect();
        vec![(cause, EvalEvent::Finished(self.totals()))]
    }
}

/// The verdict on a run that follows from its results, or from why there are none.
fn verdict_on<'r>(
    results: impl IntoIterator<Item = &'r CheckResult>,
    error: Option<String>,
    (scenario, replica): (u32, u32),
    pass_threshold: f64,
) -> ScenarioFinished {
    let found = match error {
        Some(_) => ScenarioVerdict {
            status: EvalStatus::Error,
            composite: 0.0,
        },
        None => verdict(results, pass_threshold),
    };
    ScenarioFinished {
        composite: Score::new(found.composite),
        error,
        pass_threshold: Score::new(pass_threshold),
        passed: found.status == EvalStatus::Passed,
        replica,
        scenario,
        status: found.status,
    }
}

fn fault(seq: u64, reason: &'static str) -> RecordFault {
    RecordFault { seq, reason }
}

impl EvalRecord {
    /// Reads the frames of an eval, blobs put back.
    ///
    /// # Errors
    /// The first frame that does not follow from those before it: out of order, or with a number that
    /// others contradict.
    pub fn of(frames: &[Frame]) -> Result<Self, RecordFault> {
        Self::read(frames.iter().map(Ok), Held::Everything)
    }

    /// Reads frames one after another, and holds so much of them.
    ///
    /// # Errors
    /// As [`EvalRecord::of`]; the first that a frame cannot be read for.
    pub fn read<F: Borrow<Frame>, E: From<RecordFault>>(
        frames: impl IntoIterator<Item = Result<F, E>>,
        held: Held,
    ) -> Result<Self, E> {
        let mut frames = frames.into_iter();
        let first = frames.next().transpose()?;
        let (mut record, spec) = Self::begin(first.as_ref().map(Borrow::borrow), held)?;
        for frame in frames {
            let frame = frame?;
            let frame = frame.borrow();
            let taken = record.take(frame, &spec);
            taken.map_err(|reason| fault(frame.seq, reason))?;
            record.next = frame.seq + 1;
        }
        Ok(record)
    }

    fn begin(first: Option<&Frame>, held: Held) -> Result<(Self, RecordedSpec), RecordFault> {
        let (started, at) = match first.map(|first| (&first.event, first.at)) {
            Some((Event::Eval(EvalEvent::Started(started)), at)) => (started, at),
            Some(_) | None => return Err(fault(0, "an eval begins with eval.started")),
        };
        if Hash::of(started.spec.as_bytes()) != started.spec_digest {
            return Err(fault(0, "its spec has another digest"));
        }
        let spec: RecordedSpec = serde_json::from_str(started.checks.as_str())
            .map_err(|_| fault(0, "its checks cannot be read"))?;
        if started
            .suite
            .as_ref()
            .is_some_and(|suite| !is_possible(suite))
        {
            return Err(fault(0, "its replicas cannot be aggregated"));
        }
        let judges = spec.checks.iter();
        let judges = judges.filter(|check| check.check.r#type == JUDGE);
        let judges = judges.map(|check| check.name.clone()).collect();
        let record = Self {
            open: OpenCalls::new(judges, started.suite.as_ref()),
            started: started.as_ref().clone(),
            at,
            runs: Vec::new(),
            aggregated: Vec::new(),
            finished: None,
            tally: Tally::new(started.suite.clone(), spec.pass_threshold),
            next: 1,
            held,
        };
        Ok((record, spec))
    }

    fn take(&mut self, frame: &Frame, spec: &RecordedSpec) -> Result<(), &'static str> {
        if self.finished.is_some() {
            return Err("it follows the end of the eval");
        }
        let open = self.runs.last_mut();
        let open = open.filter(|run| run.finished.is_none());
        if let Event::Agent(event) = &frame.event
            && open.is_none()
        {
            return self.open.take(frame, event, self.tally.next_run());
        }
        let Event::Eval(event) = &frame.event else {
            return Err("it is no event of an eval, or out of order");
        };
        match (event, open) {
            (EvalEvent::ScenarioStarted(started), None)
                if self.tally.next_run() == Some((started.scenario, started.replica)) =>
            {
                let is_run = |stream: &StreamId| stream.is_run();
                if started.frames == 0
                    || !is_run(&started.run)
                    || !started.abandoned.iter().all(is_run)
                {
                    return Err("it names no run");
                }
                self.runs.push(JudgedRun {
                    seq: frame.seq,
                    started: self.held.of_started(started),
                    results: Vec::new(),
                    replies: JudgeReplies {
                        calls: self.open.close(started),
                        ..JudgeReplies::default()
                    },
                    finished: None,
                });
                Ok(())
            }
            (EvalEvent::Checked(result), Some(run)) => run.take_result(frame.seq, result, spec),
            (EvalEvent::ScenarioFinished(finished), Some(run)) => {
                run.finish(finished, spec)?;
                if self.held == Held::Verdicts {
                    (run.results, run.replies) = (Vec::new(), JudgeReplies::default());
                }
                self.tally.add(frame.seq, finished.clone());
                Ok(())
            }
            (EvalEvent::Aggregated(verdict), None) => {
                match self.tally.aggregated() {
                    None => return Err("it is out of order"),
                    Some(expected) if *verdict != expected => {
                        return Err("its verdict does not follow from its replicas");
                    }
                    Some(_) => {}
                }
                self.tally.close(frame.seq, verdict);
                self.aggregated.push(verdict.clone());
                Ok(())
            }
            (EvalEvent::Finished(finished), None) => {
                if !self.tally.is_whole() {
                    return Err("scenarios have no verdict");
                }
                if self.totals() != *finished {
                    return Err("its totals are not those of its scenarios");
                }
                self.finished = Some(*finished);
                Ok(())
            }
            _ => Err("it is out of order"),
        }
    }

    /// The totals of the scenarios so far.
    pub fn totals(&self) -> EvalFinished {
        self.finished.unwrap_or_else(|| self.tally.totals())
    }

    /// The usage of models by its checks.
    pub fn usage(&self) -> Usage {
        self.open.usage()
    }

    /// The model calls that are recorded of a run without a verdict: its place, and how many frames it
    /// has.
    pub fn calls_of(&self, place: (u32, u32), run: &StreamId, frames: u64) -> Vec<JudgeCall> {
        let run = (run.clone(), frames.saturating_sub(1));
        self.open.of(place, &run)
    }

    /// Returns `true` if what it runs is what a spec has it run. One that runs nothing checks
    /// recorded runs.
    fn is_suite_of(&self, spec: &EvalSpec) -> bool {
        let Some(ours) = &self.started.suite else {
            return true;
        };
        let suite = spec.suite.as_ref();
        let only = ours.only.as_deref();
        suite.is_some_and(|suite| suite.recorded(only) == *ours)
    }

    /// The spec, read again.
    ///
    /// None where another version of ktsu judged, and this one cannot read its spec.
    ///
    /// # Errors
    /// Its text is no spec, or says something else than what was checked, whatever version says so.
    pub fn spec(&self, engine: &str) -> Result<Option<EvalSpec>, RecordFault> {
        let parsed = EvalSpec::parse(Path::new(&self.started.file), &self.started.spec);
        match parsed {
            Ok((spec, _)) if spec.as_json == self.started.checks && self.is_suite_of(&spec) => {
                Ok(Some(spec))
            }
            Ok(_) => Err(fault(0, "its checks are not those of its spec")),
            Err(_) if self.started.engine != engine => Ok(None),
            Err(_) => Err(fault(0, "its spec cannot be read")),
        }
    }
}

impl JudgedRun {
    fn take_result(
        &mut self,
        seq: u64,
        result: &CheckResult,
        spec: &RecordedSpec,
    ) -> Result<(), &'static str> {
        let check = spec.checks.get(self.results.len());
        let is_asked = check.is_some_and(|check| {
            (check.index, &check.name, check.gate, check.weight)
                == (result.index, &result.name, result.gate, result.weight)
                && check.check.r#type == result.check
        });
        let score = result.score.get();
        let is_possible = match result.status {
            EvalStatus::Passed | EvalStatus::Failed => (0.0..=1.0).contains(&score),
            EvalStatus::Error => score <= 0.0,
        };
        if !is_asked || (result.scenario, result.replica) != self.place() {
            return Err("it is not the result of the next check of the spec");
        }
        if !is_possible || result.passed != (result.status == EvalStatus::Passed) {
            return Err("its score and its status contradict each other");
        }
        self.results.push((seq, result.clone()));
        Ok(())
    }

    fn finish(
        &mut self,
        finished: &ScenarioFinished,
        spec: &RecordedSpec,
    ) -> Result<(), &'static str> {
        let is_whole = match finished.error {
            None => self.results.len() == spec.checks.len(),
            Some(_) => self.results.is_empty(),
        };
        if !is_whole {
            return Err("checks of the spec have no result");
        }
        let results = self.results.iter().map(|(_, result)| result);
        let error = finished.error.clone();
        let expected = verdict_on(results, error, self.place(), spec.pass_threshold.get());
        if *finished != expected {
            return Err("its verdict does not follow from its results");
        }
        self.finished = Some(expected);
        Ok(())
    }

    /// The scenario, and which replica of it this is.
    fn place(&self) -> (u32, u32) {
        (self.started.scenario, self.started.replica)
    }
}

/// Makes those checks of a run again that rest on the run alone, and compares the results.
/// `subject` is the run as it was: up to its [`ScenarioStarted::head`].
///
/// Of a verdict by another version of ktsu, the words of reasons are not compared.
///
/// # Errors
/// The first frame that says something else than what is found now.
pub fn judge_again(
    record: &EvalRecord,
    run: &JudgedRun,
    spec: &EvalSpec,
    subject: &Subject<'_>,
    engine: &str,
) -> Result<JudgedAgain, RecordFault> {
    let mut found = JudgedAgain {
        is_of_another_version: record.started.engine != engine,
        ..JudgedAgain::default()
    };
    let recorded = run.results.iter().zip(&spec.invariants);
    let (mut again, mut places) = (Vec::new(), Vec::new());
    for (place, invariant) in recorded {
        let rests_on = rests_on(invariant, &run.replies, subject.services.is_some());
        if rests_on != RestsOn::Record {
            found.not_covered.insert(invariant.check.name());
        }
        match rests_on {
            RestsOn::Else if is_made_up(invariant, &place.1) => {
                return Err(fault(place.0, "no model was asked"));
            }
            RestsOn::Else => {}
            RestsOn::Record | RestsOn::Both => {
                again.push(invariant);
                places.push(place);
            }
        }
    }
    let subject = &Subject {
        replies: Some(&run.replies),
        ..*subject
    };
    let mut places = places.into_iter();
    let mut differs = None;
    judge_each(again, subject, &mut |mut now| {
        let Some((seq, then)) = places.next() else {
            return;
        };
        now.duration_ms = then.duration_ms;
        (now.scenario, now.replica) = (then.scenario, then.replica);
        if record.started.engine != engine {
            now.reason.clone_from(&then.reason);
        }
        match now == *then {
            true => found.judged += 1,
            false => {
                differs.get_or_insert(fault(*seq, "the run gives another result of this check"));
            }
        }
    });
    match differs {
        Some(differs) => Err(differs),
        None => Ok(found),
    }
}
