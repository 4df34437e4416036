//! `GET /inspector/evidence`: the page of what is signed.

use axum::extract::State;
use axum::response::Response;
use ktsu_inspector::EvidencePage;
use ktsu_orchestrator::Orchestrator;
use ktsu_server::ProblemDetails;

use super::super::evidence::signed_ledger;
use super::super::query::{NoParameters, Query};
use super::{answer, signed_in};
use crate::access::Caller;

/// The page of evidence, for people.
#[utoipa::path(get, path = "/inspector/evidence", operation_id = "evidence_page", responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(in crate::routes) async fn evidence(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let page = EvidencePage {
        by: signed_in(&orchestrator, &caller),
        ledger: signed_ledger(&orchestrator).await?,
        notary: orchestrator.notary(),
    };
    Ok(answer(ktsu_inspector::evidence_page(&page)))
}
