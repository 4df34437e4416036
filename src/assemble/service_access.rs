//! The access to runtimes and gateways (decision H5): who may call which of their routes.
//!
//! They ask for tokens once the environment file has a principal with the role `orchestrator`; then they may listen
//! beyond this machine.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::extract::Request;
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn};
use axum::response::{IntoResponse as _, Response};
use axum::{Json, Router};
use ktsu_api::access;
use ktsu_config::fault::Faults;
use ktsu_environment::principals::PrincipalRole::{self, Orchestrator, Runtime};
use ktsu_environment::{Environment, Principals};
use ktsu_server::origin::AllowedHosts;
use serde_json::json;

/// A service beside the orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceKind {
    /// Works on tasks.
    Runtime,
    /// Calls models.
    Gateway,
}

/// The routes that everybody may call: they say nothing of what is worked on.
const PUBLIC: [(&str, &str); 4] = [
    ("GET", "/health"),
    ("HEAD", "/health"),
    ("GET", "/openapi.json"),
    ("HEAD", "/openapi.json"),
];

impl ServiceKind {
    /// The roles that may call the routes of a service which are not public.
    const fn roles(self) -> &'static [PrincipalRole] {
        match self {
            Self::Runtime => &[Orchestrator],
            Self::Gateway => &[Orchestrator, Runtime],
        }
    }
}

/// The principals that a service knows.
#[derive(Clone, Default)]
pub(super) struct ServiceAccess {
    principals: Arc<Principals>,
}

impl ServiceAccess {
    /// Those of the environment file that are services.
    ///
    /// # Errors
    /// Tokens without usable values.
    pub(super) fn of(
        environment: Option<&Environment>,
        process: &BTreeMap<String, String>,
    ) -> Result<Self, Faults> {
        let declared = environment.map(|file| file.principals.as_slice());
        let mut declared = declared.unwrap_or_default().iter();
        if !declared.any(|one| one.roles.contains(&Orchestrator)) {
            return Ok(Self::default());
        }
        let principals = Principals::resolve_services(environment, process)?;
        Ok(Self {
            principals: Arc::new(principals),
        })
    }

    /// Returns `true` if callers must show tokens.
    pub(super) fn asks(&self) -> bool {
        !self.principals.is_empty()
    }

    /// The token that a service with this role shows to others.
    pub(super) fn token_of(&self, role: PrincipalRole) -> Option<String> {
        let token = self.principals.token_of(role)?;
        Some(token.expose().to_owned())
    }

    /// The hosts that requests may name.
    pub(super) fn hosts(&self) -> AllowedHosts {
        match self.asks() {
            true => AllowedHosts::Any,
            false => AllowedHosts::Loopback,
        }
    }

    /// The routes of a service, for those who may call them.
    pub(super) fn guard(&self, kind: ServiceKind, router: Router) -> Router {
        if !self.asks() {
            return router;
        }
        let own = self.clone();
        router.layer(from_fn(move |request: Request, next: Next| {
            let refused = own.refusal(kind, &request);
            async move {
                match refused {
                    Some(refused) => refused,
                    None => next.run(request).await,
                }
            }
        }))
    }

    fn refusal(&self, kind: ServiceKind, request: &Request) -> Option<Response> {
        if PUBLIC.contains(&(request.method().as_str(), request.uri().path())) {
            return None;
        }
        let token = access::token(request.headers()).ok().flatten();
        let known = token.and_then(|token| self.principals.authenticate(token));
        let Some(known) = known else {
            let words = "a token of a service is needed: that of a principal of the caller's file with its role, or KTSU_TOKEN";
            return Some(refused(StatusCode::UNAUTHORIZED, "unauthorized", words));
        };
        if kind.roles().iter().any(|role| known.roles.contains(role)) {
            return None;
        }
        let roles: Vec<&str> = kind.roles().iter().map(|role| role.as_str()).collect();
        let words = format!("this needs the role {}", roles.join(" or "));
        Some(refused(StatusCode::FORBIDDEN, "forbidden", &words))
    }
}

/// An error of a service, as its contract has it.
fn refused(status: StatusCode, error: &str, message: &str) -> Response {
    let body = json!({"error": error, "message": message, "retryable": false});
    let mut response = (status, Json(body)).into_response();
    if status == StatusCode::UNAUTHORIZED
        && let Ok(scheme) = "Bearer".parse()
    {
        response
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, scheme);
    }
    response
}
