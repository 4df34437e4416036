//! The older transport of MCP, of 2024-11-05: an event stream for as long as a client listens;
//! responses to posted messages arrive as its events.
//!
//! A stream belongs to an attempt and ends with it. It is not a session: each message is authorized
//! by its token, as everywhere else.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::super::reports::TaskAddress;
use super::super::supervise::TICK_INTERVAL;
use super::super::{Orchestrator, ReportError, Shared};
use super::{BuiltinCaller, BuiltinServer, ProtocolAnswer};

/// The most streams at once: each holds a connection, of which there are 2,048.
const MAX_STREAMS: usize = 256;

/// The most streams of one attempt: a client that connects anew may leave some behind.
const MAX_STREAMS_PER_ATTEMPT: usize = 8;

/// The limit of unread responses; further messages are refused until the client reads.
const MAX_WAITING_ANSWERS: usize = 16;

/// The time for which a stream may be silent.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// Streams that are open, by their names.
#[derive(Debug, Default)]
pub(crate) struct ToolStreams(Mutex<HashMap<String, OpenStream>>);

#[derive(Debug)]
struct OpenStream {
    owner: BuiltinCaller,
    answers: mpsc::Sender<Value>,
}

/// A stream of responses for its client. Dropping it closes the stream.
pub struct ToolStream {
    shared: Arc<Shared>,
    name: String,
    of: BuiltinCaller,
    answers: mpsc::Receiver<Value>,
    stop: watch::Receiver<bool>,
}

/// The result of posting a message for a stream.
#[derive(Debug, PartialEq)]
pub enum PostOutcome {
    /// Its answer, if it has one, is on the stream.
    Accepted,
    /// It is no message of MCP.
    Refused(Value),
    /// There is no such stream of this attempt.
    NoSuchStream,
}

impl Orchestrator {
    /// Opens a stream.
    ///
    /// # Errors
    /// [`ReportError`]: the token is not of this task, its attempt is over, there are too many.
    pub fn open_tool_stream(
        &self,
        server: BuiltinServer,
        task: &TaskAddress,
        token: &str,
    ) -> Result<ToolStream, ReportError> {
        let of = self.builtin_caller(server, task, token)?;
        let shared = &self.shared;
        if !shared.supervisor.is_watched(&task.name(), of.attempt) {
            return Err(ReportError::Stale);
        }
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| ReportError::Unavailable(error.to_string()))?;
        let name = uuid::Builder::from_random_bytes(bytes)
            .into_uuid()
            .simple()
            .to_string();
        let lives = |of: &BuiltinCaller| shared.supervisor.is_watched(&of.task.name(), of.attempt);
        let answers = shared.own_tools.streams.open(&name, &of, lives)?;
        Ok(ToolStream {
            shared: Arc::clone(shared),
            name,
            of,
            answers,
            stop: shared.runs.stopping(),
        })
    }

    /// Handles a message, and puts the response on a stream of the same attempt.
    ///
    /// # Errors
    /// [`ReportError`]: the token is not of this task, or nobody reads the answers.
    pub async fn post_to_tool_stream(
        &self,
        server: BuiltinServer,
        task: &TaskAddress,
        token: &str,
        stream: &str,
        version: Option<&str>,
        message: &Value,
    ) -> Result<PostOutcome, ReportError> {
        let of = self.builtin_caller(server, task, token)?;
        let Some(answers) = self.shared.own_tools.streams.find(stream, &of) else {
            return Ok(PostOutcome::NoSuchStream);
        };
        // Reserves space for the response before executing anything.
        let room = answers.try_reserve().map_err(|_| {
            ReportError::Unavailable(
                "the answers to earlier messages are to be read first".to_owned(),
            )
        })?;
        let answered = self.answer_message(&of, version, message);
        Ok(match answered.await {
            ProtocolAnswer::Nothing => PostOutcome::Accepted,
            ProtocolAnswer::With(answer) => {
                room.send(answer);
                PostOutcome::Accepted
            }
            ProtocolAnswer::Refused(answer) => PostOutcome::Refused(answer),
        })
    }
}

impl ToolStreams {
    fn open(
        &self,
        name: &str,
        of: &BuiltinCaller,
        lives: impl Fn(&BuiltinCaller) -> bool,
    ) -> Result<mpsc::Receiver<Value>, ReportError> {
        let mut open = self.0.lock();
        // A client that does not read keeps its connection, and no place beyond its attempt.
        open.retain(|_, one| lives(&one.owner));
        let own = open.values().filter(|one| one.owner == *of).count();
        if open.len() >= MAX_STREAMS || own >= MAX_STREAMS_PER_ATTEMPT {
            let words = "too many streams are open".to_owned();
            return Err(ReportError::Unavailable(words));
        }
        let (answers, answered) = mpsc::channel(MAX_WAITING_ANSWERS);
        let of = of.clone();
        open.insert(name.to_owned(), OpenStream { owner: of, answers });
        Ok(answered)
    }

    fn find(&self, name: &str, of: &BuiltinCaller) -> Option<mpsc::Sender<Value>> {
        let open = self.0.lock();
        let found = open.get(name).filter(|one| one.owner == *of);
        found.map(|one| one.answers.clone())
    }
}

impl ToolStream {
    /// Its name, which messages are posted with.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The next answer; nothing once the stream is over: with its attempt, with the engine, or
    /// after a long silence.
    pub async fn next(&mut self) -> Option<Value> {
        let (supervisor, of) = (&self.shared.supervisor, &self.of);
        let lives = || supervisor.is_watched(&of.task.name(), of.attempt);
        answer(&mut self.answers, &mut self.stop, lives).await
    }
}

async fn answer(
    answers: &mut mpsc::Receiver<Value>,
    stop: &mut watch::Receiver<bool>,
    lives: impl Fn() -> bool,
) -> Option<Value> {
    let silent = Instant::now() + IDLE_TIMEOUT;
    loop {
        tokio::select! {
            biased;
            answer = answers.recv() => return answer,
            _ = stop.wait_for(|stop| *stop) => return None,
            () = tokio::time::sleep_until(silent) => return None,
            () = tokio::time::sleep(TICK_INTERVAL) => if !lives() {
                return None;
            },
        }
    }
}

impl Drop for ToolStream {
    fn drop(&mut self) {
        self.shared.own_tools.streams.0.lock().remove(&self.name);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ktsu_ledger::StreamId;

    fn of(run: &str, attempt: u32) -> BuiltinCaller {
        BuiltinCaller {
            server: BuiltinServer::Kv,
            task: TaskAddress {
                stream: StreamId::run(run).unwrap(),
                scope: String::new(),
                step: "s".to_owned(),
                item: None,
            },
            attempt,
        }
    }

    #[test]
    fn a_stream_is_found_by_the_attempt_it_belongs_to_alone() {
        let streams = ToolStreams::default();
        let _answers = streams.open("a", &of("run_1", 1), |_| true).unwrap();
        assert!(streams.find("a", &of("run_1", 1)).is_some());
        assert!(streams.find("b", &of("run_1", 1)).is_none());
        assert!(streams.find("a", &of("run_1", 2)).is_none());
        assert!(streams.find("a", &of("run_2", 1)).is_none());
        let mut other = of("run_1", 1);
        other.server = BuiltinServer::Envelope;
        assert!(streams.find("a", &other).is_none());
    }

    #[test]
    fn an_attempt_has_some_streams_and_all_of_them_together_a_few_hundred() {
        let streams = ToolStreams::default();
        let mut held = Vec::new();
        for at in 0..8 {
            held.push(
                streams
                    .open(&format!("a{at}"), &of("run_1", 1), |_| true)
                    .unwrap(),
            );
        }
        let refused = streams.open("a8", &of("run_1", 1), |_| true).unwrap_err();
        assert!(matches!(refused, ReportError::Unavailable(_)));
        for at in 8..256 {
            let run = format!("run_{at}");
            held.push(
                streams
                    .open(&format!("b{at}"), &of(&run, 1), |_| true)
                    .unwrap(),
            );
        }
        assert!(streams.open("c", &of("run_2", 1), |_| true).is_err());
        // Nobody has to hang up for the places of attempts that are over.
        let lives = |one: &BuiltinCaller| *one != of("run_1", 1);
        assert!(streams.open("c", &of("run_2", 1), lives).is_ok());
    }

    /// Time is virtual: what is waited for comes at once.
    #[tokio::test(start_paused = true)]
    async fn a_stream_ends_with_its_attempt_with_the_engine_and_after_a_long_silence() {
        let (to, mut answers) = mpsc::channel(1);
        let (stopping, mut stop) = watch::channel(false);
        let begun = Instant::now();
        assert_eq!(answer(&mut answers, &mut stop, || false).await, None);
        assert_eq!(begun.elapsed(), TICK_INTERVAL);
        let begun = Instant::now();
        assert_eq!(answer(&mut answers, &mut stop, || true).await, None);
        assert_eq!(begun.elapsed(), IDLE_TIMEOUT);
        // What is answered already is told all the same.
        to.send(Value::from(1)).await.unwrap();
        stopping.send_replace(true);
        let told = answer(&mut answers, &mut stop, || false).await;
        assert_eq!(told, Some(Value::from(1)));
        assert_eq!(answer(&mut answers, &mut stop, || true).await, None);
    }
}
