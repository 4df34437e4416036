//! What each run of a suite has for itself: a folder, and programs that serve it.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::programs::ProgramLimits;

/// The reference in params that stands for the folder of a run.
pub const WORKSPACE: &str = "workspace";

/// The most services of a suite.
pub(crate) const MAX_SERVICES: usize = 16;

/// The folder of each run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteWorkspace {
    /// The folder that each run gets a copy of, from the folder of the spec; an empty one if absent.
    pub from: Option<String>,
    /// What `sh -c` runs in it, once, before it is copied.
    pub setup: Option<String>,
    /// What that may take.
    pub limits: ProgramLimits,
}

/// A program beside each run that offers tools: an MCP server that speaks on its standard input and output,
/// and works in the folder of the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolService {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// A folder that it can read, from the folder of the spec.
    pub from: Option<String>,
    /// What each of its processes may take.
    pub limits: ProgramLimits,
    /// The tool servers of the kit that it is used in place of, by their own names.
    pub servers: Vec<String>,
}

/// A PostgreSQL server beside each run, whose data are prepared once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DatabaseService {
    /// Files that psql runs, in order, from the folder of the spec, and never outside of it.
    pub init: Vec<String>,
    /// What each server may take, and what preparing the data may take.
    pub limits: ProgramLimits,
}

/// The programs beside each run, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteServices {
    /// Those that offer tools.
    pub tools: BTreeMap<String, ToolService>,
    /// Those that are databases.
    pub databases: BTreeMap<String, DatabaseService>,
    /// The first of a type that is not supported yet: its name, and its type.
    pub later: Option<(String, String)>,
}

impl SuiteServices {
    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty() && self.databases.is_empty() && self.later.is_none()
    }
}

/// Whether a text is anywhere in a value. The value comes from YAML, whose depth is bounded.
pub(crate) fn mentions(value: &Value, text: &str) -> bool {
    match value {
        Value::String(one) => one.contains(text),
        Value::Array(items) => items.iter().any(|item| mentions(item, text)),
        Value::Object(members) => members.values().any(|member| mentions(member, text)),
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    }
}
