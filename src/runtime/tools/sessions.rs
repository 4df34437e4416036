//! The sessions of a task, and the calls in progress in them. They are closed however the task
//! ends.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Map, Value};
use tokio::task::{Id, JoinSet};
use tokio::time::{Instant as Until, timeout};

use super::catalogue::Catalogue;
use super::names;
use super::pins::{ToolAgreement, ToolDriftError};
use super::references::referenced;
use super::{McpServer, ToolCallResult, ToolClient, ToolError, ToolErrorCode, ToolSession};
use ktsu_contract::runtime::ToolServer;

/// The time that one call may take, where its server's file says nothing and the task has more time
/// left.
const DEFAULT_CALL_TIMEOUT: Duration = Duration::from_secs(60);

/// The time that a session may take to end: to cancel its calls, then to say that it is over. No
/// task waits for it.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// The sessions of one task.
#[derive(Default)]
pub(crate) struct Sessions {
    open: BTreeMap<String, Arc<dyn ToolSession>>,
    /// By the name of the server, too.
    terms: BTreeMap<String, Arc<ServerTerms>>,
    under_way: JoinSet<Result<ToolCallResult, ToolError>>,
    /// The numbers of the `tool.called`s, and since when they are under way.
    called: HashMap<Id, (u64, Instant)>,
}

/// The terms for all calls of a server.
struct ServerTerms {
    agreed: ToolAgreement,
    /// The time that one may take.
    limit: Duration,
}

/// A call to send: announced, and durable.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct OutgoingCall {
    /// The number of its `tool.called`.
    pub(crate) called: u64,
    pub(crate) server: String,
    pub(crate) tool: String,
    pub(crate) arguments: Map<String, Value>,
    /// Absent where nobody recorded one.
    pub(crate) key: Option<String>,
}

/// The reason why a task cannot begin.
#[derive(Debug, thiserror::Error)]
pub(crate) enum OpenSessionError {
    /// A server is out of reach, or does not say what it offers.
    #[error("the tool server {0} cannot be used: {1}")]
    Unreachable(String, ToolError),
    /// See [`ToolDriftError`].
    #[error(transparent)]
    Drift(#[from] ToolDriftError),
}

impl OpenSessionError {
    /// The reason why a server cannot be used. It is named once, though the client names it, too.
    fn of(server: &str, mut error: ToolError) -> Self {
        let named = format!("tool server {server}: ");
        if let Some(rest) = error.message.strip_prefix(&named) {
            error.message = rest.to_owned();
        }
        Self::Unreachable(server.to_owned(), error)
    }
}

impl Sessions {
    /// Opens a session with each server of which something may be called, and asks it what it
    /// offers.
    ///
    /// # Errors
    /// [`OpenSessionError`], for the first server in order; the sessions that are open are closed.
    pub(crate) async fn open(
        &mut self,
        client: &Arc<dyn ToolClient>,
        servers: Vec<(&ToolServer, McpServer)>,
        catalogue: &mut Catalogue,
    ) -> Result<(), OpenSessionError> {
        let mut opening = JoinSet::new();
        let mut described = Vec::new();
        for (at, (dispatched, server)) in servers.into_iter().enumerate() {
            let client = Arc::clone(client);
            opening.spawn(async move { (at, client.open(server).await) });
            described.push(dispatched);
        }
        let mut opened: BTreeMap<usize, Result<Arc<dyn ToolSession>, ToolError>> = BTreeMap::new();
        while let Some(one) = opening.join_next().await {
            if let Ok((at, session)) = one {
                if let (Ok(session), Some(server)) = (&session, described.get(at)) {
                    let session = referenced(Arc::clone(session), &server.references);
                    self.open.insert(server.name.clone(), session);
                }
                opened.insert(at, session);
            }
        }
        for (at, server) in described.into_iter().enumerate() {
            let words = "opening the session broke off";
            let broken = || Err(ToolError::unsent(ToolErrorCode::Closed, words));
            let session = opened.remove(&at).unwrap_or_else(broken);
            let session = session.map_err(|error| OpenSessionError::of(&server.name, error))?;
            let offered = session.tools();
            catalogue.add_server(server, &offered)?;
            for entry in names::unmatched(&server.allowlist, &offered) {
                let server = &server.name;
                tracing::warn!(
                    server,
                    entry,
                    "an allowlist entry matches no tool of the server"
                );
            }
            let terms = ServerTerms {
                agreed: ToolAgreement::of(server, &offered),
                limit: server
                    .timeout_ms
                    .map_or(DEFAULT_CALL_TIMEOUT, Duration::from_millis),
            };
            self.terms.insert(server.name.clone(), Arc::new(terms));
        }
        Ok(())
    }

    /// Sends a call, and does not wait for it.
    pub(crate) fn send(&mut self, sending: OutgoingCall, key: String, until: Until) {
        let session = self.open.get(&sending.server).map(Arc::clone);
        let terms = self.terms.get(&sending.server).map(Arc::clone);
        let called = sending.called;
        let answer = async move {
            let Some((session, terms)) = session.zip(terms) else {
                let words = "no session with the server is open";
                return Err(ToolError::unsent(ToolErrorCode::Closed, words));
            };
            terms.call(&*session, sending, key, until).await
        };
        let handle = self.under_way.spawn(answer);
        self.called.insert(handle.id(), (called, Instant::now()));
    }

    /// Returns `true` if calls are in progress.
    pub(crate) fn has_calls(&self) -> bool {
        !self.under_way.is_empty()
    }

    /// The next answers: waits for one, and takes those that are there as well. Empty if no call is
    /// under way.
    pub(crate) async fn answers(&mut self) -> Vec<(u64, Result<ToolCallResult, ToolError>)> {
        let mut answers = Vec::new();
        let mut next = self.under_way.join_next_with_id().await;
        while let Some(joined) = next {
            let (id, answer) = match joined {
                Ok((id, answer)) => (id, answer),
                // Nobody knows how far it came.
                Err(error) => {
                    let words = "the call broke off by a fault of the runtime";
                    let broken = ToolError::sent(ToolErrorCode::Closed, words);
                    (error.id(), Err(broken))
                }
            };
            if let Some((called, started)) = self.called.remove(&id) {
                let answer = answer.map_err(|error| with_duration(error, started));
                answers.push((called, answer));
            }
            next = self.under_way.try_join_next_with_id();
        }
        answers
    }
}

/// An error with the time it took, where it does not say so itself.
fn with_duration(error: ToolError, started: Instant) -> ToolError {
    match error.duration_ms {
        0 => ToolError {
            duration_ms: since(started),
            ..error
        },
        _ => error,
    }
}

fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX)
}

impl ServerTerms {
    /// Makes a call. A server that refuses it because it has forgotten the session has not taken
    /// it, stateful or not: the call is made once more, under its key, in a new session (decision
    /// A5).
    async fn call(
        &self,
        session: &dyn ToolSession,
        sending: OutgoingCall,
        key: String,
        until: Until,
    ) -> Result<ToolCallResult, ToolError> {
        self.renew(session, &sending.tool, until).await?;
        match self.call_once(session, &sending, &key, until).await {
            Err(error) if error.code == ToolErrorCode::SessionExpired && !error.sent => {
                self.renew(session, &sending.tool, until).await?;
                self.call_once(session, &sending, &key, until).await
            }
            answered => answered,
        }
    }

    /// Asks what the server offers now, which must still be what was agreed on.
    async fn renew(
        &self,
        session: &dyn ToolSession,
        tool: &str,
        until: Until,
    ) -> Result<(), ToolError> {
        let offered = timeout(self.limit(until), session.renew()).await;
        let offered = offered.unwrap_or_else(|_| {
            let words = "the server did not say in time what it offers now";
            Err(ToolError::unsent(ToolErrorCode::Timeout, words))
        })?;
        Ok(self.agreed.check(&offered, tool)?)
    }

    async fn call_once(
        &self,
        session: &dyn ToolSession,
        sending: &OutgoingCall,
        key: &str,
        until: Until,
    ) -> Result<ToolCallResult, ToolError> {
        let started = Instant::now();
        let OutgoingCall {
            tool, arguments, ..
        } = sending;
        let call = session.call(tool, arguments, key, self.limit(until));
        let mut returned = call.await?;
        if returned.duration_ms == 0 {
            returned.duration_ms = since(started);
        }
        Ok(returned)
    }

    /// The time that a call may take which begins now.
    fn limit(&self, until: Until) -> Duration {
        self.limit
            .min(until.saturating_duration_since(Until::now()))
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        let open = std::mem::take(&mut self.open);
        let mut under_way = std::mem::take(&mut self.under_way);
        let Ok(here) = tokio::runtime::Handle::try_current() else {
            return;
        };
        if open.is_empty() {
            return;
        }
        here.spawn(async move {
            // A session that is still in use cannot be closed.
            under_way.shutdown().await;
            let mut closing = JoinSet::new();
            for session in open.into_values() {
                closing.spawn(session.close());
            }
            let all = async { while closing.join_next().await.is_some() {} };
            let _ = timeout(CLOSE_TIMEOUT, all).await;
        });
    }
}
