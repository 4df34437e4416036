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
use axum::http::{HeaderMap, HeaderName, Method, header};

use crate::ProblemDetails;
use ktsu_codes::ErrorCode;

/// The paths of pages for people begin with it. A link of another site may lead to them.
pub const PAGES: &str = "/inspector/";

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
    if all(headers, &header::ORIGIN, own) && (is_of_site(headers) || follows_link(&request)) {
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
    if !is_of_site(request.headers()) && !follows_link(&request) {
        return refused("the request comes from another site");
    }
    Ok(request)
}

/// Returns `true` unless a browser says that a page of another site sends it.
fn is_of_site(headers: &HeaderMap) -> bool {
    let site = HeaderName::from_static("sec-fetch-site");
    all(headers, &site, |site| site != "cross-site")
}

/// Returns `true` if a browser shows a page in a tab of its own: what is there is read by its user alone.
fn follows_link(request: &Request) -> bool {
    let is = |name: &'static str, value: &str| {
        let found = request.headers().get(name);
        found.is_some_and(|found| found.as_bytes() == value.as_bytes())
    };
    request.method() == Method::GET
        && request.uri().path().starts_with(PAGES)
        && is("sec-fetch-mode", "navigate")
        && is("sec-fetch-dest", "document")
}

/// Checks that a form was sent by a page of this service.
///
/// # Errors
/// [`ErrorCode::ForeignOrigin`]. A form of a page of another port of the same machine is refused, too.
pub fn check_form_origin(headers: &HeaderMap) -> Result<(), ProblemDetails> {
    let only = |name: HeaderName| {
        let mut values = headers.get_all(name).iter();
        let value = values.next().and_then(|value| value.to_str().ok());
        value.filter(|value| !value.is_empty() && values.next().is_none())
    };
    let origin = only(header::ORIGIN);
    let named = origin.and_then(|origin| {
        let (scheme, host) = origin.split_once("://")?;
        matches!(scheme, "http" | "https").then_some(host)
    });
    if named.is_some() && named == only(header::HOST) {
        return Ok(());
    }
    let words = "the form does not come from a page of this service";
    Err(ProblemDetails::new(ErrorCode::ForeignOrigin, words)
        .with_hint("a proxy in front has to pass on the header Host as the browser sends it"))
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
    async fn a_link_of_another_site_leads_to_a_page_and_nothing_else_comes_from_there() {
        let link = [
            ("host", "localhost:5050"),
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let judged = async |method: &str, path: &str, change: Option<(&str, &str)>| {
            let mut codes = Vec::new();
            for names in [AllowedHosts::Loopback, AllowedHosts::Any] {
                let mut request = Request::builder().method(method).uri(path);
                for (name, value) in link {
                    let changed = change.filter(|(changed, _)| *changed == name);
                    request = request.header(name, changed.map_or(value, |(_, value)| value));
                }
                let judged = check_origin(names, request.body(Body::empty()).unwrap()).await;
                codes.push(judged.err().map(|problem| problem.code));
            }
            codes
        };
        let foreign = Some(ErrorCode::ForeignOrigin);
        assert_eq!(judged("GET", "/inspector/runs", None).await, [None, None]);
        for (method, path, change) in [
            ("POST", "/inspector/do/runs/r/cancel", None),
            ("GET", "/runs", None),
            ("GET", "/inspector/runs", Some(("sec-fetch-dest", "iframe"))),
            (
                "GET",
                "/inspector/runs",
                Some(("sec-fetch-mode", "no-cors")),
            ),
        ] {
            let codes = judged(method, path, change).await;
            assert_eq!(codes, [foreign, foreign], "{method} {path} {change:?}");
        }
        let rebound = judged("GET", "/inspector/runs", Some(("host", "evil.example"))).await;
        assert_eq!(rebound, [foreign, None], "by name, not by link");
    }

    #[test]
    fn a_form_has_to_come_from_a_page_of_this_very_port() {
        let of = |headers: &[(&'static str, &'static str)]| {
            let headers = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
            check_form_origin(&headers.collect()).is_ok()
        };
        let host = ("host", "localhost:5050");
        assert!(of(&[host, ("origin", "http://localhost:5050")]));
        assert!(!of(&[host]));
        for origin in [
            "http://localhost:3000",
            "null",
            "",
            "http://",
            "http://evil.example",
        ] {
            assert!(!of(&[host, ("origin", origin)]), "{origin}");
        }
        assert!(!of(&[("origin", "http://localhost:5050")]));
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
