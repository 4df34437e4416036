//! The loop with tools, as a fold: whole lives of tasks, cut after any frame.

#[cfg(test)]
mod world_tests;

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::sample::select;
use serde_json::json;

use self::world_tests::*;
use super::*;
use ktsu_contract::gateway::ChatMessage;

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
    common.extend(["approved", "happened"].map(Kind::Doubtful));
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
            let shape = |messages: &[ChatMessage]| -> Vec<(String, Option<String>)> {
                let one = |one: &ChatMessage| (one.role.clone(), one.tool_call_id.clone());
                messages.iter().map(one).collect()
            };
            let told = whole.told.get(turn).expect("the same turn");
            assert_eq!(shape(messages), shape(told), "{script:?} cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ktsu_campaign::config(150))]

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
fn what_is_not_sent_is_reported_to_the_model_with_its_reason() {
    for (kind, expected) in [
        (Kind::Answers, "- false \"Answers\""),
        (Kind::Fails, "- true \"Fails\""),
        (
            Kind::Silent,
            "- true \"Error: the tool could not be used: no answer within 60000 ms (timeout).\"",
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
    ] {
        let (_, results, end) = told(&[vec![kind]], 10);
        assert_eq!(results, [expected], "{kind:?}");
        assert_eq!(end.reason, "completed");
    }
}

#[test]
fn a_name_that_no_one_permits_ends_the_task_before_anything_is_sent() {
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
fn a_request_continues_from_the_one_before_and_names_frames() {
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
        let terms = ConversationLimits {
            max_turns: 10,
            text_reply: false,
            people: true,
        };
        Conversation::new(prompt(), terms, &world.log).next(&catalogue())
    };
    let called = |action: &Action| matches!(action, Action::Report(events) if matches!(events[..], [ReportEvent::ToolCalled(_)]));
    assert!(called(&asked(1, &["approved"])));
    assert_eq!(asked(2, &["approved"]), Action::Suspend);
    assert!(called(&asked(2, &["approved", "approved"])));
    for words in [&["rejected"][..], &["approved", "rejected"]] {
        let Action::Report(events) = asked(3, words) else {
            panic!("it is refused");
        };
        assert!(matches!(&events[..], [ReportEvent::ToolReturned(result)]
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
fn where_no_one_can_be_asked_a_gated_call_ends_the_task_and_a_doubt_is_an_error() {
    let alone = ConversationLimits {
        max_turns: 10,
        text_reply: false,
        people: false,
    };
    for kind in [Kind::Gated("approved"), Kind::Doubtful("approved")] {
        let mut world = World::new(&vec![vec![kind]], 10, &[]);
        assert_eq!(world.attempt(), None);
        let upto = match kind {
            Kind::Gated(_) => "approval.requested",
            _ => "tool.in_doubt",
        };
        let before: Vec<RecordedFrame> = world
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
                assert!(
                    matches!(&events[..], [ReportEvent::ToolReturned(result)] if result.is_error)
                );
            }
            (kind, action) => panic!("{kind:?} leads to {action:?}"),
        }
    }
}
