use serde_json::{Value, json};

use super::support::{faults, parse, spec};
use crate::{EvalSubject, MAX_SCENARIOS};

const CHECKS: &str = "invariants: {a: {description: d, check: {type: output}}}\n";

fn with(text: &str) -> String {
    format!("{text}\n{CHECKS}")
}

/// The labels and params of all scenarios.
fn scenarios(text: &str) -> Vec<(String, Value)> {
    let suite = spec(&with(text)).suite.unwrap();
    let all = suite.scenarios().into_iter();
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
fn a_recorded_run_is_a_subject_of_its_own() {
    let suite = spec(&with("subject: {run: run_a}")).suite.unwrap();
    assert_eq!(suite.subject, EvalSubject::Run("run_a".to_owned()));
    assert_eq!(suite.scenarios().len(), 1);
}

#[test]
fn what_is_not_supported_yet_is_named() {
    for (key, name) in [
        ("replicas: 2", Some("replicas")),
        ("replicas: 1", None),
        ("people: []", Some("people")),
        ("limits: {}", Some("limits")),
    ] {
        let (spec, _) = parse(&with(&format!("subject: {{}}\n{key}"))).unwrap();
        assert_eq!(spec.suite.unwrap().not_supported, name, "{key}");
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
    let too_many = format!("the matrix has more than {MAX_SCENARIOS} combinations");
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
            "subject: {}\nmatrix: {model.fast: [a]}",
            2,
            "varies params only",
        ),
        (
            "subject: {}\nmatrix: {params.: [a]}",
            2,
            "varies params only",
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
        ("subject: {}\neffects: send", 2, "effects"),
        ("subject: {}\nreplicas: 0", 2, "replicas"),
        (&large, 2, &too_many),
        (
            &many_checks,
            2,
            "1001 scenarios have more than 100000 checks together",
        ),
    ] {
        let found = faults(&with(text));
        let (at, _, message) = &found[0];
        assert_eq!(*at, line, "{text}: {message}");
        assert!(message.contains(words), "{text}: {message}");
    }
}
