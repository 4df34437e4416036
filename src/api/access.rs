//! Authentication and authorization (decision H5).
//!
//! ```text
//! request ─▶ the route's policy ─▶ whose token? 401 ─▶ which roles? 403 ─▶ handler, given the caller
//! ```
//!
//! Nothing here knows what a route does; the policies are listed next to the routes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use axum::body::Body;
use axum::extract::{FromRequestParts, MatchedPath, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, header};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use ktsu_ledger::event::Principal;
use parking_lot::RwLock;

use super::judges::JudgeModels;
use super::kit_checks::KitChecks;
use super::routes::policy::{self, AccessPolicy, SIGNING};
use super::sessions::BrowserSessions;
use super::streams::StreamLimits;
use ktsu_codes::ErrorCode;
use ktsu_contract::TOKEN_HEADER;
use ktsu_environment::Principals;
use ktsu_environment::authentication::{ResolvedPrincipal, TOKEN_AUTHENTICATION};
use ktsu_environment::principals::{LOCAL, PrincipalRole};
use ktsu_orchestrator::References;
use ktsu_server::ProblemDetails;
use ktsu_server::body::BodyLimit;
use ktsu_server::origin::PAGES;

/// The word in frames for a caller that showed no token.
const UNAUTHENTICATED: &str = "none";

/// The work that the answer to a trace may take unless the environment says otherwise: some two
/// seconds of one processor.
const MAX_TRACE_WORK: u64 = 2_000_000;

/// The place in the settings where roles are set.
const ROLES_HINT: &str = "roles are set under principals in the environment file";

/// The principals that count now. Clones share them, so that all routers change at once.
#[derive(Debug, Clone, Default)]
pub struct PrincipalsInForce(Arc<RwLock<Arc<Principals>>>);

impl From<Arc<Principals>> for PrincipalsInForce {
    fn from(principals: Arc<Principals>) -> Self {
        Self(Arc::new(RwLock::new(principals)))
    }
}

impl PrincipalsInForce {
    /// The principals of this moment.
    pub fn get(&self) -> Arc<Principals> {
        Arc::clone(&self.0.read())
    }

    /// Only these count from now on.
    pub fn replace(&self, principals: Principals) {
        *self.0.write() = Arc::new(principals);
    }
}

/// The settings by which a router authenticates requests.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// All principals with tokens.
    pub principals: PrincipalsInForce,
    /// True if requests come from within this process; without a token they are from the local
    /// caller.
    pub within: bool,
    /// The most bytes of a body, if fewer than usual.
    pub body_bytes: Option<usize>,
    /// The most work of an answer to a trace, if not as much as usual.
    pub trace_work: Option<u64>,
    /// The limits on open streams of events.
    pub streams: StreamLimits,
    /// The models that checks may ask.
    pub models: JudgeModels,
    /// The checks of the files of the kit, where those are watched.
    pub kit_checks: KitChecks,
    /// The sessions of browsers.
    pub sessions: BrowserSessions,
}

/// The caller of a request; an axum extractor. Fails if the policy of the route provides no caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// As frames record it.
    pub principal: Principal,
    /// True if nothing of what others own is closed to it.
    pub is_admin: bool,
    /// True if it may steer what others started.
    pub may_operate: bool,
    /// True if a session of a browser shows who it is.
    pub by_session: bool,
    roles: BTreeSet<PrincipalRole>,
}

impl Caller {
    /// The local caller: no token is needed on this machine.
    fn local() -> Self {
        Self {
            principal: Principal {
                auth: UNAUTHENTICATED.to_owned(),
                id: LOCAL.to_owned(),
            },
            is_admin: true,
            may_operate: true,
            by_session: false,
            roles: BTreeSet::from([PrincipalRole::Admin]),
        }
    }

    /// Its roles, by the words of the environment file.
    pub fn roles(&self) -> impl Iterator<Item = &'static str> {
        self.roles.iter().map(|role| role.as_str())
    }

    /// Returns `true` if it has a role, by the word of the environment file.
    pub fn has_role(&self, word: &str) -> bool {
        self.roles.iter().any(|role| role.as_str() == word)
    }

    /// Lets a caller through who has one of these roles, which what waits for people names, or is an
    /// admin.
    pub(crate) fn must_have_one_of(
        &self,
        roles: &[String],
        asks: &str,
    ) -> Result<(), ProblemDetails> {
        if self.is_admin || roles.iter().any(|role| self.has_role(role)) {
            return Ok(());
        }
        let words = format!("{asks} the role {}", roles.join(" or "));
        Err(ProblemDetails::new(ErrorCode::Forbidden, words).with_hint(ROLES_HINT))
    }

    /// Returns `true` if it may call a route of this policy.
    pub fn may(&self, policy: AccessPolicy) -> bool {
        match policy {
            AccessPolicy::Public | AccessPolicy::Optional => true,
            AccessPolicy::Attempt => false,
            AccessPolicy::Roles(roles) => roles.iter().any(|role| self.roles.contains(role)),
        }
    }

    /// Returns `true` if it showed a token.
    pub fn is_by_token(&self) -> bool {
        self.principal.auth == TOKEN_AUTHENTICATION
    }

    fn of(known: &ResolvedPrincipal) -> Self {
        Self {
            principal: Principal {
                auth: TOKEN_AUTHENTICATION.to_owned(),
                id: known.name.clone(),
            },
            is_admin: known.roles.contains(&PrincipalRole::Admin),
            may_operate: [PrincipalRole::Operator, PrincipalRole::Admin]
                .iter()
                .any(|role| known.roles.contains(role)),
            by_session: false,
            roles: known.roles.clone(),
        }
    }
}

impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = ProblemDetails;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ProblemDetails> {
        let caller = parts.extensions.get::<Self>().cloned();
        caller.ok_or_else(|| ErrorCode::Unauthorized.into())
    }
}

/// The principal that a request within the process is recorded of, in place of the local caller: an
/// answer from a file. No request of another process has it.
#[derive(Debug, Clone)]
pub struct ScriptedCaller(pub String);

/// The settings of a run that only a request within the process can give.
#[derive(Debug, Clone, Default)]
pub struct LocalInvocation {
    /// Model groups that the run uses in place of others.
    pub groups: BTreeMap<String, String>,
    /// The values behind names of the run.
    pub references: Option<Arc<References>>,
}

/// A request that a form of a page makes: cookies count for it. No request of another process has it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FromForm;

/// The most work that the answer to a trace may take, in units of about a microsecond.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TraceWork(pub(crate) u64);

impl<S: Send + Sync> FromRequestParts<S> for TraceWork {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Self::Rejection> {
        let limit = parts.extensions.get::<Self>().copied();
        Ok(limit.unwrap_or(Self(MAX_TRACE_WORK)))
    }
}

/// Lets a request through to its route if the caller may use it.
pub async fn authorize(access: Access, mut request: Request<Body>, next: Next) -> Response {
    let path = request.extensions().get::<MatchedPath>();
    let path = path.map_or("", MatchedPath::as_str);
    let Some(policy) = policy::of(request.method(), path) else {
        return not_allowed(path);
    };
    let counts_cookies =
        path.starts_with(PAGES) || request.extensions().get::<FromForm>().is_some();
    let is_signing = path.starts_with(SIGNING);
    let cookies = counts_cookies.then_some(&access.sessions);
    match access.caller(policy, request.headers(), cookies) {
        Ok(Some(mut caller)) => {
            if let Some(ScriptedCaller(id)) = request.extensions_mut().remove() {
                caller.principal = Principal {
                    auth: UNAUTHENTICATED.to_owned(),
                    id,
                };
            }
            request.extensions_mut().insert(caller);
        }
        Ok(None) => {}
        Err(problem) => return problem.into_response(),
    }
    if is_signing {
        request.extensions_mut().insert(access.clone());
    }
    request.extensions_mut().insert(access.streams);
    if let Some(limit) = access.body_bytes {
        request.extensions_mut().insert(BodyLimit(limit));
    }
    if let Some(limit) = access.trace_work {
        request.extensions_mut().insert(TraceWork(limit));
    }
    next.run(request).await
}

/// A method that the route does not have, or a route without a policy.
fn not_allowed(path: &str) -> Response {
    let mut response = ProblemDetails::from(ErrorCode::MethodNotAllowed).into_response();
    if let Ok(methods) = HeaderValue::try_from(policy::methods(path)) {
        response.headers_mut().insert(header::ALLOW, methods);
    }
    response
}

impl Access {
    /// The caller, if the route needs one; `cookies` where those count.
    ///
    /// # Errors
    /// The caller is unknown, or has none of the roles.
    pub fn caller(
        &self,
        policy: AccessPolicy,
        headers: &HeaderMap,
        cookies: Option<&BrowserSessions>,
    ) -> Result<Option<Caller>, ProblemDetails> {
        let roles = match policy {
            AccessPolicy::Public | AccessPolicy::Attempt => return Ok(None),
            AccessPolicy::Optional => return Ok(self.optional_caller(headers)),
            AccessPolicy::Roles(roles) => roles,
        };
        let principals = self.principals.get();
        if principals.is_empty() {
            return Ok(Some(Caller::local()));
        }
        let by_cookie = || cookies?.principal(headers, &principals, Instant::now());
        // A proxy in front may ask browsers for something of its own.
        let token = match cookies {
            Some(_) if shows_other_scheme(headers) => None,
            Some(_) | None => token(headers)?,
        };
        let known = match token {
            Some(token) => principals.authenticate(token),
            None if self.within => return Ok(Some(Caller::local())),
            None => by_cookie(),
        };
        let known = known.ok_or_else(unauthorized)?;
        if roles.iter().any(|role| known.roles.contains(role)) {
            return Ok(Some(Caller {
                by_session: token.is_none(),
                ..Caller::of(known)
            }));
        }
        Err(forbidden(policy))
    }
}

impl Access {
    /// The caller, if a valid token is given.
    fn optional_caller(&self, headers: &HeaderMap) -> Option<Caller> {
        let principals = self.principals.get();
        if principals.is_empty() {
            return Some(Caller::local());
        }
        match token(headers).ok()? {
            Some(token) => principals.authenticate(token).map(Caller::of),
            None => self.within.then(Caller::local),
        }
    }
}

/// The response to a caller that has none of a policy's roles.
pub fn forbidden(policy: AccessPolicy) -> ProblemDetails {
    let needed: Vec<_> = match policy {
        AccessPolicy::Roles(roles) => roles.iter().map(|role| role.as_str()).collect(),
        AccessPolicy::Public | AccessPolicy::Optional | AccessPolicy::Attempt => Vec::new(),
    };
    let words = match needed.as_slice() {
        [] => ErrorCode::Forbidden.title().to_owned(),
        [one] => format!("this needs the role {one}"),
        some => format!("this needs one of the roles {}", some.join(", ")),
    };
    ProblemDetails::new(ErrorCode::Forbidden, words).with_hint(ROLES_HINT)
}

/// The same response for a missing and a wrong token, so that guessing reveals nothing.
pub fn unauthorized() -> ProblemDetails {
    ProblemDetails::from(ErrorCode::Unauthorized)
        .with_hint("Authorization: Bearer TOKEN; ktsu commands send KTSU_TOKEN")
}

/// The token a request shows. `Ktsu-Token` goes before `Authorization`, which may be meant for the
/// workflow.
///
/// # Errors
/// It is not shown once, or in no way that is known.
pub fn token(headers: &HeaderMap) -> Result<Option<&[u8]>, ProblemDetails> {
    if let Some(token) = single(headers, &TOKEN_HEADER)? {
        return match token.is_empty() {
            true => Err(unauthorized()),
            false => Ok(Some(token)),
        };
    }
    let Some(value) = single(headers, &header::AUTHORIZATION)? else {
        return Ok(None);
    };
    let split = value.iter().position(|byte| *byte == b' ');
    let (scheme, rest) = value.split_at(split.ok_or_else(unauthorized)?);
    let token = rest.trim_ascii();
    if !scheme.eq_ignore_ascii_case(b"bearer") || token.is_empty() {
        return Err(unauthorized());
    }
    Ok(Some(token))
}

/// Returns `true` if what a request shows is no token of a principal, by its scheme.
fn shows_other_scheme(headers: &HeaderMap) -> bool {
    let mut shown = headers.get_all(header::AUTHORIZATION).iter();
    let scheme = |value: &HeaderValue| {
        let scheme = value.as_bytes().split(|byte| *byte == b' ').next();
        scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer"))
    };
    !headers.contains_key(&TOKEN_HEADER) && !shown.any(scheme)
}

/// The one value of a header; several would leave open which one counts.
fn single<'a>(
    headers: &'a HeaderMap,
    name: &HeaderName,
) -> Result<Option<&'a [u8]>, ProblemDetails> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| value.as_bytes());
    match values.next() {
        None => Ok(first),
        Some(_) => Err(unauthorized()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::middleware::from_fn;
    use axum::routing::get;
    use tower::ServiceExt as _;

    /// Deny by default: a route nobody thought of is shut, whoever asks.
    #[tokio::test]
    async fn a_route_without_a_policy_is_not_served() {
        let access = Access::default();
        let router = Router::new()
            .route("/secrets", get(async || "all of them"))
            .route("/health", get(async || "fine").post(async || "done"))
            .layer(from_fn(move |request, next| {
                authorize(access.clone(), request, next)
            }));
        for (method, path, expected) in [
            ("GET", "/health", 200),
            ("HEAD", "/health", 200),
            ("POST", "/health", 405),
            ("GET", "/secrets", 405),
        ] {
            let request = Request::builder().method(method).uri(path);
            let request = request.body(Body::empty()).unwrap();
            let answer = router.clone().oneshot(request).await.unwrap();
            assert_eq!(answer.status().as_u16(), expected, "{method} {path}");
        }
    }

    #[test]
    fn a_token_is_shown_once_and_in_one_way() {
        let read = |given: &[(&'static str, &'static str)]| {
            let mut headers = HeaderMap::new();
            for (name, value) in given {
                headers.append(*name, value.parse().unwrap());
            }
            let token = token(&headers);
            token.map(|token| token.map(|token| String::from_utf8_lossy(token).into_owned()))
        };
        let shown = |given: &[_]| read(given).ok();
        let is = |token: &str| Some(Some(token.to_owned()));
        assert_eq!(shown(&[]), Some(None));
        assert_eq!(shown(&[("authorization", "Bearer abc")]), is("abc"));
        assert_eq!(shown(&[("authorization", "bearer  abc ")]), is("abc"));
        assert_eq!(shown(&[("ktsu-token", "abc")]), is("abc"));
        let both = [
            ("ktsu-token", "abc"),
            ("authorization", "what the workflow asks for"),
        ];
        assert_eq!(shown(&both), is("abc"));
        for malformed in [
            &[("authorization", "")][..],
            &[("authorization", "abc")],
            &[("authorization", "Bearer")],
            &[("authorization", "Bearer ")],
            &[("authorization", "Basic abc")],
            &[
                ("authorization", "Bearer abc"),
                ("authorization", "Bearer abc"),
            ],
            &[("ktsu-token", "")],
            &[("ktsu-token", "abc"), ("ktsu-token", "abc")],
            &[("ktsu-token", ""), ("authorization", "Bearer abc")],
        ] {
            assert_eq!(shown(malformed), None, "{malformed:?}");
        }
    }
}
