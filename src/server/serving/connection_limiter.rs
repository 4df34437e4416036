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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// How many responses may wait for space at once. Each is in memory without being counted.
const MAX_WAITING_RESPONSES: usize = 4;
/// How long a response waits for space.
const SPACE_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a waiting response checks for space.
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
    /// Whether it was notified.
    leaves: bool,
    /// Whether a request is under way.
    busy: bool,
    /// When its last answer was handed over, or it came.
    idle_since: Instant,
    /// Since when it has taken nothing of what waits for it.
    unread_since: Option<Instant>,
    /// Since when the rest of its request's body is waited for.
    owes_since: Option<Instant>,
    /// What waits for it, piece by piece: each stays in memory as a whole until all of it is sent.
    waiting: VecDeque<usize>,
    /// Bytes of those pieces.
    unsent: usize,
    /// Bytes of the first piece that are sent.
    sent: usize,
    /// Whether nothing was there to read at some time since its last request began.
    paused: bool,
    /// Requests in a row that were there without a pause.
    pipelined: usize,
}

/// The position of a request among those of its connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RequestPosition {
    /// Whether it was there before its client can have read the answer before it.
    pub(super) is_ahead: bool,
    /// Whether it is the last one that the connection may send: too many came ahead.
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
        let mut state = self.lock();
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

    /// How many places are taken.
    pub(super) fn seated(&self) -> usize {
        self.lock().slots.len()
    }

    /// Asks as many clients to leave as there are newcomers: first those that do not read, the
    /// longest first, then those with unsent bodies, then those that send requests ahead, then idle
    /// ones.
    pub(super) fn evict_for(&self, newcomers: usize) {
        let mut state = self.lock();
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
        self.lock().closing = true;
    }

    fn lock(&self) -> MutexGuard<'_, LimiterState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
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

/// Why a client may be evicted, best reason first, and since when it applies.
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

    /// Whether the server stops.
    pub(super) fn is_closing(&self) -> bool {
        self.limiter.lock().closing
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
    /// clients use too much, and is refused if there is no space in time.
    pub(super) async fn reserve_space(&self, bytes: usize) -> bool {
        if self.try_reserve_space(bytes) {
            return true;
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
        let mut state = self.limiter.lock();
        let fits = state.free_space(bytes, self.limiter.unsent_bytes)
            || bytes <= SMALL_RESPONSE_BYTES
            || state.unsent == 0;
        if fits {
            state.hold(self.id, bytes);
        }
        fits
    }

    /// Whether a streamed response may continue: fewer bytes wait than the limit, once clients that
    /// do not read are closed.
    pub(super) fn has_space(&self) -> bool {
        let mut state = self.limiter.lock();
        state.free_space(0, self.limiter.unsent_bytes)
    }

    /// Reserves space for a chunk of a streamed response.
    pub(super) fn reserve_more(&self, bytes: usize) {
        self.limiter.lock().hold(self.id, bytes);
    }

    /// So many bytes are sent. A piece waits no longer once all of it is.
    pub(super) fn sent(&self, bytes: usize) {
        let mut state = self.limiter.lock();
        let freed = state.slots.get_mut(&self.id).map(|client| {
            client.sent += bytes;
            client.release_sent()
        });
        state.unsent = state.unsent.saturating_sub(freed.unwrap_or_default());
    }

    /// So many bytes of the answer that was counted last will not be sent.
    pub(super) fn release_unsent(&self, bytes: usize) {
        let mut state = self.limiter.lock();
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
        self.limiter.lock().slots.get_mut(&self.id).map(change)
    }
}

impl Drop for ConnectionSlot {
    fn drop(&mut self) {
        let mut state = self.limiter.lock();
        if let Some(client) = state.slots.remove(&self.id) {
            state.unsent = state.unsent.saturating_sub(client.unsent);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn has_to_leave(seat: &ConnectionSlot) -> bool {
        seat.evicted().now_or_never().is_some()
    }

    #[tokio::test(start_paused = true)]
    async fn who_does_not_read_leaves_first_and_the_longest_first() {
        let room = ConnectionLimiter::new(4, 100, 8);
        let [idle, first, second, busy] = [(); 4].map(|()| room.try_acquire().expect("a place"));
        assert!(room.try_acquire().is_none());
        busy.begin_request();
        for seat in [&first, &second] {
            seat.begin_request();
            seat.mark_stalled();
            tokio::time::advance(Duration::from_secs(2)).await;
        }
        room.evict_for(1);
        assert!(has_to_leave(&first));
        assert!(!has_to_leave(&second) && !has_to_leave(&idle) && !has_to_leave(&busy));
        // It was told, and has not gone yet: nobody else has to for the same newcomer.
        room.evict_for(1);
        assert!(!has_to_leave(&second));
        room.evict_for(3);
        assert!(has_to_leave(&second) && has_to_leave(&idle));
        assert!(!has_to_leave(&busy), "its request is under way");
        drop(first);
        assert!(room.try_acquire().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn who_has_not_sent_its_body_leaves_after_who_does_not_read() {
        let room = ConnectionLimiter::new(5, 100, 8);
        let [unread, first, second, sent, idle] =
            [(); 5].map(|()| room.try_acquire().expect("a place"));
        for seat in [&first, &second, &sent] {
            seat.begin_request();
            seat.body_pending();
            tokio::time::advance(BODY_TIMEOUT / 5).await;
            // More of it came, and not all.
            seat.body_pending();
        }
        unread.begin_request();
        unread.mark_stalled();
        tokio::time::advance(BODY_TIMEOUT / 5).await;
        room.evict_for(5);
        let seats = [&unread, &first, &second, &sent, &idle];
        assert!(seats.iter().all(|seat| !has_to_leave(seat)), "too early");
        sent.body_complete();
        tokio::time::advance(BODY_TIMEOUT).await;
        for leaves in [&unread, &first, &second] {
            room.evict_for(1);
            assert!(has_to_leave(leaves));
            drop(room.lock().slots.remove(&leaves.id));
        }
        tokio::time::advance(IDLE_TIMEOUT).await;
        room.evict_for(2);
        assert!(!has_to_leave(&sent), "its request is under way");
        assert!(has_to_leave(&idle));
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_ahead_leaves_before_who_asks_nothing() {
        let room = ConnectionLimiter::new(2, 100, 8);
        let (idle, ahead) = (
            room.try_acquire().expect("one"),
            room.try_acquire().expect("two"),
        );
        tokio::time::advance(IDLE_TIMEOUT).await;
        for _ in 0..=PIPELINING_THRESHOLD {
            ahead.begin_request();
            ahead.end_request();
        }
        ahead.begin_request();
        room.evict_for(1);
        assert!(has_to_leave(&ahead) && !has_to_leave(&idle));
    }

    #[tokio::test(start_paused = true)]
    async fn who_reads_again_or_only_just_stopped_stays() {
        let room = ConnectionLimiter::new(2, 100, 8);
        let (reads, stops) = (
            room.try_acquire().expect("one"),
            room.try_acquire().expect("two"),
        );
        for seat in [&reads, &stops] {
            seat.begin_request();
        }
        reads.mark_stalled();
        tokio::time::advance(UNREAD_TIMEOUT * 2).await;
        reads.mark_reading();
        stops.mark_stalled();
        room.evict_for(2);
        assert!(!has_to_leave(&reads) && !has_to_leave(&stops));
    }

    #[tokio::test(start_paused = true)]
    async fn large_answers_wait_up_to_a_bound_and_push_out_who_does_not_read() {
        let large = SMALL_RESPONSE_BYTES + 1;
        let room = ConnectionLimiter::new(4, 2 * large, 8);
        let [one, two, three] = [(); 3].map(|()| room.try_acquire().expect("a place"));
        assert!(one.try_reserve_space(large) && two.try_reserve_space(large));
        assert!(!three.try_reserve_space(large), "both may be reading");
        assert!(
            three.try_reserve_space(SMALL_RESPONSE_BYTES),
            "a small answer always goes"
        );
        assert!(!three.has_space(), "a stream waits");
        one.sent(large - 1);
        assert!(!three.has_space(), "the rest of an answer keeps all of it");
        one.sent(1);
        three.sent(SMALL_RESPONSE_BYTES);
        assert!(three.has_space());
        assert!(
            three.try_reserve_space(large),
            "what was sent waits no longer"
        );
        two.mark_stalled();
        tokio::time::advance(UNREAD_TIMEOUT).await;
        assert!(one.try_reserve_space(large));
        assert!(has_to_leave(&two) && !has_to_leave(&three));
        drop((one, two, three));
        assert_eq!(room.lock().unsent, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_larger_than_the_bound_is_sent_once_nothing_else_waits() {
        let room = ConnectionLimiter::new(2, 100, 8);
        let (reads, asks) = (
            room.try_acquire().expect("one"),
            room.try_acquire().expect("two"),
        );
        assert!(reads.reserve_space(10 * SMALL_RESPONSE_BYTES).await);
        let late = asks.reserve_space(10 * SMALL_RESPONSE_BYTES);
        let read = async {
            sleep(SPACE_TIMEOUT / 2).await;
            reads.sent(10 * SMALL_RESPONSE_BYTES);
        };
        let (fits, ()) = tokio::join!(late, read);
        assert!(fits, "it waited for the other client to read");
        let asked = Instant::now();
        assert!(!reads.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
        assert!(asked.elapsed() >= SPACE_TIMEOUT);
    }

    #[tokio::test(start_paused = true)]
    async fn a_few_answers_wait_for_room_and_the_next_is_refused_at_once() {
        let room = ConnectionLimiter::new(MAX_WAITING_RESPONSES + 2, 100, 8);
        let mut seats: Vec<_> = (0..MAX_WAITING_RESPONSES + 2)
            .filter_map(|_| room.try_acquire())
            .collect();
        let first = seats.pop().expect("a place");
        assert!(first.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
        let last = seats.pop().expect("a place");
        let wait = seats
            .iter()
            .map(|seat| seat.reserve_space(2 * SMALL_RESPONSE_BYTES));
        let (refused, took) = tokio::join!(futures_util::future::join_all(wait), async {
            let asked = Instant::now();
            assert!(!last.reserve_space(2 * SMALL_RESPONSE_BYTES).await);
            asked.elapsed()
        });
        assert_eq!(
            (refused, took),
            (vec![false; MAX_WAITING_RESPONSES], Duration::ZERO)
        );
    }

    #[tokio::test]
    async fn requests_in_a_row_are_counted_only_if_they_came_without_a_pause() {
        let room = ConnectionLimiter::new(1, 100, 2);
        let seat = room.try_acquire().expect("a place");
        // Asks, reads the answer, asks again.
        for _ in 0..5 {
            seat.mark_paused();
            assert_eq!(seat.begin_request(), RequestPosition::default());
            seat.end_request();
        }
        // Four at once.
        seat.mark_paused();
        let mut last = Vec::new();
        for _ in 0..4 {
            last.push(seat.begin_request().is_last);
            seat.end_request();
        }
        assert_eq!(last, [false, false, true, true]);
    }
}
