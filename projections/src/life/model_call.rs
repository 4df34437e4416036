//! A call of a model: what was asked, and the recorded reply that answers an identical request.

use std::sync::Arc;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::{CallUsage, LlmRequest, LlmResponse, Purpose};

/// A model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    /// The `llm.request`.
    pub seq: u64,
    /// Its digest.
    pub digest: String,
    /// The model group it asks.
    pub group: String,
    /// The upper bound of its size.
    pub size: CallSize,
    /// The key that identical requests share with it, if it takes part in the cache.
    pub key: Option<RequestKey>,
    /// The recorded reply that answers it, if one did when it was asked.
    pub reply: Option<Arc<CachedReply>>,
}

/// The most tokens that a model call may use. Whatever its messages refer to by frame is not
/// counted, nor are tools.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallSize {
    /// Bytes of the messages, of which a token has at least one.
    pub sent_bytes: u64,
    /// Tokens of the reply.
    pub reply_tokens: u64,
}

impl CallSize {
    /// Of a request that extends another one, or none.
    pub(crate) fn of(request: &LlmRequest, base: Option<Self>) -> Self {
        let before = base.map_or(0, |base| base.sent_bytes);
        Self {
            sent_bytes: before.saturating_add(request.messages.as_str().len() as u64),
            reply_tokens: request.max_tokens.into(),
        }
    }
}

/// The key that identical requests share.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestKey(pub(crate) Arc<str>);

impl RequestKey {
    /// The key of a request, if it takes part. The digest of the request has to be known.
    pub fn of(request: &LlmRequest) -> Option<Self> {
        let routing = request.routing.as_ref()?;
        let purpose = match request.purpose {
            Purpose::Turn => "turn",
            Purpose::Repair => "repair",
            Purpose::Reflect => "reflect",
        };
        let key = format!("{routing} {purpose} {}", request.digest);
        Some(Self(key.into()))
    }
}

/// A recorded reply that may be repeated.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CachedReply {
    /// Its `llm.response`.
    pub seq: u64,
    pub(crate) model: String,
    pub(crate) provider: String,
    pub(crate) output_hash: String,
    pub(crate) tool_calls: Option<CanonicalJson>,
    pub(crate) used: CallUsage,
}

impl CachedReply {
    /// A reply that a runtime reported; an error is none.
    pub fn of(seq: u64, answer: &LlmResponse) -> Option<Self> {
        let fits = answer.error.is_none() && answer.repeats.is_none();
        fits.then(|| Self {
            seq,
            model: answer.model.clone(),
            provider: answer.provider.clone(),
            output_hash: answer.output_hash.clone(),
            tool_calls: answer.tool_calls.clone(),
            used: CallUsage {
                cost_micro_usd: answer.cost_micro_usd,
                tokens_cached: answer.tokens_cached,
                tokens_in: answer.tokens_in,
                tokens_out: answer.tokens_out,
                tokens_reasoning: answer.tokens_reasoning,
            },
        })
    }

    /// The response that repeats this reply to a request: the only one that may.
    pub fn repeated(&self, to: &ModelCall, task: (&str, Option<u32>), attempt: u32) -> LlmResponse {
        let (step, item) = task;
        LlmResponse {
            attempt,
            attempts: Vec::new(),
            cached: true,
            content: None,
            cost_micro_usd: 0,
            duration_ms: 0,
            error: None,
            input_hash: to.digest.clone(),
            item,
            model: self.model.clone(),
            output_hash: self.output_hash.clone(),
            prices: String::new(),
            provider: self.provider.clone(),
            repeats: Some(self.seq),
            report: None,
            request: to.seq,
            saved: Some(self.used),
            step: step.to_owned(),
            tokens_cached: 0,
            tokens_in: 0,
            tokens_out: 0,
            tokens_reasoning: 0,
            tool_calls: self.tool_calls.clone(),
            unpriced: false,
        }
    }

    pub(crate) fn call_bytes(&self) -> usize {
        self.tool_calls
            .as_ref()
            .map_or(0, |calls| calls.as_str().len())
    }
}
