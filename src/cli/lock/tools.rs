//! The tools that servers offer, compared with a lock.

use std::collections::BTreeMap;
use std::path::Path;

use ktsu_ledger::event::lock::{Kind, Lock};
use serde::Serialize;

use crate::Failure;
use ktsu_assemble::servers::{self, ListToolsError, ToolDigests, UnmatchedEntry};
use ktsu_kit::Kit;
use ktsu_kit::lock::FILE;
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::quoting::quoted;

/// By the path of the server.
pub(super) type OfferedTools = BTreeMap<String, ToolDigests>;

/// A server whose tools are not those of the lock.
#[derive(Debug, Serialize)]
pub(super) struct ToolDrift {
    path: String,
    difference: String,
    /// True if the lock has no tools of this server yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    new: bool,
}

impl ToolDrift {
    /// The change that writing the lock makes, in words.
    pub(super) fn written_text(&self) -> String {
        match self.new {
            true => format!("{}: tools locked: {}", self.path, self.difference),
            false => self.drift_text(),
        }
    }

    /// The problem, for a lock that is checked.
    pub(super) fn words(&self) -> String {
        match self.new {
            true => format!(
                "{}: its tools are not locked: {}",
                self.path, self.difference
            ),
            false => self.drift_text(),
        }
    }

    fn drift_text(&self) -> String {
        format!(
            "{}: its tools differ from the lock: {}",
            self.path, self.difference
        )
    }
}

/// A tool that an allowlist permits but that is not offered to models.
#[derive(Debug, Serialize)]
pub(crate) struct ToolNotOffered {
    path: String,
    tool: String,
    reason: &'static str,
}

impl ToolNotOffered {
    pub(crate) fn words(&self) -> String {
        let Self { path, tool, reason } = self;
        format!("{path}: the tool {tool:?} is not offered: {reason}")
    }
}

/// An entry of an allowlist that covers no tool of its server.
#[derive(Debug, Serialize)]
pub(crate) struct EntryWithoutTool {
    path: String,
    entry: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    near: Option<String>,
}

impl EntryWithoutTool {
    pub(crate) fn words(&self) -> String {
        let Self { path, entry, near } = self;
        let near = near.as_ref().map(|near| format!(": did you mean {near}?"));
        let near = near.unwrap_or_default();
        format!(
            "{path}: the allowlist entry {entry:?} matches no tool that the server offers{near}"
        )
    }
}

/// The warnings about tools.
#[derive(Default)]
pub(crate) struct ToolWarnings {
    pub(crate) left_out: Vec<ToolNotOffered>,
    pub(crate) unmatched: Vec<EntryWithoutTool>,
}

impl ToolWarnings {
    fn add_unmatched(&mut self, path: &str, entries: Vec<UnmatchedEntry>) {
        let entries = entries.into_iter().map(|one| EntryWithoutTool {
            path: path.to_owned(),
            entry: one.entry,
            near: one.near,
        });
        self.unmatched.extend(entries);
    }

    /// Each in words.
    pub(crate) fn words(&self) -> impl Iterator<Item = String> {
        let left_out = self.left_out.iter().map(ToolNotOffered::words);
        left_out.chain(self.unmatched.iter().map(EntryWithoutTool::words))
    }
}

/// The tools of a kit's servers.
#[derive(Default)]
pub(crate) struct ServerTools {
    pub(super) offered: OfferedTools,
    pub(crate) warnings: ToolWarnings,
}

/// A server that did not list its tools, by its path.
type SilentServer = (String, ListToolsError);

/// Lists the tools of every server. If one fails, nothing is locked.
pub(super) async fn list_tools(kit: &Kit, env: Option<&Path>) -> Result<ServerTools, Failure> {
    let (tools, silent) = list_what_answers(kit, env).await?;
    match silent.is_empty() {
        true => Ok(tools),
        false => Err(list_failure(&silent)),
    }
}

/// Lists the tools of every server that answers, and names the others.
pub(crate) async fn list_what_answers(
    kit: &Kit,
    env: Option<&Path>,
) -> Result<(ServerTools, Vec<SilentServer>), Failure> {
    let environment = load_environment(env, &kit.root)?;
    let found = servers::tools(kit, environment.as_ref(), &process_environment()).await;
    let found = found.map_err(Failure::could_not_run)?;
    let mut tools = ServerTools::default();
    for (path, unmatched) in servers::unmatched_of_builtin(kit) {
        tools.warnings.add_unmatched(&path, unmatched);
    }
    let mut silent = Vec::new();
    for (path, listed) in found {
        match listed {
            Ok(listed) => {
                let left_out = listed.left_out.into_iter().map(|one| ToolNotOffered {
                    path: path.clone(),
                    tool: one.tool,
                    reason: one.reason,
                });
                tools.warnings.left_out.extend(left_out);
                tools.warnings.add_unmatched(&path, listed.unmatched);
                tools.offered.insert(path, listed.digests);
            }
            Err(why) => silent.push((path, why)),
        }
    }
    Ok((tools, silent))
}

fn list_failure(silent: &[SilentServer]) -> Failure {
    let lines = silent.iter().map(|(path, why)| format!("  {path}: {why}"));
    let lines: Vec<String> = lines.collect();
    let servers = crate::text::count(lines.len(), "server");
    let words = format!("cannot list the tools of {servers}\n\n{}", lines.join("\n"));
    let variable = silent.iter().find_map(|(_, why)| match why {
        ListToolsError::NoValue(error) => error.first(),
        ListToolsError::Failed(_) => None,
    });
    let hint = match variable {
        Some(name) => {
            format!("export {name}=…, or name the environment that has a value for it: --env FILE")
        }
        None => "start the servers, or name the environment that has them: --env FILE".to_owned(),
    };
    Failure::could_not_run(words).hint(hint)
}

/// The servers whose tools differ from the lock.
pub(super) fn differences(lock: &Lock, offered: &OfferedTools) -> Vec<ToolDrift> {
    let servers = lock.entries.iter().filter(|one| one.kind == Kind::Server);
    let differs = servers.filter_map(|entry| {
        let offered = offered.get(&entry.path)?;
        let new = entry.tools.is_none();
        let difference = match &entry.tools {
            Some(tools) => servers::difference(tools, offered)?,
            // A server locked with no tools differs from one that was never listed.
            None if offered.is_empty() => "none that an agent may call".to_owned(),
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

/// The name of an unreadable lock, if it may have tools that would be lost.
pub(super) fn unread(file: &Path) -> Vec<String> {
    // A file that is not text is not a lock.
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let has = text.lines().any(|line| line.trim().starts_with("tools:"));
    has.then(|| FILE.to_owned()).into_iter().collect()
}

/// Refuses to drop locked tools silently.
pub(super) fn removed_servers(lost: &[String], dir: &Path) -> Failure {
    let lost = lost.join(", ");
    let words = format!("this would remove the tools locked in {lost}");
    Failure::could_not_run(words).hint(format!(
        "to lock what the servers offer now: ktsu lock {} --tools",
        quoted(dir)
    ))
}

/// Adds the listed tools to a lock.
pub(super) fn put(lock: &mut Lock, mut offered: OfferedTools) {
    for entry in &mut lock.entries {
        if let Some(tools) = offered.remove(&entry.path) {
            entry.tools = Some(tools);
        }
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::event::lock::{FORMAT, LockEntry, LockedPrices};

    use super::*;

    #[test]
    fn a_server_with_nothing_to_call_is_locked_as_such() {
        let entry = LockEntry {
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
            prices: LockedPrices {
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
        assert_eq!(told(&lock, &[]), ["none that an agent may call"]);
        assert_eq!(told(&lock, &["get", "put"]), ["get, put"]);
        put(&mut lock, offers(&[]));
        assert_eq!(lock.entries[0].tools, Some(ToolDigests::new()));
        assert_eq!(told(&lock, &[]), Vec::<String>::new());
        assert_eq!(told(&lock, &["get"]), ["get added"]);
    }
}
