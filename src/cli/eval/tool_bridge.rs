//! Programs that speak MCP on their standard input and output, as tool servers with a URL: Streamable HTTP
//! on loopback, with one process for each session.

use std::collections::{BTreeSet, HashMap};
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use ktsu_server::{self as server, BindError, ServerLimits};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::super::output::{WARN, painted, print_failure};
use super::super::text;
use super::tool_process::{MAX_MESSAGE, ToolProcess};

/// The header that names a session.
const SESSION: &str = "mcp-session-id";

/// The most sessions with a service at a time; others wait.
const MAX_SESSIONS: usize = 64;

/// The most failures of services that are shown.
const MAX_FAILURES: usize = 20;

/// The most characters of one.
const MAX_WORDS: usize = 400;

/// JSON-RPC: the server cannot answer.
const NO_ANSWER: i32 = -32000;

/// Starts the program of a service; why it was not started, in words.
type Start = dyn Fn() -> Result<ToolProcess, String> + Send + Sync;

/// Listens for requests to services, until it is dropped.
pub(super) struct ToolBridge {
    address: SocketAddr,
    services: Services,
    _stop: oneshot::Sender<()>,
}

type Services = Arc<OfferedServices>;

/// The services that are offered.
#[derive(Default)]
struct OfferedServices {
    /// By the secret part of their URLs.
    by_key: Mutex<HashMap<String, Arc<Service>>>,
    /// The reasons why services did not answer. Each is shown once.
    failures: Mutex<BTreeSet<String>>,
}

/// A service that can be reached. Once it is dropped, it cannot, and nothing of it runs.
pub(super) struct OfferedService {
    pub(super) url: String,
    key: String,
    service: Arc<Service>,
    services: Services,
}

struct Service {
    name: String,
    start: Box<Start>,
    /// By name; none once it is closed.
    sessions: Mutex<Option<HashMap<String, Session>>>,
    places: Arc<Semaphore>,
}

/// A process, and its place among those of the service.
struct Session {
    process: Arc<ToolProcess>,
    _place: OwnedSemaphorePermit,
}

impl ToolBridge {
    /// Listens on loopback, at a port that the system chooses.
    pub(super) async fn listen() -> Result<Self, BindError> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = server::bind_loopback(anywhere).await?;
        let address = listener.local_addr().map_err(|source| BindError::System {
            address: anywhere,
            source,
        })?;
        let services = Services::default();
        let router = Router::new()
            .route("/{key}/mcp", post(take).delete(end))
            .with_state(Arc::clone(&services));
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // Resolves once the bridge is dropped.
            let _ = stopped.await;
        };
        let (router, limits) = (server::guarded(router), ServerLimits::default());
        tokio::spawn(server::serve(listener, router, limits, shutdown));
        Ok(Self {
            address,
            services,
            _stop: stop,
        })
    }

    /// Offers a service.
    pub(super) fn offer(&self, name: &str, start: Box<Start>) -> OfferedService {
        let key = uuid::Uuid::new_v4().simple().to_string();
        let service = Arc::new(Service {
            name: name.to_owned(),
            start,
            sessions: Mutex::new(Some(HashMap::new())),
            places: Arc::new(Semaphore::new(MAX_SESSIONS)),
        });
        let mut services = self.services.by_key.lock();
        services.insert(key.clone(), Arc::clone(&service));
        OfferedService {
            url: format!("http://{}/{key}/mcp", self.address),
            key,
            service,
            services: Arc::clone(&self.services),
        }
    }
}

impl Drop for OfferedService {
    fn drop(&mut self) {
        self.services.by_key.lock().remove(&self.key);
        let sessions = self.service.sessions.lock().take();
        for session in sessions.into_iter().flat_map(HashMap::into_values) {
            session.process.stop();
        }
    }
}

impl Service {
    fn session(&self, headers: &HeaderMap) -> Option<Arc<ToolProcess>> {
        let name = headers.get(SESSION)?.to_str().ok()?;
        let sessions = self.sessions.lock();
        let session = sessions.as_ref()?.get(name)?;
        Some(Arc::clone(&session.process))
    }

    fn is_closed(&self) -> bool {
        self.sessions.lock().is_none()
    }

    /// Starts a process for a new session, unless the service is closed.
    fn open(&self, place: OwnedSemaphorePermit) -> Result<(String, Arc<ToolProcess>), String> {
        if self.is_closed() {
            return Err("it is closed".to_owned());
        }
        let process = Arc::new((self.start)()?);
        let name = uuid::Uuid::new_v4().simple().to_string();
        let session = Session {
            process: Arc::clone(&process),
            _place: place,
        };
        match self.sessions.lock().as_mut() {
            Some(sessions) => drop(sessions.insert(name.clone(), session)),
            None => {
                process.stop();
                return Err("it is closed".to_owned());
            }
        }
        Ok((name, process))
    }
}

async fn take(
    State(services): State<Services>,
    Path(key): Path<String>,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let Some(service) = services.by_key.lock().get(&key).cloned() else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let Ok(body) = to_bytes(body, MAX_MESSAGE).await else {
        return StatusCode::PAYLOAD_TOO_LARGE.into_response();
    };
    let Ok(message @ Value::Object(_)) = serde_json::from_slice::<Value>(&body) else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let (process, opened) = match message["method"] == "initialize" {
        false => match service.session(&headers) {
            None => return StatusCode::NOT_FOUND.into_response(),
            Some(process) => (process, None),
        },
        true => match opened_by(&service).await {
            Ok((name, process)) => (process, Some(name)),
            Err(why) => return services.no_answer(&service, &message, &why),
        },
    };
    if message.get("id").is_none() || message.get("method").is_none() {
        return match process.send(&message) {
            Ok(()) => StatusCode::ACCEPTED.into_response(),
            Err(_) => StatusCode::BAD_GATEWAY.into_response(),
        };
    }
    match process.ask(&message).await {
        Ok(answer) => reply(&answer, opened.as_deref()),
        Err(why) => services.no_answer(&service, &message, &why),
    }
}

/// A new session, once there is a place for it.
async fn opened_by(service: &Arc<Service>) -> Result<(String, Arc<ToolProcess>), String> {
    let lost = "it was not started";
    let place = Arc::clone(&service.places).acquire_owned().await;
    let (service, place) = (Arc::clone(service), place.map_err(|_| lost.to_owned())?);
    let opening = tokio::task::spawn_blocking(move || service.open(place));
    opening.await.map_err(|_| lost.to_owned())?
}

async fn end(
    State(services): State<Services>,
    Path(key): Path<String>,
    headers: HeaderMap,
) -> Response {
    let service = services.by_key.lock().get(&key).cloned();
    let name = headers.get(SESSION).and_then(|name| name.to_str().ok());
    let (Some(service), Some(name)) = (service, name) else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let ended = service
        .sessions
        .lock()
        .as_mut()
        .and_then(|all| all.remove(name));
    let Some(session) = ended else {
        return StatusCode::NOT_FOUND.into_response();
    };
    let _ = tokio::task::spawn_blocking(move || session.process.stop()).await;
    StatusCode::NO_CONTENT.into_response()
}

impl OfferedServices {
    /// The reply of a service that gives none; the person sees why, unless it was ended by us.
    fn no_answer(&self, service: &Service, request: &Value, why: &str) -> Response {
        let why: String = why.chars().take(MAX_WORDS).collect();
        let words = format!("the service {} does not answer: {why}", service.name);
        let mut failures = self.failures.lock();
        let is_shown = !service.is_closed() && failures.len() < MAX_FAILURES;
        if is_shown && failures.insert(words.clone()) {
            let warning = painted(WARN, "warning");
            print_failure(&format!("{warning}: {}", text::line(&words)));
        }
        let error = json!({"code": NO_ANSWER, "message": words});
        let message = json!({"error": error, "id": request["id"], "jsonrpc": "2.0"});
        reply(&message, None)
    }
}

fn reply(message: &Value, session: Option<&str>) -> Response {
    let json = (header::CONTENT_TYPE, "application/json".to_owned());
    let text = message.to_string();
    match session {
        None => ([json], text).into_response(),
        Some(name) => {
            let name = (header::HeaderName::from_static(SESSION), name.to_owned());
            ([json, name], text).into_response()
        }
    }
}
