//! The older transport of MCP: `GET …/sse` opens an event stream and receives the URL to post to;
//! responses to `POST …/messages` arrive on the stream. Streams and their limits are defined in
//! `orchestrator/tools/streams`.

use std::convert::Infallible;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use url::form_urlencoded::Serializer;

use super::super::agents::TOKEN;
use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{Query, QueryParameters, RawQuery};
use super::super::wire;
use super::{ATTEMPT, EVENTS, RUN, STEP, ToolCaller, accepted, read, refused, version};
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{Orchestrator, PostOutcome, ToolStream};
use ktsu_server::ProblemDetails;

/// The stream a message is answered on; the name is the one that clients look for.
const STREAM: &str = "session_id";

/// The task that calls, and the stream on which it listens for the answers.
#[derive(Debug)]
pub(in crate::routes) struct StreamQuery {
    speaker: ToolCaller,
    stream: Option<String>,
}

impl QueryParameters for StreamQuery {
    const PARAMETERS: &'static [Parameter] = &[
        RUN,
        STEP,
        TOKEN,
        ATTEMPT,
        Parameter::new(
            STREAM,
            ParameterKind::Any,
            "The stream, as named by its first event; 404 if it does not exist.",
        )
        .required(),
    ];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            speaker: ToolCaller::read(given)?,
            stream: given.owned(STREAM),
        })
    }
}

/// Listens to one of the tool servers that come with ktsu, over the transport of 2024-11-05.
#[utoipa::path(get, path = "/tools/ktsu/{name}/sse",
    params(("name" = String, Path, description = "`kv` or `envelope`"), Query::<ToolCaller>),
    responses(
        (status = 200, body = String, content_type = "text/event-stream",
            description = "`endpoint`: where to post; then `message` for each answer"),
        (status = 406, body = wire::Problem, content_type = "application/problem+json"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "The attempt is over"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json",
            description = "Too many streams are open"),
    ))]
pub(in crate::routes) async fn listen(
    State(orchestrator): State<Orchestrator>,
    method: Method,
    Path(name): Path<String>,
    Query(speaker): Query<ToolCaller>,
    headers: HeaderMap,
) -> Result<Response, ProblemDetails> {
    let (server, task) = speaker.authenticate(&orchestrator, &name).await?;
    accepted(&headers, &[EVENTS])?;
    if method == Method::HEAD {
        // Nobody would read the events.
        return Ok(Sse::new(stream::empty::<Result<Event, Infallible>>()).into_response());
    }
    let listened = orchestrator
        .open_tool_stream(server, &task, &speaker.token)
        .map_err(problems::report_error)?;
    let endpoint = speaker.endpoint(&name, listened.name());
    let events = events(endpoint, listened);
    Ok(Sse::new(events)
        .keep_alive(KeepAlive::default())
        .into_response())
}

fn events(endpoint: String, listened: ToolStream) -> impl Stream<Item = Result<Event, Infallible>> {
    let first = Event::default().event("endpoint").data(endpoint);
    let answers = stream::unfold(listened, async |mut listened| {
        let answer = listened.next().await?;
        let event = Event::default().event("message").data(answer.to_string());
        Some((Ok(event), listened))
    });
    stream::iter([Ok(first)]).chain(answers)
}

impl ToolCaller {
    /// The URL to post to: a path, so that it stays on the same origin.
    fn endpoint(&self, name: &str, stream: &str) -> String {
        let mut query = Serializer::new(String::new());
        query.append_pair("run", &self.run);
        query.append_pair("step", &self.step);
        if let Some(attempt) = &self.attempt {
            query.append_pair("attempt", attempt);
        }
        query.append_pair("token", &self.token);
        query.append_pair(STREAM, stream);
        format!("/tools/ktsu/{name}/messages?{}", query.finish())
    }
}

/// A message of MCP whose answer is an event of a stream.
#[utoipa::path(post, path = "/tools/ktsu/{name}/messages",
    params(
        ("name" = String, Path, description = "`kv` or `envelope`"),
        Query::<StreamQuery>,
    ),
    request_body = wire::ToolMessages,
    responses(
        (status = 202, description = "Taken; the answer is an event"),
        (status = 400, description = "No JSON, no message, or of a version that is not known", content(
            (wire::ToolMessage = "application/json"),
            (wire::Problem = "application/problem+json"))),
        (status = 404, body = wire::Problem, content_type = "application/problem+json",
            description = "No such stream of this attempt, or it is over"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json",
            description = "The answers to earlier messages are to be read first"),
    ))]
pub(in crate::routes) async fn post(
    State(orchestrator): State<Orchestrator>,
    Path(name): Path<String>,
    Query(posting): Query<StreamQuery>,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, ProblemDetails> {
    let StreamQuery { speaker, stream } = posting;
    let (server, task) = speaker.authenticate(&orchestrator, &name).await?;
    let message = read(body).await?;
    let stream = stream.unwrap_or_default();
    let version = version(&headers);
    let token = &speaker.token;
    let posted = orchestrator.post_to_tool_stream(server, &task, token, &stream, version, &message);
    match posted.await.map_err(problems::report_error)? {
        PostOutcome::Accepted => Ok(StatusCode::ACCEPTED.into_response()),
        PostOutcome::Refused(answer) => Ok(refused(answer)),
        PostOutcome::NoSuchStream => Err(ProblemDetails::new(
            ErrorCode::NotFound,
            "there is no such stream of this attempt",
        )
        .with_hint("GET …/sse opens one, and its first event says where to post")),
    }
}
