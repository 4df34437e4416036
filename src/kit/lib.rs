//! Kits: folders of workflow, agent and server files, read and judged as a whole (decisions C3, K1).
//!
//! ```text
//! files --yaml--> nodes with places --workflow, step, agent, server--> drafts --links, calls, servers--> definitions
//! ```
//!
//! Every fault of the whole kit is gathered, not the first one; a kit that loads is sound, so that
//! no run can meet what could have been known before.

mod agent;
pub mod allowlist;
mod approval;
pub mod approval_checks;
pub mod builtin;
mod calls;
mod dependencies;
mod env_isolation;
mod groups;
mod links;
mod loader;
pub mod lock;
mod prompt;
pub(crate) mod read;
mod reference;
mod secret_flow;
pub mod server;
mod server_registry;
pub mod servers;
pub mod shape;
mod step;
mod text;
mod tools;
mod transform;
pub mod tree;
mod types;
mod webhook;
pub(crate) mod workflow;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::Visibility;

use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_workflow::definition::Definition;
pub use loader::file_names;

use ktsu_config::yaml::SourceSpan;
use loader::Loader;
use server::KitServer;
use servers::ServerUse;

/// A kit that is sound.
#[derive(Debug)]
pub struct Kit {
    /// The folder, without symbolic links.
    pub root: PathBuf,
    /// From `kit.yaml`, or the name of the folder.
    pub name: String,
    /// From `kit.yaml`.
    pub default_workflow: Option<String>,
    /// By the name they are invoked under, sub-workflows too.
    pub workflows: BTreeMap<String, KitWorkflow>,
    /// What does not hinder a run.
    pub warnings: Faults,
    /// `examples/NAME.json` by name.
    pub examples: BTreeMap<String, PathBuf>,
    /// Everything with a version: what is invoked, called or used, by path.
    pub files: Vec<KitFile>,
    /// Tool servers, by the path of their file or `servers.yaml#NAME`.
    pub servers: BTreeMap<String, KitServer>,
    /// The servers that agents use, by the path of the agent.
    pub uses: BTreeMap<String, Vec<ServerUse>>,
    /// What came of holding it against its lock, if it has one.
    pub lock: Option<lock::LockStatus>,
}

/// One file of a kit that has a version (seed 000, invariant 12).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KitFile {
    /// Relative to the kit, with forward slashes.
    pub path: String,
    /// What it holds.
    pub kind: FileKind,
    /// As the file says, or `0.0.0`.
    pub version: String,
}

impl KitFile {
    /// The file itself. Servers of the central list share one: theirs is `servers.yaml#NAME`.
    pub fn file(&self) -> &str {
        file_of(&self.path)
    }
}

/// The file that holds what a key means: servers of the central list are `servers.yaml#NAME`.
fn file_of(key: &str) -> &str {
    match key.split_once('#') {
        Some((CENTRAL, _)) => CENTRAL,
        Some(_) | None => key,
    }
}

/// The gateway's own file.
pub const GATEWAY: &str = "gateway.yaml";

/// The central list of tool servers (seed 000, invariant 3).
pub const CENTRAL: &str = "servers.yaml";

/// What a file of a kit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `*.workflow.yaml`
    Workflow,
    /// `*.agent.yaml`, or an agent of this program.
    Agent,
    /// `*.server.yaml`
    Server,
}

impl FileKind {
    /// The word for it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Agent => "agent",
            Self::Server => "server",
        }
    }
}

impl Kit {
    /// A kit of nothing: for an engine that starts no run.
    pub fn empty() -> Self {
        Self {
            root: PathBuf::new(),
            name: String::new(),
            default_workflow: None,
            workflows: BTreeMap::new(),
            warnings: Faults::default(),
            examples: BTreeMap::new(),
            files: Vec::new(),
            servers: BTreeMap::new(),
            uses: BTreeMap::new(),
            lock: None,
        }
    }
}

/// One workflow of a kit.
#[derive(Debug, Clone)]
pub struct KitWorkflow {
    /// Relative to the kit, with forward slashes.
    pub path: String,
    /// The workflow and everything it reaches.
    pub definition: Arc<Definition>,
    /// Whether it can be invoked from outside.
    pub visibility: Visibility,
    /// The lock of the kit, where every file it reaches is the one that was locked.
    pub lock: Option<CanonicalJson>,
}

impl Kit {
    /// The text of one of [`Kit::files`], as it was read: whatever became of it since, this is what
    /// was judged.
    pub fn source(&self, file: &KitFile) -> Option<&str> {
        let text = self.warnings.sources.get(Path::new(file.file()));
        text.map(String::as_str)
    }

    /// The workflow that runs when none is named: the default, or the only root (decision C3).
    pub fn default_root(&self) -> Option<&str> {
        if let Some(name) = &self.default_workflow {
            return Some(name);
        }
        let mut roots = self
            .workflows
            .iter()
            .filter(|(_, one)| one.visibility == Visibility::Root);
        let (name, _) = roots.next()?;
        roots.next().is_none().then_some(name)
    }
}

/// Reads a kit and holds it against its lock, or says everything that is wrong with either.
pub fn load(dir: &Path) -> Result<Kit, Faults> {
    read(dir, lock::read)
}

/// Reads a kit whatever its lock says: to lock it anew.
pub fn load_unlocked(dir: &Path) -> Result<Kit, Faults> {
    read(dir, |_| None)
}

fn read(
    dir: &Path,
    lock: impl FnOnce(&mut Loader) -> Option<lock::LocatedLock>,
) -> Result<Kit, Faults> {
    let mut loader = Loader::default();
    match dir.canonicalize() {
        Ok(root) if root.is_dir() => loader.root = root,
        Ok(_) | Err(_) => {
            let words = format!("{} is not a folder", dir.display());
            loader.faults.add(Fault::new(
                FaultCode::FileUnreadable,
                SourceSpan::default(),
                words,
            ));
            return Err(loader.faults);
        }
    }
    let settings = loader.settings();
    let top = loader.top_level();
    for path in &top {
        loader.read_workflow(path);
    }
    loader.follow_children();
    loader.read_agents();
    loader.read_servers();
    loader.check_default(settings.default.as_ref());
    servers::check(&mut loader);
    links::check(&mut loader);
    types::check(&mut loader);
    loader.check_gateway();
    groups::check(&mut loader);
    approval_checks::check(&mut loader);
    let lock = lock(&mut loader);
    let mut kit = loader.finish(settings, &top)?;
    if let Some(lock) = lock {
        lock::check_against_lock(&mut kit, lock);
    }
    Ok(kit)
}

#[cfg(test)]
mod tests;
