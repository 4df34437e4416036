//! Commands that continue an eval, or run a part of it again.

use std::path::Path;

use ktsu_eval::EvalRecord;
use ktsu_ledger::StreamId;
use ktsu_readers::ReaderPool;

use super::super::Failure;
use super::ended::kept_of;
use super::folders::RunFolders;
use ktsu_opening::quoting::{quoted, quoted_text};
use ktsu_project::eval_file;

/// The arguments of an eval that have to be given again.
pub(super) struct Again<'a> {
    pub(super) kit: &'a Path,
    pub(super) env: Option<&'a Path>,
    /// ` --ledger FILE`, if one was named.
    pub(super) ledger: &'a str,
    pub(super) without_sandbox: bool,
}

impl Again<'_> {
    /// ` --kit DIR --env FILE --ledger FILE`, but for what follows from the current folder.
    pub(super) fn options(&self) -> String {
        let kit = match self.kit == Path::new(".") {
            true => String::new(),
            false => format!(" --kit {}", quoted(self.kit)),
        };
        format!("{kit}{}", self.others())
    }

    /// The command that runs a suite again.
    pub(super) fn run(&self, file: &Path) -> String {
        let whole = |path: &Path| path.canonicalize().ok();
        let found = eval_file::kit_of(file).and_then(|kit| whole(&kit));
        let kit = match found.is_some() && found == whole(self.kit) {
            true => String::new(),
            false => format!(" --kit {}", quoted(self.kit)),
        };
        format!("ktsu eval run {}{kit}{}", quoted(file), self.others())
    }

    fn others(&self) -> String {
        let env = self.env.map(|env| format!(" --env {}", quoted(env)));
        let sandbox = if self.without_sandbox {
            " --no-sandbox"
        } else {
            ""
        };
        format!("{}{}{sandbox}", env.unwrap_or_default(), self.ledger)
    }
}

/// ` --scenario=NAME`.
pub(super) fn scenario_option(name: &str) -> String {
    format!(" --scenario={}", quoted_text(name))
}

/// Refuses to finish an eval with a sandbox that was begun without one, and the other way round.
pub(super) fn has_the_same_sandbox(
    record: &EvalRecord,
    sandbox: Option<&str>,
) -> Result<(), Failure> {
    match (record.started.sandbox.as_deref(), sandbox) {
        (None, Some(_)) => {
            let words = "the eval was begun with a sandbox, so the rest of it has one, too";
            Err(Failure::could_not_run(words).hint("leave --no-sandbox out"))
        }
        (Some(_), None) => {
            let words = "the eval was begun without a sandbox, and so is the rest of it";
            Err(Failure::could_not_run(words).hint("--no-sandbox"))
        }
        (Some(_), Some(_)) | (None, None) => Ok(()),
    }
}

/// Refuses to finish an eval whose runs would begin with other files than those before.
pub(super) async fn has_the_same_files(
    readers: &ReaderPool,
    (eval, record): (&StreamId, &EvalRecord),
    folders: &RunFolders,
) -> Result<(), Failure> {
    // Without a workspace, runs begin with no files.
    let runs = record.runs.iter().filter(|_| folders.has_workspace);
    for run in runs {
        let kept = kept_of(readers, eval.clone(), run.seq).await?;
        let Some(change) = kept.workspace else {
            continue;
        };
        if folders.is_before(&change) {
            break;
        }
        let words = match folders.has_setup {
            true => {
                "runs begin with other files than when the eval was begun: from has others, or setup makes \
                others each time"
            }
            false => "runs begin with other files than when the eval was begun",
        };
        let hint = "ktsu eval run SPEC begins a new eval";
        return Err(Failure::could_not_run(words).hint(hint));
    }
    Ok(())
}
