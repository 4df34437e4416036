//! What an agent and the models said to each other, task by task.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ktsu_ledger::event::{CallAttempt, LlmRequest, LlmResponse, Purpose, ToolReturned};
use ktsu_ledger::{CanonicalJson, Frame, Hash, Timestamp};
use ktsu_projections::calls::{CallHistory, ToolCallRecord};
use ktsu_projections::life::call::RequestedCall;
use ktsu_projections::life::{Change, changes};
use ktsu_projections::lineage;
use serde_json::Value;

use super::placed::{PlacedValue, frame_at};
use crate::tools::ToolCallTrace;

/// The types of frames that are shown in a few words, between what is said.
const NOTED: [&str; 7] = [
    "approval.decided",
    "approval.expired",
    "approval.requested",
    "budget.exhausted",
    "reflect.started",
    "tool.in_doubt",
    "worker.lost",
];

/// One attempt of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskConversation {
    /// Its number, counted from 1.
    pub attempt: u32,
    /// Its first frame.
    pub frame: u64,
    /// The time of that frame.
    pub at: Timestamp,
    /// What was said and called, in order.
    pub entries: Vec<ConversationEntry>,
    /// How it ended: the frame, and the reason in words.
    pub end: Option<(u64, String)>,
}

/// A part of a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConversationEntry {
    /// A message to the model.
    Message {
        /// `system`, `user`, …
        role: String,
        /// Its content.
        content: PlacedValue,
    },
    /// A message to the model that an earlier attempt has.
    Earlier {
        /// `assistant` or `tool`.
        role: String,
        /// The frame with its content.
        frame: u64,
    },
    /// A call of a model.
    Reply(Box<ModelExchange>),
    /// The result of a tool.
    Result(Box<ToolOutput>),
    /// Something else that happened.
    Note {
        /// The frame.
        frame: u64,
        /// In words.
        words: String,
    },
}

impl ConversationEntry {
    fn earlier(&self) -> Option<u64> {
        match self {
            Self::Earlier { role, frame } if role == "assistant" => Some(*frame),
            _ => None,
        }
    }
}

/// A call of a model, and its reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelExchange {
    /// The frame that asks.
    pub request: u64,
    /// What it asks for.
    pub purpose: Purpose,
    /// The model group.
    pub group: String,
    /// The number of tools that were offered, where it changed.
    pub offered: Option<usize>,
    /// The frame with the reply, once there is one.
    pub frame: Option<u64>,
    /// The model that answered, as `provider/model`.
    pub model: String,
    /// Tokens sent and received.
    pub tokens: (u64, u64),
    /// Millionths of a US dollar.
    pub cost_micro_usd: u64,
    /// From sending to answer.
    pub duration_ms: u64,
    /// True if no provider was called.
    pub is_cached: bool,
    /// The frame of the reply that this repeats.
    pub repeats: Option<u64>,
    /// The attempts at models, where not one answered at once.
    pub attempts: Vec<CallAttempt>,
    /// Why there is no reply.
    pub error: Option<String>,
    /// The text of the reply.
    pub content: Option<PlacedValue>,
    /// The tools that it asks for.
    pub calls: Vec<AskedTool>,
}

/// A call of a tool that a reply asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AskedTool {
    /// `server.tool`, or as the model named it.
    pub name: String,
    /// The arguments.
    pub arguments: PlacedValue,
    /// The decisions of people, in order.
    pub people: Vec<String>,
    /// What became of it, in words.
    pub outcome: String,
    /// True if the model got an error, or nothing.
    pub is_failed: bool,
    /// The frame with the result.
    pub returned: Option<u64>,
}

/// What a tool gave to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolOutput {
    /// The frame.
    pub frame: u64,
    /// `server.tool`, or as the model named it.
    pub name: String,
    /// True if it is an error.
    pub is_error: bool,
    /// From sending to answer.
    pub duration_ms: u64,
    /// The number of times it was sent.
    pub sendings: usize,
    /// The parts of the result.
    pub blocks: Vec<ResultBlock>,
    /// Its structured content.
    pub structured: Option<PlacedValue>,
}

/// A part of the result of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResultBlock {
    /// A text.
    Text(PlacedValue),
    /// An image, a sound or another file, of which nothing is shown.
    File {
        /// The kind and the media type: `image image/png`.
        kind: String,
        /// Its length in bytes.
        bytes: usize,
        /// BLAKE3 of these bytes.
        digest: String,
    },
    /// Anything else.
    Other(PlacedValue),
}

impl TaskConversation {
    /// The number of times that the model was asked to repair its reply.
    pub fn repairs(&self) -> usize {
        let replies = self.entries.iter();
        replies
            .filter(|entry| {
                matches!(entry, ConversationEntry::Reply(reply) if reply.purpose == Purpose::Repair)
            })
            .count()
    }

    /// Returns `true` if it continues what an earlier attempt began.
    pub fn continues(&self, earlier: &Self) -> bool {
        let from = earlier.frame..self.frame;
        let entries = self.entries.iter();
        entries
            .filter_map(ConversationEntry::earlier)
            .any(|frame| from.contains(&frame))
    }

    pub(super) fn close(&mut self) {
        for entry in &mut self.entries {
            match entry {
                ConversationEntry::Message { content, .. } => content.json = None,
                ConversationEntry::Reply(reply) => {
                    let arguments = reply.calls.iter_mut().map(|call| &mut call.arguments);
                    for value in arguments.chain(&mut reply.content) {
                        value.json = None;
                    }
                }
                ConversationEntry::Result(result) => {
                    for block in &mut result.blocks {
                        if let ResultBlock::Text(value) | ResultBlock::Other(value) = block {
                            value.json = None;
                        }
                    }
                    if let Some(value) = &mut result.structured {
                        value.json = None;
                    }
                }
                ConversationEntry::Earlier { .. } | ConversationEntry::Note { .. } => {}
            }
        }
    }
}

/// The tasks of a step or an item.
pub(super) fn of(frames: &[Frame], own: &[&Frame], calls: &CallHistory) -> Vec<TaskConversation> {
    let mut fold = ConversationFold {
        frames,
        calls: calls
            .calls()
            .iter()
            .filter(|call| {
                own.binary_search_by_key(&call.key.0, |frame| frame.seq)
                    .is_ok()
            })
            .map(|call| (call.key, call))
            .collect(),
        tasks: Vec::new(),
    };
    for frame in own {
        fold.take(frame);
    }
    fold.tasks
}

struct ConversationFold<'f> {
    frames: &'f [Frame],
    /// The calls of tools, by the replies that ask for them.
    calls: BTreeMap<(u64, u32), &'f ToolCallRecord>,
    tasks: Vec<TaskConversation>,
}

impl ConversationFold<'_> {
    fn take(&mut self, frame: &Frame) {
        for change in changes(frame) {
            if let Change::Dispatched(_, attempt) = change {
                self.begin(frame, attempt);
            }
        }
        let event = &frame.event;
        if let Some(request) = event.request() {
            self.asked(frame, request);
        } else if let Some(answer) = event.response() {
            self.answered(frame, answer);
        } else if let Some(returned) = event.tool_result() {
            let result = self.result(frame, returned);
            self.push(ConversationEntry::Result(Box::new(result)));
        } else if let Some(finished) = event.finished() {
            self.end(frame.seq, &finished.reason.as_str().replace('_', " "));
        } else if NOTED.contains(&event.kind()) {
            let detail = lineage::detail(frame);
            let words = format!("{} {detail}", event.kind()).trim_end().to_owned();
            self.push(ConversationEntry::Note {
                frame: frame.seq,
                words,
            });
        }
    }

    fn begin(&mut self, frame: &Frame, attempt: u32) {
        self.tasks.push(TaskConversation {
            attempt,
            frame: frame.seq,
            at: frame.at,
            entries: Vec::new(),
            end: None,
        });
    }

    fn end(&mut self, frame: u64, words: &str) {
        if let Some(task) = self.tasks.last_mut() {
            task.end = Some((frame, words.to_owned()));
        }
    }

    fn push(&mut self, entry: ConversationEntry) {
        if let Some(task) = self.tasks.last_mut() {
            task.entries.push(entry);
        }
    }

    fn asked(&mut self, frame: &Frame, request: &LlmRequest) {
        let messages = request.messages.to_value();
        let messages = messages.as_array().map(Vec::as_slice).unwrap_or_default();
        for (place, message) in messages.iter().enumerate() {
            let role = message["role"].as_str().unwrap_or("message").to_owned();
            match message["frame"].as_u64() {
                Some(seq) if self.is_shown(seq) => {}
                Some(seq) => self.push(ConversationEntry::Earlier { role, frame: seq }),
                None => {
                    let at = format!("/data/messages/{place}/content");
                    let content =
                        CanonicalJson::from_value(&message["content"]).unwrap_or_default();
                    let content = PlacedValue::new(frame.seq, at, &content);
                    self.push(match self.said_before(&role, &content) {
                        Some(frame) => ConversationEntry::Earlier { role, frame },
                        None => ConversationEntry::Message { role, content },
                    });
                }
            }
        }
        let tools = request.tools.as_ref().map(CanonicalJson::to_value);
        self.push(ConversationEntry::Reply(Box::new(ModelExchange {
            request: frame.seq,
            purpose: request.purpose,
            group: request.group.clone(),
            offered: tools.and_then(|tools| Some(tools.as_array()?.len())),
            frame: None,
            model: String::new(),
            tokens: (0, 0),
            cost_micro_usd: 0,
            duration_ms: 0,
            is_cached: false,
            repeats: None,
            attempts: Vec::new(),
            error: None,
            content: None,
            calls: Vec::new(),
        })));
    }

    /// Returns `true` if the last task has a frame, so that it is shown already.
    fn is_shown(&self, seq: u64) -> bool {
        self.tasks.last().is_some_and(|task| task.frame < seq)
    }

    /// The frame with which an earlier attempt said the same to the model.
    fn said_before(&self, wanted: &str, value: &PlacedValue) -> Option<u64> {
        let (_, earlier) = self.tasks.split_last()?;
        let mut entries = earlier.iter().flat_map(|task| &task.entries);
        entries.find_map(|entry| match entry {
            ConversationEntry::Message { role, content } => {
                let is_same = role == wanted && content.json == value.json;
                is_same.then_some(content.frame)
            }
            _ => None,
        })
    }

    fn answered(&mut self, frame: &Frame, answer: &LlmResponse) {
        // The text of a repeated reply is where it was given first.
        let first = answer.repeats.and_then(|seq| frame_at(self.frames, seq));
        let first = first.and_then(|frame| Some((frame.seq, frame.event.response()?)));
        let (said_at, said) = first.unwrap_or((frame.seq, answer));
        let content = said.content.as_ref();
        let content = content.map(|content| PlacedValue::new(said_at, "/data/content", content));
        let calls = self.requested(said_at, frame.seq, said);
        let error = answer.error.as_ref();
        let error = error.map(|error| format!("{}: {}", error.code, error.message));
        // A worker that is lost leaves its request to the next one.
        let tasks = self.tasks.iter_mut().rev();
        let mut entries = tasks.flat_map(|task| task.entries.iter_mut().rev());
        let asked = entries.find_map(|entry| match entry {
            ConversationEntry::Reply(reply) if reply.request == answer.request => Some(reply),
            _ => None,
        });
        let Some(reply) = asked else {
            return;
        };
        reply.frame = Some(frame.seq);
        if !answer.model.is_empty() {
            reply.model = format!("{}/{}", answer.provider, answer.model);
        }
        reply.tokens = (answer.tokens_in, answer.tokens_out);
        reply.cost_micro_usd = answer.cost_micro_usd;
        reply.duration_ms = answer.duration_ms;
        reply.is_cached = answer.cached;
        reply.repeats = answer.repeats;
        reply.attempts.clone_from(&answer.attempts);
        reply.error = error;
        reply.content = content;
        reply.calls = calls;
    }

    /// The calls that a reply asks for; `said_at` is the frame that lists them, `key` the one by which
    /// they are known.
    fn requested(&self, said_at: u64, key: u64, said: &LlmResponse) -> Vec<AskedTool> {
        let calls = said.tool_calls.as_ref().map(CanonicalJson::to_value);
        let calls = calls.as_ref().and_then(Value::as_array);
        let calls = calls.map(Vec::as_slice).unwrap_or_default();
        let calls = (0u32..).zip(calls);
        let asked = calls.map(|(place, call)| {
            let call = RequestedCall::parse(call);
            let record = self.calls.get(&(key, place));
            let trace = record.map(|record| ToolCallTrace::of(record, self.frames));
            let at = format!("/data/tool_calls/{place}/arguments");
            AskedTool {
                name: trace.as_ref().map_or(call.name, |trace| trace.tool.clone()),
                arguments: PlacedValue::new(said_at, at, &call.arguments),
                people: trace
                    .as_ref()
                    .map_or_else(Vec::new, |trace| trace.people.clone()),
                is_failed: trace.as_ref().is_some_and(|trace| trace.failed),
                returned: trace.as_ref().and_then(|trace| trace.returned),
                outcome: trace.map_or_else(|| "not called".to_owned(), |trace| trace.outcome),
            }
        });
        asked.collect()
    }

    fn result(&self, frame: &Frame, returned: &ToolReturned) -> ToolOutput {
        let record = self.calls.get(&(returned.response, returned.call));
        let trace = record.map(|record| ToolCallTrace::of(record, self.frames));
        let content = returned.content.to_value();
        let blocks = content.as_array().map(Vec::as_slice).unwrap_or_default();
        let blocks = blocks.iter().enumerate();
        let structured = returned.structured.as_ref();
        ToolOutput {
            frame: frame.seq,
            name: trace.map_or_else(String::new, |trace| trace.tool),
            is_error: returned.is_error,
            duration_ms: returned.duration_ms,
            sendings: record.map_or(0, |record| record.sent.len()),
            blocks: blocks
                .map(|(place, block)| result_block(frame.seq, place, block))
                .collect(),
            structured: structured
                .map(|value| PlacedValue::new(frame.seq, "/data/structured", value)),
        }
    }
}

fn result_block(frame: u64, place: usize, block: &Value) -> ResultBlock {
    let at = format!("/data/content/{place}");
    let word = |of: &Value, name: &str| of[name].as_str().map(str::to_owned);
    if let Some(text) = block["text"].as_str() {
        let text = CanonicalJson::string(text);
        return ResultBlock::Text(PlacedValue::new(frame, format!("{at}/text"), &text));
    }
    let data = word(block, "data").map(|data| (data, block));
    let blob = word(&block["resource"], "blob").map(|blob| (blob, &block["resource"]));
    let Some((data, about)) = data.or(blob) else {
        let other = CanonicalJson::from_value(block).unwrap_or_default();
        return ResultBlock::Other(PlacedValue::new(frame, at, &other));
    };
    let kind = word(block, "type").unwrap_or_default();
    let media = word(about, "mimeType").unwrap_or_default();
    let bytes = STANDARD.decode(&data).unwrap_or_else(|_| data.into_bytes());
    ResultBlock::File {
        kind: format!("{kind} {media}").trim_end().to_owned(),
        bytes: bytes.len(),
        digest: Hash::of(&bytes).to_string(),
    }
}
