//! An orchestrator, a model, people and tool servers, all of them scripted.

use std::collections::BTreeMap;

use serde_json::json;

use super::super::*;
use crate::tools::ServerTool as Listed;
use crate::tools::sessions::OutgoingCall;
use ktsu_contract::gateway::{ChatMessage, ToolCall};
use ktsu_contract::report::LlmRequest;
use ktsu_contract::runtime::{RecordedFrame, ToolServer};

/// A call that a model asks for, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Kind {
    Answers,
    Fails,
    /// Is sent, and never answered.
    Silent,
    StatefulAnswers,
    /// The same, of a server that must not be asked twice; what a person says to it.
    Doubtful(&'static str),
    /// Calls that wait for a person's approval, and says this.
    Gated(&'static str),
    Unknown,
    WrongArguments,
    NoObject,
    Secret,
    Suppressed,
    Forbidden,
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Answers | Self::WrongArguments | Self::NoObject | Self::Secret => "read",
            Self::Fails => "fail",
            Self::Silent => "silent",
            Self::StatefulAnswers => "write",
            Self::Doubtful(_) => "lose",
            Self::Gated(_) => "delete",
            Self::Unknown => "read_more",
            Self::Suppressed => "elsewhere",
            Self::Forbidden => "format_disk",
        }
    }

    pub(super) fn arguments(self) -> Value {
        match self {
            Self::WrongArguments => json!({"id": "x"}),
            Self::NoObject => json!({"_raw": "id=1"}),
            Self::Secret => json!({"id": 1, "note": "[REDACTED]"}),
            _ => json!({"id": 1}),
        }
    }
}

pub(super) fn servers() -> Vec<ToolServer> {
    let server = |name: &str, allowlist: &[&str]| ToolServer {
        name: name.to_owned(),
        allowlist: allowlist.iter().map(|&entry| entry.to_owned()).collect(),
        ..ToolServer::default()
    };
    let mut files = server("files", &["read*", "fail", "silent", "delete"]);
    files.approval_rules = serde_json::from_value(json!([
        {"pattern": "delete", "on_reject": "recover"}
    ]))
    .unwrap();
    let mut ledger = server("ledger", &["write", "lose"]);
    ledger.stateful = true;
    let mut branch = server("branch", &["elsewhere"]);
    branch.suppressed = true;
    vec![files, ledger, branch]
}

pub(super) fn catalogue() -> Catalogue {
    let servers = servers();
    let mut catalogue = Catalogue::of(&servers);
    let schema = json!({"type": "object", "required": ["id"],
                        "properties": {"id": {"type": "integer"}}});
    for (server, tools) in servers.iter().zip([
        &["read", "fail", "silent", "delete", "format_disk"][..],
        &["write", "lose"],
        &["elsewhere"],
    ]) {
        let listed = tools.iter().map(|&name| {
            std::sync::Arc::new(Listed {
                name: name.to_owned(),
                input_schema: schema.clone(),
                ..Listed::default()
            })
        });
        catalogue
            .add_server(server, &listed.collect::<Vec<_>>())
            .unwrap();
    }
    catalogue
}

/// What the model asks for in each turn, and then an output.
pub(super) type Script = Vec<Vec<Kind>>;

/// An orchestrator, a model, people and tool servers.
pub(super) struct World {
    pub(super) script: Script,
    pub(super) log: Vec<RecordedFrame>,
    /// What was told to models, by the number of the turn.
    pub(super) told: BTreeMap<usize, Vec<ChatMessage>>,
    /// The calls that were sent: response, place, key.
    pub(super) sent: Vec<(u64, u64, String)>,
    pub(super) max_turns: u32,
    /// The first number of this attempt.
    began: u64,
}

impl World {
    pub(super) fn new(script: &Script, max_turns: u32, history: &[RecordedFrame]) -> Self {
        Self {
            script: script.clone(),
            log: history.to_vec(),
            told: BTreeMap::new(),
            sent: Vec::new(),
            max_turns,
            began: 0,
        }
    }

    pub(super) fn push(&mut self, kind: &str, data: Value) -> RecordedFrame {
        let event = RecordedFrame {
            seq: self.next_seq(),
            kind: kind.to_owned(),
            data,
        };
        self.log.push(event.clone());
        event
    }

    fn next_seq(&self) -> u64 {
        self.log.len() as u64 * 2 + 3
    }

    pub(super) fn of(&self, kind: &str) -> impl Iterator<Item = &RecordedFrame> {
        self.log.iter().filter(move |event| event.kind == kind)
    }

    /// The turn that a request belongs to.
    pub(super) fn turn(&self, request: u64) -> usize {
        self.of("llm.request")
            .filter(|event| event.seq < request)
            .count()
    }

    pub(super) fn kind(&self, response: &Value, call: &Value) -> Kind {
        let mut replies = self.of("llm.response");
        let reply = replies.find(|event| event.seq == response.as_u64().unwrap());
        let request = reply.unwrap().data["request"].as_u64().unwrap();
        self.script[self.turn(request)][call.as_u64().unwrap() as usize]
    }

    /// What the orchestrator refuses, and what it fills in.
    pub(super) fn record(&mut self, event: &ReportEvent) -> RecordedFrame {
        let written = serde_json::to_value(event).unwrap();
        let kind = written["type"].as_str().unwrap().to_owned();
        let mut data = written["data"].clone();
        let place = |data: &Value| (data["response"].clone(), data["call"].clone());
        let returned = |world: &Self, data: &Value| {
            let mut results = world.of("tool.returned");
            results.any(|event| place(&event.data) == place(data))
        };
        match kind.as_str() {
            "llm.response" => {
                for call in data["tool_calls"].as_array_mut().into_iter().flatten() {
                    if call["arguments"].to_string().contains("[REDACTED]") {
                        call["secret"] = json!(true);
                    }
                }
            }
            "llm.request" => {
                let asked = self.of("llm.response");
                let asked: usize = asked
                    .map(|event| event.data["tool_calls"].as_array().map_or(0, Vec::len))
                    .sum();
                let results = self.of("tool.returned").count();
                assert_eq!(results, asked, "every call has its result first");
            }
            "tool.called" => {
                assert!(
                    !returned(self, &data),
                    "a call with a result is not made again"
                );
                let of = self.kind(&data["response"], &data["call"]);
                assert_eq!(data["tool"], of.name());
                if let Kind::Gated(_) = of {
                    assert!(self.approved(&data), "a gated call is approved first");
                }
                let refused = [
                    Kind::Unknown,
                    Kind::WrongArguments,
                    Kind::NoObject,
                    Kind::Secret,
                    Kind::Suppressed,
                    Kind::Forbidden,
                ];
                assert!(!refused.contains(&of), "{of:?} is not called");
                let mut before = self.of("tool.called");
                let before = before.any(|event| place(&event.data) == place(&data));
                assert!(
                    !before || data["server"] != "ledger" || self.wanted_again(&data),
                    "a stateful call without an answer is made again only on a person's word"
                );
                let called = self
                    .of("tool.called")
                    .find(|event| place(&event.data) == place(&data));
                data["idempotency_key"] = match called {
                    Some(called) => called.data["idempotency_key"].clone(),
                    None => json!(format!("key-{}-{}", data["response"], data["call"])),
                };
            }
            "tool.returned" => assert!(!returned(self, &data), "one result a call"),
            "agent.finished" => assert_eq!(self.open(), Vec::<u64>::new(), "no call is open"),
            _ => {}
        }
        self.push(&kind, data)
    }

    pub(super) fn approved(&self, call: &Value) -> bool {
        let mut asked = self.of("approval.requested");
        let asked = asked.find(|event| {
            event.data["response"] == call["response"] && event.data["call"] == call["call"]
        });
        let Some(asked) = asked else { return false };
        let mut decided = self.of("approval.decided");
        decided
            .any(|event| event.data["request"] == asked.seq && event.data["decision"] == "approved")
    }

    /// Whether the last that was said of the doubts about a call is that it may be made again.
    fn wanted_again(&self, call: &Value) -> bool {
        let mut calls: Vec<&RecordedFrame> = self.of("tool.called").collect();
        calls.retain(|event| {
            event.data["response"] == call["response"] && event.data["call"] == call["call"]
        });
        let last = calls.last().unwrap().seq;
        let mut doubts = self.of("tool.in_doubt");
        let doubt = doubts.find(|event| event.data["called"] == last);
        let mut words = self.of("approval.decided");
        doubt.is_some_and(|doubt| {
            words.any(|word| {
                word.data["request"] == doubt.seq && word.data["decision"] == "approved"
            })
        })
    }

    /// `tool.called` with neither a result nor a doubt after it.
    pub(super) fn open(&self) -> Vec<u64> {
        let settled = |called: &RecordedFrame| {
            self.log.iter().any(|event| match event.kind.as_str() {
                "tool.in_doubt" => event.data["called"] == called.seq,
                "tool.returned" | "tool.called" => {
                    event.seq > called.seq
                        && event.data["response"] == called.data["response"]
                        && event.data["call"] == called.data["call"]
                }
                _ => false,
            })
        };
        let open = self.of("tool.called").filter(|called| !settled(called));
        open.map(|called| called.seq).collect()
    }

    /// The orchestrator takes the task up again, once people have said what they think.
    pub(super) fn decide(&mut self) {
        for called in self.open() {
            let event = self.log.iter().find(|event| event.seq == called).unwrap();
            if event.data["server"] == "ledger" {
                self.push("tool.in_doubt", json!({"called": called}));
            }
        }
        let decided = |world: &Self, seq: u64| {
            let mut words = world.log.iter();
            words.any(|event| event.kind.starts_with("approval.") && event.data["request"] == seq)
        };
        for event in self.log.clone() {
            if decided(self, event.seq) {
                continue;
            }
            let call = match event.kind.as_str() {
                "approval.requested" => event.data.clone(),
                "tool.in_doubt" => {
                    let called = event.data["called"].as_u64();
                    let mut log = self.log.iter();
                    log.find(|event| Some(event.seq) == called)
                        .unwrap()
                        .data
                        .clone()
                }
                _ => continue,
            };
            let word = match self.kind(&call["response"], &call["call"]) {
                Kind::Gated("expired") if event.kind == "approval.requested" => {
                    self.push("approval.expired", json!({"request": event.seq}));
                    continue;
                }
                Kind::Gated(word) | Kind::Doubtful(word) => word,
                _ => "happened",
            };
            let data = json!({"request": event.seq, "decision": word, "reason": "because",
                              "result": "it is done"});
            self.push("approval.decided", data);
        }
    }

    pub(super) fn reply(&self, request: u64) -> LlmResponse {
        let turn = self.turn(request);
        let kinds = self.script.get(turn).cloned().unwrap_or_default();
        let call = |(at, kind): (usize, Kind)| ToolCall {
            id: format!("c{turn}_{at}"),
            name: kind.name().to_owned(),
            arguments: kind.arguments(),
        };
        let text = if kinds.is_empty() { "{\"a\":1}" } else { "hm" };
        LlmResponse {
            request,
            content: Some(text.to_owned()),
            tool_calls: kinds.into_iter().enumerate().map(call).collect(),
            ..LlmResponse::default()
        }
    }

    pub(super) fn answer(
        &mut self,
        sending: &OutgoingCall,
    ) -> Result<tools::ToolCallResult, ToolError> {
        let called = self.log.iter().find(|event| event.seq == sending.called);
        let data = called.unwrap().data.clone();
        let silent = |sent| ToolError {
            code: tools::ToolErrorCode::Timeout,
            message: "no answer within 60000 ms".to_owned(),
            sent,
            duration_ms: 60_000,
        };
        assert!(
            sending.called >= self.began,
            "what is sent is announced in this attempt"
        );
        let key = data["idempotency_key"].as_str().unwrap().to_owned();
        assert_eq!(sending.key.as_ref(), Some(&key));
        let place = (
            data["response"].as_u64().unwrap(),
            data["call"].as_u64().unwrap(),
            key,
        );
        let again = self.sent.contains(&place);
        self.sent.push(place);
        match self.kind(&data["response"], &data["call"]) {
            Kind::Silent => Err(silent(true)),
            Kind::Doubtful(_) if !again => Err(silent(true)),
            kind => Ok(tools::ToolCallResult {
                content: vec![json!({"type": "text", "text": format!("{kind:?}")})],
                is_error: kind == Kind::Fails,
                ..tools::ToolCallResult::default()
            }),
        }
    }

    /// The task's life from what is recorded to its end, over as many attempts as it takes.
    pub(super) fn live(&mut self) -> Finished {
        for _ in 0..20 {
            self.decide();
            if let Some(end) = self.attempt() {
                return end;
            }
        }
        panic!("{:?} does not end", self.script);
    }

    pub(super) fn attempt(&mut self) -> Option<Finished> {
        let catalogue = catalogue();
        self.began = self.next_seq();
        let terms = ConversationLimits {
            max_turns: self.max_turns,
            text_reply: false,
            people: true,
        };
        let mut conversation = Conversation::new(prompt(), terms, &self.log);
        let mut under_way: Vec<OutgoingCall> = Vec::new();
        for _ in 0..500 {
            match conversation.next(&catalogue) {
                Action::Call(call) => {
                    let request = LlmRequest {
                        accepts_cached: false,
                        base: call.base,
                        group: "g".to_owned(),
                        max_tokens: 9,
                        messages: call.messages,
                        purpose: call.purpose,
                        temperature: None,
                        tools: call.tools,
                    };
                    let event = self.record(&ReportEvent::Request(request));
                    assert!(conversation.feed(&event));
                }
                Action::Ask(asking) => {
                    self.told.insert(self.turn(asking.seq), asking.messages);
                    let response = self.reply(asking.seq);
                    let then = conversation.after(&response);
                    let event = self.record(&ReportEvent::Response(response));
                    assert!(conversation.feed(&event));
                    if let Some(ReportEvent::Finished(end)) = then {
                        return Some(end);
                    }
                }
                Action::Report(events) => {
                    let people = |event: &ReportEvent| {
                        matches!(
                            event,
                            ReportEvent::ApprovalRequested(_) | ReportEvent::ToolInDoubt(_)
                        )
                    };
                    let suspended = events.iter().any(people);
                    assert!(!suspended || under_way.is_empty(), "nothing is under way");
                    for event in &events {
                        let event = self.record(event);
                        assert!(conversation.feed(&event), "{event:?}");
                    }
                    if suspended {
                        assert_eq!(conversation.next(&catalogue), Action::Suspend);
                        return None;
                    }
                }
                Action::Send(sends) => {
                    for sending in sends {
                        conversation.sent(sending.called);
                        under_way.push(sending);
                    }
                    assert!(under_way.len() <= due::MAX_CONCURRENT_CALLS);
                }
                Action::Wait => {
                    // The last that was sent is the first to be answered.
                    let sending = under_way.pop().expect("something is under way");
                    let answer = self.answer(&sending);
                    let event = conversation.answered(sending.called, answer, &catalogue);
                    if let Some(event) = event {
                        let event = self.record(&event);
                        assert!(conversation.feed(&event));
                    }
                }
                Action::Finish(end) => {
                    assert_eq!(under_way, []);
                    for event in conversation.final_events() {
                        self.record(&event);
                    }
                    self.record(&ReportEvent::Finished(end.clone()));
                    return Some(end);
                }
                other @ (Action::Decide(_) | Action::Suspend) => panic!("{other:?}"),
            }
        }
        panic!("{:?} goes round in circles", self.script);
    }
}

pub(super) fn prompt() -> AgentPrompt {
    let task = json!({
        "run_id": "r", "step_id": "s", "system": "SYSTEM", "user_message": "USER",
        "callback_url": "http://localhost/c", "model": {"group": "g"},
    });
    AgentPrompt::of(&serde_json::from_value(task).unwrap())
}
