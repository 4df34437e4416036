//! `ktsu ledger`: making, copying and looking at a ledger as a whole.

use std::process::ExitCode;

use ktsu_ledger::store::{LedgerStatus, Replica};
use ktsu_ledger::{Ledger, OwnError};
use serde_json::json;

use super::location::nearby_ledger;
use super::output::{GOOD, line, note, painted, print_json, symbols};
use super::{Common, Failure, text};
use ktsu_evidence::facts;

/// What `ledger` takes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum LedgerCommand {
    /// Makes the ledger where there is none: its tables, in a database on a server
    Init,
    /// Shows who owns the ledger, how long it is, what follows its server, and what may lose frames
    Status,
}

/// Runs one of them.
pub(super) fn run(common: &Common, command: &LedgerCommand) -> Result<ExitCode, Failure> {
    match command {
        LedgerCommand::Init => init(common),
        LedgerCommand::Status => status(common),
    }
}

fn init(common: &Common) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let made = Ledger::open(&place.ledger)
        .make()
        .map_err(|refused| match refused {
            OwnError::Store(error) => error.into(),
            other => Failure::could_not_run(other.to_string()),
        })?;
    if common.json {
        return print_json(&json!({"ledger": place.ledger.to_string(), "made": made}));
    }
    let what = match made {
        true => "is made",
        false => "was made before",
    };
    line(&format!(
        "{} {} {what}",
        painted(GOOD, symbols().good()),
        text::line(&place.ledger.to_string())
    ));
    Ok(ExitCode::SUCCESS)
}

fn status(common: &Common) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let ledger = Ledger::open(&place.ledger);
    let status = ledger.status()?;
    let last = facts::read(&ledger.reader()?)?.last;
    let checkpoint = last.map(|(_, signed)| signed.size);
    if common.json {
        let body = json!({
            "ledger": place.ledger.to_string(),
            "checkpoint": checkpoint,
            "status": status,
        });
        return print_json(&body);
    }
    for (name, value) in rows(&place.ledger.to_string(), &status, checkpoint) {
        line(&format!("{name:<10} {}", text::line(&value)));
    }
    for warning in &status.warnings {
        note(&format!("warning: {warning}"));
    }
    Ok(ExitCode::SUCCESS)
}

/// What is shown, line by line.
fn rows(
    ledger: &str,
    status: &LedgerStatus,
    checkpoint: Option<u64>,
) -> Vec<(&'static str, String)> {
    let owner = status.owner.as_ref().map(|owner| match &owner.url {
        Some(url) => format!("{} at {url}", owner.name),
        None => owner.name.clone(),
    });
    let signed = checkpoint.map_or_else(|| "none".to_owned(), |size| size.to_string());
    let mut rows = vec![
        ("ledger", ledger.to_owned()),
        ("owner", owner.unwrap_or_else(|| "none".to_owned())),
        ("frames", status.position.to_string()),
        ("signed", signed),
        ("bytes", status.bytes.to_string()),
    ];
    rows.extend(status.epoch.map(|epoch| ("epoch", epoch.to_string())));
    rows.extend(status.replicas.iter().map(|one| ("standby", replica(one))));
    rows
}

fn replica(replica: &Replica) -> String {
    let kind = match replica.is_synchronous {
        true => "synchronous",
        false => "asynchronous",
    };
    let behind = match replica.behind {
        Some(bytes) => format!("{} behind", text::count(bytes, "byte")),
        None => "how far behind, the role may not know".to_owned(),
    };
    format!("{} ({kind}, {behind})", replica.name)
}
