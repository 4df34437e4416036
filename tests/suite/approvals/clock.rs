//! People have the time that a gate gives them, whatever the wall clock does meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu::assemble::LedgerPlace;
use ktsu::evidence::check::Verdict;
use ktsu::orchestrator::Clock;
use ktsu_ledger::Timestamp;
use serde_json::{Value, json};

use crate::evidence::{claim, outcome_of};
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Lab};

const HOUR_MICROS: u64 = 3_600_000_000;

const KEEPER: &str = r"
name: keeper
version: 1.0.0
model: std
prompt: {system: You keep things., user: keep}
servers:
  - name: ktsu/kv
    access:
      allowlist:
        - name: kv-set
          require_approval: {on_reject: recover, timeout: 30m, timeout_behavior: fail}
output: {schema: {type: object}}
";
const FLOW: &str = r"
pipeline:
  - {id: a, agent: ./agents/keeper.agent.yaml}
";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1, user: '^keep'}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default: {reply: {kept: true}}
"#;

/// The wall clock, and by how much somebody has set it forward.
fn settable() -> (Arc<AtomicU64>, Clock) {
    let ahead = Arc::new(AtomicU64::new(0));
    let (read, system) = (Arc::clone(&ahead), ktsu::orchestrator::clock::system());
    let clock = move || {
        let micros = system().as_micros() + read.load(Ordering::SeqCst);
        Timestamp::from_micros(micros)
    };
    (ahead, Arc::new(clock))
}

fn moment(text: &Value) -> Timestamp {
    text.as_str().unwrap().parse().unwrap()
}

/// A run in which somebody decides in time, after the clock was set beyond that; and its record of
/// the wait before and after.
async fn decided_after_a_jump() -> (Recorded, Value, Value) {
    let kit = KitDir::new(&[("flow", FLOW)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES);
    let (ahead, clock) = settable();
    let lab = Lab::on(LedgerPlace::Memory, kit.load(), &[], Some(clock)).await;
    let run = lab.client.invoke("flow", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("\"approval.requested\"")
    {}
    let before = lab.client.get("/approvals").await.json();
    ahead.store(HOUR_MICROS, Ordering::SeqCst);
    let decide = format!("/runs/{run}/steps/a/approval/decide");
    let approve = json!({"decision": "approved"}).to_string();
    let decided = lab.client.post(&decide, approve).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope}");
    let record = lab
        .client
        .get(&format!("/runs/{run}/steps/a/approval"))
        .await;
    let readers = lab.engine.orchestrator.readers();
    let read =
        readers.with(move |reader| Ok::<_, ktsu_ledger::StoreError>(Recorded::read(reader, &run)));
    (read.await.unwrap(), before[0].clone(), record.json())
}

#[tokio::test]
async fn a_clock_set_forward_does_not_end_a_wait_that_has_time_left() {
    let (run, before, after) = decided_after_a_jump().await;
    let jumps = run.frames().into_iter().find_map(|frame| {
        let jumped = frame.event.kind() == "clock.jumped";
        jumped.then(|| frame.event.data()["forward_ms"].as_u64().unwrap())
    });
    let by_ms = jumps.unwrap();
    assert!(by_ms.abs_diff(HOUR_MICROS / 1000) < 60_000, "{by_ms}");
    let (was, is) = (&before["expires_at"], &after["expires_at"]);
    assert_eq!(moment(is), moment(was).plus_millis(by_ms));
}

/// Who verifies moves the wait as the engine did: otherwise the decision came too late.
#[tokio::test]
async fn a_decision_after_the_clock_jumped_is_in_time_for_both_verifiers() {
    let (run, ..) = decided_after_a_jump().await;
    let outcome = outcome_of("a decision after a jump", run);
    assert_eq!(claim(&outcome, "replay"), Verdict::Proven, "{outcome:?}");
    // Nobody was asked who they are: that is all that is left open.
    let approvals = outcome.claims.iter().find(|one| one.claim == "approvals");
    let approvals = approvals.unwrap();
    assert_eq!(approvals.verdict, Verdict::NotCovered, "{outcome:?}");
    assert!(approvals.reason.contains("auth is none"), "{outcome:?}");
}
