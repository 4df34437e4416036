//! The replies of a recorded run, as `ktsu frames RUN --json --expand` prints it.
//!
//! A request is identified by its group and its messages, including tool calls and results. If a
//! run contains the same request more than once, its replies are returned in the order they were
//! recorded, and the last one from then on.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Deserialize;
use serde_json::Value;

use super::super::{ProviderCall, ProviderReply};
use crate::error::{Code, GatewayError};
use ktsu_config::fault::{Fault, FaultCode, Faults};
use ktsu_config::yaml::SourceSpan;
use ktsu_contract::gateway::{AttemptUsage, ChatMessage, ToolCall};
use ktsu_contract::result;

/// The most bytes of such a file: a very long run.
const MAX_FILE: u64 = 256 << 20;

type Digest = [u8; 32];

/// Replies by what was asked.
#[derive(Debug, Default)]
pub(super) struct RecordedReplies {
    replies: HashMap<Digest, ReplyIndex>,
}

#[derive(Debug, Default)]
struct ReplyIndex {
    in_order: Vec<Result<ProviderReply, GatewayError>>,
    given: AtomicUsize,
}

/// The parts of a frame that are read.
#[derive(Deserialize)]
struct Frame {
    seq: u64,
    #[serde(rename = "type")]
    kind: String,
    #[serde(default)]
    data: Value,
    #[serde(default)]
    ext: Vec<Value>,
}

impl Frame {
    /// Returns `true` if a value that is kept apart was not put back: its place holds null.
    fn lacks(&self) -> bool {
        let pointer = |place: &Value| place["path"].as_str().map(str::to_owned);
        let mut pointers = self.ext.iter().filter_map(pointer);
        pointers.any(|pointer| self.data.pointer(&pointer).is_none_or(Value::is_null))
    }
}

#[derive(Deserialize)]
struct Request {
    base: Option<u64>,
    group: String,
    messages: Vec<RecordedMessage>,
}

/// A message, whole or by the frame that has it.
#[derive(Deserialize)]
struct RecordedMessage {
    frame: Option<u64>,
    #[serde(flatten)]
    message: ChatMessage,
}

#[derive(Deserialize)]
struct Response {
    request: u64,
    content: Option<String>,
    #[serde(flatten)]
    used: AttemptUsage,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
    error: Option<CallError>,
}

/// The result of a tool call.
#[derive(Deserialize)]
struct Returned {
    call: usize,
    #[serde(default)]
    content: Value,
    #[serde(default)]
    is_error: bool,
    response: u64,
    structured: Option<Value>,
}

#[derive(Deserialize)]
struct CallError {
    code: String,
    #[serde(default)]
    message: String,
    #[serde(default)]
    retryable: bool,
}

impl RecordedReplies {
    /// Reads a file of frames, one a line.
    pub(super) fn load(real: &Path, shown: &Path, faults: &mut Faults) -> Option<Self> {
        let mut refuse = |code, line, words: &str| {
            let place = SourceSpan {
                line,
                ..SourceSpan::default()
            };
            faults.add(Fault::new(code, place, words).in_file(shown));
            None
        };
        let file = std::fs::metadata(real)
            .ok()
            .filter(std::fs::Metadata::is_file);
        let Some(Ok(file)) = file.map(|_| std::fs::File::open(real)) else {
            return refuse(FaultCode::FileUnreadable, 0, "the file cannot be read");
        };
        if file.metadata().is_ok_and(|about| about.len() > MAX_FILE) {
            let words = "the file is larger than 256 MiB";
            return refuse(FaultCode::FileTooLarge, 0, words);
        }
        let mut run = RunReader::default();
        for (at, line) in BufReader::new(file.take(MAX_FILE)).lines().enumerate() {
            let Ok(line) = line else {
                let words = "the file is not readable text";
                return refuse(FaultCode::FileUnreadable, at + 1, words);
            };
            if line.trim().is_empty() {
                continue;
            }
            if let Err(words) = run.take(&line) {
                // The text is too long to be kept for reports: the words say where.
                let words = format!("line {}: {words}", at + 1);
                return refuse(FaultCode::BadValue, at + 1, &words);
            }
        }
        Some(run.recorded)
    }

    /// The reply that was recorded for a request like this one.
    pub(super) fn answer(
        &self,
        call: &ProviderCall,
    ) -> Option<Result<ProviderReply, GatewayError>> {
        let replies = self.replies.get(&digest(&call.group, &call.messages))?;
        let last = replies.in_order.len().checked_sub(1)?;
        let given = replies.given.fetch_add(1, Ordering::Relaxed);
        replies.in_order.get(given.min(last)).cloned()
    }
}

/// A file while it is read: the requests of the run at hand, and the messages that its frames
/// stand for, by their numbers.
#[derive(Default)]
struct RunReader {
    recorded: RecordedReplies,
    requests: BTreeMap<u64, (String, Vec<ChatMessage>)>,
    frames: BTreeMap<u64, ChatMessage>,
    after: Option<u64>,
}

impl RunReader {
    fn take(&mut self, line: &str) -> Result<(), String> {
        let frame: Frame = serde_json::from_str(line).map_err(|_| "not a frame".to_owned())?;
        // Numbers rise within a run: one that does not begins the next.
        if self.after.is_some_and(|after| frame.seq <= after) {
            self.requests.clear();
            self.frames.clear();
        }
        self.after = Some(frame.seq);
        let broken = |kind: &str| {
            if frame.ext.is_empty() {
                format!("this {kind} cannot be read")
            } else {
                format!("values of this {kind} are kept apart: export the run with --expand")
            }
        };
        match frame.kind.as_str() {
            "llm.request" => {
                let request = Request::deserialize(&frame.data);
                let request = request.map_err(|_| broken("llm.request"))?;
                self.request(frame.seq, request)
            }
            "llm.response" => {
                let response = Response::deserialize(&frame.data);
                let response = response.ok().filter(|_| !frame.lacks());
                let response = response.ok_or_else(|| broken("llm.response"))?;
                self.response(frame.seq, response)
            }
            "tool.returned" => {
                let returned = Returned::deserialize(&frame.data);
                let returned = returned.ok().filter(|_| !frame.lacks());
                let returned = returned.ok_or_else(|| broken("tool.returned"))?;
                self.returned(frame.seq, returned)
            }
            _ => Ok(()),
        }
    }

    fn request(&mut self, seq: u64, request: Request) -> Result<(), String> {
        let mut messages = match request.base {
            None => Vec::new(),
            Some(base) => match self.requests.get(&base) {
                Some((_, messages)) => messages.clone(),
                None => return Err(format!("it goes on from frame {base}, which is missing")),
            },
        };
        for said in request.messages {
            messages.push(match said.frame {
                None => said.message,
                Some(frame) => match self.frames.get(&frame) {
                    Some(message) => message.clone(),
                    None => return Err(format!("it repeats frame {frame}, which is missing")),
                },
            });
        }
        self.requests.insert(seq, (request.group, messages));
        Ok(())
    }

    fn response(&mut self, seq: u64, response: Response) -> Result<(), String> {
        let Some((group, messages)) = self.requests.get(&response.request) else {
            let seq = response.request;
            return Err(format!("it answers frame {seq}, which is missing"));
        };
        let replies = self
            .recorded
            .replies
            .entry(digest(group, messages))
            .or_default();
        let outcome = outcome(response);
        if let Ok(answer) = &outcome {
            let message = ChatMessage {
                role: "assistant".to_owned(),
                content: answer.content.clone(),
                tool_calls: answer.tool_calls.clone(),
                ..ChatMessage::default()
            };
            self.frames.insert(seq, message);
        }
        replies.in_order.push(outcome);
        Ok(())
    }

    fn returned(&mut self, seq: u64, returned: Returned) -> Result<(), String> {
        let asked = self.frames.get(&returned.response);
        let Some(call) = asked.and_then(|asked| asked.tool_calls.get(returned.call)) else {
            let response = returned.response;
            return Err(format!(
                "it answers a call of frame {response}, which is missing"
            ));
        };
        let message = ChatMessage {
            role: "tool".to_owned(),
            content: result::text(&returned.content, returned.structured.as_ref()),
            tool_call_id: Some(call.id.clone()),
            is_error: returned.is_error,
            ..ChatMessage::default()
        };
        self.frames.insert(seq, message);
        Ok(())
    }
}

fn outcome(response: Response) -> Result<ProviderReply, GatewayError> {
    let used = AttemptUsage {
        cost_micro_usd: 0,
        ..response.used
    };
    match (response.error, response.content) {
        (Some(error), _) => {
            let mut words = Code::WORDS.iter();
            let code = words.find(|(text, _)| *text == error.code);
            let code = code.map_or(Code::ProviderError, |(_, code)| *code);
            let mut failure = GatewayError::new(code, error.message);
            failure.retryable = error.retryable;
            Err(failure.having_used(used))
        }
        (None, content) => Ok(ProviderReply {
            content: content.unwrap_or_default(),
            used,
            tool_calls: response.tool_calls,
        }),
    }
}

/// Equal for equal groups and messages.
fn digest(group: &str, messages: &[ChatMessage]) -> Digest {
    let text = serde_json::to_vec(&(group, messages)).unwrap_or_default();
    *blake3::hash(&text).as_bytes()
}
