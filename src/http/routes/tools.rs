//! `POST /tools/ktsu/{name}`: the tool servers that come with ktsu, over MCP (Streamable HTTP).
//! Decodes and decides nothing; the token in the query says which attempt speaks (decision W1).

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;
use utoipa::IntoParams;

use super::agents::address;
use super::json;
use super::query::{Asked, Given, Query};
use super::wire;
use crate::error::{ErrorCode, Problem};
use crate::http::body;
use crate::orchestrator::{Orchestrator, Own};

/// The most bytes of a message.
const MAX_MESSAGE: usize = 1024 * 1024;

/// Who speaks.
#[derive(Debug, IntoParams)]
#[into_params(parameter_in = Query)]
pub(super) struct Speaker {
    /// The run, with the path of an inline child.
    run: Option<String>,
    /// The step; for an item `STEP.INDEX`.
    step: Option<String>,
    /// The token of the attempt, as it stands in the URLs that the dispatch gave.
    token: Option<String>,
    /// The attempt; the token says it, too.
    attempt: Option<String>,
}

impl Asked for Speaker {
    const NAMES: &'static [&'static str] = &["run", "step", "attempt", "token"];

    fn read(given: &Given) -> Result<Self, Problem> {
        let text = |name: &str| given.text(name).map(str::to_owned);
        Ok(Self {
            run: text("run"),
            step: text("step"),
            token: text("token"),
            attempt: text("attempt"),
        })
    }
}

/// A message of MCP to one of the tool servers that come with ktsu.
#[utoipa::path(post, path = "/tools/ktsu/{name}",
    params(("name" = String, Path, description = "`kv` or `envelope`"), Speaker),
    request_body = wire::ToolMessage,
    responses(
        (status = 200, body = wire::ToolMessage, description = "The answer"),
        (status = 202, description = "A notification, taken"),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 401, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn message(
    State(orchestrator): State<Orchestrator>,
    Path(name): Path<String>,
    Query(speaker): Query<Speaker>,
    body: Body,
) -> Result<Response, Problem> {
    let server = Own::named(&name).ok_or(ErrorCode::NotFound)?;
    let run = speaker.run.as_deref().unwrap_or_default();
    let step = speaker.step.as_deref().unwrap_or_default();
    let task = address(&orchestrator, run, step).await?;
    let bytes = body::read_at_most(body, MAX_MESSAGE).await?;
    let message = Value::Object(body::object(&bytes)?);
    let token = speaker.token.as_deref().unwrap_or_default();
    // A token begins with its attempt.
    let of_another = |attempt: String| !token.starts_with(&format!("{attempt}."));
    if speaker.attempt.is_some_and(of_another) {
        return Err(ErrorCode::Unauthorized.into());
    }
    let answer = orchestrator.tool_message(server, &task, token, &message);
    match answer.await? {
        Some(answer) => Ok(json(answer.to_string())),
        None => Ok(StatusCode::ACCEPTED.into_response()),
    }
}
