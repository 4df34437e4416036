use serde_json::{Value, json};

use super::support::{faults, spec};
use crate::{EvalSubject, MAX_SCENARIOS, SuiteLimits};

const CHECKS: &str = "invariants: {a: {description: d, check: {type: output}}}\n";

fn with(text: &str) -> String {
    format!("{text}\n{CHECKS}")
}

/// The labels and params of all scenarios.
fn scenarios(text: &str) -> Vec<(String, Value)> {
    let suite = spec(&with(text)).suite.unwrap();
    let all = suite.scenarios(None).into_iter();
    all.map(|one| (one.label, Value::Object(one.params)))
        .collect()
}

#[test]
fn a_file_without_a_subject_only_checks() {
    assert_eq!(spec(CHECKS).suite, None);
}

#[test]
fn without_a_matrix_there_is_one_scenario_with_the_params_of_the_subject() {
    let found = scenarios("subject: {workflow: w, params: {tone: plain}, goal: Sort it}");
    assert_eq!(
        found,
        [(String::new(), json!({"goal": "Sort it", "tone": "plain"}))]
    );
}

#[test]
fn a_matrix_gives_every_combination_the_last_param_varying_first() {
    let text = "subject: {params: {tone: none, k: 1}}\n\
        matrix: {params.tone: [plain, formal], params.length: [1, [2]]}";
    let expected = [
        (
            "tone=plain, length=1",
            json!({"k": 1, "length": 1, "tone": "plain"}),
        ),
        (
            "tone=plain, length=[2]",
            json!({"k": 1, "length": [2], "tone": "plain"}),
        ),
        (
            "tone=formal, length=1",
            json!({"k": 1, "length": 1, "tone": "formal"}),
        ),
        (
            "tone=formal, length=[2]",
            json!({"k": 1, "length": [2], "tone": "formal"}),
        ),
    ];
    let expected = expected.map(|(label, params)| (label.to_owned(), params));
    assert_eq!(scenarios(text), expected);
}

#[test]
fn scenarios_have_names_of_their_own_whatever_their_values_are() {
    let text = "subject: {}\nmatrix: {params.a: [1, '1', ~, 'null', x, '\"x\"', ''], \
        params.b: [y, 'y, b=y', '[y']}";
    let found = scenarios(text);
    let names: std::collections::BTreeSet<&str> =
        found.iter().map(|(label, _)| label.as_str()).collect();
    assert_eq!(names.len(), 21);
    for name in [
        "a=1, b=y",
        "a=\"1\", b=y",
        "a=x, b=\"y, b=y\"",
        "a=null, b=[y",
    ] {
        assert!(names.contains(name), "{name}: {names:?}");
    }
}

#[test]
fn a_matrix_may_vary_what_is_used_in_place_of_a_model_group() {
    let text = "subject: {}\nmatrix: {model.fast: [fast, strong], params.a: [1]}";
    let suite = spec(&with(text)).suite.unwrap();
    let found: Vec<_> = suite
        .scenarios(None)
        .into_iter()
        .map(|one| (one.label, json!(one.groups), json!(one.params)))
        .collect();
    let expected = [
        ("fast", "model.fast=fast, a=1"),
        ("strong", "model.fast=strong, a=1"),
    ];
    let expected =
        expected.map(|(group, label)| (label.to_owned(), json!({"fast": group}), json!({"a": 1})));
    assert_eq!(found, expected);
    let groups = suite.groups();
    assert!(groups["fast"].iter().eq(["fast", "strong"].iter()));
}

#[test]
fn a_recorded_run_is_a_subject_of_its_own() {
    let suite = spec(&with("subject: {run: run_a}")).suite.unwrap();
    assert_eq!(suite.subject, EvalSubject::Run("run_a".to_owned()));
    assert_eq!(suite.scenarios(None).len(), 1);
}

#[test]
fn limits_are_milliseconds_and_millionths_of_a_dollar() {
    let text = "subject: {}\nlimits: {timeout: 1m30s, cost_usd: 0.25}";
    let limits = spec(&with(text)).suite.unwrap().limits;
    let expected = SuiteLimits {
        timeout_ms: Some(90_000),
        cost_micro_usd: Some(250_000),
    };
    assert_eq!(limits, expected);
    let without = spec(&with("subject: {}")).suite.unwrap();
    assert_eq!(without.limits, SuiteLimits::default());
}

#[test]
fn answers_to_people_are_read_with_the_suite() {
    let text = "subject: {}\npeople: [{match: {step: judge}, decision: approved}]";
    assert!(spec(&with(text)).suite.unwrap().people.is_some());
    assert!(spec(&with("subject: {}")).suite.unwrap().people.is_none());
}

#[test]
fn one_scenario_can_be_chosen_by_its_name() {
    let text = "subject: {}\nmatrix: {params.a: [1, 2], params.b: [x, y]}";
    let suite = spec(&with(text)).suite.unwrap();
    let chosen = suite.scenarios(Some("a=2, b=x"));
    assert_eq!(chosen.len(), 1);
    assert_eq!(
        chosen[0].params,
        *json!({"a": 2, "b": "x"}).as_object().unwrap()
    );
    assert_eq!(suite.recorded(Some("a=2, b=x")).scenarios, 1);
    assert_eq!(suite.recorded(None).scenarios, 4);
    assert_eq!(suite.scenarios(Some("a=3")), []);
    let alone = spec(&with("subject: {}")).suite.unwrap();
    assert_eq!(alone.scenarios(Some("scenario")).len(), 1);
}

#[test]
fn a_key_without_a_value_is_reported_and_not_taken_for_one_that_is_absent() {
    for (text, line, key) in [
        ("subject:", 1, "subject"),
        ("subject: {workflow: }", 1, "workflow"),
        ("subject: {params: }", 1, "params"),
        ("subject: {}\nmatrix:", 2, "matrix"),
        ("subject: {}\nreplicas: ~", 2, "replicas"),
        ("subject: {}\npeople:", 2, "people"),
        (
            "subject: {}\npeople: [{decision: approved, match: }]",
            2,
            "match",
        ),
        (
            "subject: {}\npeople: [{decision: approved, match: {tool: }}]",
            2,
            "tool",
        ),
        ("subject: {}\nlimits:", 2, "limits"),
        (
            "subject: {}\nlimits: {timeout: , cost_usd: 1}",
            2,
            "timeout",
        ),
        ("subject: {}\neffects:", 2, "effects"),
        ("scoring:", 1, "scoring"),
        ("scoring: {pass_threshold: }", 1, "pass_threshold"),
        ("scoring: {replica_aggregation: }", 1, "replica_aggregation"),
        (
            "scoring: {replica_aggregation: {at_least: }}",
            1,
            "at_least",
        ),
        ("forbidden:", 1, "forbidden"),
        ("description:", 1, "description"),
    ] {
        let found = faults(&with(text));
        let (at, _, message) = &found[0];
        assert_eq!(*at, line, "{text}: {message}");
        let words = format!("{key} has no value");
        assert!(message.starts_with(&words), "{text}: {message}");
    }
    // Values of params and data may be null, and what ktsu does not use may be anything.
    for text in [
        "subject: {params: {a: ~}}\nmatrix: {params.b: [~, 1]}",
        "subject: {}\npeople: [{data: ~}]",
        "task:\nservices:\nversion: 1",
    ] {
        spec(&with(text));
    }
}

#[test]
fn slips_are_reported_at_their_places() {
    let many = (0..101).map(|one| one.to_string()).collect::<Vec<_>>();
    let many = many.join(", ");
    let large = format!("subject: {{}}\nmatrix: {{params.a: [{many}], params.b: [{many}]}}");
    let thousand = (0..1_001).map(|one| one.to_string()).collect::<Vec<_>>();
    let forbidden = "  - {where: {type: run.created}}\n".repeat(100);
    let many_checks = format!(
        "subject: {{}}\nmatrix: {{params.a: [{}]}}\nforbidden:\n{forbidden}",
        thousand.join(", ")
    );
    let hundred = many.split(", ").take(100).collect::<Vec<_>>().join(", ");
    let dear = format!(
        "subject: {{params: {{c: {}}}}}\nmatrix: {{params.a: [{hundred}], params.b: [{hundred}]}}",
        "x".repeat(7_000)
    );
    let too_many = format!("are more than {MAX_SCENARIOS} runs");
    for (text, line, words) in [
        ("matrix: {params.a: [1]}", 1, "a matrix needs a subject"),
        ("subject: {workflw: w}", 1, "unknown key"),
        ("subject: {run: r, workflow: w}", 1, "and not both"),
        (
            "subject: {run: r}\nmatrix: {params.a: [1]}",
            2,
            "has no matrix",
        ),
        (
            "subject: {}\nmatrix: {model.fast: [1]}",
            2,
            "names of model groups",
        ),
        (
            "subject: {}\nmatrix: {params.: [a]}",
            2,
            "neither a param nor a model group",
        ),
        (
            "subject: {}\nmatrix: {params.a: []}",
            2,
            "needs a list of values",
        ),
        (
            "subject: {}\nmatrix: {params.a: [1], params.a: [2]}",
            2,
            "params.a",
        ),
        (
            "subject: {}\nmatrix: {params.a: [x, 1, x]}",
            2,
            "params.a has the value \"x\" twice",
        ),
        (
            "subject: {params: {at: ['a {{ workspace }}/b']}}",
            1,
            "{{ workspace }} stands for nothing here",
        ),
        (
            "subject: {params: {at: '{{workspace}}'}}\nworkspace: {}",
            1,
            "{{workspace}} is written {{ workspace }}",
        ),
        (
            "subject: {}\nworkspace: {}\nservices: {a: {type: mcp, command: [x, '{{ program }}/y']}}",
            3,
            "{{ program }} stands for nothing here",
        ),
        (
            "subject: {params: {b: 1}}\nmatrix: {params.a: [1]}\nworkspace: {}\n\
             services: {s: {type: mcp, command: ['{{ params.a }}{{ params.b }}', '{{ params.c }}']}}",
            4,
            "{{ params.c }} stands for nothing here",
        ),
        (
            "subject: {}\nmatrix: {params.a: ['{{ services.db.url }}']}\nworkspace: {}",
            1,
            "{{ services.db.url }} stands for nothing here",
        ),
        ("subject: {}\neffects: send", 2, "effects"),
        ("subject: {}\nreplicas: 0", 2, "replicas"),
        ("subject: {}\nlimits: {}", 2, "limits"),
        ("subject: {}\nlimits: {timeout: 5}", 2, "duration"),
        ("subject: {}\nlimits: {cost_usd: -1}", 2, "cost_usd"),
        ("subject: {}\npeople: [{decision: maybe}]", 2, "decision"),
        (&large, 2, &too_many),
        (&dear, 2, "have more than 64 MiB together"),
        (
            &many_checks,
            2,
            "1001 runs have more than 100000 checks together",
        ),
    ] {
        let found = faults(&with(text));
        let (at, _, message) = &found[0];
        assert_eq!(*at, line, "{text}: {message}");
        assert!(message.contains(words), "{text}: {message}");
    }
}

#[test]
fn services_may_be_a_list_whose_entries_have_names() {
    let list = "subject: {}\nservices: [{name: smtp, type: http_mock}, {name: db, image: 'postgres:16'}]\n\
        invariants: {a: {description: d, check: {type: output}}}\n";
    let services = spec(list).suite.unwrap().services;
    assert!(services.mocks.contains_key("smtp") && services.databases.contains_key("db"));
    for (entries, column, words) in [
        ("{type: http_mock}", 12, "name"),
        (
            "{name: 'a b', type: http_mock}",
            19,
            "is not a name of a service",
        ),
        (
            "{name: a, type: http_mock}, {name: a, type: http_mock}",
            47,
            "there are two services \"a\"",
        ),
        ("a", 12, "must be a map"),
    ] {
        let text = format!(
            "subject: {{}}\nservices: [{entries}]\ninvariants: {{a: {{description: d, check: {{type: output}}}}}}\n"
        );
        let found = faults(&text);
        assert_eq!(
            (found.len(), found[0].0, found[0].1),
            (1, 2, column),
            "{found:?}"
        );
        assert!(found[0].2.contains(words), "{found:?}");
    }
}
