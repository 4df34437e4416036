//! Generates the lock of a kit.

use std::path::Path;

use ktsu_ledger::Hash;
use ktsu_ledger::event::lock::{FORMAT, Kind, Lock, LockEntry, LockedPrices};
use ktsu_ledger::event::plan::Visibility;

use crate::{FileKind, GATEWAY, Kit, KitFile, builtin};
use ktsu_config::fault::{Fault, FaultCode, Faults, Severity};
use ktsu_config::yaml::SourceSpan;
use ktsu_gateway as gateway;
use ktsu_gateway::price;

/// The lock of a kit as it was read.
///
/// # Errors
/// The files without a version of their own (decision K2), and what is wrong with the gateway's
/// file, which has prices.
pub fn generate(kit: &Kit) -> Result<Lock, Faults> {
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

fn entries(kit: &Kit) -> Result<Vec<LockEntry>, Faults> {
    let entry = |file| entry(kit, file).ok_or_else(|| unknown(file));
    kit.files.iter().map(entry).collect()
}

/// A file whose text was not kept has no digest, and must not look as if it had one.
fn unknown(file: &KitFile) -> Faults {
    let words = format!(
        "the text of {} is not known, so it cannot be locked",
        file.path
    );
    let fault = Fault::new(FaultCode::FileUnreadable, SourceSpan::default(), words);
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

fn entry(kit: &Kit, file: &KitFile) -> Option<LockEntry> {
    let source = kit.source(file)?;
    let mut workflows = kit.workflows.values();
    let root = workflows.find(|one| one.path == file.path && one.visibility == Visibility::Root);
    Some(LockEntry {
        definition: root.map(|one| one.definition.digest.clone()),
        digest: Hash::of(source.as_bytes()).to_string(),
        kind: match file.kind {
            FileKind::Agent => Kind::Agent,
            FileKind::Server => Kind::Server,
            FileKind::Workflow => Kind::Workflow,
            FileKind::World => Kind::World,
        },
        path: file.path.clone(),
        tools: Default::default(),
        version: file.version.clone(),
    })
}

/// The prices that count: those that come with ktsu, and those of the kit's groups.
fn prices(root: &Path) -> Result<LockedPrices, Faults> {
    let file = Path::new(GATEWAY);
    let config = match root.join(file).is_file() {
        true => gateway::Config::load_in(root, file, None)?,
        false => gateway::Config::default(),
    };
    let groups = config.groups().iter();
    let table = price::table(groups.map(|group| (group.name.as_str(), &group.prices)));
    Ok(LockedPrices {
        digest: table.digest,
        version: table.version,
    })
}

/// Takes over what an earlier lock says of the tools of servers, and gives the paths of those whose
/// tools would be forgotten although something else may have taken their place.
///
/// What was locked of a server stays whatever became of its file: a pin speaks of a tool, and a run
/// holds the tools that are offered then against it. Where the file leads elsewhere, or allows more,
/// the run stops at what differs. A server that is gone takes its tools with it, unless the kit has
/// one now that the earlier lock does not know: that may be the same one under another name.
pub fn carry_over_tools(made: &mut Lock, before: &Lock) -> Vec<String> {
    let earlier = |path: &str| {
        let mut servers = before.entries.iter();
        servers.find(|one| one.kind == Kind::Server && one.path == path)
    };
    let mut new = false;
    for entry in made
        .entries
        .iter_mut()
        .filter(|one| is_external_server(one))
    {
        match earlier(&entry.path) {
            Some(earlier) => entry.tools.clone_from(&earlier.tools),
            None => new = true,
        }
    }
    let held = |path: &str| made.entries.iter().any(|one| one.path == path);
    let lost = before.entries.iter().filter(|one| one.tools.is_some());
    let lost = lost.filter(|one| new && !held(&one.path));
    lost.map(|one| one.path.clone()).collect()
}

/// Returns `true` if it is a server somewhere. The tools of those that come with ktsu are of its
/// version.
fn is_external_server(entry: &LockEntry) -> bool {
    entry.kind == Kind::Server && !builtin::is_builtin(&entry.path)
}
