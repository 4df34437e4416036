//! Verdicts on scenarios that ran several times.

use ktsu_evidence::check::ClaimVerdict;

use super::*;

/// A suite of one scenario that runs three times.
fn suite(aggregation: &str) -> String {
    format!(
        "subject: {{}}\nreplicas: 3\nscoring: {{replica_aggregation: {aggregation}, pass_threshold: 0.6}}\ninvariants:\n  \
         ended: {{description: d, check: {{type: output, expr: status, equals: complete}}}}\n  \
         begun: {{description: d, check: {{type: trace, where: {{type: run.created}}, count: {{equals: 1}}}}}}\n"
    )
}

/// A run that was completed, and one that failed.
fn both() -> (Recorded, Recorded) {
    let ends = |kind: &str| {
        let mut runs = finished().into_iter();
        let run = runs.find(|(_, run)| run.records.last().unwrap().body.contains(kind));
        run.unwrap().1
    };
    (ends("run.completed"), ends("run.failed"))
}

const AGGREGATIONS: [(&str, &str); 7] = [
    ("all", "failed"),
    ("any", "passed"),
    ("majority", "passed"),
    ("mean", "passed"),
    ("{at_least: 3}", "failed"),
    ("{pass_at: {k: 2, threshold: 1}}", "passed"),
    ("{pass_hat: {k: 2, threshold: 0.4}}", "failed"),
];

#[test]
fn both_verifiers_aggregate_replicas_alike() {
    let (good, bad) = both();
    let folder = tempfile::tempdir().unwrap();
    let mut archives = Vec::new();
    for (at, (aggregation, status)) in AGGREGATIONS.into_iter().enumerate() {
        let eval = eval_of_runs(
            &[(&good, None), (&bad, None), (&good, None)],
            &suite(aggregation),
        );
        let body = &eval.records[eval.records.len() - 2].body;
        assert!(body.contains("scenario.aggregated"), "{body}");
        assert!(body.contains(r#""flaky":true"#), "{body}");
        let expected = format!(r#""status":"{status}""#);
        assert!(body.contains(&expected), "{aggregation}: {body}");
        let archive = archive_of(&[&good, &bad], &eval);
        let (found, words) = judged(&archive);
        assert_eq!(found, ClaimVerdict::Proven, "{aggregation}: {words}");
        archives.push(put(folder.path(), &format!("{at}"), &archive));
    }
    // A replica without a verdict leaves the scenario without one.
    let eval = eval_of_runs(
        &[(&good, None), (&good, Some("waiting")), (&good, None)],
        &suite("any"),
    );
    let archive = archive_of(&[&good], &eval);
    assert_eq!(judged(&archive).0, ClaimVerdict::Proven);
    archives.push(put(folder.path(), "error", &archive));
    let Some(python) = Python::find() else { return };
    for said in python.verify(&archives, &[]) {
        assert_eq!(verdict(&said, "evals"), "not_covered", "{said}");
    }
}

/// What is changed of an eval of three replicas, in which frame, and how.
const FORGERIES: [(&str, usize, &str, &str); 11] = [
    (
        "how they are combined",
        0,
        r#""aggregation":{"pass_hat":{"k":2,"threshold":0.3}}"#,
        r#""aggregation":"all""#,
    ),
    (
        "where an estimate passes",
        0,
        r#""threshold":0.3"#,
        r#""threshold":0.4"#,
    ),
    (
        "how many scenarios there are",
        0,
        r#""scenarios":1"#,
        r#""scenarios":2"#,
    ),
    (
        "the place of a replica",
        5,
        r#""replica":1"#,
        r#""replica":2"#,
    ),
    (
        "the replica of a result",
        6,
        r#""replica":1"#,
        r#""replica":2"#,
    ),
    ("the estimate", 13, r#""estimate":0.3"#, r#""estimate":0.9"#),
    ("the mean", 13, r#""composite":0."#, r#""composite":0.1"#),
    (
        "that it is flaky",
        13,
        r#""flaky":true"#,
        r#""flaky":false"#,
    ),
    ("how replicas ended", 13, r#""passed":2"#, r#""passed":3"#),
    ("how many are flaky", 14, r#""flaky":1"#, r#""flaky":2"#),
    (
        "the totals of replicas",
        14,
        r#""failed":1,"passed":2"#,
        r#""failed":0,"passed":3"#,
    ),
];

#[test]
fn a_verdict_on_replicas_that_was_changed_is_found_by_both_verifiers() {
    let (good, bad) = both();
    let text = suite("{pass_hat: {k: 2, threshold: 0.3}}");
    let eval = eval_of_runs(&[(&good, None), (&bad, None), (&good, None)], &text);
    assert_eq!(eval.records.len(), 15);
    let python = Python::find();
    let folder = tempfile::tempdir().unwrap();
    for (what, wanted, from, to) in FORGERIES {
        let forged = with_change(&eval, wanted, from, to);
        let archive = archive_of(&[&good, &bad], &forged);
        assert_found(&archive, what, python.as_ref(), folder.path());
    }
}
