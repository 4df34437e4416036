//! Outgoing requests: every request that ktsu sends to an address from a file or a template.
//!
//! A URL is untrusted: it may come from somebody else's workflow or from a model. The address is
//! therefore checked (see [`address`]) after the name is resolved, and the checked address is the
//! one connected to: there is no second look-up with a different result. Redirects are not followed
//! and proxies not used, since both would choose an unchecked address.
//!
//! ```text
//! send: parse and check the URL -> wait for a place at that host -> start the clock
//!       -> resolve, check, connect -> write -> the beginning of the answer
//! ```
//!
//! [`Client::send`] is for answers that are kept whole, [`Client::acquire_slot`] for those that are
//! read as they arrive.
//!
//! Nothing here knows of webhooks or runs. Error messages are worded here and contain at most the
//! host, so that they may be recorded in a frame.

pub mod address;
mod connect;
mod stream;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, Method};
use parking_lot::Mutex;
use tokio::sync::Semaphore;

use address::AddressRules;
pub use address::AllowlistEntryError;
use connect::{GuardedConnections, NameSource};
pub use stream::{
    BodyError, RequestSlot, ResponseStream, SESSION_STREAMS_PER_REQUEST, SlotKind, StreamRequest,
};

/// The most bytes of an answer's body that are worth keeping. Who looks for something in it reads
/// a little more, see [`EgressRequest::keep`].
pub const MAX_KEPT_BYTES: usize = 64 * 1024;

/// The most requests to one host and port that are under way at once. It bounds the sockets and
/// their buffers (some 20 KiB each) when thousands of runs call one receiver, and is more than one
/// receiver can usefully work on.
pub const MAX_CONNECTIONS_PER_HOST: usize = 256;

/// The addresses that may be reached beyond the public ones (decision K6).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EgressPolicy {
    /// Hosts (`intranet.example`), hosts with a port (`intranet.example:8080`, `10.1.2.3:80`),
    /// addresses (`10.1.2.3`, `fd00::1`) and ranges (`10.0.0.0/8`).
    pub allow: Vec<String>,
    /// True if loopback addresses are allowed without being listed.
    pub loopback: bool,
}

/// One sending.
#[derive(Debug, Clone)]
pub struct EgressRequest {
    /// The method.
    pub method: Method,
    /// The URL as it resolved; checked before anything is sent.
    pub url: String,
    /// Headers beside `host`, `user-agent` and `content-length`.
    pub headers: HeaderMap,
    /// The body, empty for none.
    pub body: Bytes,
    /// From the moment there is a place at the host to the end of the answer.
    pub timeout: Duration,
    /// The most bytes of the answer's body to read.
    pub keep: usize,
    /// True if the URL leads to a service that this process runs itself, whatever the policy
    /// allows.
    pub is_to_itself: bool,
}

/// An answer, whatever its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EgressResponse {
    /// The HTTP status; redirects are answers too.
    pub status: u16,
    /// Its headers.
    pub headers: HeaderMap,
    /// The body, at most [`EgressRequest::keep`] bytes of it.
    pub body: Vec<u8>,
    /// True if the body is not whole: it was longer, or it broke off or was too slow after the
    /// status had come. A status is an answer in any case.
    pub truncated: bool,
    /// True if it is not whole because [`EgressRequest::timeout`] was over.
    pub timed_out: bool,
    /// From the moment there was a place at the host.
    pub duration_ms: u64,
}

/// The reason why there was no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EgressErrorCode {
    /// The URL or its address is not allowed; nothing was sent.
    Refused,
    /// No status within the time.
    Timeout,
    /// No connection, or one that broke before a status.
    Unreachable,
}

/// No answer. The message is in our words and may stand in a frame.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EgressError {
    /// The kind of failure.
    pub code: EgressErrorCode,
    /// The failure in words, which name the host at the most.
    pub message: String,
    /// True if anything of the request may have reached the other side. False only where that is
    /// certain: no connection was made.
    pub sent: bool,
}

impl EgressError {
    /// A failure before anything was sent.
    fn new(code: EgressErrorCode, message: impl Into<String>) -> Self {
        let message = message.into();
        let sent = false;
        Self {
            code,
            message,
            sent,
        }
    }

    /// The same, where some of it may have been sent.
    fn after_sending(self) -> Self {
        let sent = true;
        Self { sent, ..self }
    }
}

/// The guarded client. Cloning is cheap and shares connections and bounds.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    rules: Arc<AddressRules>,
    connections: GuardedConnections,
    places: Mutex<HashMap<String, Arc<Semaphore>>>,
    per_host: usize,
    gate: OnceLock<Gate>,
}

/// Returns `true` while something may leave.
pub type Gate = Arc<dyn Fn() -> bool + Send + Sync>;

/// The longest wait for a gate: longer than an owner takes to renew its ownership, or to lose it.
const GATE_TIMEOUT: Duration = Duration::from_secs(6);
/// The time between two looks at a gate that is closed.
const GATE_INTERVAL: Duration = Duration::from_millis(50);

impl Client {
    /// A client for a policy. Connections and certificates are loaded when first needed.
    pub fn new(policy: &EgressPolicy) -> Result<Self, AllowlistEntryError> {
        Self::with(policy, NameSource::System, MAX_CONNECTIONS_PER_HOST)
    }

    /// A client that opens at most `per_host` connections to a host at a time.
    ///
    /// # Errors
    ///
    /// As of [`Self::new`].
    pub fn with_connections_per_host(
        policy: &EgressPolicy,
        per_host: usize,
    ) -> Result<Self, AllowlistEntryError> {
        Self::with(policy, NameSource::System, per_host)
    }

    fn with(
        policy: &EgressPolicy,
        names: NameSource,
        per_host: usize,
    ) -> Result<Self, AllowlistEntryError> {
        let rules = Arc::new(AddressRules::new(&policy.allow, policy.loopback)?);
        Ok(Self(Arc::new(Inner {
            connections: GuardedConnections::new(Arc::clone(&rules), names),
            rules,
            places: Mutex::default(),
            per_host,
            gate: OnceLock::new(),
        })))
    }

    /// From now on nothing leaves while this returns `false`. Said once.
    pub fn set_gate(&self, gate: Gate) {
        // A second one would be a defect of the caller; the first one stays.
        let _ = self.0.gate.set(gate);
    }

    /// Waits until something may leave.
    pub(crate) async fn pass_gate(&self) -> Result<(), EgressError> {
        let Some(may_leave) = self.0.gate.get() else {
            return Ok(());
        };
        let begun = tokio::time::Instant::now();
        while !may_leave() {
            if begun.elapsed() >= GATE_TIMEOUT {
                let words = "this engine is not sure to own its ledger any more";
                return Err(EgressError::new(EgressErrorCode::Unreachable, words));
            }
            tokio::time::sleep(GATE_INTERVAL).await;
        }
        Ok(())
    }

    /// Sends once: never repeated, never redirected.
    pub async fn send(&self, request: EgressRequest) -> Result<EgressResponse, EgressError> {
        // The wait for a place comes before the clock starts. The queue is of our own making: a
        // receiver that answers promptly must not be reported as late because 10,000 runs called
        // it at once.
        let target = match request.is_to_itself {
            true => self.0.rules.own_target(&request.url)?,
            false => self.0.rules.target(&request.url)?,
        };
        let slot = self.acquire_slot_at(target, SlotKind::Exchange).await?;
        // Boxed, so that a run waiting for a place holds a pointer and not the whole exchange.
        Box::pin(exchange(slot, request)).await
    }

    /// Checks that the name of a URL may ever be reached: some names are always this machine,
    /// whatever resolves them. Others are judged by their addresses when they are connected to.
    ///
    /// # Errors
    /// [`EgressErrorCode::Refused`].
    pub fn check_name(&self, url: &str) -> Result<(), EgressError> {
        self.0.rules.check_name(url)
    }

    /// The places at one host and port; hosts nobody waits for are forgotten now and then.
    fn host_slots(&self, name: &str, count: usize) -> Arc<Semaphore> {
        let mut places = self.0.places.lock();
        if places.len() >= 1024 {
            places.retain(|_, places| Arc::strong_count(places) > 1);
        }
        let fresh = || Arc::new(Semaphore::new(count));
        Arc::clone(places.entry(name.to_owned()).or_insert_with(fresh))
    }
}

async fn exchange(
    slot: RequestSlot,
    request: EgressRequest,
) -> Result<EgressResponse, EgressError> {
    let started = Instant::now();
    let deadline = tokio::time::Instant::from_std(started) + request.timeout;
    let head = StreamRequest {
        method: request.method,
        headers: request.headers,
        body: request.body,
        timeout: request.timeout,
        idle: None,
        max_bytes: u64::MAX,
    };
    let mut answer = slot.send(head).await?;
    let mut body = Vec::new();
    let kept = keep(&mut answer, &mut body, request.keep);
    let kept = tokio::time::timeout_at(deadline, kept).await;
    Ok(EgressResponse {
        status: answer.status.as_u16(),
        headers: answer.headers,
        body,
        timed_out: kept.is_err(),
        truncated: kept.unwrap_or(true),
        duration_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
    })
}

/// Reads what is kept of a body; true if it is not the whole.
async fn keep(answer: &mut ResponseStream, body: &mut Vec<u8>, wanted: usize) -> bool {
    loop {
        match answer.chunk().await {
            Ok(Some(chunk)) => {
                let room = wanted - body.len();
                body.extend_from_slice(&chunk[..room.min(chunk.len())]);
                if chunk.len() > room {
                    return true;
                }
            }
            Ok(None) => return false,
            Err(_) => return true,
        }
    }
}
