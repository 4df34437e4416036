//! The tool digests in the lock of a run, for the tools its agents may call (seed 000, invariant
//! 12).

use std::collections::BTreeMap;

use ktsu_ledger::event::RunCreated;
use ktsu_ledger::event::lock::{Kind, Lock};

/// The tools of a lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pins {
    /// The digest of the definition that was locked: of another one the lock says nothing.
    pub definition: String,
    /// By the path of the server, by the name of the tool. A server that was not asked when the kit
    /// was locked is not among them; one that had nothing to call is, with no tool.
    pub servers: BTreeMap<String, BTreeMap<String, String>>,
}

impl Pins {
    /// Those of a run; none if no tool was locked, which is most of the time, so the text is looked
    /// at before it is read.
    pub(super) fn of(created: &RunCreated) -> Option<Box<Self>> {
        let text = created.lock.as_ref()?.as_str();
        if !text.contains("\"tools\"") {
            return None;
        }
        let lock: Lock = serde_json::from_str(text).ok()?;
        let servers = lock.entries.into_iter();
        let servers = servers.filter(|one| one.kind == Kind::Server);
        let locked = servers.filter_map(|one| Some((one.path, one.tools?)));
        let servers: BTreeMap<_, _> = locked.collect();
        (!servers.is_empty()).then(|| {
            Box::new(Self {
                definition: created.digest.clone(),
                servers,
            })
        })
    }
}
