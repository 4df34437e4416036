//! `POST /invoke/{workflow}`: decodes a command and decides nothing.

use std::time::Duration;

use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::plan::{AuthScheme, InvokeAuth, Visibility};
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use super::parameter::IdempotencyKey;
use super::query::{Query, Wait};
use super::{json, named, violations, wire};
use crate::error::{ErrorCode, Problem};
use crate::history;
use crate::http::access::Asker;
use crate::http::body::JsonObject;
use crate::http::ids;
use crate::orchestrator::{Accepted, InvokeError, Orchestrator, Request};

/// Starts a run.
#[utoipa::path(post, path = "/invoke/{workflow}",
    params(
        ("workflow" = String, Path, description = "The name of a root workflow"),
        IdempotencyKey,
        Query::<Wait>,
    ),
    request_body(content = Object, description = "The params, at most 1 MiB"),
    responses(
        (status = 200, body = wire::Envelope, description = "The run ended within `wait`"),
        (status = 202, body = wire::Accepted),
        (status = 400, body = wire::Problem, content_type = "application/problem+json"),
        (status = 401, body = wire::Problem, content_type = "application/problem+json"),
        (status = 403, body = wire::Problem, content_type = "application/problem+json"),
        (status = 404, body = wire::Problem, content_type = "application/problem+json",
            description = "Unknown, or a sub-workflow"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "The idempotency key was used for another request"),
        (status = 413, body = wire::Problem, content_type = "application/problem+json"),
        (status = 422, body = wire::Problem, content_type = "application/problem+json"),
        (status = 503, body = wire::Problem, content_type = "application/problem+json"),
        (status = 507, body = wire::Problem, content_type = "application/problem+json"),
    ))]
pub(super) async fn invoke(
    State(orchestrator): State<Orchestrator>,
    asker: Asker,
    workflow: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    Query(wait): Query<Wait>,
    body: JsonObject,
) -> Result<Response, Problem> {
    let unknown = || Problem::from(ErrorCode::WorkflowNotFound);
    // A name that is not even text is answered like any other that does not exist.
    let Path(workflow) = workflow.map_err(|_| unknown())?;
    let workflow = ids::name(&workflow).ok_or_else(unknown)?.to_owned();
    let found = orchestrator.kit().workflows.get(&workflow);
    let found = found
        .filter(|found| found.visibility == Visibility::Root)
        .ok_or_else(unknown)?;
    if let Some(auth) = found
        .definition
        .root()
        .and_then(|root| root.plan.invoke.as_ref())
    {
        authorize(&orchestrator, &workflow, auth, &headers)?;
    }
    let accepted = orchestrator
        .invoke(Request {
            workflow,
            body: Value::Object(body.0),
            idempotency_key: idempotency_key(&headers)?,
            principal: asker.principal,
        })
        .await?;
    match wait.wait {
        Some(seconds) => wait_for(&orchestrator, &accepted, seconds).await,
        None => Ok(answer(&accepted)),
    }
}

fn answer(accepted: &Accepted) -> Response {
    let body = wire::Accepted {
        run_id: accepted.run_id.clone(),
        status: "accepted".to_owned(),
    };
    (StatusCode::ACCEPTED, axum::Json(body)).into_response()
}

async fn wait_for(
    orchestrator: &Orchestrator,
    accepted: &Accepted,
    seconds: u64,
) -> Result<Response, Problem> {
    let ended = orchestrator.wait_until_ended(&accepted.run_id);
    match tokio::time::timeout(Duration::from_secs(seconds), ended).await {
        Err(_) => return Ok(answer(accepted)),
        Ok(Err(reason)) => return Err(Problem::new(ErrorCode::LedgerStopped, reason)),
        Ok(Ok(())) => {}
    }
    let stream = StreamId::run(&accepted.run_id)
        .map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    let read = orchestrator
        .readers()
        .with(move |reader| history::envelope(reader, &stream))
        .await;
    let envelope = read?.and_then(|fold| fold.envelope(""));
    let text = envelope.and_then(|envelope| serde_json::to_string(&envelope).ok());
    text.map(json).ok_or_else(|| ErrorCode::Internal.into())
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, Problem> {
    let key = IdempotencyKey::PARAMETER.header(headers)?;
    Ok(key.map(str::to_owned))
}

/// Compares the secret a caller sends, in constant time.
fn authorize(
    orchestrator: &Orchestrator,
    workflow: &str,
    auth: &InvokeAuth,
    headers: &HeaderMap,
) -> Result<(), Problem> {
    let expected = orchestrator.invoke_secret(workflow, &auth.secret);
    let expected = expected.ok_or(ErrorCode::Unauthorized)?;
    let sent = headers.get(&auth.header).map(|value| value.as_bytes());
    let sent = match auth.scheme {
        AuthScheme::Raw => sent,
        AuthScheme::Bearer => sent.and_then(|value| value.strip_prefix(b"Bearer ")),
    };
    let same = sent.is_some_and(|sent| sent.ct_eq(expected.expose().as_bytes()).into());
    if same {
        Ok(())
    } else {
        Err(ErrorCode::Unauthorized.into())
    }
}

impl From<InvokeError> for Problem {
    fn from(refused: InvokeError) -> Self {
        let words = refused.to_string();
        match refused {
            InvokeError::UnknownWorkflow => ErrorCode::WorkflowNotFound.into(),
            InvokeError::Params(found) => {
                Self::new(ErrorCode::InvalidParams, named(&found)).with_errors(violations(found))
            }
            InvokeError::NoRuntime(_) => Self::new(ErrorCode::RuntimeUnconfigured, words)
                .with_hint("start the orchestrator with --runtime-url"),
            InvokeError::NoKey { .. } => Self::new(ErrorCode::Forbidden, words)
                .with_hint("ask as a principal that has one: KTSU_TOKEN"),
            InvokeError::KeyReused => ErrorCode::IdempotencyConflict.into(),
            InvokeError::DiskFull => ErrorCode::DiskFull.into(),
            InvokeError::LedgerStopped(reason) => Self::new(ErrorCode::LedgerStopped, reason),
            InvokeError::Overloaded => Self::new(ErrorCode::Overloaded, words),
            InvokeError::Internal(reason) => Self::new(ErrorCode::Internal, reason),
        }
    }
}
