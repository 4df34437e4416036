//! Comparing a kit with its lock.

use std::collections::BTreeMap;

use ktsu_ledger::event::lock::{Lock, LockEntry};

use super::drift::LockDriftKind::{Added, Changed, Definition, Prices, Removed, Version};
use super::drift::{LockDrift, LockDriftKind, PRICES};
use crate::kit::Kit;

/// Everything that differs, by path.
pub(super) fn between(locked: &Lock, found: &Lock, kit: &Kit) -> Vec<LockDrift> {
    let by_path = |lock: &Lock| -> BTreeMap<String, LockEntry> {
        let entries = lock.entries.iter();
        entries.map(|one| (one.path.clone(), one.clone())).collect()
    };
    let (before, after) = (by_path(locked), by_path(found));
    let mut drift = Vec::new();
    for (path, new) in &after {
        match before.get(path) {
            Some(old) => drift.extend(changed(old, new)),
            None => drift.push(entry(Added, new, None, Some(&new.digest))),
        }
    }
    let gone = before.iter().filter(|(path, _)| !after.contains_key(*path));
    drift.extend(gone.map(|(_, old)| entry(Removed, old, Some(&old.digest), None)));
    let pairs = after.iter().filter_map(|(path, new)| {
        let old = before.get(path)?;
        definition_drift(old, new, kit, &drift)
    });
    let otherwise: Vec<LockDrift> = pairs.collect();
    drift.extend(otherwise);
    drift.sort_by(|a, b| a.path.cmp(&b.path));
    if locked.prices != found.prices {
        drift.push(LockDrift {
            difference: Prices,
            found: Some(found.prices.version.clone()),
            kind: None,
            locked: Some(locked.prices.version.clone()),
            path: PRICES.to_owned(),
        });
    }
    drift
}

fn changed(old: &LockEntry, new: &LockEntry) -> Option<LockDrift> {
    if old.version != new.version {
        return Some(entry(Version, new, Some(&old.version), Some(&new.version)));
    }
    let same = old.digest == new.digest && old.kind == new.kind;
    (!same).then(|| entry(Changed, new, Some(&old.digest), Some(&new.digest)))
}

/// A workflow whose definition differs although none of its files does: a changed file is reported
/// once, as such.
fn definition_drift(
    old: &LockEntry,
    new: &LockEntry,
    kit: &Kit,
    drift: &[LockDrift],
) -> Option<LockDrift> {
    let mut workflows = kit.workflows.values();
    let workflow = workflows.find(|one| one.path == new.path);
    let explained = drift.iter().any(|one| {
        one.path == new.path
            || workflow.is_some_and(|it| one.concerns(&it.definition.plan, &kit.uses))
    });
    let differs = old.definition != new.definition && !explained;
    differs.then(|| {
        entry(
            Definition,
            new,
            old.definition.as_ref(),
            new.definition.as_ref(),
        )
    })
}

/// A difference of one entry; `locked` and `found` are its two sides.
fn entry(
    difference: LockDriftKind,
    of: &LockEntry,
    locked: Option<&String>,
    found: Option<&String>,
) -> LockDrift {
    LockDrift {
        difference,
        found: found.cloned(),
        kind: Some(of.kind),
        locked: locked.cloned(),
        path: of.path.clone(),
    }
}
