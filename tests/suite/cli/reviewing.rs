//! Outcomes that people decide on, over the command line: the kit `verification`, and branches of
//! its runs.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::{Desk, kit, send};
use crate::support::scenarios::reviews::Reviewed;
use crate::support::terminal::Terminal;
use crate::support::{KitDir, Lab, load, stopped};

/// Begins something that asks for a review, and is interrupted: the review.
pub(super) fn interrupted(desk: &Desk, arguments: &[&str]) -> Value {
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
        .says("then emit document.verified: {\"verdict\":\"unreliable\"}")
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
        .says("replaced by local: {\"verdict\":\"doubtful\"}");
    holds(&desk);
}

#[test]
fn reviews_that_the_people_of_an_environment_cannot_approve_are_warned_about() {
    let desk = Desk::new();
    let agent = "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {system: s, user: u}\n\
         commands: {review: {quorum: 2, roles: [operator]}}\noutput: {schema: {type: object}}\n";
    let gateway = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                   model_groups: [{name: std, models: [desk/m]}]\n";
    let people = |also: &str| {
        format!(
            "variables: {{T_A: token-of-ann, T_B: token-of-bob}}\nprincipals:\n  \
             - {{name: ann, token: {{env: T_A}}, roles: [operator]}}\n  \
             - {{name: bob, token: {{env: T_B}}, roles: [{also}]}}\n"
        )
    };
    let flow = "pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n";
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/judge.agent.yaml", agent)
        .with("gateway.yaml", gateway)
        .with("rules.yaml", "rules: []\ndefault: {reply: {kept: true}}\n")
        .with("few.env.yaml", &people("approver"))
        .with("enough.env.yaml", &people("admin"));
    let dir = kit.dir.path();
    let path = |name: &str| dir.join(name).to_str().unwrap().to_owned();
    let validate = |file: &str| desk.ktsu(&["validate", &path(""), "--env", &path(file)]);
    let few = validate("few.env.yaml");
    few.is(0)
        .says("nobody-to-approve")
        .says("judge.agent.yaml:5:20");
    few.says("2 people must approve, and 1 may in this environment");
    let enough = validate("enough.env.yaml");
    assert!(
        !enough.is(0).out.contains("nobody-to-approve"),
        "{}",
        enough.out
    );

    let mut command = desk.command(&["start", "--port", "0", "--kit", &path("")]);
    command.args([
        "--env",
        &path("few.env.yaml"),
        "--config",
        &path("gateway.yaml"),
    ]);
    let mut engine = command
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(engine.stderr.take().unwrap()).lines();
    let warned = lines.any(|line| line.unwrap().contains("nobody-to-approve"));
    send("TERM", engine.id());
    engine.wait().unwrap();
    assert!(warned, "it ended before");
}

#[tokio::test]
async fn each_vote_is_listed_with_what_it_replaced() {
    let desk = Desk::new();
    let votes = [
        ("ann", "approved", json!({"verdict": "no"})),
        ("bob", "approved", json!({"sure": 1})),
    ];
    let quorum = Reviewed {
        policy: "{quorum: 2}",
        ..Reviewed::with(&votes)
    };
    let (stage, _) = quorum.play(&desk.path().join("ledger.db")).await;
    stage.lab.close().await;
    let all = desk.ktsu(&["approvals", "--all", "--ledger", "ledger.db"]);
    all.is(0)
        .says("2 of 2 ann, bob")
        .says("replaced by ann: {\"verdict\":\"no\"}")
        .says("replaced by bob: {\"sure\":1}");
}

#[tokio::test]
async fn frames_of_a_type_are_listed_and_name_the_commands_that_they_are_about() {
    let desk = Desk::new();
    let ledger = desk.path().join("ledger.db");
    let (stage, approved) = Reviewed::approved().play(&ledger).await;
    stage.lab.close().await;
    let no = Reviewed::with(&[("ann", "rejected", json!({}))]);
    let (stage, rejected) = no.play(&ledger).await;
    stage.lab.close().await;
    let of = |run: &str, types: &[&str], more: &[&str]| {
        let types = types.iter().flat_map(|one| ["--type", one]);
        let mut arguments = vec!["frames", run, "--ledger", "ledger.db"];
        arguments.extend(types.chain(more.iter().copied()));
        desk.ktsu(&arguments)
    };
    let named = "emit claim.judged, invoke verify, emit claim.seen";
    let deferred = of(&approved, &["command.deferred"], &[]);
    assert_eq!(deferred.is(0).out.lines().count(), 1);
    deferred.says(named);
    let both = ["command.discarded", "review.decided"];
    let discarded = of(&rejected, &both, &[]);
    assert_eq!(discarded.is(0).out.lines().count(), 2);
    discarded.says(named);
    let shown = of(&rejected, &both, &["--json"]);
    let kinds = shown.is(0).out.lines().map(|line| {
        let frame: Value = serde_json::from_str(line).unwrap();
        frame["type"].as_str().unwrap().to_owned()
    });
    assert_eq!(
        kinds.collect::<Vec<_>>(),
        ["review.decided", "command.discarded"]
    );
    let tree = ["trace", &rejected, "--frames", "--ledger", "ledger.db"];
    let tree = desk.ktsu(&tree);
    assert_eq!(tree.is(0).out.matches(named).count(), 2, "{}", tree.out);
    for (unknown, near) in [
        ("review", "did you mean review.requested, review.decided?"),
        ("step.faild", "did you mean step.failed?"),
    ] {
        let refused = of(&approved, &[unknown], &[]);
        refused
            .is(2)
            .warns(&format!("there is no type of frames {unknown:?}"));
        refused.warns(near);
    }
}

#[test]
fn a_step_narrows_the_commands_of_its_agent_in_the_run_its_replay_and_its_evidence() {
    let desk = Desk::new();
    let agent = "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {system: s, user: u}\n\
         commands: {emit: ['claim.*'], review: true}\noutput: {schema: {type: object}}\n";
    let gateway = "providers:\n- {name: desk, type: scripted, config: {rules: rules.yaml}}\n\
                   - {name: quiet, type: scripted, config: {rules: quiet.yaml}}\n\
                   model_groups: [{name: std, models: [desk/m]}, {name: low, models: [quiet/m]}]\n";
    let quiet = "rules:\n- when: {turn: 1}\n  tool_calls:\n  \
                 - {name: emit, arguments: {topic: claim.seen, payload: 1}}\n\
                 default: {reply: {kept: true}}\n";
    let rules = "rules:\n- when: {turn: 1}\n  tool_calls:\n  \
                 - {name: emit, arguments: {topic: claim.seen, payload: 1}}\n  \
                 - {name: review, arguments: {reason: r}}\ndefault: {reply: {kept: true}}\n";
    let flow = "pipeline:\n\
         - {id: a, agent: ./agents/judge.agent.yaml, model: {group: low}, commands: {review: false, emit: [claim.seen]}}\n\
         - {id: b, agent: ./agents/judge.agent.yaml, commands: {review: {quorum: 2}}, depends_on: [a]}\n";
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/judge.agent.yaml", agent)
        .with("gateway.yaml", gateway)
        .with("rules.yaml", rules)
        .with("quiet.yaml", quiet);
    let dir = kit.dir.path().to_str().unwrap();
    desk.ktsu(&["lock", dir]).is(0);
    let answers = desk.path().join("answers.yaml");
    std::fs::write(
        &answers,
        "people: [{by: ann, decision: approved}, {by: bob, decision: approved}]",
    )
    .unwrap();
    let answers = answers.to_str().unwrap();
    let arguments = [
        "run",
        dir,
        "--input",
        "{}",
        "--locked",
        "--answers",
        answers,
        "--json",
    ];
    let run = desk.ktsu(&arguments);
    let envelope = run.is(0).json();
    let id = envelope["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--json"]);
    let frames = frames.is(0).out.lines();
    let frames: Vec<Value> = frames
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |kind: &str| -> Vec<&str> {
        let of_kind = frames.iter().filter(|frame| frame["type"] == kind);
        of_kind
            .map(|frame| frame["data"]["step"].as_str().unwrap())
            .collect()
    };
    assert_eq!(of("review.requested"), ["b"]);
    assert_eq!(of("review.decided"), ["b", "b"]);
    let emitted = frames
        .iter()
        .filter(|frame| frame["data"]["topic"] == "claim.seen");
    assert_eq!(emitted.count(), 2);
    let offers = |step: &str| {
        let of_step = frames
            .iter()
            .find(|frame| frame["type"] == "llm.request" && frame["data"]["step"] == step);
        let tools = of_step.unwrap()["data"]["tools"].as_array().unwrap();
        tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!((offers("a").len(), offers("b").len()), (1, 2));
    holds(&desk);
    desk.ktsu(&["recompute", id, "--kit", dir])
        .is(0)
        .says("verdict clean");
    desk.ktsu(&["replay", id, "--against", dir]).is(0);
    let bundle = desk.path().join("run.evidence");
    let bundle = bundle.to_str().unwrap();
    desk.ktsu(&["evidence", "export", id, "-o", bundle]).is(0);
    desk.ktsu(&["evidence", "verify", bundle]).is(0);
    let other = agent.replace("system: s", "system: other");
    std::fs::write(kit.dir.path().join("agents/judge.agent.yaml"), other).unwrap();
    let drifted = desk.ktsu(&["run", dir, "--input", "{}", "--locked"]);
    drifted.is(2).warns("judge.agent.yaml");
}

#[test]
fn waits_that_are_longer_than_ended_runs_are_kept_are_warned_about() {
    let desk = Desk::new();
    let agent = |name: &str, commands: &str| {
        format!(
            "name: {name}\nversion: 1.0.0\nmodel: std\nprompt: {{system: s, user: u}}\n\
             commands: {commands}\noutput: {{schema: {{type: object}}}}\n"
        )
    };
    let gateway = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                   model_groups: [{name: std, models: [desk/m]}]\n";
    let flow = "pipeline:\n- {id: a, agent: ./agents/judge.agent.yaml}\n\
                - {id: b, agent: ./agents/clerk.agent.yaml, resume: {timeout: 96h}}\n";
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/judge.agent.yaml", &agent("judge", "{review: true}"))
        .with(
            "agents/clerk.agent.yaml",
            &agent("clerk", "{suspend: {timeout: 70h}}"),
        )
        .with("gateway.yaml", gateway)
        .with("rules.yaml", "rules: []\ndefault: {reply: {kept: true}}\n")
        .with(
            "short.env.yaml",
            "retention: {complete_days: 90, failed_days: 3}\n",
        )
        .with("week.env.yaml", "retention: {complete_days: 7}\n");
    let path = |name: &str| kit.dir.path().join(name).to_str().unwrap().to_owned();
    let validate = |file: &str| desk.ktsu(&["validate", &path(""), "--env", &path(file)]);
    let short = validate("short.env.yaml");
    short
        .is(0)
        .says("a review may wait 7 days, and ended runs are kept for 3 days")
        .says("judge.agent.yaml:5:20")
        .says("this step may wait 4 days")
        .says("timeout: 72h, or keep runs longer");
    assert_eq!(short.out.matches("wait-beyond-retention").count(), 2);
    let week = validate("week.env.yaml");
    assert!(
        !week.is(0).out.contains("wait-beyond-retention"),
        "{week:#?}"
    );
}

#[test]
fn a_decision_on_a_paused_run_that_no_process_owns_is_recorded_and_the_command_ends() {
    let desk = Desk::new();
    let kit = kit("verification");
    let record = interrupted(&desk, &["run", &kit]);
    let (id, run) = (text(&record, "review_id"), text(&record, "run_id"));
    desk.ktsu(&["pause", run]).is(0);
    desk.ktsu(&["approve", id, "--kit", &kit]);
    let envelope = desk.ktsu(&["runs", "get", run, "--json"]).is(0).json();
    assert_eq!(envelope["status"], "waiting", "{envelope:#}");
    desk.ktsu(&["verify"]).is(0);
    desk.ktsu(&["approvals"])
        .is(0)
        .warns("no pending approvals");
    desk.ktsu(&["resume", run, "--kit", &kit]).is(0);
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

#[tokio::test]
async fn while_a_run_is_paused_the_time_that_is_left_is_listed_and_nothing_has_passed() {
    let desk = Desk::new();
    let (lab, run, _kit) = waits_since_2020(&desk, "timeout: 1m").await;
    let paused = lab.client.post(&format!("/runs/{run}/pause"), "{}").await;
    assert!(paused.status < 300, "{}", paused.text());
    lab.close().await;
    let listed = desk.ktsu(&["approvals", "--ledger", "ledger.db"]);
    listed.is(0).says("paused, 1 min 0 s left");
    assert!(!listed.out.contains("(passed)"), "{}", listed.out);
}

#[test]
fn the_help_of_what_decides_speaks_of_calls_and_of_outputs() {
    let desk = Desk::new();
    let all = desk.ktsu(&["--help"]);
    all.is(0).says("Approves a tool call or a reviewed output");
    all.says("Rejects a tool call or a reviewed output");
    all.says("tool calls to approve, outputs to review, steps that");
    for command in ["approve", "reject"] {
        desk.ktsu(&[command, "--help"]).is(0).says("rev_ID");
    }
}

/// A run that waits for a review since 2020, under a policy, in `ledger.db`.
async fn waits_since_2020(desk: &Desk, policy: &str) -> (Lab, String, KitDir) {
    let agent = format!(
        "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {{system: s, user: u}}\n\
         commands: {{review: {{{policy}}}}}\noutput: {{schema: {{type: object}}}}\n"
    );
    let flow = "pipeline: [{id: a, agent: ./agents/judge.agent.yaml}]\n";
    let gateway = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                   model_groups: [{name: std, models: [desk/m]}]\n";
    let rules = "rules: [{when: {turn: 1}, tool_calls: [{name: review, \
                 arguments: {reason: it matters}}]}]\ndefault: {reply: {kept: true}}\n";
    let kit = KitDir::new(&[("flow", flow)])
        .with("agents/judge.agent.yaml", &agent)
        .with("gateway.yaml", gateway)
        .with("rules.yaml", rules);
    let place = LedgerPlace::File(desk.path().join("ledger.db"));
    let clock = stopped("2020-01-01T00:00:00.000000Z".parse().unwrap());
    let lab = Lab::on(place, load(kit.dir.path()), &[], Some(clock)).await;
    let run = lab.client.invoke("flow", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("\"review.requested\"")
    {}
    (lab, run, kit)
}

#[tokio::test]
async fn a_decision_after_the_time_for_it_leaves_a_run_that_ended_by_its_policy() {
    for (behavior, word, code) in [
        ("fail", "approve", "review_timed_out"),
        ("reject", "reject", "review_rejected"),
    ] {
        let desk = Desk::new();
        let policy = format!("timeout: 1m, timeout_behavior: {behavior}");
        let (lab, run, kit) = waits_since_2020(&desk, &policy).await;
        lab.close().await;
        let kept = kit.dir.path().to_str().unwrap();
        let waits = ["approvals", "--ledger", "ledger.db"];
        desk.ktsu(&waits).is(0).says("(passed)");
        let late = desk.ktsu(&[word, &run, "--kit", kept, "--ledger", "ledger.db"]);
        late.is(2).warns("there was no decision in time");
        let frames = desk.ktsu(&["frames", &run, "--ledger", "ledger.db"]);
        frames.is(0).says("timer.fired");
        assert!(!frames.out.contains("review.decided"), "{}", frames.out);
        let shown = ["runs", "get", &run, "--json", "--ledger", "ledger.db"];
        let envelope = desk.ktsu(&shown).is(0).json();
        assert_eq!(envelope["error"]["code"], code, "{envelope:#}");
        let all = ["approvals", "--all", "--json", "--ledger", "ledger.db"];
        let record = desk.ktsu(&all).is(0).json();
        assert_eq!(record[0]["status"], "timeout", "{record:#}");
        let id = record[0]["review_id"].as_str().unwrap().to_owned();
        let again = desk.ktsu(&["approve", &id, "--kit", kept, "--ledger", "ledger.db"]);
        again
            .is(2)
            .warns(&format!("there was no decision on {id} in time"));
        desk.ktsu(&["replay", &run, "--strict", "--ledger", "ledger.db"])
            .is(0);
        desk.ktsu(&["verify", "--ledger", "ledger.db"]).is(0);
    }
}
