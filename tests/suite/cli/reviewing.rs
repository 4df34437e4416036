//! Outcomes that people decide on, over the command line: the kit `verification`, and branches of
//! its runs.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::Value;

use super::{Desk, kit, send};
use crate::support::terminal::Terminal;

/// Begins something that asks for a review, and is interrupted: the review.
fn interrupted(desk: &Desk, arguments: &[&str]) -> Value {
    let mut run = desk.command(arguments);
    let mut run = run
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(run.stderr.take().unwrap()).lines();
    let asks = lines.any(|line| line.unwrap().contains("ktsu approve rev_"));
    assert!(asks, "it ended before");
    send("INT", run.id());
    assert_eq!(run.wait().unwrap().code(), Some(2));
    let records = desk.ktsu(&["approvals", "--json"]).is(0).json();
    let [record] = records.as_array().unwrap().as_slice() else {
        panic!("{records:#}");
    };
    record.clone()
}

fn text<'r>(record: &'r Value, member: &str) -> &'r str {
    record[member].as_str().unwrap()
}

/// Everything in the ledger is sound, and is decided again alike.
fn holds(desk: &Desk) {
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["replay", "--strict", "--all"]).is(0);
}

#[test]
fn a_verdict_is_corrected_by_an_overlay_and_traced_to_the_person_who_gave_it() {
    let desk = Desk::new();
    let kit = kit("verification");
    let record = interrupted(&desk, &["run", &kit]);
    assert_eq!(text(&record, "status"), "pending");
    assert_eq!(text(&record, "timeout_behavior"), "reject");
    let (id, run) = (text(&record, "review_id"), text(&record, "run_id"));
    let shown = desk.ktsu(&["approvals"]);
    shown.is(0).says(id).says("its output").says("pending");
    shown.says("reason: the register contradicts: 14 ships");
    shown
        .says("then: emit")
        .warns(&format!("ktsu approve {id}"));
    for (overlay, words) in [("verdict=odd", "verdict"), ("verdict", "FIELD=VALUE")] {
        let refused = desk.ktsu(&["approve", id, "--overlay", overlay, "--kit", &kit]);
        refused.is(2).warns(words);
    }
    let still = desk.ktsu(&["approvals", "--json"]).is(0).json();
    assert_eq!(still[0], record);
    let overlay = [
        "--overlay",
        "verdict=doubtful",
        "--reason",
        "one is being sold",
    ];
    let decided = desk.ktsu(&[&["approve", id, "--kit", &kit, "--json"], &overlay[..]].concat());
    let envelope = decided.is(0).json();
    assert_eq!(envelope["output"]["verdict"], "doubtful", "{envelope:#}");
    let story = desk.ktsu(&["trace", run, "--of", "judge.verdict"]);
    story.is(0).says("doubtful").says("local");
    let all = desk.ktsu(&["approvals", "--all"]);
    all.is(0)
        .says("approved")
        .says("replaced: {\"verdict\":\"doubtful\"}");
    holds(&desk);
}

#[test]
fn a_rejected_verdict_fails_the_run_and_says_who_and_why() {
    let desk = Desk::new();
    let kit = kit("verification");
    let record = interrupted(&desk, &["run", &kit]);
    let (id, run) = (text(&record, "review_id"), text(&record, "run_id"));
    let rejected = desk.ktsu(&["reject", id, "--kit", &kit, "--reason", "too many ships"]);
    rejected.is(1);
    let envelope = desk.ktsu(&["runs", "get", run, "--json"]).is(0).json();
    assert_eq!(envelope["error"]["code"], "review_rejected", "{envelope:#}");
    let message = text(&envelope["error"], "message");
    assert!(message.contains("too many ships"), "{message}");
    let none = desk.ktsu(&["approvals"]);
    none.is(0).warns("no pending approvals");
    desk.ktsu(&["approvals", "--all"]).is(0).says("rejected");
    holds(&desk);
}

#[test]
fn a_review_that_is_over_is_named_with_what_was_decided() {
    let desk = Desk::new();
    let kit = kit("verification");
    let record = interrupted(&desk, &["run", &kit]);
    let id = text(&record, "review_id");
    desk.ktsu(&["reject", id, "--kit", &kit]).is(1);
    for word in ["approve", "reject"] {
        let late = desk.ktsu(&[word, id, "--kit", &kit]);
        late.is(2)
            .warns(&format!("{id} was already decided: rejected by local"));
    }
    let unknown = desk.ktsu(&["approve", "rev_0123456789abcdef", "--kit", &kit]);
    unknown.is(2).warns("no pending approval matches");
    holds(&desk);
}

#[test]
fn a_branch_from_before_the_decision_asks_again_and_one_from_after_it_does_not() {
    let desk = Desk::new();
    let kit = kit("verification");
    let record = interrupted(&desk, &["run", &kit]);
    let (id, run) = (text(&record, "review_id"), text(&record, "run_id"));
    let overlay = ["--overlay", "verdict=doubtful"];
    desk.ktsu(&[&["approve", id, "--kit", &kit], &overlay[..]].concat())
        .is(0);
    let frames = desk.ktsu(&["frames", run, "--json"]);
    let frames: Vec<Value> = frames
        .is(0)
        .out
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let decided = frames.iter().find(|one| one["type"] == "review.decided");
    let decided = decided.unwrap()["seq"].as_u64().unwrap();
    let after = (decided + 1).to_string();
    let whole = desk.ktsu(&["fork", run, "--at", &after, "--go", "--kit", &kit, "--json"]);
    let envelope = whole.is(0).json();
    assert_eq!(envelope["output"]["verdict"], "doubtful", "{envelope:#}");
    let before = decided.to_string();
    let again = interrupted(
        &desk,
        &["fork", run, "--at", &before, "--go", "--kit", &kit],
    );
    assert_ne!(text(&again, "review_id"), id);
    assert_ne!(text(&again, "run_id"), run);
    let approved = desk.ktsu(&[
        "approve",
        text(&again, "review_id"),
        "--kit",
        &kit,
        "--json",
    ]);
    let envelope = approved.is(0).json();
    assert_eq!(envelope["output"]["verdict"], "unreliable", "{envelope:#}");
    holds(&desk);
}

#[test]
fn why_a_step_is_not_done_names_the_review_of_its_output() {
    let desk = Desk::new();
    let record = interrupted(&desk, &["run", &kit("verification")]);
    let (id, run) = (text(&record, "review_id"), text(&record, "run_id"));
    let why = desk.ktsu(&["trace", run, "--why-not", "judge"]);
    why.is(0).says(&format!(
        "its output waits for the review {id}: ktsu approve {id}"
    ));
}

#[test]
fn at_a_terminal_a_run_asks_whether_its_output_counts() {
    for (answer, code, word) in [("y", 0, "complete"), ("n it has 11", 1, "review_rejected")] {
        let desk = Desk::new();
        let command = desk.command(&["run", &kit("verification")]);
        let mut terminal = Terminal::of(command, 200);
        terminal.until("approve? y, n, or n WHY:", 1);
        terminal.types(answer);
        let (ended, _) = terminal.ends();
        let shown = std::mem::take(&mut terminal.text);
        assert_eq!(ended, code, "{shown}");
        for words in ["asks for a review of its output", "14 ships", word] {
            assert!(shown.contains(words), "no {words:?} in {shown}");
        }
        holds(&desk);
    }
}
