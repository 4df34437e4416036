//! Runs that were created with their effects suppressed: nothing leaves the engine because of them,
//! whatever happens to it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{SECRET, entry, environment};
use crate::support::process::Process;
use crate::support::sink::Heard;
use crate::support::{Client, KitDir, Sink};

const KEEPER: &str = r"
name: keeper
version: 1.0.0
model: std
prompt: {system: You keep things., user: keep}
commands: {emit: ['kept.*']}
servers:
  - name: ktsu/kv
    access: {allowlist: [{name: kv-set, require_approval: {on_reject: recover}}]}
output: {schema: {type: object}}
";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1, user: keep}
    tool_calls: [{name: emit, arguments: {topic: kept.all, payload: 1}}]
  - when: {turn: 2, user: keep}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}]
default: {reply: {kept: true}}
"#;
const CHILD: &str = r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink], properties: {sink: {type: string}}}}
pipeline: [{id: say, webhook: {url: "{{ params.sink }}/hook"}}]
"#;
const FLOW: &str = r#"
env: [{name: SINK}]
pipeline:
  - {id: act, agent: ./agents/keeper.agent.yaml}
  - {id: page, on: approval, webhook: {url: "{{ env.SINK }}/hook"}}
  - {id: call, depends_on: [act], workflow: ./child.workflow.yaml, webhooks: execute, params: {sink: "{{ env.SINK }}"}}
  - {id: tell, depends_on: [call], webhook: {url: "{{ env.SINK }}/hook"}}
"#;
const WORLD: &str = r#"
kind: world
name: desk
version: 1.0.0
objects: {Topic: {}}
goal: [{object: {type: Topic}}]
responders:
  - {name: plain, "on": object.created, type: Topic, emit: [], publish: {topic: goal.seen}}
"#;

/// A kit whose every webhook is agreed to, with subscribers to all frames and to all topics.
fn kit(sink: &Sink) -> KitDir {
    let frames = entry("frames", "*", &format!("{}/frames", sink.url), "");
    let topics = entry("topics", "*", &format!("{}/topics", sink.url), "");
    let topics = topics.replace("pattern:", "topics:");
    KitDir::new(&[("flow", FLOW), ("child", CHILD)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES)
        .with("worlds/desk.world.yaml", WORLD)
        .with(
            "environments/local.env.yaml",
            &environment(&[frames, topics]),
        )
}

/// Waits until a run waits for a person.
async fn until_it_asks(client: &Client, run: &str) {
    let mut events = client.events(run, None).await;
    while let Some(event) = events.next().await {
        if event.data.contains("\"approval.requested\"") {
            return;
        }
    }
    panic!("{run} ended without asking");
}

async fn approve(client: &Client, run: &str) -> Value {
    let path = format!("/runs/{run}/steps/act/approval/decide");
    let answer = client.post(&path, r#"{"decision": "approved"}"#).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    client.ended(run).await
}

/// The runs whose frames, or messages about topics, came.
fn runs(heard: &[Heard], path: &str) -> BTreeSet<String> {
    let there = heard.iter().filter(|one| one.path == path);
    there
        .map(|one| one.json()["run_id"].as_str().unwrap().to_owned())
        .collect()
}

fn hooks(heard: &[Heard]) -> usize {
    heard.iter().filter(|one| one.path == "/hook").count()
}

fn has_ended(heard: &[Heard], run: &str) -> bool {
    let mut frames = heard.iter().filter(|one| one.path == "/frames");
    frames.any(|one| {
        let frame = one.json();
        frame["run_id"] == run && frame["type"] == "run.completed" && frame["scope"] == ""
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_sent_of_it_also_after_the_engine_was_killed() {
    let sink = Sink::new().await;
    let kit = kit(&sink);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let pairs = [SECRET, ("SINK", sink.url.as_str())];
    let engine = Process::start(kit.dir.path(), &ledger, &pairs);
    let client = engine.client();
    let run = client.invoke("flow?effects=suppress", json!({})).await;
    let goal = json!({"goal": "x"});
    let world = client.invoke("desk?effects=suppress", goal.clone()).await;
    client.ended(&world).await;
    until_it_asks(&client, &run).await;
    engine.kill();

    let engine = Process::start(kit.dir.path(), &ledger, &pairs);
    let client = engine.client();
    let envelope = approve(&client, &run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["effects"], "suppress");
    let frames = client.frames(&run).await;
    let all = |kind: &str| -> Vec<&Value> {
        let frames = frames.iter().filter(|frame| frame["type"] == kind);
        frames.map(|frame| &frame["data"]).collect()
    };
    assert_eq!(all("run.created")[0]["effects"], "suppress");
    assert_eq!(all("webhook.sent"), Vec::<&Value>::new());
    let skipped = all("step.skipped");
    let reasons = skipped.iter().map(|one| one["reason"].as_str().unwrap());
    assert_eq!(
        reasons.filter(|one| *one == "webhooks_suppressed").count(),
        2,
        "{skipped:?}"
    );
    assert!(
        all("command.requested")
            .iter()
            .all(|one| one["suppressed"] == true)
    );
    // What lasts is changed: it is part of what the run does.
    let called = all("tool.called");
    assert!(
        called.iter().any(|one| one["tool"] == "kv-set"),
        "{called:?}"
    );
    assert!(
        all("tool.returned")
            .iter()
            .all(|one| one.get("not_sent").is_none())
    );

    // A branch of it is as silent, and so is a recompute. One that is to execute its effects is not.
    let fork = |effects: Value| {
        let (client, run) = (client.clone(), run.clone());
        let mut body = json!({"before": "call", "go": true});
        if effects.is_string() {
            body["effects"] = effects;
        }
        async move {
            let path = format!("/runs/{run}/fork");
            let answer = client.post(&path, body.to_string()).await;
            assert_eq!(answer.status, 201, "{}", answer.text());
            let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
            client.ended(&branch).await;
            branch
        }
    };
    fork(Value::Null).await;
    let again = client.post(&format!("/runs/{run}/recompute"), "{}").await;
    assert_eq!(again.status, 202, "{}", again.text());
    let again = again.json()["run_id"].as_str().unwrap().to_owned();
    client.ended(&again).await;
    let heard = sink.heard();
    assert_eq!(hooks(&heard), 0);
    let loud = fork(json!("execute")).await;

    // Ordinary runs are sent, and what was appended before them was passed over.
    let plain = client.invoke("flow", json!({})).await;
    until_it_asks(&client, &plain).await;
    approve(&client, &plain).await;
    let published = client.run("desk", goal).await["run_id"].clone();
    let published = published.as_str().unwrap().to_owned();
    sink.until(|heard| {
        let topics = runs(heard, "/topics");
        let frames = [&loud, &plain, &published];
        let frames = frames.iter().all(|run| has_ended(heard, run));
        frames && topics.contains(&plain) && topics.contains(&published)
    })
    .await;
    let heard = sink.heard();
    let expected = BTreeSet::from([loud, plain.clone(), published.clone()]);
    assert_eq!(runs(&heard, "/frames"), expected);
    let expected = BTreeSet::from([plain, published]);
    assert_eq!(runs(&heard, "/topics"), expected);
    // The branch: the child's and the last; the run: the notice, too.
    assert_eq!(hooks(&heard), 5);
    engine.stop();
}
