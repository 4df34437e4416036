//! Comparing a kit with its lock.

use std::collections::BTreeMap;

use ktsu_ledger::event::lock::{Entry, Lock};

use super::drift::{LockDrift, LockDriftKind, PRICES};
use crate::kit::Kit;

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
