//! The lock a kit comes to.

use std::path::Path;

use ktsu_ledger::Hash;
use ktsu_ledger::event::lock::{Entry, FORMAT, Kind, Lock, Prices};
use ktsu_ledger::event::plan::Visibility;

use crate::gateway;
use crate::gateway::price;
use crate::kit::fault::{Fault, FaultCode, Faults, Severity};
use crate::kit::yaml::Place;
use crate::kit::{FileKind, GATEWAY, Kit, KitFile};

/// The lock of a kit as it was read.
///
/// # Errors
/// The files without a version of their own (decision K2), and what is wrong with the gateway's
/// file, which has prices.
pub fn made(kit: &Kit) -> Result<Lock, Faults> {
    let mut refused = unversioned(kit);
    let prices = match prices(&kit.root) {
        Ok(prices) => Some(prices),
        Err(faults) => {
            refused.faults.extend(faults.faults);
            refused.sources.extend(faults.sources);
            None
        }
    };
    match prices {
        Some(prices) if !refused.has_errors() => entries(kit).map(|entries| Lock {
            entries,
            format: FORMAT,
            prices,
        }),
        Some(_) | None => Err(refused),
    }
}

fn entries(kit: &Kit) -> Result<Vec<Entry>, Faults> {
    let entry = |file| entry(kit, file).ok_or_else(|| unknown(file));
    kit.files.iter().map(entry).collect()
}

/// A file whose text was not kept has no digest, and must not look as if it had one.
fn unknown(file: &KitFile) -> Faults {
    let words = format!(
        "the text of {} is not known, so it cannot be locked",
        file.path
    );
    let fault = Fault::new(FaultCode::FileUnreadable, Place::default(), words);
    Faults {
        faults: vec![fault.in_file(Path::new(file.file()))],
        sources: Default::default(),
    }
}

/// Files without a version, which are warned of where nobody locks them.
fn unversioned(kit: &Kit) -> Faults {
    let mut faults = Faults {
        faults: kit.warnings.faults.clone(),
        sources: kit.warnings.sources.clone(),
    };
    faults
        .faults
        .retain(|fault| fault.code == FaultCode::VersionMissing);
    for fault in &mut faults.faults {
        fault.severity = Severity::Error;
    }
    faults
}

fn entry(kit: &Kit, file: &KitFile) -> Option<Entry> {
    let source = kit.source(file)?;
    let mut workflows = kit.workflows.values();
    let root = workflows.find(|one| one.path == file.path && one.visibility == Visibility::Root);
    Some(Entry {
        definition: root.map(|one| one.definition.digest.clone()),
        digest: Hash::of(source.as_bytes()).to_string(),
        kind: match file.kind {
            FileKind::Agent => Kind::Agent,
            FileKind::Server => Kind::Server,
            FileKind::Workflow => Kind::Workflow,
        },
        path: file.path.clone(),
        tools: Default::default(),
        version: file.version.clone(),
    })
}

/// The prices that count: those that come with ktsu, and those of the kit's groups.
fn prices(root: &Path) -> Result<Prices, Faults> {
    let file = Path::new(GATEWAY);
    let config = match root.join(file).is_file() {
        true => gateway::Config::load_in(root, file, None)?,
        false => gateway::Config::default(),
    };
    let groups = config.groups().iter();
    let table = price::table(groups.map(|group| (group.name.as_str(), &group.prices)));
    Ok(Prices {
        digest: table.digest,
        version: table.version,
    })
}

/// Takes over what an earlier lock says of the tools of servers whose file is the same.
pub fn keep_tools(made: &mut Lock, before: &Lock) {
    for entry in made
        .entries
        .iter_mut()
        .filter(|one| one.kind == Kind::Server)
    {
        let mut earlier = before.entries.iter();
        let same = earlier.find(|one| {
            (one.kind, &one.path, &one.digest) == (entry.kind, &entry.path, &entry.digest)
        });
        if let Some(same) = same {
            entry.tools.clone_from(&same.tools);
        }
    }
}
