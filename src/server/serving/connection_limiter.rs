//! Connection slots: who has one, and who is closed if there are none left.
//!
//! ```text
//! newcomer ─▶ a free slot ──────────────────────────▶ connection
//!         └─▶ none: close a client that does not read, then one that has not sent its request's
//!             body, then one that sends requests ahead of the responses, then an idle one
//!                                              └────▶ its slot
//! response ─▶ fits the limit of waiting bytes, or nothing else waits ─▶ sent
//!         └─▶ not: close clients that do not read ─▶ fits? sent; else a few wait a moment, then 503
//! ```
//!
//! There is no limit per address, because all clients behind a proxy share one.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::{Instant, sleep};

/// A client that has read nothing for this long may be closed when slots are needed.
const UNREAD_TIMEOUT: Duration = Duration::from_millis(250);
/// A client that has not completed its body for this long may be closed when slots are needed.
/// Sending single bytes does not help: the whole time counts.
const BODY_TIMEOUT: Duration = Duration::from_millis(500);
/// A connection without a request for this long may be closed when slots are needed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(1);
/// This many requests in a row without a pause count as sending ahead.
const PIPELINING_THRESHOLD: usize = 4;
/// A response of at most this size is always sent.
const SMALL_RESPONSE_BYTES: usize = 16 * 1024;

/// Number of responses that may wait for space at once. Each is in memory without being counted.
const MAX_WAITING_RESPONSES: usize = 4;
/// The time that a response waits for space.
const SPACE_TIMEOUT: Duration = Duration::from_secs(5);
/// The time between two checks for space by a waiting response.
pub(super) const SPACE_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The places of one server.
#[derive(Debug)]
pub(super) struct ConnectionLimiter {
    /// Connections at once.
    places: usize,
    /// Bytes of answers that may wait for their clients, over all connections.
    unsent_bytes: usize,
    /// Pipelined requests in a row that a connection may send.
    pipelined: usize,
    /// Permits for responses that wait for space.
    response_waiters: Semaphore,
    /// Held for a few lines at a time; a panic there would leave sums that are still usable.
    state: Mutex<LimiterState>,
}

#[derive(Debug, Default)]
struct LimiterState {
    next: u64,
    slots: HashMap<u64, ClientState>,
    /// Bytes of answers that wait, over all connections.
    unsent: usize,
    closing: bool,
}

/// The state of one connection's client.
#[derive(Debug)]
struct ClientState {
    /// Notified when its slot is needed.
    leave: Arc<Notify>,
    /// True if it was notified.
    leaves: bool,
    /// True if a request is in progress.
    busy: bool,
    /// The time at which its last answer was handed over, or it came.
    idle_since: Instant,
    /// Since when it has taken nothing of what waits for it.
    unread_since: Option<Instant>,
    /// Since when the rest of its request's body is waited for.
    owes_since: Option<Instant>,
    /// The sizes of the pieces that wait for it: each piece stays in memory as a whole until all of
    /// it is sent.
    waiting: VecDeque<usize>,
    /// Bytes of those pieces.
    unsent: usize,
    /// Bytes of the first piece that are sent.
    sent: usize,
    /// True if nothing was there to read at some time since its last request began.
    paused: bool,
    /// Requests in a row that were there without a pause.
    pipelined: usize,
}

/// The position of a request among those of its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestPosition {
    /// True if it was there before its client can have read the answer before it.
    pub(super) is_ahead: bool,
    /// True if it is the last one that the connection may send: too many came ahead.
    pub(super) is_last: bool,
}

/// The place of one connection; free again when it is dropped.
#[derive(Debug)]
pub(super) struct ConnectionSlot {
    limiter: Arc<ConnectionLimiter>,
    id: u64,
    leave: Arc<Notify>,
}

impl ConnectionLimiter {
    pub(super) fn new(places: usize, unsent_bytes: usize, pipelined: usize) -> Arc<Self> {
        Arc::new(Self {
            places,
            unsent_bytes,
            pipelined,
            response_waiters: Semaphore::new(MAX_WAITING_RESPONSES),
            state: Mutex::default(),
        })
    }

    /// A place, if one is free.
    pub(super) fn try_acquire(self: &Arc<Self>) -> Option<ConnectionSlot> {
        let mut state = self.state.lock();
        if state.slots.len() >= self.places {
            return None;
        }
        let id = state.next;
        state.next += 1;
        let leave = Arc::new(Notify::new());
        let client = ClientState {
            leave: Arc::clone(&leave),
            leaves: false,
            busy: false,
            idle_since: Instant::now(),
            unread_since: None,
            owes_since: None,
            waiting: VecDeque::new(),
            unsent: 0,
            sent: 0,
            paused: true,
            pipelined: 0,
        };
        state.slots.insert(id, client);
        Some(ConnectionSlot {
            limiter: Arc::clone(self),
            id,
            leave,
        })
    }

    /// Number of places that are taken.
    pub(super) fn seated(&self) -> usize {
        self.state.lock().slots.len()
    }

    /// Asks as many clients to leave as there are newcomers: first those that do not read, the
    /// longest first, then those with unsent bodies, then those that send requests ahead, then idle
    /// ones.
    pub(super) fn evict_for(&self, newcomers: usize) {
        let mut state = self.state.lock();
        let leaving = state.slots.values().filter(|client| client.leaves).count();
        let wanted = newcomers.saturating_sub(leaving);
        if wanted == 0 {
            return;
        }
        let now = Instant::now();
        let found = state.slots.iter();
        let mut found: Vec<_> = found
            .filter_map(|(id, client)| Some((client.eviction_reason(now)?, *id)))
            .collect();
        found.sort_unstable();
        for (_, id) in found.into_iter().take(wanted) {
            state.evict(id);
        }
    }

    /// Stops the server: waiting responses are not delayed any longer.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
    }
}

impl LimiterState {
    fn evict(&mut self, id: u64) {
        if let Some(client) = self.slots.get_mut(&id) {
            client.leaves = true;
            client.leave.notify_one();
            self.unsent = self.unsent.saturating_sub(client.unsent);
            client.unsent = 0;
            client.waiting.clear();
        }
    }

    fn hold(&mut self, id: u64, bytes: usize) {
        if let Some(client) = self.slots.get_mut(&id).filter(|client| !client.leaves) {
            client.waiting.push_back(bytes);
            client.unsent += bytes;
            self.unsent += bytes;
        }
    }

    /// Closes connections whose clients do not read, the longest first, until this many bytes fit.
    fn free_space(&mut self, bytes: usize, most: usize) -> bool {
        let now = Instant::now();
        while self.unsent.saturating_add(bytes) > most {
            let holders = self.slots.iter();
            let unread = holders
                .filter(|(_, client)| client.unsent > 0)
                .filter_map(|(id, client)| Some((client.unread(now)?, *id)))
                .min();
            match unread {
                Some((_, id)) => self.evict(id),
                None => return false,
            }
        }
        true
    }
}

/// The reason why a client may be evicted, best reason first, and the time since which it applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum EvictionReason {
    DoesNotRead(Instant),
    OwesBody(Instant),
    Pipelines(Instant),
    Idle(Instant),
}

impl ClientState {
    /// Removes the chunks that were sent, and returns their size.
    fn release_sent(&mut self) -> usize {
        let mut freed = 0;
        while let Some(piece) = self.waiting.front().filter(|piece| **piece <= self.sent) {
            self.sent -= piece;
            freed += piece;
            self.waiting.pop_front();
        }
        if self.waiting.is_empty() {
            // Headers are sent, too, and were not counted.
            self.sent = 0;
        }
        self.unsent = self.unsent.saturating_sub(freed);
        freed
    }

    fn eviction_reason(&self, now: Instant) -> Option<EvictionReason> {
        if self.leaves {
            return None;
        }
        let idle = || {
            let since = self.idle_since;
            let long = !self.busy && now.duration_since(since) >= IDLE_TIMEOUT;
            long.then_some(EvictionReason::Idle(since))
        };
        let ahead = || {
            let many = self.pipelined >= PIPELINING_THRESHOLD;
            many.then_some(EvictionReason::Pipelines(self.idle_since))
        };
        let owes = || {
            let since = self.owes_since?;
            let long = now.duration_since(since) >= BODY_TIMEOUT;
            long.then_some(EvictionReason::OwesBody(since))
        };
        let unread = self.unread(now).map(EvictionReason::DoesNotRead);
        unread.or_else(owes).or_else(ahead).or_else(idle)
    }

    /// Since when the client has read nothing, if that is long enough to count.
    fn unread(&self, now: Instant) -> Option<Instant> {
        let since = self.unread_since.filter(|_| !self.leaves)?;
        (now.duration_since(since) >= UNREAD_TIMEOUT).then_some(since)
    }
}

impl ConnectionSlot {
    /// Resolves when the slot is needed for another client.
    pub(super) async fn evicted(&self) {
        self.leave.notified().await;
    }

    /// Returns `true` if the server stops.
    pub(super) fn is_closing(&self) -> bool {
        self.limiter.state.lock().closing
    }

    /// Nothing is there to read: the client waits for its answer, or for something to ask.
    pub(super) fn mark_paused(&self) {
        self.client(|client| client.paused = true);
    }

    /// Begins a request. Clients that read a response before the next request leave a pause.
    pub(super) fn begin_request(&self) -> RequestPosition {
        let most = self.limiter.pipelined;
        let turn = self.client(|client| {
            client.busy = true;
            client.owes_since = None;
            client.pipelined = match std::mem::take(&mut client.paused) {
                true => 0,
                false => client.pipelined + 1,
            };
            RequestPosition {
                is_ahead: client.pipelined > 0,
                is_last: client.pipelined >= most,
            }
        });
        turn.unwrap_or_default()
    }

    /// The rest of the request's body is waited for.
    pub(super) fn body_pending(&self) {
        self.client(|client| {
            client.owes_since.get_or_insert_with(Instant::now);
        });
    }

    /// The body of the request is no longer awaited.
    pub(super) fn body_complete(&self) {
        self.client(|client| client.owes_since = None);
    }

    /// The answer is handed over, or given up.
    pub(super) fn end_request(&self) {
        self.client(|client| {
            client.busy = false;
            client.idle_since = Instant::now();
        });
    }

    /// Reserves space for a response of this many bytes. A large one waits while other reading
    /// clients use too much, and is refused if there is no space in time. Few may wait at once, and
    /// none for a client that sends requests ahead of its responses: hundreds of those would leave
    /// no turn to anybody else.
    pub(super) async fn reserve_space(&self, bytes: usize) -> bool {
        if self.try_reserve_space(bytes) {
            return true;
        }
        if self.client(|client| client.pipelined > 0).unwrap_or(true) {
            return false;
        }
        let Ok(_patient) = self.limiter.response_waiters.try_acquire() else {
            return false;
        };
        let until = Instant::now() + SPACE_TIMEOUT;
        while Instant::now() < until {
            sleep(SPACE_POLL_INTERVAL).await;
            if self.try_reserve_space(bytes) {
                return true;
            }
        }
        false
    }

    fn try_reserve_space(&self, bytes: usize) -> bool {
        let mut state = self.limiter.state.lock();
        let fits = state.free_space(bytes, self.limiter.unsent_bytes)
            || bytes <= SMALL_RESPONSE_BYTES
            || state.unsent == 0;
        if fits {
            state.hold(self.id, bytes);
        }
        fits
    }

    /// Returns `true` if a streamed response may continue: fewer bytes wait than the limit, once
    /// clients that do not read are closed.
    pub(super) fn has_space(&self) -> bool {
        let mut state = self.limiter.state.lock();
        state.free_space(0, self.limiter.unsent_bytes)
    }

    /// Reserves space for a chunk of a streamed response.
    pub(super) fn reserve_more(&self, bytes: usize) {
        self.limiter.state.lock().hold(self.id, bytes);
    }

    /// So many bytes are sent. A piece waits no longer once all of it is.
    pub(super) fn sent(&self, bytes: usize) {
        let mut state = self.limiter.state.lock();
        let freed = state.slots.get_mut(&self.id).map(|client| {
            client.sent += bytes;
            client.release_sent()
        });
        state.unsent = state.unsent.saturating_sub(freed.unwrap_or_default());
    }

    /// So many bytes of the answer that was counted last will not be sent.
    pub(super) fn release_unsent(&self, bytes: usize) {
        let mut state = self.limiter.state.lock();
        let freed = state.slots.get_mut(&self.id).map(|client| {
            let Some(last) = client.waiting.back_mut() else {
                return 0;
            };
            let bytes = bytes.min(*last);
            *last -= bytes;
            client.unsent -= bytes;
            bytes + client.release_sent()
        });
        state.unsent = state.unsent.saturating_sub(freed.unwrap_or_default());
    }

    /// The client takes nothing more for now.
    pub(super) fn mark_stalled(&self) {
        self.client(|client| client.unread_since = Some(Instant::now()));
    }

    /// The client reads.
    pub(super) fn mark_reading(&self) {
        self.client(|client| client.unread_since = None);
    }

    fn client<T>(&self, change: impl FnOnce(&mut ClientState) -> T) -> Option<T> {
        self.limiter
            .state
            .lock()
            .slots
            .get_mut(&self.id)
            .map(change)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.limiter.state.lock();
        if let Some(client) = state.slots.remove(&self.id) {
            state.unsent = state.unsent.saturating_sub(client.unsent);
        }
    }
}

#[cfg(test)]
mod tests;
