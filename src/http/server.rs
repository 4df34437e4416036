//! Serving a router to the network, with a limit on everything a client can do.
//!
//! A client has a time to send its headers, a time to send its body, a size for each, and there
//! are only so many connections. A handler that panics answers 500 and takes nobody with it.
//!
//! Beyond the cap a connection is accepted and answered 503 at once, rather than left in the
//! kernel's queue: a client learns what is wrong instead of hanging, and whoever looks at the
//! server from outside can tell "full" from "dead".
//!
//! Shutdown has two phases: stop accepting and let requests under way finish, then, after a grace
//! period, cut what is left. The ledger is durable, so cutting is safe.

use std::any::Any;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{map_request, map_response};
use axum::response::{IntoResponse as _, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tower::{Layer as _, Service};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyDeadlineLayer;

use super::origin::{self, Names};
use crate::error::{ErrorCode, Problem};

/// What a client may do. The defaults are what the services use; tests use shorter ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once; beyond it they are answered 503.
    pub connections: usize,
    /// The time to send a request's headers; an idle connection is closed after it, too.
    pub header_time: Duration,
    /// The time to send a request's whole body, so that one byte a second does not count.
    pub body_time: Duration,
    /// The most bytes of request line and headers.
    pub header_bytes: usize,
    /// How long requests under way may take to finish at shutdown.
    pub grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            header_bytes: 32 * 1024,
            grace: Duration::from_secs(10),
        }
    }
}

/// Why a listener was not opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is reachable from other machines.
    #[error(
        "cannot listen on {0}: other machines could reach it, and nobody would ask them who they are"
    )]
    NotLoopback(IpAddr),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// Where.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// Listens on a loopback address and refuses any other (decision H5); port 0 lets the system
/// choose.
pub async fn bind_loopback(address: SocketAddr) -> Result<TcpListener, BindError> {
    if !address.ip().is_loopback() {
        return Err(BindError::NotLoopback(address.ip()));
    }
    bind(address).await
}

/// Listens on any address: for a router that asks for a token.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| BindError::System { address, source })
}

/// A router with what every answer of ktsu has: problem documents for unknown paths and wrong
/// methods, no requests of foreign web pages, panics contained, headers that forbid caching and
/// guessing. Applied by whoever makes a
/// router, since it replaces the fallback: over a socket and within the process the same answers.
pub fn guarded(router: Router) -> Router {
    guarded_as(router, Names::Loopback)
}

/// As [`guarded`], for a service that may have other names.
pub fn guarded_as(router: Router, names: Names) -> Router {
    router
        .fallback(async || Problem::from(ErrorCode::NotFound))
        .method_not_allowed_fallback(async || Problem::from(ErrorCode::MethodNotAllowed))
        .layer(map_request(move |request| origin::judge(names, request)))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(map_response(with_fixed_headers))
}

/// Serves a [`guarded`] router until `shutdown` resolves and the requests under way are done or cut.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    limits: Limits,
    shutdown: impl Future<Output = ()>,
) {
    let service = RequestBodyDeadlineLayer::new(limits.body_time).layer(router);
    let (closing, _) = watch::channel(());
    let free = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        let stream = tokio::select! {
            stream = accept(&listener) => stream,
            Some(_) = connections.join_next() => continue,
            () = &mut shutdown => break,
        };
        match Arc::clone(&free).try_acquire_owned() {
            Ok(permit) => {
                let connection = connection(stream, service.clone(), &limits, closing.subscribe());
                connections.spawn(async move {
                    connection.await;
                    drop(permit);
                });
            }
            Err(_) => turn_away(&mut connections, stream, &limits),
        }
    }
    drop(listener);
    drop(closing);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.grace, finished).await.is_err() {
        connections.shutdown().await;
    }
}

/// One connection, request by request, until either side is done with it.
fn connection<S>(
    stream: TcpStream,
    service: S,
    limits: &Limits,
    mut closing: watch::Receiver<()>,
) -> impl Future<Output = ()> + use<S>
where
    S: Service<hyper::Request<Incoming>, Response = Response, Error = Infallible> + Clone + Send,
    S: 'static,
    S::Future: Send,
{
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_header_size(limits.header_bytes)
        // Room for the headers and a piece of the body; a connection grows into it only if used.
        .max_buf_size((2 * limits.header_bytes).max(8192))
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(service));
    async move {
        let mut connection = std::pin::pin!(connection);
        // A connection that broke concerns its client alone: both outcomes are the end of it.
        tokio::select! {
            _ = &mut connection => return,
            // The sender is never used, only dropped: that is the signal.
            _ = closing.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Accepts, waiting out what one client or a lack of descriptors can cause.
async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are small and often wait for nothing but the wire.
                let _ = stream.set_nodelay(true);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// How many refusals may be under way; beyond it a connection is just closed.
const REFUSALS: usize = 256;

/// Tells a client that there is no room, without reading what it wants.
fn turn_away(connections: &mut JoinSet<()>, mut stream: TcpStream, limits: &Limits) {
    if connections.len() >= limits.connections.saturating_add(REFUSALS) {
        return;
    }
    connections.spawn(async move {
        let body = Problem::new(ErrorCode::Overloaded, "too many connections").to_json();
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/problem+json\r\n\
             content-length: {}\r\nconnection: close\r\nretry-after: 1\r\n\
             cache-control: no-store\r\nx-content-type-options: nosniff\r\n\r\n{body}",
            body.len()
        );
        // Closing a socket with unread bytes in it would destroy the answer on its way: say that
        // we are done, then read for a moment what the client had already sent.
        let polite = async {
            stream.write_all(answer.as_bytes()).await?;
            stream.shutdown().await?;
            let mut scrap = [0; 1024];
            while stream.read(&mut scrap).await? > 0 {}
            io::Result::Ok(())
        };
        let _ = tokio::time::timeout(Duration::from_secs(1), polite).await;
    });
}

/// The answer where a handler panicked; what it said stays in the log.
fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    tracing::error!(
        panic = said.unwrap_or("without a message"),
        "a request handler panicked"
    );
    Problem::from(ErrorCode::Internal).into_response()
}

async fn with_fixed_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests;
