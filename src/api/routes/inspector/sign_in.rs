//! `/inspector/sign-in` and `/inspector/sign-out`: a browser shows a token once, and its cookie from then on.

use std::time::Instant;

use axum::Extension;
use axum::extract::Request;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use ktsu_inspector::{PagePlace, SignInPage};

use super::super::form_fields::{TypedFields, is_inside, read, see_other};
use super::super::parameter::{Parameter, ParameterKind};
use super::super::query::{NoParameters, Query, QueryParameters, RawQuery};
use super::shown::answer;
use crate::access::Access;
use ktsu_codes::ErrorCode;
use ktsu_server::ProblemDetails;
use ktsu_server::body;
use ktsu_server::origin::check_form_origin;

/// The page of signing in.
const PLACE: &str = "/inspector/sign-in";
/// The page that is shown after it, if no other one was asked for.
const FIRST: &str = "runs";
/// The most bytes of its form.
const MAX_FORM: usize = 16 * 1024;

/// Where to continue.
#[derive(Debug)]
pub(in crate::routes) struct SignInQuery(String);

impl QueryParameters for SignInQuery {
    const PARAMETERS: &'static [Parameter] = &[Parameter::new(
        "to",
        ParameterKind::Text,
        "The page to continue with, below `/inspector/`.",
    )];

    fn read(given: &RawQuery) -> Result<Self, ProblemDetails> {
        Ok(Self(page_after(given.text("to"))))
    }
}

fn page_after(given: Option<&str>) -> String {
    let inside = given.filter(|to| is_inside(to));
    inside.unwrap_or(FIRST).to_owned()
}

/// The page on which a principal signs in.
#[utoipa::path(get, path = "/inspector/sign-in", params(Query::<SignInQuery>), responses(
    (status = 200, body = String, content_type = "text/html"),
    (status = 303, description = "No principals are configured, so there is nothing to sign in to"),
))]
pub(in crate::routes) async fn page(
    Extension(access): Extension<Access>,
    Query(SignInQuery(to)): Query<SignInQuery>,
) -> Response {
    let place = PagePlace::of(PLACE);
    match access.principals.get().is_empty() {
        true => see_other(place, &to),
        false => answer(ktsu_inspector::sign_in_page(&SignInPage {
            place,
            to,
            is_refused: false,
        })),
    }
}

/// Begins a session of a browser, with the token of a principal.
#[utoipa::path(post, path = "/inspector/sign-in",
    request_body(content = String, content_type = "application/x-www-form-urlencoded",
        description = "`token`, and `to`: the page to continue with"),
    responses(
        (status = 303, description = "Signed in: `Set-Cookie` has the session"),
        (status = 401, body = String, content_type = "text/html", description = "No principal has this token"),
    ))]
pub(in crate::routes) async fn begin(
    Extension(access): Extension<Access>,
    _: Query<NoParameters>,
    request: Request,
) -> Result<Response, ProblemDetails> {
    check_form_origin(request.headers())?;
    let (asking, body) = request.into_parts();
    let form = body::read_at_most(body, MAX_FORM).await?;
    let fields = read(&TypedFields::of(&form))?;
    let text = |name: &str| fields.get(name).and_then(|value| value.as_str());
    let (place, to) = (PagePlace::of(PLACE), page_after(text("to")));
    let principals = access.principals.get();
    if principals.is_empty() {
        return Ok(see_other(place, &to));
    }
    let token = text("token").unwrap_or_default().trim();
    let Some(known) = principals.authenticate(token.as_bytes()) else {
        let mut refused = answer(ktsu_inspector::sign_in_page(&SignInPage {
            place,
            to,
            is_refused: true,
        }));
        *refused.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(refused);
    };
    let begun = access
        .sessions
        .begin(known, &asking.headers, Instant::now());
    let cookie = begun.map_err(|why| ProblemDetails::new(ErrorCode::Internal, why))?;
    let mut response = see_other(place, &to);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// Ends the session of a browser.
#[utoipa::path(post, path = "/inspector/sign-out", responses(
    (status = 303, description = "Signed out, or there was no session"),
))]
pub(in crate::routes) async fn end(
    Extension(access): Extension<Access>,
    _: Query<NoParameters>,
    headers: HeaderMap,
) -> Result<Response, ProblemDetails> {
    check_form_origin(&headers)?;
    let mut response = see_other(PagePlace::of(PLACE), "sign-in");
    let cookie = access.sessions.end(&headers);
    response.headers_mut().insert(header::SET_COOKIE, cookie);
    Ok(response)
}

/// The form in place of a page that asks for a principal.
pub(super) fn asked(place: PagePlace, to: String, asks: Option<&HeaderValue>) -> Response {
    let page = ktsu_inspector::sign_in_page(&SignInPage {
        place,
        to: page_after(Some(&to)),
        is_refused: false,
    });
    let mut shown = answer(page);
    *shown.status_mut() = StatusCode::UNAUTHORIZED;
    if let Some(asks) = asks {
        shown
            .headers_mut()
            .insert(header::WWW_AUTHENTICATE, asks.clone());
    }
    shown
}
