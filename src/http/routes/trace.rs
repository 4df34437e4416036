//! `GET /runs/{id}/trace`.

use axum::extract::State;
use axum::response::Response;
use serde_json::json as value;
use utoipa::IntoParams;

use super::query::{Asked, Given, Query};
use super::{Run, json, unreadable, wire};
use crate::error::{ErrorCode, Problem};
use crate::history;
use crate::orchestrator::Orchestrator;

/// What to trace.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Of {
    /// A frame: gives the way from it to the root instead of the tree.
    frame: Option<u64>,
}

impl Asked for Of {
    const NAMES: &'static [&'static str] = &["frame"];

    fn read(given: &Given) -> Result<Self, Problem> {
        let frame = given.number("frame", 0, u64::MAX)?;
        Ok(Self { frame })
    }
}

/// The causal tree of a run, or everything one frame follows from.
#[utoipa::path(get, path = "/runs/{id}/trace",
    params(("id" = String, Path, description = "A run, or `R%2Fcall` for an inline child"), Of),
    responses(
        (status = 200, body = wire::Trace),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn trace(
    State(orchestrator): State<Orchestrator>,
    run: Run,
    Query(of): Query<Of>,
) -> Result<Response, Problem> {
    let name = run.stream.name().to_owned();
    let stream = run.stream.clone();
    let read = orchestrator
        .readers()
        .with(move |reader| history::frames(reader, &stream))
        .await;
    let frames = read.map_err(|error| unreadable(&error))?;
    let body = match of.frame {
        None => value!({"run_id": name, "tree": history::trace::tree(&frames, &run.scope)}),
        Some(seq) => {
            let chain = history::trace::ancestors(&frames, seq);
            let words = "the run has no such frame";
            let chain = chain.ok_or_else(|| Problem::new(ErrorCode::NotFound, words))?;
            value!({"run_id": name, "chain": chain})
        }
    };
    Ok(json(body.to_string()))
}
