//! A runtime or a gateway in a process of its own.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use futures_util::future::join_all;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::OpenEngineError;
use super::network::{policy, serve, stopped, url_of};
use ktsu_egress as egress;
use ktsu_environment::Environment;
use ktsu_gateway::{self as gateway, Gateway};
use ktsu_peer::Peer;
use ktsu_runtime::{self as runtime, Callbacks, GatewayLink, Runtime};
use ktsu_server::{self as server, ServerLimits};
use ktsu_tools::McpClient;

/// A runtime or a gateway in a process of its own.
pub struct Service {
    /// The URL at which it listens.
    pub url: String,
    pub(super) serving: Vec<JoinHandle<()>>,
    pub(super) worker: Worker,
    pub(super) stop: watch::Sender<bool>,
}

/// The work of a service.
pub(super) enum Worker {
    Runtime(Runtime),
    Gateway(Gateway),
    /// It serves the tools of `ktsu mcp`, whose calls end with their requests.
    Tools,
}

/// The services that a runtime in a process of its own calls.
pub struct RuntimeServices<'a> {
    /// `http://127.0.0.1:5050`.
    pub orchestrators: &'a [String],
    /// `http://127.0.0.1:5052`.
    pub gateways: &'a [String],
}

/// Starts a runtime in a process of its own. `token`: for an orchestrator with principals;
/// `places`: the number of tasks at once, at most; `environment`: defines which addresses of tool servers are allowed.
///
/// # Errors
/// [`BindError`].
pub async fn open_runtime(
    listen: SocketAddr,
    services: &RuntimeServices<'_>,
    token: Option<String>,
    places: u32,
    environment: Option<&Environment>,
) -> Result<Service, OpenEngineError> {
    let egress = egress::Client::new(&policy(environment))?;
    let gateways = services.gateways.iter();
    let gateways = gateways.map(|url| Peer::remote(url, None));
    let runtime = Runtime::new(runtime::RuntimeParts {
        gateway: GatewayLink::Peers(gateways.collect()),
        orchestrator: Callbacks::remote_among(services.orchestrators.to_vec(), token),
        tools: Arc::new(McpClient::new(egress)),
        places: Some(places),
    });
    let router = runtime.router();
    let mut service = open_service(listen, router, Worker::Runtime(runtime.clone())).await?;
    let (beating, stopped) = (runtime, stopped(&service.stop));
    let beats = tokio::spawn(async move { beating.beat(stopped).await });
    service.serving.push(beats);
    Ok(service)
}

async fn open_service(
    listen: SocketAddr,
    router: Router,
    worker: Worker,
) -> Result<Service, OpenEngineError> {
    let listener = server::bind_loopback(listen).await?;
    let stop = watch::Sender::new(false);
    Ok(Service {
        url: url_of(&listener)?,
        serving: vec![serve(listener, router, ServerLimits::default(), &stop)],
        worker,
        stop,
    })
}

impl Service {
    /// Begins no new call, and returns once those in flight are answered and recorded, or after
    /// this time.
    pub async fn drain(&self, limit: Duration) {
        let drained = async {
            match &self.worker {
                Worker::Runtime(runtime) => runtime.drain().await,
                Worker::Gateway(gateway) => gateway.drain().await,
                Worker::Tools => {}
            }
        };
        if tokio::time::timeout(limit, drained).await.is_err() {
            tracing::warn!("calls are still in flight and will be repeated");
        }
    }

    /// Stops: requests in progress are dropped and will be retried.
    pub async fn close(self) {
        if let Worker::Runtime(runtime) = &self.worker {
            runtime.stop();
        }
        self.stop.send_replace(true);
        join_all(self.serving).await;
    }
}

/// Starts a gateway in a process of its own.
///
/// # Errors
/// [`OpenEngineError::Gateway`] with everything that is wrong with the file; [`BindError`].
pub async fn open_gateway(
    listen: SocketAddr,
    file: &Path,
    environment: Option<&Environment>,
    process: &BTreeMap<String, String>,
) -> Result<Service, OpenEngineError> {
    let egress = egress::Client::new(&policy(environment))?;
    let gateway = Gateway::load(file, environment, process, &egress);
    let gateway = gateway.map_err(OpenEngineError::Gateway)?;
    let router = gateway::router(gateway.clone());
    open_service(listen, router, Worker::Gateway(gateway)).await
}
