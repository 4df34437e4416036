//! Refuses requests that a web page made a browser send without the user's intent.
//!
//! Every page open in a browser can reach a service on loopback. A page can send a request without
//! being allowed to read the response, which is enough to start a run; a page whose name resolves
//! to 127.0.0.1 can even read it. Browsers mark such requests: the first by `Origin` and
//! `Sec-Fetch-Site`, the second by `Host`. Other programs send the address they were given, and
//! calls within the process send nothing.
//!
//! With principals, requests need a token, which a browser does not add by itself. The service may
//! then have any name: that of the machine, or of a TLS proxy. Pages of other sites are refused all
//! the same.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, header};

use crate::ProblemDetails;
use ktsu_codes::ErrorCode;

/// The host names that requests may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllowedHosts {
    /// Those of this machine's loopback addresses.
    Loopback,
    /// Any, because requests need a token.
    Any,
}

/// Lets a request pass that names this service, and does not come from a page of another site.
///
/// # Errors
/// [`ErrorCode::ForeignOrigin`].
pub async fn check_origin(
    names: AllowedHosts,
    request: Request,
) -> Result<Request, ProblemDetails> {
    match names {
        AllowedHosts::Loopback => check_loopback(request),
        AllowedHosts::Any => check_same_site(request),
    }
}

fn check_same_site(request: Request) -> Result<Request, ProblemDetails> {
    let headers = request.headers();
    let asked = headers.get(&header::HOST).map(|host| host.as_bytes());
    let own = |origin: &str| {
        let named = origin.split_once("://").map(|(_, host)| host.as_bytes());
        named.is_some_and(|named| asked.is_some_and(|asked| asked.eq_ignore_ascii_case(named)))
    };
    let site = HeaderName::from_static("sec-fetch-site");
    if all(headers, &header::ORIGIN, own) && all(headers, &site, |site| site != "cross-site") {
        return Ok(request);
    }
    let words = "the request comes from a page of another site";
    Err(ProblemDetails::new(ErrorCode::ForeignOrigin, words)
        .with_hint("send it from a page of this service, or from a program"))
}

fn check_loopback(request: Request) -> Result<Request, ProblemDetails> {
    let refused = |words: &str| {
        Err(ProblemDetails::new(ErrorCode::ForeignOrigin, words)
            .with_hint("use http://127.0.0.1:PORT or http://localhost:PORT"))
    };
    let named = request.uri().host();
    if !named.is_none_or(is_loopback_host)
        || !all(request.headers(), &header::HOST, is_loopback_authority)
    {
        return refused("the host of the request is not this machine");
    }
    if !all(request.headers(), &header::ORIGIN, is_loopback_origin) {
        return refused("the request comes from a page of another site");
    }
    let site = HeaderName::from_static("sec-fetch-site");
    if !all(request.headers(), &site, |site| site != "cross-site") {
        return refused("the request comes from another site");
    }
    Ok(request)
}

/// Returns `true` if every value of a header passes; one that is no text does not.
fn all(headers: &HeaderMap, name: &HeaderName, passes: impl Fn(&str) -> bool) -> bool {
    let mut values = headers.get_all(name).iter();
    values.all(|value| value.to_str().is_ok_and(&passes))
}

/// `scheme://host:port`; opaque origins are `null`.
fn is_loopback_origin(origin: &str) -> bool {
    origin
        .split_once("://")
        .is_some_and(|(_, authority)| is_loopback_authority(authority))
}

/// `host` or `host:port`.
fn is_loopback_authority(authority: &str) -> bool {
    let after = authority.rfind(']').unwrap_or_default();
    match authority[after..].rfind(':') {
        None => is_loopback_host(authority),
        Some(colon) => {
            let (host, port) = authority.split_at(after + colon);
            port[1..].bytes().all(|byte| byte.is_ascii_digit()) && is_loopback_host(host)
        }
    }
}

fn is_loopback_host(host: &str) -> bool {
    let six = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    match six {
        Some(six) => six.parse() == Ok(Ipv6Addr::LOCALHOST),
        None => {
            let four = host.parse::<Ipv4Addr>();
            host.eq_ignore_ascii_case("localhost") || four.is_ok_and(|four| four.is_loopback())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    async fn code(uri: &str, headers: &[(&str, &str)]) -> Option<ErrorCode> {
        code_at(AllowedHosts::Loopback, uri, headers).await
    }

    async fn code_at(
        names: AllowedHosts,
        uri: &str,
        headers: &[(&str, &str)],
    ) -> Option<ErrorCode> {
        let mut request = Request::post(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let judged = check_origin(names, request.body(Body::empty()).unwrap()).await;
        judged.err().map(|problem| problem.code)
    }

    #[tokio::test]
    async fn this_machine_may_ask_under_any_of_its_names() {
        assert_eq!(code("/", &[]).await, None, "within the process");
        for host in [
            "127.0.0.1",
            "127.0.0.1:5050",
            "127.8.9.10:1",
            "[::1]",
            "[::1]:5050",
            "localhost",
            "LocalHost:5050",
        ] {
            let origin = format!("http://{host}");
            let headers = [("host", host), ("origin", &origin)];
            assert_eq!(code("/", &headers).await, None, "{host}");
            assert_eq!(code(&format!("{origin}/"), &[]).await, None, "{host}");
        }
        for site in ["same-origin", "same-site", "none"] {
            assert_eq!(code("/", &[("sec-fetch-site", site)]).await, None);
        }
    }

    #[tokio::test]
    async fn where_a_token_is_asked_for_the_service_may_have_any_name() {
        let any = async |headers: &[(&str, &str)]| code_at(AllowedHosts::Any, "/", headers).await;
        let host = ("host", "ktsu.example:5050");
        assert_eq!(any(&[host]).await, None);
        assert_eq!(
            any(&[host, ("origin", "https://ktsu.example:5050")]).await,
            None
        );
        let foreign = Some(ErrorCode::ForeignOrigin);
        assert_eq!(
            any(&[host, ("origin", "https://evil.example")]).await,
            foreign
        );
        assert_eq!(any(&[host, ("origin", "null")]).await, foreign);
        assert_eq!(any(&[("origin", "https://ktsu.example")]).await, foreign);
        assert_eq!(
            any(&[host, ("sec-fetch-site", "cross-site")]).await,
            foreign
        );
    }

    #[tokio::test]
    async fn other_sites_may_not() {
        let foreign = Some(ErrorCode::ForeignOrigin);
        for host in [
            "",
            "evil.example",
            "evil.example:5050",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "evil.example:127.0.0.1",
            "user@localhost",
            "0.0.0.0:5050",
            "192.168.1.4",
            "[::]",
            "[::1]x:5050",
            "[::ffff:127.0.0.1]",
            "::1",
            "2130706433",
        ] {
            assert_eq!(code("/", &[("host", host)]).await, foreign, "{host}");
            let headers = [
                ("host", "localhost"),
                ("origin", &format!("https://{host}")),
            ];
            assert_eq!(code("/", &headers).await, foreign, "{host}");
        }
        let twice = [("host", "localhost"), ("host", "evil.example")];
        assert_eq!(code("/", &twice).await, foreign);
        assert_eq!(code("http://evil.example/", &twice[..1]).await, foreign);
        assert_eq!(code("/", &[("origin", "null")]).await, foreign);
        let crossing = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        assert_eq!(code("/", &crossing).await, foreign);
    }
}
