use serde_json::json;

use super::*;
use ktsu_contract::gateway::ChatMessage;
use ktsu_contract::report::{FailureDetails, LlmRequest, RequestMessage};

/// What a call gets: a text, or an error with this code.
type Said = Result<&'static str, &'static str>;

/// What the world answers, whenever it is asked.
#[derive(Debug, Clone, Copy)]
struct World {
    turn: Said,
    repair: Said,
    reply: Said,
    /// Whether the agent reflects, and whether the orchestrator wants it to.
    reflect: Option<bool>,
}

/// One life of a task: what is recorded, and which requests were sent to the gateway.
struct Life {
    recorded: Vec<RecordedFrame>,
    asked: Vec<u64>,
    end: Finished,
}

fn prompt(reflects: bool) -> AgentPrompt {
    let mut task = json!({
        "run_id": "r", "step_id": "s", "system": "SYSTEM", "user_message": "USER",
        "callback_url": "http://localhost/c", "model": {"group": "g"},
    });
    if reflects {
        task["reflect"] = json!("REFLECT");
    }
    AgentPrompt::of(&serde_json::from_value(task).unwrap())
}

fn recorded(seq: usize, kind: &str, data: Value) -> RecordedFrame {
    RecordedFrame {
        seq: seq as u64,
        kind: kind.to_owned(),
        data,
    }
}

/// An event as the orchestrator records it, at the next number.
fn record(log: &mut Vec<RecordedFrame>, event: &ReportEvent) -> RecordedFrame {
    let written = serde_json::to_value(event).unwrap();
    let kind = written["type"].as_str().unwrap();
    let event = recorded(log.len() * 3 + 7, kind, written["data"].clone());
    log.push(event.clone());
    event
}

fn terms(max_turns: u32) -> ConversationLimits {
    ConversationLimits {
        max_turns,
        text_reply: false,
        people: true,
    }
}

fn begin(world: &World, history: &[RecordedFrame]) -> Conversation {
    Conversation::new(prompt(world.reflect.is_some()), terms(0), history)
}

/// What is next for a task without tools.
fn next(conversation: &Conversation) -> Action {
    conversation.next(&Catalogue::default())
}

/// The purpose and the messages of a call to announce.
fn called(action: Action) -> (Purpose, Vec<ChatMessage>) {
    let Action::Call(call) = action else {
        panic!("a call is due, not {action:?}");
    };
    let text = |told| match told {
        RequestMessage::Text(message) => message,
        RequestMessage::Frame { .. } => panic!("it is written out"),
    };
    (call.purpose, call.messages.into_iter().map(text).collect())
}

/// Lives on from a history to the end.
fn live(world: &World, history: &[RecordedFrame]) -> Life {
    let mut conversation = begin(world, history);
    let mut log = history.to_vec();
    let mut asked = Vec::new();
    for _ in 0..10 {
        let event = match next(&conversation) {
            Action::Call(call) => ReportEvent::Request(LlmRequest {
                accepts_cached: false,
                base: call.base,
                group: "g".to_owned(),
                max_tokens: 9,
                messages: call.messages,
                purpose: call.purpose,
                temperature: None,
                tools: call.tools,
            }),
            Action::Ask(asking) => {
                asked.push(asking.seq);
                let response = world.answer(asking.seq, &asking.messages);
                let then = conversation.after(&response);
                let event = record(&mut log, &ReportEvent::Response(response));
                assert!(conversation.feed(&event));
                let comes = match next(&conversation) {
                    Action::Finish(end) => Some(ReportEvent::Finished(end)),
                    Action::Decide(draft) => Some(ReportEvent::Decided(Decided {
                        draft: Some(draft),
                        response: None,
                    })),
                    _ => None,
                };
                assert_eq!(comes, then, "the preview is what comes");
                continue;
            }
            Action::Decide(draft) => {
                let event = record(
                    &mut log,
                    &ReportEvent::Decided(Decided {
                        draft: Some(draft),
                        response: None,
                    }),
                );
                assert!(conversation.feed(&event));
                if world.reflect == Some(true) {
                    let event = recorded(log.len() * 3 + 7, "reflect.started", json!({}));
                    log.push(event.clone());
                    assert!(conversation.feed(&event));
                }
                continue;
            }
            Action::Report(_) | Action::Send(_) | Action::Wait | Action::Suspend => {
                panic!("there are no tools")
            }
            Action::Finish(end) => {
                return Life {
                    recorded: log,
                    asked,
                    end,
                };
            }
        };
        let event = record(&mut log, &event);
        assert!(conversation.feed(&event));
    }
    panic!("{world:?} does not end");
}

impl World {
    /// The purpose is told from the messages, as a model would.
    fn answer(&self, request: u64, messages: &[ChatMessage]) -> LlmResponse {
        let said = match (messages[0].content.as_str(), messages.len()) {
            ("REFLECT", 3) => self.reply,
            ("SYSTEM", 2) => self.turn,
            ("SYSTEM", 4) => self.repair,
            other => panic!("nobody asks {other:?}"),
        };
        LlmResponse {
            request,
            content: said.ok().map(str::to_owned),
            error: said.err().map(|code| FailureDetails {
                code: code.to_owned(),
                message: "m".to_owned(),
                retryable: true,
            }),
            ..LlmResponse::default()
        }
    }

    fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for turn in [
            Ok("{\"a\":1}"),
            Ok("```json\n{\"a\":1}\n```"),
            Ok("no"),
            Err("down"),
        ] {
            for repair in [Ok("{\"b\":1}"), Ok("[]"), Err("budget_exceeded")] {
                for reply in [Ok("{\"c\":1}"), Ok("```"), Err("down")] {
                    for reflect in [None, Some(false), Some(true)] {
                        all.push(Self {
                            turn,
                            repair,
                            reply,
                            reflect,
                        });
                    }
                }
            }
        }
        all
    }
}

#[test]
fn a_history_cut_anywhere_leads_to_the_same_end_and_repeats_nothing_answered() {
    for world in World::all() {
        let whole = live(&world, &[]);
        for cut in 0..=whole.recorded.len() {
            let history = &whole.recorded[..cut];
            // Between the draft and the order to reflect there is no cut: they are one append.
            if history
                .last()
                .is_some_and(|last| last.kind == "agent.decided")
                && world.reflect == Some(true)
            {
                continue;
            }
            let rest = live(&world, history);
            assert_eq!(rest.end, whole.end, "{world:?} cut at {cut}");
            let answered = history.iter().filter(|event| event.kind == "llm.response");
            for answer in answered {
                let request = answer.data["request"].as_u64().unwrap();
                assert!(!rest.asked.contains(&request), "{world:?} cut at {cut}");
            }
            assert_eq!(rest.recorded, whole.recorded, "{world:?} cut at {cut}");
        }
    }
}

#[test]
fn what_is_unknown_in_a_history_is_ignored() {
    for world in World::all() {
        let whole = live(&world, &[]);
        let mut noisy = Vec::new();
        for event in &whole.recorded {
            for (kind, data) in [
                ("worker.lost", json!({"attempt": 1})),
                ("dream.dreamt", json!([1])),
                ("llm.request", json!({"purpose": "dream", "messages": []})),
                (
                    "llm.request",
                    json!({"purpose": "turn", "base": 1, "messages": []}),
                ),
                ("llm.response", json!({"request": 1, "content": "{}"})),
                ("agent.decided", json!({})),
                (
                    "agent.finished",
                    json!({"reason": "timeout", "outcome": {}}),
                ),
            ] {
                noisy.push(recorded(999, kind, data));
            }
            noisy.push(event.clone());
        }
        assert_eq!(next(&begin(&world, &noisy)), Action::Finish(whole.end));
    }
}

#[test]
fn a_request_without_an_answer_is_asked_as_it_was_recorded() {
    let world = World::all()[0];
    let messages = json!([{"role": "system", "content": "SYSTEM"},
                          {"role": "user", "content": "[REDACTED]"}]);
    let request = json!({"attempt": 1, "purpose": "turn", "messages": messages, "digest": "d",
                         "group": "g", "max_tokens": 9, "step": "s", "report": {}});
    let more = json!({"attempt": 2, "purpose": "repair", "base": 4, "digest": "d",
                      "messages": [{"role": "user", "content": "AGAIN"}]});
    let mut history = vec![recorded(4, "llm.request", request)];
    let expected: Vec<ChatMessage> = serde_json::from_value(messages).unwrap();
    let asked = next(&begin(&world, &history));
    assert_eq!(
        asked,
        Action::Ask(Box::new(ModelCallRequest {
            seq: 4,
            purpose: Purpose::Turn,
            messages: expected,
            tools: Vec::new(),
        }))
    );
    history.push(recorded(
        5,
        "llm.response",
        json!({"request": 4, "content": "no"}),
    ));
    history.push(recorded(9, "llm.request", more));
    let Action::Ask(asking) = next(&begin(&world, &history)) else {
        panic!("the repair is announced");
    };
    assert_eq!((asking.seq, asking.purpose), (9, Purpose::Repair));
    let texts: Vec<&str> = asking
        .messages
        .iter()
        .map(|one| one.content.as_str())
        .collect();
    assert_eq!(texts, ["SYSTEM", "[REDACTED]", "AGAIN"]);
}

#[test]
fn a_draft_is_repaired_once_with_what_was_said() {
    let world = World::all()[0];
    let request = json!({"purpose": "turn", "messages": [{"role": "user", "content": "q"}]});
    let history = [
        recorded(1, "llm.request", request),
        recorded(2, "llm.response", json!({"request": 1, "content": "no"})),
    ];
    let (purpose, messages) = called(next(&begin(&world, &history)));
    assert_eq!(purpose, Purpose::Repair);
    let told: Vec<(&str, &str)> = messages
        .iter()
        .map(|one| (one.role.as_str(), one.content.as_str()))
        .collect();
    let again = "Your response was not valid JSON. Please respond with only a valid JSON object \
                 and nothing else.";
    assert_eq!(told, [("user", "q"), ("assistant", "no"), ("user", again)]);
}

#[test]
fn ends_say_why() {
    let world = World {
        turn: Ok("no"),
        repair: Ok("[]"),
        reply: Ok("hm"),
        reflect: Some(true),
    };
    let code = |life: &Life| life.end.outcome.error.as_ref().unwrap().code.clone();
    let unrepaired = live(&world, &[]);
    assert_eq!(code(&unrepaired), "output_invalid");
    assert_eq!(unrepaired.end.outcome.raw_output.as_deref(), Some("[]"));
    assert_eq!(
        (unrepaired.end.reason.as_str(), unrepaired.asked.len()),
        ("error", 2)
    );
    let unkept = live(
        &World {
            repair: Ok(r#"{"f": [123456789012345680000]}"#),
            ..world
        },
        &[],
    );
    assert_eq!(
        unkept.end.outcome.error.unwrap().message,
        "neither the reply nor its repair is kept: the number 123456789012345680000 at /f/0 is \
         beyond what is kept: whole numbers have 64 bits; have the model give it as text"
    );
    let unreflected = live(
        &World {
            repair: Ok("{}"),
            ..world
        },
        &[],
    );
    assert_eq!(code(&unreflected), "reflect_output_invalid");
    assert_eq!(unreflected.end.outcome.raw_output.as_deref(), Some("hm"));
    assert_eq!(unreflected.asked.len(), 3);
    let broke = live(
        &World {
            turn: Err("budget_exceeded"),
            ..world
        },
        &[],
    );
    assert_eq!(broke.end.reason, "budget_exceeded");
    let down = live(
        &World {
            turn: Err("down"),
            ..world
        },
        &[],
    );
    assert_eq!(
        (down.end.reason.as_str(), code(&down)),
        ("error", "down".to_owned())
    );
}

#[test]
fn the_reflection_sees_the_recorded_draft_and_replaces_it() {
    let world = World {
        turn: Ok("{\"a\":1}"),
        repair: Ok(""),
        reply: Ok("{\"c\":1}"),
        reflect: Some(true),
    };
    let life = live(&world, &[]);
    assert_eq!(life.end.outcome.output, Some(json!({"c": 1})));
    let mut history = life.recorded[..3].to_vec();
    history[2].data = json!({"draft": {"a": "[REDACTED]"}});
    history.push(recorded(90, "reflect.started", json!({})));
    let (purpose, messages) = called(next(&begin(&world, &history)));
    assert_eq!(purpose, Purpose::Reflect);
    let texts: Vec<&str> = messages.iter().map(|one| one.content.as_str()).collect();
    assert_eq!(texts, ["REFLECT", "USER", "{\"a\":\"[REDACTED]\"}"]);
    history.pop();
    let Action::Finish(end) = next(&begin(&world, &history)) else {
        panic!("nobody asked for a reflection");
    };
    assert_eq!(end.outcome.output, Some(json!({"a": "[REDACTED]"})));
}

#[test]
fn turns_are_bounded_and_zero_means_ten() {
    let mut conversation = Conversation::new(prompt(false), terms(0), &[]);
    assert_eq!(conversation.terms.max_turns, 10);
    conversation.turns = 10;
    let Action::Finish(end) = next(&conversation) else {
        panic!("no turn is left");
    };
    assert_eq!(end.reason, "max_turns");
    let bounded = Conversation::new(prompt(false), terms(3), &[]);
    assert_eq!(bounded.terms.max_turns, 3);
}

#[test]
fn a_recorded_draft_counts_though_redaction_left_a_text_that_is_no_json() {
    let world = World::all()[0];
    let history = [
        recorded(1, "llm.request", json!({"purpose": "turn", "messages": []})),
        recorded(
            2,
            "llm.response",
            json!({"request": 1, "content": "[REDACTED]"}),
        ),
        recorded(3, "agent.decided", json!({"draft": {"a": 1}})),
    ];
    let Action::Finish(end) = next(&begin(&world, &history)) else {
        panic!("there is a draft");
    };
    assert_eq!(end.outcome.output, Some(json!({"a": 1})));
}
