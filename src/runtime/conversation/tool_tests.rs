//! The loop with tools, as a fold: whole lives of tasks, cut after any frame.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use super::*;
use crate::contract::report::LlmRequest;
use crate::contract::runtime::ToolServer;
use crate::runtime::tools::Tool as Listed;

/// A call that a model asks for, and what becomes of it.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    Answers,
    Fails,
    /// Is sent, and never answered.
    Silent,
    StatefulAnswers,
    /// The same, of a server that must not be asked twice; what a person says to it.
    Doubtful(&'static str),
    /// A person is asked first, and says this.
    Gated(&'static str),
    Unknown,
    WrongArguments,
    NoObject,
    Secret,
    Suppressed,
    Forbidden,
}

impl Kind {
    fn name(self) -> &'static str {
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

    fn arguments(self) -> Value {
        match self {
            Self::WrongArguments => json!({"id": "x"}),
            Self::NoObject => json!({"_raw": "id=1"}),
            Self::Secret => json!({"id": 1, "note": "[REDACTED]"}),
            _ => json!({"id": 1}),
        }
    }
}

fn servers() -> Vec<ToolServer> {
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

fn catalogue() -> Catalogue {
    let servers = servers();
    let mut catalogue = Catalogue::of(&servers);
    let schema = json!({"type": "object", "required": ["id"],
                        "properties": {"id": {"type": "integer"}}});
    for (server, tools) in servers.iter().zip([
        &["read", "fail", "silent", "delete", "format_disk"][..],
        &["write", "lose"],
        &["elsewhere"],
    ]) {
        let listed = tools.iter().map(|&name| Listed {
            name: name.to_owned(),
            input_schema: schema.clone(),
            ..Listed::default()
        });
        catalogue.list(server, &listed.collect::<Vec<_>>()).unwrap();
    }
    catalogue
}

/// What the model asks for in each turn, and then an output.
type Script = Vec<Vec<Kind>>;

/// An orchestrator, a model, people and tool servers.
struct World {
    script: Script,
    log: Vec<Recorded>,
    /// What was told to models, by the number of the turn.
    told: BTreeMap<usize, Vec<Message>>,
    /// The calls that were sent: response, place, key.
    sent: Vec<(u64, u64, String)>,
    max_turns: u32,
}

impl World {
    fn new(script: &Script, max_turns: u32, history: &[Recorded]) -> Self {
        Self {
            script: script.clone(),
            log: history.to_vec(),
            told: BTreeMap::new(),
            sent: Vec::new(),
            max_turns,
        }
    }

    fn push(&mut self, kind: &str, data: Value) -> Recorded {
        let event = Recorded {
            seq: self.log.len() as u64 * 2 + 3,
            kind: kind.to_owned(),
            data,
        };
        self.log.push(event.clone());
        event
    }

    fn of(&self, kind: &str) -> impl Iterator<Item = &Recorded> {
        self.log.iter().filter(move |event| event.kind == kind)
    }

    /// The turn that a request belongs to.
    fn turn(&self, request: u64) -> usize {
        self.of("llm.request")
            .filter(|event| event.seq < request)
            .count()
    }

    fn kind(&self, response: &Value, call: &Value) -> Kind {
        let mut replies = self.of("llm.response");
        let reply = replies.find(|event| event.seq == response.as_u64().unwrap());
        let request = reply.unwrap().data["request"].as_u64().unwrap();
        self.script[self.turn(request)][call.as_u64().unwrap() as usize]
    }

    /// What the orchestrator refuses, and what it fills in.
    fn record(&mut self, event: &Event) -> Recorded {
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

    fn approved(&self, call: &Value) -> bool {
        let mut asked = self.of("approval.requested");
        let asked = asked.find(|event| {
            event.data["response"] == call["response"] && event.data["call"] == call["call"]
        });
        let Some(asked) = asked else { return false };
        let mut decided = self.of("approval.decided");
        decided
            .any(|event| event.data["request"] == asked.seq && event.data["decision"] == "approved")
    }

    /// `tool.called` with neither a result nor a doubt after it.
    fn open(&self) -> Vec<u64> {
        let settled = |called: &Recorded| {
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
    fn decide(&mut self) {
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

    fn reply(&self, request: u64) -> LlmResponse {
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

    fn answer(&mut self, sending: &Sending) -> Result<tools::Returned, ToolError> {
        let called = self.log.iter().find(|event| event.seq == sending.called);
        let data = called.unwrap().data.clone();
        let silent = |sent| ToolError {
            message: "no answer within 60000 ms".to_owned(),
            sent,
            drifted: false,
        };
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
            kind => Ok(tools::Returned {
                content: vec![json!({"type": "text", "text": format!("{kind:?}")})],
                is_error: kind == Kind::Fails,
                ..tools::Returned::default()
            }),
        }
    }

    /// The task's life from what is recorded to its end, over as many attempts as it takes.
    fn live(&mut self) -> Finished {
        for _ in 0..20 {
            self.decide();
            if let Some(end) = self.attempt() {
                return end;
            }
        }
        panic!("{:?} does not end", self.script);
    }

    fn attempt(&mut self) -> Option<Finished> {
        let catalogue = catalogue();
        let terms = Terms {
            max_turns: self.max_turns,
            people: true,
        };
        let mut conversation = Conversation::new(prompt(), terms, &self.log);
        let mut under_way: Vec<Sending> = Vec::new();
        for _ in 0..500 {
            match conversation.next(&catalogue) {
                Action::Call(call) => {
                    let request = LlmRequest {
                        base: call.base,
                        group: "g".to_owned(),
                        max_tokens: 9,
                        messages: call.messages,
                        purpose: call.purpose,
                        tools: call.tools,
                    };
                    let event = self.record(&Event::Request(request));
                    assert!(conversation.feed(&event));
                }
                Action::Ask(asking) => {
                    self.told.insert(self.turn(asking.seq), asking.messages);
                    let response = self.reply(asking.seq);
                    let then = conversation.after(&response);
                    let event = self.record(&Event::Response(response));
                    assert!(conversation.feed(&event));
                    if let Some(Event::Finished(end)) = then {
                        return Some(end);
                    }
                }
                Action::Report(events) => {
                    let people = |event: &Event| {
                        matches!(event, Event::ApprovalRequested(_) | Event::ToolInDoubt(_))
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
                    assert!(under_way.len() <= due::AT_ONCE);
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
                    for event in conversation.last_words() {
                        self.record(&event);
                    }
                    self.record(&Event::Finished(end.clone()));
                    return Some(end);
                }
                other @ (Action::Decide(_) | Action::Suspend) => panic!("{other:?}"),
            }
        }
        panic!("{:?} goes round in circles", self.script);
    }
}

fn prompt() -> Prompt {
    let task = json!({
        "run_id": "r", "step_id": "s", "system": "SYSTEM", "user_message": "USER",
        "callback_url": "http://localhost/c", "model": {"group": "g"},
    });
    Prompt::of(&serde_json::from_value(task).unwrap())
}

fn kinds() -> impl Strategy<Value = Kind> {
    let mut common = vec![
        Kind::Answers,
        Kind::Answers,
        Kind::Fails,
        Kind::Silent,
        Kind::StatefulAnswers,
        Kind::Unknown,
        Kind::WrongArguments,
        Kind::NoObject,
        Kind::Secret,
        Kind::Suppressed,
    ];
    common.extend(["approved", "rejected", "expired"].map(Kind::Gated));
    common.extend(["approved", "rejected", "happened"].map(Kind::Doubtful));
    select(common)
}

fn scripts() -> impl Strategy<Value = Script> {
    let turn = proptest::collection::vec(kinds(), 1..6);
    let turns = proptest::collection::vec(turn, 0..4);
    (turns, prop::bool::weighted(0.15)).prop_map(|(mut turns, forbidden)| {
        if forbidden && let Some(last) = turns.last_mut() {
            last.push(Kind::Forbidden);
        }
        turns
    })
}

fn cut_anywhere(script: &Script, max_turns: u32) {
    let mut whole = World::new(script, max_turns, &[]);
    let end = whole.live();
    for cut in 0..whole.log.len() {
        let history = &whole.log[..cut];
        if history.iter().any(|event| event.kind == "agent.finished") {
            continue;
        }
        let mut rest = World::new(script, max_turns, history);
        let results: BTreeSet<(Option<u64>, Option<u64>)> = rest
            .of("tool.returned")
            .map(|event| (event.data["response"].as_u64(), event.data["call"].as_u64()))
            .collect();
        assert_eq!(rest.live(), end, "{script:?} cut at {cut}");
        for (response, call, _) in &rest.sent {
            assert!(
                !results.contains(&(Some(*response), Some(*call))),
                "{script:?} {cut}"
            );
        }
        for (turn, messages) in &rest.told {
            let shape = |messages: &[Message]| -> Vec<(String, Option<String>)> {
                let one = |one: &Message| (one.role.clone(), one.tool_call_id.clone());
                messages.iter().map(one).collect()
            };
            let told = whole.told.get(turn).expect("the same turn");
            assert_eq!(shape(messages), shape(told), "{script:?} cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn a_task_with_tools_cut_after_any_frame_comes_to_the_same_end(
        script in scripts(),
        max_turns in 1u32..6,
    ) {
        cut_anywhere(&script, max_turns);
    }
}

#[test]
fn each_kind_of_call_leads_to_its_result_wherever_it_is_cut() {
    for kind in [
        Kind::Answers,
        Kind::Fails,
        Kind::Silent,
        Kind::StatefulAnswers,
        Kind::Doubtful("approved"),
        Kind::Doubtful("rejected"),
        Kind::Doubtful("happened"),
        Kind::Gated("approved"),
        Kind::Gated("rejected"),
        Kind::Gated("expired"),
        Kind::Unknown,
        Kind::WrongArguments,
        Kind::NoObject,
        Kind::Secret,
        Kind::Suppressed,
        Kind::Forbidden,
    ] {
        cut_anywhere(&vec![vec![kind, Kind::Answers], vec![kind]], 10);
    }
}

/// The types of the frames of a life, and the text of each result.
fn told(script: &[Vec<Kind>], max_turns: u32) -> (Vec<String>, Vec<String>, Finished) {
    let mut world = World::new(&script.to_vec(), max_turns, &[]);
    let end = world.live();
    let types = world.log.iter().map(|event| event.kind.clone()).collect();
    let results = world.of("tool.returned").map(|event| {
        let not_sent = event.data["not_sent"].as_str().unwrap_or("-");
        let error = event.data["is_error"].as_bool().unwrap_or_default();
        format!("{not_sent} {error} {}", event.data["content"][0]["text"])
    });
    let results = results.collect();
    (types, results, end)
}

#[test]
fn what_is_not_sent_is_told_to_the_model_with_its_reason() {
    for (kind, expected) in [
        (Kind::Answers, "- false \"Answers\""),
        (Kind::Fails, "- true \"Fails\""),
        (
            Kind::Silent,
            "- true \"Error: the tool could not be used: no answer within 60000 ms.\"",
        ),
        (
            Kind::Unknown,
            "unknown_tool true \"Error: no server offers a tool named read_more.\"",
        ),
        (
            Kind::WrongArguments,
            "invalid_arguments true \"Error: invalid arguments:\\n/id (type): expected integer, \
             got string\"",
        ),
        (
            Kind::NoObject,
            "invalid_arguments true \"Error: invalid arguments: they are not a JSON object.\"",
        ),
        (
            Kind::Secret,
            "secret_in_arguments true \"Error: The call was not sent: its arguments hold a \
             secret.\"",
        ),
        (
            Kind::Suppressed,
            "suppressed_in_branch true \"Error: suppressed_in_branch: a branch does not change \
             the world, so the call was not sent.\"",
        ),
        (
            Kind::Gated("rejected"),
            "rejected true \"Tool call rejected by human reviewer. Please find an alternative \
             approach. Reason: because\"",
        ),
        (
            Kind::Gated("expired"),
            "rejected true \"Tool call rejected by human reviewer. Please find an alternative \
             approach. Reason: nobody decided in time\"",
        ),
        (Kind::Doubtful("happened"), "- false \"it is done\""),
        (
            Kind::Doubtful("rejected"),
            "in_doubt true \"Error: whether the call happened is not known, and a human reviewer \
             decided not to make it again.\"",
        ),
    ] {
        let (_, results, end) = told(&[vec![kind]], 10);
        assert_eq!(results, [expected], "{kind:?}");
        assert_eq!(end.reason, "completed");
    }
}

#[test]
fn a_name_that_nobody_permits_ends_the_task_before_anything_is_sent() {
    let calls = vec![Kind::Answers, Kind::Gated("approved"), Kind::Forbidden];
    let (types, _, end) = told(&[calls], 10);
    assert_eq!(
        types,
        [
            "llm.request",
            "llm.response",
            "agent.decided",
            "agent.finished"
        ]
    );
    let error = end.outcome.error.unwrap();
    assert_eq!(
        (end.reason.as_str(), error.code.as_str()),
        ("tool_not_permitted", "tool_not_permitted")
    );
    assert_eq!(error.message, "tool_not_permitted: format_disk");
}

#[test]
fn an_endless_model_shows_one_decision_a_turn_and_a_terminal_frame() {
    let (types, _, end) = told(&vec![vec![Kind::Answers]; 9], 3);
    let count = |kind: &str| types.iter().filter(|one| *one == kind).count();
    assert_eq!((count("llm.request"), count("agent.decided")), (3, 3));
    assert_eq!(count("tool.called"), 2);
    assert_eq!(types.last().map(String::as_str), Some("agent.finished"));
    let error = end.outcome.error.as_ref().unwrap();
    assert_eq!(
        (end.reason.as_str(), error.code.as_str()),
        ("max_turns", "max_turns_exceeded")
    );
    assert_eq!(end.outcome.raw_output.as_deref(), Some("hm"));
}

#[test]
fn people_are_asked_last_and_about_all_at_once() {
    let calls = vec![
        Kind::Gated("approved"),
        Kind::Doubtful("happened"),
        Kind::Answers,
        Kind::Gated("rejected"),
    ];
    let (types, ..) = told(&[calls], 10);
    let expected = [
        "llm.request",
        "llm.response",
        "agent.decided",
        "tool.called",
        "tool.called",
        "tool.returned",
        "approval.requested",
        "tool.in_doubt",
        "approval.requested",
        "approval.decided",
        "approval.decided",
        "approval.decided",
        "tool.called",
        "tool.returned",
        "tool.returned",
        "tool.returned",
        "llm.request",
        "llm.response",
    ];
    let mut types = types;
    types[12..16].sort();
    assert_eq!(types, expected);
}

#[test]
fn a_request_goes_on_from_the_one_before_and_names_frames() {
    let mut world = World::new(&vec![vec![Kind::Answers; 2], vec![Kind::Fails]], 3, &[]);
    world.live();
    let requests: Vec<Value> = world
        .of("llm.request")
        .map(|event| event.data.clone())
        .collect();
    assert_eq!(requests[0]["base"], Value::Null);
    let names = requests[0]["tools"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|tool| tool["name"].as_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "read",
            "fail",
            "silent",
            "delete",
            "write",
            "lose",
            "elsewhere"
        ]
    );
    let seq = |kind: &str, at: usize| world.of(kind).nth(at).unwrap().seq;
    // The results came in the other order; they are told in the order of the reply.
    let results = [seq("tool.returned", 1), seq("tool.returned", 0)];
    assert_eq!(requests[1]["base"], seq("llm.request", 0));
    assert_eq!(requests[1].get("tools"), None);
    assert_eq!(
        requests[1]["messages"],
        json!([{"role": "assistant", "frame": seq("llm.response", 0)},
               {"role": "tool", "frame": results[0]}, {"role": "tool", "frame": results[1]}])
    );
    assert_eq!(requests[2]["tools"], json!([]));
    let last = requests[2]["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "user");
    let words = last["content"].as_str().unwrap();
    assert!(
        words.starts_with("You have reached the maximum number of tool calls."),
        "{words}"
    );
    let told = &world.told[&2];
    let roles: Vec<&str> = told.iter().map(|one| one.role.as_str()).collect();
    assert_eq!(
        roles,
        [
            "system",
            "user",
            "assistant",
            "tool",
            "tool",
            "assistant",
            "tool",
            "user"
        ]
    );
    assert_eq!(told[2].tool_calls.len(), 2);
    assert_eq!(told[6].tool_call_id.as_deref(), Some("c1_0"));
    assert!(told[6].is_error);
}

#[test]
fn several_people_have_to_approve_where_the_policy_says_so_and_one_rejection_is_enough() {
    let asked = |quorum: u32, words: &[&str]| {
        let script = vec![vec![Kind::Gated("approved")]];
        let mut world = World::new(&script, 10, &[]);
        assert_eq!(world.attempt(), None);
        let request = world.log.last_mut().unwrap();
        request.data["policy"] = json!({"quorum": quorum});
        let seq = request.seq;
        for word in words {
            world.push(
                "approval.decided",
                json!({"request": seq, "decision": word}),
            );
        }
        let terms = Terms {
            max_turns: 10,
            people: true,
        };
        Conversation::new(prompt(), terms, &world.log).next(&catalogue())
    };
    let called = |action: &Action| matches!(action, Action::Report(events) if matches!(events[..], [Event::ToolCalled(_)]));
    assert!(called(&asked(1, &["approved"])));
    assert_eq!(asked(2, &["approved"]), Action::Suspend);
    assert!(called(&asked(2, &["approved", "approved"])));
    for words in [&["rejected"][..], &["approved", "rejected"]] {
        let Action::Report(events) = asked(3, words) else {
            panic!("it is refused");
        };
        assert!(matches!(&events[..], [Event::ToolReturned(result)]
            if result.not_sent.as_deref() == Some("rejected")));
    }
    assert_eq!(asked(1, &["maybe"]), Action::Suspend);
}

#[test]
fn many_calls_of_one_reply_go_out_a_few_at_a_time() {
    let (types, ..) = told(&[vec![Kind::Answers; 50]], 10);
    let called = types.iter().filter(|one| *one == "tool.called").count();
    assert_eq!(called, 50);
}

#[test]
fn where_nobody_can_be_asked_a_gated_call_ends_the_task_and_a_doubt_is_an_error() {
    let alone = Terms {
        max_turns: 10,
        people: false,
    };
    for kind in [Kind::Gated("approved"), Kind::Doubtful("approved")] {
        let mut world = World::new(&vec![vec![kind]], 10, &[]);
        assert_eq!(world.attempt(), None);
        let upto = match kind {
            Kind::Gated(_) => "approval.requested",
            _ => "tool.in_doubt",
        };
        let before: Vec<Recorded> = world
            .log
            .iter()
            .take_while(|event| event.kind != upto)
            .cloned()
            .collect();
        let action = Conversation::new(prompt(), alone.clone(), &before).next(&catalogue());
        match (kind, action) {
            (Kind::Gated(_), Action::Finish(end)) => {
                assert_eq!(end.outcome.error.unwrap().code, "approval_unsupported");
            }
            (_, Action::Report(events)) => {
                assert!(matches!(&events[..], [Event::ToolReturned(result)] if result.is_error));
            }
            (kind, action) => panic!("{kind:?} leads to {action:?}"),
        }
    }
}
