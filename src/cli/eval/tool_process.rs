//! A program that speaks MCP on its standard input and output, asked from several tasks at once.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread;
use std::time::Duration;

use ktsu_sandbox::{Ending, ProgramEnd, ServingProgram};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The most bytes of a message.
pub(super) const MAX_MESSAGE: usize = 16 << 20;

/// The most messages that wait until the program reads them.
const MAX_WAITING: usize = 16;

/// The most bytes of the id of a request that is answered.
const MAX_ID: usize = 1_024;

/// The fault of a program that takes no message any more.
const READS_NOTHING: &str = "it does not read its input";

/// The time that a program may take to end after it has ended its output.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// JSON-RPC: there is no such method.
const NO_METHOD: i32 = -32601;

/// The program. Once it is stopped or dropped, nothing of it runs.
pub(super) struct ToolProcess {
    program: Mutex<Option<ServingProgram>>,
    /// Messages for its standard input.
    messages: SyncSender<Vec<u8>>,
    replies: Replies,
}

/// The requests that wait for a reply, by their ids; or the reason why there is none any more, in
/// words.
type Replies = Arc<Mutex<Result<HashMap<String, oneshot::Sender<Value>>, String>>>;

/// A request that waits for its reply. What is dropped waits no longer.
struct Waiting {
    replies: Replies,
    id: String,
}

impl ToolProcess {
    /// Speaks with a program that has been started.
    pub(super) fn new(mut program: ServingProgram) -> Self {
        let replies: Replies = Arc::new(Mutex::new(Ok(HashMap::new())));
        let (messages, written) = sync_channel(MAX_WAITING);
        if let Some(input) = program.input.take() {
            thread::spawn(move || write(input, &written));
        }
        if let Some(output) = program.output.take() {
            let (known, answers) = (Arc::clone(&replies), messages.clone());
            let ending = program.ending();
            thread::spawn(move || {
                let too_long = read(output, &known, &answers);
                *known.lock() = Err(too_long.unwrap_or_else(|| end(&ending)));
            });
        }
        Self {
            program: Mutex::new(Some(program)),
            messages,
            replies,
        }
    }

    /// Sends a request, and waits for its reply.
    ///
    /// # Errors
    /// How the program ended, in words.
    pub(super) async fn ask(&self, request: &Value) -> Result<Value, String> {
        let waiting = Waiting {
            replies: Arc::clone(&self.replies),
            id: request["id"].to_string(),
        };
        let reply = waiting.reply()?;
        self.send(request)?;
        let lost = |_| match &*self.replies.lock() {
            Ok(_) => "it is closed".to_owned(),
            Err(why) => why.clone(),
        };
        reply.await.map_err(lost)
    }

    /// Sends a message without a reply.
    ///
    /// # Errors
    /// The program does not read its messages, in words.
    pub(super) fn send(&self, message: &Value) -> Result<(), String> {
        match self.messages.try_send(line(message)) {
            Err(TrySendError::Full(_)) => Err(READS_NOTHING.to_owned()),
            // Without a writer there is no reply either.
            Ok(()) | Err(TrySendError::Disconnected(_)) => Ok(()),
        }
    }

    /// Ends the program.
    pub(super) fn stop(&self) {
        drop(self.program.lock().take());
    }
}

/// The end of a program that has ended its output, in words.
fn end(ending: &Ending) -> String {
    match ending.wait(END_TIMEOUT) {
        Some((ProgramEnd::Stopped(limit), _)) => format!("it was ended: {limit}"),
        Some((ProgramEnd::Exited(code), last)) if last.is_empty() => {
            format!("it ended with exit code {code}")
        }
        Some((ProgramEnd::Exited(code), last)) => format!("it ended with exit code {code}: {last}"),
        None => "it ended its output".to_owned(),
    }
}

impl Waiting {
    /// The reply, once it is there; or why there will be none.
    fn reply(&self) -> Result<oneshot::Receiver<Value>, String> {
        let (sender, reply) = oneshot::channel();
        let mut replies = self.replies.lock();
        let known = replies.as_mut().map_err(|why| why.clone())?;
        known.insert(self.id.clone(), sender);
        Ok(reply)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Ok(replies) = self.replies.lock().as_mut() {
            replies.remove(&self.id);
        }
    }
}

fn line(message: &Value) -> Vec<u8> {
    let mut line = message.to_string().into_bytes();
    line.push(b'\n');
    line
}

fn write(mut input: ChildStdin, messages: &Receiver<Vec<u8>>) {
    while let Ok(message) = messages.recv() {
        if input
            .write_all(&message)
            .and_then(|()| input.flush())
            .is_err()
        {
            return;
        }
    }
}

/// Reads messages until the program ends its output; or does what ends the conversation, in words.
fn read(output: PipeReader, replies: &Replies, answers: &SyncSender<Vec<u8>>) -> Option<String> {
    let mut output = BufReader::new(output);
    loop {
        let mut line = Vec::new();
        let most = MAX_MESSAGE as u64 + 1;
        let read = output.by_ref().take(most).read_until(b'\n', &mut line);
        match read {
            Ok(1..=MAX_MESSAGE) => {}
            Ok(0) | Err(_) => return None,
            Ok(_) => {
                return Some(format!(
                    "it sent a message of more than {} MiB",
                    MAX_MESSAGE >> 20
                ));
            }
        }
        // Anything else is no message, such as what a program logs.
        if let Ok(message) = serde_json::from_slice::<Value>(&line)
            && !take(message, replies, answers)
        {
            return Some(READS_NOTHING.to_owned());
        }
    }
}

/// Handles a message, and returns `true` if what follows from it could be done.
fn take(message: Value, replies: &Replies, answers: &SyncSender<Vec<u8>>) -> bool {
    let (id, method) = (message["id"].to_string(), message["method"].as_str());
    let Some(method) = method else {
        let mut replies = replies.lock();
        let waiting = replies.as_mut().ok();
        if let Some(waiting) = waiting.and_then(|all| all.remove(&id)) {
            let _ = waiting.send(message);
        }
        return true;
    };
    // A notification, or a request that no client makes.
    if message["id"].is_null() || id.len() > MAX_ID {
        return true;
    }
    let mut reply = json!({"id": message["id"], "jsonrpc": "2.0"});
    match method {
        "ping" => reply["result"] = json!({}),
        _ => reply["error"] = json!({"code": NO_METHOD, "message": "not supported"}),
    }
    !matches!(answers.try_send(line(&reply)), Err(TrySendError::Full(_)))
}
