//! The rules for who may use which tool, applied before anything else is looked up or said
//! (decision H5).
//!
//! A tool has the roles of the route that it ends at, so one table has all of them. Whose roles
//! count depends on who holds the ledger; the routes decide again when they are called.
//!
//! ```text
//! call ─▶ principals of this server ─▶ the owner of the ledger, if it is another process ─▶ tool
//! ```

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Method};
use ktsu_api::access::{self, Access, Caller};
use ktsu_api::routes::policy;
use ktsu_codes::ErrorCode;
use ktsu_contract::TOKEN_HEADER;
use ktsu_environment::Principals;
use ktsu_peer::Peer;
use ktsu_server::ProblemDetails;
use serde_json::Value;

use super::answer::AnswerError;
use super::ask::get;
use ktsu_opening::peer::{problem, remote_as};

/// A route of the engine: its method and its path, as the table of policies has them.
pub(super) type ToolRoute = (&'static str, &'static str);

/// The route that the least of the tools needs.
pub(super) const ANY_TOOL: ToolRoute = ("GET", "/runs");
/// The route that only callers may use who may start runs.
const OPERATE: ToolRoute = ("POST", "/invoke/{workflow}");

/// The caller, and the means by which the engine learns of it.
#[derive(Debug, Clone)]
pub(super) enum CallerAccess {
    /// The process that started this one, with its token if it has one.
    Process(Option<HeaderValue>),
    /// A client over HTTP, with the token of its request.
    Client(Option<HeaderValue>),
}

/// A caller that may use a tool.
#[derive(Debug, Clone, Copy)]
pub(super) struct Admission {
    /// True if failures may name kits, files and paths to it.
    pub(super) may_operate: bool,
}

/// The principals of an environment file, as this process knows them.
#[derive(Debug, Clone)]
pub(super) enum ToolPrincipals {
    /// With their tokens; none of them if the file has none.
    Known(Arc<Principals>),
    /// The file has some, and this process has no values for their tokens.
    Unusable,
}

impl CallerAccess {
    /// Of a request over HTTP, which names its caller as requests to the engine do.
    ///
    /// # Errors
    /// The token cannot be read.
    pub(super) fn of_request(headers: &HeaderMap) -> Result<Self, ProblemDetails> {
        let token = access::token(headers)?.map(HeaderValue::from_bytes);
        let token = token.transpose();
        let token = token.map_err(|_| access::unauthorized())?;
        Ok(Self::Client(token))
    }

    /// The token, if there is one.
    pub(super) fn token(&self) -> Option<&HeaderValue> {
        match self {
            Self::Process(token) | Self::Client(token) => token.as_ref(),
        }
    }

    /// Returns `true` if it is the process that started this one.
    pub(super) fn is_process(&self) -> bool {
        matches!(self, Self::Process(_))
    }
}

impl ToolPrincipals {
    /// Checks that a caller may use a route.
    ///
    /// # Errors
    /// The refusal, which says nothing else.
    pub(super) fn admit(
        &self,
        caller: &CallerAccess,
        route: ToolRoute,
    ) -> Result<Admission, ProblemDetails> {
        let principals = match (self, caller) {
            (Self::Known(principals), _) => Arc::clone(principals),
            // It may read the file itself; opening an engine says what is wrong with it.
            (Self::Unusable, CallerAccess::Process(None)) => {
                return Ok(Admission { may_operate: true });
            }
            (Self::Unusable, _) => return Err(access::unauthorized()),
        };
        let access = Access {
            principals: principals.into(),
            within: caller.is_process(),
            ..Access::default()
        };
        let mut headers = HeaderMap::new();
        if let Some(token) = caller.token() {
            headers.insert(TOKEN_HEADER, token.clone());
        }
        let known = access.caller(policy_of(route)?, &headers, None)?;
        let may_operate = known.is_some_and(|caller: Caller| caller.may_operate);
        Ok(Admission { may_operate })
    }
}

/// Asks the process that owns the ledger whether it knows a caller, and what the caller may do.
///
/// # Errors
/// The refusal, or that the owner does not answer.
pub(super) async fn admit_by_owner(
    url: &str,
    caller: &CallerAccess,
    route: ToolRoute,
) -> Result<Admission, AnswerError> {
    let home = get(&remote(url, caller)?, "/").await;
    let home = home.map_err(|error| {
        error.log("/");
        AnswerError::new("the engine that owns the ledger does not answer")
            .hint("try again in a moment")
    })?;
    let authentication = &home["authentication"];
    if authentication["required"] == false {
        return Ok(Admission { may_operate: true });
    }
    if authentication["principal"].is_null() {
        return Err(access::unauthorized().into());
    }
    let routes = home["routes"].as_array().map(Vec::as_slice);
    let has = |(method, path): ToolRoute| {
        let mut routes = routes.unwrap_or_default().iter();
        routes.any(|route| route["method"] == method && route["path"] == path)
    };
    if has(route) {
        let may_operate = has(OPERATE);
        return Ok(Admission { may_operate });
    }
    // Such an owner names no route that writes.
    if home["ledger"] == "read_only" && has(ANY_TOOL) {
        return Err(AnswerError::new(
            "the owner of the ledger serves it read-only",
        ));
    }
    Err(access::forbidden(policy_of(route)?).into())
}

/// A connection to the owner of the ledger for a caller.
///
/// # Errors
/// The certificates that it would be checked by cannot be used.
pub(super) fn remote(url: &str, caller: &CallerAccess) -> Result<Peer, AnswerError> {
    let token = caller.token().and_then(|token| token.to_str().ok());
    Ok(remote_as(url, token.map(str::to_owned))?)
}

fn policy_of((method, path): ToolRoute) -> Result<policy::AccessPolicy, ProblemDetails> {
    let method = Method::from_bytes(method.as_bytes()).unwrap_or_default();
    policy::of(&method, path).ok_or_else(|| ErrorCode::Forbidden.into())
}

impl From<ProblemDetails> for AnswerError {
    fn from(refused: ProblemDetails) -> Self {
        let document: Value = refused.to_json();
        problem(refused.code.status(), &document).into()
    }
}
