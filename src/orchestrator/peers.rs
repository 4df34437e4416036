//! Whom the runs of an engine talk to: runtimes, tool servers, receivers of webhooks.

use std::collections::{BTreeMap, BTreeSet};

use super::TokenKey;
use ktsu_peer::Peer;
use ktsu_workflow::definition::Definition;

/// Everything that is reached from here, and what it needs to answer.
pub(super) struct Peers {
    /// The one way out.
    pub(super) egress: ktsu_egress::Client,
    /// Where agents run, if anywhere.
    pub(super) runtime: Option<Peer>,
    /// Asked for its health alone.
    pub(super) gateway: Option<Peer>,
    /// The groups of the gateway in this process, if it is in this process.
    pub(super) groups: Option<BTreeSet<String>>,
    /// Where tool servers are, by their own name, where it is not where their file says.
    pub(super) tool_servers: BTreeMap<String, String>,
    /// The key behind the tokens of attempts.
    pub(super) tokens: TokenKey,
    /// Where runtimes reach this engine.
    pub(super) own_url: String,
}

impl Peers {
    /// Whether agents run within this process, and end with it.
    pub(super) fn runtime_is_local(&self) -> bool {
        matches!(self.runtime, Some(Peer::Local(_)))
    }

    /// A model group that a definition needs and the gateway of this process does not have. That
    /// another kit is at hand is nothing the world said, so it must not fail a run.
    pub(super) fn missing_group(&self, definition: &Definition) -> Option<String> {
        let groups = self.groups.as_ref()?;
        let mut needed = definition.groups().into_iter();
        needed.find(|group| !groups.contains(group))
    }

    /// The first agent step of a definition, where no runtime could run it.
    pub(super) fn lacks_runtime_for(&self, definition: &Definition) -> Option<String> {
        match self.runtime {
            Some(_) => None,
            None => definition.first_agent(),
        }
    }
}
