//! The addresses at which services listen, and the rules for what they may call.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::{OpenEngineError, other};
use ktsu_egress::EgressPolicy;
use ktsu_environment::Environment;
use ktsu_server::{self as server, Listener, ServerLimits};
use ktsu_tls::Certificates;

/// Listens at an address; beyond loopback only where callers must show tokens.
///
/// # Errors
/// [`OpenEngineError::Bind`].
pub(super) async fn listen(
    address: SocketAddr,
    asks_tokens: bool,
    certificates: Option<&Certificates>,
) -> Result<Listener, OpenEngineError> {
    let socket = match asks_tokens {
        true => server::bind(address).await?,
        false => server::bind_loopback(address).await?,
    };
    let certificates = certificates.filter(|own| own.server().is_some());
    Ok(Listener {
        socket,
        certificates: certificates.cloned(),
    })
}

/// The URL by which a listener is reached from this machine.
pub(super) fn url_of(listener: &Listener) -> Result<String, OpenEngineError> {
    let mut address = listener.socket.local_addr().map_err(other)?;
    // An unspecified address cannot be connected to.
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("{}://{address}", scheme_of(listener)))
}

/// The scheme of the URLs of a listener.
pub(super) const fn scheme_of(listener: &Listener) -> &'static str {
    match listener.certificates {
        Some(_) => "https",
        None => "http",
    }
}

/// Reads certificates again while anything is served.
pub(super) fn keep_current(
    certificates: Option<Certificates>,
    stop: &watch::Sender<bool>,
) -> JoinHandle<()> {
    let stopped = stopped(stop);
    tokio::spawn(async move {
        let Some(certificates) = certificates else {
            return;
        };
        tokio::select! {
            () = certificates.keep_current() => {}
            () = stopped => {}
        }
    })
}

pub(super) fn serve(
    listener: Listener,
    router: Router,
    limits: ServerLimits,
    stop: &watch::Sender<bool>,
) -> JoinHandle<()> {
    let stopped = stopped(stop);
    tokio::spawn(async move {
        server::serve(listener, router, limits, stopped).await;
    })
}

pub(super) fn server_limits(connections: Option<usize>) -> ServerLimits {
    let usual = ServerLimits::default();
    ServerLimits {
        connections: server::possible_connections(connections.unwrap_or(usual.connections)),
        ..usual
    }
}

/// The rules for what may be called. Without principals everything is local, and so is what it may
/// call (decision K6).
pub(super) fn policy(environment: Option<&Environment>) -> EgressPolicy {
    EgressPolicy {
        allow: environment
            .map(|one| one.egress_allow.clone())
            .unwrap_or_default(),
        loopback: environment.is_none_or(|one| one.principals.is_empty()),
    }
}

/// Resolves once everything is to stop.
pub(super) fn stopped(stop: &watch::Sender<bool>) -> impl Future<Output = ()> + Send + use<> {
    let mut stop = stop.subscribe();
    async move {
        let _ = stop.wait_for(|stop| *stop).await;
    }
}
