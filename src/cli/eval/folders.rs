//! The folders of runs: each a copy of the workspace of the suite, once its setup has run.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_eval::{CommandCheck, SuiteWorkspace, WORKSPACE, Workspace};
use ktsu_ledger::CanonicalJson;
use ktsu_orchestrator::References;
use ktsu_sandbox::{FolderError, Interrupt, PrivateFolder, Sandbox};
use serde_json::json;

use super::super::Failure;
use super::super::check_bench::{CheckBench, command_in, found_sandbox};
use super::super::folder_contents::FolderContents;

/// What folders of runs are copied from.
pub(super) struct RunFolders {
    sandbox: Sandbox,
    /// What each run begins with.
    template: PrivateFolder,
    before: Arc<FolderContents>,
    /// The folder of the spec.
    above: PathBuf,
    interrupt: Interrupt,
}

/// The folder of one run.
pub(super) struct RunFolder {
    folder: PrivateFolder,
    sandbox: Sandbox,
    before: Arc<FolderContents>,
    above: PathBuf,
    interrupt: Interrupt,
    /// What the run calls it.
    pub(super) references: Arc<References>,
}

impl RunFolders {
    /// Copies the files that a suite begins with, and runs its setup. `above` is the folder of the spec, and
    /// `kit` that of the kit, which the files cannot be outside of.
    pub(super) fn new(
        workspace: &SuiteWorkspace,
        (above, kit): (&Path, &Path),
        without_sandbox: bool,
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        let sandbox = found_sandbox(without_sandbox, interrupt)?;
        let template = match &workspace.from {
            None => sandbox.empty_folder().map_err(not_made)?,
            Some(from) => {
                let original = within(&above.join(from), kit)?;
                let copy = sandbox.copy_of(&original);
                copy.map_err(|error| {
                    let words = format!("cannot copy {}: {error}", original.display());
                    Failure::could_not_run(words)
                })?
            }
        };
        if let Some(setup) = &workspace.setup {
            let setup = CommandCheck {
                command: setup.clone(),
                exit_code: 0,
                limits: workspace.limits,
            };
            command_in(&sandbox, &template, &setup).map_err(|why| {
                Failure::could_not_run(format!("the setup of the workspace {why}"))
                    .hint("workspace.setup is run with sh -c, without a network, in the sandbox")
            })?;
        }
        let before = FolderContents::read(&template.workspace()).map_err(Failure::of)?;
        Ok(Self {
            sandbox,
            template,
            before: Arc::new(before),
            above: above.to_path_buf(),
            interrupt: interrupt.clone(),
        })
    }

    /// A folder for a run.
    pub(super) fn fresh(&self) -> Result<RunFolder, Failure> {
        let folder = self.sandbox.copy_of(&self.template.workspace());
        let folder = folder.map_err(not_made)?;
        let path = folder.workspace().display().to_string();
        Ok(RunFolder {
            folder,
            sandbox: self.sandbox.clone(),
            before: Arc::clone(&self.before),
            above: self.above.clone(),
            interrupt: self.interrupt.clone(),
            references: Arc::new(References {
                values: [(WORKSPACE.to_owned(), path)].into(),
                ..References::default()
            }),
        })
    }
}

impl RunFolder {
    /// What the run did to it, as its eval records it; and the folder for checks. Nothing writes to it any
    /// more.
    pub(super) fn judged(self) -> Result<(CanonicalJson, Box<dyn Workspace>), Failure> {
        let after = FolderContents::read(&self.folder.workspace()).map_err(Failure::of)?;
        let mut change = after.difference_from(&self.before);
        change["after"] = json!(after.digest());
        change["before"] = json!(self.before.digest());
        let change = CanonicalJson::from_value(&change).map_err(Failure::of)?;
        let bench = CheckBench::beside(self.folder, self.sandbox, self.above, &self.interrupt)?;
        Ok((change, Box::new(bench)))
    }
}

fn not_made(error: FolderError) -> Failure {
    Failure::could_not_run(format!("there is no workspace for a run: {error}"))
}

/// A folder, unless it is outside of another.
fn within(path: &Path, kit: &Path) -> Result<PathBuf, Failure> {
    let found = path.canonicalize().ok().filter(|found| found.is_dir());
    let Some(found) = found else {
        let words = format!("there is no folder {}", path.display());
        return Err(Failure::could_not_run(words)
            .hint("workspace.from is relative to the folder of the spec"));
    };
    let kit = kit.canonicalize().map_err(Failure::of)?;
    match found.starts_with(&kit) {
        true => Ok(found),
        false => {
            let words = format!("{} is outside of the kit", path.display());
            Err(Failure::could_not_run(words).hint("workspace.from names a folder within the kit"))
        }
    }
}
