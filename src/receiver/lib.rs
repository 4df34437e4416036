//! A webhook receiver on this machine, for the local environment.
//!
//! `ktsu run` starts one so that a kit with webhooks runs completely without a service of its own:
//! every POST or PUT is accepted, answered `{"received": true}`, and noted. It knows nothing of
//! runs; the command line prints what it received.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri};
use axum::response::{IntoResponse as _, Response};
use axum::routing::post;
use ktsu_ledger::Timestamp;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use ktsu_server::body;
use ktsu_server::{self as server, BindError, ServerLimits};

/// One request that was received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// `POST` or `PUT`.
    pub method: String,
    /// Path and query as they were sent; text from outside, so clean it before printing.
    pub path: String,
    /// The header `webhook-id`, which stays the same when a delivery is sent again.
    pub webhook_id: Option<String>,
    /// The size of the body.
    pub body_bytes: usize,
    /// The time at which it was whole.
    pub at: Timestamp,
}

/// A running receiver; it stops when dropped.
pub struct Receiver {
    address: SocketAddr,
    log: Arc<Log>,
    stop: Option<oneshot::Sender<()>>,
    server: JoinHandle<()>,
}

/// The last deliveries, and how many there were.
struct Log {
    keep: usize,
    noted: Mutex<(u64, VecDeque<Delivery>)>,
}

impl Receiver {
    /// Listens on loopback, at a port the system chooses, and keeps the last `keep` deliveries.
    pub async fn start(keep: usize) -> Result<Self, BindError> {
        Self::start_at(0, keep).await
    }

    /// As [`Receiver::start`], at a port if it is free: runs that were interrupted know it.
    pub async fn start_at(port: u16, keep: usize) -> Result<Self, BindError> {
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let wanted = SocketAddr::from(([127, 0, 0, 1], port));
        let listener = match server::bind_loopback(wanted).await {
            Ok(listener) => listener,
            Err(_) => server::bind_loopback(anywhere).await?,
        };
        let address = listener.local_addr().map_err(|source| BindError::System {
            address: anywhere,
            source,
        })?;
        let log = Arc::new(Log {
            keep,
            noted: Mutex::default(),
        });
        let take = post(receive).put(receive);
        let router = Router::new()
            .route("/", take.clone())
            .route("/{*path}", take)
            .with_state(Arc::clone(&log));
        let router = server::guarded(router);
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move {
            // Also resolves if the receiver was dropped.
            let _ = stopped.await;
        };
        let server = tokio::spawn(server::serve(
            listener,
            router,
            ServerLimits::default(),
            shutdown,
        ));
        Ok(Self {
            address,
            log,
            stop: Some(stop),
            server,
        })
    }

    /// Its URL, without a slash at the end: `http://127.0.0.1:40123`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The last deliveries, oldest first.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.log.noted.lock().1.iter().cloned().collect()
    }

    /// The number of deliveries, those no longer kept included.
    pub fn received(&self) -> u64 {
        self.log.noted.lock().0
    }

    /// Stops accepting and waits until requests under way are answered.
    pub async fn stop(mut self) {
        drop(self.stop.take());
        let _ = self.server.await;
    }
}

impl Log {
    fn note(&self, delivery: Delivery) {
        let mut noted = self.noted.lock();
        noted.0 += 1;
        noted.1.push_back(delivery);
        while noted.1.len() > self.keep {
            noted.1.pop_front();
        }
    }
}

async fn receive(
    State(log): State<Arc<Log>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let bytes = match body::read(body).await {
        Ok(bytes) => bytes.len(),
        Err(problem) => return problem.into_response(),
    };
    let webhook_id = headers.get("webhook-id").and_then(|id| id.to_str().ok());
    log.note(Delivery {
        method: method.to_string(),
        path: uri
            .path_and_query()
            .map_or("/", |path| path.as_str())
            .to_owned(),
        webhook_id: webhook_id.map(str::to_owned),
        body_bytes: bytes,
        at: now(),
    });
    axum::Json(serde_json::json!({"received": true})).into_response()
}

fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::body::Bytes;

    use super::*;
    use ktsu_egress::{Client, EgressPolicy, EgressRequest};

    async fn send(method: Method, url: String, id: Option<&str>) -> (u16, Vec<u8>) {
        let policy = EgressPolicy {
            allow: Vec::new(),
            loopback: true,
        };
        let mut headers = HeaderMap::new();
        if let Some(id) = id.and_then(|id| id.parse().ok()) {
            headers.insert("webhook-id", id);
        }
        let body = Bytes::from_static(b"{}");
        let timeout = Duration::from_secs(20);
        let request = EgressRequest {
            method,
            url,
            headers,
            body,
            timeout,
            keep: 1024,
            is_to_itself: false,
        };
        let answer = Client::new(&policy).expect("a policy").send(request).await;
        let answer = answer.expect("an answer");
        (answer.status, answer.body)
    }

    #[tokio::test]
    async fn deliveries_are_answered_and_the_last_ones_kept() {
        let receiver = Receiver::start(2).await.expect("a receiver");
        let url = receiver.url();
        for (method, path) in [
            (Method::POST, ""),
            (Method::PUT, "/a/b?c=1"),
            (Method::POST, "/d"),
        ] {
            let (status, body) = send(method, format!("{url}{path}"), Some("dlv_1")).await;
            assert_eq!(
                (status, body.as_slice()),
                (200, &br#"{"received":true}"#[..])
            );
        }
        let kept = receiver.deliveries();
        let paths: Vec<&str> = kept.iter().map(|delivery| delivery.path.as_str()).collect();
        assert_eq!(paths, ["/a/b?c=1", "/d"]);
        assert_eq!(receiver.received(), 3);
        assert_eq!(kept[0].method, "PUT");
        assert_eq!(kept[0].webhook_id.as_deref(), Some("dlv_1"));
        assert_eq!(kept[0].body_bytes, 2);
        assert!(kept[0].at > Timestamp::default());
        receiver.stop().await;
    }

    #[tokio::test]
    async fn other_methods_are_refused_and_not_noted() {
        let receiver = Receiver::start(8).await.expect("a receiver");
        let (status, _) = send(Method::GET, format!("{}/x", receiver.url()), None).await;
        assert_eq!((status, receiver.received()), (405, 0));
    }
}
