//! `POST /runs/{id}/replay`.

use axum::Json;
use axum::extract::State;
use ktsu_ledger::StoreError;
use serde_json::Value;

use super::command::CommandBody;
use super::query::{NoParameters, Query};
use super::{RunTarget, wire};
use ktsu_history::replay;
use ktsu_orchestrator::{Orchestrator, ReadKind};
use ktsu_server::ProblemDetails;
use ktsu_workflow::replay::Definitions;

/// Folds a recorded run or, strictly, decides it again from its recorded inputs and compares every
/// byte. Calls nothing outside the ledger and writes nothing.
#[utoipa::path(post, path = "/runs/{id}/replay",
    params(RunTarget),
    request_body = wire::Replay,
    responses((status = 200, body = wire::Replayed)))]
pub(super) async fn replay(
    State(orchestrator): State<Orchestrator>,
    run: RunTarget,
    _: Query<NoParameters>,
    CommandBody(body): CommandBody<wire::Replay>,
) -> Result<Json<Value>, ProblemDetails> {
    let stream = run.stream.clone();
    let report = orchestrator
        .readers()
        .with_kind(ReadKind::Search, move |reader| {
            Ok::<_, StoreError>(match body.strict {
                Some(true) => replay::strict(reader, &run.stream, &mut Definitions::default()),
                Some(false) | None => replay::folded(reader, &run.stream),
            })
        })
        .await?;
    // A verdict is an answer.
    Ok(Json(replay::verdict(&stream, report.as_ref())))
}
