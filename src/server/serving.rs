//! Serves a router over the network, with a limit on everything a client can do.
//!
//! A client has limited time to send its headers and its body, a size limit for each, and limited
//! time to read responses; the number of connections is limited, too. A handler that panics
//! responds with 500 and affects no other request.
//!
//! Beyond the limit, a connection is accepted rather than left in the kernel's queue. It takes the
//! slot of a client that does not read its responses, does not send the body it announced, or is
//! idle ([`connection_limiter`]). If there is none within a few seconds, the response is 503, so
//! that clients and monitoring can distinguish a full server from a dead one.
//!
//! ```text
//! accept ─▶ limiter: a slot ─▶ hyper ─▶ responses: counted ─▶ router
//!                                └────▶ socket: write timeout, lingering close
//! ```
//!
//! Shutdown has two phases: stop accepting and let requests in progress finish; then, after a grace
//! period, close the rest. The ledger is durable, so that is safe.

mod connection_limiter;
mod descriptors;
mod refusal;
mod responses;
mod socket;
mod transport;

use std::any::Any;
use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderValue, header};
use axum::middleware::{map_request, map_response};
use axum::response::{IntoResponse as _, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior};
use tower::{Layer as _, Service};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::timeout::RequestBodyDeadlineLayer;

use self::connection_limiter::{ConnectionLimiter, ConnectionSlot};
use self::responses::{RequestBody, ResponseService};
use self::socket::Socket;
use crate::ProblemDetails;
use crate::origin::{self, AllowedHosts};
use ktsu_codes::ErrorCode;
use ktsu_tls::Certificates;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The limits on what a client may do. The defaults are what the services use; tests use shorter
/// ones.
#[derive(Debug, Clone)]
pub struct ServerLimits {
    /// Connections at once, as far as the system has descriptors for them.
    pub connections: usize,
    /// The time that a connection beyond that waits for a place before it is answered 503.
    pub place_time: Duration,
    /// The time to send a request's headers; an idle connection is closed after it, too.
    pub header_time: Duration,
    /// The time to send a request's whole body, so that one byte a second does not count.
    pub body_time: Duration,
    /// The most bytes of request line and headers.
    pub header_bytes: usize,
    /// The time that a client may take to read part of what is written to the connection (see
    /// `socket`).
    pub write_time: Duration,
    /// The most bytes of answers that wait for their clients, over all connections; beyond it who
    /// does not read is closed.
    pub unsent_bytes: usize,
    /// The most requests in a row that a connection may send ahead of their answers; the last of
    /// them is answered, and the connection closed.
    pub pipelined: usize,
    /// The time that open requests may take to finish at shutdown.
    pub grace: Duration,
    /// The number of open connections.
    pub open: Arc<AtomicUsize>,
}

impl Default for ServerLimits {
    fn default() -> Self {
        Self {
            connections: 2048,
            place_time: Duration::from_secs(3),
            header_time: Duration::from_secs(10),
            body_time: Duration::from_secs(30),
            header_bytes: 32 * 1024,
            write_time: Duration::from_secs(30),
            unsent_bytes: 6 * 1024 * 1024,
            pipelined: 64,
            grace: Duration::from_secs(10),
            open: Arc::default(),
        }
    }
}

/// Number of connections that are possible, of those that are wanted: as many as the system has
/// descriptors for.
pub fn possible_connections(wanted: usize) -> usize {
    descriptors::cap_connections(wanted)
}

/// The reason why a listener was not opened.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address is reachable from other machines.
    #[error("cannot listen on {0}: other machines could reach it without authentication")]
    NotLoopback(IpAddr),
    /// The system refused.
    #[error("cannot listen on {address}: {source}")]
    System {
        /// The address.
        address: SocketAddr,
        /// The system's error.
        source: io::Error,
    },
}

/// A socket that clients connect to.
pub struct Listener {
    /// The socket.
    pub socket: TcpListener,
    /// What connections are encrypted with; if they show no certificate, connections are not.
    pub certificates: Option<Certificates>,
}

impl From<TcpListener> for Listener {
    fn from(socket: TcpListener) -> Self {
        Self {
            socket,
            certificates: None,
        }
    }
}

/// Listens on a loopback address and refuses any other (decision H5); port 0 lets the system
/// choose.
pub async fn bind_loopback(address: SocketAddr) -> Result<TcpListener, BindError> {
    if !address.ip().is_loopback() {
        return Err(BindError::NotLoopback(address.ip()));
    }
    bind(address).await
}

/// Listens on any address: for a router with authentication.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|source| BindError::System { address, source })
}

/// Adds what every response of ktsu needs: problem documents for unknown paths and wrong methods,
/// refusal of requests from foreign web pages, isolation of panics, and headers against caching and
/// sniffing. Call it when creating a router, because it replaces the fallback; requests within the
/// process then get the same responses.
pub fn guarded(router: Router) -> Router {
    guarded_as(router, AllowedHosts::Loopback)
}

/// As [`guarded`], for a service that may have other names.
pub fn guarded_as(router: Router, names: AllowedHosts) -> Router {
    router
        .fallback(async || ProblemDetails::from(ErrorCode::NotFound))
        .method_not_allowed_fallback(async || ProblemDetails::from(ErrorCode::MethodNotAllowed))
        .layer(map_request(move |request| {
            origin::check_origin(names, request)
        }))
        .layer(CatchPanicLayer::custom(panicked))
        .layer(map_response(with_fixed_headers))
}

/// Serves a [`guarded`] router until `shutdown` resolves and the requests under way are done or cut.
pub async fn serve(
    listener: impl Into<Listener>,
    router: Router,
    limits: ServerLimits,
    shutdown: impl Future<Output = ()>,
) {
    let Listener {
        socket: listener,
        certificates,
    } = listener.into();
    let service = RequestBodyDeadlineLayer::new(limits.body_time).layer(router);
    let (closing, _) = watch::channel(());
    let places = descriptors::cap_connections(limits.connections);
    let room = ConnectionLimiter::new(places, limits.unsent_bytes, limits.pipelined);
    let mut connections = JoinSet::new();
    let mut queue = VecDeque::new();
    let mut looks = tokio::time::interval(QUEUE_POLL_INTERVAL);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut shutdown = std::pin::pin!(shutdown);
    loop {
        tokio::select! {
            stream = accept(&listener, &room) => {
                queue.push_back((stream, Instant::now() + limits.place_time));
            }
            Some(_) = connections.join_next() => {}
            _ = looks.tick(), if !queue.is_empty() => room.evict_for(queue.len()),
            () = &mut shutdown => break,
        }
        while !queue.is_empty()
            && let Some(seat) = room.try_acquire()
            && let Some((stream, _)) = queue.pop_front()
        {
            let service = service.clone();
            connections.spawn(connection(
                (stream, certificates.clone()),
                service,
                seat,
                &limits,
                closing.subscribe(),
            ));
        }
        limits.open.store(room.seated(), Ordering::Relaxed);
        let refusals = connections.len().saturating_sub(room.seated());
        for stream in take_expired(&mut queue).take(MAX_REFUSALS.saturating_sub(refusals)) {
            if certificates.is_none() {
                connections.spawn(refuse_overloaded(stream));
            }
        }
    }
    drop(listener);
    room.close();
    drop(closing);
    let finished = async { while connections.join_next().await.is_some() {} };
    if tokio::time::timeout(limits.grace, finished).await.is_err() {
        connections.shutdown().await;
    }
}

/// The time between two checks whether a place can be had for those that wait for one.
const QUEUE_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Number of connections that may wait for a slot; beyond that the longest waiting one is refused.
const MAX_QUEUE: usize = 256;
/// Number of refusals that may be in progress; beyond it a connection is just closed.
const MAX_REFUSALS: usize = 256;

/// Takes out those whose time to wait is over, and those that too many wait behind.
fn take_expired(
    queue: &mut VecDeque<(TcpStream, Instant)>,
) -> impl Iterator<Item = TcpStream> + use<> {
    let now = Instant::now();
    let over = queue.iter().take_while(|(_, until)| *until <= now).count();
    let many = queue.len().saturating_sub(MAX_QUEUE);
    let out: Vec<_> = queue.drain(..over.max(many)).collect();
    out.into_iter().map(|(stream, _)| stream)
}

/// One connection, request by request, until either side is done with it or its place is needed.
fn connection<S>(
    (stream, certificates): (TcpStream, Option<Certificates>),
    service: S,
    seat: ConnectionSlot,
    limits: &ServerLimits,
    mut closing: watch::Receiver<()>,
) -> impl Future<Output = ()> + use<S>
where
    S: Service<hyper::Request<RequestBody>, Response = Response, Error = Infallible> + Clone + Send,
    S: 'static,
    S::Future: Send,
{
    let seat = Arc::new(seat);
    let answers = ResponseService {
        service,
        seat: Arc::clone(&seat),
    };
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_time)
        .max_header_size(limits.header_bytes)
        // Holds the headers and part of the body; a connection allocates it only if used.
        .max_buf_size((2 * limits.header_bytes).max(8192));
    let (header_time, write_time) = (limits.header_time, limits.write_time);
    async move {
        let accepted = transport::accept(stream, certificates.as_ref());
        let accepted = tokio::select! {
            biased;
            accepted = tokio::time::timeout(header_time, accepted) => accepted,
            () = seat.evicted() => return,
            _ = closing.changed() => return,
        };
        let transport = match accepted {
            Ok(Ok(transport)) => transport,
            Ok(Err(error)) => {
                tracing::debug!(%error, "a connection could not be encrypted");
                return;
            }
            Err(_) => return,
        };
        let socket = Socket::new(transport, Arc::clone(&seat), write_time);
        let connection = protocol.serve_connection(TokioIo::new(socket), answers);
        let mut connection = std::pin::pin!(connection);
        // A broken connection concerns only its client.
        tokio::select! {
            _ = &mut connection => return,
            () = seat.evicted() => return,
            // The sender is never used, only dropped: that is the signal.
            _ = closing.changed() => connection.as_mut().graceful_shutdown(),
        }
        let _ = connection.await;
    }
}

/// Accepts, waiting out what one client or a lack of descriptors can cause.
async fn accept(listener: &TcpListener, room: &ConnectionLimiter) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                // Answers are small and often wait for nothing but the wire.
                let _ = stream.set_nodelay(true);
                descriptors::bound_unsent(&stream);
                return stream;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                room.evict_for(1);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

/// Responds 503 without reading the request. Where connections are encrypted they are just closed: a handshake costs
/// more than there is.
async fn refuse_overloaded(stream: TcpStream) {
    let problem = ProblemDetails::new(ErrorCode::Overloaded, "too many connections");
    refusal::send(
        stream,
        "503 Service Unavailable\r\nretry-after: 1",
        &problem,
    )
    .await;
}

/// The response after a panic; its message is only logged.
fn panicked(payload: Box<dyn Any + Send>) -> Response {
    let said = payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied());
    tracing::error!(
        panic = said.unwrap_or("without a message"),
        "a request handler panicked"
    );
    ProblemDetails::from(ErrorCode::Internal).into_response()
}

async fn with_fixed_headers(mut response: Response) -> Response {
    let headers = response.headers_mut();
    // Only files whose content never changes under their name say otherwise.
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
    let nosniff = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
    response
}

#[cfg(test)]
mod tests;
