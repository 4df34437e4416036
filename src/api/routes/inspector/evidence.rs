//! `GET /inspector/evidence`: the page of what is signed.

use axum::extract::State;
use axum::response::Response;
use ktsu_inspector::{EvidencePage, ShownCheckpoint, ShownKey};
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
    let signed = signed_ledger(&orchestrator).await?;
    let page = EvidencePage {
        by: signed_in(&caller),
        origin: signed.origin,
        frames: signed.frames,
        signing_failed: Some(signed.signing).filter(|why| why != "ok"),
        witness: signed.witness,
        checkpoint: signed.checkpoint.map(|last| ShownCheckpoint {
            frames: last.frames,
            at: last.at.parse().unwrap_or_default(),
            key: last.key,
            note: last.note,
        }),
        keys: signed.keys.map(|keys| {
            let keys = keys.into_iter();
            keys.map(|key| ShownKey {
                public_key: key.public_key,
                state: key.state,
                reason: key.reason,
                vouched: key.vouched,
            })
            .collect()
        }),
    };
    Ok(answer(ktsu_inspector::evidence_page(&page)))
}
