//! `ktsu approvals`, `ktsu approve` and `ktsu reject`: tool calls that need a person's decision.

use std::process::ExitCode;

use ktsu_ledger::Timestamp;
use ktsu_ledger::id::BRANCH;
use ktsu_ledger::store::Reader;
use ktsu_projections::approvals::{ApprovalKind, ApprovalRecord, ApprovalStatus};
use serde_json::{Value, json};

use super::interventions::follow_and_print;
use super::layout::Column;
use super::output::{line, note, note_dim, print_json};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::{find_run, open, open_at};
use super::table::Rows;
use super::{Common, Failure, text};
use ktsu_codes::ErrorCode;
use ktsu_history::approvals;
use ktsu_orchestrator::clock::system_clock;

/// Runs that are looked at for `--all` and `--reviews`.
const DEFAULT_RUNS: usize = 10_000;

/// What `approvals` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only approvals of this run: its id, or a unique prefix or suffix of it
    run: Option<String>,
    /// Includes decided approvals
    #[arg(long)]
    all: bool,
    /// Lists instead runs that failed because an agent asked for human review
    #[arg(long, conflicts_with_all = ["run", "all"])]
    reviews: bool,
    /// Only approvals of this workflow
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    workflow: Option<String>,
}

/// What `approve` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Approve {
    /// The approval (apr_ID, or a unique prefix or suffix of it), or a run with a single one
    approval: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// For a call in doubt: it took effect, with this result; it is not sent again
    #[arg(long, value_name = "RESULT")]
    happened: Option<String>,
    /// Refuses to decide if the arguments have another digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What `reject` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Reject {
    /// The approval (apr_ID, or a unique prefix or suffix of it), or a run with a single one
    approval: String,
    /// The reason; the model sees it if the step continues
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// Lists what waits for people.
pub(super) fn list(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let (reader, place) = open(common)?;
    if arguments.reviews {
        return reviews(common, &reader, arguments.workflow.as_deref());
    }
    let workflow = arguments.workflow.as_deref();
    let mut records = match &arguments.run {
        Some(run) => {
            let (stream, scope) = find_run(&reader, run)?;
            let mut records = approvals::of_run(&reader, &stream)?;
            let within = format!("{}/{scope}", stream.name());
            records.retain(|record| scope.is_empty() || record.run_id == within);
            records
        }
        None if arguments.all => approvals::all_page(&reader, workflow, None, DEFAULT_RUNS)?.0,
        None => approvals::pending(&reader, workflow)?,
    };
    if !arguments.all {
        records.retain(|record| record.status == ApprovalStatus::Pending);
    }
    if common.json {
        return print_json(&json!(records));
    }
    if records.is_empty() {
        let kind = if arguments.all { "" } else { "pending " };
        note(&format!("no {kind}approvals in {}", place.path.display()));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Rows::new(&[
        Column::whole("APPROVAL"),
        Column::whole("RUN"),
        Column::name("STEP"),
        Column::name("TOOL"),
        Column::name("STATUS"),
        Column::text("BY").spare(1),
        Column::whole("UNTIL"),
    ]);
    for record in &records {
        table.push(row(record));
    }
    table.print();
    // Printed in full below the table: what people decide on must not be cut.
    for record in &records {
        line("");
        line(&format!(
            "{} {}",
            record.approval_id,
            text::line(&record.tool_name)
        ));
        for shown in ktsu_history::argument_lines(&record.arguments) {
            line(&format!("  {}", text::line(&shown)));
        }
    }
    if let Some(first) = records
        .iter()
        .find(|record| record.status == ApprovalStatus::Pending)
    {
        note("");
        note_dim(&format!(
            "  ktsu approve {} --digest {}{}",
            first.approval_id, first.digest, place.flag
        ));
        note_dim(&format!(
            "  ktsu reject {} --reason TEXT{}",
            first.approval_id, place.flag
        ));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(record: &ApprovalRecord) -> Vec<String> {
    let by: Vec<&str> = record.votes.iter().map(|vote| vote.by.as_str()).collect();
    let status = match (record.status, record.kind) {
        (ApprovalStatus::Pending, ApprovalKind::InDoubt) => "in doubt",
        (_, _) if record.not_called.is_some() => "approved, not called: step ended",
        (status, _) => status.as_str(),
    };
    vec![
        record.approval_id.clone(),
        text::line(&record.run_id).into_owned(),
        text::line(&record.step_id).into_owned(),
        text::line(&format!("{} of {}", record.tool_name, record.server)).into_owned(),
        status.to_owned(),
        match record.quorum {
            0 | 1 => text::line(&by.join(", ")).into_owned(),
            of => format!("{} of {of} {}", by.len(), text::line(&by.join(", "))),
        },
        record.expires_at.map_or("-".to_owned(), until),
    ]
}

/// The deadline of an approval, marked once it has passed, even if no timer has fired yet.
fn until(at: Timestamp) -> String {
    let shown = text::moment(at);
    match at <= system_clock()() {
        true => format!("{shown} (passed)"),
        false => shown,
    }
}

/// A recorded time, to the second.
fn moment(at: &str) -> String {
    let read: Option<Timestamp> = at.parse().ok();
    read.map_or_else(|| text::line(at).into_owned(), text::moment)
}

fn reviews(
    common: &Common,
    reader: &dyn Reader,
    workflow: Option<&str>,
) -> Result<ExitCode, Failure> {
    let (found, _) = approvals::reviews_page(reader, workflow, None, DEFAULT_RUNS)?;
    if common.json {
        return print_json(&json!(found));
    }
    if found.is_empty() {
        note("no runs waiting for review");
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Rows::new(&[
        Column::whole("RUN"),
        Column::name("WORKFLOW"),
        Column::whole("STARTED").spare(2),
        Column::whole("ENDED").spare(1),
    ]);
    for review in &found {
        table.push(vec![
            text::line(&review.run_id).into_owned(),
            text::line(&review.workflow).into_owned(),
            moment(&review.created_at),
            moment(review.ended_at.as_deref().unwrap_or("-")),
        ]);
    }
    table.print();
    Ok(ExitCode::SUCCESS)
}

/// Approves a call, or records the outcome of one in doubt.
pub(super) async fn approve(common: &Common, arguments: Approve) -> Result<ExitCode, Failure> {
    let mut body = match arguments.happened {
        Some(result) => json!({"decision": "happened", "result": result}),
        None => json!({"decision": "approved"}),
    };
    if let Some(digest) = arguments.digest {
        body["digest"] = Value::from(digest);
    }
    decide(
        common,
        &arguments.approval,
        arguments.engine,
        arguments.reason,
        body,
    )
    .await
}

/// Rejects a call.
pub(super) async fn reject(common: &Common, arguments: Reject) -> Result<ExitCode, Failure> {
    let body = json!({"decision": "rejected"});
    decide(
        common,
        &arguments.approval,
        arguments.engine,
        arguments.reason,
        body,
    )
    .await
}

/// Sends a decision to the owner of the ledger. If there is none, this process continues the run
/// until it ends or waits again.
async fn decide(
    common: &Common,
    approval: &str,
    engine: EngineArguments,
    reason: Option<String>,
    mut body: Value,
) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, &engine)?;
    let record = find_record(&open_at(&place.path)?, approval)?;
    body["approval_id"] = Value::from(record.approval_id.as_str());
    if let Some(reason) = reason {
        body["reason"] = Value::from(reason);
    }
    let owner = EngineHandle::open(place, &engine, true).await?;
    let path = path_of(&record);
    let decided = match owner.post(&path, &body, None).await {
        Ok(decided) => decided,
        Err(late) if owner.is_ours() && late.problem() == Some(ErrorCode::ApprovalExpired) => {
            // The decision is recorded now, and the run continues as its policy says.
            let run = record.run_id.split('/').next().unwrap_or_default();
            follow_and_print(common, owner, run, true).await?;
            return Err(late);
        }
        Err(failure) => {
            owner.close().await?;
            return Err(failure);
        }
    };
    if owner.is_ours() {
        let run = record.run_id.split('/').next().unwrap_or_default();
        note_dim(&decision_text(&record, &decided));
        return follow_and_print(common, owner, run, true).await;
    }
    let flag = owner.place.flag.clone();
    owner.close().await?;
    if common.json {
        return print_json(&decided);
    }
    line(&decision_text(&record, &decided));
    note_dim(&format!("  ktsu trace {}{flag}", record.run_id));
    Ok(ExitCode::SUCCESS)
}

/// Where a decision about a call goes.
pub(super) fn path_of(record: &ApprovalRecord) -> String {
    let run = record.run_id.replace('/', "%2F");
    format!("/runs/{run}/steps/{}/approval/decide", record.step_id)
}

fn decision_text(record: &ApprovalRecord, decided: &Value) -> String {
    let status = decided["status"].as_str().unwrap_or_default();
    let votes = decided["votes"].as_array().map_or(0, Vec::len);
    match status {
        "pending" => votes_text(record, votes),
        status => format!("{}: {status}", text::line(&record.tool_name)),
    }
}

/// That more people have to approve.
pub(super) fn votes_text(record: &ApprovalRecord, votes: usize) -> String {
    let (tool, of) = (text::line(&record.tool_name), record.quorum);
    format!("{tool}: {votes} of {of} have approved")
}

/// The fewest characters of an id that mean something.
const MIN_ID_CHARS: usize = 3;

/// The record that a text means: by its id, or the only one of a run that waits.
fn find_record(reader: &dyn Reader, query: &str) -> Result<ApprovalRecord, Failure> {
    let given = query.trim();
    if without_prefix(split(given).0).1.len() < MIN_ID_CHARS {
        let words = format!("{query:?} is too short to identify an approval");
        return Err(Failure::could_not_run(words).hint(
            "give at least three characters of the id after apr_ or run_; ktsu approvals lists them",
        ));
    }
    let pending = approvals::pending(reader, None)?;
    let found: Vec<&ApprovalRecord> = pending
        .iter()
        .filter(|one| matches_id(given, one))
        .collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => Err(
            Failure::could_not_run(format!("no pending approval matches {query:?}"))
                .hint("to list all: ktsu approvals --all"),
        ),
        several => {
            let ids: Vec<&str> = several.iter().map(|one| one.approval_id.as_str()).collect();
            let words = format!("{query:?} matches several approvals: {}", ids.join(", "));
            Err(Failure::could_not_run(words).hint("give more of the id"))
        }
    }
}

/// Whether a text is any part of the beginning or end of a record's id, or of its run's; of that of
/// an inline child with its whole path behind. What every id begins with means none of them.
fn matches_id(given: &str, record: &ApprovalRecord) -> bool {
    let fits = |given: &str, id: &str| {
        let (kind, part) = without_prefix(given);
        let (of, id) = without_prefix(id);
        let same = kind.is_empty() || kind == of;
        same && (id.starts_with(part) || (kind.is_empty() && id.ends_with(part)))
    };
    let (run, scope) = split(&record.run_id);
    match split(given) {
        (given, "") => fits(given, &record.approval_id) || fits(given, run),
        (given, within) => within == scope && fits(given, run),
    }
}

fn split(run: &str) -> (&str, &str) {
    run.split_once('/').unwrap_or((run, ""))
}

/// Splits an id into its kind prefix and the rest.
fn without_prefix(id: &str) -> (&str, &str) {
    let kinds = ["apr_", "run_", BRANCH];
    let kind = kinds.into_iter().find(|kind| id.starts_with(kind));
    kind.map_or(("", id), |kind| id.split_at(kind.len()))
}

#[cfg(test)]
mod tests;
