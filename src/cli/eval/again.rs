//! Commands that continue an eval, or run a part of it again.

use std::path::Path;

use ktsu_eval::EvalRecord;

use super::super::Failure;
use super::super::engine::{quoted, quoted_text};
use super::folders::RunFolders;
use crate::eval_file;

/// What was given for an eval, and has to be given again.
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

    /// What runs a suite again.
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

/// Refuses to finish an eval in another way than it was begun: with or without a sandbox, or with other
/// files.
pub(super) fn is_the_same(
    record: &EvalRecord,
    sandbox: Option<&str>,
    folders: Option<&RunFolders>,
) -> Result<(), Failure> {
    match (record.started.sandbox.as_deref(), sandbox) {
        (None, Some(_)) => {
            let words = "the eval was begun with a sandbox, so the rest of it has one, too";
            return Err(Failure::could_not_run(words).hint("leave --no-sandbox out"));
        }
        (Some(_), None) => {
            let words = "the eval was begun without a sandbox, and so is the rest of it";
            return Err(Failure::could_not_run(words).hint("--no-sandbox"));
        }
        (Some(_), Some(_)) | (None, None) => {}
    }
    let changes = record.runs.iter();
    let mut changes = changes.filter_map(|run| run.started.workspace.as_ref());
    match (changes.next(), folders) {
        (Some(change), Some(folders)) if !folders.is_before(change) => {
            let words = "runs begin with other files than when the eval was begun";
            Err(Failure::could_not_run(words).hint("ktsu eval run SPEC begins a new eval"))
        }
        _ => Ok(()),
    }
}
