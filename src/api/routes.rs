//! The orchestrator's routes. `/openapi.json` is generated from them, so every route that is served
//! is described.
//!
//! Handlers decode requests and make no decisions; reads go through `history`.

mod agents;
mod approvals;
mod command;
mod diff;
mod evals;
mod events;
mod evidence;
mod fork_estimate;
mod form_fields;
mod forms;
mod frames;
mod health;
mod hold;
mod home;
mod in_process;
mod inspector;
mod interventions;
mod invoke;
mod media_ranges;
mod metrics;
mod parameter;
mod paths;
mod payload;
#[cfg(test)]
mod placed_tests;
pub mod policy;
mod posts;
mod query;
mod recompute;
mod replay;
mod reviews;
mod run_list;
mod runs;
mod shape;
mod skeleton;
mod steer;
mod steps;
mod subscriptions;
mod summaries;
mod suspensions;
mod tools;
mod trace;
pub mod wire;
mod world;

pub use in_process::InProcessReports;

use std::sync::LazyLock;

use axum::Extension;
use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequestParts, MatchedPath, Path, Request};
use axum::http::request::Parts;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use ktsu_ledger::StreamId;
use serde_json::Value;
use utoipa::openapi::path::{self, ParameterIn};
use utoipa::{IntoParams, OpenApi};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use self::parameter::Parameter;
use self::query::{NoParameters, Query};
use super::access::{self, Access};
use super::ids::RunPath;
use ktsu_codes::ErrorCode;
use ktsu_history::evals::EVAL;
use ktsu_history::find::{self, RunMatch};
use ktsu_orchestrator::{LedgerRole, Orchestrator};
use ktsu_server::ProblemDetails;
use ktsu_server::document;
use ktsu_server::origin::AllowedHosts;

#[derive(OpenApi)]
#[openapi(
    info(
        title = "ktsu orchestrator",
        description = "Start runs, look at them, follow their frames. Errors are RFC 9457 problem \
                       documents with a stable `code`."
    ),
    components(schemas(wire::Problem))
)]
struct Api;

/// The routes without authentication, with their description.
pub fn router(orchestrator: Orchestrator) -> Router {
    router_for(orchestrator, Access::default())
}

/// The routes, for those who may call them.
pub fn router_for(orchestrator: Orchestrator, access: Access) -> Router {
    let names = match access.principals.get().is_empty() || access.within {
        true => AllowedHosts::Loopback,
        false => AllowedHosts::Any,
    };
    // Describing the routes takes longer than opening an engine, so it is done once.
    static DOCUMENTED: LazyLock<Router<Orchestrator>> =
        LazyLock::new(|| documented_router().split_for_parts().0);
    let standby = orchestrator.clone();
    let router = DOCUMENTED
        .clone()
        .route("/openapi.json", get(openapi_json))
        .with_state(orchestrator.clone())
        .layer(from_fn(move |request, next| {
            answer_as_owner(orchestrator.clone(), request, next)
        }))
        .layer(from_fn(move |request, next| {
            refer_to_owner(standby.clone(), request, next)
        }))
        .layer(from_fn(forms::as_json))
        .layer(Extension(access.models.clone()))
        .layer(Extension(summaries::OpenQuestions::default()))
        .layer(from_fn(move |request, next| {
            access::authorize(access.clone(), request, next)
        }))
        .layer(from_fn(inspector::failed::failures_as_pages));
    let router = ktsu_server::guarded_as(router, names);
    // `R/call` may be written with raw slashes; the routes below know one segment a run.
    let inner = tower::util::MapRequest::new(router, paths::join_scopes);
    Router::new()
        .fallback_service(inner)
        .layer(from_fn(forms::as_requests))
}

/// Answers at a standby what reads, and refers what changes something to the owner of the ledger, where that is
/// wanted.
async fn refer_to_owner(standby: Orchestrator, request: Request, next: Next) -> Response {
    let LedgerRole::Standby(owner) = standby.role() else {
        return next.run(request).await;
    };
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    if policy::only_reads(request.method().as_str(), path) {
        return next.run(request).await;
    }
    let asked = request.uri().path_and_query();
    let asked = asked.map_or("/", |asked| asked.as_str());
    let referral = owner.referral();
    let location = referral.map(|url| format!("{}{asked}", url.trim_end_matches('/')));
    match location.and_then(|location| HeaderValue::try_from(location).ok()) {
        Some(location) => {
            let headers = [(header::LOCATION, location)];
            (StatusCode::TEMPORARY_REDIRECT, headers).into_response()
        }
        None => next.run(request).await,
    }
}

/// Answers, unless the engine was suspended meanwhile and another one may have become the owner: what it
/// says could be out of date.
async fn answer_as_owner(orchestrator: Orchestrator, request: Request, next: Next) -> Response {
    let response = next.run(request).await;
    match orchestrator.is_owner() {
        true => response,
        false => {
            let words = "this engine is not sure to own its ledger any more; ask again";
            ProblemDetails::new(ErrorCode::LedgerStopped, words).into_response()
        }
    }
}

/// The description as JSON: it never changes, so it is made once.
async fn openapi_json(_: Query<NoParameters>) -> Response {
    static TEXT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(openapi_document().to_string()));
    document::response(&TEXT)
}

/// The OpenAPI description, including what the Rust declarations cannot express.
pub fn openapi_document() -> &'static Value {
    static SERVED: LazyLock<Value> = LazyLock::new(|| {
        let (_, api) = documented_router().split_for_parts();
        let mut document = serde_json::to_value(api).unwrap_or_default();
        policy::describe(&mut document);
        shape::refine(&mut document);
        document
    });
    &SERVED
}

fn documented_router() -> OpenApiRouter<Orchestrator> {
    OpenApiRouter::with_openapi(Api::openapi())
        .routes(routes!(home::home))
        .routes(routes!(inspector::runs::runs))
        .routes(routes!(summaries::for_pages))
        .routes(routes!(home::overview))
        .routes(routes!(inspector::run))
        .routes(routes!(inspector::frames::frames))
        .routes(routes!(inspector::graph::graph))
        .routes(routes!(inspector::why::why))
        .routes(routes!(inspector::step::step))
        .routes(routes!(inspector::diff::diff))
        .routes(routes!(inspector::inbox))
        .routes(routes!(inspector::evidence::evidence))
        .routes(routes!(inspector::sign_in::page, inspector::sign_in::begin))
        .routes(routes!(inspector::sign_in::end))
        .routes(routes!(inspector::asset))
        .routes(routes!(health::health))
        .routes(routes!(metrics::metrics))
        .routes(routes!(invoke::invoke))
        .routes(routes!(run_list::list))
        .routes(routes!(run_list::statistics))
        .routes(routes!(summaries::summaries))
        .routes(routes!(runs::get_run))
        .routes(routes!(runs::envelope))
        .routes(routes!(runs::state))
        .routes(routes!(steps::step))
        .routes(routes!(frames::frames))
        .routes(routes!(events::events))
        .routes(routes!(trace::trace))
        .routes(routes!(evidence::evidence))
        .routes(routes!(evidence::archive))
        .routes(routes!(payload::payload))
        .routes(routes!(payload::search))
        .routes(routes!(skeleton::skeleton))
        .routes(routes!(world::world))
        .routes(routes!(diff::diff))
        .routes(routes!(replay::replay))
        .routes(routes!(interventions::fork, fork_estimate::fork_estimate))
        .routes(routes!(
            interventions::overlay,
            interventions::patch_overlay
        ))
        .routes(routes!(interventions::resume))
        .routes(routes!(interventions::retry))
        .routes(routes!(steer::cancel))
        .routes(routes!(steer::terminate))
        .routes(routes!(steer::pause))
        .routes(routes!(hold::hold))
        .routes(routes!(posts::post_events))
        .routes(routes!(recompute::start, recompute::get))
        .routes(routes!(evals::check))
        .routes(routes!(evals::list))
        .routes(routes!(evals::get))
        .routes(routes!(approvals::list))
        .routes(routes!(approvals::reviews))
        .routes(routes!(approvals::get))
        .routes(routes!(approvals::decide))
        .routes(routes!(reviews::get))
        .routes(routes!(reviews::decide))
        .routes(routes!(suspensions::suspension))
        .routes(routes!(suspensions::resume_step))
        .routes(routes!(suspensions::resume_by_link))
        .routes(routes!(suspensions::resume_link))
        .routes(routes!(subscriptions::list, subscriptions::add))
        .routes(routes!(subscriptions::remove))
        .routes(routes!(subscriptions::dead))
        .routes(routes!(subscriptions::redrive))
        .routes(routes!(tools::message))
        .routes(routes!(tools::events::listen))
        .routes(routes!(tools::events::post))
        .routes(routes!(agents::report))
        .routes(routes!(agents::complete))
        .routes(routes!(agents::heartbeat))
}

/// The run a path names, found by its id or by a part of it.
struct RunTarget {
    stream: StreamId,
    scope: String,
}

impl FromRequestParts<Orchestrator> for RunTarget {
    type Rejection = ProblemDetails;

    async fn from_request_parts(
        parts: &mut Parts,
        orchestrator: &Orchestrator,
    ) -> Result<Self, ProblemDetails> {
        let path = path_of(parts, orchestrator).await?;
        find_run(orchestrator, &path).await
    }
}

impl IntoParams for RunTarget {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<path::Parameter> {
        let about = "A run, a branch or a recompute, or `R%2Fcall` for an inline child";
        vec![Parameter::in_path("id", about)]
    }
}

/// A run or an eval that a path names: for routes that show frames.
struct RecordTarget(RunTarget);

impl FromRequestParts<Orchestrator> for RecordTarget {
    type Rejection = ProblemDetails;

    async fn from_request_parts(
        parts: &mut Parts,
        orchestrator: &Orchestrator,
    ) -> Result<Self, ProblemDetails> {
        let path = path_of(parts, orchestrator).await?;
        if !path.starts_with(EVAL) {
            return find_run(orchestrator, &path).await.map(Self);
        }
        find_eval(orchestrator, path).await.map(Self)
    }
}

/// The name of a run in a path.
async fn path_of(parts: &mut Parts, orchestrator: &Orchestrator) -> Result<String, ProblemDetails> {
    let path = Path::<String>::from_request_parts(parts, orchestrator).await;
    let Path(path) = path.map_err(|_| no_such_run())?;
    Ok(path)
}

impl IntoParams for RecordTarget {
    fn into_params(_: impl Fn() -> Option<ParameterIn>) -> Vec<path::Parameter> {
        let about = "A run, a branch, a recompute or an eval, or `R%2Fcall` for an inline child";
        vec![Parameter::in_path("id", about)]
    }
}

/// The description of a path that names a step.
struct StepPath;

impl IntoParams for StepPath {
    fn into_params(place: impl Fn() -> Option<ParameterIn>) -> Vec<path::Parameter> {
        let mut parameters = RunTarget::into_params(place);
        let about = "The step, or `STEP.INDEX` for an item";
        parameters.push(Parameter::in_path("step", about));
        parameters
    }
}

/// A run, found by its id or by a part of it.
async fn find_run(orchestrator: &Orchestrator, path: &str) -> Result<RunTarget, ProblemDetails> {
    let text = RunPath::parse(path).ok_or_else(no_such_run)?.to_string();
    let found = orchestrator
        .readers()
        .with(move |reader| find::run(reader, &text))
        .await;
    target(found?, no_such_run)
}

/// An eval, found by its id or by a part of it.
async fn find_eval(orchestrator: &Orchestrator, id: String) -> Result<RunTarget, ProblemDetails> {
    let readers = orchestrator.readers();
    let found = readers.with(move |reader| find::eval(reader, &id)).await;
    target(found?, || {
        ProblemDetails::from(ErrorCode::EvalNotFound).with_hint("GET /evals lists them")
    })
}

/// The one that was found, or why there is none.
fn target(
    found: RunMatch,
    none: impl FnOnce() -> ProblemDetails,
) -> Result<RunTarget, ProblemDetails> {
    match found {
        RunMatch::One(stream, scope) => Ok(RunTarget { stream, scope }),
        RunMatch::None => Err(none()),
        RunMatch::Removed(removed) => {
            let words = find::removal_in_words(&removed);
            Err(ProblemDetails::new(ErrorCode::RunRemoved, words).with_hint(find::REMOVED_HINT))
        }
        RunMatch::Many(some, count) => {
            let words = match count - some.len() {
                0 => format!("several runs match: {}", some.join(", ")),
                more => format!("several runs match: {} and {more} more", some.join(", ")),
            };
            let problem = ProblemDetails::new(ErrorCode::AmbiguousId, words);
            Err(problem.with_hint("give more of the id"))
        }
    }
}

fn no_such_run() -> ProblemDetails {
    ErrorCode::RunNotFound.into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_description_is_made_once_and_not_for_each_who_asks() {
        let text = async || {
            let answer = openapi_json(Query(NoParameters)).await;
            let text = axum::body::to_bytes(answer.into_body(), usize::MAX).await;
            text.unwrap()
        };
        let (one, other) = (text().await, text().await);
        assert!(one.len() > 10_000);
        assert_eq!(one.as_ptr(), other.as_ptr());
    }
}
