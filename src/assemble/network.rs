//! The addresses at which services listen, and the rules for what they may call.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::Router;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::error::{OpenEngineError, other};
use ktsu_egress::EgressPolicy;
use ktsu_environment::Environment;
use ktsu_server::{self as server, ServerLimits};

/// The URL by which a listener is reached from this machine.
pub(super) fn url_of(listener: &TcpListener) -> Result<String, OpenEngineError> {
    let mut address = listener.local_addr().map_err(other)?;
    // An unspecified address cannot be connected to.
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            SocketAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    Ok(format!("http://{address}"))
}

pub(super) fn serve(
    listener: TcpListener,
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
