//! `ktsu backup` and `ktsu restore`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ktsu_ledger::backup::{self, BackupError};
use ktsu_ledger::lock;
use ktsu_ledger::store::SqliteReader;
use ktsu_ledger::verify::VerifyReport;
use ktsu_ledger::{Ledger, LedgerPlace};
use serde_json::json;

use super::ledger::copy_all;
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
    let copied = match place.ledger.file() {
        Some(file) => backup::backup(file, &arguments.file, true),
        None => backup_of_server(&place.ledger, &arguments.file)?,
    };
    let report = copied.map_err(explain)?.unwrap_or_default();
    let name = arguments.file.display().to_string();
    print(common, &report, &name, "holds")
}

/// Copies a ledger on a server, in use or not, as it is now.
fn backup_of_server(
    ledger: &LedgerPlace,
    to: &Path,
) -> Result<Result<Option<VerifyReport>, BackupError>, Failure> {
    // Found before everything is read, though it is checked again where the file is made.
    if to.symlink_metadata().is_ok() {
        return Ok(Err(BackupError::Exists(to.to_owned())));
    }
    let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
    let folder = folder.unwrap_or(Path::new("."));
    // Beside the copy, where there is room for it.
    let folder = tempfile::tempdir_in(folder).map_err(|error| {
        let words = format!("{} cannot be written: {error}", to.display());
        Failure::could_not_run(words)
    })?;
    let file = folder.path().join("ledger.db");
    let source = Ledger::open(ledger).snapshot()?;
    copy_all(
        source.as_ref(),
        &ledger.to_string(),
        &LedgerPlace::File(file.clone()),
    )?;
    Ok(backup::backup(&file, to, true))
}

/// Makes a ledger on a server out of a copy.
fn restore_to_server(common: &Common, from: &Path, to: &LedgerPlace) -> Result<ExitCode, Failure> {
    let report = backup::check(from).map_err(explain)?;
    let source = SqliteReader::open(from)?;
    copy_all(&source, &from.display().to_string(), to)?;
    print(common, &report, &to.to_string(), "is restored:")?;
    if report.checkpoints > 0 {
        note(
            "the signing key is not in the copy: every engine needs it in KTSU_SIGNING_KEY; with another key, \
             no earlier key vouches for it",
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Makes a ledger out of a copy.
pub(super) fn restore(common: &Common, arguments: &RestoreArguments) -> Result<ExitCode, Failure> {
    let to = match &arguments.to {
        Some(to) => ledger_at(to.clone())?,
        None => nearby_ledger(common)?.ledger,
    };
    let Some(to) = to.file().map(Path::to_owned) else {
        return restore_to_server(common, &arguments.file, &to);
    };
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
