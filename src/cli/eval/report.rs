//! The output on suites: lines while they run, and the report at their end.

use std::process::ExitCode;

use ktsu_eval::{CausedEvent, Scenario};
use ktsu_history::evals::{RunVerdict, ScenarioReport, ToolOutcomes};
use ktsu_ledger::event::{CheckResult, EvalEvent, EvalStatus, Score};
use serde_json::{Map, Value, json};

use super::super::check::{exit_code, print_judges, print_sandbox, print_scenario};
use super::super::layout::columns;
use super::super::output::{
    BAD, DIM, GOOD, WARN, is_live, line, note, painted, print_failure, print_json, row, transient,
};
use super::super::{Common, Failure, text};
use super::again::{Again, scenario_option};
use super::judged::{JudgedSuite, ShownRun, sum};

/// The most columns for what distinguishes scenarios.
const MAX_LABEL: usize = 40;

/// The lines of a suite that runs.
pub(super) struct SuiteProgress {
    names: Vec<String>,
    width: usize,
    replicas: u32,
    is_quiet: bool,
    judged: usize,
    passed: usize,
}

impl SuiteProgress {
    pub(super) fn new(scenarios: &[Scenario], replicas: u32, is_quiet: bool) -> Self {
        let names = scenarios
            .iter()
            .map(|one| text::line(one.name()).into_owned());
        let names: Vec<String> = names.collect();
        let width = names.iter().map(|name| columns(name)).max().unwrap_or(0);
        Self {
            names,
            width: width.min(MAX_LABEL),
            replicas,
            is_quiet,
            judged: 0,
            passed: 0,
        }
    }

    /// Shows the verdict on a run, and on its scenario if that was its last replica.
    pub(super) fn show(
        &mut self,
        (scenario, replica): (u32, u32),
        events: &[CausedEvent],
        shown: &ShownRun,
        spent: u64,
    ) {
        let run = events.iter().find_map(|(_, event)| match event {
            EvalEvent::ScenarioStarted(started) => Some(started.run.name()),
            _ => None,
        });
        let (run, name) = (run.unwrap_or_default(), self.names.get(scenario as usize));
        let name = name.map_or("", String::as_str).to_owned();
        for (_, event) in events {
            match event {
                EvalEvent::ScenarioFinished(finished) => {
                    self.judged += 1;
                    self.passed += usize::from(finished.passed);
                    let took = format!("{run} {}", text::duration(shown.wall_ms));
                    let replica = (self.replicas > 1).then_some(replica + 1);
                    self.line((&name, replica), finished.status, finished.composite, &took);
                }
                EvalEvent::Aggregated(all) => {
                    let of_all = format!("{} of {} passed", all.replicas.passed, self.replicas);
                    let flaky = if all.flaky { ", flaky" } else { "" };
                    let words = format!("{of_all}{flaky}");
                    self.line((&name, None), all.status, all.composite, &words);
                }
                _ => {}
            }
        }
        if !self.is_quiet && is_live() {
            let share = share(self.passed as u64, self.judged as u64);
            let runs = text::count(self.judged, "run");
            transient(&painted(
                DIM,
                &format!("{runs}, {share} passed, {}", text::cost(spent)),
            ));
        }
    }

    fn line(
        &self,
        (name, replica): (&str, Option<u32>),
        status: EvalStatus,
        composite: Score,
        words: &str,
    ) {
        if self.is_quiet {
            return;
        }
        self.end();
        let style = match status {
            EvalStatus::Passed => GOOD,
            EvalStatus::Failed => BAD,
            EvalStatus::Error => WARN,
        };
        let number = match replica {
            Some(replica) => format!("#{replica}"),
            None if self.replicas > 1 => "all".to_owned(),
            None => String::new(),
        };
        let (width, composite) = (self.width, composite.to_string());
        let places = match self.replicas {
            1 => 0,
            replicas => columns(&format!("#{replicas}")).max(columns("all")),
        };
        row(&format!(
            "{}  {name:<width$} {number:<places$} {composite:<14}  {}",
            painted(style, &format!("{:<6}", status.as_str())),
            painted(DIM, words)
        ));
    }

    /// Clears the last line.
    pub(super) fn end(&self) {
        if !self.is_quiet && is_live() {
            transient("");
        }
    }
}

/// A share in percent.
pub(super) fn share(part: u64, whole: u64) -> String {
    let permille = part
        .saturating_mul(1_000)
        .checked_div(whole)
        .unwrap_or_default();
    format!("{}.{}%", permille / 10, permille % 10)
}

/// Shows what was judged; the exit code is 2 where there is any error, else 1 where any failed
/// (decision V5).
pub(super) fn show(
    common: &Common,
    judged: &[JudgedSuite<'_>],
    again: &Again<'_>,
) -> Result<ExitCode, Failure> {
    let status = |status: &str| judged.iter().any(|one| one.report.status == status);
    let worst = match (status("error") || status("running"), status("failed")) {
        (true, _) => "error",
        (false, true) => "failed",
        (false, false) => "passed",
    };
    match (common.json, judged) {
        (true, [one]) => drop(print_json(&one.as_json(again))?),
        (true, many) => {
            let all: Vec<Value> = many.iter().map(|one| one.as_json(again)).collect();
            print_json(&json!({ "evals": all }))?;
        }
        (false, many) => many.iter().for_each(|one| one.print(again.ledger)),
    }
    for one in judged.iter().filter(|one| one.left_out > 0) {
        let (left, cost) = (text::count(one.left_out, "run"), text::cost(one.cost()));
        let id = &one.report.eval_id;
        print_failure(&format!(
            "{left} not begun, because the limit of cost is reached: {cost}. To finish: ktsu eval \
             resume {id} --cost-limit USD{}",
            again.options()
        ));
    }
    Ok(exit_code(worst))
}

impl JudgedSuite<'_> {
    /// The totals, in words.
    pub(super) fn totals(&self) -> String {
        let report = &self.report;
        let total = text::count(report.scenarios.len(), "scenario");
        let flaky = match report.flaky {
            0 => String::new(),
            count => format!(", {count} flaky"),
        };
        let replicas = report.replicas.map_or_else(String::new, |all| {
            format!(
                "; replicas: {} passed, {} failed, {} errors",
                all.passed, all.failed, all.errors
            )
        });
        format!(
            "{total}: {} passed, {} failed, {} errors{flaky}{replicas}",
            report.passed, report.failed, report.errors
        )
    }

    /// Prints the checks of the runs that did not pass, and the totals.
    fn print(&self, flag: &str) {
        let is_alone = self.shown.len() == 1;
        for (scenario, report, _) in self.rows() {
            let runs = report.runs().iter();
            for (number, run) in (1..).zip(runs).filter(|(_, run)| is_alone || !run.passed) {
                let number = match report {
                    ScenarioReport::Run(_) => String::new(),
                    ScenarioReport::Replicas(_) => format!(" #{number}"),
                };
                line("");
                line(&format!("{}{number}", text::line(scenario.name())));
                print_scenario(run);
            }
        }
        let report = &self.report;
        let share = share(report.passed, report.scenarios.len() as u64);
        let words = format!("{share} passed, {}", text::cost(self.cost()));
        line(&format!("{}  {}", self.totals(), painted(DIM, &words)));
        print_sandbox(report.sandbox.as_deref());
        print_judges(report);
        let id = &report.eval_id;
        note(&painted(
            DIM,
            &format!("recorded as {id}: ktsu evals {id}{flag}"),
        ));
    }

    /// As results of evals are exchanged (seed 003).
    fn as_json(&self, again: &Again<'_>) -> Value {
        let report = &self.report;
        let command = again.run(&self.suite.file.spec.path);
        let scenarios = self
            .rows()
            .map(|(scenario, verdict, shown)| self.scenario(scenario, verdict, shown, &command));
        let scenarios: Vec<Value> = scenarios.collect();
        let mut walls: Vec<u64> = self.shown.iter().map(|shown| shown.wall_ms).collect();
        walls.sort_unstable();
        let total = |name: &str| sum(self.shown.iter().map(|shown| shown.total(name)));
        let runs = self.shown.len() as u64;
        let cost = self.cost();
        let tools = ToolOutcomes {
            ok: sum(self.shown.iter().map(|shown| shown.tools.ok)),
            errors: sum(self.shown.iter().map(|shown| shown.tools.errors)),
        };
        let runs_of = report.scenarios.iter().flat_map(ScenarioReport::runs);
        let violations = runs_of.flat_map(forbidden).filter(|one| is_violated(one));
        let violations = violations.count();
        let mut shown = json!({
            "eval_id": report.eval_id,
            "ran_at": report.at,
            // For programs that expect the member.
            "seed": null,
            "spec_id": report.spec.file,
            "spec_digest": report.spec.digest,
            "status": report.status,
            "total_scenarios": scenarios.len(),
            "passed": report.passed,
            "failed": report.failed,
            "errors": report.errors,
            "flaky": report.flaky,
            "replicas": report.replicas,
            "sandbox": report.sandbox,
            "metrics": {
                "pass_rate": mean(report.passed, scenarios.len() as u64),
                "mean_wall_ms": mean(sum(walls.iter().copied()), runs),
                "p95_wall_ms": percentile(&walls, 95),
                "mean_tool_calls": mean(total("tool_calls"), runs),
                "mean_tokens": mean(total("tokens_in").saturating_add(total("tokens_out")), runs),
                "total_cost_micro_usd": cost,
                "total_cost_usd": usd(cost),
                "mean_cost_per_run_usd": mean(self.cost_of_runs(), runs.saturating_mul(1_000_000)),
                "tool_success_rate": mean(tools.ok, tools.ok.saturating_add(tools.errors)),
                "side_effect_violations": violations,
            },
            "scenarios": scenarios,
        });
        if let Some(judges) = report.judges {
            shown["judges"] = json!(judges);
        }
        shown
    }

    /// `command`: what runs the suite again.
    fn scenario(
        &self,
        scenario: &Scenario,
        verdict: &ScenarioReport,
        shown: &[ShownRun],
        command: &str,
    ) -> Value {
        let name = scenario.name();
        let mut members = Map::new();
        members.insert("scenario_id".to_owned(), json!(name));
        members.insert("parameters".to_owned(), json!(scenario.params));
        if !scenario.groups.is_empty() {
            members.insert("models".to_owned(), json!(scenario.groups));
        }
        match verdict {
            ScenarioReport::Run(run) => {
                let shown = shown.first();
                members.extend(shown.into_iter().flat_map(|shown| run_as_json(run, shown)));
            }
            ScenarioReport::Replicas(all) => {
                let replicas = all.replicas.iter().zip(shown);
                let replicas = replicas.map(|(run, shown)| Value::Object(run_as_json(run, shown)));
                members.extend([
                    ("status".to_owned(), json!(all.status)),
                    ("composite_score".to_owned(), json!(all.composite)),
                    ("flaky".to_owned(), json!(all.flaky)),
                    ("replicas".to_owned(), replicas.collect()),
                ]);
                members.extend(all.estimate.map(|it| ("estimate".to_owned(), json!(it))));
            }
        }
        let file = self.suite.file.spec.path.display().to_string();
        let option = match self.scenarios.len() {
            1 if self.suite.only.is_none() => String::new(),
            _ => scenario_option(name),
        };
        let reproducer = json!({"spec_file": file, "seed": null, "scenario_id": name,
            "parameters": scenario.params, "command": format!("{command}{option}")});
        members.insert("reproducer".to_owned(), reproducer);
        Value::Object(members)
    }
}

/// The members of a run.
fn run_as_json(run: &RunVerdict, shown: &ShownRun) -> Map<String, Value> {
    let of = |name: &str| shown.totals.get(name).cloned().unwrap_or_default();
    let mut members = Map::new();
    members.extend([
        ("run_id".to_owned(), json!(run.run_id)),
        ("status".to_owned(), json!(run.status)),
        ("wall_ms".to_owned(), json!(shown.wall_ms)),
        ("exit_code".to_owned(), json!(shown.exit_code)),
        ("tool_calls".to_owned(), of("tool_calls")),
        ("composite_score".to_owned(), json!(run.composite)),
        ("agent_output".to_owned(), shown.output.clone()),
        ("invariants".to_owned(), json!(run.results)),
        (
            "forbidden_checks".to_owned(),
            forbidden(run).map(rule).collect(),
        ),
        ("error".to_owned(), json!(run.error)),
    ]);
    let mut cost = json!({"input_tokens": of("tokens_in"), "output_tokens": of("tokens_out"),
        "estimated_usd": of("cost_usd")});
    if !run.abandoned.is_empty() {
        members.insert("abandoned".to_owned(), json!(run.abandoned));
        cost["abandoned_usd"] = usd(shown.abandoned_micro_usd);
    }
    members.insert("cost".to_owned(), cost);
    members
}

/// The results of checks for frames that must not be there.
fn forbidden(run: &RunVerdict) -> impl Iterator<Item = &CheckResult> {
    run.results.iter().filter(|one| one.check == "forbidden")
}

fn is_violated(result: &CheckResult) -> bool {
    result.status == EvalStatus::Failed
}

fn rule(result: &CheckResult) -> Value {
    let violated = match result.status {
        EvalStatus::Error => None,
        EvalStatus::Passed | EvalStatus::Failed => Some(is_violated(result)),
    };
    json!({"rule": result.name, "violated": violated, "details": result.reason})
}

fn usd(micro_usd: u64) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "an amount for people")]
    let usd = micro_usd as f64 / 1e6;
    json!(usd)
}

/// A mean for people; null of nothing.
fn mean(total: u64, count: u64) -> Value {
    match count {
        0 => Value::Null,
        #[expect(clippy::cast_precision_loss, reason = "a mean for people")]
        count => json!(total as f64 / count as f64),
    }
}

/// A percentile of sorted numbers, between two of them in proportion; null of nothing.
fn percentile(sorted: &[u64], percent: u64) -> Value {
    let Some(last) = (sorted.len() as u64).checked_sub(1) else {
        return Value::Null;
    };
    let hundredths = last * percent;
    let at = |index: u64| {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        sorted.get(index).copied().unwrap_or_default()
    };
    let (below, above) = (at(hundredths / 100), at(hundredths.div_ceil(100)));
    #[expect(clippy::cast_precision_loss, reason = "a percentile for people")]
    let between = (above - below) as f64 * (hundredths % 100) as f64 / 100.0;
    #[expect(clippy::cast_precision_loss, reason = "a percentile for people")]
    let found = below as f64 + between;
    json!(found)
}
