//! `ktsu approvals`, `ktsu approve` and `ktsu reject`: tool calls and outcomes that need a person's
//! decision.

use std::process::ExitCode;

use ktsu_ledger::Timestamp;
use ktsu_ledger::id::BRANCH;
use ktsu_ledger::store::Reader;
use ktsu_projections::approvals::{ApprovalKind, ApprovalStatus};
use ktsu_projections::person_requests::PersonRequest;
use serde_json::{Map, Value, json};

use super::interventions::follow_and_print;
use super::layout::Column;
use super::location::LedgerLocation;
use super::output::{line, note, note_dim, print_json};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::{open, open_at};
use super::request_text::{shown_lines, votes_text};
use super::table::Rows;
use super::{Common, Failure, text};
use ktsu_codes::ErrorCode;
use ktsu_history::approvals;
use ktsu_opening::find::find_run;
use ktsu_orchestrator::clock::system_clock;

/// Runs that are looked at for `--all` and `--reviews`.
const DEFAULT_RUNS: usize = 10_000;

/// What `approvals` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Only what waits in this run: its id, or a unique prefix or suffix of it
    run: Option<String>,
    /// Includes what was decided
    #[arg(long)]
    all: bool,
    /// Lists instead runs that failed because an agent asked for human review
    #[arg(long, conflicts_with_all = ["run", "all"])]
    reviews: bool,
    /// Only what waits in runs of this workflow
    #[arg(long, value_name = "NAME", conflicts_with = "run")]
    workflow: Option<String>,
}

/// What `approve` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Approve {
    /// The call or output: apr_ID or rev_ID, a unique prefix or suffix, or a run in which one waits
    approval: String,
    /// The reason
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
    /// For a review: a field of the output that gets another value, JSON or text; may be repeated
    #[arg(long, value_name = "FIELD=VALUE")]
    overlay: Vec<String>,
    /// For a call in doubt: it took effect, with this result; it is not sent again
    #[arg(long, value_name = "RESULT")]
    happened: Option<String>,
    /// For a call: refuses to decide if its arguments have another digest
    #[arg(long, value_name = "DIGEST")]
    digest: Option<String>,
    #[command(flatten)]
    engine: EngineArguments,
}

/// What `reject` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Reject {
    /// The call or output: apr_ID or rev_ID, a unique prefix or suffix, or a run in which one waits
    approval: String,
    /// The reason; of a call, the model sees it if the step continues
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
            let mut records = approvals::requests_of_run(&reader, &stream)?;
            let within = format!("{}/{scope}", stream.name());
            records.retain(|record| scope.is_empty() || record.run_id() == within);
            records
        }
        None if arguments.all => approvals::all_page(&reader, workflow, None, DEFAULT_RUNS)?.0,
        None => approvals::pending(&reader, workflow)?,
    };
    if !arguments.all {
        records.retain(|record| record.status() == ApprovalStatus::Pending);
    }
    if common.json {
        return print_json(&json!(records));
    }
    if records.is_empty() {
        let kind = if arguments.all { "" } else { "pending " };
        note(&format!("no {kind}approvals in {}", place.ledger));
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Rows::new(&[
        Column::whole("APPROVAL"),
        Column::whole("RUN"),
        Column::name("STEP"),
        Column::name("ABOUT"),
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
        line(&format!("{} {}", record.id(), text::line(record.about())));
        for shown in shown_lines(record) {
            line(&format!("  {}", text::line(&shown)));
        }
    }
    let mut waiting = records.iter();
    if let Some(first) = waiting.find(|record| record.status() == ApprovalStatus::Pending) {
        let digest = match first {
            PersonRequest::Approval(approval) => format!(" --digest {}", approval.digest),
            PersonRequest::Review(_) | PersonRequest::Suspension(_) => String::new(),
        };
        let (id, flag) = (first.id(), &place.flag);
        note("");
        if matches!(first, PersonRequest::Suspension(_)) {
            note_dim(&format!("  ktsu resume {id} --data @FILE{flag}"));
            return Ok(ExitCode::SUCCESS);
        }
        note_dim(&format!("  ktsu approve {id}{digest}{flag}"));
        note_dim(&format!("  ktsu reject {id} --reason TEXT{flag}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn row(record: &PersonRequest) -> Vec<String> {
    let votes = record.votes().iter();
    let by: Vec<&str> = votes.map(|vote| vote.by.as_str()).collect();
    let (about, status) = match record {
        PersonRequest::Review(review) => ("its output".to_owned(), review.status.as_str()),
        PersonRequest::Suspension(waits) => ("data".to_owned(), waits.status.as_str()),
        PersonRequest::Approval(call) => {
            let status = match (call.status, call.kind) {
                (ApprovalStatus::Pending, ApprovalKind::InDoubt) => "in doubt",
                (_, _) if call.not_called.is_some() => "approved, not called: step ended",
                (status, _) => status.as_str(),
            };
            (format!("{} of {}", call.tool_name, call.server), status)
        }
    };
    vec![
        record.id().to_owned(),
        text::line(record.run_id()).into_owned(),
        text::line(record.step_id()).into_owned(),
        text::line(&about).into_owned(),
        status.to_owned(),
        match record.quorum() {
            0 | 1 => text::line(&by.join(", ")).into_owned(),
            of => format!("{} of {of} {}", by.len(), text::line(&by.join(", "))),
        },
        until(record),
    ]
}

/// The deadline of a record, marked once it has passed, even if no timer has fired yet; or how much
/// time is left while the run is paused.
fn until(record: &PersonRequest) -> String {
    let Some(at) = record.expires_at() else {
        return "-".to_owned();
    };
    if let Some(paused) = record.paused_at() {
        let left = text::duration(at.millis_since(paused));
        return format!("paused, {left} left");
    }
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

/// Fields and their values: `verdict=no`.
fn overlay(given: &[String]) -> Result<Map<String, Value>, Failure> {
    let read = |text: &String| {
        let wrong = || {
            Failure::could_not_run(format!("{text:?} is not FIELD=VALUE"))
                .hint("ktsu approve rev_ID --overlay verdict=no")
        };
        let (field, value) = text.split_once('=').ok_or_else(wrong)?;
        if field.is_empty() {
            return Err(wrong());
        }
        let value = serde_json::from_str(value).unwrap_or_else(|_| Value::from(value));
        Ok((field.to_owned(), value))
    };
    given.iter().map(read).collect()
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
    if !arguments.overlay.is_empty() {
        body["overlay"] = Value::Object(overlay(&arguments.overlay)?);
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

/// Sends a decision.
async fn decide(
    common: &Common,
    approval: &str,
    engine: EngineArguments,
    reason: Option<String>,
    mut body: Value,
) -> Result<ExitCode, Failure> {
    let place = EngineHandle::ledger_location(common, &engine)?;
    let record = find_record(&open_at(&place.ledger)?, approval)?;
    name_record(&record, &mut body)?;
    if let Some(reason) = reason {
        body["reason"] = Value::from(reason);
    }
    send(common, engine, (place, &record), body).await
}

/// Sends what people say to the owner of the ledger. If there is none, this process continues the run
/// until it ends or waits again.
pub(super) async fn send(
    common: &Common,
    engine: EngineArguments,
    (place, record): (LedgerLocation, &PersonRequest),
    body: Value,
) -> Result<ExitCode, Failure> {
    let owner = EngineHandle::open(place, &engine, true).await?;
    let path = record.decide_path();
    let decided = match owner.post(&path, &body, None).await {
        Ok(decided) => decided,
        Err(late) if owner.is_ours() && is_late(&late) => {
            // The decision is recorded now, and the run continues as its policy says.
            let run = record.run_id().split('/').next().unwrap_or_default();
            follow_and_print(common, owner, run, true).await?;
            return Err(late);
        }
        Err(failure) => {
            owner.close().await?;
            return Err(failure);
        }
    };
    if owner.is_ours() {
        let run = record.run_id().split('/').next().unwrap_or_default();
        note_dim(&decision_text(record, &decided));
        return follow_and_print(common, owner, run, true).await;
    }
    let flag = owner.place.flag.clone();
    owner.close().await?;
    if common.json {
        return print_json(&decided);
    }
    line(&decision_text(record, &decided));
    note_dim(&format!("  ktsu trace {}{flag}", record.run_id()));
    Ok(ExitCode::SUCCESS)
}

/// Adds which record is meant to a decision, which has no members that do not go with it.
fn name_record(record: &PersonRequest, body: &mut Value) -> Result<(), Failure> {
    let (name, others) = match record {
        PersonRequest::Suspension(_) => {
            let words = format!("{} waits for data, not for a decision", record.id());
            let hint = format!("ktsu resume {} --data @FILE", record.id());
            return Err(Failure::could_not_run(words).hint(hint));
        }
        PersonRequest::Review(_) => ("review_id", ["digest", "result"].as_slice()),
        PersonRequest::Approval(_) => ("approval_id", ["overlay"].as_slice()),
    };
    if let Some(other) = others.iter().find(|other| body.get(**other).is_some()) {
        let option = match *other {
            "result" => "happened",
            other => other,
        };
        let what = match record {
            PersonRequest::Review(_) => "a review",
            PersonRequest::Approval(_) | PersonRequest::Suspension(_) => "an approval of a call",
        };
        let words = format!("--{option} does not go with {what}: {}", record.id());
        return Err(Failure::could_not_run(words).hint("leave it out"));
    }
    body[name] = Value::from(record.id());
    Ok(())
}

/// Returns `true` if a decision came after its time was over.
fn is_late(failure: &Failure) -> bool {
    matches!(
        failure.problem(),
        Some(ErrorCode::ApprovalExpired | ErrorCode::ReviewExpired | ErrorCode::SuspensionOver)
    )
}

fn decision_text(record: &PersonRequest, decided: &Value) -> String {
    let status = decided["status"].as_str().unwrap_or_default();
    let votes = decided["votes"].as_array().map_or(0, Vec::len);
    match status {
        "pending" => votes_text(record, votes),
        status => format!("{}: {status}", text::line(record.about())),
    }
}

/// The fewest characters of an id that mean something.
const MIN_ID_CHARS: usize = 3;

/// The record that a text means: by its id, or the only one of a run that waits.
pub(super) fn find_record(reader: &dyn Reader, query: &str) -> Result<PersonRequest, Failure> {
    let given = query.trim();
    if without_prefix(split(given).0).1.len() < MIN_ID_CHARS {
        let words = format!("{query:?} is too short to identify an approval");
        return Err(Failure::could_not_run(words).hint(
            "give at least three characters of the id after apr_, rev_, sus_ or run_; ktsu approvals lists them",
        ));
    }
    let pending = approvals::pending(reader, None)?;
    let found: Vec<&PersonRequest> = pending
        .iter()
        .filter(|one| matches_id(given, one))
        .collect();
    match found.as_slice() {
        [one] => Ok((*one).clone()),
        [] => {
            let words = match is_whole_id(given) {
                true => over(reader, given)?,
                false => None,
            };
            let words = words.unwrap_or_else(|| format!("no pending approval matches {query:?}"));
            Err(Failure::could_not_run(words).hint("to list all: ktsu approvals --all"))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|one| one.id()).collect();
            let words = format!("{query:?} matches several approvals: {}", ids.join(", "));
            Err(Failure::could_not_run(words).hint("give more of the id"))
        }
    }
}

/// The digits of the id of a record, after its prefix.
const ID_DIGITS: usize = 16;

/// Returns `true` if a text is the id of a record, and not a part of one.
fn is_whole_id(given: &str) -> bool {
    let (kind, rest) = without_prefix(given);
    ["apr_", "rev_", "sus_"].contains(&kind)
        && rest.len() == ID_DIGITS
        && rest.chars().all(|digit| digit.is_ascii_hexdigit())
}

/// The end of the record of an id, in words, if there is such a record.
fn over(reader: &dyn Reader, id: &str) -> Result<Option<String>, Failure> {
    let (all, _) = approvals::all_page(reader, None, None, DEFAULT_RUNS)?;
    Ok(all.iter().find(|record| record.id() == id).map(ended_text))
}

pub(super) fn ended_text(record: &PersonRequest) -> String {
    let id = record.id();
    let is_data = matches!(record, PersonRequest::Suspension(_));
    let status = match record.status() {
        ApprovalStatus::Timeout if is_data => {
            return format!("there were no data for {id} in time");
        }
        ApprovalStatus::Void if is_data => {
            return format!("the step of {id} ended before its data came");
        }
        ApprovalStatus::Timeout => return format!("there was no decision on {id} in time"),
        ApprovalStatus::Void => return format!("the step of {id} ended before a decision"),
        status => status.as_str(),
    };
    let by = record.votes().last().map(|vote| format!(" by {}", vote.by));
    let by = by.unwrap_or_default();
    let by = text::line(&by);
    match record {
        PersonRequest::Suspension(_) => format!("{id} was already {status}{by}"),
        PersonRequest::Review(_) | PersonRequest::Approval(_) => {
            format!("{id} was already decided: {status}{by}")
        }
    }
}

/// Returns `true` if a text is any part of the beginning or end of a record's id, or of its run's;
/// of that of an inline child with its whole path behind. What every id begins with means none of
/// them.
fn matches_id(given: &str, record: &PersonRequest) -> bool {
    let fits = |given: &str, id: &str| {
        let (kind, part) = without_prefix(given);
        let (of, id) = without_prefix(id);
        let same = kind.is_empty() || kind == of;
        same && (id.starts_with(part) || (kind.is_empty() && id.ends_with(part)))
    };
    let (run, scope) = split(record.run_id());
    match split(given) {
        (given, "") => fits(given, record.id()) || fits(given, run),
        (given, within) => within == scope && fits(given, run),
    }
}

fn split(run: &str) -> (&str, &str) {
    run.split_once('/').unwrap_or((run, ""))
}

/// Splits an id into its kind prefix and the rest.
fn without_prefix(id: &str) -> (&str, &str) {
    let kinds = ["apr_", "rev_", "sus_", "run_", BRANCH];
    let kind = kinds.into_iter().find(|kind| id.starts_with(kind));
    kind.map_or(("", id), |kind| id.split_at(kind.len()))
}

#[cfg(test)]
mod tests;
