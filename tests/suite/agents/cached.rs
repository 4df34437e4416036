//! Model replies that are repeated within a run: which requests reach the provider, and what is
//! recorded of those that do not.

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::{MemoryStore, SqliteReader};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use super::{lab, of_type, step};
use crate::support::ledgers::{Recorded, timeless};
use crate::support::model::{self, COST, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::{KitDir, Lab, Within, guarded};

/// Two steps after each other that ask the same.
const TWICE: &str = r#"
model_policy: {cache: true}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
"#;

/// Items of one fan-out that ask the same at once.
const AT_ONCE: &str = r#"
model_policy: {cache: true}
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 20, max_items: 100, max_failures: -1}, params: {msg: "{{ item }}"}}
"#;

async fn answering() -> Model {
    Model::scripted(|call| Said::answer(&call.user())).await
}

fn run_id(envelope: &Value) -> String {
    envelope["run_id"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_second_identical_request_of_a_run_makes_no_call_and_costs_nothing() {
    let model = answering().await;
    let (_kit, lab) = lab(&model, &[("twice", TWICE)]).await;
    let envelope = lab.client.run("twice", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "b")["output"], json!({"answer": "one"}));
    assert_eq!(model.calls().len(), 1);
    let frames = lab.client.frames(&run_id(&envelope)).await;
    let replies = of_type(&frames, "llm.response");
    let data = &replies[1]["data"];
    assert_eq!(data["cached"], true);
    assert_eq!(data["repeats"], replies[0]["seq"]);
    assert_eq!(data["cost_micro_usd"], 0);
    let saved = json!({"cost_micro_usd": COST, "tokens_in": 1000, "tokens_out": 200});
    assert_eq!(data["saved"], saved);
    assert_eq!(data.get("content"), None, "the text is recorded once");
    assert_eq!(replies[1]["actor"], "orchestrator");
    let totals = &envelope["totals"];
    assert_eq!(
        (&totals["llm_calls"], &totals["cached_calls"]),
        (&json!(2), &json!(1))
    );
    assert_eq!(totals["cost_micro_usd"], COST);
    assert_eq!(totals["saved_micro_usd"], COST);
    let again = lab.client.run("twice", json!({})).await;
    assert_eq!(again["status"], "complete");
    assert_eq!(model.calls().len(), 2, "another run has replies of its own");
    lab.close().await;
}

#[tokio::test]
async fn without_a_declaration_or_with_no_cache_every_request_is_a_call() {
    let model = answering().await;
    let plain = TWICE.replace("model_policy: {cache: true}", "");
    let (_kit, lab) = lab(&model, &[("twice", TWICE), ("plain", &plain)]).await;
    let envelope = lab.client.run("plain", json!({})).await;
    assert_eq!(model.calls().len(), 2);
    for frame in lab.client.frames(&run_id(&envelope)).await {
        for name in ["routing", "repeats", "saved", "no_cache"] {
            assert_eq!(frame["data"].get(name), None, "{frame}");
        }
    }
    let answer = lab
        .client
        .post("/invoke/twice?wait=60&no_cache=true", "{}")
        .await;
    let envelope = answer.json();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(model.calls().len(), 4);
    let frames = lab.client.frames(&run_id(&envelope)).await;
    assert_eq!(frames[0]["data"]["no_cache"], true);
    lab.close().await;
}

#[tokio::test]
async fn what_differs_in_group_message_tokens_or_prompt_is_a_call_of_its_own() {
    const OTHER: &str = r#"
name: other
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: another, user: "{{ params.msg }}"}
output: {schema: {type: object, required: [answer], properties: {answer: {type: string}, ktsu_confidence: {type: number}}}}
"#;
    let workflow = r#"
model_policy: {cache: true}
pipeline:
  - {id: base, agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: message, depends_on: [base], agent: ./agents/echo.agent.yaml, params: {msg: "two"}}
  - {id: group, depends_on: [message], agent: ./agents/echo.agent.yaml, model: {group: large}, params: {msg: "one"}}
  - {id: tokens, depends_on: [group], agent: ./agents/echo.agent.yaml, model: {max_tokens: 77}, params: {msg: "one"}}
  - {id: prompt, depends_on: [tokens], agent: ./agents/other.agent.yaml, params: {msg: "one"}}
  - {id: same, depends_on: [prompt], agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
"#;
    let model = answering().await;
    let kit = model::kit(&model, &[("all", workflow)]).with("agents/other.agent.yaml", OTHER);
    let lab = Lab::new(&kit, &[KEY]).await;
    let envelope = lab.client.run("all", json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(model.calls().len(), 5, "{:#?}", model.users());
    assert_eq!(envelope["totals"]["cached_calls"], 1);
    lab.close().await;
}

#[tokio::test]
async fn identical_requests_at_once_are_one_call() {
    let model = Model::scripted(|call| Said::answer(&call.user()).when("all")).await;
    let (_kit, lab) = lab(&model, &[("each", AT_ONCE)]).await;
    let run = lab
        .client
        .invoke("each", json!({"list": vec!["one"; 20]}))
        .await;
    model.until(|calls| !calls.is_empty()).await;
    model.open("all");
    let envelope = lab.client.ended(&run).await;
    assert_eq!(step(&envelope, "each")["counts"]["succeeded"], 20);
    assert_eq!(model.calls().len(), 1);
    assert_eq!(envelope["totals"]["cached_calls"], 19);
    lab.close().await;
}

#[tokio::test]
async fn a_failed_call_is_not_repeated_and_one_of_those_that_wait_asks() {
    let failed = std::sync::atomic::AtomicBool::new(false);
    let model =
        Model::scripted(
            move |call| match failed.swap(true, std::sync::atomic::Ordering::SeqCst) {
                false => Said::Error(400),
                true => Said::answer(&call.user()),
            },
        );
    let model = model.await;
    let (_kit, lab) = lab(&model, &[("each", AT_ONCE)]).await;
    let envelope = lab
        .client
        .run("each", json!({"list": vec!["one"; 5]}))
        .await;
    let counts = &step(&envelope, "each")["counts"];
    assert_eq!(
        (&counts["failed"], &counts["succeeded"]),
        (&json!(1), &json!(4))
    );
    assert_eq!(model.calls().len(), 2, "{envelope:#}");
    lab.close().await;
}

#[tokio::test]
async fn a_branch_repeats_what_it_shares_and_its_replies_are_its_own() {
    let workflow = r#"
model_policy: {cache: true}
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: c, depends_on: [b], agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
"#;
    let model = answering().await;
    let (_kit, lab) = lab(&model, &[("line", workflow)]).await;
    let envelope = lab.client.run("line", json!({"msg": "two"})).await;
    let run = run_id(&envelope);
    assert_eq!(model.users(), ["one", "two"]);
    let branch = async |msg: &str| {
        let body = json!({"before": "b", "set": {"params.msg": msg}});
        let made = lab
            .client
            .post(&format!("/runs/{run}/fork"), body.to_string())
            .await;
        assert_eq!(made.status, 201, "{}", made.text());
        let branch = made.json()["branch_id"].as_str().unwrap().to_owned();
        let path = format!("/runs/{branch}/resume");
        assert_eq!(lab.client.post(&path, "{}").await.status, 202);
        let ended = lab.client.ended(&branch).await;
        assert_eq!(ended["status"], "complete", "{ended:#}");
        assert_eq!(step(&ended, "c")["output"], json!({"answer": msg}));
    };
    branch("three").await;
    assert_eq!(model.users(), ["one", "two", "three"], "b asks, c repeats");
    branch("three").await;
    assert_eq!(model.users().len(), 4, "a sibling does not have it");
    branch("one").await;
    assert_eq!(model.users().len(), 4, "what is shared answers both");
    branch("two").await;
    assert_eq!(
        model.users().len(),
        5,
        "what the run did after the fork is not shared"
    );
    lab.close().await;
}

#[tokio::test]
async fn beginning_again_and_recomputing_ask_again() {
    let model = answering().await;
    let (_kit, lab) = lab(&model, &[("twice", TWICE)]).await;
    let run = run_id(&lab.client.run("twice", json!({})).await);
    assert_eq!(model.calls().len(), 1);
    let resumed = lab
        .client
        .post(&format!("/runs/{run}/resume"), r#"{"from": "a"}"#)
        .await;
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete");
    assert_eq!(model.calls().len(), 3, "both steps ask again");
    let made = lab
        .client
        .post(&format!("/runs/{run}/recompute?wait=60"), "{}")
        .await;
    assert_eq!(made.status, 200, "{}", made.text());
    assert_eq!(model.calls().len(), 5, "{}", made.text());
    lab.close().await;
}

/// Replies of one engine are of no use once the same group is routed otherwise.
#[tokio::test]
async fn a_group_that_is_routed_otherwise_after_a_restart_asks_again() {
    let pause = r#"
model_policy: {cache: true}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
  - {id: wait, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: "wait"}}
  - {id: b, depends_on: [wait], agent: ./agents/echo.agent.yaml, params: {msg: "one"}}
"#;
    for (temperature, calls) in [(None, 3), (Some("default_temperature: 0.5"), 4)] {
        let model = Model::scripted(|call| match call.user().as_str() {
            "wait" => Said::Never,
            user => Said::answer(user),
        });
        let model = model.await;
        let kit = model::kit(&model, &[("pause", pause)]);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ledger.db");
        let lab = Lab::on_file(&path, &kit, &[KEY]).await;
        let run = lab.client.invoke("pause", json!({})).await;
        model.until(|calls| calls.len() == 2).await;
        lab.close().await;
        model.say(|call| Said::answer(&call.user()));
        let kit = match temperature {
            None => kit,
            Some(member) => {
                let gateway = model::gateway(&model.url);
                let changed = format!("models: [fake/gpt-4o-mini], {member}}}");
                let gateway = gateway.replace("models: [fake/gpt-4o-mini]}", &changed);
                kit.with("gateway.yaml", &gateway)
            }
        };
        let lab = Lab::on_file(&path, &kit, &[KEY]).await;
        let envelope = lab.client.ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        assert_eq!(
            model.calls().len(),
            calls,
            "{temperature:?}: {:?}",
            model.users()
        );
        lab.close().await;
    }
}

/// As after a crash at any moment, also between a request and the reply that is repeated to it.
#[tokio::test]
async fn a_run_cut_off_after_any_frame_ends_the_same_and_replays_without_a_call() {
    let model = answering().await;
    let kit = model::kit(&model, &[("twice", TWICE)]);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let envelope = lab.client.run("twice", json!({})).await;
    lab.close().await;
    let run = run_id(&envelope);
    let whole = Recorded::read(&SqliteReader::open(&path).unwrap(), &run);
    model.forget();
    let frames = whole.frames();
    let replayed = replay(&frames, &mut Definitions::default()).unwrap();
    assert_eq!(replayed.next_seq(), frames.len() as u64);
    assert_eq!(model.calls(), [], "a replay calls nobody");
    for count in 1..whole.records.len() {
        model.forget();
        let mut store = MemoryStore::new();
        whole.cut(count).put(&mut store);
        let within = Within::new(kit.load(), store, Options::default(), &[KEY], None).await;
        guarded("the end", within.orchestrator.wait_until_ended(&run))
            .await
            .unwrap();
        let ended = within
            .client
            .get(&format!("/runs/{run}/envelope"))
            .await
            .json();
        for member in ["status", "output"] {
            assert_eq!(ended[member], envelope[member], "cut after {count}");
        }
        let totals = |envelope: &Value| timeless(envelope["totals"].clone());
        assert_eq!(totals(&ended), totals(&envelope), "cut after {count}");
        let answered = frames[..count]
            .iter()
            .any(|one| one.event.kind() == "llm.response");
        assert_eq!(
            model.calls().len(),
            usize::from(!answered),
            "cut after {count}"
        );
    }
}

#[tokio::test]
async fn sigkill_while_identical_requests_wait_costs_one_more_call() {
    let model = Model::scripted(|call| Said::answer(&call.user()).when("all")).await;
    let kit: KitDir = model::kit(&model, &[("each", AT_ONCE)]);
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let engine = Process::start(kit.dir.path(), &ledger, &[KEY]);
    let run = engine
        .client()
        .invoke("each", json!({"list": vec!["one"; 5]}))
        .await;
    model.until(|calls| calls.len() == 1).await;
    engine.kill();
    let engine = Process::start(kit.dir.path(), &ledger, &[KEY]);
    model.until(|calls| calls.len() == 2).await;
    model.open("all");
    let envelope = engine.client().ended(&run).await;
    assert_eq!(
        step(&envelope, "each")["counts"]["succeeded"],
        5,
        "{envelope:#}"
    );
    assert_eq!(
        model.calls().len(),
        2,
        "what was not answered is asked again, once"
    );
    assert_eq!(envelope["totals"]["cached_calls"], 4);
    engine.stop();
}
