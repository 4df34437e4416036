//! The listener of `ktsu mcp --http`: the rules of the orchestrator apply, so without principals
//! only this machine reaches it.

use std::net::SocketAddr;

use axum::Router;
use tokio::sync::watch;

use super::OpenEngineError;
use super::error::other;
use super::network::{listen, serve, server_limits};
use super::service::{Service, Worker};
use ktsu_environment::Environment;
use ktsu_server::origin::AllowedHosts;
use ktsu_server::{self as server};

/// Serves a router to agents, guarded against foreign web pages as every service is.
///
/// # Errors
/// [`OpenEngineError::Bind`].
pub async fn open(
    address: SocketAddr,
    router: Router,
    environment: Option<&Environment>,
) -> Result<Service, OpenEngineError> {
    let has_principals = environment.is_some_and(|one| !one.principals.is_empty());
    let listener = listen(address, has_principals, None).await?;
    let names = match has_principals {
        true => AllowedHosts::Any,
        false => AllowedHosts::Loopback,
    };
    let connections = environment.and_then(|one| one.limits.connections);
    let router = server::guarded_as(router, names);
    let stop = watch::Sender::new(false);
    // Nothing here connects to it: people read where it listens, an unspecified address included.
    let address = listener.socket.local_addr().map_err(other)?;
    Ok(Service {
        url: format!("http://{address}"),
        serving: vec![serve(listener, router, server_limits(connections), &stop)],
        worker: Worker::Tools,
        stop,
    })
}
