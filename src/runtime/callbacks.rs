//! Callbacks to the orchestrator: in process, or by the URLs of the dispatch.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;

use super::orchestrators::{Destination, RemoteOrchestrators};
use ktsu_contract::in_process::ReportReceiver;
use ktsu_peer::{self as peer, ConnectionPool, Peer, PeerError};

/// The time for one try of a report. The orchestrator may hold one longer (decision F4): it is
/// then sent again and held on.
const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The time for one try of a heartbeat, where there are other orchestrators to try.
const BEAT_TIMEOUT: Duration = Duration::from_secs(2);

/// The first wait after a try without an answer, and the longest.
const BACKOFF_BOUNDS: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(5));

/// The destination of reports, completions and heartbeats.
#[derive(Clone)]
pub enum Callbacks {
    /// To this orchestrator, whatever the authority of a URL says. It is set after the runtime is
    /// made; until then no report is answered. The engine owns it: the orchestrator holds the
    /// runtime, and if the runtime held the orchestrator, neither would ever be freed.
    Local(Weak<OnceLock<LocalOrchestrator>>),
    /// Reports go where their URLs say, heartbeats to the orchestrator. Where there are several, each
    /// message goes to the next if one does not take it.
    Remote {
        /// The destinations of heartbeats.
        orchestrators: Arc<RemoteOrchestrators>,
        /// For all of them.
        connections: ConnectionPool,
    },
}

/// An orchestrator in this process.
pub struct LocalOrchestrator {
    /// Its routes.
    pub router: Router,
    /// The receiver of reports as values; without one, they go to the routes.
    pub reports: Option<Arc<dyn ReportReceiver>>,
}

/// The outcome of a callback that was sent until it was answered.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum DeliveryOutcome {
    /// 200, with this body.
    Accepted(Vec<u8>),
    /// Refused, with this status; 409 says that nobody waits for it any more.
    Refused(u16),
}

impl Callbacks {
    /// An orchestrator in another process.
    pub fn remote(orchestrator: impl Into<String>) -> Self {
        Self::remote_as(orchestrator, None)
    }

    /// An orchestrator in another process, which asks for the token of a principal.
    pub fn remote_as(orchestrator: impl Into<String>, token: Option<String>) -> Self {
        Self::remote_among(ConnectionPool::default(), vec![orchestrator.into()], token)
    }

    /// The owner of a ledger and its standbys, in other processes.
    pub fn remote_among(
        connections: ConnectionPool,
        orchestrators: Vec<String>,
        token: Option<String>,
    ) -> Self {
        Self::Remote {
            orchestrators: Arc::new(RemoteOrchestrators::new(orchestrators, token)),
            connections,
        }
    }

    /// The receiver of reports as values, if there is one.
    pub(super) fn receiver(&self) -> Option<Arc<dyn ReportReceiver>> {
        match self {
            Self::Local(local) => local.upgrade()?.get()?.reports.clone(),
            Self::Remote { .. } => None,
        }
    }

    /// Posts the same bytes until they are answered by anything but an overload or a failure of
    /// the other side. Whoever calls bounds the time.
    pub(super) async fn deliver(
        &self,
        url: &str,
        json: Bytes,
        silence: &UnreachableWarning,
    ) -> DeliveryOutcome {
        let mut backoff = Backoff::default();
        loop {
            for to in self.destinations(url) {
                let answer = self.post(ATTEMPT_TIMEOUT, &to.url, None, json.clone());
                match answer.await {
                    Ok((200, body)) => {
                        self.answered(&to);
                        return DeliveryOutcome::Accepted(body);
                    }
                    Ok((status, _)) if to.is_passing(status) => {
                        tracing::debug!(status, "retrying a callback");
                    }
                    Ok((status, _)) => return DeliveryOutcome::Refused(status),
                    Err(error) => {
                        let plain = to.url.split(['?', '#']).next().unwrap_or_default();
                        silence.warn_once("the orchestrator", plain, &error);
                        tracing::debug!(%error, "retrying a callback");
                    }
                }
            }
            backoff.wait().await;
        }
    }

    /// The URLs for a message to a URL of a dispatch, the first to be tried first.
    pub(super) fn destinations(&self, url: &str) -> Vec<Destination> {
        match self {
            Self::Local(_) => vec![Destination::only(url)],
            Self::Remote { orchestrators, .. } => orchestrators.for_url(url),
        }
    }

    /// An orchestrator took a message.
    pub(super) fn answered(&self, to: &Destination) {
        if let Self::Remote { orchestrators, .. } = self {
            orchestrators.answered(to);
        }
    }

    /// Posts a heartbeat once: to the orchestrator that answered last, or else to one of the others.
    pub(super) async fn beat(
        &self,
        limit: Duration,
        json: Bytes,
    ) -> Result<(u16, Vec<u8>), PeerError> {
        let Self::Remote { orchestrators, .. } = self else {
            let url = "http://localhost/heartbeat";
            return self.post(limit, url, None, json).await;
        };
        let destinations = orchestrators.for_heartbeat();
        let limit = match destinations.len() {
            0 | 1 => limit,
            _ => limit.min(BEAT_TIMEOUT),
        };
        let mut refused = None;
        for to in destinations {
            let token = orchestrators.token.clone();
            let answer = self.post(limit, &to.url, token, json.clone()).await;
            if let Ok((200, _)) = answer {
                orchestrators.answered(&to);
                return answer;
            }
            // Of several failures, the one to tell of is that of a token.
            if !matches!(refused, Some(Ok((401 | 403, _)))) {
                refused = Some(answer);
            }
        }
        refused.unwrap_or(Err(PeerError::InvalidUrl(String::new())))
    }

    async fn post(
        &self,
        limit: Duration,
        url: &str,
        token: Option<String>,
        json: Bytes,
    ) -> Result<(u16, Vec<u8>), PeerError> {
        let (peer, path) = self.resolve(url, token)?;
        peer.post_with_timeout(limit, &path, &[], json).await
    }

    /// The way to a URL of the orchestrator's, and the path with its query. Nothing is shown but
    /// what the URL holds.
    pub(super) fn peer(&self, url: &str) -> Result<(Peer, String), PeerError> {
        self.resolve(url, None)
    }

    fn resolve(&self, url: &str, token: Option<String>) -> Result<(Peer, String), PeerError> {
        let (origin, path) = peer::split(url)?;
        let peer = match self {
            Self::Local(local) => match local
                .upgrade()
                .and_then(|it| Some(it.get()?.router.clone()))
            {
                Some(router) => Peer::Local(router),
                None => {
                    let url = "this process".to_owned();
                    let why = "it is still starting, or has closed".to_owned();
                    return Err(PeerError::NoResponse { url, why });
                }
            },
            Self::Remote { connections, .. } => Peer::with_pool(connections.clone(), origin, token),
        };
        Ok((peer, path))
    }
}

/// The warning that a service does not answer: once for a task, not with every try.
#[derive(Default)]
pub(super) struct UnreachableWarning(AtomicBool);

impl UnreachableWarning {
    /// Says it, unless it was said. The URL comes without its query, which may hold a token.
    pub(super) fn warn_once(&self, who: &str, url: &str, error: &PeerError) {
        if !self.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(url, %error, "no response from {who}; retrying until there is one");
        }
    }
}

/// Returns `true` if the same request may be accepted another time after a refusal with this
/// status.
pub(super) fn is_passing(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..)
}

/// Waits that double.
pub(super) struct Backoff(Duration);

impl Default for Backoff {
    fn default() -> Self {
        Self(BACKOFF_BOUNDS.0)
    }
}

impl Backoff {
    pub(super) async fn wait(&mut self) {
        tokio::time::sleep(self.0).await;
        self.0 = (self.0 * 2).min(BACKOFF_BOUNDS.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::extract::Request;
    use parking_lot::Mutex;

    /// Whoever gives a runtime a task gives it the URL to report to, and must not get its token.
    #[tokio::test]
    async fn a_heartbeat_shows_the_token_and_a_report_does_not() {
        type Heard = Arc<Mutex<Vec<(String, Option<String>)>>>;
        let heard = Heard::default();
        let said = Arc::clone(&heard);
        let orchestrator = Router::new().fallback(async move |request: Request| {
            let shown = request.headers().get("ktsu-token");
            let shown = shown.map(|value| value.to_str().unwrap_or_default().to_owned());
            let path = request.uri().path().to_owned();
            said.lock().push((path, shown));
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, orchestrator).await });
        let callbacks = Callbacks::remote_as(&*url, Some("t0ken-of-mine".to_owned()));
        let beaten = callbacks.beat(ATTEMPT_TIMEOUT, Bytes::new()).await.unwrap();
        assert_eq!(beaten.0, 200);
        let report = format!("{url}/report?token=t");
        let silence = UnreachableWarning::default();
        let taken = callbacks.deliver(&report, Bytes::new(), &silence).await;
        assert_eq!(taken, DeliveryOutcome::Accepted(Vec::new()));
        let heard = heard.lock();
        let shown = Some("t0ken-of-mine".to_owned());
        let expected = [
            ("/heartbeat".to_owned(), shown),
            ("/report".to_owned(), None),
        ];
        assert_eq!(*heard, expected);
    }

    /// An orchestrator that answers everything with a status, and the paths that it was asked for.
    async fn answering(status: u16) -> (String, Arc<Mutex<Vec<String>>>) {
        let heard = Arc::<Mutex<Vec<String>>>::default();
        let said = Arc::clone(&heard);
        let status = axum::http::StatusCode::from_u16(status).unwrap();
        let orchestrator = Router::new().fallback(async move |request: Request| {
            said.lock().push(request.uri().to_string());
            status
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, orchestrator).await });
        (url, heard)
    }

    /// A URL at which nothing listens.
    const DEAD: &str = "http://127.0.0.1:1";

    #[tokio::test]
    async fn a_report_that_one_orchestrator_does_not_take_goes_to_the_next() {
        for status in [307, 308, 421, 500, 503] {
            let (standby, asked) = answering(status).await;
            let (owner, heard) = answering(200).await;
            let all = vec![DEAD.to_owned(), standby, owner];
            let callbacks = Callbacks::remote_among(ConnectionPool::default(), all, None);
            let url = format!("{DEAD}/runs/r/steps/s/report?token=t");
            let silence = UnreachableWarning::default();
            for _ in 0..2 {
                let taken = callbacks.deliver(&url, Bytes::new(), &silence).await;
                assert_eq!(taken, DeliveryOutcome::Accepted(Vec::new()), "{status}");
            }
            let path = "/runs/r/steps/s/report?token=t";
            assert_eq!(*heard.lock(), [path, path], "{status}");
            assert_eq!(asked.lock().len(), 1, "the owner is first from then on");
        }
    }

    #[tokio::test]
    async fn a_heartbeat_goes_to_the_orchestrator_that_took_the_last_one() {
        let (standby, asked) = answering(503).await;
        let (owner, heard) = answering(200).await;
        let all = vec![DEAD.to_owned(), standby, owner];
        let callbacks = Callbacks::remote_among(ConnectionPool::default(), all, None);
        for _ in 0..2 {
            let taken = callbacks.beat(ATTEMPT_TIMEOUT, Bytes::new()).await;
            assert_eq!(taken.unwrap().0, 200);
        }
        assert_eq!(*heard.lock(), ["/heartbeat", "/heartbeat"]);
        assert_eq!(asked.lock().len(), 1);
    }

    #[tokio::test]
    async fn a_call_of_a_tool_of_the_orchestrator_goes_to_the_next_as_well() {
        let (standby, _) = answering(503).await;
        let (owner, heard) = answering(202).await;
        let callbacks = Callbacks::remote_among(
            ConnectionPool::default(),
            vec![standby.clone(), owner],
            None,
        );
        let url = format!("{standby}/tools/ktsu/kv?run=r&token=t");
        let (peer, path) = crate::alternatives::server(&callbacks, &url).unwrap();
        let (status, _) = peer.post(&path, &[], Bytes::new()).await.unwrap();
        assert_eq!(status, 202);
        assert_eq!(*heard.lock(), ["/tools/ktsu/kv?run=r&token=t"]);
    }
}
