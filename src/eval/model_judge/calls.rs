//! The model calls of checks, as an eval records them.

use ktsu_ledger::event::{LlmRequest, LlmResponse, Purpose};
use ktsu_ledger::{CanonicalJson, Hash, StreamId};
use ktsu_workflow::admit::report::sha256;
use serde_json::{Value, json};

/// A call: its request, and its reply if there is one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeCall {
    /// The frame of the request.
    pub request: u64,
    /// The run that is judged, and the number of its last frame.
    pub run: (StreamId, u64),
    /// The name of the invariant.
    pub(crate) check: String,
    /// The number of the sample, from 1.
    pub(crate) sample: u32,
    pub(crate) purpose: Purpose,
    pub(crate) base: Option<u64>,
    pub(crate) group: String,
    pub(crate) temperature_millionths: Option<u32>,
    pub(crate) max_tokens: u32,
    /// BLAKE3 of its new messages.
    pub(crate) messages: Hash,
    digest: String,
    pub(crate) answer: Option<JudgeAnswer>,
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JudgeAnswer {
    /// Its frame.
    pub(crate) frame: u64,
    /// The text, or why there is none.
    pub(crate) text: Result<String, String>,
    pub(crate) provider: String,
    pub(crate) model: String,
    pub(crate) output_hash: String,
    pub(crate) duration_ms: u64,
}

impl JudgeCall {
    /// Returns `true` if a check has made it.
    pub fn is_of(&self, check: &str) -> bool {
        self.check == check
    }

    /// The number of the sample it is for, from 1.
    pub fn sample(&self) -> u32 {
        self.sample
    }

    /// A recorded request.
    pub(crate) fn of(request: u64, run: (StreamId, u64), asked: &LlmRequest) -> Self {
        Self {
            request,
            run,
            check: asked.step.clone(),
            sample: asked.attempt,
            purpose: asked.purpose,
            base: asked.base,
            group: asked.group.clone(),
            temperature_millionths: asked.temperature_millionths,
            max_tokens: asked.max_tokens,
            messages: Hash::of(asked.messages.as_str().as_bytes()),
            digest: asked.digest.clone(),
            answer: None,
        }
    }

    /// Takes the recorded reply.
    ///
    /// # Errors
    /// It is not the reply to this call.
    pub(crate) fn take(&mut self, frame: u64, answer: &LlmResponse) -> Result<(), &'static str> {
        let is_of_it = (answer.step.as_str(), answer.attempt) == (&*self.check, self.sample);
        if !is_of_it || self.answer.is_some() || answer.input_hash != self.digest {
            return Err("it is not the reply to its request");
        }
        if answer.output_hash != output_hash(answer) || answer.tool_calls.is_some() {
            return Err("its digest is not that of what the model replied");
        }
        let content = answer.content.as_ref().map(CanonicalJson::to_value);
        let text = match (&answer.error, content) {
            (Some(error), _) => Err(format!("{}: {}", error.code, error.message)),
            (None, Some(Value::String(text))) => Ok(text),
            (None, _) => return Err("it has no text and no error"),
        };
        self.answer = Some(JudgeAnswer {
            frame,
            text,
            provider: answer.provider.clone(),
            model: answer.model.clone(),
            output_hash: answer.output_hash.clone(),
            duration_ms: answer.duration_ms,
        });
        Ok(())
    }

    /// Gives a reply the digests that it is recorded with.
    pub(crate) fn seal(&self, answer: &mut LlmResponse) {
        answer.input_hash.clone_from(&self.digest);
        answer.output_hash = output_hash(answer);
    }
}

/// SHA-256 of a request as canonical JSON; its base, and what is named by its frame, stand in it as
/// their digests. None if it names what is not one of the calls.
pub(crate) fn request_digest(request: &LlmRequest, calls: &[JudgeCall]) -> Option<String> {
    let mut messages = request.messages.to_value();
    for message in messages.as_array_mut()? {
        let Some(frame) = message.get("frame") else {
            continue;
        };
        let frame = frame.as_u64()?;
        let mut answers = calls.iter().filter_map(|call| call.answer.as_ref());
        let named = answers.find(|answer| answer.frame == frame)?;
        *message = json!({"digest": named.output_hash, "role": message.get("role")});
    }
    let mut whole = json!({
        "group": request.group,
        "max_tokens": request.max_tokens,
        "messages": messages,
    });
    if let Some(temperature) = request.temperature_millionths {
        whole["temperature_millionths"] = json!(temperature);
    }
    if let Some(base) = request.base {
        let base = calls.iter().find(|call| call.request == base)?;
        whole["base"] = json!(base.digest);
    }
    Some(sha256(&CanonicalJson::from_value(&whole).ok()?))
}

fn output_hash(answer: &LlmResponse) -> String {
    sha256(&answer.content.clone().unwrap_or_default())
}
