//! The files of a kit: their kinds, their names and their versions.

use std::path::Path;

/// The suffix of the names of workflow files.
pub(super) const WORKFLOW_SUFFIX: &str = ".workflow.yaml";

/// The suffix of the names of agent files.
pub(super) const AGENT_SUFFIX: &str = ".agent.yaml";

/// The suffix of the names of server files.
pub(super) const SERVER_SUFFIX: &str = ".server.yaml";

/// The suffix of the names of world files.
pub(super) const WORLD_SUFFIX: &str = ".world.yaml";

/// The version of a file that has none (decision K2).
pub(super) const NO_VERSION: &str = "0.0.0";

/// One file of a kit that has a version (seed 000, invariant 12).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct KitFile {
    /// Relative to the kit, with forward slashes.
    pub path: String,
    /// The kind of definition that it holds.
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
pub(super) fn file_of(key: &str) -> &str {
    match key.split_once('#') {
        Some((CENTRAL, _)) => CENTRAL,
        Some(_) | None => key,
    }
}

/// The gateway's own file.
pub const GATEWAY: &str = "gateway.yaml";

/// The central list of tool servers (seed 000, invariant 3).
pub const CENTRAL: &str = "servers.yaml";

/// The kind of definition that a file of a kit holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum FileKind {
    /// `*.workflow.yaml`
    Workflow,
    /// `*.agent.yaml`, or an agent of this program.
    Agent,
    /// `*.server.yaml`
    Server,
    /// `*.world.yaml`
    World,
}

impl FileKind {
    /// The word for it.
    pub fn text(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Agent => "agent",
            Self::Server => "server",
            Self::World => "world",
        }
    }
}

/// The names of the files of a folder, sorted; none if it does not exist.
pub fn file_names(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter(|entry| entry.path().is_file())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    names
}
