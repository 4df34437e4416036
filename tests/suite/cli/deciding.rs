//! `ktsu approve` and `ktsu reject` where nobody owns the ledger.

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Timestamp;
use serde_json::json;

use super::Desk;
use crate::support::{KitDir, Lab, load, stopped};

const FLOW: &str = "pipeline: [{id: keep, agent: ./agents/keeper.agent.yaml}]\n";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r"
rules:
  - when: {turn: 1}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default: {reply: {kept: true}}
";

/// A kit whose agent asks people before it keeps something.
fn kit(policy: &str) -> KitDir {
    let keeper = format!(
        "name: keeper\nversion: 1.0.0\nmodel: std\nprompt: {{system: s, user: u}}\noutput: {{schema: {{type: object}}}}\n\
         servers: [{{name: ktsu/kv, access: {{allowlist: [{{name: kv-set, require_approval: {{{policy}}}}}]}}}}]\n"
    );
    KitDir::new(&[("flow", FLOW)])
        .with("agents/keeper.agent.yaml", &keeper)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES)
}

/// A run that somebody was asked about, at some time, and left.
async fn left(desk: &Desk, kit: &KitDir, at: Option<Timestamp>) -> String {
    let place = LedgerPlace::File(desk.path().join("ledger.db"));
    let clock = at.map(stopped);
    let lab = Lab::on(place, load(kit.dir.path()), &[], clock).await;
    let run = lab.client.invoke("flow", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("\"approval.requested\"")
    {}
    drop(events);
    lab.close().await;
    run
}

fn long_ago() -> Option<Timestamp> {
    Some("2020-01-01T00:00:00.000000Z".parse().unwrap())
}

#[tokio::test]
async fn a_decision_that_comes_too_late_leaves_a_run_that_has_gone_on() {
    for (behaviour, word) in [("reject", "approve"), ("fail", "reject")] {
        let desk = Desk::new();
        let policy = format!("on_reject: recover, timeout: 1m, timeout_behavior: {behaviour}");
        let kit = kit(&policy);
        let run = left(&desk, &kit, long_ago()).await;
        let kept = kit.dir.path().to_str().unwrap();
        let waits = ["approvals", "--ledger", "ledger.db"];
        desk.ktsu(&waits).is(0).says("(passed)");
        let late = desk.ktsu(&[word, &run, "--kit", kept, "--ledger", "ledger.db"]);
        late.is(2).warns("there was no decision in time");
        let status = if behaviour == "reject" {
            "complete"
        } else {
            "failed"
        };
        let frames = desk.ktsu(&["frames", &run, "--ledger", "ledger.db"]);
        frames.is(0).says("approval.expired");
        assert!(!frames.out.contains("approval.decided"), "{}", frames.out);
        let ended = desk
            .ktsu(&["runs", "get", &run, "--json", "--ledger", "ledger.db"])
            .is(0)
            .json();
        assert_eq!(ended["status"], status, "{ended:#}");
        // Now nothing waits, and nobody else need start anything.
        let waits = desk.ktsu(&waits);
        assert!(!waits.is(0).out.contains("apr_"), "{}", waits.out);
        desk.ktsu(&["replay", &run, "--strict", "--ledger", "ledger.db"])
            .is(0);
        desk.ktsu(&["verify", "--ledger", "ledger.db"]).is(0);
    }
}

#[tokio::test]
async fn a_decision_in_time_is_taken_and_a_reason_has_its_bound() {
    let desk = Desk::new();
    let kit = kit("on_reject: recover, timeout: 1h, timeout_behavior: fail");
    let run = left(&desk, &kit, None).await;
    let kept = kit.dir.path().to_str().unwrap();
    let reason = "r".repeat(4097);
    desk.ktsu(&[
        "reject",
        &run,
        "--reason",
        &reason,
        "--kit",
        kept,
        "--ledger",
        "ledger.db",
    ])
    .is(2)
    .warns("reason has 4097 characters; the limit is 4096");
    let decided = desk.ktsu(&["approve", &run, "--kit", kept, "--ledger", "ledger.db"]);
    decided.is(0).says("complete");
}
