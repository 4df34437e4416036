//! Runtime and gateway: those of this process, or the addresses of others.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};

use axum::Router;

use super::{Agents, Setup};
use ktsu_api::judges::JudgeModels;
use ktsu_egress as egress;
use ktsu_environment::Principals;
use ktsu_environment::principals::PrincipalRole;
use ktsu_gateway::Gateway;
use ktsu_ledger::CanonicalJson;
use ktsu_orchestrator::ServicePeer;
use ktsu_peer::{ConnectionPool, Peer};
use ktsu_projections::run::{GroupPrice, GroupPrices};
use ktsu_runtime::{Callbacks, GatewayLink, LocalOrchestrator, Runtime, RuntimeParts};
use ktsu_tools::McpClient;
use ktsu_workflow::admit::report::sha256;

/// Runtime and gateway, as the orchestrator meets them.
#[derive(Default)]
pub(super) struct Workers {
    pub(super) runtimes: Vec<ServicePeer>,
    pub(super) gateways: Vec<ServicePeer>,
    /// The runtime of this process.
    pub(super) here: Option<Runtime>,
    /// The gateway of this process.
    pub(super) gateway_here: Option<Gateway>,
    /// The models that checks ask.
    pub(super) models: JudgeModels,
    /// The services to listen, and their addresses.
    pub(super) listening: Vec<(&'static str, SocketAddr, Router)>,
}

/// Makes those of this process, and finds those of others.
pub(super) fn agents(
    (setup, principals): (&Setup, &Principals),
    gateway: Gateway,
    callbacks: &Arc<OnceLock<LocalOrchestrator>>,
    egress: &egress::Client,
) -> Workers {
    let mut workers = Workers::default();
    match &setup.agents {
        Agents::Nowhere => {}
        Agents::Remote { runtimes, gateways } => {
            let pool = ConnectionPool::new(setup.certificates.clone());
            let own = principals.token_of(PrincipalRole::Orchestrator);
            let token = setup.service_token.clone();
            let token = token.or_else(|| Some(own?.expose().to_owned()));
            let remote = |url: &String| ServicePeer {
                url: url.clone(),
                peer: Peer::with_pool(pool.clone(), url, token.clone()),
            };
            workers.runtimes = runtimes.iter().map(remote).collect();
            workers.gateways = gateways.iter().map(remote).collect();
            let gateways = workers.gateways.iter();
            let gateways: Vec<Peer> = gateways.map(|gateway| gateway.peer.clone()).collect();
            let is_known = !gateways.is_empty();
            workers.models = JudgeModels::new(is_known.then(|| GatewayLink::Peers(gateways)));
        }
        Agents::Here {
            runtime: runtime_at,
            gateway: gateway_at,
        } => {
            let routes = ktsu_gateway::router(gateway.clone());
            let runtime = Runtime::new(RuntimeParts {
                gateway: GatewayLink::InProcess(Arc::new(gateway.clone())),
                orchestrator: Callbacks::Local(Arc::downgrade(callbacks)),
                tools: Arc::new(McpClient::new(egress.clone())),
                places: None,
            });
            let runtime_at = runtime_at.map(|at| ("runtime", at, runtime.router()));
            let gateway_at = gateway_at.map(|at| ("gateway", at, routes.clone()));
            workers.listening = runtime_at.into_iter().chain(gateway_at).collect();
            workers.runtimes = vec![ServicePeer::local(Peer::Local(runtime.router()))];
            workers.gateways = vec![ServicePeer::local(Peer::Local(routes))];
            let link = GatewayLink::InProcess(Arc::new(gateway.clone()));
            workers.models = JudgeModels::new(Some(link));
            workers.here = Some(runtime);
            workers.gateway_here = Some(gateway);
        }
    }
    workers
}

/// The highest prices of the calls of each group.
pub fn group_prices(gateway: &Gateway) -> GroupPrices {
    let highest = gateway.highest_prices().into_iter();
    let prices = highest.map(|(group, (input, output))| (group, GroupPrice { input, output }));
    prices.collect()
}

/// The digest of how a gateway routes the calls of each group: SHA-256 over RFC 8785 text (decision
/// F7).
pub fn routing_digests(gateway: &Gateway) -> BTreeMap<String, String> {
    let routes = gateway.routes().into_iter();
    let digests = routes.filter_map(|(group, route)| {
        let route = CanonicalJson::from_value(&route).ok()?;
        Some((group, sha256(&route)))
    });
    digests.collect()
}
