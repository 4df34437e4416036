//! A kit that was loaded and is valid.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_config::fault::Faults;
use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::{ReviewPolicy, Visibility};
use ktsu_workflow::definition::Definition;

use super::files::{KitFile, WORLD_SUFFIX};
use super::lock::LockStatus;
use super::person_waits::PersonWait;
use super::server::KitServer;
use super::servers::ServerUse;

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
    /// The faults that do not hinder a run.
    pub warnings: Faults,
    /// `examples/NAME.json` by name.
    pub examples: BTreeMap<String, PathBuf>,
    /// Everything with a version: what is invoked, called or used, by path.
    pub files: Vec<KitFile>,
    /// Tool servers, by the path of their file or `servers.yaml#NAME`.
    pub servers: BTreeMap<String, KitServer>,
    /// The servers that agents use, by the path of the agent.
    pub uses: BTreeMap<String, Vec<ServerUse>>,
    /// The review policies of agents, with their places in the files, by the path of the agent.
    pub reviews: BTreeMap<String, (SourceSpan, ReviewPolicy)>,
    /// The waits for people that its steps allow.
    pub waits: Vec<PersonWait>,
    /// The result of comparing it with its lock, if it has one.
    pub lock: Option<LockStatus>,
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
            reviews: BTreeMap::new(),
            waits: Vec::new(),
            lock: None,
        }
    }

    /// The kit in a folder as long as it is not valid: for an engine that shows what is wrong with it.
    pub fn without_workflows(folder: &Path) -> Self {
        let root = folder.canonicalize();
        let root = root.unwrap_or_else(|_| folder.to_owned());
        Self {
            name: folder_name(&root),
            root,
            ..Self::empty()
        }
    }

    /// Returns `true` if it is the kit of nothing.
    pub fn is_empty(&self) -> bool {
        self.root.as_os_str().is_empty()
    }
}

/// The name of a kit that gives itself none.
pub(super) fn folder_name(root: &Path) -> String {
    let name = root.file_name();
    let name = name.map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "kit".to_owned())
}

/// One workflow of a kit.
#[derive(Debug, Clone)]
pub struct KitWorkflow {
    /// Relative to the kit, with forward slashes.
    pub path: String,
    /// The workflow and everything it reaches.
    pub definition: Arc<Definition>,
    /// The visibility from outside, which decides whether it can be invoked.
    pub visibility: Visibility,
    /// The lock of the kit, where every file it reaches is the one that was locked.
    pub lock: Option<CanonicalJson>,
}

impl KitWorkflow {
    /// Returns `true` if it is a world that runs on its own: its workflow has no file and no steps.
    pub fn is_world(&self) -> bool {
        self.path.ends_with(WORLD_SUFFIX)
    }
}

impl Kit {
    /// The text of one of [`Kit::files`], as it was read: whatever became of it since, this is what
    /// was checked.
    pub fn source(&self, file: &KitFile) -> Option<&str> {
        let text = self.warnings.sources.get(Path::new(file.file()));
        text.map(String::as_str)
    }

    /// The workflow that runs when none is named: the default, or the only root (decision C3). A
    /// world on its own counts only where there is no root workflow.
    pub fn default_root(&self) -> Option<&str> {
        if let Some(name) = &self.default_workflow {
            return Some(name);
        }
        let roots = self.workflows.iter();
        let roots = roots.filter(|(_, one)| one.visibility == Visibility::Root);
        let (worlds, files): (Vec<_>, Vec<_>) = roots.partition(|(_, one)| one.is_world());
        let roots = if files.is_empty() { worlds } else { files };
        match roots.as_slice() {
            [(name, _)] => Some(name),
            _ => None,
        }
    }
}
