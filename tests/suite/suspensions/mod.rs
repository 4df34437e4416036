//! Steps that wait for data and run again with them, from outside: over real sockets, and across
//! restarts of the engine.

mod counted;
mod histories;
mod killed;
mod many;
mod models;
mod people;
mod races;
pub(crate) mod resume_steps;
mod states;

use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Backend;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use crate::reviews::seen;
use crate::support::client::Answer;
use crate::support::ledgers::Recorded;
use crate::support::{Client, KitDir, Lab};

const CLAIM: &str =
    "params: {schema: {type: object, properties: {claim: {type: string, default: x}}}}\n";
const READS: &str = "pipeline:
  - id: a
    agent: ./agents/clerk.agent.yaml
    params:
      claim: '{{ params.claim }}'
      text: '{{ resume.data.text }}'
      asked: '{{ resume.checkpoint.paper }}'
    resume: RESUME
  - {id: b, depends_on: [a], transform: {inputs: ['{{ step.a.verdict }}']}}
output: {map: {verdict: '{{ step.a.verdict }}', seen: '{{ step.b.result }}'}}
";
const CALLS: &str = "pipeline:
  - {id: call, workflow: ./reads.workflow.yaml, params: {claim: '{{ params.claim }}'}}
output: {map: {verdict: '{{ step.call.verdict }}'}}
";
const INVOKES: &str = "pipeline:
  - {id: s, agent: ./agents/starter.agent.yaml, may_invoke: {reads: ./reads.workflow.yaml}}
output: {map: {all: '{{ step.s.ktsu_invoked }}'}}
";
const STARTER: &str = "name: starter\nversion: 1.0.0\nmodel: start\n\
     prompt: {system: You start., user: start}\n\
     commands: {invoke: [reads]}\n\
     output: {schema: {type: object, properties: {verdict: {type: string}}}}\n";
const CLERK: &str = "name: clerk\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, properties: {claim: {type: string}, \
     text: {type: [string, 'null']}, asked: {type: [string, 'null']}}}}\n\
     prompt: {system: You read., user: 'claim {{ params.claim }} text {{ params.text }} of {{ params.asked }}'}\n\
     commands: {emit: ['claim.*'], suspend: {roles: [operator]}}\n\
     output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}\n";
const GATEWAY: &str = "providers:
  - {name: clerk, type: scripted, config: {rules: clerk.yaml}}
  - {name: start, type: scripted, config: {rules: start.yaml}}
model_groups: [{name: std, models: [clerk/m]}, {name: start, models: [start/m]}]
";
/// Asks for the paper, beside a message that is then discarded; reads it once it is there.
const CLERKS: &str = "values:
  text: {from: user, pattern: 'text (.+) of contract'}
rules:
  - when: {text: '\\Amore\\z', turn: 1}
    tool_calls:
      - {name: suspend, arguments: {reason: the other half is missing, checkpoint: {paper: contract}}}
  - when: {text: '.', turn: 1}
    tool_calls:
      - {name: emit, arguments: {topic: claim.read, payload: {text: '{{ text }}'}}}
  - when: {text: '.'}
    reply: {verdict: 'read {{ text }}'}
  - when: {turn: 1}
    tool_calls:
      - {name: emit, arguments: {topic: claim.missing, payload: {n: 1}}}
      - {name: suspend, arguments: {reason: the contract is missing, checkpoint: {paper: contract}}}
default: {reply: {verdict: none}}
";
const STARTS: &str = "rules:
  - when: {turn: 1}
    tool_calls: [{name: invoke, arguments: {step: reads, input: {claim: p}}}]
default: {reply: {verdict: none}}
";
/// What the step says of the data.
const RESUME: &str = "{schema: {type: object, required: [text], additionalProperties: false, \
                      properties: {text: {type: string, minLength: 1}}}, timeout: 2h}";

/// A kit whose agent wants a paper: the whole run, the step of a workflow that another calls, or that an
/// outcome runs. `resume` is what its step says of the data.
fn kit(resume: &str) -> KitDir {
    let reads = READS.replace("RESUME", resume);
    let of = |pipeline: &str| format!("{CLAIM}{pipeline}");
    KitDir::new(&[
        ("reads", &of(&reads)),
        ("calls", &of(CALLS)),
        ("invokes", &of(INVOKES)),
    ])
    .with("agents/clerk.agent.yaml", CLERK)
    .with("agents/starter.agent.yaml", STARTER)
    .with("gateway.yaml", GATEWAY)
    .with("clerk.yaml", CLERKS)
    .with("start.yaml", STARTS)
}

/// An engine on a ledger that outlives it.
async fn lab(store: &MemoryStore, resume: &str) -> Lab {
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    Lab::on(LedgerPlace::Backend(backend), kit(resume).load(), &[], None).await
}

/// A run that waits for data.
async fn suspended(client: &Client, workflow: &str) -> String {
    let run = client.invoke(workflow, json!({})).await;
    seen(client, &run, "suspend.requested", 1).await;
    run
}

/// The suspension of step `a`.
async fn suspension(client: &Client, run: &str) -> Value {
    let answer = client.get(&format!("/runs/{run}/steps/a/suspend")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn resume(client: &Client, run: &str, body: Value) -> Answer {
    let path = format!("/runs/{run}/steps/a/resume");
    client.post(&path, body.to_string()).await
}

async fn give(client: &Client, run: &str, text: &str) -> Answer {
    resume(client, run, json!({"data": {"text": text}})).await
}

/// The types of a run's frames from the first `suspend.requested` on.
async fn kinds(client: &Client, run: &str) -> Vec<String> {
    let frames = client.frames(run).await;
    let kinds = frames
        .iter()
        .map(|frame| frame["type"].as_str().unwrap().to_owned());
    kinds
        .skip_while(|kind| kind != "suspend.requested")
        .collect()
}

/// A run whose step got its data, or did not in time.
pub(crate) async fn recorded(how: &str) -> Recorded {
    let store = MemoryStore::new();
    let timeout = match how {
        "late" => "{timeout: 1s}",
        _ => RESUME,
    };
    let lab = lab(&store, timeout).await;
    let run = suspended(&lab.client, "reads").await;
    if how == "resumed" {
        let given = json!({"data": {"text": "clause 7"}, "reason": "found in the archive"});
        let answer = resume(&lab.client, &run, given).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    lab.client.ended(&run).await;
    lab.close().await;
    Recorded::read(&store, &run)
}
