//! The story of the README: a ticket is triaged wrongly, the cause is found, a fork mends it, and the
//! evidence of both can be shown to somebody else.

use serde_json::Value;

use super::{Desk, kit, repository};

#[test]
fn a_ticket_that_was_triaged_wrongly_is_mended_and_both_runs_are_evidence() {
    let desk = Desk::new();
    let input = format!(
        "@{}",
        repository()
            .join("kits/triage/examples/ticket.json")
            .display()
    );
    let triage = kit("triage");
    let ran = desk.ktsu(&["run", &triage, "ticket", "--input", &input, "--json"]);
    let run = ran.is(0).json();
    assert_eq!(run["output"]["paged"], Value::Null);
    let id = run["run_id"].as_str().unwrap();

    let why = desk
        .ktsu(&["trace", id, "--why-not", "page", "--json"])
        .is(0)
        .json();
    assert!(
        why.to_string().contains("step.sort.urgency == `1`"),
        "{why}"
    );
    let of = desk
        .ktsu(&["trace", id, "--of", "output.urgency", "--json"])
        .is(0)
        .json();
    let origins = of["origins"].as_array().unwrap();
    assert_eq!(origins.len(), 1, "{of}");
    assert_eq!(origins[0]["at"], "/outcome/output/urgency");

    let mended = desk.ktsu(&[
        "fork",
        id,
        "--before",
        "page",
        "--set",
        "step.sort.output.urgency=1",
        "--effects",
        "execute",
        "--go",
        "--kit",
        &triage,
        "--reason",
        "a sign-in nobody can explain is urgent",
        "--json",
    ]);
    let branch = mended.is(0).json();
    assert_eq!(branch["output"]["paged"], true);
    assert_eq!(
        branch["totals"]["llm_calls"], 1,
        "the model is not asked again"
    );
    let other = branch["run_id"].as_str().unwrap();

    let diff = desk.ktsu(&["diff", id, other]);
    diff.is(1).says("/output/paged").says("/output/urgency");
    desk.ktsu(&["diff", other, other]).is(0);
    desk.ktsu(&["replay", "--strict", id, other]).is(0);
    desk.ktsu(&["evidence", "export", id, other, "-o", "both.tar"])
        .is(0);
    let verdict = desk
        .ktsu(&["evidence", "verify", "both.tar", "--json"])
        .is(0)
        .json();
    let failed = verdict["outcome"]["claims"].as_array().unwrap().iter();
    assert_eq!(
        failed.filter(|one| one["verdict"] == "failed").count(),
        0,
        "{verdict}"
    );
    desk.ktsu(&["verify"]).is(0);
}
