//! Asking whoever sits at the terminal about a call that waits for a person: `ktsu run`, and what
//! goes on with a run. Elsewhere it is said once what to type in another terminal.

use std::collections::VecDeque;

use axum::body::Body;
use axum::http::{Method, Request};
use ktsu_ledger::StreamId;
use ktsu_projections::approvals::{Kind, Record, Status, approval_id};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::approvals::path_of;
use super::output::{BAD, DIM, GOOD, is_live, note, painted};
use super::text;
use crate::peer::Peer;

/// What people are asked, and where the answer comes from.
pub(super) struct Asking {
    peer: Peer,
    /// `--ledger PATH`, for what is shown to be typed.
    flag: String,
    /// Standard input, if somebody sits there.
    input: Option<mpsc::Receiver<String>>,
    /// What waits, the first being asked now.
    waiting: VecDeque<Record>,
}

impl Asking {
    /// Asks on the terminal, if there is one.
    pub(super) fn new(peer: &Peer, flag: &str) -> Self {
        use std::io::IsTerminal as _;
        let sits = std::io::stdin().is_terminal() && is_live();
        Self {
            peer: peer.clone(),
            flag: flag.to_owned(),
            input: sits.then(lines),
            waiting: VecDeque::new(),
        }
    }

    /// Takes a frame: a call begins to wait, or does so no more. Tells whether one was added.
    pub(super) async fn take(&mut self, frame: &Value) -> bool {
        let data = &frame["data"];
        match frame["type"].as_str().unwrap_or_default() {
            "approval.requested" => {}
            "tool.in_doubt" if data["reason"] != "task_ended" => {}
            "approval.decided" | "approval.expired" | "agent.finished" => {
                self.settled(data);
                return false;
            }
            _ => return false,
        }
        let stream = frame["stream"].as_str().and_then(|text| text.parse().ok());
        let asked: Option<(StreamId, u64)> = stream.zip(frame["seq"].as_u64());
        let Some((stream, seq)) = asked else {
            return false;
        };
        let id = approval_id(&stream, seq);
        let Some(record) = self.record(&id).await else {
            return false;
        };
        self.waiting.push_back(record);
        match &self.input {
            Some(_) if self.waiting.len() == 1 => self.ask(),
            Some(_) => {}
            None => self.tell(),
        }
        true
    }

    /// Whether somebody is being asked here.
    pub(super) fn is_asking(&self) -> bool {
        self.input.is_some() && !self.waiting.is_empty()
    }

    /// Waits for a line of whoever sits there, and takes it as an answer.
    pub(super) async fn answered(&mut self) {
        let Some(input) = &mut self.input else {
            return std::future::pending().await;
        };
        match input.recv().await {
            Some(line) => self.answer(line.trim()).await,
            // Nobody sits there any more.
            None => {
                self.input = None;
                self.tell();
            }
        }
    }

    async fn answer(&mut self, words: &str) {
        let Some(record) = self.waiting.front().cloned() else {
            return;
        };
        let (word, rest) = words.split_once(' ').unwrap_or((words, ""));
        let rest = rest.trim();
        let mut body = match (word.to_ascii_lowercase().as_str(), record.kind) {
            ("y" | "yes" | "approve", _) => json!({"decision": "approved"}),
            ("n" | "no" | "reject", _) => json!({"decision": "rejected"}),
            ("h" | "happened", Kind::InDoubt) => json!({"decision": "happened", "result": rest}),
            _ => return self.ask(),
        };
        if !rest.is_empty() && body["decision"] != "happened" {
            body["reason"] = Value::from(rest);
        }
        body["approval_id"] = Value::from(record.approval_id.as_str());
        body["digest"] = Value::from(record.digest.as_str());
        let request = Request::builder()
            .method(Method::POST)
            .uri(path_of(&record));
        let Ok(request) = request.body(Body::from(body.to_string())) else {
            return;
        };
        match self.peer.whole(request).await {
            // The frame that follows takes it off the list.
            Ok((200, _)) => {}
            Ok((_, answer)) => {
                let answer: Value = serde_json::from_slice(&answer).unwrap_or_default();
                let message = answer["message"].as_str().unwrap_or("it was not taken");
                note(&painted(BAD, &format!("  {}", text::line(message))));
            }
            Err(error) => note(&painted(BAD, &format!("  {error}"))),
        }
    }

    /// What was asked about waits no more.
    fn settled(&mut self, data: &Value) {
        let first = self.waiting.front().map(|record| record.request);
        let request = data["request"].as_u64();
        let ended = data["outcome"].is_object();
        let step = data["step"].as_str().unwrap_or_default().to_owned();
        self.waiting.retain(|record| {
            let of_step = record.step_id.split('.').next() == Some(step.as_str());
            let decided = Some(record.request) == request && record.quorum <= 1;
            !(decided || (ended && of_step))
        });
        let now = self.waiting.front().map(|record| record.request);
        if self.input.is_some() && now.is_some() && now != first {
            self.ask();
        }
    }

    async fn record(&self, id: &str) -> Option<Record> {
        let request = Request::get("/approvals").body(Body::empty()).ok()?;
        let (status, body) = self.peer.whole(request).await.ok()?;
        let records: Vec<Record> = match status {
            200 => serde_json::from_slice(&body).ok()?,
            _ => return None,
        };
        let waits = |record: &Record| record.approval_id == id && record.status == Status::Pending;
        records.into_iter().find(waits)
    }

    /// The question. What was typed before it is no answer to it.
    fn ask(&mut self) {
        while let Some(Ok(_)) = self.input.as_mut().map(mpsc::Receiver::try_recv) {}
        let Some(record) = self.waiting.front() else {
            return;
        };
        note("");
        note(&question(record));
        let how = match record.kind {
            Kind::Approval => "  approve? y, n, or n WHY: ",
            Kind::InDoubt => "  y sends it again, n ends the step, h RESULT says what it gave: ",
        };
        note(&painted(GOOD, how));
    }

    /// What to type elsewhere.
    fn tell(&self) {
        let Some(record) = self.waiting.back() else {
            return;
        };
        let (id, flag) = (&record.approval_id, &self.flag);
        note(&question(record));
        note(&painted(DIM, &format!("    ktsu approve {id}{flag}")));
        note(&painted(
            DIM,
            &format!("    ktsu reject {id} --reason TEXT{flag}"),
        ));
    }
}

/// Lines that are typed. A thread of its own waits for them, which nothing waits for at the end.
fn lines() -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel(16);
    std::thread::spawn(move || {
        for line in std::io::stdin().lines() {
            let Ok(line) = line else { break };
            if sender.blocking_send(line).is_err() {
                break;
            }
        }
    });
    lines
}

fn question(record: &Record) -> String {
    let call = format!(
        "{} of {} {}",
        record.tool_name, record.server, record.arguments
    );
    let call = text::line(&call);
    match record.kind {
        Kind::Approval => format!("  {} asks for {call}", text::line(&record.step_id)),
        Kind::InDoubt => format!(
            "  {} does not know whether this happened: {call}",
            text::line(&record.step_id)
        ),
    }
}
