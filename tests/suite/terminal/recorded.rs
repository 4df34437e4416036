//! The runs that are shown: recorded once, at times that never come, so that no screen changes by
//! itself.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::Timestamp;
use ktsu_ledger::store::{SqliteReader, SqliteStore};
use serde_json::{Value, json};

use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab};

/// The first of January 2100, nine o'clock.
const MOMENT: u64 = 4_102_477_200_000_000;

/// The names of the runs, in the order in which they were recorded.
pub(super) const RUNS: [&str; 6] = ["intake", "other", "failed", "asked", "decided", "review"];

const INTAKE: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}, words: {type: string}}}}
pipeline:
  - {id: plan, transform: {inputs: [{from: params.list}], ops: []}}
  - {id: classify, depends_on: [plan], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: digest, depends_on: [classify], workflow: ./part.workflow.yaml, params: {words: "{{ params.words }}"}}
  - {id: never, depends_on: [classify], condition: "params.words == 'nothing'", transform: {inputs: [{from: params.list}], ops: []}}
output: {map: {answers: "{{ step.classify.results[*].answer }}", digest: "{{ step.digest.said }}"}}
"#;
const PART: &str = r#"
visibility: sub-workflow
params: {schema: {type: object, required: [words], properties: {words: {type: string}}}}
pipeline:
  - {id: summarise-everything-that-came-in, agent: ./agents/reflects.agent.yaml, params: {msg: "{{ params.words }}"}}
output: {map: {said: "{{ step.summarise-everything-that-came-in.answer }}"}}
"#;
const FAILS: &str = r#"
pipeline:
  - {id: reconcile, agent: ./agents/echo.agent.yaml, params: {msg: '{"total": "three hundred and twenty-five euro and some cents, as far as I can tell"}'}}
  - {id: after, depends_on: [reconcile], transform: {inputs: [{from: step.reconcile}], ops: []}}
"#;
const ASKS: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: keep, agent: ./agents/keeper.agent.yaml, for_each: {from: params.list}, params: {msg: "{{ item }}"}}
"#;
const REVIEW: &str = r#"
pipeline:
  - {id: judge, agent: ./agents/echo.agent.yaml, params: {msg: '{"answer": "perhaps", "ktsu_needs_human": true}'}}
"#;
const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: You keep things., user: "keep {{ params.msg }}"}
servers:
  - name: ktsu/kv
    access: {allowlist: [{name: kv-set, require_approval: {timeout: 48h, timeout_behavior: fail}}]}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
"#;

fn runs() -> PathBuf {
    super::folder().join("runs")
}

/// A ledger with all of them.
pub(super) fn ledger(path: &Path) {
    let mut store = SqliteStore::open(path).unwrap();
    for name in RUNS {
        Recorded::load(&runs().join(name)).put(&mut store);
    }
}

/// The id of one of them.
pub(super) fn id(name: &str) -> String {
    let recorded = Recorded::load(&runs().join(name));
    recorded.stream.name().to_owned()
}

fn kit(model: &Model) -> KitDir {
    let long = "reconciliation-of-supplier-invoices";
    let flows = [
        ("intake", INTAKE),
        ("part", PART),
        (long, FAILS),
        ("asks", ASKS),
        ("review", REVIEW),
    ];
    model::kit(model, &flows).with("agents/keeper.agent.yaml", KEEPER)
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "writes tests/snapshots/terminal/runs"]
async fn record_the_runs() {
    let model = Model::scripted(|call| match call.user() {
        user if user.starts_with("keep ") && call.turn() == 0 => {
            let value = user.trim_start_matches("keep ");
            Said::calls(&[("kv-set", json!({"key": value, "value": "as it was given"}))])
        }
        user if user.starts_with('{') => Said::Text(user),
        user => Said::answer(&user),
    })
    .await;
    let kit = kit(&model);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let time = AtomicU64::new(MOMENT);
    let clock = move || Timestamp::from_micros(time.fetch_add(45_000, Ordering::Relaxed));
    let place = LedgerPlace::File(path.clone());
    let lab = Lab::on(place, kit.load(), &[KEY], Some(Arc::new(clock))).await;
    let list = json!([
        "The invoice of March came twice",
        r#"{"answer": "Outage in the north", "ktsu_flags": ["urgent", "vip"]}"#,
        r#"{"wrong": "no answer at all"}"#,
        r#"{"ktsu_skip_reason": "nothing new in it"}"#,
        "日本語の請求書",
    ]);
    let mut recorded = Vec::new();
    for (name, list, words) in [
        ("intake", list, "five came in"),
        ("other", json!(["The invoice of April"]), "one came in"),
    ] {
        let body = json!({"list": list, "words": words});
        let run = lab.client.invoke("intake", body).await;
        lab.client.ended(&run).await;
        recorded.push((name, run));
    }
    let long = "reconciliation-of-supplier-invoices";
    let run = lab.client.invoke(long, json!({})).await;
    lab.client.ended(&run).await;
    recorded.push(("failed", run));
    for (name, list) in [
        ("asked", json!(["left", "right"])),
        ("decided", json!(["one"])),
    ] {
        let run = lab.client.invoke("asks", json!({"list": list})).await;
        let mut events = lab.client.events(&run, None).await;
        let mut left = list.as_array().unwrap().len();
        while left > 0 {
            let frame: Value = serde_json::from_str(&events.next().await.unwrap().data).unwrap();
            left -= usize::from(frame["type"] == "approval.requested");
        }
        recorded.push((name, run));
    }
    let run = &recorded[4].1;
    let step = format!("/runs/{run}/steps/keep.0/approval");
    let record = lab.client.get(&step).await.json();
    let decision = json!({"approval_id": record["approval_id"], "decision": "approved"});
    let path_of = format!("{step}/decide");
    let answer = lab.client.post(&path_of, decision.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    lab.client.ended(run).await;
    let run = lab.client.invoke("review", json!({})).await;
    lab.client.ended(&run).await;
    recorded.push(("review", run));
    lab.close().await;
    let reader = SqliteReader::open(&path).unwrap();
    for (name, run) in recorded {
        Recorded::read(&reader, &run).save(&runs().join(name));
    }
}
