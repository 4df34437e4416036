//! The differences between a kit and its lock.

use std::collections::BTreeMap;
use std::fmt;

use ktsu_ledger::event::lock::{Kind, Lock};
use ktsu_ledger::event::plan::Plan;
use serde::Serialize;

use crate::narrowing;
use crate::servers::ServerUse;

/// The result of comparing a kit with its lock.
#[derive(Debug, Clone)]
pub struct LockStatus {
    /// The content of the file.
    pub lock: Lock,
    /// In what the kit differs, by path.
    pub drift: Vec<LockDrift>,
}

/// One path that is not what was locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockDrift {
    /// In which respect.
    pub difference: LockDriftKind,
    /// The version or digest that the kit has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// The kind of the definition; nothing for prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// The version or digest that the lock has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub locked: Option<String>,
    /// As the lock names it; `prices` for those.
    pub path: String,
}

/// A respect in which a kit can differ from its lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LockDriftKind {
    /// The lock does not know the file.
    Added,
    /// Other bytes under the same version.
    Changed,
    /// The same files, and another definition.
    Definition,
    /// Other prices.
    Prices,
    /// The kit does not have the file.
    Removed,
    /// Another version.
    Version,
}

/// The name of the prices among paths.
pub(super) const PRICES: &str = "prices";

/// As [`Kit::uses`](crate::Kit::uses) has them.
type Uses = BTreeMap<String, Vec<ServerUse>>;

impl LockDrift {
    /// Returns `true` if a run of this plan would use what differs. Prices are no part of a
    /// definition. `uses`: the servers that agents use, by the path of the agent.
    pub(super) fn concerns(&self, plan: &Plan, uses: &Uses) -> bool {
        match self.kind {
            Some(Kind::Server) => {
                let used = plan.agents.keys();
                let used = used.filter_map(|agent| uses.get(narrowing::file_of(agent)));
                used.flatten().any(|one| one.server == self.path)
            }
            Some(Kind::Agent) => {
                let mut agents = plan.agents.keys();
                agents.any(|agent| narrowing::file_of(agent) == self.path)
            }
            Some(Kind::Workflow) => plan.workflows.contains_key(&self.path),
            Some(Kind::World) => plan.worlds.contains_key(&self.path),
            None => false,
        }
    }
}

impl fmt::Display for LockDrift {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = &self.path;
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "none".to_owned());
        let (found, locked) = (side(&self.found), side(&self.locked));
        match self.difference {
            LockDriftKind::Added => write!(f, "{path} is not in the lock"),
            LockDriftKind::Changed => write!(f, "{path} is not the file that was locked"),
            LockDriftKind::Definition => {
                write!(f, "{path} comes to another definition than was locked")
            }
            LockDriftKind::Prices => write!(
                f,
                "the prices are not those that were locked: {found}, locked were {locked}"
            ),
            LockDriftKind::Removed => write!(f, "{path} is locked, and the kit does not have it"),
            LockDriftKind::Version => {
                write!(f, "{path} is version {found}, locked was {locked}")
            }
        }
    }
}
