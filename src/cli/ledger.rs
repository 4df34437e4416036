//! `ktsu ledger`: making, copying and looking at a ledger as a whole.

use std::path::PathBuf;
use std::process::ExitCode;

use ktsu_ledger::appender::MIN_FREE_BYTES;
use ktsu_ledger::copy::Copied;
use ktsu_ledger::store::{LedgerStatus, Replica};
use ktsu_ledger::{Ledger, LedgerPlace, OwnError, Owned, Reader};
use serde_json::json;

use super::location::{ledger_at, nearby_ledger};
use super::output::{GOOD, is_live, line, note, painted, print_json, symbols, transient};
use super::reading::must_see_all;
use super::{Common, Failure, text};
use ktsu_evidence::facts;
use ktsu_opening::files::create_folder_of;

/// What `ledger` takes.
#[derive(Debug, clap::Subcommand)]
pub(super) enum LedgerCommand {
    /// Makes the ledger where there is none: its tables, in a database on a server
    Init(InitArguments),
    /// Copies the ledger to a place that is empty or has a part of the copy: from a file to a server, or
    /// back, and compares every frame
    Copy(CopyArguments),
    /// Shows who owns the ledger, how long it is, what follows its server, and what may lose frames
    Status,
}

/// What `ledger init` takes.
#[derive(Debug, clap::Args)]
pub(super) struct InitArguments {
    /// A role of the PostgreSQL server that gets the rights of an engine, which are not enough to change
    /// or to delete what was appended
    #[arg(long, value_name = "ROLE")]
    role: Option<String>,
}

/// What `ledger copy` takes.
#[derive(Debug, clap::Args)]
pub(super) struct CopyArguments {
    /// The place of the copy: a file, or postgres://ROLE@HOST/DATABASE
    #[arg(long, value_name = "LEDGER")]
    to: PathBuf,
}

/// Runs one of them.
pub(super) fn run(common: &Common, command: &LedgerCommand) -> Result<ExitCode, Failure> {
    match command {
        LedgerCommand::Init(arguments) => init(common, arguments),
        LedgerCommand::Copy(arguments) => copy(common, arguments),
        LedgerCommand::Status => status(common),
    }
}

fn init(common: &Common, arguments: &InitArguments) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let ledger = Ledger::open(&place.ledger);
    let role = arguments.role.as_deref();
    if let (Some(_), Some(file)) = (role, ledger.file()) {
        let words = format!(
            "{} has no roles: --role is for a ledger on PostgreSQL",
            file.display()
        );
        return Err(Failure::could_not_run(words));
    }
    let made = ledger
        .make()
        .map_err(|refused| not_owned(&place.ledger.to_string(), refused))?;
    role.map_or(Ok(()), |role| ledger.grant(role))?;
    if common.json {
        let mut body = json!({"ledger": place.ledger.to_string(), "made": made});
        if let Some(role) = role {
            body["role"] = role.into();
        }
        return print_json(&body);
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
    if let Some(role) = role {
        let role = text::line(role);
        line(&format!("  {role} may append to it, and change nothing"));
    }
    Ok(ExitCode::SUCCESS)
}

fn copy(common: &Common, arguments: &CopyArguments) -> Result<ExitCode, Failure> {
    let from = nearby_ledger(common)?.ledger;
    let to = ledger_at(arguments.to.clone())?;
    if from.to_string() == to.to_string() {
        return Err(Failure::could_not_run("a ledger is not copied to itself"));
    }
    must_see_all(&from)?;
    // A server shows one state while its owner works; a file does not.
    if from.file().is_some()
        && let Some(owner) = Ledger::open(&from).owner()?
    {
        let words = format!("{from} is owned by {}", owner.name);
        return Err(Failure::could_not_run(words).hint("stop it first, or copy a backup"));
    }
    let source = Ledger::open(&from).snapshot()?;
    to.file().map_or(Ok(()), create_folder_of)?;
    let copied = copy_all(source.as_ref(), &from.to_string(), &to)?;
    print_copied(common, &from.to_string(), &to.to_string(), &copied)
}

/// Copies everything that a reader of a ledger shows to a place, and compares it.
pub(super) fn copy_all(
    source: &dyn Reader,
    from: &str,
    to: &LedgerPlace,
) -> Result<Copied, Failure> {
    let target = Ledger::open(to);
    let refused = |refused: OwnError| not_owned(&to.to_string(), refused);
    target.make().map_err(refused)?;
    // The lock is bound first, so that it is given back last.
    let Owned {
        lock, mut store, ..
    } = target.own(MIN_FREE_BYTES).map_err(refused)?;
    let live = is_live();
    let mut shown = 0;
    let copied = ktsu_ledger::copy::copy(source, store.as_mut(), &mut |frames| {
        if live && frames >= shown + 10_000 {
            shown = frames;
            transient(&format!("  {} {frames} frames", symbols().ellipsis()));
        }
    });
    if live {
        transient("");
    }
    drop(store);
    drop(lock);
    copied.map_err(|why| {
        let words = format!("{from} was not copied to {to}: {why}");
        Failure::could_not_run(words)
    })
}

fn print_copied(
    common: &Common,
    from: &str,
    to: &str,
    copied: &Copied,
) -> Result<ExitCode, Failure> {
    if common.json {
        return print_json(&json!({
            "from": from, "to": to, "frames": copied.frames, "streams": copied.streams,
            "blobs": copied.blobs, "bytes": copied.bytes, "root": copied.root.to_string(),
        }));
    }
    line(&format!(
        "{} {} holds {} of {}, compared one by one",
        painted(GOOD, symbols().good()),
        text::line(to),
        text::count(copied.frames, "frame"),
        text::count(copied.streams, "stream")
    ));
    line(&format!("  root {}", copied.root));
    Ok(ExitCode::SUCCESS)
}

/// The failure for a ledger that this process cannot own.
fn not_owned(ledger: &str, refused: OwnError) -> Failure {
    match refused {
        OwnError::Held(owner) => {
            let words = format!("{ledger} is owned by {}", owner.name);
            Failure::could_not_run(words).hint("stop it first")
        }
        OwnError::Lock(lock) => Failure::could_not_run(lock.to_string()),
        OwnError::Store(error) => error.into(),
    }
}

fn status(common: &Common) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let ledger = Ledger::open(&place.ledger);
    // First, so that no checkpoint is over more frames than are shown.
    let last = facts::read(&ledger.reader()?)?.last;
    let status = ledger.status()?;
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
        Some(true) => "synchronous",
        Some(false) => "asynchronous",
        None => "of a kind that the role may not know",
    };
    let behind = match replica.behind {
        Some(bytes) => format!("{} behind", text::count(bytes, "byte")),
        None => "how far behind, the role may not know".to_owned(),
    };
    format!("{} ({kind}, {behind})", replica.name)
}
