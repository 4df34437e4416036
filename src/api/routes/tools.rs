//! `/tools/ktsu/{name}`: the built-in tool servers, over MCP: Streamable HTTP here, the older
//! HTTP+SSE in [`events`]. Decodes and makes no decisions; the token in the query identifies the
//! attempt (decision W1).

pub(super) mod events;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::Value;

use super::agents::{TOKEN, address};
use super::media_ranges::MediaRanges;
use super::parameter::{Parameter, ParameterKind};
use super::paths::PathNames;
use super::query::{Query, QueryParameters, RawQuery};
use super::wire;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{BuiltinServer, Orchestrator, ProtocolAnswer, TaskAddress};
use ktsu_server::ProblemDetails;
use ktsu_server::body;

/// The most bytes of a message.
const MAX_MESSAGE: usize = 1024 * 1024;

/// The version of the protocol a client speaks.
const VERSION: &str = "mcp-protocol-version";

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";

/// The task that calls a tool server, and its token.
#[derive(Debug)]
pub(super) struct ToolCaller {
    run: String,
    step: String,
    token: String,
    attempt: Option<String>,
}

/// Identify the attempt; without them the response is 404 or 401.
const RUN: Parameter = Parameter::new(
    "run",
    ParameterKind::Any,
    "The run, with the path of an inline child.",
)
.required();
const STEP: Parameter = Parameter::new(
    "step",
    ParameterKind::Any,
    "The step; for an item `STEP.INDEX`.",
)
.required();
const ATTEMPT: Parameter = Parameter::new(
    "attempt",
    ParameterKind::Any,
    "The attempt; the token says it, too.",
);

impl QueryParameters for ToolCaller {
    const PARAMETERS: &'static [Parameter] = &[RUN, STEP, TOKEN, ATTEMPT];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            run: given.owned("run").unwrap_or_default(),
            step: given.owned("step").unwrap_or_default(),
            token: given.owned("token").unwrap_or_default(),
            attempt: given.owned("attempt"),
        })
    }
}

impl ToolCaller {
    /// The server and the task, once the token is verified. Nothing is read before that.
    async fn authenticate(
        &self,
        orchestrator: &Orchestrator,
        name: &str,
    ) -> Result<(BuiltinServer, TaskAddress), ProblemDetails> {
        let server = BuiltinServer::from_name(name).ok_or(ErrorCode::NotFound)?;
        let task = address(orchestrator, &self.run, &self.step).await?;
        let attempt = orchestrator
            .authorize(&task, &self.token)
            .map_err(problems::report_error)?;
        let says_another = |given: &String| *given != attempt.to_string();
        if self.attempt.as_ref().is_some_and(says_another) {
            return Err(ErrorCode::Unauthorized.into());
        }
        Ok((server, task))
    }
}

/// A message of MCP to one of the tool servers that come with ktsu.
#[utoipa::path(post, path = "/tools/ktsu/{name}",
    params(("name" = String, Path, description = "`kv` or `envelope`"), Query::<ToolCaller>),
    request_body = wire::ToolMessages,
    responses(
        (status = 200, description = "The answer; as an event for who takes nothing else", content(
            (wire::ToolMessages = "application/json"),
            (String = "text/event-stream"))),
        (status = 202, description = "Nothing was asked: a notification"),
        (status = 400, description = "No JSON, no message, or of a version that is not known", content(
            (wire::ToolMessage = "application/json"),
            (wire::Problem = "application/problem+json"))),
        (status = 406, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn message(
    State(orchestrator): State<Orchestrator>,
    PathNames(name): PathNames<String>,
    Query(speaker): Query<ToolCaller>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ProblemDetails> {
    let (server, task) = speaker.authenticate(&orchestrator, &name).await?;
    let form = accepted(&headers, &[JSON, EVENTS])?;
    let message = read(body).await?;
    let answered =
        orchestrator.tool_message(server, &task, &speaker.token, version(&headers), &message);
    Ok(match answered.await.map_err(problems::report_error)? {
        ProtocolAnswer::Nothing => StatusCode::ACCEPTED.into_response(),
        ProtocolAnswer::With(answer) if form == EVENTS => {
            let event = format!("event: message\ndata: {answer}\n\n");
            ([(CONTENT_TYPE, EVENTS)], event).into_response()
        }
        ProtocolAnswer::With(answer) => Json(answer).into_response(),
        ProtocolAnswer::Refused(answer) => refused(answer),
    })
}

/// A message, or several that come as one.
async fn read(body: Body) -> Result<Value, ProblemDetails> {
    let bytes = body::read_at_most(body, MAX_MESSAGE).await?;
    match body::value(&bytes)? {
        message @ Value::Object(_) => Ok(message),
        Value::Array(messages) if !messages.is_empty() => Ok(Value::Array(messages)),
        _ => Err(ErrorCode::NotAnObject.into()),
    }
}

fn refused(answer: Value) -> Response {
    (StatusCode::BAD_REQUEST, Json(answer)).into_response()
}

/// The protocol version that a client states; unreadable text counts as an unknown version.
fn version(headers: &HeaderMap) -> Option<&str> {
    let header = headers.get(VERSION)?;
    Some(header.to_str().unwrap_or_default())
}

/// The first of some media types that a client accepts; the first of all if it states none.
///
/// # Errors
/// [`ErrorCode::NotAcceptable`].
fn accepted(headers: &HeaderMap, offered: &[&'static str]) -> Result<&'static str, ProblemDetails> {
    let accepted = MediaRanges::of(headers);
    let found = offered.iter().find(|kind| accepted.accepts(kind)).copied();
    found.ok_or_else(|| {
        let words = format!("the answer is {}", offered.join(" or "));
        ProblemDetails::new(ErrorCode::NotAcceptable, words)
            .with_hint(format!("Accept: {}", offered.join(", ")))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::header::ACCEPT;

    #[test]
    fn an_answer_has_a_form_that_whoever_asks_takes() {
        let form = |said: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in said {
                headers.append(ACCEPT, axum::http::HeaderValue::from_static(value));
            }
            accepted(&headers, &[JSON, EVENTS]).ok()
        };
        for said in [
            &[][..],
            &["*/*"],
            &["application/json, text/event-stream"],
            &["text/event-stream, application/json;q=0.1"],
            &["text/event-stream", "Application/*"],
            &["text/html, */*;q=0.1"],
        ] {
            assert_eq!(form(said), Some(JSON), "{said:?}");
        }
        for said in [
            &["text/event-stream"][..],
            &["text/*"],
            &["application/json;q=0, text/event-stream"],
            &["application/json; charset=utf-8;q=0.0, text/event-stream;q=1"],
        ] {
            assert_eq!(form(said), Some(EVENTS), "{said:?}");
        }
        for said in [
            &["text/html"][..],
            &[""],
            &["*/*;q=0"],
            &["application/jso"],
        ] {
            assert_eq!(form(said), None, "{said:?}");
        }
    }
}
