//! `POST /invoke/{workflow}`: decodes a command and decides nothing.

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Extension, Path, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::plan::{AuthScheme, InvokeAuth, Visibility};
use ktsu_projections::envelope::Envelope;
use serde_json::Value;
use subtle::ConstantTimeEq as _;

use super::parameter::IdempotencyKey;
use super::query::{InvokeQuery, Query, WaitQuery};
use super::runs::read_envelope;
use super::{RunTarget, wire};
use crate::access::{Caller, LocalInvocation};
use crate::ids;
use crate::problems;
use ktsu_codes::ErrorCode;
use ktsu_orchestrator::{AwaitedEnvelope, InvokeRequest, Orchestrator, RunAccepted};
use ktsu_server::ProblemDetails;
use ktsu_server::body::JsonObject;

/// Starts a run.
#[utoipa::path(post, path = "/invoke/{workflow}",
    params(
        ("workflow" = String, Path, description = "The name of a root workflow"),
        IdempotencyKey,
        Query::<InvokeQuery>,
    ),
    request_body(content = Object, description = "The params, at most 1 MiB"),
    responses(
        (status = 200, body = Envelope, description = "The run ended within `wait`"),
        (status = 202, body = wire::Accepted),
        (status = 404, body = wire::Problem, content_type = "application/problem+json",
            description = "Unknown, or a sub-workflow"),
        (status = 409, body = wire::Problem, content_type = "application/problem+json",
            description = "The idempotency key was used for another request"),
    ))]
pub(super) async fn invoke(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    workflow: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    Query(asked): Query<InvokeQuery>,
    local: Option<Extension<LocalInvocation>>,
    body: JsonObject,
) -> Result<Response, ProblemDetails> {
    let unknown = || ProblemDetails::from(ErrorCode::WorkflowNotFound);
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
    let wait = asked.wait;
    let local = local.map(|Extension(local)| local).unwrap_or_default();
    let request = InvokeRequest {
        workflow,
        body: Value::Object(body.0),
        idempotency_key: idempotency_key(&headers)?,
        effects: asked.effects,
        groups: local.groups,
        no_cache: asked.no_cache,
        principal: caller.principal,
        references: local.references,
    };
    let begun = match wait.waits() {
        true => orchestrator.invoke_awaited(request).await,
        false => orchestrator.invoke(request).await.map(|one| (one, None)),
    };
    let (RunAccepted { run_id, .. }, awaited) = begun.map_err(problems::invoke_error)?;
    if let Some(reply) = end_in_time(&orchestrator, &run_id, awaited, &wait).await? {
        return Ok(reply);
    }
    let body = wire::Accepted {
        run_id,
        status: "accepted".to_owned(),
    };
    Ok((StatusCode::ACCEPTED, Json(body)).into_response())
}

/// The reply with the envelope of the run, if it ends in time. The envelope comes from the run's task
/// where this request started it, else from the ledger.
async fn end_in_time(
    orchestrator: &Orchestrator,
    run_id: &str,
    awaited: Option<AwaitedEnvelope>,
    wait: &WaitQuery,
) -> Result<Option<Response>, ProblemDetails> {
    let ended = match awaited {
        Some(awaited) => wait.in_time(awaited.ended()).await?,
        None => wait.has_ended(orchestrator, run_id).await?.then_some(None),
    };
    match ended {
        None => Ok(None),
        Some(Some(envelope)) => {
            let json = HeaderValue::from_static("application/json");
            Ok(Some(([(CONTENT_TYPE, json)], envelope).into_response()))
        }
        Some(None) => {
            let stream = StreamId::run(run_id)
                .map_err(|error| ProblemDetails::new(ErrorCode::Internal, error.to_string()))?;
            let scope = String::new();
            let (envelope, _) = read_envelope(orchestrator, RunTarget { stream, scope }).await?;
            Ok(Some(Json(envelope).into_response()))
        }
    }
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<String>, ProblemDetails> {
    let key = IdempotencyKey::PARAMETER.header(headers)?;
    Ok(key.map(str::to_owned))
}

/// Compares the secret a caller sends, in constant time.
fn authorize(
    orchestrator: &Orchestrator,
    workflow: &str,
    auth: &InvokeAuth,
    headers: &HeaderMap,
) -> Result<(), ProblemDetails> {
    let expected = orchestrator.invoke_secret(workflow, &auth.secret);
    let expected = expected.ok_or(ErrorCode::Unauthorized)?;
    let sent = headers.get(&auth.header).map(|value| value.as_bytes());
    let sent = match auth.scheme {
        AuthScheme::Raw => sent,
        AuthScheme::Bearer => sent.and_then(|value| value.strip_prefix(b"Bearer ")),
    };
    let same = sent.is_some_and(|sent| sent.ct_eq(expected.expose().as_bytes()).into());
    match same {
        true => Ok(()),
        false => Err(ErrorCode::Unauthorized.into()),
    }
}
