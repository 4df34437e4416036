//! `GET /health`.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::{Request, StatusCode};
use futures_util::future::join_all;

use super::query::{NoParameters, Query};
use super::wire;
use ktsu_evidence::notary::NotaryStatus;
use ktsu_orchestrator::{LedgerRole, Orchestrator, ServicePeer};
use ktsu_peer::Peer;
use ktsu_workflow::admit::ENGINE;

/// The time a service may take to report its health.
const PEER_TIMEOUT: Duration = Duration::from_secs(2);

/// The most bytes of such a report.
const MAX_HEALTH_BYTES: usize = 64 * 1024;

/// Whether the engine works, and the services it needs.
#[utoipa::path(get, path = "/health", responses(
    (status = 200, body = wire::Health),
    (status = 503, body = wire::Health, description = "The engine is draining, the ledger has stopped, is damaged or short of space, nothing is signed, or a service is unhealthy"),
))]
pub(super) async fn health(
    State(orchestrator): State<Orchestrator>,
    _: Query<NoParameters>,
) -> (StatusCode, Json<wire::Health>) {
    let (ledger, why) = orchestrator.ledger_state();
    let own = match ledger.is_healthy() {
        true if orchestrator.is_draining() => "draining",
        true => "ok",
        false => "error",
    };
    let evidence = evidence(&orchestrator.notary());
    let role = orchestrator.role();
    let (runtimes, gateways) = tokio::join!(
        states_of(orchestrator.runtimes()),
        states_of(orchestrator.gateways())
    );
    let services = [
        ("orchestrator", own),
        ("runtime", state_of_all(&runtimes)),
        ("gateway", state_of_all(&gateways)),
    ];
    let well = services
        .iter()
        .all(|(_, state)| matches!(*state, "ok" | "unconfigured"));
    let (status, word) = match well && evidence.signing == "ok" {
        true => (StatusCode::OK, "ok"),
        false if own == "draining" => (StatusCode::SERVICE_UNAVAILABLE, "draining"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "error"),
    };
    let health = wire::Health {
        status: word.to_owned(),
        services: BTreeMap::from(services.map(|(name, state)| (name.to_owned(), state.to_owned()))),
        active_runs: orchestrator.active() as u64,
        engine: ENGINE.to_owned(),
        evidence,
        ledger: wire::LedgerHealth {
            state: ledger.as_str().to_owned(),
            why,
            warnings: orchestrator.ledger_warnings(),
        },
        role: role.as_str().to_owned(),
        standby: standby(&role),
        retention: orchestrator.postponed_removals(),
        runtimes: each_of(runtimes),
        gateways: each_of(gateways),
    };
    (status, Json(health))
}

fn standby(role: &LedgerRole) -> Option<wire::StandbyHealth> {
    let LedgerRole::Standby(owner) = role else {
        return None;
    };
    let seen = owner.latest()?;
    let (name, url) = match seen.owner {
        Some(owner) => (Some(owner.name), owner.url),
        None => (None, None),
    };
    Some(wire::StandbyHealth {
        owner: name,
        owner_url: url,
        position: seen.position,
        age_ms: u64::try_from(seen.age.as_millis()).unwrap_or(u64::MAX),
    })
}

/// How far the ledger is signed.
pub(super) fn evidence(notary: &NotaryStatus) -> wire::Evidence {
    let ok = || "ok".to_owned();
    wire::Evidence {
        signed_frames: notary.signed_frames,
        signing: notary.signing.clone().unwrap_or_else(ok),
        witness: match (&notary.witness, notary.has_witness) {
            (Some(why), _) => why.clone(),
            (None, true) => ok(),
            (None, false) => "none".to_owned(),
        },
    }
}

/// Services of one kind by URL, with the health of each.
type ServiceStates = Vec<(String, &'static str)>;

async fn states_of(services: &[ServicePeer]) -> ServiceStates {
    let asked = services
        .iter()
        .map(async |service| (service.url.clone(), state_of(&service.peer).await));
    join_all(asked).await
}

/// The health of all services of a kind: one that works is enough.
fn state_of_all(states: &ServiceStates) -> &'static str {
    let mut each = states.iter().map(|(_, state)| *state);
    let first = each.clone().next().unwrap_or("unconfigured");
    each.find(|state| *state == "ok").unwrap_or(first)
}

/// The health of each service by URL, if there are several.
fn each_of(states: ServiceStates) -> BTreeMap<String, String> {
    match states.len() {
        0 | 1 => BTreeMap::new(),
        _ => {
            let states = states.into_iter();
            states.map(|(url, state)| (url, state.to_owned())).collect()
        }
    }
}

/// The health of a service, as reported within [`PEER_TIMEOUT`].
async fn state_of(peer: &Peer) -> &'static str {
    let Ok(request) = Request::get("/health").body(Body::empty()) else {
        return "error";
    };
    match tokio::time::timeout(PEER_TIMEOUT, peer.call_within(MAX_HEALTH_BYTES, request)).await {
        Ok(Ok((200, _))) => "ok",
        Ok(Ok(_)) => "unhealthy",
        Ok(Err(_)) | Err(_) => "down",
    }
}
