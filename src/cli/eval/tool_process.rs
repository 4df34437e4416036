//! A program that speaks MCP on its standard input and output, asked from several tasks at once.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader, PipeReader, Read as _, Write as _};
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use ktsu_sandbox::{Ending, ProgramEnd, ServingProgram};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::oneshot;

/// The most bytes of a message.
pub(super) const MAX_MESSAGE: usize = 16 << 20;

/// How long a program may take to end after it has ended its output.
const END_TIMEOUT: Duration = Duration::from_secs(5);

/// JSON-RPC: there is no such method.
const NO_METHOD: i32 = -32601;

/// The program. Once it is stopped or dropped, nothing of it runs.
pub(super) struct ToolProcess {
    program: Mutex<Option<ServingProgram>>,
    /// Messages for its standard input.
    messages: Sender<Vec<u8>>,
    replies: Replies,
}

/// Who waits for which reply, by the id of the request; or why there is none any more, in words.
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
        let (messages, written) = channel();
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
        self.send(request);
        let lost = |_| match &*self.replies.lock() {
            Ok(_) => "it is closed".to_owned(),
            Err(why) => why.clone(),
        };
        reply.await.map_err(lost)
    }

    /// Sends a message without a reply.
    pub(super) fn send(&self, message: &Value) {
        // Without a reader there is no reply either.
        let _ = self.messages.send(line(message));
    }

    /// Ends the program.
    pub(super) fn stop(&self) {
        drop(self.program.lock().take());
    }
}

/// How a program ended that has ended its output, in words.
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

/// Reads messages until the program ends its output; or sends one that is too long, in words.
fn read(output: PipeReader, replies: &Replies, answers: &Sender<Vec<u8>>) -> Option<String> {
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
        if let Ok(message) = serde_json::from_slice::<Value>(&line) {
            take(message, replies, answers);
        }
    }
}

fn take(message: Value, replies: &Replies, answers: &Sender<Vec<u8>>) {
    let (id, method) = (&message["id"], message["method"].as_str());
    match method {
        None => {
            let mut replies = replies.lock();
            let waiting = replies.as_mut().ok();
            let waiting = waiting.and_then(|all| all.remove(&id.to_string()));
            if let Some(waiting) = waiting {
                let _ = waiting.send(message);
            }
        }
        Some(_) if id.is_null() => {}
        Some("ping") => {
            let reply = json!({"id": id, "jsonrpc": "2.0", "result": {}});
            let _ = answers.send(line(&reply));
        }
        Some(_) => {
            let error = json!({"code": NO_METHOD, "message": "not supported"});
            let reply = json!({"error": error, "id": id, "jsonrpc": "2.0"});
            let _ = answers.send(line(&reply));
        }
    }
}
