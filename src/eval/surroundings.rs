//! The surroundings of each run of a suite: a folder, and programs that serve it.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::http_mock::routes::HttpMock;
use crate::programs::ProgramLimits;

/// The reference in params that stands for the folder of a run.
pub const WORKSPACE: &str = "workspace";

/// The reference in commands of services that stands for the folder that they can read.
pub const PROGRAM: &str = "program";

/// The prefix of references in commands of services to params of the scenario.
pub const PARAMS: &str = "params.";

/// The prefix of references to something of a service.
pub(crate) const SERVICES: &str = "services.";

/// The most services of a suite.
pub(crate) const MAX_SERVICES: usize = 16;

/// The folder of each run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SuiteWorkspace {
    /// The folder that each run gets a copy of, from the folder of the spec; an empty one if absent.
    pub from: Option<String>,
    /// The command that `sh -c` runs in it, once, before it is copied.
    pub setup: Option<String>,
    /// The limits of that command.
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
    /// The limits of each of its processes.
    pub limits: ProgramLimits,
    /// The tool servers of the kit that it is used in place of, by their own names.
    pub servers: Vec<String>,
}

/// The kind of a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DatabaseKind {
    /// PostgreSQL.
    Postgres,
    /// MariaDB, also in place of MySQL.
    MariaDb,
}

/// A database server beside each run, whose data are prepared once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DatabaseService {
    /// Its kind.
    pub kind: DatabaseKind,
    /// Files of SQL that are run, in order, from the folder of the spec, and never outside of it.
    pub init: Vec<String>,
    /// The limits of each server, and of preparing the data.
    pub limits: ProgramLimits,
}

/// The programs beside each run, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SuiteServices {
    /// Those that offer tools.
    pub tools: BTreeMap<String, ToolService>,
    /// Those that are databases.
    pub databases: BTreeMap<String, DatabaseService>,
    /// Those that reply to HTTP by rules.
    pub mocks: BTreeMap<String, HttpMock>,
    /// The first of a type that is not supported yet: its name, and its type.
    pub later: Option<(String, String)>,
}

impl SuiteServices {
    /// Returns `true` if there are none.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
            && self.databases.is_empty()
            && self.mocks.is_empty()
            && self.later.is_none()
    }

    /// The variables of the kit that have a URL in place of their values, with its reference.
    pub fn variables(&self) -> impl Iterator<Item = (&str, String)> {
        let mocks = self.mocks.iter();
        mocks.flat_map(|(name, mock)| {
            let variables = mock.variables.iter();
            variables.map(move |variable| {
                let reference = format!("{{{{ services.{name}.url }}}}");
                (variable.as_str(), reference)
            })
        })
    }

    /// The names of those that have a URL.
    pub(crate) fn with_url(&self) -> impl Iterator<Item = &String> {
        self.databases.keys().chain(self.mocks.keys())
    }
}

/// The texts of a value. The value comes from YAML, whose depth is bounded.
pub(crate) fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(items) => items.iter().flat_map(texts).collect(),
        Value::Object(members) => members.values().flat_map(texts).collect(),
        Value::Null | Value::Bool(_) | Value::Number(_) => Vec::new(),
    }
}

/// A text with values in place of the references in it. What is put in is not read again.
pub fn filled(text: &str, values: &BTreeMap<String, String>) -> String {
    let (mut filled, mut rest) = (String::new(), text);
    while let Some((before, begun)) = rest.split_once("{{ ") {
        filled.push_str(before);
        let named = begun.split_once(" }}");
        let found = named.and_then(|(name, after)| Some((values.get(name)?, after)));
        match found {
            Some((value, after)) => {
                filled.push_str(value);
                rest = after;
            }
            None => {
                filled.push_str("{{ ");
                rest = begun;
            }
        }
    }
    filled + rest
}

/// The first reference in a text that looks like one of a suite, such as `ours`, of which those with a dot at
/// the end are beginnings, and is none of `known`: as it is written, and its name.
pub(crate) fn unknown_reference<'t>(
    text: &'t str,
    ours: &[&str],
    known: &BTreeSet<String>,
) -> Option<(&'t str, &'t str)> {
    let mut rest = text;
    while let Some((_, begun)) = rest.split_once("{{") {
        let (inner, after) = begun.split_once("}}")?;
        let name = inner.trim();
        let is_ours = ours.iter().any(|one| match one.ends_with('.') {
            true => name.starts_with(one),
            false => name == *one,
        });
        let is_exact = inner.len() == name.len() + 2 && inner.starts_with(' ');
        if is_ours && !(is_exact && known.contains(name)) {
            let written = text.len() - begun.len() - 2..text.len() - after.len();
            return Some((text.get(written)?, name));
        }
        rest = after;
    }
    None
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::filled;

    #[test]
    fn references_are_replaced_once_and_what_is_put_in_is_not_read_again() {
        let values = [("workspace", "/work"), ("params.a", "{{ workspace }}")];
        let values: BTreeMap<String, String> = values
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into();
        for (text, expected) in [
            ("{{ workspace }}/{{ workspace }}", "/work//work"),
            ("a={{ params.a }};", "a={{ workspace }};"),
            ("{{ params.b }} {{ workspace }}", "{{ params.b }} /work"),
            ("{{ {{ workspace }} }}", "{{ /work }}"),
            ("{{workspace}} {{ workspace", "{{workspace}} {{ workspace"),
            ("é", "é"),
        ] {
            assert_eq!(filled(text, &values), expected, "{text}");
        }
    }
}
