//! `ktsu backup` and `ktsu restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::LedgerPlace;
use ktsu_ledger::backup::{self, BackupError};
use ktsu_ledger::lock;
use ktsu_ledger::verify::VerifyReport;
use serde_json::json;

use super::location::{ledger_at, nearby_ledger};
use super::output::{GOOD, line, note, painted, print_json, symbols};
use super::reading::{must_see_all, warn_of_second_name};
use super::{Common, Failure, text};
use ktsu_opening::files::create_folder_of;
use ktsu_opening::quoting::quoted;

/// What `backup` takes.
#[derive(Debug, clap::Args)]
pub(super) struct BackupArguments {
    /// The copy, which must not exist yet
    file: PathBuf,
}

/// What `restore` takes.
#[derive(Debug, clap::Args)]
pub(super) struct RestoreArguments {
    /// The copy to restore from
    file: PathBuf,
    /// The ledger to create, which must not exist yet [default: the usual one]
    #[arg(long, value_name = "LEDGER")]
    to: Option<PathBuf>,
}

/// Copies a ledger, in use or not.
pub(super) fn backup(common: &Common, arguments: &BackupArguments) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    must_see_all(&place.ledger)?;
    warn_of_second_name(&place.ledger);
    let file = file_of(&place.ledger)?;
    let copied = backup::backup(file, &arguments.file, true);
    let report = copied.map_err(explain)?.unwrap_or_default();
    let name = arguments.file.display().to_string();
    print(common, &report, &name, "holds")
}

/// Makes a ledger out of a copy.
pub(super) fn restore(common: &Common, arguments: &RestoreArguments) -> Result<ExitCode, Failure> {
    let to = match &arguments.to {
        Some(to) => ledger_at(to.clone())?,
        None => nearby_ledger(common)?.ledger,
    };
    let to = file_of(&to)?.to_owned();
    if arguments.file.is_file() && lock::holder(&to).is_none() {
        create_folder_of(&to)?;
    }
    let report = backup::restore(&arguments.file, &to).map_err(explain)?;
    print(common, &report, &to.display().to_string(), "is restored:")?;
    let beside = ktsu_evidence::signing_key::path(&to);
    if report.checkpoints > 0 && !beside.exists() {
        note(&format!(
            "the signing key is not in the copy: put it at {}; otherwise a new signing key is created, and no earlier key vouches for it",
            text::line(&beside.display().to_string())
        ));
    }
    Ok(ExitCode::SUCCESS)
}

/// The file of a ledger that is in one.
fn file_of(ledger: &LedgerPlace) -> Result<&Path, Failure> {
    ledger.file().ok_or_else(|| {
        let words = format!("{ledger} is not a file");
        Failure::could_not_run(words)
            .hint("to copy a ledger to a server or from one: ktsu ledger copy --to LEDGER")
    })
}

fn print(
    common: &Common,
    report: &VerifyReport,
    name: &str,
    verb: &str,
) -> Result<ExitCode, Failure> {
    if common.json {
        return print_json(&json!({"file": name, "report": report}));
    }
    line(&format!(
        "{} {} {verb} {} of {}, verified",
        painted(GOOD, symbols().good()),
        text::line(name),
        text::count(report.frames, "frame"),
        text::count(report.streams, "stream")
    ));
    Ok(ExitCode::SUCCESS)
}

fn explain(error: BackupError) -> Failure {
    match error {
        BackupError::Store(error) => error.into(),
        BackupError::Exists(path) => {
            let words = format!("{} already exists", path.display());
            Failure::could_not_run(words).hint("choose another name")
        }
        BackupError::Owned { path, pid } => {
            let words = format!("{} is owned by process {pid}", path.display());
            let hint = format!(
                "stop it first, or restore to another file: --to {}.restored",
                quoted(&path)
            );
            Failure::could_not_run(words).hint(hint)
        }
        unsound @ BackupError::Unsound(_) => {
            Failure::verdict(unsound.to_string()).hint("for details: ktsu verify --ledger FILE")
        }
    }
}
