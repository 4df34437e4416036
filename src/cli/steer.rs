//! `ktsu pause`, `ktsu cancel` and `ktsu terminate`: control of whole runs (decision P1).

use std::io::{BufRead as _, IsTerminal as _};
use std::process::ExitCode;

use ktsu_ledger::StreamId;
use ktsu_ledger::store::{Cursor, Filter, Reader};
use serde_json::{Map, Value, json};

use super::output::{exit_code, is_quiet, line, note, note_dim, print_failure};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::{Common, Failure, json as shape, output, text};
use ktsu_codes::{EXIT_COULD_NOT_RUN, ErrorCode};
use ktsu_opening::find::find_run;
use ktsu_run_index::listed_kinds;
use ktsu_workflow::admit::steer::RunControl;

/// The statuses of runs that have not ended.
const UNFINISHED_STATUSES: [&str; 3] = ["pending", "running", "waiting"];

/// What the three take.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run or branch: its id, or a unique prefix or suffix of it
    #[arg(required_unless_present = "workflow", conflicts_with = "workflow")]
    run: Option<String>,
    /// Every unfinished run of this workflow, after confirmation
    #[arg(long, value_name = "WORKFLOW")]
    workflow: Option<String>,
    /// With --workflow: only runs with this status
    #[arg(long, requires = "workflow", conflicts_with = "run", value_parser = UNFINISHED_STATUSES)]
    status: Option<String>,
    /// Does not ask for confirmation
    #[arg(long, requires = "workflow", conflicts_with = "run")]
    yes: bool,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// The last frame you know of: refuses if the run has moved on
    #[arg(long, value_name = "FRAME", conflicts_with = "workflow")]
    expect: Option<u64>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Pauses, cancels or terminates one run or many.
pub(super) async fn run(
    common: &Common,
    steer: RunControl,
    arguments: Arguments,
) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    let reader = open_at(&place.ledger)?;
    let (runs, one) = match (&arguments.run, &arguments.workflow) {
        (Some(run), _) => (vec![whole(&reader, steer, run)?], true),
        (None, workflow) => {
            let filter = Filter {
                kinds: listed_kinds(),
                workflow: workflow.clone(),
                status: arguments.status.clone(),
                open: None,
            };
            (unfinished(&reader, &filter)?, false)
        }
    };
    drop(reader);
    if runs.is_empty() {
        match common.json {
            true => line(&json!({"runs": [], "refused": []}).to_string()),
            false => {
                note("no matching runs");
                true
            }
        };
        return Ok(ExitCode::SUCCESS);
    }
    if !one && !arguments.yes && !confirm(steer, &runs)? {
        print_failure("nothing was done");
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    }
    let mut body = Map::new();
    body.extend(
        arguments
            .reason
            .map(|why| ("reason".to_owned(), json!(why))),
    );
    let body = Value::Object(body);
    let owner = EngineHandle::open(place, &arguments.engine.without_kit(), false).await?;
    let results = send_to_all(&owner, steer, &runs, (&body, arguments.expect)).await;
    let flag = owner.place.flag.clone();
    owner.close().await?;
    if one {
        let outcome = results.into_iter().next().transpose()?;
        let outcome = outcome.unwrap_or_default();
        line(&match common.json {
            true => outcome.to_string(),
            false => outcome_text(&outcome),
        });
        if steer == RunControl::Pause && !common.json {
            let run = outcome["run_id"].as_str().unwrap_or_default();
            let next = format!("  ktsu resume {run} --kit DIR{flag}");
            note_dim(&next);
        }
        return Ok(ExitCode::SUCCESS);
    }
    Ok(print_all(common, &runs, results))
}

/// Prints the results for many runs, including refusals.
fn print_all(common: &Common, runs: &[String], results: Vec<Result<Value, Failure>>) -> ExitCode {
    let (mut done, mut refused) = (Vec::new(), Vec::new());
    for (run, result) in runs.iter().zip(results) {
        match result {
            Ok(outcome) => done.push(outcome),
            Err(failure) => refused.push((run, failure)),
        }
    }
    if common.json {
        let refused = refused.iter().map(|(run, failure)| {
            let code = failure.problem().map(ErrorCode::as_str);
            json!({"run_id": run, "code": code, "error": failure.message()})
        });
        let refused: Vec<Value> = refused.collect();
        let all = json!({"runs": done, "refused": refused});
        line(&shape::pretty(&all.to_string()));
    } else {
        for outcome in &done {
            line(&outcome_text(outcome));
        }
    }
    let verdict = exit_code(refused.is_empty());
    for (run, failure) in refused {
        output::fail(&failure.about(run));
    }
    verdict
}

async fn send_to_all(
    owner: &EngineHandle,
    steer: RunControl,
    runs: &[String],
    (body, expected): (&Value, Option<u64>),
) -> Vec<Result<Value, Failure>> {
    let mut results = Vec::with_capacity(runs.len());
    for run in runs {
        let path = format!("/runs/{run}/{}", steer.as_str());
        results.push(owner.post(&path, body, expected).await);
    }
    results
}

/// `run_… cancelled`.
fn outcome_text(outcome: &Value) -> String {
    let text = |name: &str| outcome[name].as_str().unwrap_or_default().to_owned();
    format!("{} {}", text("run_id"), text("status"))
}

/// The run that is meant: a whole one.
fn whole(reader: &dyn Reader, steer: RunControl, run: &str) -> Result<String, Failure> {
    let (stream, scope) = find_run(reader, run)?;
    let (verb, id) = (steer.as_str(), stream.name());
    if scope.is_empty() {
        return Ok(id.to_owned());
    }
    let words = format!("{verb} works on whole runs only, here {id}");
    Err(Failure::could_not_run(words).hint(format!("ktsu {verb} {id}")))
}

/// The runs that a filter lets through and that have not ended, newest first.
fn unfinished(reader: &dyn Reader, filter: &Filter) -> Result<Vec<String>, Failure> {
    let wanted = filter.status.as_deref();
    let mut found = Vec::new();
    for status in UNFINISHED_STATUSES
        .iter()
        .filter(|one| wanted.is_none_or(|wanted| wanted == **one))
    {
        let filter = Filter {
            status: Some((*status).to_owned()),
            ..filter.clone()
        };
        let mut cursor: Option<Cursor> = None;
        loop {
            let page = reader.list(&filter, cursor.as_ref(), 1000)?;
            found.extend(
                page.rows
                    .into_iter()
                    .map(|row| (row.created_us, row.stream)),
            );
            cursor = page.next;
            if cursor.is_none() {
                break;
            }
        }
    }
    found.sort_by(|one, other| other.cmp(one));
    let names = found
        .iter()
        .map(|(_, stream)| StreamId::name(stream).to_owned());
    Ok(names.collect())
}

/// Asks for confirmation at the terminal.
fn confirm(steer: RunControl, runs: &[String]) -> Result<bool, Failure> {
    let verb = steer.as_str();
    let count = text::count(runs.len(), "run");
    if is_quiet() || !std::io::stdin().is_terminal() {
        let words = format!("{verb} {count}: confirmation needs a terminal");
        return Err(Failure::could_not_run(words).hint("to skip confirmation: --yes"));
    }
    for run in runs.iter().take(10) {
        note(run);
    }
    if let Some(rest) = runs.len().checked_sub(10).filter(|rest| *rest > 0) {
        note(&format!("and {rest} more"));
    }
    note(&format!("{verb} {count}? [y/N]"));
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}
