//! What differs between a kit and its lock.

use std::collections::BTreeMap;
use std::fmt;

use ktsu_ledger::event::lock::{Entry, Kind, Lock};
use ktsu_ledger::event::plan::Plan;
use serde::Serialize;

use crate::Kit;
use crate::servers::ServerUse;

/// One path that is not what was locked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LockDrift {
    /// In which respect.
    pub difference: LockDriftKind,
    /// What the kit has: a version, or a digest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What it is; nothing for prices.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// What the lock has.
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

/// What stands for the prices among paths.
pub(super) const PRICES: &str = "prices";

/// Everything that differs, by path.
pub(super) fn between(locked: &Lock, found: &Lock, kit: &Kit) -> Vec<LockDrift> {
    let by_path = |lock: &Lock| -> BTreeMap<String, Entry> {
        let entries = lock.entries.iter();
        entries.map(|one| (one.path.clone(), one.clone())).collect()
    };
    let (before, after) = (by_path(locked), by_path(found));
    let mut drift = Vec::new();
    for (path, new) in &after {
        match before.get(path) {
            Some(old) => drift.extend(changed(old, new)),
            None => drift.push(LockDrift {
                difference: LockDriftKind::Added,
                found: Some(new.digest.clone()),
                kind: Some(new.kind),
                locked: None,
                path: path.clone(),
            }),
        }
    }
    let gone = before.iter().filter(|(path, _)| !after.contains_key(*path));
    drift.extend(gone.map(|(path, old)| LockDrift {
        difference: LockDriftKind::Removed,
        found: None,
        kind: Some(old.kind),
        locked: Some(old.digest.clone()),
        path: path.clone(),
    }));
    let pairs = after.iter().filter_map(|(path, new)| {
        let old = before.get(path)?;
        definition_drift(old, new, kit, &drift)
    });
    let otherwise: Vec<LockDrift> = pairs.collect();
    drift.extend(otherwise);
    drift.sort_by(|a, b| a.path.cmp(&b.path));
    if locked.prices != found.prices {
        drift.push(LockDrift {
            difference: LockDriftKind::Prices,
            found: Some(found.prices.version.clone()),
            kind: None,
            locked: Some(locked.prices.version.clone()),
            path: PRICES.to_owned(),
        });
    }
    drift
}

fn changed(old: &Entry, new: &Entry) -> Option<LockDrift> {
    let drift = |difference, locked: &str, found: &str| LockDrift {
        difference,
        found: Some(found.to_owned()),
        kind: Some(new.kind),
        locked: Some(locked.to_owned()),
        path: new.path.clone(),
    };
    if old.version != new.version {
        return Some(drift(LockDriftKind::Version, &old.version, &new.version));
    }
    let same = old.digest == new.digest && old.kind == new.kind;
    (!same).then(|| drift(LockDriftKind::Changed, &old.digest, &new.digest))
}

/// Another definition of a workflow. Another file makes one, which is told once, of the file.
fn definition_drift(old: &Entry, new: &Entry, kit: &Kit, drift: &[LockDrift]) -> Option<LockDrift> {
    let mut workflows = kit.workflows.values();
    let workflow = workflows.find(|one| one.path == new.path);
    let explained = drift.iter().any(|one| {
        one.path == new.path
            || workflow.is_some_and(|it| one.concerns(&it.definition.plan, &kit.uses))
    });
    let differs = old.definition != new.definition && !explained;
    differs.then(|| LockDrift {
        difference: LockDriftKind::Definition,
        found: new.definition.clone(),
        kind: Some(new.kind),
        locked: old.definition.clone(),
        path: new.path.clone(),
    })
}

/// As [`Kit::uses`] has them.
type Uses = BTreeMap<String, Vec<ServerUse>>;

impl LockDrift {
    /// Whether a run of this plan would use what differs. Prices are no part of a definition.
    /// `uses`: the servers that agents use, by the path of the agent.
    pub(super) fn concerns(&self, plan: &Plan, uses: &Uses) -> bool {
        match self.kind {
            Some(Kind::Server) => {
                let used = plan.agents.keys().filter_map(|agent| uses.get(agent));
                used.flatten().any(|one| one.server == self.path)
            }
            Some(Kind::Agent) => plan.agents.contains_key(&self.path),
            Some(Kind::Workflow) => plan.workflows.contains_key(&self.path),
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
