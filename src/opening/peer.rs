//! Connections to engines, and what an engine answers, in words.

use axum::Router;
use axum::extract::Request;
use axum::http::HeaderValue;
use axum::middleware::map_request;
use serde_json::Value;

use crate::Failure;
use crate::environment::process_environment;
use ktsu_assemble::{Engine, connections};
use ktsu_contract::TOKEN_HEADER;
use ktsu_peer::Peer;
use ktsu_schema::message_at;

/// The client's token from `KTSU_TOKEN`. A value that cannot be sent is an error: without it a
/// command would act as another principal.
pub fn client_token() -> Result<Option<String>, Failure> {
    let Some(given) = std::env::var_os("KTSU_TOKEN").filter(|token| !token.is_empty()) else {
        return Ok(None);
    };
    let token = given.into_string().ok();
    match token.filter(|token| HeaderValue::from_str(token).is_ok()) {
        Some(token) => Ok(Some(token)),
        None => Err(header_failure()),
    }
}

/// A connection to an engine at a URL, as the principal of the client's token.
pub fn remote(url: &str) -> Result<Peer, Failure> {
    remote_as(url, client_token()?)
}

/// As [`remote`], as the principal of this token.
pub fn remote_as(url: &str, token: Option<String>) -> Result<Peer, Failure> {
    let url = url.trim_end_matches('/');
    let connections = connections(&process_environment(), url);
    let connections = connections.map_err(|error| Failure::could_not_run(error.to_string()))?;
    Ok(Peer::with_pool(connections, url, token))
}

/// As [`client_token`], as a header carries it.
pub fn token_header() -> Result<Option<HeaderValue>, Failure> {
    let token = client_token()?.map(HeaderValue::try_from);
    token.transpose().map_err(|_| header_failure())
}

fn header_failure() -> Failure {
    let words = "KTSU_TOKEN is not a token: it has a line break, a control character or bytes that are not UTF-8";
    Failure::could_not_run(words).hint("export KTSU_TOKEN=\"$(cat FILE)\", or unset KTSU_TOKEN")
}

/// A connection to the engine in this process, which needs no token. If a token is given, it is
/// sent all the same, to act as its principal.
pub fn peer_of(engine: &Engine, token: Option<HeaderValue>) -> Peer {
    peer_within(&engine.router, token)
}

/// As [`peer_of`], to the routes of an engine in this process.
pub fn peer_within(router: &Router, token: Option<HeaderValue>) -> Peer {
    let Some(token) = token else {
        return Peer::Local(router.clone());
    };
    let showing = move |mut request: Request| {
        let token = token.clone();
        request.headers_mut().insert(TOKEN_HEADER, token);
        std::future::ready(request)
    };
    Peer::Local(router.clone().layer(map_request(showing)))
}

/// A problem document, in words.
pub fn problem(status: u16, body: &Value) -> Failure {
    let mut words = match body["message"].as_str() {
        Some(message) => sentence_to_fragment(message),
        None => format!("the response has status {status}"),
    };
    let errors = body["errors"].as_array().map(Vec::as_slice);
    // A single error is already the message.
    for error in errors.filter(|some| some.len() > 1).unwrap_or_default() {
        let text = |name: &str| error[name].as_str().unwrap_or_default();
        words.push_str(&format!(
            "\n  {}",
            message_at(text("message"), text("path"))
        ));
    }
    let code = body["code"].as_str().and_then(|code| code.parse().ok());
    let failure = Failure::could_not_run(words).with_problem(code);
    match body["hint"].as_str() {
        // The name that the command line has for it.
        Some(hint) => failure.hint(hint.replace("If-Match: ", "--expect ")),
        None => failure,
    }
}

/// Titles of problems begin as sentences do; behind `error:` they go on.
fn sentence_to_fragment(words: &str) -> String {
    let mut characters = words.chars();
    match characters.next() {
        Some(first) if words.chars().nth(1).is_some_and(char::is_lowercase) => {
            first.to_lowercase().chain(characters).collect()
        }
        Some(_) | None => words.to_owned(),
    }
}
