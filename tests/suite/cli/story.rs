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
        "a sign-in that no one can explain is urgent",
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

/// Whoever says something about a run on an engine without a kit still says no secret.
#[test]
fn a_secret_that_a_person_types_is_not_recorded_though_no_kit_is_at_hand() {
    let desk = Desk::new();
    let text = "kind: workflow\nname: w\nversion: 1.0.0\nenv: [{name: TOKEN, secret: true}]\n\
                params: {schema: {type: object, properties: {a: {type: string, default: x}}}}\n\
                pipeline:\n  - {id: t, transform: {inputs: [{from: params.a}], ops: []}}\n";
    let kit = desk.write_kit("w", text);
    let ktsu = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        let done = command.env("TOKEN", "sekret-value-99").output().unwrap();
        let err = String::from_utf8_lossy(&done.stderr).into_owned();
        assert_eq!(done.status.code(), Some(0), "{err}");
        String::from_utf8(done.stdout).unwrap()
    };
    let run: Value = serde_json::from_str(&ktsu(&["run", &kit, "--json"])).unwrap();
    let id = run["run_id"].as_str().unwrap();
    let set = "params.a=sekret-value-99";
    let why = "it was sekret-value-99";
    ktsu(&["fork", id, "--at", "0", "--set", set, "--reason", why]);
    ktsu(&["overlay", id, "t.result=sekret-value-99", "--reason", why]);
    let bytes = std::fs::read(desk.path().join(".ktsu/ledger.db")).unwrap();
    let found = bytes.windows(15).any(|some| some == b"sekret-value-99");
    assert!(!found, "the ledger holds the secret");
    desk.ktsu(&["verify"]).is(0);
}
