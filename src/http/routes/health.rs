//! `GET /health`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;

use super::query::{Nothing, Query};
use super::wire;
use crate::orchestrator::Orchestrator;
use crate::workflow::admit::ENGINE;

/// Whether the engine works.
#[utoipa::path(get, path = "/health", responses(
    (status = 200, body = wire::Health),
    (status = 400, body = wire::Problem, content_type = "application/problem+json"),
    (status = 403, body = wire::Problem, content_type = "application/problem+json"),
    (status = 503, body = wire::Health, description = "The ledger has stopped"),
))]
pub(super) async fn health(
    State(orchestrator): State<Orchestrator>,
    _: Query<Nothing>,
) -> (StatusCode, Json<wire::Health>) {
    let failed = orchestrator.failed().is_some();
    let own = if failed { "error" } else { "ok" };
    let services = [
        ("orchestrator", own),
        ("runtime", "unconfigured"),
        ("gateway", "unconfigured"),
    ];
    let health = wire::Health {
        status: own.to_owned(),
        services: BTreeMap::from(services.map(|(name, state)| (name.to_owned(), state.to_owned()))),
        active_runs: orchestrator.active() as u64,
        engine: ENGINE.to_owned(),
    };
    let status = if failed {
        StatusCode::SERVICE_UNAVAILABLE
    } else {
        StatusCode::OK
    };
    (status, Json(health))
}
