//! The orchestrator's routes. `/openapi.json` is generated from them, so every route that is served
//! is described.
//!
//! Handlers decode requests and make no decisions; reads go through `history`.

mod agents;
mod approvals;
mod command;
#[cfg(test)]
mod description;
mod diff;
mod evals;
mod events;
mod evidence;
mod fork_estimate;
mod fork_forms;
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
use axum::routing::{delete, get, patch, post};
use ktsu_ledger::StreamId;
use serde_json::Value;
use utoipa::IntoParams;
use utoipa::openapi::path::{self, ParameterIn};

use self::parameter::{IfMatch, Parameter, SubjectIfMatch};
use self::query::{NoParameters, Query};
use super::access::{self, Access};
use super::ids::RunPath;
use ktsu_codes::ErrorCode;
use ktsu_history::evals::EVAL;
use ktsu_history::find::{self, RunMatch};
use ktsu_history::run_cache::RunCache;
use ktsu_orchestrator::{LedgerRole, Orchestrator};
use ktsu_server::ProblemDetails;
use ktsu_server::document;
use ktsu_server::origin::AllowedHosts;

/// What `openapi.json` says.
const DESCRIPTION: &str = include_str!("openapi.json");

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
    let standby = orchestrator.clone();
    let router = handlers()
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
        .layer(Extension(access.kit_checks.clone()))
        .layer(Extension(summaries::OpenQuestions::default()))
        .layer(Extension(RunCache::default()))
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

/// The description as JSON.
async fn openapi_json(_: Query<NoParameters>) -> Response {
    document::response(&Bytes::from_static(DESCRIPTION.as_bytes()))
}

/// The OpenAPI description. It is a file, because to make it takes code as large as all handlers; a test holds it
/// against what is declared with them.
pub fn openapi_document() -> &'static Value {
    static SERVED: LazyLock<Value> =
        LazyLock::new(|| serde_json::from_str(DESCRIPTION).unwrap_or_default());
    &SERVED
}

/// Makes the router of a list of handlers; and for tests, which hold `openapi.json` against it, the description that is
/// declared with them.
macro_rules! served {
    ($($method:ident $path:literal $($handler:ident)::+;)*) => {
        fn handlers() -> Router<Orchestrator> {
            Router::new()$(.route($path, $method($($handler)::+)))*
        }

        #[cfg(test)]
        fn declared() -> utoipa_axum::router::OpenApiRouter<Orchestrator> {
            utoipa_axum::router::OpenApiRouter::default()
                $(.routes(utoipa_axum::routes!($($handler)::+)))*
        }
    };
}

served! {
    get "/" home::home;
    get "/inspector/runs" inspector::runs::runs;
    get "/inspector/live" summaries::for_pages;
    get "/inspector/api" home::overview;
    get "/inspector/runs/{id}" inspector::run;
    get "/inspector/runs/{id}/frames" inspector::frames::frames;
    get "/inspector/runs/{id}/graph" inspector::graph::graph;
    get "/inspector/runs/{id}/why" inspector::why::why;
    get "/inspector/runs/{id}/world" inspector::world::world;
    get "/inspector/runs/{id}/steps/{step}" inspector::step::step;
    get "/inspector/diff" inspector::diff::diff;
    get "/inspector/inbox" inspector::inbox;
    get "/inspector/evals" inspector::evals::list;
    get "/inspector/evals/{id}" inspector::evals::one;
    get "/inspector/evidence" inspector::evidence::evidence;
    get "/inspector/kit" inspector::kit::kit;
    get "/inspector/kit/{workflow}" inspector::kit::workflow;
    get "/inspector/sign-in" inspector::sign_in::page;
    post "/inspector/sign-in" inspector::sign_in::begin;
    post "/inspector/sign-out" inspector::sign_in::end;
    get "/inspector/{file}" inspector::asset;
    get "/health" health::health;
    get "/metrics" metrics::metrics;
    post "/invoke/{workflow}" invoke::invoke;
    get "/runs" run_list::list;
    get "/statistics" run_list::statistics;
    get "/summaries" summaries::summaries;
    get "/runs/{id}" runs::get_run;
    get "/runs/{id}/envelope" runs::envelope;
    get "/runs/{id}/state" runs::state;
    get "/runs/{id}/steps/{step}" steps::step;
    get "/runs/{id}/frames" frames::frames;
    get "/events" events::events;
    get "/runs/{id}/trace" trace::trace;
    get "/evidence" evidence::evidence;
    get "/runs/{id}/evidence" evidence::archive;
    get "/runs/{id}/payload" payload::payload;
    get "/runs/{id}/search" payload::search;
    get "/runs/{id}/skeleton" skeleton::skeleton;
    get "/runs/{id}/world" world::world;
    get "/diff" diff::diff;
    post "/runs/{id}/replay" replay::replay;
    post "/runs/{id}/fork" interventions::fork;
    get "/runs/{id}/fork" fork_estimate::fork_estimate;
    post "/runs/{id}/overlay" interventions::overlay;
    patch "/runs/{id}/overlay" interventions::patch_overlay;
    post "/runs/{id}/resume" interventions::resume;
    post "/runs/{id}/retry" interventions::retry;
    post "/runs/{id}/cancel" steer::cancel;
    post "/runs/{id}/terminate" steer::terminate;
    post "/runs/{id}/pause" steer::pause;
    post "/runs/{id}/hold" hold::hold;
    post "/runs/{id}/events" posts::post_events;
    post "/runs/{id}/recompute" recompute::start;
    get "/runs/{id}/recompute" recompute::get;
    post "/checks" evals::check;
    get "/evals" evals::list;
    get "/evals/{id}" evals::get;
    get "/approvals" approvals::list;
    get "/reviews" approvals::reviews;
    get "/runs/{id}/steps/{step}/approval" approvals::get;
    post "/runs/{id}/steps/{step}/approval/decide" approvals::decide;
    get "/runs/{id}/steps/{step}/review" reviews::get;
    post "/runs/{id}/steps/{step}/review/decide" reviews::decide;
    get "/runs/{id}/steps/{step}/suspend" suspensions::suspension;
    post "/runs/{id}/steps/{step}/resume" suspensions::resume_step;
    post "/runs/{id}/steps/{step}/resume/link" suspensions::resume_by_link;
    post "/runs/{id}/steps/{step}/suspend/link" suspensions::resume_link;
    get "/subscriptions" subscriptions::list;
    post "/subscriptions" subscriptions::add;
    delete "/subscriptions/{id}" subscriptions::remove;
    get "/subscriptions/{id}/dead" subscriptions::dead;
    post "/subscriptions/{id}/redrive" subscriptions::redrive;
    post "/tools/ktsu/{name}" tools::message;
    get "/tools/ktsu/{name}/sse" tools::events::listen;
    post "/tools/ktsu/{name}/messages" tools::events::post;
    post "/runs/{id}/steps/{step}/report" agents::report;
    post "/runs/{id}/steps/{step}/complete" agents::complete;
    post "/heartbeat" agents::heartbeat;
}

/// The run a path names, found by its id or by a part of it.
#[derive(Clone)]
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

/// Parameters that only descriptions name.
const _: (StepPath, IfMatch, SubjectIfMatch) = (StepPath, IfMatch, SubjectIfMatch);

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
