//! The folders of runs: each a copy of the workspace of the suite, once its setup has run, with the services
//! that work in it.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_contract::references::without_value;
use ktsu_eval::{
    CommandCheck, PARAMS, PROGRAM, ProgramLimits, Scenario, ServiceRecords, Suite, ToolService,
    WORKSPACE, Workspace, filled,
};
use ktsu_ledger::CanonicalJson;
use ktsu_orchestrator::{ReferencedServer, References};
use ktsu_sandbox::{FolderError, Interrupt, PrivateFolder, Program, Sandbox};
use serde_json::{Map, Value, json};

use super::super::Failure;
use super::super::check_bench::{CheckBench, command_in, found_sandbox};
use super::super::databases::{self, Databases, RunDatabases};
use super::super::folder_contents::{FolderContents, apply};
use super::super::program_limits::service_limits;
use super::http_mocks::{HttpMocks, RunMocks};
use super::tool_bridge::{OfferedService, ToolBridge};
use super::tool_process::ToolProcess;

/// The source of the folders of runs.
pub(super) struct RunFolders {
    sandbox: Sandbox,
    /// The folder that each run begins with.
    template: PrivateFolder,
    before: Arc<FolderContents>,
    services: BTreeMap<String, Arc<ServiceProgram>>,
    bridge: Option<Arc<ToolBridge>>,
    databases: Option<Databases>,
    mocks: Option<HttpMocks>,
    /// Variables of the kit that have references in place of their values.
    variables: BTreeMap<String, String>,
    /// True if the suite has a workspace: what a run does to it is recorded.
    pub(super) has_workspace: bool,
    /// True if a command of the suite has made files: it may make others each time.
    pub(super) has_setup: bool,
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
    mocks: Arc<RunMocks>,
    databases: Arc<RunDatabases>,
    has_workspace: bool,
    above: PathBuf,
    interrupt: Interrupt,
    /// References, each with a value that stands for it: for this process, or in the sandbox.
    values: Vec<(String, String)>,
    /// The values of the names that the run uses.
    pub(super) references: Arc<References>,
}

/// The record in an eval of what a run left.
#[derive(Debug, Clone, Default)]
pub(super) struct KeptOfRun {
    /// The record of what its services received and hold.
    pub(super) services: Option<CanonicalJson>,
    /// The change that it made to its folder, if the suite has a workspace.
    pub(super) workspace: Option<CanonicalJson>,
}

/// The state that a run left.
pub(super) struct LeftByRun {
    pub(super) kept: KeptOfRun,
    /// The workspace that its checks look at.
    pub(super) checks: Box<dyn Workspace + Send>,
}

/// The place of the files of a suite.
pub(super) struct SuitePlace {
    /// The folder of the spec.
    pub(super) above: PathBuf,
    /// The folder of the kit, which nothing can be outside of.
    pub(super) kit: PathBuf,
    pub(super) without_sandbox: bool,
    pub(super) interrupt: Interrupt,
    /// The bridge to its services, if it has any.
    pub(super) bridge: Option<Arc<ToolBridge>>,
}

impl RunFolders {
    /// Copies the files that a suite begins with, and runs its setup; none if its runs have no folders.
    pub(super) fn new(suite: &Suite, place: SuitePlace) -> Result<Option<Self>, Failure> {
        let has_workspace = suite.workspace.is_some();
        let services = &suite.services;
        if !has_workspace && services.databases.is_empty() && services.mocks.is_empty() {
            return Ok(None);
        }
        let workspace = &suite.workspace.clone().unwrap_or_default();
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
            // What it has made is copied for each run: more than can be is seen before the first one.
            let copy = sandbox.copy_of(&template.workspace());
            drop(copy.map_err(|error| {
                let words = "the setup of the workspace leaves what cannot be copied for runs";
                Failure::could_not_run(format!("{words}: {error}"))
            })?);
        }
        let before = FolderContents::read(&template.workspace(), &place.interrupt);
        let before = before.map_err(Failure::of)?;
        let services = suite.services.tools.iter().map(|(name, service)| {
            let program = ServiceProgram::new(service, &sandbox, &place)?;
            Ok((name.clone(), Arc::new(program)))
        });
        let services = services.collect::<Result<_, Failure>>()?;
        let databases = Databases::prepare(&suite.services.databases, &sandbox, &place.above)?;
        let mocks = HttpMocks::new(&suite.services.mocks, &sandbox)?;
        let variables = suite.services.variables();
        let variables = variables.map(|(name, reference)| (name.to_owned(), reference));
        Ok(Some(Self {
            sandbox,
            template,
            before: Arc::new(before),
            services,
            bridge: place.bridge,
            databases,
            mocks,
            variables: variables.collect(),
            has_workspace,
            has_setup: workspace.setup.is_some(),
            above: place.above,
            interrupt: place.interrupt,
        }))
    }

    /// A folder for a run with these params.
    pub(super) fn fresh(&self, params: &Map<String, Value>) -> Result<RunFolder, Failure> {
        let mocks = self.mocks.as_ref().map(HttpMocks::start).transpose()?;
        let databases = databases::started(self.databases.as_ref())?;
        self.beside((databases, mocks.unwrap_or_default()), params)
    }

    /// A folder beside the databases and the HTTP servers of a run.
    fn beside(
        &self,
        (databases, mocks): (Arc<RunDatabases>, RunMocks),
        params: &Map<String, Value>,
    ) -> Result<RunFolder, Failure> {
        let mocks = Arc::new(mocks);
        let folder = self.sandbox.copy_of(&self.template.workspace());
        let folder = Arc::new(folder.map_err(not_made)?);
        let value = |path: PathBuf| (WORKSPACE.to_owned(), path.display().to_string());
        let mut references = References {
            values: databases.urls(false),
            variables: self.variables.clone(),
            ..References::default()
        };
        references.values.extend(mocks.urls(false));
        if self.has_workspace {
            references.values.extend([value(folder.workspace())]);
        }
        let mut within = databases.urls(true);
        within.extend(mocks.urls(true));
        within.extend([value(self.sandbox.places(&folder).0)]);
        let in_commands = with_params(&within, params);
        let mut services = Vec::new();
        for (name, program) in &self.services {
            let Some(bridge) = &self.bridge else { continue };
            let offered = bridge.offer(
                name,
                program.starts(&self.sandbox, (&folder, &databases, &mocks), &in_commands),
            );
            let server = ReferencedServer {
                url: offered.url.clone(),
                values: within.clone(),
            };
            let servers = program.servers.iter();
            references
                .servers
                .extend(servers.map(|name| (name.clone(), server.clone())));
            services.push(offered);
        }
        let values = references.values.iter().chain(&within);
        let values = values.map(|(name, value)| (format!("{{{{ {name} }}}}"), value.clone()));
        let values: Vec<(String, String)> = values.collect();
        Ok(RunFolder {
            folder,
            sandbox: self.sandbox.clone(),
            before: Arc::clone(&self.before),
            services,
            mocks,
            databases,
            has_workspace: self.has_workspace,
            above: self.above.clone(),
            interrupt: self.interrupt.clone(),
            values,
            references: Arc::new(references),
        })
    }
}

impl RunFolders {
    /// Returns `true` if a run that has this change began with the same files.
    pub(super) fn is_before(&self, change: &CanonicalJson) -> bool {
        change.to_value()["before"] == json!(self.before.digest())
    }

    /// A folder and databases as a run left them; none if that is not kept as a whole, or what the run began
    /// with is another one now.
    pub(super) fn made_again(&self, kept: &KeptOfRun) -> Result<Option<RunFolder>, Failure> {
        let is_before = match &kept.workspace {
            Some(change) => self.is_before(change),
            None => !self.has_workspace,
        };
        if !is_before {
            return Ok(None);
        }
        let Some(databases) = self.databases_again(kept)? else {
            return Ok(None);
        };
        let Some(mocks) = self.mocks_again(kept) else {
            return Ok(None);
        };
        // No program is started in it.
        let folder = self.beside((databases, mocks), &Map::new())?;
        let Some(change) = &kept.workspace else {
            return Ok(Some(folder));
        };
        let (change, root) = (change.to_value(), folder.folder.workspace());
        if apply(&root, &change).is_err() {
            return Ok(None);
        }
        folder.folder.give_all().map_err(Failure::of)?;
        let after = FolderContents::read(&root, &self.interrupt).map_err(Failure::of)?;
        Ok((change["after"] == json!(after.digest())).then_some(folder))
    }

    /// The HTTP servers with what they received, which receive no more.
    fn mocks_again(&self, kept: &KeptOfRun) -> Option<RunMocks> {
        let Some(mocks) = &self.mocks else {
            return Some(RunMocks::default());
        };
        let received = kept.services.as_ref().map(ServiceRecords::of);
        mocks.ended(received.unwrap_or_default())
    }

    fn databases_again(&self, kept: &KeptOfRun) -> Result<Option<Arc<RunDatabases>>, Failure> {
        match (&self.databases, &kept.services) {
            (None, _) => Ok(Some(Arc::default())),
            (Some(_), None) => Ok(None),
            (Some(databases), Some(services)) => {
                let restored = databases.restore(&services.to_value())?;
                Ok(restored.map(Arc::new))
            }
        }
    }
}

/// A folder for a run, if runs have one.
pub(super) async fn fresh(
    folders: Option<&Arc<RunFolders>>,
    scenario: &Scenario,
) -> Result<Option<RunFolder>, Failure> {
    let Some(folders) = folders.cloned() else {
        return Ok(None);
    };
    let params = scenario.params.clone();
    let made = tokio::task::spawn_blocking(move || folders.fresh(&params));
    Ok(Some(made.await.map_err(Failure::of)??))
}

impl ServiceProgram {
    fn new(service: &ToolService, sandbox: &Sandbox, place: &SuitePlace) -> Result<Self, Failure> {
        let shown = service.from.as_ref();
        let shown = shown.map(|from| copied(sandbox, from, place)).transpose()?;
        let path = shown.as_ref().map(|shown| sandbox.place_of_shown(shown));
        let path = path.map_or_else(String::new, |path| path.display().to_string());
        let (command, reference) = (service.command.iter(), format!("{{{{ {PROGRAM} }}}}"));
        Ok(Self {
            command: command.map(|one| one.replace(&reference, &path)).collect(),
            shown,
            limits: service.limits,
            servers: service.servers.clone(),
        })
    }

    /// Starts a process of it in a folder, whenever it is called.
    fn starts(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        (folder, databases, mocks): (&Arc<PrivateFolder>, &Arc<RunDatabases>, &Arc<RunMocks>),
        references: &BTreeMap<String, String>,
    ) -> Box<dyn Fn() -> Result<ToolProcess, String> + Send + Sync> {
        let (program, sandbox, folder) = (Arc::clone(self), sandbox.clone(), Arc::clone(folder));
        let (databases, mocks) = (Arc::clone(databases), Arc::clone(mocks));
        let command = program.command.iter().map(|one| filled(one, references));
        let command = mocks.in_front_of(command.collect());
        let mut limits = service_limits(program.limits);
        limits.processes = limits.processes.saturating_add(mocks.processes());
        Box::new(move || {
            let arguments: Vec<&str> = command.iter().map(String::as_str).collect();
            let mut reached = databases.reached();
            reached.extend(mocks.reached());
            let one = Program::new(&arguments, limits).reaches(reached);
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
    /// The record for its eval, and the workspace for its checks. The services that work in it have
    /// ended, so that nothing writes to it any more. Databases run until the checks have been made.
    pub(super) fn judged(self) -> Result<LeftByRun, Failure> {
        drop(self.services);
        if !self.folder.close() {
            let words = "a service of a run does not end, so that its files cannot be judged";
            return Err(Failure::could_not_run(words));
        }
        // What differs from run to run is recorded as a reference.
        let received = self.mocks.records(&|text| {
            let values = self.values.iter();
            values.fold(text.to_owned(), |text, (reference, value)| {
                without_value(&text, value, reference)
            })
        });
        let received = received.map(|received| received.to_map());
        let held = self.databases.recorded()?;
        let services = received.into_iter().chain(held).flatten();
        let services: Map<String, Value> = services.collect();
        let mut kept = KeptOfRun::default();
        if !services.is_empty() {
            let services = CanonicalJson::from_value(&Value::Object(services));
            kept.services = Some(services.map_err(Failure::of)?);
        }
        let beside = (self.above, self.databases);
        let bench = CheckBench::beside(
            Arc::clone(&self.folder),
            self.sandbox,
            beside,
            &self.interrupt,
        )?;
        if self.has_workspace {
            let after = FolderContents::read(&self.folder.workspace(), &self.interrupt);
            let change = change(&self.before, &after.map_err(Failure::of)?);
            kept.workspace = Some(change.map_err(Failure::of)?);
        }
        let checks = Box::new(bench);
        Ok(LeftByRun { kept, checks })
    }
}

/// The change that a run made to its folder.
fn change(before: &FolderContents, after: &FolderContents) -> io::Result<CanonicalJson> {
    let mut change = after.difference_from(before)?;
    change["after"] = json!(after.digest());
    change["before"] = json!(before.digest());
    CanonicalJson::from_value(&change).map_err(io::Error::other)
}

/// References in commands of services, and what they stand for: those of the run, and its params.
fn with_params(
    within: &BTreeMap<String, String>,
    params: &Map<String, Value>,
) -> BTreeMap<String, String> {
    let params = params.iter().map(|(name, value)| {
        let value = match value {
            Value::String(text) => filled(text, within),
            other => other.to_string(),
        };
        (format!("{PARAMS}{name}"), value)
    });
    let within = within
        .iter()
        .map(|(name, value)| (name.clone(), value.clone()));
    within.chain(params).collect()
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
