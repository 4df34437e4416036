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
use super::certificates::certificates;
use super::network::{keep_current, listen, policy, serve, stopped, url_of};
use super::service_access::{ServiceAccess, ServiceKind};
use ktsu_egress as egress;
use ktsu_environment::Environment;
use ktsu_environment::principals::PrincipalRole;
use ktsu_gateway::{self as gateway, Gateway};
use ktsu_peer::{ConnectionPool, Peer};
use ktsu_runtime::{self as runtime, Callbacks, GatewayLink, Runtime};
use ktsu_server::ServerLimits;
use ktsu_tls::Certificates;
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

/// What every service is started with.
pub struct ServiceSetup<'s> {
    /// The address to listen at.
    pub listen: SocketAddr,
    /// The environment file, if there is one: principals, certificates, and which addresses may be called.
    pub environment: Option<&'s Environment>,
    /// The process environment.
    pub process: &'s BTreeMap<String, String>,
}

/// What a runtime is started with beside that.
pub struct RuntimeSetup {
    /// The owner of a ledger and its standbys: `http://127.0.0.1:5050`.
    pub orchestrators: Vec<String>,
    /// `http://127.0.0.1:5052`.
    pub gateways: Vec<String>,
    /// The number of tasks at once, at most.
    pub places: u32,
    /// The token that it shows to all of them; that of the first principal with its role if there is none.
    pub token: Option<String>,
}

/// Starts a runtime in a process of its own.
///
/// # Errors
/// [`OpenEngineError`]: its address, its certificates, or the principals.
pub async fn open_runtime(
    setup: ServiceSetup<'_>,
    own: RuntimeSetup,
) -> Result<Service, OpenEngineError> {
    let egress = egress::Client::new(&policy(setup.environment))?;
    let urls = own.orchestrators.iter().chain(&own.gateways);
    let service = setup.open(urls.map(String::as_str))?;
    let token = own
        .token
        .or_else(|| service.access.token_of(PrincipalRole::Runtime));
    let pool = ConnectionPool::new(service.certificates.clone());
    let gateways = own.gateways.iter();
    let gateways = gateways.map(|url| Peer::with_pool(pool.clone(), url, token.clone()));
    let runtime = Runtime::new(runtime::RuntimeParts {
        gateway: GatewayLink::Peers(gateways.collect()),
        orchestrator: Callbacks::remote_among(pool.clone(), own.orchestrators, token),
        tools: Arc::new(McpClient::new(egress)),
        places: Some(own.places),
    });
    let router = runtime.router_as(service.access.hosts());
    let router = service.access.guard(ServiceKind::Runtime, router);
    let mut service = service
        .serve(router, Worker::Runtime(runtime.clone()))
        .await?;
    let (beating, stopped) = (runtime, stopped(&service.stop));
    let beats = tokio::spawn(async move { beating.beat(stopped).await });
    service.serving.push(beats);
    Ok(service)
}

/// A service that does not listen yet.
struct OpenedService {
    listen: SocketAddr,
    access: ServiceAccess,
    certificates: Option<Certificates>,
}

impl ServiceSetup<'_> {
    fn open<'u>(
        &self,
        urls: impl IntoIterator<Item = &'u str>,
    ) -> Result<OpenedService, OpenEngineError> {
        let access = ServiceAccess::of(self.environment, self.process);
        Ok(OpenedService {
            listen: self.listen,
            access: access.map_err(OpenEngineError::Principals)?,
            certificates: certificates(self.environment, self.process, urls)?,
        })
    }
}

impl OpenedService {
    async fn serve(self, router: Router, worker: Worker) -> Result<Service, OpenEngineError> {
        let certificates = self.certificates;
        let listener = listen(self.listen, self.access.asks(), certificates.as_ref()).await?;
        if !self.listen.ip().is_loopback() && listener.certificates.is_none() {
            return Err(OpenEngineError::NotEncrypted(self.listen.ip()));
        }
        let stop = watch::Sender::new(false);
        Ok(Service {
            url: url_of(&listener)?,
            serving: vec![
                serve(listener, router, ServerLimits::default(), &stop),
                keep_current(certificates, &stop),
            ],
            worker,
            stop,
        })
    }
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
    setup: ServiceSetup<'_>,
    file: &Path,
) -> Result<Service, OpenEngineError> {
    let egress = egress::Client::new(&policy(setup.environment))?;
    let gateway = Gateway::load(file, setup.environment, setup.process, &egress);
    let gateway = gateway.map_err(OpenEngineError::Gateway)?;
    let service = setup.open([])?;
    let router = gateway::router_as(gateway.clone(), service.access.hosts());
    let router = service.access.guard(ServiceKind::Gateway, router);
    service.serve(router, Worker::Gateway(gateway)).await
}
