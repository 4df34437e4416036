//! Callbacks of runtimes: `POST …/report`, `POST …/complete`, `POST /heartbeat`. Decodes and makes
//! no decisions; the token in the query identifies the attempt (decision W1).

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::parameter::{Parameter, ParameterKind};
use super::paths::PathNames;
use super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::shape::{DtoSchema, in_words};
use super::{StepPath, wire};
use crate::ids;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_contract::report::{Heartbeat, HeartbeatAck, Report, ReportAck, TaskCompletion};
use ktsu_orchestrator::{Orchestrator, ReportOrigin, TaskAddress};
use ktsu_server::ProblemDetails;
use ktsu_server::body;

/// The size limit of a report: a conversation may be longer than the request that started its run,
/// and may contain a model's reply twice, as text and as an output.
pub(super) const MAX_REPORT: usize = 32 * 1024 * 1024;

static REPORT: DtoSchema = DtoSchema::of::<Report>();
static COMPLETE: DtoSchema = DtoSchema::of::<TaskCompletion>();
static HEARTBEAT: DtoSchema = DtoSchema::of::<Heartbeat>();

/// The token with which an attempt identifies itself.
#[derive(Debug)]
pub(super) struct AttemptToken {
    token: String,
}

/// Without one, or with a wrong one, the answer is 401.
pub(super) const TOKEN: Parameter = Parameter::new(
    "token",
    ParameterKind::Any,
    "The token of the attempt, as in the URLs of the dispatch.",
)
.required();

impl AttemptToken {
    /// The token.
    pub(super) fn token(&self) -> &str {
        &self.token
    }
}

impl QueryParameters for AttemptToken {
    const PARAMETERS: &'static [Parameter] = &[TOKEN];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self {
            token: given.owned("token").unwrap_or_default(),
        })
    }
}

/// Reports what happened to a task; answered once it is durable.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/report",
    params(StepPath, Query::<AttemptToken>),
    request_body = Report,
    responses(
        (status = 200, body = ReportAck, description = "Durable; continue with what is recorded"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "Another attempt, an end, other bytes under a used number: stop"),
    ))]
pub(super) async fn report(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<AttemptToken>,
    body: Body,
) -> Result<Json<ReportAck>, ProblemDetails> {
    let task = address(&orchestrator, &run, &step).await?;
    let attempt = orchestrator
        .authorize(&task, &query.token)
        .map_err(problems::report_error)?;
    let bytes = body::read_at_most(body, MAX_REPORT).await?;
    let report: Report = read(&bytes, &REPORT)?;
    let answer = orchestrator
        .report(task, attempt, report, &bytes, ReportOrigin::Socket)
        .await
        .map_err(problems::report_error)?;
    Ok(Json(answer))
}

/// Ends a task, from a runtime that reports nothing else.
#[utoipa::path(post, path = "/runs/{id}/steps/{step}/complete",
    params(StepPath, Query::<AttemptToken>),
    request_body = TaskCompletion,
    responses((status = 200, description = "Durable")))]
pub(super) async fn complete(
    State(orchestrator): State<Orchestrator>,
    PathNames((run, step)): PathNames<(String, String)>,
    Query(query): Query<AttemptToken>,
    body: Body,
) -> Result<Response, ProblemDetails> {
    let task = address(&orchestrator, &run, &step).await?;
    let attempt = orchestrator
        .authorize(&task, &query.token)
        .map_err(problems::report_error)?;
    let bytes = body::read_at_most(body, MAX_REPORT).await?;
    let completion: TaskCompletion = read(&bytes, &COMPLETE)?;
    orchestrator
        .complete(task, attempt, completion, &bytes)
        .await
        .map_err(problems::report_error)?;
    Ok(StatusCode::OK.into_response())
}

/// A runtime is alive, and works on these tasks.
#[utoipa::path(post, path = "/heartbeat",
    request_body = Heartbeat,
    responses(
        (status = 200, body = HeartbeatAck, description = "Tasks of the heartbeat that are no longer wanted"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json",
            description = "This engine only reads: the owner of the ledger takes heartbeats"),
    ))]
pub(super) async fn heartbeat(
    State(orchestrator): State<Orchestrator>,
    _: Query<NoParameters>,
    body: Body,
) -> Result<Json<HeartbeatAck>, ProblemDetails> {
    orchestrator
        .takes_reports()
        .map_err(problems::report_error)?;
    let bytes = body::read_at_most(body, MAX_REPORT).await?;
    let beat: Heartbeat = read(&bytes, &HEARTBEAT)?;
    Ok(Json(orchestrator.heartbeat(&beat).await))
}

/// The task of a path. The run must exist; a task that does not has no token.
pub(super) async fn address(
    orchestrator: &Orchestrator,
    run: &str,
    step: &str,
) -> Result<TaskAddress, ProblemDetails> {
    orchestrator
        .takes_reports()
        .map_err(problems::report_error)?;
    let named = ids::RunPath::parse(run).ok_or_else(super::no_such_run)?;
    let (step, item) = ids::step(step).ok_or(ErrorCode::StepNotFound)?;
    let stream = ktsu_ledger::StreamId::run(&named.run).map_err(|_| super::no_such_run())?;
    if orchestrator.watch(&named.run).is_none() {
        let asked = stream.clone();
        let tail = orchestrator
            .readers()
            .with(move |reader| reader.tail(&asked))
            .await?;
        tail.ok_or_else(super::no_such_run)?;
    }
    Ok(TaskAddress {
        stream,
        scope: named.scope,
        step: step.to_owned(),
        item,
    })
}

/// Decodes a body; errors refer to the schema in `/openapi.json`.
fn read<T: DeserializeOwned>(bytes: &Bytes, shape: &DtoSchema) -> Result<T, ProblemDetails> {
    let body = Value::Object(body::object(bytes)?);
    let found = shape.check(&body);
    if !found.is_empty() {
        let words = in_words(&found);
        return Err(ProblemDetails::new(ErrorCode::InvalidReport, words).with_errors(found));
    }
    // Hardly any body takes the second way.
    if let Ok(value) = T::deserialize(&body) {
        return Ok(value);
    }
    T::deserialize(shape.with_integers(body)).map_err(|_| {
        let words = "the body does not match the schema of this route";
        ProblemDetails::new(ErrorCode::InvalidReport, words)
    })
}
