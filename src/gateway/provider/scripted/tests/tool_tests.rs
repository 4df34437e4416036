//! Scripts that ask for tools and look at what came of it.

use super::*;
use ktsu_contract::gateway::{ToolCall, ToolDefinition};

const DESK: &str = r#"
values:
  order: {from: user, pattern: 'order (\d+)'}
rules:
  - when: {turn: 1, tools: '(?m)^orders-get$'}
    text: "Looking up {{ order }}."
    tool_calls:
      - {name: orders-get, arguments: {id: "{{ order }}", deep: [true]}}
      - {name: "{{ group }}-note", id: "n-{{ turn }}"}
  - when: {tool_error: '(?i)rejected by (?P<who>\w+)'}
    reply: {sorry: "{{ who }}"}
  - when: {turn: '2|3', tool: '"state":'}
    tool_calls: [{name: orders-close, arguments: "{{ results.orders-get }}"}]
default: {reply: {state: "{{ results.orders-get.state }}", turn: "{{ turn }}"}}
"#;

fn user() -> ProviderCall {
    let mut call = call(&[("user", "close order 77")]);
    call.tools = vec![ToolDefinition {
        name: "orders-get".to_owned(),
        ..ToolDefinition::default()
    }];
    call
}

fn answer(script: &Scripted, call: &ProviderCall) -> ProviderReply {
    script.outcome(call).result.unwrap()
}

/// Goes on with a reply and a result for each of its calls.
fn with(mut call: ProviderCall, answer: &ProviderReply, results: &[(&str, bool)]) -> ProviderCall {
    call.messages.push(ChatMessage {
        role: "assistant".to_owned(),
        content: answer.content.clone(),
        tool_calls: answer.tool_calls.clone(),
        ..ChatMessage::default()
    });
    let results = answer.tool_calls.iter().zip(results);
    let results = results.map(|(call, (content, is_error))| ChatMessage {
        role: "tool".to_owned(),
        content: (*content).to_owned(),
        tool_call_id: Some(call.id.clone()),
        is_error: *is_error,
        ..ChatMessage::default()
    });
    call.messages.extend(results);
    call
}

fn shown(calls: &[ToolCall]) -> Vec<(&str, &str, &Value)> {
    let calls = calls.iter();
    calls
        .map(|call| (call.id.as_str(), call.name.as_str(), &call.arguments))
        .collect()
}

#[test]
fn a_rule_asks_for_tools_and_the_next_sees_what_they_gave() {
    let script = script(DESK).unwrap();
    let first = answer(&script, &user());
    assert_eq!(first.content, "Looking up 77.");
    assert_eq!(
        shown(&first.tool_calls),
        [
            ("call_1", "orders-get", &json!({"id": "77", "deep": [true]})),
            ("n-1", "triage-note", &json!({})),
        ]
    );
    let then = with(
        user(),
        &first,
        &[(r#"{"state":"open"}"#, false), ("noted", false)],
    );
    let second = answer(&script, &then);
    assert_eq!(second.content, "");
    assert_eq!(
        shown(&second.tool_calls),
        [("call_3", "orders-close", &json!({"state": "open"}))],
        "numbers go on"
    );
    let last = answer(&script, &with(then, &second, &[("closed", false)]));
    assert_eq!(last.content, r#"{"state":"open","turn":3}"#);
    assert!(last.tool_calls.is_empty());
}

#[test]
fn a_rule_can_look_at_errors_alone_and_at_the_tools_there_are() {
    let script = script(DESK).unwrap();
    let first = answer(&script, &user());
    let said = |is_error| {
        let results = [("Rejected by Ann", is_error), ("noted", false)];
        answer(&script, &with(user(), &first, &results)).content
    };
    assert_eq!(said(true), r#"{"sorry":"Ann"}"#);
    assert_eq!(said(false), r#"{"state":null,"turn":2}"#);
    let mut without = user();
    without.tools.clear();
    assert_eq!(
        answer(&script, &without).content,
        r#"{"state":null,"turn":1}"#
    );
}

#[test]
fn a_model_that_writes_no_object_as_arguments_can_be_played() {
    let script = script(
        "rules: [{tool_calls: [{name: a, arguments: '{broken'}, {name: b, arguments: [1]}, {name: b, id: x}, {name: b, id: x}]}]",
    )
    .unwrap();
    let calls = answer(&script, &user()).tool_calls;
    assert_eq!(
        shown(&calls),
        [
            ("call_1", "a", &json!({"_raw": "{broken"})),
            ("call_2", "b", &json!({"_raw": "[1]"})),
            ("x", "b", &json!({})),
            ("call_4", "b", &json!({})),
        ]
    );
}

#[test]
fn calls_count_as_tokens_of_both_sides() {
    let script = script("rules: [{tool_calls: [{name: abcdef}]}]").unwrap();
    let plain = call(&[("user", "12345678")]);
    let first = answer(&script, &plain);
    assert_eq!((first.used.tokens_in, first.used.tokens_out), (2, 2));
    let second = answer(&script, &with(plain, &first, &[("1234", false)]));
    assert_eq!((second.used.tokens_in, second.used.tokens_out), (5, 2));
}

#[test]
fn every_fault_of_a_tool_call_is_reported_at_its_line() {
    let told = script(
        "rules:
  - {tool_calls: []}
  - {tool_calls: [{nam: a}]}
  - {tool_calls: [{name: a, arguments: {x: '{{ nope }}'}}]}
  - {when: {turn: '('}, tool_calls: [{name: a}]}
  - {tool_calls: {name: a}}
",
    )
    .unwrap_err();
    for line in 2..=6 {
        assert!(
            told.contains(&format!("rules.yaml:{line}:")),
            "line {line}: {told}"
        );
    }
}

fn recorded() -> String {
    let calls = json!([
        {"id": "c1", "name": "kv-get", "arguments": {"k": 1}},
        {"id": "c2", "name": "kv-put", "arguments": {"k": "[REDACTED]"}, "secret": true},
    ]);
    let frame = |seq: u64, kind: &str, data: Value| json!({"seq": seq, "type": kind, "data": data});
    let returned = |seq, call, content: Value, is_error| {
        let data = json!({"response": 2, "call": call, "content": content, "is_error": is_error});
        frame(seq, "tool.returned", data)
    };
    let block = |text: &str| json!({"type": "text", "text": text});
    let frames = [
        frame(
            1,
            "llm.request",
            json!({"group": "triage", "messages": [{"role": "user", "content": "a"}]}),
        ),
        frame(
            2,
            "llm.response",
            json!({"request": 1, "content": "", "tool_calls": calls, "tokens_cached": 3}),
        ),
        frame(3, "agent.decided", json!({"response": 2})),
        // As they came, which is not the order of the calls.
        returned(4, 1, json!([block("no"), block("secrets")]), true),
        returned(5, 0, json!([block("v")]), false),
        frame(
            6,
            "llm.request",
            json!({"base": 1, "group": "triage", "messages": [
                {"role": "assistant", "frame": 2}, {"role": "tool", "frame": 5},
                {"role": "tool", "frame": 4}]}),
        ),
        frame(
            7,
            "llm.response",
            json!({"request": 6, "content": "{\"done\":1}"}),
        ),
    ];
    frames.map(|frame| frame.to_string()).join("\n")
}

#[test]
fn a_recorded_run_gives_back_its_tool_calls_and_knows_their_results() {
    let script = load(None, Some(&recorded())).unwrap();
    let plain = call(&[("user", "a")]);
    let first = answer(&script, &plain);
    assert_eq!(first.used.tokens_cached, 3);
    assert_eq!(
        shown(&first.tool_calls),
        [
            ("c1", "kv-get", &json!({"k": 1})),
            ("c2", "kv-put", &json!({"k": "[REDACTED]"})),
        ]
    );
    let second = |results: [(&str, bool); 2]| {
        let call = with(plain.clone(), &first, &results);
        script.outcome(&call).result.map(|answer| answer.content)
    };
    assert_eq!(
        second([("v", false), ("no\nsecrets", true)]).unwrap(),
        r#"{"done":1}"#
    );
    for other in [
        [("w", false), ("no\nsecrets", true)],
        [("v", false), ("no\nsecrets", false)],
    ] {
        assert!(second(other).is_err(), "{other:?}");
    }
}
