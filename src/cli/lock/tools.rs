//! What tool servers offer, in a lock and against one.

use std::collections::BTreeMap;
use std::path::Path;

use ktsu_ledger::event::lock::{Kind, Lock};
use serde::Serialize;

use super::Arguments;
use crate::assemble::servers::{self, ListToolsError, ToolDigests};
use crate::cli::Failure;
use crate::cli::engine::{load_environment, process_environment, quoted};
use ktsu_kit::Kit;
use ktsu_kit::lock::FILE;

/// By the path of the server.
pub(super) type OfferedTools = BTreeMap<String, ToolDigests>;

/// A server whose tools are not those of the lock.
#[derive(Debug, Serialize)]
pub(super) struct ToolDrift {
    path: String,
    difference: String,
    /// Whether the lock says nothing of its tools yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    new: bool,
}

impl ToolDrift {
    /// What a lock that is written changes.
    pub(super) fn written_text(&self) -> String {
        match self.new {
            true => format!("{}: tools locked: {}", self.path, self.difference),
            false => self.drift_text(),
        }
    }

    /// What is wrong with a lock that is held against a server.
    pub(super) fn words(&self) -> String {
        match self.new {
            true => format!(
                "{} is locked without its tools: {}",
                self.path, self.difference
            ),
            false => self.drift_text(),
        }
    }

    fn drift_text(&self) -> String {
        format!(
            "{}: the tools are not those that were locked: {}",
            self.path, self.difference
        )
    }
}

/// A tool that an agent may call by its allowlist, and that no model is told of.
#[derive(Debug, Serialize)]
pub(super) struct ToolNotOffered {
    path: String,
    tool: String,
    reason: &'static str,
}

impl ToolNotOffered {
    pub(super) fn words(&self) -> String {
        let Self { path, tool, reason } = self;
        format!("{path}: the tool {tool:?} is not offered: {reason}")
    }
}

/// What the servers of a kit say.
#[derive(Default)]
pub(super) struct ServerTools {
    pub(super) offered: OfferedTools,
    pub(super) left_out: Vec<ToolNotOffered>,
}

/// Asks every server. Where one does not answer nothing is locked: half of the truth is none.
pub(super) async fn list_tools(kit: &Kit, arguments: &Arguments) -> Result<ServerTools, Failure> {
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let found = servers::tools(kit, environment.as_ref(), &process_environment()).await;
    let found = found.map_err(Failure::could_not_run)?;
    let mut asked = ServerTools::default();
    let mut silent = Vec::new();
    for (path, listed) in found {
        match listed {
            Ok(listed) => {
                let left_out = listed.left_out.into_iter().map(|one| ToolNotOffered {
                    path: path.clone(),
                    tool: one.tool,
                    reason: one.reason,
                });
                asked.left_out.extend(left_out);
                asked.offered.insert(path, listed.digests);
            }
            Err(why) => silent.push((path, why)),
        }
    }
    match silent.is_empty() {
        true => Ok(asked),
        false => Err(list_failure(&silent)),
    }
}

fn list_failure(silent: &[(String, ListToolsError)]) -> Failure {
    let lines = silent.iter().map(|(path, why)| format!("  {path}: {why}"));
    let lines: Vec<String> = lines.collect();
    let words = format!("tool servers cannot be asked\n\n{}", lines.join("\n"));
    let variable = silent.iter().find_map(|(_, why)| match why {
        ListToolsError::NoValue(error) => error.first(),
        ListToolsError::Failed(_) => None,
    });
    let hint = match variable {
        Some(name) => {
            format!("export {name}=…, or name the environment that has a value for it: --env FILE")
        }
        None => "start them, or name the environment that has them: --env FILE".to_owned(),
    };
    Failure::could_not_run(words).hint(hint)
}

/// Every server that offers something else than a lock says.
pub(super) fn differences(lock: &Lock, offered: &OfferedTools) -> Vec<ToolDrift> {
    let servers = lock.entries.iter().filter(|one| one.kind == Kind::Server);
    let differs = servers.filter_map(|entry| {
        let offered = offered.get(&entry.path)?;
        let new = entry.tools.is_none();
        let difference = match &entry.tools {
            Some(tools) => servers::difference(tools, offered)?,
            // Locked with none and never asked are two things.
            None if offered.is_empty() => "none that may be called".to_owned(),
            None => offered.keys().cloned().collect::<Vec<_>>().join(", "),
        };
        Some(ToolDrift {
            path: entry.path.clone(),
            difference,
            new,
        })
    });
    differs.collect()
}

/// What may be lost with a lock that cannot be read: itself, if tools stand in it.
pub(super) fn unread(file: &Path) -> Vec<String> {
    // What is no text is no lock that anybody wrote.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let has = text.lines().any(|line| line.trim().starts_with("tools:"));
    has.then(|| FILE.to_owned()).into_iter().collect()
}

/// Nothing is forgotten that a run would have been held against.
pub(super) fn removed_servers(lost: &[String], dir: &Path) -> Failure {
    let lost = lost.join(", ");
    let words = format!("the tools locked in {lost} would be forgotten, and others may be there");
    Failure::could_not_run(words).hint(format!(
        "look at what the servers offer, then type: ktsu lock {} --tools",
        quoted(dir)
    ))
}

/// Puts what is offered into a lock.
pub(super) fn put(lock: &mut Lock, mut offered: OfferedTools) {
    for entry in &mut lock.entries {
        if let Some(tools) = offered.remove(&entry.path) {
            entry.tools = Some(tools);
        }
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::lock::{Entry, FORMAT, Prices};

    use super::*;

    #[test]
    fn a_server_with_nothing_to_call_is_locked_as_such() {
        let entry = Entry {
            definition: None,
            digest: "0".repeat(64),
            kind: Kind::Server,
            path: "s".to_owned(),
            tools: None,
            version: "1.0.0".to_owned(),
        };
        let mut lock = Lock {
            entries: vec![entry],
            format: FORMAT,
            prices: Prices {
                digest: "0".repeat(64),
                version: "1".to_owned(),
            },
        };
        let offers = |tools: &[&str]| -> OfferedTools {
            let tools = tools.iter().map(|&name| (name.to_owned(), String::new()));
            [("s".to_owned(), tools.collect())].into()
        };
        let told = |lock: &Lock, tools: &[&str]| -> Vec<String> {
            let retold = differences(lock, &offers(tools));
            retold.into_iter().map(|one| one.difference).collect()
        };
        assert_eq!(told(&lock, &[]), ["none that may be called"]);
        assert_eq!(told(&lock, &["get", "put"]), ["get, put"]);
        put(&mut lock, offers(&[]));
        assert_eq!(lock.entries[0].tools, Some(ToolDigests::new()));
        assert_eq!(told(&lock, &[]), Vec::<String>::new());
        assert_eq!(told(&lock, &["get"]), ["get added"]);
    }
}
