//! Connections to other processes, kept alive between calls.

use std::error::Error;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, Uri};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tokio::sync::Semaphore;
use tower::{Service, ServiceExt as _};

/// The time for which a connection may be idle. Less than the time after which a service closes one
/// (`ktsu_server`), so that a request hardly ever meets a connection on its way down.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// The most idle connections to one service that are kept: as many as the agent runtime has calls
/// under way at once.
const MAX_IDLE_PER_HOST: usize = 256;

/// The time to connect. The system's own is over two minutes, which says nothing to whoever waits.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The most connections that are opened at once. A thousand requests at the same moment would
/// overflow the other side's queue, and the system tries again after whole seconds; so those that
/// wait take a connection that has become free instead.
const MAX_CONNECTING: usize = 64;

/// A pool of connections. Cloning is cheap, and clones share it.
#[derive(Clone)]
pub struct ConnectionPool(Arc<Client<BoundedConnector, Body>>);

impl Default for ConnectionPool {
    fn default() -> Self {
        let mut connector = HttpConnector::new();
        // Requests are small: none should wait for the answer to the one before.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(BoundedConnector {
                tcp: connector,
                places: Arc::new(Semaphore::new(MAX_CONNECTING)),
            });
        Self(Arc::new(client))
    }
}

impl ConnectionPool {
    /// Sends to the authority of the request's URI. A request that a closed connection did not
    /// take is sent on another one; one that was begun is never repeated here.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| root(&error).to_string())?;
        Ok(answer.map(Body::new))
    }
}

/// Opens connections, [`MAX_CONNECTING`] at once.
#[derive(Clone)]
struct BoundedConnector {
    tcp: HttpConnector,
    places: Arc<Semaphore>,
}

impl Service<Uri> for BoundedConnector {
    type Response = <HttpConnector as Service<Uri>>::Response;
    type Error = <HttpConnector as Service<Uri>>::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let Self { tcp, places } = self.clone();
        Box::pin(async move {
            let _place = places.acquire().await;
            tcp.oneshot(uri).await
        })
    }
}

/// The first cause, which is what the system said.
fn root<'e>(error: &'e (dyn Error + 'static)) -> &'e (dyn Error + 'static) {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause
}
