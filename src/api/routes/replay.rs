//! `POST /runs/{id}/replay`.

use axum::extract::State;
use axum::response::Response;

use super::command::CommandBody;
use super::query::{NoParameters, Query};
use super::{RunTarget, json, wire};
use crate::problems::store_error;
use ktsu_history::replay;
use ktsu_orchestrator::Orchestrator;
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
) -> Result<Response, ProblemDetails> {
    let stream = run.stream.clone();
    let report = orchestrator
        .readers()
        .with(move |reader| {
            Ok(match body.strict {
                Some(true) => replay::strict(reader, &run.stream, &mut Definitions::default()),
                Some(false) | None => replay::folded(reader, &run.stream),
            })
        })
        .await;
    let report = report.map_err(|error| store_error(&error))?;
    // A verdict is an answer.
    let body = replay::verdict(&stream, report.as_ref());
    Ok(json(body.to_string()))
}
