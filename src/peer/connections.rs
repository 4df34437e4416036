//! Connections to other processes, kept alive between calls.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::Body;
use axum::http::{Request, Response, Uri};
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use ktsu_tls::Certificates;
use tokio::net::TcpStream;
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

/// The time after which the machine of a service that acknowledges nothing at all is taken to be lost: less
/// than that after which a runtime without heartbeats is. A service may answer as late as it likes.
#[cfg(target_os = "linux")]
const LOST_TIMEOUT: Duration = Duration::from_secs(10);
/// The silence after which its machine is asked whether it is there, and the time between two questions.
const PROBE_INTERVAL: Duration = Duration::from_secs(3);

/// The most connections that are opened at once. A thousand requests at the same moment would
/// overflow the other side's queue, and the system tries again after whole seconds; so those that
/// wait take a connection that has become free instead.
const MAX_CONNECTING: usize = 64;

/// A pool of connections. Cloning is cheap, and clones share it.
#[derive(Clone)]
pub struct ConnectionPool(Arc<Client<BoundedConnector, Body>>);

impl Default for ConnectionPool {
    fn default() -> Self {
        Self::new(None)
    }
}

impl ConnectionPool {
    /// A pool whose connections to `https://` are encrypted by these certificates. Without any, there are none to
    /// such URLs.
    pub fn new(certificates: Option<Certificates>) -> Self {
        let mut connector = HttpConnector::new();
        // Requests are small: none should wait for the answer to the one before.
        connector.set_nodelay(true);
        connector.set_connect_timeout(Some(CONNECT_TIMEOUT));
        connector.set_keepalive(Some(PROBE_INTERVAL));
        connector.set_keepalive_interval(Some(PROBE_INTERVAL));
        #[cfg(target_os = "linux")]
        connector.set_tcp_user_timeout(Some(LOST_TIMEOUT));
        // Which scheme a URL may have is for the connection to say.
        connector.enforce_http(false);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_PER_HOST)
            .build(BoundedConnector {
                tcp: connector,
                certificates,
                places: Arc::new(Semaphore::new(MAX_CONNECTING)),
            });
        Self(Arc::new(client))
    }

    /// Sends to the authority of the request's URI. A request that a closed connection did not
    /// take is sent on another one; one that was begun is never repeated here.
    pub(super) async fn send(&self, request: Request<Body>) -> Result<Response<Body>, String> {
        let answer = self.0.request(request).await;
        let answer = answer.map_err(|error| {
            let unknown = match error.is_connect() {
                true => "its name does not resolve",
                false => "the connection ended before an answer",
            };
            in_words(&error).unwrap_or_else(|| unknown.to_owned())
        })?;
        Ok(answer.map(Body::new))
    }
}

/// Opens connections, [`MAX_CONNECTING`] at once.
#[derive(Clone)]
struct BoundedConnector {
    tcp: HttpConnector,
    certificates: Option<Certificates>,
    places: Arc<Semaphore>,
}

/// The reason why there is no connection.
type ConnectError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for BoundedConnector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let own = self.clone();
        Box::pin(async move {
            let _place = own.places.acquire().await;
            if uri.scheme_str() != Some("https") {
                return Ok(MaybeHttpsStream::Http(own.tcp.oneshot(uri).await?));
            }
            let certificates = own.certificates.as_ref().ok_or(NO_CERTIFICATES)?;
            // Of this moment: they may have been replaced since the last connection.
            let encrypted = HttpsConnector::from((own.tcp.clone(), certificates.client()));
            let connected = tokio::time::timeout(CONNECT_TIMEOUT, encrypted.oneshot(uri)).await;
            connected.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
        })
    }
}

/// What a caller without certificates hears of an encrypted URL.
const NO_CERTIFICATES: &str = "it is encrypted, and this caller has no authorities to check it by";

/// What is said of a connection that was not made, unless the reason lies deeper: in the system's words, or ours.
fn system_words(error: &io::Error) -> Option<String> {
    let words = match error.kind() {
        _ if error.raw_os_error().is_some() => return Some(error.to_string()),
        io::ErrorKind::TimedOut => "it accepts no connection in time",
        io::ErrorKind::UnexpectedEof => "it ended the connection",
        _ => return None,
    };
    Some(words.to_owned())
}

/// Why there is no answer, in words, if the causes of an error say it.
fn in_words(error: &(dyn Error + 'static)) -> Option<String> {
    let mut cause = error;
    loop {
        if let Some(found) = cause.downcast_ref::<rustls::Error>() {
            let words = encryption_words(found).unwrap_or("its encryption cannot be read");
            return Some(words.to_owned());
        }
        let system = cause.downcast_ref::<io::Error>();
        if let Some(words) = system.and_then(system_words) {
            return Some(words);
        }
        let within = system.and_then(io::Error::get_ref);
        match within
            .map(|within| within as &(dyn Error + 'static))
            .or_else(|| cause.source())
        {
            Some(next) => cause = next,
            None => return (cause.to_string() == NO_CERTIFICATES).then(|| cause.to_string()),
        }
    }
}

fn encryption_words(error: &rustls::Error) -> Option<&'static str> {
    match error {
        rustls::Error::InvalidCertificate(why) => Some(certificate_words(why)),
        rustls::Error::AlertReceived(_) => Some(REFUSED),
        rustls::Error::InvalidMessage(_) => Some(NOT_ENCRYPTED),
        _ => None,
    }
}

/// What is said of a service that ends a handshake.
const REFUSED: &str = "it refused the connection: it may ask for a certificate of its authority";
/// What is said of a service that answers a handshake with something else.
const NOT_ENCRYPTED: &str = "it is not encrypted: its URL begins with http";

fn certificate_words(why: &rustls::CertificateError) -> &'static str {
    match why {
        rustls::CertificateError::Expired | rustls::CertificateError::ExpiredContext { .. } => {
            "its certificate has expired"
        }
        rustls::CertificateError::NotValidYet
        | rustls::CertificateError::NotValidYetContext { .. } => "its certificate is not valid yet",
        rustls::CertificateError::NotValidForName
        | rustls::CertificateError::NotValidForNameContext { .. } => {
            "its certificate is for another name"
        }
        rustls::CertificateError::UnknownIssuer | rustls::CertificateError::BadSignature => {
            "its certificate is of an authority that is not trusted"
        }
        _ => "its certificate is not valid",
    }
}
