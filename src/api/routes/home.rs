//! `GET /`: an overview of this engine, for browsers and for programs.
//!
//! Without a required token, it shows only what `/health` shows everybody, and how to authenticate.
//! Routes and their descriptions are taken from the OpenAPI document.

use std::sync::LazyLock;

use axum::Extension;
use axum::extract::State;
use axum::http::{HeaderMap, HeaderValue, Method, header};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ktsu_ledger::event::plan::Visibility;
use maud::{PreEscaped, html};
use sha2::{Digest as _, Sha256};

use super::media_ranges::MediaRanges;
use super::policy::{self, AccessPolicy, SIGNING};
use super::query::{NoParameters, Query};
use super::{openapi_document, wire};
use crate::access::Caller;
use ktsu_environment::principals::PrincipalRole;
use ktsu_history::report::{HtmlText, row};
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
    (status = 200, content((wire::Home = "application/json"), (String = "text/html"))),
))]
pub(super) async fn home(
    State(orchestrator): State<Orchestrator>,
    caller: Option<Extension<Caller>>,
    headers: HeaderMap,
    _: Query<NoParameters>,
) -> Response {
    let caller = caller.map(|Extension(caller)| caller);
    let home = workflows_shown(&orchestrator, caller.as_ref());
    let mut response = match prefers_html(&headers) {
        true => page(&home),
        false => axum::Json(home).into_response(),
    };
    let vary = HeaderValue::from_static("accept, authorization, ktsu-token");
    response.headers_mut().insert(header::VARY, vary);
    response
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

const STYLE: &str = ":root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;\
max-width:60rem;margin:2rem auto;padding:0 1rem}table{border-collapse:collapse}\
td,th{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top}code{font-size:90%}";

/// Nothing is loaded, nothing runs, and the one style is named by its digest.
static CONTENT_SECURITY_POLICY: LazyLock<Option<HeaderValue>> = LazyLock::new(|| {
    let style = BASE64_STANDARD.encode(Sha256::digest(STYLE));
    let words = format!(
        "default-src 'none'; style-src 'sha256-{style}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    HeaderValue::try_from(words).ok()
});

fn page(home: &wire::Home) -> Response {
    let mut response = axum::response::Html(html(home)).into_response();
    let headers = response.headers_mut();
    if let Some(policy) = CONTENT_SECURITY_POLICY.as_ref() {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy.clone());
    }
    let none = HeaderValue::from_static("no-referrer");
    headers.insert(header::REFERRER_POLICY, none);
    response
}

fn html(home: &wire::Home) -> String {
    let title = format!("{} {}", home.name, home.version);
    let authentication = &home.authentication;
    let page = html! {
        (PreEscaped("<!doctype html>\n"))
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width";
                title { (HtmlText(&title)) }
                style { (PreEscaped(STYLE)) }
            }
            body {
                h1 { (HtmlText(&title)) }
                p {
                    "The ledger is " (HtmlText(home.ledger.replace('_', " "))) "."
                    @match (&authentication.how, &authentication.principal) {
                        (Some(how), _) => {
                            " Principals see more: " (HtmlText(how)) "."
                        }
                        (None, Some(principal)) => { " You are " (HtmlText(principal)) "." }
                        (None, None) => {}
                    }
                }
                p { a href="inspector/runs" { "Inspector" } ": runs, and what happened in them." }
                @if !home.workflows.is_empty() {
                    h2 { "Workflows" }
                    table {
                        @for one in &home.workflows {
                            @let header = one.header.as_ref();
                            @let header = header.map(|name| format!("requires the header {name}"));
                            @let invoke = format_args!("POST {}", one.invoke);
                            (row(&[&one.name, &one.version, &invoke, &header.unwrap_or_default()]))
                        }
                    }
                }
                h2 { "Routes" }
                table {
                    @for one in &home.routes {
                        (row(&[&format_args!("{} {}", one.method, one.path), &one.description]))
                    }
                }
                p {
                    "For programs: " a href=(home.openapi) { (home.openapi) } ". In words: "
                    code { (home.documentation) } "."
                }
            }
        }
        "\n"
    };
    page.into_string()
}

/// Returns `true` if a client prefers HTML to JSON. Clients without a preference are programs.
pub(super) fn prefers_html(headers: &HeaderMap) -> bool {
    let accepted = MediaRanges::of(headers);
    accepted.weight("text/html") > accepted.weight("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn browsers_get_html_and_programs_json() {
        let browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8";
        for (accept, html) in [
            (&[][..], false),
            (&["*/*"], false),
            (&[browser], true),
            (&["text/html"], true),
            (&["TEXT/HTML;Q=0.5, application/json;q=0.4"], true),
            (&["text/html;q=0.4", "application/json;q=0.5"], false),
            (&["text/*, application/json;q=0.9"], true),
            (&["text/html;q=0, */*"], false),
            (&["text/html;q=2"], false),
            (&["text/html;q=x, */*;q=0.1"], false),
            (&["application/json, text/html"], false),
            (&["image/png"], false),
            (&[",;,"], false),
        ] {
            let mut headers = HeaderMap::new();
            for value in accept {
                headers.append(header::ACCEPT, value.parse().unwrap());
            }
            assert_eq!(prefers_html(&headers), html, "{accept:?}");
        }
    }

    #[test]
    fn every_route_has_a_sentence_of_its_own() {
        for (method, path, _) in policy::TABLE {
            if path != "/openapi.json" {
                let summary = &openapi_document()["paths"][path][method.to_lowercase()]["summary"];
                assert!(summary.is_string(), "{method} {path}");
            }
        }
    }

    #[test]
    fn what_comes_from_a_kit_is_text_on_the_page() {
        let evil = "<img src=x onerror=alert(1)>";
        let home = wire::Home {
            name: "ktsu".to_owned(),
            version: "1".to_owned(),
            ledger: "ok".to_owned(),
            authentication: wire::Authentication {
                required: true,
                principal: Some(evil.to_owned()),
                how: None,
            },
            workflows: vec![wire::HomeWorkflow {
                name: evil.to_owned(),
                version: evil.to_owned(),
                invoke: evil.to_owned(),
                header: Some(evil.to_owned()),
            }],
            routes: Vec::new(),
            openapi: "/openapi.json".to_owned(),
            documentation: DOCUMENTATION.to_owned(),
        };
        let page = html(&home);
        assert!(!page.contains("<img"), "{page}");
        assert_eq!(page.matches("&lt;img").count(), 5, "{page}");
    }
}
