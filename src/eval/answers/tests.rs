use ktsu_config::render;
use serde_json::json;

use super::*;

fn read(text: &str) -> Result<Answers, String> {
    Answers::parse(Path::new("answers.yaml"), text).map_err(|faults| render::text(&faults, false))
}

fn review(run: &str, step: &str) -> PersonRequest {
    let record = json!({"review_id": "rev_1", "kind": "review", "run_id": run, "step_id": step,
        "reason": "r", "payload": null, "output": {"v": 1}, "deferred": [], "quorum": 1,
        "not_by_proposer": false, "roles": [], "timeout_ms": 1, "timeout_behavior": "fail", "proposer": "local",
        "status": "pending", "created_at": "2026-01-01T00:00:00.000000Z",
        "expires_at": "2026-01-01T00:00:01.000000Z", "votes": [], "request": 7});
    serde_json::from_value(record).unwrap()
}

fn suspension(step: &str, attempt: u32) -> PersonRequest {
    let record = json!({"suspend_id": "sus_1", "kind": "suspend", "run_id": "run_r",
        "step_id": step, "reason": "r", "checkpoint": null, "timeout_ms": 1, "roles": [],
        "status": "pending", "created_at": "2026-01-01T00:00:00.000000Z", "attempt": attempt, "proposer": "me",
        "expires_at": "2026-01-01T00:00:01.000000Z", "votes": [], "request": 7});
    serde_json::from_value(record).unwrap()
}

fn call(step: &str, tool: &str, kind: &str) -> PersonRequest {
    let record = json!({"approval_id": "apr_1", "kind": kind, "run_id": "run_r", "step_id": step,
        "server": "desk", "tool_name": tool, "tool_use_id": "", "arguments": {}, "digest": "d",
        "on_reject": "fail", "timeout_ms": 0, "quorum": 1, "not_by_proposer": false, "proposer": "me",
        "status": "pending", "created_at": "2026-01-01T00:00:00.000000Z", "votes": [],
        "request": 7});
    serde_json::from_value(record).unwrap()
}

#[test]
fn the_first_entry_that_fits_answers_and_data_answer_only_what_waits_for_data() {
    let answers = read(
        "people:\n\
         - {match: {step: clerk, attempt: 2}, data: {page: 2}}\n\
         - {match: {step: clerk}, data: {page: 1}, reason: by post}\n\
         - {match: {step: judge*}, decision: rejected, reason: no}\n\
         - {decision: approved}\n",
    )
    .unwrap();
    let one = |record: &PersonRequest| answers.to(record).swap_remove(0);
    assert_eq!(
        one(&suspension("clerk", 1)).body,
        json!({"data": {"page": 1}, "suspend_id": "sus_1", "reason": "by post"})
    );
    assert_eq!(
        one(&suspension("clerk", 2)).body["data"],
        json!({"page": 2})
    );
    assert!(answers.to(&suspension("other", 1)).is_empty());
    let null = read("people: [{data: null}]").unwrap();
    assert_eq!(
        null.to(&suspension("other", 1))[0].body["data"],
        json!(null)
    );
    let judged = one(&review("run_r", "judge"));
    assert_eq!(judged.by, "scripted");
    assert_eq!(
        judged.body,
        json!({"decision": "rejected", "reason": "no", "review_id": "rev_1"})
    );
    let approved = one(&call("pay", "charge", "approval"));
    assert_eq!(
        approved.body,
        json!({"decision": "approved", "approval_id": "apr_1", "digest": "d"})
    );
}

#[test]
fn an_entry_names_what_it_answers_by_step_path_tool_and_kind() {
    let fits = |matches: &str, record: &PersonRequest| {
        let text = format!("people: [{{match: {matches}, decision: approved}}]");
        !read(&text).unwrap().to(record).is_empty()
    };
    let inner = review("run_r/check.1", "judge");
    for step in ["judge", "ju*", "*", "check.1/judge", "check.*"] {
        assert_eq!(
            fits(&format!("{{step: \"{step}\"}}"), &inner),
            step != "check.*",
            "{step}"
        );
    }
    assert!(!fits("{step: check.2/judge}", &inner));
    let item = call("pay.3", "charge", "approval");
    assert!(fits("{step: pay}", &item), "an item belongs to its step");
    assert!(fits("{step: pay.3}", &item) && !fits("{step: pay.2}", &item));
    assert!(fits("{tool: ch*}", &item) && !fits("{tool: refund}", &item));
    assert!(!fits("{tool: \"*\"}", &inner), "a review is of no tool");
    assert!(fits("{kind: review}", &inner) && !fits("{kind: approval}", &inner));
    let doubt = call("pay", "charge", "in_doubt");
    assert!(fits("{kind: in_doubt}", &doubt) && !fits("{kind: approval}", &doubt));
}

#[test]
fn an_entry_can_name_the_arguments_that_a_call_has_to_have() {
    let mut record = serde_json::to_value(call("pay", "charge", "approval")).unwrap();
    record["arguments"] = json!({"to": "ann", "amount": 5.0, "lines": [{"of": 1}]});
    let asked: PersonRequest = serde_json::from_value(record).unwrap();
    for (arguments, fits) in [
        ("{}", true),
        ("{to: ann}", true),
        ("{to: ann, amount: 5, lines: [{of: 1}]}", true),
        ("{to: bob, amount: 5}", false),
        ("{lines: [{}]}", false),
        ("{from: ann}", false),
    ] {
        let text = format!(
            "people: [{{match: {{tool: charge, arguments: {arguments}}}, decision: approved}}]"
        );
        let answers = read(&text).unwrap();
        assert_eq!(!answers.to(&asked).is_empty(), fits, "{arguments}");
    }
    let any = read("people: [{match: {arguments: {v: 1}}, decision: approved}]").unwrap();
    assert!(any.to(&review("run_r", "judge")).is_empty(), "not a call");
}

#[test]
fn answers_are_in_the_order_of_the_file_with_who_gives_them() {
    let answers = read(
        "people:\n- {by: ann, decision: approved, overlay: {v: 2}}\n\
         - {by: bob, decision: approved}\n- {by: ann, decision: rejected}\n",
    )
    .unwrap();
    let all = answers.to(&review("run_r", "judge"));
    let names: Vec<&str> = all.iter().map(|answer| answer.by.as_str()).collect();
    assert_eq!(names, ["scripted-ann", "scripted-bob", "scripted-ann"]);
    assert_eq!(all[0].body["overlay"], json!({"v": 2}));
}

#[test]
fn what_is_wrong_with_a_file_is_said_with_its_place() {
    for (text, words) in [
        (
            "people: [{match: {step: a}}]",
            "the answer has neither data nor a decision",
        ),
        (
            "people: [{data: 1, decision: approved}]",
            "an answer has data or a decision, and not both",
        ),
        (
            "people: [{data: 1, overlay: {v: 1}}]",
            "overlay belongs to a decision, not to data",
        ),
        (
            "people: [{decision: maybe}]",
            "decision must be approved or rejected or happened",
        ),
        (
            "people: [{decision: approved, by: \"a b\"}]",
            "by must be a short name",
        ),
        ("people: [{decision: approved, match: {stp: a}}]", "stp"),
        (
            "people: [{data: 1, match: {arguments: {a: 1}}}]",
            "arguments go with decisions on tool calls",
        ),
        (
            "people: [{decision: approved, match: {arguments: [a]}}]",
            "arguments",
        ),
        (
            "people: [{match: {step: \"c*k\"}, data: 1}]",
            "can have a * at its end only",
        ),
        (
            "people: [{match: {kind: suspend}, decision: approved}]",
            "is given data",
        ),
        (
            "people: [{match: {kind: review}, data: 1}]",
            "data are given to steps",
        ),
        (
            "people: [{match: {attempt: 2}, decision: approved}]",
            "attempt goes with data",
        ),
        (
            "people: [{match: {tool: pay}, data: 1}]",
            "tool goes with decisions",
        ),
        ("people: [{by: \"\", data: 1}]", "by must be a short name"),
        ("person: []", "person"),
        ("people: 3", "people"),
    ] {
        let refused = read(text).unwrap_err();
        assert!(refused.contains(words), "{text}: {refused}");
        assert!(refused.contains("answers.yaml:1:"), "{refused}");
    }
    let many = "\n- {decision: approved}".repeat(MAX_ENTRIES + 1);
    let refused = read(&format!("people:{many}")).unwrap_err();
    assert!(refused.contains("more than 1000 answers"), "{refused}");
}
