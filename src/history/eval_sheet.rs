//! An eval as a table: a row for each scenario, a column for each check, and what became different since another one.

use std::collections::BTreeMap;

use ktsu_eval::{EvalSpec, Held, Invariant, JUDGE};
use ktsu_ledger::StreamId;
use ktsu_ledger::branch::FrameStream;
use ktsu_ledger::event::{CheckResult, EvalStatus, Score};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_projections::Lineage;
use ktsu_projections::lineage::LineageNode;
use ktsu_workflow::admit::ENGINE;

use super::eval_record::{EvalReadError, record};
use super::evals::{EvalReport, ScenarioReport};

/// The most frames of a run whose content is said in words beside a check.
const MAX_FRAMES: u64 = 50_000;

/// An eval as a table.
#[derive(Debug, Clone, PartialEq)]
pub struct EvalSheet {
    /// The eval.
    pub report: EvalReport,
    /// The names of its scenarios, in order. Empty where recorded runs are judged, and where the spec is one of
    /// another version that this one cannot read.
    pub names: Vec<String>,
    /// Its checks, in the order in which each run has their results.
    pub checks: Vec<CheckColumn>,
}

/// A check of an eval.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckColumn {
    /// The name of the invariant.
    pub name: String,
    /// Its description, if it has one.
    pub description: Option<String>,
    /// True if a score below 1 makes the composite 0.
    pub gate: bool,
    /// Its weight in the composite.
    pub weight: Score,
}

/// What one check found in all replicas of a scenario.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CheckCell {
    /// The number of replicas in which it holds.
    pub passed: u32,
    /// The number of those in which it does not.
    pub failed: u32,
    /// The number of those in which it could not be made.
    pub errors: u32,
    /// The mean of its scores.
    pub score: Score,
}

/// A check of a scenario whose result is another one than in an earlier eval.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckChange {
    /// The place of the scenario in the eval, from 0.
    pub scenario: usize,
    /// The name of the invariant.
    pub check: String,
    /// What it was.
    pub before: CheckCell,
    /// What it is.
    pub after: CheckCell,
}

impl EvalSheet {
    /// The name of a scenario; empty if it has none.
    pub fn name(&self, scenario: usize) -> &str {
        self.names.get(scenario).map_or("", String::as_str)
    }

    /// What the check at a place found in a scenario; none if it has no result yet, or was not made.
    pub fn cell(scenario: &ScenarioReport, check: usize) -> Option<CheckCell> {
        let runs = scenario.runs().iter();
        let results = runs.filter_map(|run| run.results.get(check));
        let (mut cell, mut total) = (CheckCell::default(), 0.0);
        for result in results {
            total += result.score.get();
            match result.status {
                EvalStatus::Passed => cell.passed += 1,
                EvalStatus::Failed => cell.failed += 1,
                EvalStatus::Error => cell.errors += 1,
            }
        }
        cell.score = Score::new(total / f64::from(cell.all().max(1)));
        (cell.all() > 0).then_some(cell)
    }

    /// The checks whose results differ from those of an earlier eval, by the names of scenarios and checks.
    /// Of a scenario or a check that only one of them has there is nothing to say.
    pub fn changes_since(&self, earlier: &Self) -> Vec<CheckChange> {
        let places = earlier.report.scenarios.iter().enumerate();
        let before: BTreeMap<&str, &ScenarioReport> = places
            .map(|(place, scenario)| (earlier.name(place), scenario))
            .collect();
        let columns = earlier.checks.iter().enumerate();
        let columns: BTreeMap<&str, usize> = columns
            .map(|(place, check)| (check.name.as_str(), place))
            .collect();
        let mut changes = Vec::new();
        for (place, scenario) in self.report.scenarios.iter().enumerate() {
            let Some(was) = before.get(self.name(place)) else {
                continue;
            };
            for (column, check) in self.checks.iter().enumerate() {
                let before = columns.get(check.name.as_str());
                let before = before.and_then(|column| Self::cell(was, *column));
                if let (Some(before), Some(after)) = (before, Self::cell(scenario, column))
                    && before.status() != after.status()
                {
                    changes.push(CheckChange {
                        scenario: place,
                        check: check.name.clone(),
                        before,
                        after,
                    });
                }
            }
        }
        changes
    }
}

impl CheckCell {
    /// The number of replicas with a result.
    pub fn all(self) -> u32 {
        self.passed
            .saturating_add(self.failed)
            .saturating_add(self.errors)
    }

    /// `error` if it could not be made in one of them, `failed` if it does not hold in one, else `passed`.
    pub fn status(self) -> EvalStatus {
        match (self.errors, self.failed) {
            (0, 0) => EvalStatus::Passed,
            (0, _) => EvalStatus::Failed,
            _ => EvalStatus::Error,
        }
    }
}

/// Reads an eval as a table; none if there is no such stream.
///
/// # Errors
/// [`EvalReadError`].
pub fn sheet(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalSheet>, EvalReadError> {
    if reader.tail(stream)?.is_none() {
        return Ok(None);
    }
    let record = record(reader, stream, Held::WithoutContents)?;
    let spec = record.spec(ENGINE)?;
    let only = record.started.suite.as_ref().and_then(|it| it.only.clone());
    let report = EvalReport::of(stream, record);
    let suite = spec.as_ref().and_then(|spec| spec.suite.as_ref());
    let names = suite.map_or_else(Vec::new, |suite| {
        let scenarios = suite.scenarios(only.as_deref());
        let names = scenarios.iter().map(|scenario| scenario.name().to_owned());
        names.collect()
    });
    let checks = columns(&report, spec.as_ref());
    Ok(Some(EvalSheet {
        report,
        names,
        checks,
    }))
}

/// The checks, in the order of the results of the first run that has any; without one, in that of the spec.
fn columns(report: &EvalReport, spec: Option<&EvalSpec>) -> Vec<CheckColumn> {
    let invariants = spec.map_or(&[][..], |spec| &spec.invariants);
    let mut runs = report.scenarios.iter().flat_map(ScenarioReport::runs);
    let Some(run) = runs.find(|run| !run.results.is_empty()) else {
        let column = |invariant: &Invariant| CheckColumn {
            name: invariant.name.clone(),
            description: invariant.description.clone(),
            gate: invariant.gate,
            weight: Score::new(invariant.weight),
        };
        return invariants.iter().map(column).collect();
    };
    let described = invariants.iter();
    let described: BTreeMap<&str, &Option<String>> = described
        .map(|invariant| (invariant.name.as_str(), &invariant.description))
        .collect();
    let column = |result: &CheckResult| CheckColumn {
        name: result.name.clone(),
        description: described
            .get(result.name.as_str())
            .copied()
            .cloned()
            .flatten(),
        gate: result.gate,
        weight: result.weight,
    };
    run.results.iter().map(column).collect()
}

/// Returns `true` if the frames that a result rests on are those of its run; those of a model that judges are of the
/// eval.
pub fn rests_on_run(result: &CheckResult) -> bool {
    result.check != JUDGE
}

/// What frames of a run say, by their numbers; nothing of runs with more than 50,000 frames, or of one that is
/// not there any more.
///
/// # Errors
/// [`StoreError`].
pub fn frames_in_words(
    reader: &dyn Reader,
    run: &StreamId,
    wanted: &[u64],
) -> Result<Vec<LineageNode>, StoreError> {
    let Some(last) = wanted.iter().max().copied() else {
        return Ok(Vec::new());
    };
    if last >= MAX_FRAMES || reader.tail(run)?.is_none() {
        return Ok(Vec::new());
    }
    let mut lineage = Lineage::default();
    for frame in FrameStream::new(reader, run, |external| external.path == "/outcome") {
        let frame = frame?;
        lineage.apply(&frame);
        if frame.seq >= last {
            break;
        }
    }
    let nodes = wanted.iter().filter_map(|seq| lineage.node(*seq).cloned());
    Ok(nodes.collect())
}
