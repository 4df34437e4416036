//! The access policy of each route: one table, denying by default.
//!
//! docs/http.md shows the same table. A route without an entry is answered as if it did not exist;
//! a test checks the table against the routes.

use axum::http::Method;

use ktsu_environment::principals::PrincipalRole;
use ktsu_environment::principals::PrincipalRole::{
    Admin, Approver, Auditor, Operator, Runtime, Viewer,
};

/// The callers that may call a route, where principals are configured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessPolicy {
    /// Everybody, without a token.
    Public,
    /// Everybody; a token identifies the caller.
    Optional,
    /// The holder of the token of the attempt named in the path and the query (decision W1).
    Attempt,
    /// Principals with one of these roles.
    Roles(&'static [PrincipalRole]),
}

const READ: AccessPolicy = AccessPolicy::Roles(&[Viewer, Operator, Approver, Auditor, Admin]);
const RECORD: AccessPolicy = AccessPolicy::Roles(&[Operator, Auditor, Admin]);
const OPERATE: AccessPolicy = AccessPolicy::Roles(&[Operator, Admin]);
const APPROVE: AccessPolicy = AccessPolicy::Roles(&[Approver, Admin]);
const REVIEW: AccessPolicy = AccessPolicy::Roles(&[Operator, Approver, Admin]);
const HOLD: AccessPolicy = AccessPolicy::Roles(&[Auditor, Admin]);
const ADMINISTER: AccessPolicy = AccessPolicy::Roles(&[Admin]);

/// The paths by which browsers sign in and out begin with it.
pub const SIGNING: &str = "/inspector/sign-";

/// Method and path as they are registered.
pub const TABLE: [(&str, &str, AccessPolicy); 80] = [
    ("GET", "/", AccessPolicy::Optional),
    ("GET", "/openapi.json", AccessPolicy::Public),
    ("GET", "/inspector/runs", READ),
    ("GET", "/inspector/runs/{id}", READ),
    // Frames are shown whole to those alone who may read `/runs/{id}/frames`.
    ("GET", "/inspector/runs/{id}/frames", READ),
    ("GET", "/inspector/runs/{id}/graph", READ),
    ("GET", "/inspector/runs/{id}/why", READ),
    // As `/runs/{id}/world`.
    ("GET", "/inspector/runs/{id}/world", READ),
    // Values of frames are shown to those alone who may read `/runs/{id}/frames`.
    ("GET", "/inspector/runs/{id}/steps/{step}", READ),
    ("GET", "/inspector/diff", READ),
    ("GET", "/inspector/inbox", READ),
    ("GET", "/inspector/api", READ),
    // As `/evals`; frames are said in the few words that `/inspector/runs/{id}/frames` shows.
    ("GET", "/inspector/evals", READ),
    ("GET", "/inspector/evals/{id}", READ),
    ("GET", "/inspector/evidence", READ),
    // Sub-workflows, prompts and inputs are shown to those alone who may read `/runs/{id}/frames`.
    ("GET", "/inspector/kit", READ),
    ("GET", "/inspector/kit/{workflow}", READ),
    ("GET", "/inspector/live", READ),
    ("GET", "/inspector/sign-in", AccessPolicy::Public),
    ("POST", "/inspector/sign-in", AccessPolicy::Public),
    ("POST", "/inspector/sign-out", AccessPolicy::Public),
    ("GET", "/inspector/{file}", AccessPolicy::Public),
    ("GET", "/health", AccessPolicy::Public),
    ("GET", "/metrics", RECORD),
    ("POST", "/invoke/{workflow}", OPERATE),
    ("GET", "/runs", READ),
    ("GET", "/statistics", READ),
    ("GET", "/summaries", READ),
    ("GET", "/runs/{id}", READ),
    ("GET", "/runs/{id}/envelope", READ),
    ("GET", "/runs/{id}/state", READ),
    ("GET", "/runs/{id}/steps/{step}", READ),
    ("GET", "/runs/{id}/frames", RECORD),
    ("GET", "/events", RECORD),
    ("GET", "/runs/{id}/trace", READ),
    // A value of a frame is shown to those alone who may read `/runs/{id}/frames`.
    ("GET", "/runs/{id}/payload", READ),
    ("GET", "/runs/{id}/search", RECORD),
    ("GET", "/runs/{id}/skeleton", READ),
    ("GET", "/runs/{id}/evidence", RECORD),
    ("GET", "/evidence", READ),
    ("GET", "/runs/{id}/world", READ),
    ("GET", "/diff", READ),
    ("POST", "/runs/{id}/replay", RECORD),
    ("GET", "/runs/{id}/fork", READ),
    ("POST", "/runs/{id}/fork", OPERATE),
    ("POST", "/runs/{id}/overlay", OPERATE),
    ("PATCH", "/runs/{id}/overlay", OPERATE),
    ("POST", "/runs/{id}/resume", OPERATE),
    ("POST", "/runs/{id}/retry", OPERATE),
    // The principal that started a run may cancel it, too (decision P2).
    ("POST", "/runs/{id}/cancel", READ),
    ("POST", "/runs/{id}/terminate", OPERATE),
    ("POST", "/runs/{id}/pause", OPERATE),
    ("POST", "/runs/{id}/hold", HOLD),
    ("POST", "/runs/{id}/events", OPERATE),
    ("POST", "/runs/{id}/recompute", OPERATE),
    ("GET", "/runs/{id}/recompute", READ),
    ("POST", "/checks", RECORD),
    ("GET", "/evals", READ),
    ("GET", "/evals/{id}", READ),
    ("GET", "/approvals", READ),
    ("GET", "/reviews", READ),
    ("GET", "/runs/{id}/steps/{step}/approval", READ),
    ("POST", "/runs/{id}/steps/{step}/approval/decide", APPROVE),
    ("GET", "/runs/{id}/steps/{step}/review", READ),
    // The policy of the review says which of these roles count.
    ("POST", "/runs/{id}/steps/{step}/review/decide", REVIEW),
    ("GET", "/runs/{id}/steps/{step}/suspend", READ),
    // The policy of the suspension says which of these roles count.
    ("POST", "/runs/{id}/steps/{step}/resume", REVIEW),
    ("POST", "/runs/{id}/steps/{step}/suspend/link", REVIEW),
    (
        "POST",
        "/runs/{id}/steps/{step}/resume/link",
        AccessPolicy::Attempt,
    ),
    ("GET", "/subscriptions", ADMINISTER),
    ("POST", "/subscriptions", ADMINISTER),
    ("DELETE", "/subscriptions/{id}", ADMINISTER),
    ("GET", "/subscriptions/{id}/dead", ADMINISTER),
    ("POST", "/subscriptions/{id}/redrive", ADMINISTER),
    (
        "POST",
        "/runs/{id}/steps/{step}/report",
        AccessPolicy::Attempt,
    ),
    (
        "POST",
        "/runs/{id}/steps/{step}/complete",
        AccessPolicy::Attempt,
    ),
    ("POST", "/tools/ktsu/{name}", AccessPolicy::Attempt),
    ("GET", "/tools/ktsu/{name}/sse", AccessPolicy::Attempt),
    ("POST", "/tools/ktsu/{name}/messages", AccessPolicy::Attempt),
    ("POST", "/heartbeat", AccessPolicy::Roles(&[Runtime, Admin])),
];

/// The policy of a route. `HEAD` is `GET` without the body.
pub fn of(method: &Method, path: &str) -> Option<AccessPolicy> {
    let method = match *method {
        Method::HEAD => "GET",
        ref other => other.as_str(),
    };
    let mut rows = TABLE.iter();
    let found = rows.find(|(known, route, _)| *known == method && *route == path);
    found.map(|(_, _, policy)| *policy)
}

/// Returns `true` if a route changes nothing, so that every engine of a ledger can answer it.
pub fn only_reads(method: &str, path: &str) -> bool {
    matches!(method, "GET" | "HEAD") || path == "/runs/{id}/replay" || path.starts_with(SIGNING)
}

/// The methods of a route, as `Allow` names them; `GET` is there for `HEAD`, too.
pub fn methods(path: &str) -> String {
    let rows = TABLE.iter().filter(|(_, route, _)| *route == path);
    let names = rows.map(|(method, _, _)| match *method {
        "GET" => "GET, HEAD",
        other => other,
    });
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_route_has_a_row_and_every_row_a_route() {
        let api = super::super::openapi_document();
        let mut served = BTreeSet::from([("GET".to_owned(), "/openapi.json".to_owned())]);
        for (path, item) in api["paths"].as_object().unwrap() {
            let methods = item.as_object().unwrap().keys();
            served.extend(methods.map(|method| (method.to_uppercase(), path.clone())));
        }
        let rows = TABLE.map(|(method, path, _)| (method.to_owned(), path.to_owned()));
        assert_eq!(rows.len(), served.len(), "a row appears twice");
        assert_eq!(BTreeSet::from(rows), served);
    }

    #[test]
    fn a_route_without_a_row_has_no_policy() {
        assert_eq!(of(&Method::GET, "/runs"), Some(READ));
        assert_eq!(of(&Method::HEAD, "/runs"), Some(READ));
        assert_eq!(of(&Method::DELETE, "/runs"), None);
        assert_eq!(of(&Method::GET, "/secrets"), None);
    }

    #[test]
    fn the_page_says_what_the_table_says() {
        let page = include_str!("../../../docs/http.md");
        for (method, path, policy) in TABLE {
            let who = match policy {
                AccessPolicy::Public => "everybody".to_owned(),
                AccessPolicy::Optional => "everybody; more to principals".to_owned(),
                AccessPolicy::Attempt if path.ends_with("/link") => {
                    "the holder of the step's link, by its token in the query".to_owned()
                }
                AccessPolicy::Attempt => {
                    "the holder of the attempt's token, in the query".to_owned()
                }
                AccessPolicy::Roles(roles) => {
                    let words: Vec<_> = roles.iter().map(|role| role.as_str()).collect();
                    words.join(", ")
                }
            };
            let row = format!("| `{method} {path}` | {who} |");
            assert!(page.contains(&row), "docs/http.md has no {row}");
        }
    }

    #[test]
    fn an_admin_may_do_whatever_anybody_may() {
        for (method, path, policy) in TABLE {
            if let AccessPolicy::Roles(roles) = policy {
                assert!(roles.contains(&Admin), "{method} {path}");
            }
        }
    }
}
