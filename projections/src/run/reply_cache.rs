//! The cache of model replies: which recorded reply answers an identical request of the same run.
//!
//! A request is identical to an earlier one if it has the same digest (group, messages, tools, most
//! tokens), the same purpose, and the same digest of the routing of its group. Only requests whose
//! frame has that `routing` take part: whoever admits a request decides whether it may.
//!
//! ```text
//! llm.request{routing} ── no reply known ─▶ asked ── llm.response ─▶ known
//!                      └─ reply known ────▶ due ── llm.response{repeats} (decision)
//! ```
//!
//! The state refers to replies by their frames and holds no text of theirs, except the tool calls
//! they ask for, which [`MAX_CACHED_CALL_BYTES`] limits. A branch folds the frames it shares, so it
//! has their replies and its own, and nobody else has those.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ktsu_ledger::event::{AgentEvent, LlmRequest, LlmResponse};
use ktsu_ledger::{Event, Frame};

use super::{RunState, StepStatus, TaskId};
use crate::life::model_call::{CachedReply, ModelCall, RequestKey};
use crate::life::task::AgentTask;

/// The most replies that a run remembers. With more, the oldest are forgotten, and an identical
/// request is sent again.
pub const MAX_CACHED_REPLIES: usize = 2_048;

/// The most bytes of tool calls, of all remembered replies together.
pub const MAX_CACHED_CALL_BYTES: usize = 1024 * 1024;

/// See the module documentation.
#[derive(Debug, Clone, Default)]
pub struct ReplyCache {
    known: BTreeMap<RequestKey, Arc<CachedReply>>,
    /// The keys of `known` by the frames of their replies, so that the oldest is found.
    by_frame: BTreeMap<u64, RequestKey>,
    call_bytes: usize,
    /// The task that asked last for a reply that is not known, by the key of its request.
    asked: BTreeMap<RequestKey, TaskId>,
    /// Tasks whose request a known reply answers.
    due: BTreeSet<TaskId>,
    generation: u64,
}

impl ReplyCache {
    /// A number that changes whenever a request that waits for an identical one may have to be looked
    /// at again.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn remember(&mut self, key: RequestKey, reply: CachedReply) {
        if reply.call_bytes() > MAX_CACHED_CALL_BYTES {
            return;
        }
        self.forget(&key);
        self.call_bytes += reply.call_bytes();
        self.by_frame.insert(reply.seq, key.clone());
        self.known.insert(key, Arc::new(reply));
        while self.known.len() > MAX_CACHED_REPLIES || self.call_bytes > MAX_CACHED_CALL_BYTES {
            let Some(oldest) = self.by_frame.first_key_value().map(|(_, key)| key.clone()) else {
                return;
            };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, key: &RequestKey) {
        if let Some(reply) = self.known.remove(key) {
            self.by_frame.remove(&reply.seq);
            self.call_bytes -= reply.call_bytes();
        }
    }

    /// A request is recorded. Gives the reply that answers it, if one is known.
    pub(super) fn request(&mut self, at: TaskId, key: &RequestKey) -> Option<Arc<CachedReply>> {
        let reply = self.known.get(key).cloned();
        match reply {
            Some(_) => drop(self.due.insert(at)),
            // What is not noted is only asked for twice.
            None if self.asked.len() < MAX_CACHED_REPLIES => {
                self.asked.insert(key.clone(), at);
            }
            None => {}
        }
        reply
    }

    /// A task's call is not under way any more.
    pub(super) fn end(&mut self, at: TaskId, call: &ModelCall, end: Option<(u64, &LlmResponse)>) {
        self.due.remove(&at);
        let Some(key) = &call.key else {
            return;
        };
        if self.asked.get(key) == Some(&at) {
            self.asked.remove(key);
        }
        self.generation += 1;
        if let Some(reply) = end.and_then(|(seq, answer)| CachedReply::of(seq, answer)) {
            self.remember(key.clone(), reply);
        }
    }

    /// Takes any other frame: what it ends ends the calls within.
    pub(super) fn pass(&mut self, frame: &Frame) {
        let agents = matches!(frame.event, Event::Agent(_));
        self.generation += u64::from(!agents && !self.asked.is_empty());
    }
}

impl RunState {
    /// The replies that later requests may repeat.
    pub fn replies(&self) -> &ReplyCache {
        &self.replies
    }

    /// Returns `true` if an earlier reply may answer requests of the run at all: it was started
    /// without `no_cache`, and is no recompute, which is made to ask again.
    pub fn repeats_replies(&self) -> bool {
        !self.created.no_cache && self.created.of.is_none() && self.created.results.is_none()
    }

    /// Returns `true` if an earlier reply may answer the next request of a task, and its reply
    /// later ones: its step declares that, and the task is tried for the first time. It is tried
    /// again because something went wrong, or because a person wants other replies.
    pub fn task_repeats_replies(&self, at: TaskId) -> bool {
        let declared = self.agent_plan(at.step).is_some_and(|plan| plan.cache);
        let task = self.task(at.step, at.item);
        declared && self.repeats_replies() && task.is_some_and(AgentTask::is_first_try)
    }

    /// Returns `true` if a recorded reply answers a request.
    pub fn has_reply(&self, request: &LlmRequest) -> bool {
        RequestKey::of(request).is_some_and(|key| self.replies.known.contains_key(&key))
    }

    /// Returns `true` if an identical request is under way, whose reply may answer this one.
    pub fn awaits_reply(&self, request: &LlmRequest) -> bool {
        let Some(key) = RequestKey::of(request) else {
            return false;
        };
        let asker = self.replies.asked.get(&key);
        asker.is_some_and(|at| self.asks(*at, |call| call.key.as_ref() == Some(&key)))
    }

    /// The task that a repeated reply is due to, with the call and the reply.
    pub fn reply_due(&self) -> Option<(TaskId, &ModelCall, &Arc<CachedReply>)> {
        let mut due = self.replies.due.iter().copied();
        let at = due.find(|at| self.asks(*at, |call| call.reply.is_some()))?;
        let call = self.task(at.step, at.item)?.open_call.as_ref()?;
        Some((at, call, call.reply.as_ref()?))
    }

    /// Returns `true` if a task has such a call under way, and its step is running.
    fn asks(&self, at: TaskId, such: impl Fn(&ModelCall) -> bool) -> bool {
        let scope = self.scope_of(at.step);
        let step = scope.filter(|scope| !scope.abandoned);
        let step = step.and_then(|_| self.step(at.step));
        let task = self.task(at.step, at.item);
        step.is_some_and(|step| step.status == StepStatus::Running)
            && task.is_some_and(|task| {
                task.is_unfinished() && task.open_call.as_ref().is_some_and(such)
            })
    }

    /// Follows the call of a task through a frame of its agent, which is applied. `before`: the call
    /// that was under way.
    pub(super) fn follow_call(
        &mut self,
        frame: &Frame,
        at: TaskId,
        event: &AgentEvent,
        before: Option<ModelCall>,
    ) {
        let task = self.task(at.step, at.item);
        let now = task.and_then(|task| task.open_call.as_ref());
        match (event, before, now) {
            (AgentEvent::Request(request), None, Some(_)) => {
                let Some(key) = RequestKey::of(request) else {
                    return;
                };
                let reply = self.replies.request(at, &key);
                let task = self.task_mut(at.step, at.item);
                if let Some(call) = task.and_then(|task| task.open_call.as_mut()) {
                    (call.key, call.reply) = (Some(key), reply);
                }
            }
            (AgentEvent::Response(answer), Some(call), None) => {
                self.replies.end(at, &call, Some((frame.seq, answer)));
            }
            (_, Some(call), None) => self.replies.end(at, &call, None),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::CanonicalJson;
    use ktsu_ledger::event::CallUsage;

    use super::*;

    fn key(number: u64) -> RequestKey {
        RequestKey(number.to_string().into())
    }

    fn reply(seq: u64, calls: usize) -> CachedReply {
        CachedReply {
            seq,
            model: String::new(),
            provider: String::new(),
            output_hash: String::new(),
            tool_calls: (calls > 0).then(|| CanonicalJson::string(&"x".repeat(calls - 2))),
            used: CallUsage::default(),
        }
    }

    #[test]
    fn the_oldest_replies_are_forgotten_and_one_that_is_renewed_is_not_old() {
        let mut cache = ReplyCache::default();
        let most = MAX_CACHED_REPLIES as u64;
        for seq in 0..most {
            cache.remember(key(seq), reply(seq, 0));
        }
        cache.remember(key(0), reply(most, 0));
        assert_eq!(cache.known.len(), MAX_CACHED_REPLIES);
        cache.remember(key(most), reply(most + 1, 0));
        assert_eq!(cache.known.len(), MAX_CACHED_REPLIES);
        assert_eq!(cache.known.get(&key(0)).map(|one| one.seq), Some(most));
        assert!(!cache.known.contains_key(&key(1)));
        assert_eq!(cache.known.len(), cache.by_frame.len());
    }

    #[test]
    fn the_tool_calls_of_all_replies_together_are_bounded() {
        let mut cache = ReplyCache::default();
        cache.remember(key(0), reply(0, MAX_CACHED_CALL_BYTES + 1));
        assert!(
            cache.known.is_empty(),
            "one that is too large alone is not kept"
        );
        cache.remember(key(1), reply(1, MAX_CACHED_CALL_BYTES / 2));
        cache.remember(key(2), reply(2, MAX_CACHED_CALL_BYTES / 2));
        assert_eq!(cache.known.len(), 2);
        cache.remember(key(3), reply(3, 3));
        assert!(!cache.known.contains_key(&key(1)));
        assert_eq!(cache.call_bytes, MAX_CACHED_CALL_BYTES / 2 + 3);
    }
}
