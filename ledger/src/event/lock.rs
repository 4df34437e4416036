//! The lock of a kit, as `run.created` carries it: every file with its version and its digest.
//!
//! Persisted, keep stable. It is what `ktsu.lock.yaml` says, as canonical JSON (seed 000, invariant
//! 12). It names files by what is in them, so whoever has the files can see that they are those, and
//! it names the definition that a workflow came to, so whoever has the record can see that the run
//! had that one.
//!
//! Format 1: as declared here. Optional members are absent when unknown.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The version of this format.
pub const FORMAT: u32 = 1;

/// A whole lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lock {
    /// By path, each once.
    pub entries: Vec<Entry>,
    /// [`FORMAT`].
    pub format: u32,
    /// What model calls cost.
    pub prices: Prices,
}

/// One file of a kit, or one that comes with ktsu.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Of a root workflow: the digest of its resolved definition, as `run.created` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// BLAKE3 of the file's bytes.
    pub digest: String,
    /// What it is.
    pub kind: Kind,
    /// Relative to the kit, with forward slashes; `ktsu/NAME@VERSION` for what comes with ktsu.
    pub path: String,
    /// Of a server: the digests of its tools by name. Absent where nobody asked it, empty where it
    /// offered none that an agent may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeMap<String, String>>,
    /// Semantic version.
    pub version: String,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `NAME.agent.yaml`.
    Agent,
    /// `NAME.server.yaml`.
    Server,
    /// `NAME.workflow.yaml`.
    Workflow,
}

impl Kind {
    /// As it is written.
    pub fn text(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Server => "server",
            Self::Workflow => "workflow",
        }
    }
}

/// The prices that costs are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prices {
    /// BLAKE3 of the table.
    pub digest: String,
    /// Its version, as `llm.response` has it.
    pub version: String,
}
