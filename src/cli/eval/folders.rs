//! The folders of runs: each a copy of the workspace of the suite, once its setup has run, with the services
//! that work in it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_eval::{CommandCheck, ProgramLimits, Suite, ToolService, WORKSPACE, Workspace};
use ktsu_ledger::CanonicalJson;
use ktsu_orchestrator::{ReferencedServer, References};
use ktsu_sandbox::{FolderError, Interrupt, PrivateFolder, Program, Sandbox};
use serde_json::json;

use super::super::Failure;
use super::super::check_bench::{CheckBench, command_in, found_sandbox, service_limits};
use super::super::folder_contents::{FolderContents, apply};
use super::tool_bridge::{OfferedService, ToolBridge};
use super::tool_process::ToolProcess;

/// The reference in commands of services that stands for the folder that they are shown.
const PROGRAM: &str = "{{ program }}";

/// What folders of runs are copied from.
pub(super) struct RunFolders {
    sandbox: Sandbox,
    /// What each run begins with.
    template: PrivateFolder,
    before: Arc<FolderContents>,
    services: BTreeMap<String, Arc<ServiceProgram>>,
    bridge: Option<Arc<ToolBridge>>,
    /// The folder of the spec.
    above: PathBuf,
    interrupt: Interrupt,
}

/// The program of a service.
struct ServiceProgram {
    /// With the paths that it sees.
    command: Vec<String>,
    /// A copy of the folder that it is shown.
    shown: Option<PrivateFolder>,
    limits: ProgramLimits,
    servers: Vec<String>,
}

/// The folder of one run.
pub(super) struct RunFolder {
    folder: Arc<PrivateFolder>,
    sandbox: Sandbox,
    before: Arc<FolderContents>,
    services: Vec<OfferedService>,
    above: PathBuf,
    interrupt: Interrupt,
    /// What the run calls it.
    pub(super) references: Arc<References>,
}

/// Where the files of a suite are.
pub(super) struct SuitePlace {
    /// The folder of the spec.
    pub(super) above: PathBuf,
    /// The folder of the kit, which nothing can be outside of.
    pub(super) kit: PathBuf,
    pub(super) without_sandbox: bool,
    pub(super) interrupt: Interrupt,
    /// Where its services are reached, if it has any.
    pub(super) bridge: Option<Arc<ToolBridge>>,
}

impl RunFolders {
    /// Copies the files that a suite begins with, and runs its setup; none if its runs have no folders.
    pub(super) fn new(suite: &Suite, place: SuitePlace) -> Result<Option<Self>, Failure> {
        let Some(workspace) = &suite.workspace else {
            return Ok(None);
        };
        let sandbox = found_sandbox(place.without_sandbox, &place.interrupt)?;
        let template = match &workspace.from {
            None => sandbox.empty_folder().map_err(not_made)?,
            Some(from) => copied(&sandbox, from, &place)?,
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
        let services = suite.services.tools.iter().map(|(name, service)| {
            let program = ServiceProgram::new(service, &sandbox, &place)?;
            Ok((name.clone(), Arc::new(program)))
        });
        let services = services.collect::<Result<_, Failure>>()?;
        Ok(Some(Self {
            sandbox,
            template,
            before: Arc::new(before),
            services,
            bridge: place.bridge,
            above: place.above,
            interrupt: place.interrupt,
        }))
    }

    /// A folder for a run.
    pub(super) fn fresh(&self) -> Result<RunFolder, Failure> {
        let folder = self.sandbox.copy_of(&self.template.workspace());
        let folder = Arc::new(folder.map_err(not_made)?);
        let value = |path: PathBuf| (WORKSPACE.to_owned(), path.display().to_string());
        let mut references = References {
            values: [value(folder.workspace())].into(),
            ..References::default()
        };
        let mut services = Vec::new();
        for (name, program) in &self.services {
            let Some(bridge) = &self.bridge else { continue };
            let offered = bridge.offer(name, program.starts(&self.sandbox, &folder));
            let server = ReferencedServer {
                url: offered.url.clone(),
                values: [value(self.sandbox.places(&folder).0)].into(),
            };
            let servers = program.servers.iter();
            references
                .servers
                .extend(servers.map(|name| (name.clone(), server.clone())));
            services.push(offered);
        }
        Ok(RunFolder {
            folder,
            sandbox: self.sandbox.clone(),
            before: Arc::clone(&self.before),
            services,
            above: self.above.clone(),
            interrupt: self.interrupt.clone(),
            references: Arc::new(references),
        })
    }
}

impl RunFolders {
    /// Whether a run that has this change began with the same files.
    pub(super) fn is_before(&self, change: &CanonicalJson) -> bool {
        change.to_value()["before"] == json!(self.before.digest())
    }

    /// A folder as a run left it; none if that is not kept as a whole, or what the run began with is another
    /// one now.
    pub(super) fn made_again(&self, change: &CanonicalJson) -> Result<Option<RunFolder>, Failure> {
        if !self.is_before(change) {
            return Ok(None);
        }
        let change = change.to_value();
        let folder = self.fresh()?;
        let root = folder.folder.workspace();
        if apply(&root, &change).is_err() {
            return Ok(None);
        }
        folder.folder.give_all().map_err(Failure::of)?;
        let after = FolderContents::read(&root).map_err(Failure::of)?;
        Ok((change["after"] == json!(after.digest())).then_some(folder))
    }
}

/// A folder for a run, if runs have one.
pub(super) async fn fresh(folders: Option<&Arc<RunFolders>>) -> Result<Option<RunFolder>, Failure> {
    let Some(folders) = folders.cloned() else {
        return Ok(None);
    };
    let made = tokio::task::spawn_blocking(move || folders.fresh());
    Ok(Some(made.await.map_err(Failure::of)??))
}

impl ServiceProgram {
    fn new(service: &ToolService, sandbox: &Sandbox, place: &SuitePlace) -> Result<Self, Failure> {
        let shown = service.from.as_ref();
        let shown = shown.map(|from| copied(sandbox, from, place)).transpose()?;
        let path = shown.as_ref().map(|shown| sandbox.place_of_shown(shown));
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        let command = service.command.iter();
        Ok(Self {
            command: command.map(|one| one.replace(PROGRAM, &path)).collect(),
            shown,
            limits: service.limits,
            servers: service.servers.clone(),
        })
    }

    /// Starts a process of it in a folder, whenever it is called.
    fn starts(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        folder: &Arc<PrivateFolder>,
    ) -> Box<dyn Fn() -> Result<ToolProcess, String> + Send + Sync> {
        let (program, sandbox, folder) = (Arc::clone(self), sandbox.clone(), Arc::clone(folder));
        let workspace = sandbox.places(&folder).0.display().to_string();
        let reference = format!("{{{{ {WORKSPACE} }}}}");
        let command = program.command.iter();
        let command: Vec<String> = command
            .map(|one| one.replace(&reference, &workspace))
            .collect();
        Box::new(move || {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let one = Program::new(&arguments, service_limits(program.limits));
            let one = match &program.shown {
                Some(shown) => one.shows(shown),
                None => one,
            };
            let started = sandbox.serve(&folder, &one);
            started
                .map(ToolProcess::new)
                .map_err(|error| error.to_string())
        })
    }
}

impl RunFolder {
    /// What the run did to it, as its eval records it; and the folder for checks. Its services have ended, so
    /// that nothing writes to it any more.
    pub(super) fn judged(self) -> Result<(CanonicalJson, Box<dyn Workspace + Send>), Failure> {
        drop(self.services);
        let after = FolderContents::read(&self.folder.workspace()).map_err(Failure::of)?;
        let mut change = after.difference_from(&self.before);
        change["after"] = json!(after.digest());
        change["before"] = json!(self.before.digest());
        let change = CanonicalJson::from_value(&change).map_err(Failure::of)?;
        let bench = CheckBench::beside(self.folder, self.sandbox, self.above, &self.interrupt)?;
        Ok((change, Box::new(bench)))
    }
}

/// A copy of a folder of the kit.
fn copied(sandbox: &Sandbox, from: &str, place: &SuitePlace) -> Result<PrivateFolder, Failure> {
    let original = within(&place.above.join(from), &place.kit)?;
    sandbox.copy_of(&original).map_err(|error| {
        Failure::could_not_run(format!("cannot copy {}: {error}", original.display()))
    })
}

fn not_made(error: FolderError) -> Failure {
    Failure::could_not_run(format!("there is no workspace for a run: {error}"))
}

/// A folder, unless it is outside of another.
fn within(path: &Path, kit: &Path) -> Result<PathBuf, Failure> {
    let found = path.canonicalize().ok().filter(|found| found.is_dir());
    let Some(found) = found else {
        let words = format!("there is no folder {}", path.display());
        return Err(
            Failure::could_not_run(words).hint("from is relative to the folder of the spec")
        );
    };
    let kit = kit.canonicalize().map_err(Failure::of)?;
    match found.starts_with(&kit) {
        true => Ok(found),
        false => {
            let words = format!("{} is outside of the kit", path.display());
            Err(Failure::could_not_run(words).hint("from names a folder within the kit"))
        }
    }
}
