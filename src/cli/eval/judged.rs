//! A suite that was judged, and what is shown of its runs beside the verdicts.

use std::rc::Rc;

use ktsu_codes::EXIT_VERDICT;
use ktsu_eval::Scenario;
use ktsu_history::evals::{CheckedScenario, EvalReport, ScenarioReport, ToolOutcomes};
use ktsu_ledger::event::{CheckResult, ScenarioStarted};
use serde_json::{Map, Value};

use super::suites::SuiteFile;

/// The most bytes of an output in the report; `ktsu runs get` shows a larger one.
const MAX_OUTPUT: usize = 16 << 10;

/// A suite that was judged.
pub(super) struct JudgedSuite<'s> {
    pub(super) suite: &'s SuiteFile,
    pub(super) report: EvalReport,
    pub(super) scenarios: Rc<[Scenario]>,
    /// In the order of the runs of the report.
    pub(super) shown: Vec<ShownRun>,
    /// The number of runs that the cost limit kept from beginning.
    pub(super) left_out: usize,
}

/// The parts of a run that has ended that are recorded and shown.
pub(super) struct JudgedReplica {
    pub(super) started: ScenarioStarted,
    /// The results of the checks, or the reason why there is no verdict.
    pub(super) results: Result<Vec<CheckResult>, String>,
    pub(super) shown: ShownRun,
}

/// The parts of a run that are shown beside its verdict.
#[derive(Debug, Clone)]
pub(super) struct ShownRun {
    pub(super) wall_ms: u64,
    pub(super) totals: Map<String, Value>,
    pub(super) output: Value,
    /// The exit code that `ktsu run` of it would end with.
    pub(super) exit_code: Option<u8>,
    pub(super) tools: ToolOutcomes,
    /// The cost of interrupted runs of the same replica, in millionths of a US dollar.
    pub(super) abandoned_micro_usd: u64,
}

impl JudgedSuite<'_> {
    /// The scenarios that have runs: the name, the verdict, and the params; with what is shown of their
    /// runs.
    pub(super) fn rows(&self) -> impl Iterator<Item = (&Scenario, &ScenarioReport, &[ShownRun])> {
        let mut rest = self.shown.as_slice();
        let both = self.scenarios.iter().zip(&self.report.scenarios);
        both.map(move |(scenario, report)| {
            let (shown, others) = rest.split_at(rest.len().min(report.runs().len()));
            rest = others;
            (scenario, report, shown)
        })
    }

    /// The cost of its runs and its checks, in millionths of a US dollar.
    pub(super) fn cost(&self) -> u64 {
        self.cost_of_runs().saturating_add(self.cost_of_checks())
    }

    /// The cost of its runs, in millionths of a US dollar.
    pub(super) fn cost_of_runs(&self) -> u64 {
        sum(self.shown.iter().map(ShownRun::cost))
    }

    /// The cost of its checks, in millionths of a US dollar.
    pub(super) fn cost_of_checks(&self) -> u64 {
        let judges = self.report.judges;
        judges.map_or(0, |judges| judges.cost_micro_usd)
    }
}

impl JudgedReplica {
    /// `wall_ms`: 0 of a run that was recorded before, whose record says how long it took.
    pub(super) fn of(
        checked: CheckedScenario,
        (wall_ms, abandoned_micro_usd): (u64, u64),
        error: Option<&str>,
    ) -> Self {
        let wall_ms = match wall_ms {
            0 => checked.envelope["totals"]["duration_ms"].as_u64(),
            measured => Some(measured),
        };
        Self {
            started: checked.started,
            results: match error {
                Some(error) => Err(error.to_owned()),
                None => Ok(checked.results),
            },
            shown: ShownRun::of(
                (checked.envelope, checked.tools),
                wall_ms.unwrap_or_default(),
                abandoned_micro_usd,
            ),
        }
    }

    /// The number of bytes of its contents: what the run did to its folder, and what is kept of its
    /// services.
    pub(super) fn bytes(&self) -> usize {
        let contents = [&self.started.workspace, &self.started.services];
        let lengths = contents.map(|one| one.as_ref().map_or(0, |text| text.as_str().len()));
        lengths.iter().sum()
    }
}

impl ShownRun {
    pub(super) fn of(
        (mut envelope, tools): (Value, ToolOutcomes),
        wall_ms: u64,
        abandoned_micro_usd: u64,
    ) -> Self {
        let output = envelope["output"].take();
        Self {
            wall_ms,
            totals: match envelope["totals"].take() {
                Value::Object(totals) => totals,
                _ => Map::new(),
            },
            output: match output.to_string().len() > MAX_OUTPUT {
                true => Value::Null,
                false => output,
            },
            exit_code: match envelope["status"].as_str() {
                Some("complete") => Some(0),
                Some("failed" | "cancelled") => Some(EXIT_VERDICT),
                _ => None,
            },
            tools,
            abandoned_micro_usd,
        }
    }

    /// A number of its totals.
    pub(super) fn total(&self, name: &str) -> u64 {
        let number = self.totals.get(name).and_then(Value::as_u64);
        number.unwrap_or_default()
    }

    /// Its cost, in millionths of a US dollar, with what was interrupted.
    pub(super) fn cost(&self) -> u64 {
        let own = self.total("cost_micro_usd");
        own.saturating_add(self.abandoned_micro_usd)
    }
}

/// A sum of numbers of the record, which may have any size.
pub(super) fn sum(numbers: impl IntoIterator<Item = u64>) -> u64 {
    numbers.into_iter().fold(0, u64::saturating_add)
}
