//! The lock of a kit, as `run.created` carries it: every file with its version and its digest.
//!
//! Persisted, keep stable. It is the content of `ktsu.lock.yaml` as canonical JSON (seed 000,
//! invariant 12). It identifies files by content, so the files can be checked against it, and it
//! contains the digest of each compiled workflow, so a record can be checked against it.
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
    pub entries: Vec<LockEntry>,
    /// [`FORMAT`].
    pub format: u32,
    /// The prices of model calls.
    pub prices: LockedPrices,
}

/// One file of a kit, or one that comes with ktsu.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Entry")]
pub struct LockEntry {
    /// Of a root workflow: the digest of its resolved definition, as `run.created` names it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub definition: Option<String>,
    /// BLAKE3 of the file's bytes.
    pub digest: String,
    /// The kind of the file.
    pub kind: Kind,
    /// Relative to the kit, with forward slashes; `ktsu/NAME@VERSION` for what comes with ktsu.
    pub path: String,
    /// For a server: the digests of its tools by name. Absent if they were not listed, empty if it
    /// offered none that an agent may call.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tools: Option<BTreeMap<String, String>>,
    /// Semantic version.
    pub version: String,
}

/// The kind of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// `NAME.agent.yaml`.
    Agent,
    /// `NAME.server.yaml`.
    Server,
    /// `NAME.workflow.yaml`.
    Workflow,
    /// `NAME.world.yaml`.
    World,
}

impl Kind {
    /// The persisted form.
    pub fn text(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Server => "server",
            Self::Workflow => "workflow",
            Self::World => "world",
        }
    }
}

/// The prices that costs are counted by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename = "Prices")]
pub struct LockedPrices {
    /// BLAKE3 of the table.
    pub digest: String,
    /// Its version, as `llm.response` has it.
    pub version: String,
}
