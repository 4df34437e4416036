//! The common parts of the commands of people: the run and the caller, bodies of known members, and
//! the response once the command is durable.

use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::parameter::{MAX_NUMBER, whole};
use super::query::{NoParameters, Query};
use super::shape::in_words;
use super::{RunTarget, wire};
use crate::access::Caller;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{HumanCommand, Orchestrator};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;
use ktsu_server::pointer_errors;

/// The run of a command and the caller that gives it; an axum extractor.
pub(super) struct CommandTarget {
    pub(super) orchestrator: Orchestrator,
    pub(super) caller: Caller,
    pub(super) run: RunTarget,
    pub(super) headers: HeaderMap,
}

impl FromRequestParts<Orchestrator> for CommandTarget {
    type Rejection = Response;

    async fn from_request_parts(
        parts: &mut Parts,
        orchestrator: &Orchestrator,
    ) -> Result<Self, Response> {
        type Parameters = (Caller, RunTarget, HeaderMap, Query<NoParameters>);
        let (caller, run, headers, _) = Parameters::from_request_parts(parts, orchestrator).await?;
        Ok(Self {
            orchestrator: orchestrator.clone(),
            caller,
            run,
            headers,
        })
    }
}

impl CommandTarget {
    /// Carries out a command and responds once it is durable.
    pub(super) async fn submit(
        &self,
        status: StatusCode,
        command: HumanCommand,
    ) -> Result<Response, ProblemDetails> {
        let expected = self.expected()?;
        let receipt = self
            .orchestrator
            .submit_command(&self.run.stream, command, expected)
            .await
            .map_err(problems::command_error)?;
        let body = wire::CommandRecorded {
            run_id: self.run.stream.name().to_owned(),
            seq: receipt.seq,
            last: receipt.last,
            status: receipt.status.as_str().to_owned(),
        };
        Ok((status, axum::Json(body)).into_response())
    }

    /// `If-Match: SEQ`, quoted or not.
    pub(super) fn expected(&self) -> Result<Option<u64>, ProblemDetails> {
        let Some(given) = self.headers.get("if-match") else {
            return Ok(None);
        };
        let number = given.to_str().ok();
        let number = number.and_then(|text| whole(text.trim().trim_matches('"')));
        let number = number.filter(|number| *number <= MAX_NUMBER);
        number
            .map(Some)
            .ok_or_else(|| invalid("If-Match must be a frame number").with_hint("If-Match: 41"))
    }
}

/// The body of a command; an axum extractor, the last argument of a handler.
pub(super) struct CommandBody<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Orchestrator> for CommandBody<T> {
    type Rejection = ProblemDetails;

    async fn from_request(
        request: Request,
        orchestrator: &Orchestrator,
    ) -> Result<Self, ProblemDetails> {
        body(JsonObject::from_request(request, orchestrator).await?).map(Self)
    }
}

/// Reads a body as [`CommandBody`] does, where the run has to be checked first.
pub(super) fn body<T: DeserializeOwned>(body: JsonObject) -> Result<T, ProblemDetails> {
    read(body).map_err(|words| invalid(&words))
}

/// The most characters of a reason: a sentence or a page, not a file. It is shown wherever the run
/// is, and may be sent to a model.
const MAX_REASON: usize = 4096;

/// Reads the members of a body. The value of an overlay may be an empty text, no other member may.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read<T: DeserializeOwned>(JsonObject(members): JsonObject) -> Result<T, String> {
    let body = Value::Object(members);
    let read = pointer_errors::read(&body, "").map_err(|violation| in_words(&[violation]))?;
    let mut members = body.as_object().into_iter().flatten();
    if let Some((name, _)) = members.find(|(name, value)| *name != "value" && **value == "") {
        return Err(format!("{name} must be a non-empty string"));
    }
    let reason = body.get("reason").and_then(Value::as_str);
    let length = reason.map_or(0, |reason| reason.chars().count());
    match length > MAX_REASON {
        true => Err(format!(
            "reason has {length} characters; the limit is {MAX_REASON}"
        )),
        false => Ok(read),
    }
}

/// The error for a body that cannot be used.
pub(super) fn invalid(words: &str) -> ProblemDetails {
    ProblemDetails::new(ErrorCode::InvalidRequest, words)
}
