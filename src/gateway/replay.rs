//! Recently answered calls: one key, one call to a provider.
//!
//! A runtime that is killed after the provider answered repeats the call under the same key, and
//! gets the reply that it missed. Simultaneous calls with one key are one call. It runs in a task
//! of its own, so that it ends, and its reply is kept, even if no caller waits any more. Failures
//! are returned to all waiting callers, and not kept, unless they cost something: what was paid for
//! is not paid for again, and is returned to a caller that missed it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tokio::sync::watch;

use super::error::{Code, ErrorCause, GatewayError};
use ktsu_contract::gateway::{AttemptUsage, ModelReply};

/// The time for which a reply is kept: longer than it takes to notice that a runtime is gone, to
/// dispatch its step again and to come back to the call.
const REPLY_RETENTION: Duration = Duration::from_secs(600);
/// Number of replies that are kept.
const MAX_REPLIES: usize = 4096;
/// Number of bytes of replies that are kept.
const MAX_BYTES: usize = 64 << 20;

/// The digest of a call's name together with what it asks for.
pub(super) type CallDigest = [u8; 32];

type ReplyOutcome = Result<Arc<ModelReply>, GatewayError>;

/// The replies, and the calls under way.
#[derive(Default)]
pub(super) struct GatewayReplyCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    slots: HashMap<CallDigest, CacheSlot>,
    /// Kept replies, the oldest first, with their bytes.
    order: VecDeque<(CallDigest, Instant, usize)>,
    bytes: usize,
}

enum CacheSlot {
    UnderWay(watch::Receiver<Option<ReplyOutcome>>),
    Done(ReplyOutcome),
}

impl CacheState {
    fn keep(&mut self, name: CallDigest, outcome: &ReplyOutcome, now: Instant) {
        let bytes = match outcome {
            Ok(reply) => size(reply),
            Err(failure) => 512 + failure.message.len() + failure.bill.size(),
        };
        self.slots.insert(name, CacheSlot::Done(outcome.clone()));
        self.order.push_back((name, now, bytes));
        self.bytes += bytes;
        self.forget(now);
    }

    /// Lets go of what is too old or too much.
    fn forget(&mut self, now: Instant) {
        while let Some((name, at, bytes)) = self.order.front().copied() {
            let old = now.saturating_duration_since(at) >= REPLY_RETENTION;
            if !old && self.order.len() <= MAX_REPLIES && self.bytes <= MAX_BYTES {
                break;
            }
            self.order.pop_front();
            self.slots.remove(&name);
            self.bytes -= bytes;
        }
    }
}

impl GatewayReplyCache {
    /// The reply to a call of this name, and whether it cost no call.
    pub(super) async fn ask<F>(
        self: &Arc<Self>,
        name: CallDigest,
        call: F,
    ) -> Result<(Arc<ModelReply>, bool), GatewayError>
    where
        F: Future<Output = Result<ModelReply, GatewayError>> + Send + 'static,
    {
        let (mut outcome, joined) = match self.enter(name, call) {
            CacheLookup::Cached(kept) => return kept.map(|reply| (reply, true)),
            CacheLookup::InFlight { outcome, joined } => (outcome, joined),
        };
        match outcome.wait_for(Option::is_some).await {
            Ok(told) => match &*told {
                Some(Ok(reply)) => Ok((Arc::clone(reply), joined)),
                Some(Err(failure)) => Err(failure.clone()),
                None => Err(lost()),
            },
            Err(_) => Err(lost()),
        }
    }

    fn enter<F>(self: &Arc<Self>, name: CallDigest, call: F) -> CacheLookup
    where
        F: Future<Output = Result<ModelReply, GatewayError>> + Send + 'static,
    {
        let mut state = self.0.lock();
        state.forget(Instant::now());
        match state.slots.get(&name) {
            Some(CacheSlot::Done(kept)) => CacheLookup::Cached(kept.clone()),
            Some(CacheSlot::UnderWay(outcome)) => CacheLookup::InFlight {
                outcome: outcome.clone(),
                joined: true,
            },
            None => {
                let (tell, outcome) = watch::channel(None);
                state
                    .slots
                    .insert(name, CacheSlot::UnderWay(outcome.clone()));
                let place = InFlightGuard {
                    replies: Arc::clone(self),
                    name,
                };
                tokio::spawn(async move {
                    let outcome = call.await.map(Arc::new);
                    // Kept before it is told: who asks next finds the one or the other.
                    place.end(&outcome);
                    tell.send_replace(Some(outcome));
                });
                CacheLookup::InFlight {
                    outcome,
                    joined: false,
                }
            }
        }
    }
}

enum CacheLookup {
    Cached(ReplyOutcome),
    InFlight {
        outcome: watch::Receiver<Option<ReplyOutcome>>,
        joined: bool,
    },
}

/// The place of a call under way; given up even if the call panics.
struct InFlightGuard {
    replies: Arc<GatewayReplyCache>,
    name: CallDigest,
}

impl InFlightGuard {
    fn end(self, outcome: &ReplyOutcome) {
        let paid = |failure: &GatewayError| failure.bill.total != AttemptUsage::default();
        if outcome.as_ref().err().is_none_or(paid) {
            let mut state = self.replies.0.lock();
            state.keep(self.name, outcome, Instant::now());
        }
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        let mut state = self.replies.0.lock();
        if let Some(CacheSlot::UnderWay(_)) = state.slots.get(&self.name) {
            state.slots.remove(&self.name);
        }
    }
}

fn lost() -> GatewayError {
    GatewayError::passing(
        Code::InternalError,
        ErrorCause::Provider,
        "the call broke off",
    )
}

/// About how much memory a reply takes.
fn size(reply: &ModelReply) -> usize {
    let calls = reply.tool_calls.iter();
    let calls = calls.map(|call| call.name.len() + call.arguments.to_string().len());
    256 + reply.content.len() + reply.model_resolved.len() + calls.sum::<usize>()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Context, Waker};

    use super::*;

    fn reply(content: &str) -> ModelReply {
        ModelReply {
            content: content.to_owned(),
            model_resolved: "p/m".to_owned(),
            tokens_in: 1,
            tokens_out: 1,
            tokens_cached: 0,
            tokens_reasoning: 0,
            cost_usd: 0.0,
            cost_micro_usd: None,
            prices: None,
            cached: false,
            tool_calls: Vec::new(),
            attempts: Vec::new(),
            unpriced: false,
        }
    }

    fn name(n: u16) -> CallDigest {
        let mut name = [0; 32];
        name[..2].copy_from_slice(&n.to_be_bytes());
        name
    }

    #[tokio::test]
    async fn calls_of_one_name_at_the_same_time_are_one_call() {
        let replies = Arc::new(GatewayReplyCache::default());
        let calls = Arc::new(AtomicUsize::new(0));
        let (open, door) = watch::channel(false);
        let ask = || {
            let (calls, mut door) = (Arc::clone(&calls), door.clone());
            let replies = Arc::clone(&replies);
            async move {
                let call = async move {
                    calls.fetch_add(1, Ordering::SeqCst);
                    door.wait_for(|open| *open).await.unwrap();
                    Ok(reply("once"))
                };
                replies.ask(name(1), call).await.unwrap()
            }
        };
        let (first, second, ()) = tokio::join!(ask(), ask(), async {
            open.send_replace(true);
        });
        assert_eq!((first.1, second.1), (false, true));
        assert_eq!(first.0, second.0);
        assert!(ask().await.1, "kept afterwards");
        assert_eq!(calls.load(Ordering::SeqCst), 1);
    }

    #[tokio::test]
    async fn a_call_continues_when_no_one_waits_any_more() {
        let replies = Arc::new(GatewayReplyCache::default());
        let (open, mut door) = watch::channel(false);
        let call = async move {
            door.wait_for(|open| *open).await.unwrap();
            Ok(reply("kept"))
        };
        let mut asking = Box::pin(replies.ask(name(1), call));
        let mut context = Context::from_waker(Waker::noop());
        assert!(asking.as_mut().poll(&mut context).is_pending());
        drop(asking);
        open.send_replace(true);
        let never = async { panic!("a second call") };
        let (kept, cached) = replies.ask(name(1), never).await.unwrap();
        assert_eq!((kept.content.as_str(), cached), ("kept", true));
    }

    #[tokio::test]
    async fn failures_and_panics_are_reported_and_not_kept() {
        let replies = Arc::new(GatewayReplyCache::default());
        let fails = async { Err(GatewayError::upstream(500, "no")) };
        let failure = replies.ask(name(1), fails).await.unwrap_err();
        assert_eq!(failure.message, "upstream returned 500: no");
        let panics = async { panic!("broken") };
        let failure = replies.ask(name(1), panics).await.unwrap_err();
        assert_eq!(
            (failure.code, failure.retryable),
            (Code::InternalError, true)
        );
        let (fine, cached) = replies
            .ask(name(1), async { Ok(reply("at last")) })
            .await
            .unwrap();
        assert_eq!((fine.content.as_str(), cached), ("at last", false));
    }

    #[tokio::test]
    async fn a_failure_that_was_paid_for_is_reported_again_and_not_paid_for_again() {
        let replies = Arc::new(GatewayReplyCache::default());
        let fails = async {
            let mut failure = GatewayError::new(Code::InternalError, "empty");
            failure.bill.total.tokens_in = 5;
            Err(failure)
        };
        let failure = replies.ask(name(1), fails).await.unwrap_err();
        let never = async { panic!("a second call") };
        assert_eq!(replies.ask(name(1), never).await.unwrap_err(), failure);
    }

    #[test]
    fn replies_are_forgotten_by_age_by_number_and_by_size() {
        let now = Instant::now();
        let mut state = CacheState::default();
        state.keep(name(1), &Ok(Arc::new(reply("a"))), now);
        state.forget(now + REPLY_RETENTION - Duration::from_secs(1));
        assert_eq!(state.slots.len(), 1);
        state.forget(now + REPLY_RETENTION);
        assert_eq!((state.slots.len(), state.bytes), (0, 0));
        for n in 0..5000 {
            state.keep(name(n), &Ok(Arc::new(reply("a"))), now);
        }
        assert_eq!(
            (state.slots.len(), state.order.len()),
            (MAX_REPLIES, MAX_REPLIES)
        );
        assert!(!state.slots.contains_key(&name(0)) && state.slots.contains_key(&name(4999)));
        let large = Ok(Arc::new(reply(&"x".repeat(MAX_BYTES / 4))));
        for n in 6000..6006 {
            state.keep(name(n), &large, now);
        }
        assert!(state.bytes <= MAX_BYTES, "{}", state.bytes);
        assert_eq!(state.slots.len(), state.order.len());
    }
}
