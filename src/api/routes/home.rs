//! `GET /`: an overview of this engine for programs, and for browsers the link to its pages.
//!
//! Without a required token, it shows only what `/health` shows everybody, and how to authenticate.
//! Routes and their descriptions are taken from the OpenAPI document.

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use ktsu_inspector::{OverviewPage, OverviewRoute, OverviewWorkflow};
use ktsu_ledger::event::plan::Visibility;

use super::inspector::{answer, signed_in};
use super::media_ranges::prefers_html;
use super::policy::{self, AccessPolicy, SIGNING};
use super::query::{NoParameters, Query};
use super::{openapi_document, wire};
use crate::access::Caller;
use ktsu_environment::principals::PrincipalRole;
use ktsu_kit::KitWorkflow;
use ktsu_orchestrator::{LedgerRole, Orchestrator};

/// The page that describes the routes.
const DOCUMENTATION: &str = "docs/http.md";
/// What pages of the inspector load.
const PAGE_FILES: &str = "/inspector/{file}";
const HOW: &str = "Authorization: Bearer TOKEN, or Ktsu-Token: TOKEN; tokens are set under principals \
                   in the environment file";

/// Shows the workflows that may be invoked, and the routes.
#[utoipa::path(get, path = "/", responses(
    (status = 200, body = wire::Home),
    (status = 303, description = "To the pages, for a browser."),
))]
pub(super) async fn home(
    State(orchestrator): State<Orchestrator>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    _: Query<NoParameters>,
) -> Response {
    let vary = HeaderValue::from_static("accept, authorization, ktsu-token");
    let vary = [(header::VARY, vary)];
    if prefers_html(&headers) {
        return (vary, Redirect::to("inspector/runs")).into_response();
    }
    let caller = caller.map(|Extension(caller)| caller);
    let home = workflows_shown(&orchestrator, caller.as_ref());
    (vary, axum::Json(home)).into_response()
}

fn workflows_shown(orchestrator: &Orchestrator, caller: Option<&Caller>) -> wire::Home {
    let (ledger, _) = orchestrator.ledger_state();
    let only_reads = !matches!(orchestrator.role(), LedgerRole::Owner);
    let invokes = policy::of(&Method::POST, "/invoke/{workflow}");
    let invokes = caller.zip(invokes).filter(|(caller, way)| caller.may(*way));
    let workflows = orchestrator.kit().workflows.iter();
    let workflows = workflows.filter(|(_, one)| one.visibility == Visibility::Root);
    let by_token = caller.filter(|caller| caller.is_by_token());
    wire::Home {
        name: "ktsu".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ledger: ledger.as_str().to_owned(),
        authentication: wire::Authentication {
            required: caller.is_none() || by_token.is_some(),
            principal: caller.map(|caller| caller.principal.id.clone()),
            how: caller.is_none().then(|| HOW.to_owned()),
        },
        workflows: match invokes.is_some() && !only_reads {
            true => workflows.map(|(name, one)| workflow(name, one)).collect(),
            false => Vec::new(),
        },
        routes: policy::TABLE
            .into_iter()
            .filter(|row| is_shown(*row, caller, only_reads))
            .map(|(method, path, _)| route(method, path))
            .collect(),
        openapi: "/openapi.json".to_owned(),
        documentation: DOCUMENTATION.to_owned(),
    }
}

fn workflow(name: &str, workflow: &KitWorkflow) -> wire::HomeWorkflow {
    let root = workflow.definition.root_plan();
    let auth = root.and_then(|root| root.invoke.as_ref());
    wire::HomeWorkflow {
        name: name.to_owned(),
        version: root.map(|root| root.version.clone()).unwrap_or_default(),
        invoke: format!("/invoke/{name}"),
        header: auth.map(|auth| auth.header.clone()),
    }
}

/// Returns `true` if a route is listed for the caller: not this page, not what pages load, and not routes
/// between services.
fn is_shown(
    (method, path, policy): (&str, &str, AccessPolicy),
    caller: Option<&Caller>,
    only_reads: bool,
) -> bool {
    let may = match policy {
        AccessPolicy::Public if path == PAGE_FILES || path.starts_with(SIGNING) => false,
        AccessPolicy::Public => true,
        AccessPolicy::Optional | AccessPolicy::Attempt => false,
        AccessPolicy::Roles(roles) if roles.contains(&PrincipalRole::Runtime) => false,
        AccessPolicy::Roles(_) => caller.is_some_and(|caller| caller.may(policy)),
    };
    may && (!only_reads || policy::only_reads(method, path))
}

fn route(method: &str, path: &str) -> wire::HomeRoute {
    let summary = &openapi_document()["paths"][path][method.to_lowercase()]["summary"];
    let summary = summary.as_str().unwrap_or("This API, for programs.");
    wire::HomeRoute {
        method: method.to_owned(),
        path: path.to_owned(),
        description: summary.to_owned(),
    }
}

/// The workflows that may be invoked and the routes, for people.
#[utoipa::path(get, path = "/inspector/api", responses(
    (status = 200, body = String, content_type = "text/html"),
))]
pub(super) async fn overview(
    State(orchestrator): State<Orchestrator>,
    caller: Caller,
    _: Query<NoParameters>,
) -> Response {
    let home = workflows_shown(&orchestrator, Some(&caller));
    answer(ktsu_inspector::overview_page(&OverviewPage {
        by: signed_in(&orchestrator, &caller),
        version: home.version,
        ledger: home.ledger,
        workflows: (home.workflows.into_iter())
            .map(|one| OverviewWorkflow {
                name: one.name,
                version: one.version,
                header: one.header,
            })
            .collect(),
        routes: (home.routes.into_iter())
            .map(|one| OverviewRoute {
                name: format!("{} {}", one.method, one.path),
                description: one.description,
            })
            .collect(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_has_a_sentence_of_its_own() {
        for (method, path, _) in policy::TABLE {
            if path != "/openapi.json" {
                let summary = &openapi_document()["paths"][path][method.to_lowercase()]["summary"];
                assert!(summary.is_string(), "{method} {path}");
            }
        }
    }
}
