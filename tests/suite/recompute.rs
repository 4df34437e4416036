//! Recomputes: fresh model calls on recorded inputs, in a stream of their own, beside a run that
//! stays as it is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::{MemoryStore, SqliteReader, Store as _};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::support::ledgers::{self, Recorded};
use crate::support::model::{self, KEY, Model, Said};
use crate::support::{KitDir, Lab, Sink, Within, guarded};

const SECRET: (&str, &str) = ("TOKEN", "tok-of-nobody-else");

fn workflows(sink: &str) -> [(&'static str, String); 3] {
    let all = format!(
        r#"
env: [{{name: TOKEN, secret: true}}]
params: {{schema: {{type: object, required: [list], properties: {{list: {{type: array}}}}}}}}
pipeline:
  - {{id: plain, agent: ./agents/keyed.agent.yaml, params: {{msg: "plain {{{{ params.list[0] }}}}", key: "{{{{ env.TOKEN }}}}", deep: {{n: "{{{{ params.list[1] }}}}"}}}}}}
  - {{id: each, agent: ./agents/echo.agent.yaml, for_each: {{from: params.list, concurrency: 2, max_failures: -1}}, params: {{msg: "{{{{ item }}}}"}}}}
  - {{id: tell, depends_on: [plain], webhook: {{url: "{sink}/hook", body: {{said: "{{{{ step.plain.answer }}}}"}}}}}}
  - {{id: call, depends_on: [each], workflow: ./part.workflow.yaml, webhooks: execute, params: {{msg: "{{{{ step.each.results[0].answer }}}}"}}}}
"#
    );
    let part = format!(
        r#"
visibility: sub-workflow
webhooks: execute
params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}
pipeline:
  - {{id: inner, agent: ./agents/echo.agent.yaml, params: {{msg: "inner {{{{ params.msg }}}}"}}}}
  - {{id: tell, depends_on: [inner], webhook: {{url: "{sink}/inner"}}}}
"#
    );
    let pure = "pipeline: [{id: t, transform: {inputs: [], ops: []}}]\n".to_owned();
    [("all", all), ("part", part), ("pure", pure)]
}

const KEYED: &str = r#"
name: keyed
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg, key], properties: {msg: {type: string}, key: {type: string, secret: true}, deep: {type: object}}}}
prompt: {system: s, user: "{{ params.msg }} {{ params.deep.n }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}}}}
"#;

/// Models that answer differently once they are told to.
struct Desk {
    model: Model,
    sink: Sink,
    kit: KitDir,
    changed: Arc<AtomicBool>,
}

impl Desk {
    async fn new(now: fn(&str) -> Said) -> Self {
        let changed = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&changed);
        let model = Model::scripted(move |call| {
            let user = call.user();
            match told.load(Ordering::SeqCst) {
                false if user.starts_with("broken") => Said::json(&json!({"noanswer": user})),
                false => Said::answer(&user),
                true => now(&user),
            }
        });
        let (model, sink) = (model.await, Sink::new().await);
        let workflows = workflows(&sink.url);
        let workflows: Vec<(&str, &str)> = workflows
            .iter()
            .map(|(name, text)| (*name, text.as_str()))
            .collect();
        let kit = model::kit(&model, &workflows).with("agents/keyed.agent.yaml", KEYED);
        Self {
            model,
            sink,
            kit,
            changed,
        }
    }

    async fn lab(&self) -> Lab {
        Lab::new(&self.kit, &[KEY, SECRET]).await
    }

    fn change(&self) {
        self.changed.store(true, Ordering::SeqCst);
    }
}

/// Runs the workflow and gives the run's id.
async fn run(lab: &Lab, list: Value) -> String {
    let envelope = lab.client.run("all", json!({ "list": list })).await;
    envelope["run_id"].as_str().unwrap().to_owned()
}

async fn recompute(lab: &Lab, run: &str, body: Value) -> Value {
    let path = format!("/runs/{run}/recompute?wait=60");
    let answer = lab.client.send("POST", &path, &[], body.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn frames_of(lab: &Lab, id: &str) -> String {
    lab.client.get(&format!("/runs/{id}/frames")).await.text()
}

fn task<'a>(verdict: &'a Value, step: &str, item: Option<u32>) -> &'a Value {
    let mut tasks = verdict["tasks"].as_array().unwrap().iter();
    let found = tasks.find(|task| task["step"] == step && task["item"] == json!(item));
    found.unwrap_or_else(|| panic!("no {step} {item:?} in {verdict:#}"))
}

#[tokio::test]
async fn the_same_answers_again_are_clean_and_touch_neither_the_run_nor_the_world() {
    let desk = Desk::new(Said::answer).await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["one", 9_007_199_254_740_993_u64])).await;
    let before = frames_of(&lab, &run).await;
    assert_eq!(desk.sink.heard().len(), 2, "the run sends its webhooks");
    let asked = desk.model.counts();
    desk.change();
    let verdict = recompute(&lab, &run, json!({})).await;
    assert_eq!(verdict["status"], "clean", "{verdict:#}");
    assert_eq!(verdict["run_id"], json!(run));
    let tasks = verdict["tasks"].as_array().unwrap();
    assert_eq!(tasks.len(), 4, "{verdict:#}");
    for (step, item) in [
        ("plain", None),
        ("each", Some(0)),
        ("each", Some(1)),
        ("call/inner", None),
    ] {
        assert_eq!(task(&verdict, step, item)["status"], "clean", "{step}");
    }
    // Every request came a second time, byte for byte, and no other.
    let twice = asked.into_iter().map(|(call, count)| (call, count * 2));
    assert_eq!(desk.model.counts(), twice.collect());
    assert_eq!(desk.sink.heard().len(), 2, "a webhook was sent again");
    assert_eq!(frames_of(&lab, &run).await, before, "the run has changed");
    let id = verdict["recompute_id"].as_str().unwrap();
    let own = frames_of(&lab, id).await;
    assert!(!own.contains(SECRET.1) && !before.contains(SECRET.1));
    assert!(
        own.contains("{{ env.TOKEN }}"),
        "the secret is its template"
    );
    let again = lab
        .client
        .get(&format!("/runs/{id}/recompute"))
        .await
        .json();
    assert_eq!(again, verdict);
    let shown = lab.client.get(&format!("/runs/{id}")).await.json();
    assert_eq!(shown["run"]["status"], "complete");
    // Lists show runs, unless they are asked for recomputes.
    let ids = async |query: &str| {
        let runs = lab.client.get(&format!("/runs{query}")).await.json();
        let rows = runs["runs"].as_array().unwrap().clone();
        rows.iter()
            .map(|row| row["run_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids("").await, std::slice::from_ref(&run));
    assert_eq!(ids("?kind=recompute").await, [id.to_owned()]);
    lab.close().await;
}

#[tokio::test]
async fn another_value_is_reported_by_path_and_only_where_it_is() {
    let desk = Desk::new(|user| match user {
        "two" => Said::json(&json!({"answer": "two!", "more": [1]})),
        _ => Said::answer(user),
    });
    let desk = desk.await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["one", "two"])).await;
    desk.change();
    let verdict = recompute(&lab, &run, json!({})).await;
    assert_eq!(verdict["status"], "value_changed", "{verdict:#}");
    let changed = task(&verdict, "each", Some(1));
    assert_eq!(changed["status"], "value_changed");
    assert_eq!(
        changed["diff"],
        json!([
            {"path": "/answer", "before": "two", "after": "two!"},
            {"path": "/more", "after": [1]},
        ])
    );
    assert_eq!(task(&verdict, "each", Some(0))["status"], "clean");
    assert_eq!(task(&verdict, "call/inner", None)["status"], "clean");
    lab.close().await;
}

#[tokio::test]
async fn a_broken_schema_is_reported_together_with_the_value() {
    let desk = Desk::new(|user| match user {
        "one" => Said::json(&json!({"reply": "one"})),
        _ => Said::answer(user),
    });
    let desk = desk.await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["one", "two"])).await;
    desk.change();
    let verdict = recompute(&lab, &run, json!({})).await;
    assert_eq!(verdict["status"], "schema_violation", "{verdict:#}");
    let broken = task(&verdict, "each", Some(0));
    assert_eq!(broken["violations"][0]["rule"], "required");
    assert_eq!(
        broken["diff"],
        json!([
            {"path": "/answer", "before": "one"},
            {"path": "/reply", "after": "one"},
        ])
    );
    for (step, item) in [("plain", None), ("each", Some(1)), ("call/inner", None)] {
        assert_eq!(task(&verdict, step, item)["status"], "clean", "{step}");
    }
    lab.close().await;
}

#[tokio::test]
async fn what_has_nothing_to_be_compared_with_is_never_called_clean() {
    let desk = Desk::new(Said::answer).await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["broken", "two"])).await;
    desk.change();
    let verdict = recompute(&lab, &run, json!({"step": "each"})).await;
    assert_eq!(verdict["status"], "not_comparable", "{verdict:#}");
    assert_eq!(verdict["step"], "each");
    assert_eq!(verdict["tasks"].as_array().unwrap().len(), 2);
    let without = task(&verdict, "each", Some(0));
    assert_eq!(without["status"], "not_comparable");
    let reason = without["reason"].as_str().unwrap();
    assert!(
        reason.contains("the run recorded no output: schema_violation"),
        "{reason}"
    );
    assert_eq!(task(&verdict, "each", Some(1))["status"], "clean");
    lab.close().await;
}

#[tokio::test]
async fn a_call_that_fails_is_no_verdict() {
    let desk = Desk::new(|user| match user {
        "two" => Said::Error(400),
        "three" => Said::Error(503),
        _ => Said::answer(user),
    });
    let desk = desk.await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["one", "two", "three"])).await;
    desk.change();
    let verdict = recompute(&lab, &run, json!({})).await;
    assert_eq!(verdict["status"], "failed", "{verdict:#}");
    assert_eq!(task(&verdict, "each", Some(1))["status"], "failed");
    // Whether it may go well another time is said of what failed, and of nothing else.
    assert_eq!(task(&verdict, "each", Some(1))["retryable"], false);
    assert_eq!(task(&verdict, "each", Some(2))["retryable"], true);
    assert_eq!(task(&verdict, "each", Some(0))["status"], "clean");
    assert!(task(&verdict, "each", Some(0)).get("retryable").is_none());
    lab.close().await;
}

#[tokio::test]
async fn what_cannot_be_recomputed_is_refused_and_writes_nothing() {
    let desk = Desk::new(Said::answer).await;
    let lab = desk.lab().await;
    let run = run(&lab, json!(["one", "two"])).await;
    let pure = lab.client.run("pure", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let made = recompute(&lab, &run, json!({"step": "call/inner"})).await;
    let made = made["recompute_id"].as_str().unwrap().to_owned();
    for (id, body, status, code) in [
        (run.as_str(), r#"{"step": "tell"}"#, 404, "step_not_found"),
        (&run, r#"{"step": 3}"#, 422, "invalid_params"),
        (&run, r#"{"steps": "plain"}"#, 422, "invalid_params"),
        (&pure, "{}", 422, "not_recomputable"),
        (&made, "{}", 422, "not_recomputable"),
        (&format!("{run}/call"), "{}", 422, "not_recomputable"),
        ("run_0000", "{}", 404, "run_not_found"),
    ] {
        let path = format!("/runs/{id}/recompute");
        let answer = lab.client.send("POST", &path, &[], body).await;
        assert_eq!(answer.status, status, "{id} {body}: {}", answer.text());
        assert_eq!(answer.json()["code"], code);
    }
    let known = lab.client.get("/runs?kind=recompute").await.json();
    assert_eq!(known["runs"].as_array().unwrap().len(), 1);
    assert_eq!(
        lab.client
            .get(&format!("/runs/{run}/recompute"))
            .await
            .status,
        404
    );
    lab.close().await;
}

/// As after a crash at any moment: what is recorded is taken up, and ends in the same verdict.
#[tokio::test]
async fn a_recompute_cut_off_after_any_frame_continues_to_the_same_verdict() {
    let desk = Desk::new(|user| match user {
        "two" => Said::answer("two!"),
        _ => Said::answer(user),
    });
    let desk = desk.await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &desk.kit, &[KEY, SECRET]).await;
    let run = run(&lab, json!(["one", "two"])).await;
    desk.change();
    let verdict = recompute(&lab, &run, json!({})).await;
    lab.close().await;
    let id = verdict["recompute_id"].as_str().unwrap();
    let reader = SqliteReader::open(&path).unwrap();
    let (of, made) = (Recorded::read(&reader, &run), Recorded::read(&reader, id));
    let frames = made.frames();
    let replayed = replay(&frames, &mut Definitions::default()).unwrap();
    assert_eq!(replayed.next_seq(), frames.len() as u64);
    for count in 1..=made.records.len() {
        let mut store = MemoryStore::new();
        of.put(&mut store);
        made.cut(count).put(&mut store);
        let reader = store.reader().unwrap();
        let pairs = [KEY, SECRET];
        let within = Within::new(desk.kit.load(), store, Options::default(), &pairs, None).await;
        let open = u64::from(count < made.records.len());
        assert_eq!(within.recovered.unfinished, open, "cut after {count}");
        guarded("the verdict", within.orchestrator.wait_until_ended(id))
            .await
            .unwrap();
        let again = within
            .client
            .get(&format!("/runs/{id}/recompute"))
            .await
            .json();
        assert_eq!(again, verdict, "cut after {count}");
        let went_on = ledgers::frames(reader.as_ref(), id);
        replay(&went_on, &mut Definitions::default()).unwrap();
    }
}
