//! What tool servers offer, in a lock and against one.

use std::collections::BTreeMap;

use ktsu_ledger::event::lock::{Kind, Lock};
use serde::Serialize;

use super::Arguments;
use crate::assemble::servers::{self, Digests};
use crate::cli::Failure;
use crate::cli::engine::{load_environment, process_environment};
use crate::kit::Kit;

/// By the path of the server.
pub(super) type Offered = BTreeMap<String, Digests>;

/// A server whose tools are not those of the lock.
#[derive(Debug, Serialize)]
pub(super) struct Retold {
    path: String,
    difference: String,
}

impl Retold {
    pub(super) fn words(&self) -> String {
        format!(
            "{} offers other tools than were locked: {}",
            self.path, self.difference
        )
    }
}

/// Asks every server. Where one does not answer nothing is locked: half of the truth is none.
pub(super) async fn offered(kit: &Kit, arguments: &Arguments) -> Result<Offered, Failure> {
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let found = servers::tools(kit, environment.as_ref(), &process_environment()).await;
    let found = found.map_err(Failure::could_not_run)?;
    let mut offered = Offered::new();
    let mut silent = Vec::new();
    for (path, listed) in found {
        match listed {
            Ok(digests) => drop(offered.insert(path, digests)),
            Err(why) => silent.push(format!("  {path}: {why}")),
        }
    }
    match silent.is_empty() {
        true => Ok(offered),
        false => {
            let words = format!("tool servers cannot be asked\n\n{}", silent.join("\n"));
            Err(Failure::could_not_run(words)
                .hint("start them, or name the environment that has them: --env FILE"))
        }
    }
}

/// Every server that offers something else than a lock says.
pub(super) fn differences(lock: &Lock, offered: &Offered) -> Vec<Retold> {
    let servers = lock.entries.iter().filter(|one| one.kind == Kind::Server);
    let differs = servers.filter_map(|entry| {
        let offered = offered.get(&entry.path)?;
        let difference = match &entry.tools {
            Some(tools) => servers::difference(tools, offered)?,
            // Locked with none and never asked are two things.
            None => servers::difference(&Digests::new(), offered)
                .unwrap_or_else(|| "its tools were not locked".to_owned()),
        };
        Some(Retold {
            path: entry.path.clone(),
            difference,
        })
    });
    differs.collect()
}

/// Puts what is offered into a lock.
pub(super) fn put(lock: &mut Lock, mut offered: Offered) {
    for entry in &mut lock.entries {
        if let Some(tools) = offered.remove(&entry.path) {
            entry.tools = Some(tools);
        }
    }
}
