//! The services that runs talk to: runtimes, tool servers, receivers of webhooks.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::TokenKey;
use ktsu_contract::in_process::AgentRuntime;
use ktsu_peer::Peer;
use ktsu_projections::run::GroupPrices;
use ktsu_workflow::definition::Definition;

/// Everything that is reached from here, and what it needs to answer.
pub struct Peers {
    /// The client for all outgoing requests.
    pub egress: ktsu_egress::Client,
    /// The runtimes of agents.
    pub runtimes: Vec<ServicePeer>,
    /// The runtime of this process, if it is here: it is given tasks as values.
    pub runtime_here: Option<Arc<dyn AgentRuntime>>,
    /// The gateways, for health checks only: model calls go through the runtime (seed 000, invariant
    /// 6).
    pub gateways: Vec<ServicePeer>,
    /// The groups of the gateway in this process, if it is in this process: the digest of how it routes
    /// their calls, by name.
    pub groups: Option<BTreeMap<String, String>>,
    /// The most that they cost, as far as that is known.
    pub prices: GroupPrices,
    /// URLs of tool servers by name, if they differ from those in their files.
    pub tool_servers: BTreeMap<String, String>,
    /// The key behind the tokens of attempts.
    pub tokens: TokenKey,
    /// The URL at which runtimes reach this engine: `http://127.0.0.1:5050`.
    pub own_url: String,
}

/// A service, and the URL by which it is configured.
#[derive(Clone)]
pub struct ServicePeer {
    /// The URL.
    pub url: String,
    /// The way to it.
    pub peer: Peer,
}

impl ServicePeer {
    /// A service of this process.
    pub fn local(peer: Peer) -> Self {
        let url = "this process".to_owned();
        Self { url, peer }
    }

    /// Returns `true` if it is in this process.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.peer, Peer::Local(_))
    }
}

impl Peers {
    /// Returns `true` if agents run within this process, and end with it.
    pub(super) fn runtime_is_local(&self) -> bool {
        self.runtimes.iter().any(ServicePeer::is_local)
    }

    /// A model group that a definition needs and this gateway lacks. Such a run waits instead of
    /// failing, because the missing group is a property of this process.
    pub(super) fn missing_group(&self, definition: &Definition) -> Option<String> {
        let groups = self.groups.as_ref()?;
        let mut needed = definition.groups().into_iter();
        needed.find(|group| !groups.contains_key(group))
    }

    /// The digest of how the gateway routes calls of a group, where it is known: of a gateway in
    /// another process it is not.
    pub(super) fn routing(&self, group: &str) -> Option<String> {
        self.groups.as_ref()?.get(group).cloned()
    }

    /// Returns `true` if calls of a group cost nothing, whichever model answers them.
    pub(super) fn is_free(&self, group: &str) -> bool {
        self.prices.get(group).is_some_and(|price| price.is_free())
    }

    /// The first agent step of a definition, where no runtime could run it.
    pub(super) fn lacks_runtime_for(&self, definition: &Definition) -> Option<String> {
        match self.runtimes.is_empty() {
            false => None,
            true => definition.first_agent(),
        }
    }
}
