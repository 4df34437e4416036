//! The lock of a kit: `ktsu.lock.yaml`, which pins every file with its version (seed 000, invariant
//! 12; decision K2).
//!
//! ```text
//! kit ──generate──▶ Lock ──write──▶ ktsu.lock.yaml ──read──▶ Lock with locations
//!  └──────────────────── compare ───────────────────────────────┘ drift, path by path
//! ```
//!
//! A kit is compared with its lock whenever it is read. Drift is a warning, or an error if only
//! locked files may be used. If the files of a workflow match the lock, its runs record it.

mod compare;
mod drift;
mod file;
mod generate;
pub mod shape;

use std::path::Path;

use ktsu_ledger::CanonicalJson;

use super::kit::Kit;
use super::loader::Loader;
use ktsu_config::fault::{Fault, FaultCode, Faults, Severity};
use ktsu_config::yaml::SourceSpan;

pub use drift::{LockDrift, LockDriftKind, LockStatus};
pub(super) use file::LocatedLock;
pub use file::{FILE, to_yaml};
pub use generate::{carry_over_tools, generate};

/// The lock that lies beside the files of a kit; what is wrong with it is a fault of the kit.
pub(super) fn read(loader: &mut Loader) -> Option<LocatedLock> {
    // A link that leads nowhere is there, too.
    loader.root.join(FILE).symlink_metadata().ok()?;
    let text = loader.text(FILE)?;
    let node = loader.node(FILE, &text)?;
    let (placed, mut faults) = file::read(&text, &node);
    loader.faults.faults.append(&mut faults);
    placed
}

/// Holds a sound kit against its lock.
pub(super) fn check_against_lock(kit: &mut Kit, placed: LocatedLock) {
    // A kit that cannot be locked is reported only where a lock is required.
    let Ok(wanted) = generate(kit) else { return };
    let drift = compare::between(&placed.lock, &wanted, kit);
    for one in &drift {
        kit.warnings.add(fault(one, &placed));
    }
    kit.warnings.sort();
    let json = serde_json::to_value(&placed.lock);
    let json = json
        .ok()
        .and_then(|value| CanonicalJson::from_value(&value).ok());
    let uses = &kit.uses;
    for workflow in kit.workflows.values_mut() {
        let plan = &workflow.definition.plan;
        let differs = drift.iter().any(|one| one.concerns(plan, uses));
        workflow.lock = json.clone().filter(|_| !differs);
    }
    kit.lock = Some(LockStatus {
        lock: placed.lock,
        drift,
    });
}

fn fault(drift: &LockDrift, placed: &LocatedLock) -> Fault {
    let place = placed.place(drift);
    let fault = Fault::new(FaultCode::LockDrift, place, drift.to_string()).warning();
    let hint = match drift.difference {
        LockDriftKind::Definition => {
            "another version of ktsu resolves the same files otherwise; `ktsu lock` takes it in"
        }
        LockDriftKind::Prices => "to lock the current prices: ktsu lock",
        LockDriftKind::Added
        | LockDriftKind::Changed
        | LockDriftKind::Removed
        | LockDriftKind::Version => "restore the file, or lock the change: ktsu lock",
    };
    fault.hint(hint).in_file(Path::new(FILE))
}

impl Kit {
    /// The differences from its lock, as warnings; nothing where there is none, or no lock.
    pub fn drift_warnings(&self) -> Option<Faults> {
        let all = self.warnings.faults.iter();
        let faults: Vec<Fault> = all
            .filter(|fault| fault.code == FaultCode::LockDrift)
            .cloned()
            .collect();
        let sources = || self.warnings.sources.clone();
        (!faults.is_empty()).then(|| Faults {
            faults,
            sources: sources(),
        })
    }

    /// Refuses a kit that is not what its lock says, or that has none.
    ///
    /// # Errors
    /// Every difference, or that there is no lock.
    pub fn must_be_locked(&self) -> Result<(), Faults> {
        let mut found = Faults {
            faults: Vec::new(),
            sources: self.warnings.sources.clone(),
        };
        found.faults = self.warnings.faults.clone();
        found
            .faults
            .retain(|fault| fault.code == FaultCode::LockDrift);
        for fault in &mut found.faults {
            fault.severity = Severity::Error;
        }
        if !found.sources.contains_key(Path::new(FILE)) {
            found.faults.push(absent());
        }
        if self.lock.is_none()
            && let Err(unfit) = generate(self)
        {
            found.faults.extend(unfit.faults);
            found.sources.extend(unfit.sources);
        }
        match found.faults.is_empty() {
            true => Ok(()),
            false => Err(found),
        }
    }
}

fn absent() -> Fault {
    let words = "the kit has no lock file (required by --locked)";
    let fault = Fault::new(FaultCode::LockMissing, SourceSpan::default(), words);
    fault
        .hint("write one with `ktsu lock`")
        .in_file(Path::new(FILE))
}

#[cfg(test)]
mod tests;
