//! `ktsu lock`: locks a kit, or checks it against its lock.

pub(super) mod tools;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::folder::Folder;
use super::output::{
    BAD, GOOD, WARN, exit_code, is_coloured, line, note, note_dim, painted, print_json,
};
use super::{Common, Failure, text};
use ktsu_config::fault::Faults;
use ktsu_config::render;
use ktsu_kit::lock::{self, FILE, LockDrift};
use ktsu_kit::{self as kit, Kit};
use ktsu_opening::faults::faults_text;
use ktsu_opening::files::put;
use ktsu_opening::kit::{from_here, invalid, lacks_lock, no_kit};
use ktsu_opening::quoting::quoted;

/// What `lock` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    #[command(flatten)]
    folder: Folder,
    /// Writes nothing; exits with 1 if the kit differs from its lock
    #[arg(long)]
    check: bool,
    /// Asks the kit's tool servers for their tools, and locks these as well
    #[arg(long)]
    tools: bool,
    /// The environment file with the addresses and keys of the tool servers
    #[arg(long, value_name = "FILE", requires = "tools")]
    env: Option<PathBuf>,
}

/// Locks a kit, or holds it against its lock.
pub(super) async fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let dir = arguments.folder.path();
    if !dir.is_dir() {
        return Err(no_kit(&dir));
    }
    match arguments.check {
        true => check(common, &dir, arguments).await,
        false => write(common, &dir, arguments).await,
    }
}

async fn write(common: &Common, dir: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    // The previous lock, if readable, shows what changes.
    let before = kit::load(dir).ok().and_then(|kit| kit.lock);
    let kit = kit::load_unlocked(dir).map_err(|faults| invalid(&faults, dir))?;
    let mut made = lock::generate(&kit).map_err(|faults| {
        let words = faults_text("the kit cannot be locked", &faults);
        Failure::could_not_run(words).hint(format!("ktsu validate {}", quoted(dir)))
    })?;
    let lost = match &before {
        Some(before) => lock::carry_over_tools(&mut made, &before.lock),
        None => tools::unread(&kit.root.join(FILE)),
    };
    if !arguments.tools && !lost.is_empty() {
        return Err(tools::removed_servers(&lost, dir));
    }
    let mut retold = Vec::new();
    let mut warnings = tools::ToolWarnings::default();
    if arguments.tools {
        let listed = tools::list_tools(&kit, arguments.env.as_deref()).await?;
        retold = tools::differences(&made, &listed.offered);
        warnings = listed.warnings;
        tools::put(&mut made, listed.offered);
    }
    let drift = before.map(|held| held.drift).unwrap_or_default();
    let file = kit.root.join(FILE);
    let text = lock::to_yaml(&made);
    let same = std::fs::read_to_string(&file).is_ok_and(|before| before == text);
    if !same {
        put(&file, &text)?;
        must_read_back(&kit, &made)?;
    }
    let shown = dir.join(FILE).display().to_string();
    if common.json {
        let body = json!({
            "lock": shown,
            "written": !same,
            "entries": made.entries,
            "prices": made.prices,
            "changes": drift,
            "tools": retold,
            "left_out": warnings.left_out,
            "unmatched": warnings.unmatched,
        });
        return print_json(&body);
    }
    warn(&warnings);
    for one in &drift {
        note(&format!("  {}", text::line(&one.to_string())));
    }
    for one in &retold {
        note(&format!("  {}", text::line(&one.written_text())));
    }
    let count = text::count(made.entries.len(), "file");
    let what = if same { "unchanged" } else { "locked" };
    line(&format!("{}: {count}, {what}", text::line(&shown)));
    if !same {
        let words = format!("  ktsu run {} --locked", quoted(dir));
        note_dim(&words);
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns of the files that are not those that were locked.
pub(super) fn warn_of_drift(kit: &Kit, dir: &Path) {
    let Some(faults) = kit.drift_warnings() else {
        return;
    };
    let shown = render::text(&faults, is_coloured());
    for one in text::clean_coloured(&shown).trim_end().lines() {
        note(one);
    }
    note(&format!("  to update the lock: ktsu lock {}", quoted(dir)));
}

/// Checks that the written lock reads back unchanged.
fn must_read_back(kit: &Kit, made: &ktsu_ledger::event::lock::Lock) -> Result<(), Failure> {
    let words = format!("{FILE} does not read back as what was written");
    let again = kit::load(&kit.root);
    let again = again.map_err(|faults| Failure::could_not_run(faults_text(&words, &faults)))?;
    match again.lock.is_some_and(|held| held.lock == *made) {
        true => Ok(()),
        false => {
            Err(Failure::could_not_run(words).hint("a file may have changed meanwhile: lock again"))
        }
    }
}

async fn check(common: &Common, dir: &Path, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let mut retold = Vec::new();
    let mut warnings = tools::ToolWarnings::default();
    let (held, name) = match kit::load(dir) {
        Ok(kit) => {
            if let (true, Some(held)) = (arguments.tools, &kit.lock) {
                let listed = tools::list_tools(&kit, arguments.env.as_deref()).await?;
                retold = tools::differences(&held.lock, &listed.offered);
                warnings = listed.warnings;
            }
            let drift = kit.lock.as_ref().map(|held| held.drift.clone());
            (
                kit.must_be_locked().map_err(|faults| (faults, drift)),
                kit.name,
            )
        }
        // An unreadable lock counts as a failed check; an unreadable kit is an error.
        Err(faults) if faults.faults.iter().all(|one| one.file == Path::new(FILE)) => {
            (Err((faults, None)), dir.display().to_string())
        }
        Err(faults) => return Err(invalid(&faults, dir)),
    };
    if common.json {
        let none = (Faults::default(), None);
        let (faults, drift) = held.as_ref().err().unwrap_or(&none);
        let drift: &[LockDrift] = drift.as_deref().unwrap_or_default();
        let body = json!({
            "lock": dir.join(FILE).display().to_string(),
            "locked": held.is_ok() && retold.is_empty(),
            "drift": drift,
            "tools": retold,
            "left_out": warnings.left_out,
            "unmatched": warnings.unmatched,
            "faults": render::json(faults),
        });
        print_json(&body)?;
    } else {
        warn(&warnings);
        print_drift(
            held.as_ref().err().map(|(faults, _)| faults),
            &retold,
            &name,
            dir,
        );
    }
    Ok(exit_code(held.is_ok() && retold.is_empty()))
}

/// Warns about tools that an agent may call but that cannot be offered, and about entries of
/// allowlists that cover no tool. A lock would not change that.
pub(super) fn warn(warnings: &tools::ToolWarnings) {
    for words in warnings.words() {
        let warning = painted(WARN, "warning");
        note(&format!("{warning}: {}", text::line(&words)));
    }
}

fn print_drift(faults: Option<&Faults>, retold: &[tools::ToolDrift], name: &str, dir: &Path) {
    let name = text::line(name);
    if faults.is_none() && retold.is_empty() {
        line(&format!(
            "kit {name}: {}",
            painted(GOOD, "matches its lock")
        ));
        return;
    }
    if retold.is_empty() && faults.is_some_and(lacks_lock) {
        let words = format!("the kit has no lock file: {}", dir.join(FILE).display());
        line(&format!(
            "kit {name}: {}",
            painted(BAD, &text::line(&words))
        ));
        note_dim(&format!("  to write one: ktsu lock {}", quoted(dir)));
        return;
    }
    let shown = faults.map(|faults| render::text(&from_here(faults, dir), is_coloured()));
    for one in text::clean_coloured(&shown.unwrap_or_default()).lines() {
        line(one);
    }
    for one in retold {
        line(&text::line(&one.words()));
    }
    let found = faults.map_or(0, |faults| faults.faults.len()) + retold.len();
    line(&format!(
        "kit {name}: {} ({})",
        painted(BAD, "differs from its lock"),
        text::count(found, "difference")
    ));
    let flag = if retold.is_empty() { "" } else { " --tools" };
    let words = format!("  to update the lock: ktsu lock {}{flag}", quoted(dir));
    note_dim(&words);
}
