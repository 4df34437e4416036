//! `ktsu evals`: the verdicts that were recorded.

use std::process::ExitCode;

use ktsu_ledger::store::Reader;
use ktsu_ledger::{Ledger, StreamId, Timestamp};
use serde_json::{Value, json};

use super::check::{exit_code, print_judges, print_sandbox, print_scenario};
use super::layout::Column;
use super::output::{line, line_dim, note, note_dim, print_json};
use super::reading::open;
use super::table::Rows;
use super::{Common, Failure, text};
use ktsu_history::eval_list;
use ktsu_history::evals::{self, EvalReport, ScenarioReport};
use ktsu_opening::find::{find_eval, find_run};

/// What `evals` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The eval to show: its id, or a unique prefix or suffix of it; without, all are listed
    eval: Option<String>,
    /// Only evals of this run
    #[arg(long, value_name = "RUN", conflicts_with = "eval")]
    run: Option<String>,
    /// The maximum number of evals, newest first
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    limit: u64,
}

/// Shows an eval, or lists them. The exit code of one that is shown is that of its verdict.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (reader, place) = open(common)?;
    // What has not ended is under way only as long as a process owns the ledger.
    let is_owned = Ledger::open(&place.ledger).owner()?.is_some();
    if let Some(asked) = &arguments.eval {
        return show(common, &reader, asked, is_owned);
    }
    let run = match &arguments.run {
        Some(run) => Some(find_run(&reader, run)?.0),
        None => None,
    };
    let limit = usize::try_from(arguments.limit).unwrap_or(usize::MAX);
    let found = eval_list::list(&reader, run.as_ref(), limit.saturating_add(1))?;
    let (listed, more) = found.split_at(found.len().min(limit));
    if common.json {
        let evals: Vec<Value> = listed.iter().map(evals::listed_in_json).collect();
        return print_json(&json!({ "evals": evals }));
    }
    if listed.is_empty() {
        note(&format!("no evals in {}", place.ledger));
        return Ok(ExitCode::SUCCESS);
    }
    print_list(listed, is_owned);
    if !more.is_empty() {
        note_dim("for more: --limit N");
    }
    Ok(ExitCode::SUCCESS)
}

/// The status of an eval, as it is shown.
fn shown(status: &str, is_owned: bool) -> &str {
    match status {
        "running" if !is_owned => "interrupted",
        status => status,
    }
}

fn show(
    common: &Common,
    reader: &dyn Reader,
    asked: &str,
    is_owned: bool,
) -> Result<ExitCode, Failure> {
    let stream = find_eval(reader, asked)?;
    let report = evals::read(reader, &stream).map_err(|error| match error {
        evals::EvalReadError::Store(error) => error.into(),
        evals::EvalReadError::Record(_) => {
            Failure::of(error).hint("to see what is damaged: ktsu verify")
        }
    })?;
    let Some(report) = report else {
        return Err(Failure::could_not_run(format!("there is no eval {asked}")));
    };
    match common.json {
        true => drop(print_json(&report)?),
        false => {
            report.scenarios.iter().for_each(print_verdict);
            if report.status == "running" {
                line(shown(&report.status, is_owned));
            }
            print_sandbox(report.sandbox.as_deref());
            print_judges(&report);
            let spec = text::line(&report.spec.file).into_owned();
            line_dim(&format!("{}, by {}, {}", spec, report.by, report.at));
        }
    }
    Ok(exit_code(&report.status))
}

/// Prints the verdict on a scenario: of each of its replicas, and of all.
fn print_verdict(scenario: &ScenarioReport) {
    scenario.runs().iter().for_each(print_scenario);
    if let ScenarioReport::Replicas(all) = scenario {
        let passed = all.replicas.iter().filter(|run| run.passed).count();
        let replicas = text::count(all.replicas.len(), "replica");
        let flaky = if all.flaky { ", flaky" } else { "" };
        let status = text::line(&all.status);
        line(&format!("{status}{flaky}: {passed} of {replicas} passed"));
        line("");
    }
}

fn print_list(evals: &[Result<EvalReport, StreamId>], is_owned: bool) {
    let mut table = Rows::new(&[
        Column::whole("EVAL"),
        Column::whole("VERDICT"),
        Column::whole("SCORE").right(),
        Column::whole("RUN").spare(1),
        Column::name("SPEC"),
        Column::whole("AT").spare(2),
    ]);
    for eval in evals {
        let report = match eval {
            Ok(report) => report,
            Err(stream) => {
                let unreadable = ["unreadable", "", "", "", ""].map(str::to_owned);
                let name = text::line(stream.name()).into_owned();
                table.push([vec![name], unreadable.to_vec()].concat());
                continue;
            }
        };
        let composite = report.scenarios.first().and_then(ScenarioReport::composite);
        let mut runs = report.scenarios.iter().flat_map(ScenarioReport::runs);
        let run = match (runs.next(), runs.count()) {
            (Some(one), 0) => one.run_id.clone(),
            (None, _) => text::count(0, "run"),
            (Some(_), others) => text::count(others + 1, "run"),
        };
        let at = report.at.parse::<Timestamp>();
        table.push(vec![
            text::line(&report.eval_id).into_owned(),
            shown(&report.status, is_owned).to_owned(),
            composite.map_or_else(String::new, |composite| composite.to_string()),
            text::line(&run).into_owned(),
            text::line(&report.spec.file).into_owned(),
            at.map(text::moment).unwrap_or_default(),
        ]);
    }
    table.print();
}
