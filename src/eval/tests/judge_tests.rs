use serde_json::json;

use ktsu_ledger::event::EvalStatus;

use crate::{Subject, judge};

use super::support::{Files, Run, envelope, one, one_in, paid, results, spec};
use EvalStatus::{Error, Failed, Passed};

fn assert_all(cases: &[(&str, EvalStatus, &str)]) {
    for (check, status, words) in cases {
        let found = one(check);
        assert_eq!(found.status, *status, "{check}: {}", found.reason);
        assert!(found.reason.contains(words), "{check}: {}", found.reason);
        assert_eq!(found.score.get(), f64::from(u8::from(*status == Passed)));
    }
}

#[test]
fn an_output_passes_fails_or_cannot_be_checked() {
    assert_all(&[
        ("{type: output}", Passed, "output is {"),
        (
            "{type: output, expr: output.none}",
            Failed,
            "output.none is [], expected a value",
        ),
        (
            "{type: output, expr: output.team, equals: network}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.team, equals: desk}",
            Failed,
            "is \"network\", expected \"desk\"",
        ),
        (
            "{type: output, expr: output.score, equals: 4.0, min: 4, max: 4}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.score, min: 4.5}",
            Failed,
            "at least 4.5",
        ),
        (
            "{type: output, expr: output.score, max: 3}",
            Failed,
            "at most 3",
        ),
        (
            "{type: output, expr: output.team, max: 3}",
            Failed,
            "a number",
        ),
        (
            "{type: output, expr: output.absent, equals: null}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.team, not_equals: null}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.absent, not_equals: null}",
            Failed,
            "anything but null",
        ),
        (
            "{type: output, expr: output.tags, contains: vpn}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.team, contains: net, pattern: ^net}",
            Passed,
            "",
        ),
        (
            "{type: output, expr: output.team, pattern: ^work}",
            Failed,
            "/^work/",
        ),
        (
            "{type: output, expr: 'steps[0].status', equals: complete}",
            Passed,
            "",
        ),
        (
            "{type: output, schema: {type: object, required: [team]}}",
            Passed,
            "",
        ),
        (
            "{type: output, schema: {required: [owner]}}",
            Failed,
            "fits the schema: ",
        ),
        (
            r#"{type: output, expr: "starts_with(output.score, 'a')"}"#,
            Error,
            "",
        ),
    ]);
}

#[test]
fn the_frames_pass_fail_or_cannot_be_checked() {
    assert_all(&[
        (
            "{type: trace, where: {type: tool.called}, count: {equals: 2}}",
            Passed,
            "2 frames match",
        ),
        (
            "{type: trace, where: {tool: pay}, count: {max: 3}}",
            Failed,
            "4 frames match, expected at most 3",
        ),
        (
            "{type: trace, where: {type: step.failed}, none: true}",
            Passed,
            "",
        ),
        (
            "{type: trace, where: {tool: pay}, none: true}",
            Failed,
            "frame 6 (approval.requested)",
        ),
        (
            "{type: trace, where: {tool: look_up}, before: {tool: pay}}",
            Passed,
            "",
        ),
        (
            "{type: trace, where: {tool: pay}, before: {tool: look_up}}",
            Failed,
            "frame 6",
        ),
        (
            "{type: trace, where: {tool: pay}, after: {tool: look_up}}",
            Passed,
            "",
        ),
        (
            "{type: trace, where: {tool: look_up}, after: {tool: pay}}",
            Failed,
            "not after",
        ),
        (
            "{type: trace, where: {tool: pay}, before: {tool: absent}}",
            Passed,
            "none to be",
        ),
        (
            "{type: trace, where: {type: llm.response}, all: 'data.tokens_in < `2`'}",
            Passed,
            "",
        ),
        (
            "{type: trace, where: {type: llm.response}, all: 'data.tokens_in > `2`'}",
            Failed,
            "frame 1",
        ),
        (
            "{type: trace, where: {expr: 'starts_with(data.model, `1`)'}, none: true}",
            Error,
            "frame 0",
        ),
    ]);
}

#[test]
fn the_shorthands_pass_and_fail() {
    assert_all(&[
        (
            "{type: trace, no_tool_without_approval: pay}",
            Passed,
            "1 call, ",
        ),
        (
            "{type: trace, no_tool_without_approval: true}",
            Failed,
            "look_up in frame 2",
        ),
        (
            "{type: trace, tools_used: {only: [look_up, p*], all_of: [pay], none_of: [drop]}}",
            Passed,
            "",
        ),
        (
            "{type: trace, tools_used: {only: [pay]}}",
            Failed,
            "look_up",
        ),
        (
            "{type: trace, tools_used: {all_of: [refund]}}",
            Failed,
            "refund was never called",
        ),
        (
            "{type: trace, tools_used: {none_of: [bank__*]}}",
            Failed,
            "forbidden",
        ),
        ("{type: trace, cost_usd: {max: 0.08}}", Passed, "$0.080000"),
        ("{type: trace, cost_usd: {max: 0.079999}}", Failed, ""),
        (
            "{type: trace, cost_usd: {min: 0.1}}",
            Failed,
            "at least $0.100000",
        ),
        ("{type: trace, model_calls: {equals: 2}}", Passed, ""),
        (
            "{type: trace, model_calls: {max: 1}}",
            Failed,
            "2 model calls",
        ),
        ("{type: trace, duration: {max: 9s}}", Passed, ""),
        ("{type: trace, duration: {max: 8999ms}}", Failed, "9000 ms"),
    ]);
}

#[test]
fn a_call_without_an_approval_or_with_a_rejection_was_not_approved() {
    for decision in [None, Some("rejected")] {
        let mut run = Run::new();
        run.tool_call("pay", decision);
        let envelope = envelope();
        let subject = Subject {
            envelope: &envelope,
            frames: &run.views(),
            workspace: None,
            services: None,
            replies: None,
        };
        let spec = spec(
            "invariants: {a: {description: d, check: {type: trace, no_tool_without_approval: p*}}}",
        );
        assert_eq!(judge(&spec, &subject)[0].status, Failed, "{decision:?}");
    }
}

#[test]
fn what_is_forbidden_is_a_gate_and_must_match_nothing() {
    assert_all(&[
        ("{type: forbidden, where: {tool: drop}}", Passed, ""),
        ("{type: forbidden, where: {tool: pay}}", Failed, ""),
        (
            "{type: forbidden, where: {expr: 'abs(data.model)'}}",
            Error,
            "",
        ),
    ]);
    let found = results(
        "invariants: {a: {description: d, check: {type: output}}}\n\
         forbidden:\n- {name: no_pay, where: {tool: pay, type: tool.called}}\n- where: {tool: drop}\n",
        None,
    );
    let shown: Vec<_> = found
        .iter()
        .map(|one| (one.index, &*one.name, one.gate, one.status))
        .collect();
    assert_eq!(
        shown,
        [
            (0, "a", false, Passed),
            (1, "no_pay", true, Failed),
            (2, "forbidden[1]", true, Passed)
        ]
    );
    assert_eq!(
        (found[1].looked_at.frames.clone(), found[1].weight.get()),
        (vec![8], 1.0)
    );
}

#[test]
fn files_pass_fail_or_cannot_be_checked() {
    let files = Files::new(&[("out/a.txt", "Subject: Renewal\nnothing else\n")]);
    for (check, status, words) in [
        ("{type: file_exists, path: out/a.txt}", Passed, "exists"),
        ("{type: file_exists, path: b.txt}", Failed, "does not exist"),
        (
            "{type: file_exists, path: locked}",
            Error,
            "permission denied",
        ),
        ("{type: file_absent, path: b.txt}", Passed, ""),
        ("{type: file_absent, path: out/a.txt}", Failed, "exists"),
        ("{type: file_absent, path: locked}", Error, ""),
        (
            r#"{type: file_content, path: out/a.txt, pattern: "^Subject: Renewal\\b", contains: else, not_contains: TODO}"#,
            Passed,
            "",
        ),
        (
            "{type: file_content, path: out/a.txt, contains: TODO}",
            Failed,
            "does not contain \"TODO\"",
        ),
        (
            "{type: file_content, path: out/a.txt, not_contains: else}",
            Failed,
            "contains \"else\"",
        ),
        (
            "{type: file_content, path: out/a.txt, pattern: '^else'}",
            Failed,
            "/^else/",
        ),
        (
            "{type: file_content, path: b.txt, not_contains: x}",
            Failed,
            "does not exist",
        ),
        (
            "{type: file_content, path: locked, contains: x}",
            Error,
            "permission denied",
        ),
    ] {
        let found = one_in(check, Some(&files));
        assert_eq!(found.status, status, "{check}: {}", found.reason);
        assert!(found.reason.contains(words), "{check}: {}", found.reason);
    }
    let without = one("{type: file_exists, path: a}");
    assert_eq!(without.status, Error);
    assert!(without.reason.contains("--workspace DIR"));
}

#[test]
fn the_same_subject_gives_the_same_results_and_another_one_another_digest() {
    let text = "invariants: {a: {description: d, check: {type: output}}, b: {description: d, check: {type: trace, where: {type: 'tool.*'}, count: {min: 1}}}}";
    let (first, again) = (results(text, None), results(text, None));
    let written = |results: &Vec<_>| serde_json::to_string(results).unwrap();
    assert_eq!(written(&first), written(&again));
    assert_eq!(
        (first[1].looked_at.count, &*first[1].looked_at.frames),
        (4, &[2, 3, 8, 9][..])
    );
    let mut frames = paid();
    frames[2].hash = ktsu_ledger::Hash::ZERO;
    let other = json!({"output": 1});
    let subject = Subject {
        envelope: &other,
        frames: &frames,
        workspace: None,
        services: None,
        replies: None,
    };
    let changed = judge(&spec(text), &subject);
    assert_ne!(changed[0].looked_at.digest, first[0].looked_at.digest);
    assert_ne!(changed[1].looked_at.digest, first[1].looked_at.digest);
}

#[test]
fn at_most_a_hundred_frames_are_named_and_all_are_counted() {
    let mut run = Run::new();
    for _ in 0..150 {
        run.add(
            "step.completed",
            json!({"attempt": 1, "output": 1, "step": "a", "stripped": []}),
        );
    }
    let frames = run.views();
    let envelope = envelope();
    let subject = Subject {
        envelope: &envelope,
        frames: &frames,
        workspace: None,
        services: None,
        replies: None,
    };
    let spec = spec(
        "invariants: {a: {description: d, check: {type: trace, where: {step: a}, count: {min: 1}}}}",
    );
    let found = judge(&spec, &subject).swap_remove(0);
    assert_eq!(
        (found.looked_at.frames.len(), found.looked_at.count),
        (100, 150)
    );
}

#[test]
fn an_expression_that_takes_too_much_work_is_an_error_and_the_next_check_is_made() {
    let list: Vec<u32> = (0..3_000).collect();
    let envelope = json!({"output": {"a": list}});
    let subject = Subject {
        envelope: &envelope,
        frames: &[],
        workspace: None,
        services: None,
        replies: None,
    };
    let many = vec!["@"; 60].join(",");
    let slow = format!("length(output.a[*].[{many}][].[{many}][])");
    let text = format!(
        "invariants:\n  a: {{description: d, check: {{type: output, expr: '{slow}'}}}}\n  b: {{description: d, check: {{type: output, expr: 'length(output.a)', equals: 3000}}}}\n"
    );
    let found = judge(&spec(&text), &subject);
    assert_eq!(found[0].status, Error, "{}", found[0].reason);
    assert!(
        found[0].reason.contains("too much work"),
        "{}",
        found[0].reason
    );
    assert_eq!(found[1].status, Passed, "{}", found[1].reason);
}

#[test]
fn globs_that_take_too_many_comparisons_are_an_error() {
    let mut run = Run::new();
    for _ in 0..1_000 {
        run.add("step.started", json!({"attempt": 1, "step": "a"}));
    }
    let frames = run.views();
    let envelope = envelope();
    let subject = Subject {
        envelope: &envelope,
        frames: &frames,
        workspace: None,
        services: None,
        replies: None,
    };
    let glob = "*".repeat(500);
    let checks: String = (0..500)
        .map(|at| {
            let check =
                format!("{{type: forbidden, where: {{step: '{glob}', type: llm.request}}}}");
            format!("  n{at}: {{description: d, check: {check}}}\n")
        })
        .collect();
    let found = judge(&spec(&format!("invariants:\n{checks}")), &subject);
    assert_eq!((found[0].status, found[499].status), (Passed, Error));
    assert!(found[499].reason.contains("too many frames"));
}
