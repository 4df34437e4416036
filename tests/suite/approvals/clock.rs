//! People have the time that a gate gives them, and a run the time that its workflow gives it,
//! whatever the wall clock does meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ktsu::assemble::LedgerPlace;
use ktsu_evidence::check::ClaimVerdict;
use ktsu_ledger::Timestamp;
use ktsu_orchestrator::MicrosClock;
use serde_json::{Value, json};

use crate::evidence::{claim, outcome_of};
use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab, guarded};

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
fn settable() -> (Arc<AtomicU64>, MicrosClock) {
    let ahead = Arc::new(AtomicU64::new(0));
    let (read, system) = (Arc::clone(&ahead), ktsu_orchestrator::clock::system_clock());
    let clock = move || {
        let micros = system().as_micros() + read.load(Ordering::SeqCst);
        Timestamp::from_micros(micros)
    };
    (ahead, Arc::new(clock))
}

/// A wall clock that goes forward by an hour whenever somebody looks at it.
fn restless() -> MicrosClock {
    let (ahead, clock) = settable();
    Arc::new(move || {
        ahead.fetch_add(HOUR_MICROS, Ordering::SeqCst);
        clock()
    })
}

/// Keeps a run's task busy with what changes nothing, until the run has ended. How often that was.
async fn pestered(lab: &Lab, run: &str) -> usize {
    let mut times = 0;
    loop {
        let path = format!("/runs/{run}/resume");
        let stale = [("if-match", "0")];
        let answer = lab.client.send("POST", &path, &stale, "{}").await;
        assert_eq!(answer.status, 409, "{}", answer.text());
        times += 1;
        let envelope = lab
            .client
            .get(&format!("/runs/{run}/envelope"))
            .await
            .json();
        if envelope["status"] != "running" && envelope["status"] != "pending" {
            return times;
        }
    }
}

fn jumps(frames: &[Value]) -> Vec<&Value> {
    let is_jump = |frame: &&Value| frame["type"] == "clock.jumped";
    frames.iter().filter(is_jump).collect()
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
    assert_eq!(
        claim(&outcome, "replay"),
        ClaimVerdict::Proven,
        "{outcome:?}"
    );
    // Nobody was asked who they are: that is all that is left open.
    let approvals = outcome.claims.iter().find(|one| one.claim == "approvals");
    let approvals = approvals.unwrap();
    assert_eq!(approvals.verdict, ClaimVerdict::NotCovered, "{outcome:?}");
    assert!(approvals.reason.contains("auth: none"), "{outcome:?}");
}

/// Given a clock that jumps at every look, when the time of a run passes, then the run ends by it,
/// not before, and one frame says that the clock jumped.
#[tokio::test]
async fn a_clock_that_always_jumps_neither_keeps_a_run_busy_nor_ends_it_early() {
    let model = Model::scripted(|_| Said::Never).await;
    let flow = "model_policy: {timeout_s: 1.5}\n\
                pipeline: [{id: a, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";
    let kit = model::kit(&model, &[("flow", flow)]);
    let lab = Lab::on(LedgerPlace::Memory, kit.load(), &[KEY], Some(restless())).await;
    let begun = Instant::now();
    let run = lab.client.invoke("flow", json!({})).await;
    let times = guarded("the run", pestered(&lab, &run)).await;
    let passed = begun.elapsed();
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["error"]["code"], "run_timeout", "{envelope:#}");
    assert!(passed >= Duration::from_millis(1500), "{passed:?}");
    assert!(times > 10, "{times}");
    let frames = lab.client.frames(&run).await;
    assert_eq!(jumps(&frames).len(), 1, "{frames:#?}");
    assert!(frames.len() < 20, "{}", frames.len());
}

/// Given a clock that jumps at every look, when somebody decides in time, then it counts.
#[tokio::test]
async fn a_clock_that_always_jumps_takes_no_time_from_anybody_who_decides() {
    let kit = KitDir::new(&[("flow", FLOW)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES);
    let lab = Lab::on(LedgerPlace::Memory, kit.load(), &[], Some(restless())).await;
    let run = lab.client.invoke("flow", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    let asked = "\"approval.requested\"";
    while !events.next().await.unwrap().data.contains(asked) {}
    for _ in 0..20 {
        let path = format!("/runs/{run}/resume");
        let stale = [("if-match", "0")];
        let answer = lab.client.send("POST", &path, &stale, "{}").await;
        assert_eq!(answer.status, 409, "{}", answer.text());
    }
    let decide = format!("/runs/{run}/steps/a/approval/decide");
    let approve = json!({"decision": "approved"}).to_string();
    let decided = lab.client.post(&decide, approve).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope}");
    let frames = lab.client.frames(&run).await;
    assert!(jumps(&frames).len() <= 1, "{frames:#?}");
}
