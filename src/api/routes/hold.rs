//! `POST /runs/{id}/hold`: legal holds. A run that is held is kept, whatever the retention of the
//! environment says.

use axum::extract::State;

use super::command::CommandBody;
use super::query::{NoParameters, Query};
use super::{RunTarget, wire};
use crate::access::Caller;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{HoldError, Orchestrator};
use ktsu_server::ProblemDetails;

/// Places a run under legal hold, or lifts the hold.
#[utoipa::path(post, path = "/runs/{id}/hold", params(RunTarget),
    request_body = wire::HoldPost,
    responses((status = 200, body = wire::HoldRecorded)))]
pub(super) async fn hold(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    run: RunTarget,
    _: Query<NoParameters>,
    CommandBody(body): CommandBody<wire::HoldPost>,
) -> Result<axum::Json<wire::HoldRecorded>, ProblemDetails> {
    let id = run.stream.name().to_owned();
    if !run.scope.is_empty() {
        let words = format!("hold works on whole runs only, here {id}");
        return Err(ProblemDetails::new(ErrorCode::InvalidRunState, words)
            .with_hint(format!("POST /runs/{id}/hold")));
    }
    let held = orchestrator.hold(&run.stream, caller.principal, &body.reason, body.release);
    let receipt = held.await.map_err(|error| problem(error, &id))?;
    Ok(axum::Json(wire::HoldRecorded {
        run_id: id,
        held: !body.release,
        seq: receipt.seq,
    }))
}

fn problem(error: HoldError, id: &str) -> ProblemDetails {
    let words = format!("{id}: {error}");
    match error {
        HoldError::AlreadyHeld => ProblemDetails::new(ErrorCode::InvalidRunState, words)
            .with_hint("nothing to do: it stays until the hold is released"),
        HoldError::NotHeld => ProblemDetails::new(ErrorCode::InvalidRunState, words)
            .with_hint("nothing to do: there is no hold to release"),
        HoldError::Removed => ProblemDetails::new(ErrorCode::RunRemoved, words),
        HoldError::DiskFull => ErrorCode::DiskFull.into(),
        HoldError::Ledger(_) => ProblemDetails::new(ErrorCode::LedgerStopped, words),
    }
}
