//! What a model commands by the tools of `ktsu/commands`, through the whole binary.

use std::collections::{BTreeMap, BTreeSet};

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::{SECRET, environment};
use crate::support::model::{self, Call, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink};

const JUDGE: &str = r#"
name: judge
version: 1.0.0
model: std
max_turns: 6
params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}
prompt: {system: You judge claims., user: "{{ params.claim }}"}
output: {schema: {type: object, required: [verdict], properties: {verdict: {type: string}}}}
commands: {emit: ['claim.*']}
"#;
const FLOW: &str = r#"
params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}
pipeline: [{id: judge, agent: ./agents/judge.agent.yaml, params: {claim: "{{ params.claim }}"}}]
"#;
/// How often an engine is killed.
const KILLS: usize = 20;

fn kit(model: &Model, url: &str) -> (KitDir, String) {
    let entry = format!(
        "  - {{name: claims, topics: 'claim.*', url: '{url}', backoff: 5ms, \
         secret: '{{{{ env.HOOK_SECRET }}}}'}}\n"
    );
    let text = environment(&[entry]);
    let kit = model::kit(model, &[("judged", FLOW)])
        .with("agents/judge.agent.yaml", JUDGE)
        .with("environments/local.env.yaml", &text);
    (kit, text)
}

fn emit(topic: &str, payload: Value) -> (&'static str, Value) {
    ("emit", json!({"topic": topic, "payload": payload}))
}

/// Tells of the claim twice, tries a topic that is not declared, and ends.
fn judges(call: &Call) -> Said {
    let claim = json!(call.user());
    match call.turn() {
        0 => Said::calls(&[
            emit("claim.judged", claim.clone()),
            emit("claim.judged", claim),
            emit("money.sent", json!(1)),
        ]),
        _ => Said::json(&json!({"verdict": "true"})),
    }
}

#[tokio::test]
async fn the_sixty_fifth_command_is_refused_to_the_model_at_once_and_the_others_have_their_order() {
    let model = Model::scripted(|call| {
        let emits = |from: u64| {
            let emits: Vec<_> = (from..from + 40)
                .map(|n| emit("claim.judged", json!(n)))
                .collect();
            Said::calls(&emits)
        };
        match call.turn() {
            0 => emits(0),
            // The first of them are said again.
            1 => emits(38),
            _ => Said::json(&json!({"verdict": "true"})),
        }
    })
    .await;
    let (kit, text) = kit(&model, "http://127.0.0.1:9/");
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[SECRET, KEY]).await;
    let envelope = lab.client.run("judged", json!({"claim": "a"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope}");
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let frames = lab.client.frames_by_id(std::slice::from_ref(&run)).await;
    let of = |kind: &'static str| frames.values().filter(move |one| one["type"] == kind);
    let refused = of("tool.returned").filter(|one| one["data"]["is_error"] == true);
    let words: Vec<&Value> = refused
        .map(|one| &one["data"]["content"][0]["text"])
        .collect();
    let expected = json!("the outcome has 64 commands already, and may have no more");
    assert_eq!(words, vec![&expected; 14]);
    assert_eq!(of("command.requested").count(), 64);
    let finished = of("agent.finished").next().unwrap();
    let commands = finished["data"]["outcome"]["commands"].as_array().unwrap();
    let payloads: Vec<u64> = commands
        .iter()
        .map(|one| one["payload"].as_u64().unwrap())
        .collect();
    assert_eq!(payloads, (0..64).collect::<Vec<_>>());
    lab.close().await;
}

#[tokio::test]
async fn a_model_emits_what_its_agent_declares_once_its_output_is_accepted() {
    let sink = Sink::new().await;
    let model = Model::scripted(judges).await;
    let (kit, text) = kit(&model, &sink.url);
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[SECRET, KEY]).await;
    let envelope = lab.client.run("judged", json!({"claim": "a"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope}");
    sink.until(|heard| !heard.is_empty()).await;
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let frames = lab.client.frames_by_id(std::slice::from_ref(&run)).await;
    let of = |kind: &str| -> Vec<&Value> {
        let mut of: Vec<&Value> = frames.values().filter(|one| one["type"] == kind).collect();
        of.sort_by_key(|one| one["seq"].as_u64());
        of
    };
    let returned = of("tool.returned");
    let failed: Vec<bool> = returned
        .iter()
        .map(|one| one["data"]["is_error"] == true)
        .collect();
    assert_eq!(failed, [false, false, true]);
    let why = returned[2]["data"]["content"][0]["text"].as_str().unwrap();
    assert!(why.contains("you may emit claim.*"), "{why}");
    let requested = of("command.requested");
    assert_eq!(requested.len(), 1, "the same command counts once");
    assert_eq!(requested[0]["data"]["topic"], "claim.judged");
    let finished = of("agent.finished");
    let emitted = json!([{"type": "emit", "topic": "claim.judged", "payload": "a"}]);
    assert_eq!(finished[0]["data"]["outcome"]["commands"], emitted);
    assert_eq!(sink.heard()[0].json()["payload"], "a");
    // A recompute asks again, comes to the same, and tells nobody.
    let again = lab
        .client
        .post(
            &format!("/runs/{run}/recompute?wait=60"),
            r#"{"step": "judge"}"#,
        )
        .await;
    assert_eq!(again.status, 200, "{}", again.text());
    assert_eq!(again.json()["status"], "clean", "{}", again.text());
    assert_eq!(sink.heard().len(), 1);
    lab.close().await;
}

#[tokio::test]
async fn an_output_that_is_refused_commands_nothing() {
    let sink = Sink::new().await;
    let model = Model::scripted(|call| match call.turn() {
        0 => Said::calls(&[emit("claim.judged", json!(1))]),
        _ => Said::json(&json!({"verdict": 7})),
    })
    .await;
    let (kit, text) = kit(&model, &sink.url);
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[SECRET, KEY]).await;
    let envelope = lab.client.run("judged", json!({"claim": "a"})).await;
    assert_eq!(envelope["error"]["code"], "schema_violation", "{envelope}");
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let frames = lab.client.frames_by_id(&[run]).await;
    assert!(
        frames
            .values()
            .all(|one| one["type"] != "command.requested")
    );
    assert!(sink.heard().is_empty());
    lab.close().await;
}

/// The engine is killed once a run has begun, at another moment each time; what it says is sent by the
/// next one.
#[tokio::test(flavor = "multi_thread")]
async fn whenever_the_engine_is_killed_a_step_emits_once_and_under_one_id() {
    let sink = Sink::scripted(|_| Reply::Now(200, String::new())).await;
    let model = Model::scripted(judges).await;
    let (kit, _) = kit(&model, &sink.url);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let mut runs = Vec::new();
    for round in 0..KILLS {
        let engine = Process::start(kit.dir.path(), &ledger, &[SECRET, KEY]);
        let claim = json!({"claim": format!("claim {round}")});
        runs.push(engine.client().invoke("judged", claim).await);
        // From before the first model call to after the delivery.
        let asked = format!("claim {round}");
        match round % 4 {
            0 => {}
            1 => {
                model
                    .until(|calls| calls.iter().any(|call| call.user() == asked))
                    .await
            }
            2 => {
                let second = |call: &Call| call.user() == asked && call.turn() == 1;
                model.until(|calls| calls.iter().any(second)).await;
            }
            _ => {
                sink.until(|heard| heard.iter().any(|one| one.json()["payload"] == *asked))
                    .await
            }
        }
        engine.kill();
    }
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET, KEY]);
    for run in &runs {
        let envelope = engine.client().ended(run).await;
        assert_eq!(envelope["status"], "complete", "{envelope}");
    }
    let told = |heard: &[crate::support::sink::Heard]| -> BTreeMap<String, BTreeSet<String>> {
        let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for one in heard {
            let payload = one.json()["payload"].to_string();
            told.entry(payload).or_default().insert(one.id.clone());
        }
        told
    };
    sink.until(|heard| told(heard).len() == KILLS).await;
    let told = told(&sink.heard());
    assert!(told.values().all(|ids| ids.len() == 1), "{told:?}");
    for run in runs {
        let frames = engine.client().frames_by_id(&[run]).await;
        let requested = frames
            .values()
            .filter(|one| one["type"] == "command.requested");
        assert_eq!(requested.count(), 1);
    }
    engine.stop();
}
