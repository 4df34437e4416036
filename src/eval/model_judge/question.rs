//! The question that a check asks a model, and the next step: a request, waiting for replies, or
//! nothing.

use ktsu_ledger::event::{CallError, LlmRequest, LlmResponse, Purpose, ReportReference};
use ktsu_ledger::{CanonicalJson, Hash};
use ktsu_workflow::expression::{Evaluator, Expression, Tracker, from_value, into_value};
use serde_json::{Value, json};

use crate::http_mock::assertions;
use crate::http_mock::record::{MockRequest, ServiceRecords};
use crate::model_judge::calls::{JudgeCall, request_digest};
use crate::model_judge::check::{JudgeCheck, JudgeInput};
use crate::model_judge::prompt::{JudgePrompt, repair};
use crate::model_judge::reply::{MAX_REPLY, read};

/// The most tokens of a reply.
const MAX_TOKENS: u32 = 1_024;

/// The roles that the messages of a request are from.
const SYSTEM: &str = "system";
/// See [`SYSTEM`].
const USER: &str = "user";
/// See [`SYSTEM`].
const ASSISTANT: &str = "assistant";

/// The question that a check asks a model about a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeQuestion {
    /// The name of the invariant.
    pub check: String,
    prompt: JudgePrompt,
    settings: JudgeSettings,
}

/// The parts of a run that may be judged.
#[derive(Clone, Copy)]
pub struct JudgeSubject<'s> {
    /// Its envelope.
    pub envelope: &'s Value,
    /// The text of the files of its workspace.
    pub files: Option<&'s str>,
    /// The records of what services of the suite received.
    pub services: Option<&'s ServiceRecords>,
}

/// The settings with which a model is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JudgeSettings {
    group: String,
    temperature_millionths: u32,
    samples: u32,
}

/// The next step of a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum JudgeStep {
    /// These requests are to be recorded.
    Record(Vec<LlmRequest>),
    /// These recorded requests are to be sent, and their replies recorded.
    Send(Vec<u64>),
    /// Nothing.
    Done,
}

/// A message of a request, as a model gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JudgeMessage {
    /// `system`, `user` or `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
}

/// The calls that one check has made of a run.
pub(crate) struct CallsOfCheck<'c> {
    pub(crate) check: &'c str,
    pub(crate) settings: &'c JudgeSettings,
    /// BLAKE3 of the messages of the first request; any where that is not known.
    pub(crate) prompt: Option<Hash>,
    pub(crate) calls: &'c [JudgeCall],
}

impl JudgeSettings {
    pub(crate) fn of(check: &JudgeCheck) -> Self {
        Self {
            group: check.group.clone(),
            temperature_millionths: check.temperature_millionths,
            samples: check.samples,
        }
    }
}

impl JudgeQuestion {
    /// The question of a check.
    ///
    /// # Errors
    /// Why nothing can be asked.
    pub fn of(name: &str, check: &JudgeCheck, subject: &JudgeSubject<'_>) -> Result<Self, String> {
        let no_files = "there is no workspace to look at: give it with --workspace DIR";
        let input = match &check.input {
            JudgeInput::Output => output(subject.envelope),
            JudgeInput::Workspace => subject.files.ok_or(no_files)?.to_owned(),
            JudgeInput::Service { service, field } => received(service, field, subject.services)?,
        };
        Ok(Self {
            check: name.to_owned(),
            prompt: JudgePrompt::of(check, &input),
            settings: JudgeSettings::of(check),
        })
    }

    /// The texts that a model gets.
    pub fn texts(&self) -> [&str; 2] {
        [&self.prompt.system, &self.prompt.user]
    }

    /// The number of bytes of what is judged that are left out, and of all of its bytes, where some
    /// are left out.
    pub(crate) fn left_out(&self) -> Option<(usize, usize)> {
        self.prompt.left_out
    }

    /// BLAKE3 of the messages of the first request.
    pub(crate) fn prompt_digest(&self) -> Hash {
        Hash::of(canonical(&self.messages_of_prompt()).as_str().as_bytes())
    }

    /// The next step after `calls`, which are of the run that is judged.
    pub fn next(&self, calls: &[JudgeCall]) -> JudgeStep {
        let own = CallsOfCheck {
            check: &self.check,
            settings: &self.settings,
            prompt: Some(self.prompt_digest()),
            calls,
        };
        let Some(first) = own.first() else {
            let request = self.request(1, Purpose::Turn, None, self.messages_of_prompt());
            return recorded([request], calls);
        };
        let samples = 1..=self.settings.samples;
        let missing = samples.clone().filter(|sample| own.turn(*sample).is_none());
        let missing: Vec<LlmRequest> = missing
            .map(|sample| self.request(sample, Purpose::Turn, Some(first.request), json!([])))
            .collect();
        if !missing.is_empty() {
            return recorded(missing, calls);
        }
        let turns: Vec<&JudgeCall> = samples.filter_map(|sample| own.turn(sample)).collect();
        let waiting = unanswered(turns.iter().copied());
        if !waiting.is_empty() {
            return JudgeStep::Send(waiting);
        }
        let mut repairs = Vec::new();
        let mut begun = Vec::new();
        for turn in turns {
            match (own.repair(turn), wrong(turn)) {
                (Some(repair), _) => begun.push(repair),
                (None, Some(wrong)) => {
                    let messages = messages_of_repair(turn, wrong);
                    let base = Some(turn.request);
                    repairs.push(self.request(turn.sample, Purpose::Repair, base, messages));
                }
                (None, None) => {}
            }
        }
        if !repairs.is_empty() {
            return recorded(repairs, calls);
        }
        match unanswered(begun.into_iter()) {
            waiting if waiting.is_empty() => JudgeStep::Done,
            waiting => JudgeStep::Send(waiting),
        }
    }

    /// All messages of a recorded request.
    pub fn messages(&self, call: &JudgeCall, calls: &[JudgeCall]) -> Vec<JudgeMessage> {
        let message = |role, content: &str| JudgeMessage {
            role,
            content: content.to_owned(),
        };
        let mut messages = vec![
            message(SYSTEM, &self.prompt.system),
            message(USER, &self.prompt.user),
        ];
        if call.purpose == Purpose::Repair
            && let Some(turn) = calls.iter().find(|turn| Some(turn.request) == call.base)
            && let Some(Ok(text)) = turn.answer.as_ref().map(|answer| &answer.text)
        {
            messages.push(message(ASSISTANT, text));
            messages.push(message(USER, &repair(wrong(turn).unwrap_or_default())));
        }
        messages
    }

    /// The most tokens of a reply.
    pub fn max_tokens(&self) -> u32 {
        MAX_TOKENS
    }

    /// The model group.
    pub fn group(&self) -> &str {
        &self.settings.group
    }

    /// The temperature.
    pub fn temperature(&self) -> f64 {
        f64::from(self.settings.temperature_millionths) / 1e6
    }

    fn messages_of_prompt(&self) -> Value {
        json!([
            {"content": self.prompt.system, "role": SYSTEM},
            {"content": self.prompt.user, "role": USER},
        ])
    }

    /// A request; its digest depends on the calls before it.
    fn request(
        &self,
        sample: u32,
        purpose: Purpose,
        base: Option<u64>,
        messages: Value,
    ) -> LlmRequest {
        let messages = canonical(&messages);
        LlmRequest {
            attempt: sample,
            base,
            digest: String::new(),
            group: self.settings.group.clone(),
            item: None,
            max_tokens: MAX_TOKENS,
            report: ReportReference {
                digest: Hash::of(messages.as_str().as_bytes()).to_string(),
                n: number(purpose),
            },
            messages,
            purpose,
            routing: None,
            step: self.check.clone(),
            temperature_millionths: Some(self.settings.temperature_millionths),
            tools: None,
        }
    }
}

impl<'c> CallsOfCheck<'c> {
    pub(crate) fn samples(&self) -> std::ops::RangeInclusive<u32> {
        1..=self.settings.samples
    }

    /// The request for the first sample, which those for the others extend.
    pub(crate) fn first(&self) -> Option<&'c JudgeCall> {
        let mut own = self.own(1, Purpose::Turn).rev();
        own.find(|call| {
            let fits = self.prompt.is_none_or(|prompt| prompt == call.messages);
            call.base.is_none() && fits
        })
    }

    /// The request for a sample.
    pub(crate) fn turn(&self, sample: u32) -> Option<&'c JudgeCall> {
        let first = self.first()?;
        if sample == 1 {
            return Some(first);
        }
        let nothing = Hash::of(canonical(&json!([])).as_str().as_bytes());
        let mut own = self.own(sample, Purpose::Turn);
        own.find(|call| call.base == Some(first.request) && call.messages == nothing)
    }

    /// The request to repair the reply to another.
    pub(crate) fn repair(&self, turn: &JudgeCall) -> Option<&'c JudgeCall> {
        let messages = canonical(&messages_of_repair(turn, wrong(turn)?));
        let messages = Hash::of(messages.as_str().as_bytes());
        let mut own = self.own(turn.sample, Purpose::Repair);
        own.find(|call| call.base == Some(turn.request) && call.messages == messages)
    }

    fn own(
        &self,
        sample: u32,
        purpose: Purpose,
    ) -> impl DoubleEndedIterator<Item = &'c JudgeCall> + use<'c, '_> {
        self.calls.iter().filter(move |call| {
            call.check == self.check
                && (call.sample, call.purpose) == (sample, purpose)
                && call.group == self.settings.group
                && call.temperature_millionths == Some(self.settings.temperature_millionths)
                && call.max_tokens == MAX_TOKENS
        })
    }
}

/// Makes a reply what is recorded of it: without calls of tools, which were not offered, and without a
/// text that is too long. `call`: the request.
pub(crate) fn seal_answer(call: &JudgeCall, answer: &mut LlmResponse) {
    answer.tool_calls = None;
    let length = answer.content.as_ref().map_or(0, |it| it.as_str().len());
    if length > MAX_REPLY {
        answer.content = None;
        answer.error = Some(CallError {
            code: "reply_too_long".to_owned(),
            message: format!("the reply has more than {MAX_REPLY} bytes"),
            retryable: false,
        });
    }
    if answer.error.is_some() {
        answer.content = None;
    } else if answer.content.is_none() {
        answer.content = Some(CanonicalJson::string(""));
    }
    call.seal(answer);
    answer.report = Some(ReportReference {
        digest: answer.output_hash.clone(),
        n: number(call.purpose),
    });
}

/// The fault in the reply to a call, if that can be repaired.
pub(crate) fn wrong(turn: &JudgeCall) -> Option<&'static str> {
    let text = turn.answer.as_ref()?.text.as_ref().ok()?;
    read(text).err()
}

/// Requests with their digests.
fn recorded(requests: impl IntoIterator<Item = LlmRequest>, calls: &[JudgeCall]) -> JudgeStep {
    let requests = requests.into_iter().map(|mut request| {
        request.digest = request_digest(&request, calls).unwrap_or_default();
        request
    });
    JudgeStep::Record(requests.collect())
}

fn unanswered<'c>(calls: impl Iterator<Item = &'c JudgeCall>) -> Vec<u64> {
    let calls = calls.filter(|call| call.answer.is_none());
    calls.map(|call| call.request).collect()
}

/// The messages after the reply to a request.
fn messages_of_repair(turn: &JudgeCall, wrong: &str) -> Value {
    let frame = turn.answer.as_ref().map(|answer| answer.frame);
    json!([
        {"frame": frame, "role": ASSISTANT},
        {"content": repair(wrong), "role": USER},
    ])
}

/// The number of a call within its sample.
fn number(purpose: Purpose) -> u32 {
    1 + u32::from(purpose == Purpose::Repair)
}

/// The output of a run.
fn output(envelope: &Value) -> String {
    envelope.get("output").map_or_else(String::new, text_of)
}

/// A field of what a service received.
fn received(
    service: &str,
    field: &Expression,
    services: Option<&ServiceRecords>,
) -> Result<String, String> {
    let record = &assertions::whole(service, services)?.record;
    let requests: Vec<Value> = record.requests.iter().map(MockRequest::to_value).collect();
    let view = assertions::view(&requests.iter().collect::<Vec<_>>());
    let mut tracker = Tracker::default();
    let value = field.evaluate_on(&from_value(&view), &mut Evaluator::new(&mut tracker));
    match into_value(value.map_err(|error| error.message)?) {
        Value::Null => {
            let count = requests.len();
            Err(format!(
                "{} of {service} is null (requests received: {count})",
                field.source()
            ))
        }
        value => Ok(text_of(&value)),
    }
}

/// The text that is judged: text as it is, everything else as JSON.
fn text_of(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        other => canonical(other).as_str().to_owned(),
    }
}

fn canonical(value: &Value) -> CanonicalJson {
    CanonicalJson::from_value(value).unwrap_or_default()
}
