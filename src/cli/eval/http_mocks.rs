//! HTTP servers of suites: each run has its own, on a port of loopback and, for programs in the sandbox, on
//! a socket.
//!
//! ```text
//! webhooks, tool servers of the kit ─▶ 127.0.0.1:PORT/KEY ─┐
//! programs in the sandbox ─▶ port_forward ─▶ socket ───────┴─▶ MockState
//! ```

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::io;
use std::net::Ipv4Addr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use ktsu_eval::{HttpMock, MockFault, MockRequest, MockState, PlannedReply, ServiceRecords};
use ktsu_sandbox::{PrivateFolder, ReachedService, Sandbox};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::{JoinHandle, JoinSet};

use super::super::Failure;
use super::super::port_forward;

/// The most connections at a time to each address of a server; others wait.
const MAX_CONNECTIONS: usize = 64;

/// The most bytes of a body that is read.
const MAX_BODY: usize = 1 << 20;

/// The most bytes of JSON that are kept of what all servers of a run receive.
const MAX_KEPT: usize = 4 << 20;

/// The time that a client may take to send its headers, and then its body.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after a connection that could not be accepted.
const ACCEPT_INTERVAL: Duration = Duration::from_millis(10);

/// The first port of a server within the sandbox.
const FIRST_PORT: u16 = 20_001;

/// The name by which programs reach the sockets of servers, which no service can have.
const SOCKETS: &str = ".http";

/// The name by which programs reach the program that forwards their ports.
const FORWARDER: &str = ".forward";

/// The servers of a suite.
pub(super) struct HttpMocks {
    mocks: BTreeMap<String, Arc<HttpMock>>,
    sandbox: Sandbox,
    /// Holds the program that forwards ports in the sandbox; none without a sandbox.
    forwarder: Option<Arc<PrivateFolder>>,
}

/// The servers of one run. Once they are dropped, nothing reaches them.
#[derive(Default)]
pub(super) struct RunMocks {
    mocks: BTreeMap<String, RunMock>,
    /// Holds the sockets; none without a sandbox.
    sockets: Option<PrivateFolder>,
    forwarder: Option<Arc<PrivateFolder>>,
    /// The arguments in front of a program that let it reach the servers.
    front: Vec<String>,
    /// The record of what they received, of a run that has ended.
    received: Option<ServiceRecords>,
}

/// A server of one run.
struct RunMock {
    server: Arc<MockServer>,
    /// For this process and others outside of the sandbox.
    url: String,
    /// For programs in the sandbox.
    url_within: String,
    listening: Vec<JoinHandle<()>>,
}

struct MockServer {
    mock: Arc<HttpMock>,
    state: Mutex<MockState>,
}

/// The connection is closed in place of a reply.
#[derive(Debug, thiserror::Error)]
#[error("the connection is closed")]
struct ClosedError;

impl HttpMocks {
    /// Prepares what all runs have in common; none if the suite has no such service.
    pub(super) fn new(
        mocks: &BTreeMap<String, HttpMock>,
        sandbox: &Sandbox,
    ) -> Result<Option<Self>, Failure> {
        if mocks.is_empty() {
            return Ok(None);
        }
        let forwarder = match sandbox.is_none() {
            true => None,
            false => Some(Arc::new(forwarder(sandbox)?)),
        };
        let mocks = mocks.iter();
        Ok(Some(Self {
            mocks: mocks
                .map(|(name, mock)| (name.clone(), Arc::new(mock.clone())))
                .collect(),
            sandbox: sandbox.clone(),
            forwarder,
        }))
    }

    /// Those of a run that has ended, with what they received; none if that is not known of one that keeps it.
    pub(super) fn ended(&self, received: ServiceRecords) -> Option<RunMocks> {
        let mut recording = self.mocks.iter().filter(|(_, mock)| mock.record);
        let is_known = recording.all(|(name, _)| received.has_as_it_was(name));
        is_known.then(|| RunMocks {
            received: Some(received).filter(|received| !received.is_empty()),
            ..RunMocks::default()
        })
    }

    /// Starts those of a run. There has to be a runtime.
    pub(super) fn start(&self) -> Result<RunMocks, Failure> {
        let not_started = |error: io::Error| {
            Failure::could_not_run(format!("an HTTP service does not start: {error}"))
        };
        let mut run = RunMocks {
            forwarder: self.forwarder.clone(),
            ..RunMocks::default()
        };
        if self.forwarder.is_some() {
            run.sockets = Some(self.sandbox.empty_folder().map_err(Failure::of)?);
        }
        let most = MAX_KEPT / self.mocks.len().max(1);
        for ((name, mock), port) in self.mocks.iter().zip(FIRST_PORT..) {
            let server = Arc::new(MockServer {
                mock: Arc::clone(mock),
                state: Mutex::new(MockState::new(mock, most)),
            });
            let socket = run.sockets.as_ref().map(|it| (socket(it, port), port));
            let started = RunMock::start(server, socket).map_err(not_started)?;
            run.mocks.insert(name.clone(), started);
        }
        run.front = self.front(&run);
        Ok(run)
    }

    fn front(&self, run: &RunMocks) -> Vec<String> {
        let (Some(forwarder), Some(sockets)) = (&self.forwarder, &run.sockets) else {
            return Vec::new();
        };
        let program = self.sandbox.place_of_service(FORWARDER, forwarder);
        let sockets = self.sandbox.place_of_service(SOCKETS, sockets);
        let ports = (FIRST_PORT..).take(run.mocks.len());
        let ports = ports.map(|port| (port, sockets.join(port.to_string())));
        port_forward::arguments(&program.join(port_forward::PROGRAM), ports)
    }
}

impl RunMocks {
    /// Their URLs by the name of the reference: for programs in the sandbox, or else for this process.
    pub(super) fn urls(&self, is_within: bool) -> BTreeMap<String, String> {
        let all = self.mocks.iter().map(|(name, mock)| {
            let url = match is_within {
                true => &mock.url_within,
                false => &mock.url,
            };
            (format!("services.{name}.url"), url.clone())
        });
        all.collect()
    }

    /// A program with what it needs in front of it to reach them.
    pub(super) fn in_front_of(&self, command: Vec<String>) -> Vec<String> {
        self.front.iter().cloned().chain(command).collect()
    }

    /// The number of processes that this adds to those of a program.
    pub(super) fn processes(&self) -> u64 {
        port_forward::PROCESSES * u64::from(!self.front.is_empty())
    }

    /// The folders that programs reach.
    pub(super) fn reached(&self) -> Vec<ReachedService<'_>> {
        let sockets = self.sockets.as_ref().map(|folder| (SOCKETS, folder));
        let forwarder = self.forwarder.as_deref().map(|folder| (FORWARDER, folder));
        let both = sockets.into_iter().chain(forwarder);
        both.map(|(name, folder)| ReachedService { name, folder })
            .collect()
    }

    /// The record of what those received that keep it; none if none does. `replaced`: a text with
    /// references in place of their values.
    pub(super) fn records(&self, replaced: &dyn Fn(&str) -> String) -> Option<ServiceRecords> {
        if self.received.is_some() {
            return self.received.clone();
        }
        let recording = self.mocks.iter().filter(|(_, it)| it.server.mock.record);
        let records = ServiceRecords::new(recording.map(|(name, mock)| {
            let record = mock.server.state.lock().record().clone();
            (name.clone(), record.sealed(replaced))
        }));
        (!records.is_empty()).then_some(records)
    }
}

impl RunMock {
    fn start(server: Arc<MockServer>, socket: Option<(PathBuf, u16)>) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let key = format!("/{}", uuid::Uuid::new_v4().simple());
        let url = format!("http://{}{key}", listener.local_addr()?);
        let listener = TcpListener::from_std(listener)?;
        let mut listening = vec![tokio::spawn(Arc::clone(&server).listen(listener, key))];
        let mut url_within = url.clone();
        if let Some((path, port)) = socket {
            let listener = UnixListener::bind(&path)?;
            // Only its own user can enter the folder that it is in.
            fs::set_permissions(&path, Permissions::from_mode(0o666))?;
            url_within = format!("http://127.0.0.1:{port}");
            let serving = Arc::clone(&server).listen(listener, String::new());
            listening.push(tokio::spawn(serving));
        }
        Ok(Self {
            server,
            url,
            url_within,
            listening,
        })
    }
}

impl Drop for RunMock {
    fn drop(&mut self) {
        self.listening.iter().for_each(JoinHandle::abort);
    }
}

/// A source of connections.
trait Connections: Send {
    type Stream: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    fn next(&self) -> impl Future<Output = io::Result<Self::Stream>> + Send;
}

impl Connections for TcpListener {
    type Stream = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

impl Connections for UnixListener {
    type Stream = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Stream> {
        Ok(self.accept().await?.0)
    }
}

impl MockServer {
    /// Serves until it is aborted. `key`: what paths begin with.
    async fn listen<C: Connections + Sync>(self: Arc<Self>, connections: C, key: String) {
        let (key, mut open) = (Arc::<str>::from(key), JoinSet::new());
        let places = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        while let Ok(place) = Arc::clone(&places).acquire_owned().await {
            while open.try_join_next().is_some() {}
            match connections.next().await {
                Ok(stream) => {
                    let serving = Arc::clone(&self).serve(stream, Arc::clone(&key), place);
                    drop(open.spawn(serving));
                }
                // Without descriptors there is none until another connection ends.
                Err(_) => tokio::time::sleep(ACCEPT_INTERVAL).await,
            }
        }
    }

    async fn serve<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
        self: Arc<Self>,
        stream: S,
        key: Arc<str>,
        _place: OwnedSemaphorePermit,
    ) {
        let service = service_fn(|request| Arc::clone(&self).reply(request, Arc::clone(&key)));
        let mut server = http1::Builder::new();
        server.timer(TokioTimer::new());
        server.header_read_timeout(READ_TIMEOUT);
        // How a connection ends is the client's business.
        let _ = server.serve_connection(TokioIo::new(stream), service).await;
    }

    async fn reply(
        self: Arc<Self>,
        request: Request<Incoming>,
        key: Arc<str>,
    ) -> Result<Response<Body>, ClosedError> {
        let (head, body) = request.into_parts();
        let Some(path) = head.uri.path().strip_prefix(&*key) else {
            return Ok(response(404, Vec::new()));
        };
        let path = if path.is_empty() { "/" } else { path };
        let reading = tokio::time::timeout(READ_TIMEOUT, to_bytes(Body::new(body), MAX_BODY));
        let body = reading.await.map_err(|_| ClosedError)?.ok();
        let request = body.map(|body| {
            let place = (path, head.uri.query());
            MockRequest::new(
                head.method.as_str(),
                place,
                headers(&head.headers),
                body.into(),
            )
        });
        let planned = {
            let mut state = self.state.lock();
            match request {
                Some(request) => state.reply(&self.mock, request),
                None => state.reply_to_more(&self.mock),
            }
        };
        tokio::time::sleep(planned.delay).await;
        match planned.fault {
            Some(MockFault::Close) => Err(ClosedError),
            Some(MockFault::Hang) => std::future::pending().await,
            None => Ok(written(planned)),
        }
    }
}

fn headers(headers: &HeaderMap) -> impl Iterator<Item = (String, String)> {
    let headers = headers.iter();
    headers.map(|(name, value)| {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        (name.as_str().to_owned(), value)
    })
}

fn written(planned: PlannedReply) -> Response<Body> {
    let mut response = response(planned.status, planned.body);
    for (name, value) in planned.headers {
        let name = name.parse::<axum::http::HeaderName>();
        if let (Ok(name), Ok(value)) = (name, value.parse()) {
            response.headers_mut().append(name, value);
        }
    }
    response
}

fn response(status: u16, body: Vec<u8>) -> Response<Body> {
    let mut response = Response::new(Body::from(body));
    if let Ok(status) = status.try_into() {
        *response.status_mut() = status;
    }
    response
}

fn socket(folder: &PrivateFolder, port: u16) -> PathBuf {
    folder.shared().join(port.to_string())
}

/// A folder with this program in it, which programs in the sandbox can run.
fn forwarder(sandbox: &Sandbox) -> Result<PrivateFolder, Failure> {
    const THIS: &str = "/proc/self/exe";
    let folder = sandbox.empty_folder().map_err(Failure::of)?;
    let there = folder.shared().join(port_forward::PROGRAM);
    let linked = fs::read_link(THIS).and_then(|this| link(&this, &there));
    if linked.is_err() {
        let copied = fs::copy(THIS, &there);
        let copied =
            copied.and_then(|_| fs::set_permissions(&there, Permissions::from_mode(0o555)));
        copied.map_err(|error| {
            Failure::could_not_run(format!("cannot put ktsu into the sandbox: {error}"))
        })?;
    }
    Ok(folder)
}

/// A second name for a program that everyone may run.
fn link(this: &Path, there: &Path) -> io::Result<()> {
    const EVERYONE: u32 = 0o005;
    match fs::metadata(this)?.permissions().mode() & EVERYONE == EVERYONE {
        true => fs::hard_link(this, there),
        false => Err(io::ErrorKind::PermissionDenied.into()),
    }
}
