//! Outcomes that count only once people have approved them, from outside: over real sockets, and
//! across restarts of the engine.

mod again;
pub(crate) mod counted;
mod emits;
mod histories;
mod killed;
mod people;
mod races;
mod states;
mod worlds;

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{MemoryStore, SqliteReader};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Backend, StreamId, branch};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::effects::by_frames::hold_at_every_cut;
use crate::evidence;
use crate::support::client::Answer;
use crate::support::ledgers::Recorded;
use crate::support::{Client, KitDir, Lab};

const CLAIM: &str =
    "params: {schema: {type: object, properties: {claim: {type: string, default: x}}}}\n";
const JUDGED: &str = "pipeline:
  - {id: a, agent: ./agents/judge.agent.yaml, params: {claim: '{{ params.claim }}'}}
  - {id: b, depends_on: [a], transform: {inputs: ['{{ step.a.verdict }}']}}
output: {map: {verdict: '{{ step.a.verdict }}', seen: '{{ step.b.result }}'}}
";
const CALLS: &str = "pipeline:
  - {id: call, workflow: ./judged.workflow.yaml, params: {claim: '{{ params.claim }}'}}
output: {map: {verdict: '{{ step.call.verdict }}'}}
";
const INVOKES: &str = "pipeline:
  - id: s
    agent: ./agents/starter.agent.yaml
    may_invoke: {judged: ./judged.workflow.yaml}
output: {map: {all: '{{ step.s.ktsu_invoked }}'}}
";
const STARTER: &str = "name: starter\nversion: 1.0.0\nmodel: start\n\
     prompt: {system: You start., user: start}\n\
     commands: {invoke: [judged]}\n\
     output: {schema: {type: object, properties: {verdict: {type: string}}}}\n";
const GATEWAY: &str = "providers:
  - {name: judge, type: scripted, config: {rules: judge.yaml}}
  - {name: start, type: scripted, config: {rules: start.yaml}}
model_groups: [{name: std, models: [judge/m]}, {name: start, models: [start/m]}]
";
const JUDGES: &str = "rules:
  - when: {turn: 1}
    tool_calls:
      - {name: emit, arguments: {topic: claim.judged, payload: {n: 1}}}
      - {name: review, arguments: {reason: it matters, payload: {line: 7}}}
default: {reply: {verdict: good}}
";
const STARTS: &str = "rules:
  - when: {turn: 1}
    tool_calls: [{name: invoke, arguments: {step: judged, input: {claim: p}}}]
default: {reply: {verdict: none}}
";

/// A kit whose agent wants its verdict reviewed, and emits it: the whole run, the step of a
/// workflow that another calls, or that an outcome runs. `policy` is what its file says of reviews.
fn kit(policy: &str) -> KitDir {
    let of = |pipeline: &str| format!("{CLAIM}{pipeline}");
    let judge = format!(
        "name: judge\nversion: 1.0.0\nmodel: std\n\
         params: {{schema: {{type: object, properties: {{claim: {{type: string}}}}}}}}\n\
         prompt: {{system: You judge., user: '{{{{ params.claim }}}}'}}\n\
         commands: {{emit: ['claim.*'], review: {policy}}}\n\
         output: {{schema: {{type: object, required: [verdict], \
         properties: {{verdict: {{enum: [good, bad]}}}}}}}}\n"
    );
    KitDir::new(&[
        ("judged", &of(JUDGED)),
        ("calls", &of(CALLS)),
        ("invokes", &of(INVOKES)),
    ])
    .with("agents/judge.agent.yaml", &judge)
    .with("agents/starter.agent.yaml", STARTER)
    .with("gateway.yaml", GATEWAY)
    .with("judge.yaml", JUDGES)
    .with("start.yaml", STARTS)
}

/// An engine on a ledger that outlives it.
async fn lab(store: &MemoryStore, policy: &str) -> Lab {
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    Lab::on(LedgerPlace::Backend(backend), kit(policy).load(), &[], None).await
}

/// Follows a run until so many frames of a type are recorded.
pub(crate) async fn seen(client: &Client, run: &str, kind: &str, times: usize) {
    let mut events = client.events(run, None).await;
    let mut others = Vec::new();
    let mut found = 0;
    while found < times {
        let event = events.next().await;
        let event = event.unwrap_or_else(|| panic!("{run} ended: {}", others.join("\n")));
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        found += usize::from(frame["type"] == kind);
        others.push(event.data);
    }
}

/// A run that waits for a review.
async fn asked(client: &Client, workflow: &str) -> String {
    let run = client.invoke(workflow, json!({})).await;
    seen(client, &run, "review.requested", 1).await;
    run
}

/// The review of a step; of `a` unless a path leads elsewhere.
async fn review(client: &Client, run: &str) -> Value {
    let answer = client.get(&format!("/runs/{run}/steps/a/review")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn decide(client: &Client, run: &str, body: Value) -> Answer {
    let path = format!("/runs/{run}/steps/a/review/decide");
    client.post(&path, body.to_string()).await
}

async fn approve(client: &Client, run: &str) -> Answer {
    decide(client, run, json!({"decision": "approved"})).await
}

/// It was answered like this, or the test shows what came instead.
#[track_caller]
pub(crate) fn is(answer: &Answer, status: u16, code: &str) {
    let shown = answer.json();
    let given = shown["code"].as_str().unwrap_or_default();
    assert_eq!((answer.status, given), (status, code), "{shown:#}");
}

/// A command to a run that is taken.
pub(crate) async fn steer(client: &Client, run: &str, word: &str, body: Value) {
    let answer = client
        .post(&format!("/runs/{run}/{word}"), body.to_string())
        .await;
    assert!(answer.status < 300, "{word}: {}", answer.text());
}

/// A run whose outcome a person corrects or rejects.
pub(crate) async fn recorded(decision: &str) -> Recorded {
    let store = MemoryStore::new();
    let lab = lab(&store, "{timeout: 2h}").await;
    let run = asked(&lab.client, "judged").await;
    let body = match decision {
        "approved" => json!({"decision": decision, "overlay": {"verdict": "bad"}}),
        _ => json!({"decision": decision, "reason": "too late"}),
    };
    let decided = decide(&lab.client, &run, body).await;
    assert_eq!(decided.status, 200, "{}", decided.text());
    lab.client.ended(&run).await;
    lab.close().await;
    Recorded::read(&store, &run)
}

/// The types of a run's frames from the first `review.requested` on.
async fn kinds(client: &Client, run: &str) -> Vec<String> {
    let frames = client.frames(run).await;
    let kinds = frames
        .iter()
        .map(|frame| frame["type"].as_str().unwrap().to_owned());
    kinds
        .skip_while(|kind| kind != "review.requested")
        .collect()
}

/// Everything that is said of a ledger holds: its chains, the decisions in it, its evidence.
pub(crate) fn holds(store: &MemoryStore, run: &str) {
    let frames = branch::frames(store, &StreamId::run(run).unwrap()).unwrap();
    if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
        panic!("{run}: {diverged}");
    }
    hold_at_every_cut(&frames);
    let report = verify(store, &verify::VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, [], "{run}");
    evidence::holds(store, run);
}

/// The same of a ledger file.
pub(crate) fn file_holds(ledger: &std::path::Path, run: &str) {
    let reader = SqliteReader::open(ledger).unwrap();
    let frames = branch::frames(&reader, &StreamId::run(run).unwrap()).unwrap();
    if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
        panic!("{run}: {diverged}");
    }
    evidence::holds(&reader, run);
}
