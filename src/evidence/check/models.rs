//! The requests to models and their replies, as far as tool calls depend on them: each request and
//! reply matches its digest, a reply answers the last request, and a request waits for every
//! result.

use std::rc::Rc;

use ktsu_ledger::event::{AgentEvent, LlmRequest, LlmResponse};
use ktsu_ledger::{Actor, CanonicalJson, Event, Frame};
use ktsu_projections::life::model_call::{CachedReply, CallSize, ModelCall, RequestKey};
use serde_json::{Value, json};

use super::agent_timeline::{AgentTimeline, CheckedCall, ClaimKind, TaskProgress};
use ktsu_workflow::admit::report::sha256;

impl<'a> AgentTimeline<'a> {
    pub(super) fn check_request(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        asked: &'a LlmRequest,
    ) {
        let words = "the model has not got every result of what it asked for before";
        self.fail_if(ClaimKind::Tools, frame, task.waits(), words);
        self.check_not_forced_to_fail(task, frame);
        let told = asked.tools.as_ref().map(|tools| Rc::new(tools.to_value()));
        let base = asked.base.and_then(|base| self.offers.get(&base).cloned());
        if let Some(told) = told.or(base) {
            self.offers.insert(frame.seq, told);
        }
        let right = asked.digest == digest(&self.whole(task, asked));
        let words = "its digest is not that of what the model is asked";
        self.fail_if(ClaimKind::Tools, frame, !right, words);
        self.digests.insert(frame.seq, &asked.digest);
        task.request = Some(frame.seq);
    }

    /// A request as it is digested: a base, and what stands in another frame, by their digests.
    fn whole(&self, task: &TaskProgress<'a>, asked: &LlmRequest) -> Value {
        let messages = asked.messages.to_value();
        let messages = messages.as_array().into_iter().flatten().map(|message| {
            let Some(frame) = message.get("frame").filter(|frame| !frame.is_null()) else {
                return message.clone();
            };
            let told = frame
                .as_u64()
                .and_then(|frame| task.context_digests.get(&frame));
            json!({"digest": told, "role": message.get("role")})
        });
        let mut whole = json!({
            "group": asked.group,
            "max_tokens": asked.max_tokens,
            "messages": messages.collect::<Vec<_>>(),
        });
        if let Some(temperature) = asked.temperature_millionths {
            whole["temperature_millionths"] = json!(temperature);
        }
        if let Some(tools) = &asked.tools {
            whole["tools"] = tools.to_value();
        }
        if let Some(base) = asked.base {
            whole["base"] = json!(self.digests.get(&base));
        }
        whole
    }

    pub(super) fn check_reply(
        &mut self,
        task: &mut TaskProgress<'a>,
        frame: &Frame,
        answer: &LlmResponse,
    ) {
        let asked = self.digests.get(&answer.request).copied();
        let right = task.request == Some(answer.request) && asked == Some(&*answer.input_hash);
        let words = "it is not the reply to the last request of its task";
        self.fail_if(ClaimKind::Tools, frame, !right, words);
        let content = answer.content.as_ref().map(CanonicalJson::to_value);
        let calls = answer.tool_calls.as_ref().map(CanonicalJson::to_value);
        let said = match &calls {
            None => json!(content),
            Some(calls) => json!({"content": content, "tool_calls": calls}),
        };
        let words = "its digest is not that of what the model said";
        let right = match answer.report {
            Some(_) => answer.output_hash == digest(&said) && answer.repeats.is_none(),
            None => frame.actor == Actor::Orchestrator && self.is_repeated(answer),
        };
        self.fail_if(ClaimKind::Tools, frame, !right, words);
        let list = calls.as_ref().and_then(Value::as_array);
        task.calls = list.into_iter().flatten().map(CheckedCall::of).collect();
        task.request = None;
        task.response = Some(frame.seq);
        task.replied = Some(answer.attempt);
        task.offered = self.offers.get(&answer.request).cloned();
        task.decided = false;
        if !task.calls.is_empty() {
            task.context_digests
                .insert(frame.seq, answer.output_hash.clone());
        }
    }
}

impl AgentTimeline<'_> {
    /// Returns `true` if a reply without a report is the earlier one that it names, to an identical
    /// request.
    fn is_repeated(&self, answer: &LlmResponse) -> bool {
        let event = |seq: u64| match &self.history.frames.get(usize::try_from(seq).ok()?)?.event {
            Event::Agent(event) => Some(event),
            _ => None,
        };
        let request = |seq| match event(seq) {
            Some(AgentEvent::Request(request)) => Some(request),
            _ => None,
        };
        let repeats = answer.repeats.filter(|seq| *seq < answer.request);
        let Some((seq, AgentEvent::Response(first))) =
            repeats.and_then(|seq| Some((seq, event(seq)?)))
        else {
            return false;
        };
        let (Some(asked), Some(before)) = (request(answer.request), request(first.request)) else {
            return false;
        };
        let call = ModelCall {
            seq: answer.request,
            digest: asked.digest.clone(),
            group: asked.group.clone(),
            size: CallSize::default(),
            key: None,
            reply: None,
        };
        let key = RequestKey::of(asked);
        let expected = CachedReply::of(seq, first).map(|reply| {
            let task = (answer.step.as_str(), answer.item);
            reply.repeated(&call, task, answer.attempt)
        });
        key.is_some() && key == RequestKey::of(before) && expected.as_ref() == Some(answer)
    }
}

fn digest(value: &Value) -> String {
    sha256(&CanonicalJson::from_value(value).unwrap_or_default())
}
