//! `GET /evidence`: what is signed of the ledger; `GET /runs/{id}/evidence`: the archive of a run.

use axum::Json;
use axum::extract::State;
use axum::http::header;
use axum::response::{IntoResponse as _, Response};
use ktsu_codes::ErrorCode;
use ktsu_evidence::export::{self, ExportBound, ExportError, ExportSelection};
use ktsu_evidence::summary::{EvidenceSummary, key_states, summary};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;

use super::query::{NoParameters, Query};
use super::{RunTarget, health, no_such_run, wire};

/// The most that is read and held for an archive. The command line has no bound: it works on a machine of its own.
const BOUND: ExportBound = ExportBound {
    ledger_frames: 2_000_000,
    bytes: 32 * 1024 * 1024,
};

/// What is signed of the ledger, by which keys, and the last checkpoint.
#[utoipa::path(get, path = "/evidence", responses((status = 200, body = wire::SignedLedger)))]
pub(super) async fn evidence(
    State(orchestrator): State<Orchestrator>,
    _: Query<NoParameters>,
) -> Result<Json<wire::SignedLedger>, ProblemDetails> {
    let found = signed_ledger(&orchestrator).await?;
    let notary = health::evidence(&orchestrator.notary());
    let keys = found.keys.as_deref().map(|keys| {
        let keys = key_states(keys);
        keys.map(|(key, state)| wire::LedgerKey {
            id: key.key.id_text(),
            public_key: key.key.to_string(),
            state: state.as_str().to_owned(),
            reason: key.revoked.clone(),
            vouched: key.vouched,
        })
        .collect()
    });
    Ok(Json(wire::SignedLedger {
        origin: found.origin,
        frames: found.frames,
        signing: notary.signing,
        witness: notary.witness,
        checkpoint: found.checkpoint.map(|last| wire::SignedCheckpoint {
            frames: last.signed.size,
            at: last.at.to_string(),
            key: last.signed.key,
            note: last.signed.note,
        }),
        keys,
    }))
}

/// What is signed of the ledger.
pub(super) async fn signed_ledger(
    orchestrator: &Orchestrator,
) -> Result<EvidenceSummary, StoreError> {
    let readers = orchestrator.readers();
    readers.with_kind(ReadKind::Search, summary).await
}

/// The evidence of a run, its branches and what it was forked from: the archive that `ktsu evidence export` writes.
/// Of an inline child, that of its run.
#[utoipa::path(get, path = "/runs/{id}/evidence", params(RunTarget, Query::<NoParameters>), responses(
    (status = 200, body = String, content_type = "application/x-tar"),
))]
pub(super) async fn archive(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
) -> Result<Response, ProblemDetails> {
    let name = run.stream.name().to_owned();
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| read_archive(reader, &run));
    let bytes = read.await?;
    let headers = [
        (header::CONTENT_TYPE, "application/x-tar".to_owned()),
        (
            header::CONTENT_DISPOSITION,
            format!("attachment; filename=\"{name}.evidence.tar\""),
        ),
        (header::CONTENT_SECURITY_POLICY, "sandbox".to_owned()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
        (header::CACHE_CONTROL, "no-store".to_owned()),
    ];
    Ok((headers, bytes).into_response())
}

fn read_archive(reader: &dyn Reader, run: &RunTarget) -> Result<Vec<u8>, ProblemDetails> {
    if reader.tail(&run.stream)?.is_none() {
        return Err(no_such_run());
    }
    let wanted = ExportSelection {
        streams: vec![run.stream.clone()],
        ..ExportSelection::default()
    };
    let exported = export::export_within(reader, &wanted, BOUND);
    exported
        .map(|archive| archive.bytes)
        .map_err(|error| match error {
            ExportError::Store(error) => error.into(),
            ExportError::Damaged(why) => ProblemDetails::new(ErrorCode::Unreadable, why)
                .with_hint("where the ledger is: ktsu verify"),
            ExportError::TooLarge => {
                let words = "the archive takes more work than a request may cause; the command line has no such bound";
                let hint = format!(
                    "where the ledger is: ktsu evidence export {}",
                    run.stream.name()
                );
                ProblemDetails::new(ErrorCode::TraceTooLarge, words).with_hint(hint)
            }
        })
}
