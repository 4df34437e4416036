//! Two users of one workflow act with keys of their own (seed 001 on credentials, decision K3).

use std::collections::BTreeMap;

use ktsu::assemble::{self, Agents, LedgerPlace, OpenEngineError, Setup};
use ktsu_environment::Environment;
use serde_json::{Value, json};

use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, process};

pub(super) const ADA: &str = "ada-own-key/1+2";
const BEA: &str = "bea-own-key \"3\"";
pub(super) const ALL: &str = "key-for-everybody";

/// Ada and Bea have keys of their own; Cid acts with the one for everybody.
pub(super) fn environment(shared: bool) -> String {
    let everybody = if shared {
        "KEY: key-for-everybody, "
    } else {
        ""
    };
    let cid = if shared { "operator" } else { "viewer" };
    format!(
        "egress: {{allow: [127.0.0.1]}}
variables: {{{everybody}TA: token-of-ada, TB: token-of-bea, TC: token-of-cid, TR: token-of-root,
  KA: '{ADA}', KB: '{BEA}'}}
principals:
  - {{name: ada, token: {{env: TA}}, roles: [operator], secrets: {{KEY: {{env: KA}}}}}}
  - {{name: bea, token: {{env: TB}}, roles: [operator], secrets: {{KEY: {{env: KB}}}}}}
  - {{name: cid, token: {{env: TC}}, roles: [{cid}, auditor]}}
  - {{name: root, token: {{env: TR}}, roles: [admin], secrets: {{KEY: {{env: KA}}}}}}
"
    )
}

pub(super) fn kit() -> KitDir {
    KitDir::new(&[(
        "call",
        r#"
env: [{name: KEY, secret: true}, {name: SINK}]
params: {schema: {type: object, properties: {who: {default: nobody}, to: {default: x}}}}
pipeline:
  - id: shape
    transform: {inputs: [{from: "{to: params.to}"}], ops: []}
  - id: send
    webhook:
      url: "{{ env.SINK }}/{{ shape.result.to }}"
      body: {who: "{{ params.who }}", key: "{{ env.KEY }}"}
"#,
    )])
}

pub(super) fn as_one(lab: &Lab, who: &str) -> Client {
    Client::showing(&lab.engine.url, &format!("token-of-{who}"))
}

/// Nothing that is recorded or answered holds a key or a token.
async fn assert_clean(lab: &Lab, run: &str) {
    let auditor = as_one(lab, "cid");
    for below in ["", "/envelope", "/frames?expand=true", "/trace"] {
        let text = auditor.get(&format!("/runs/{run}{below}")).await.text();
        for secret in ["ada-own", "bea-own", ALL, "token-of"] {
            assert!(!text.contains(secret), "{below}: {text}");
        }
    }
}

#[tokio::test]
async fn each_webhook_carries_the_key_of_whoever_started_its_run() {
    // The receiver gives back what it got: nobody's key may come in, either.
    let sink =
        Sink::scripted(|heard| Reply::Now(200, String::from_utf8_lossy(&heard.body).into_owned()))
            .await;
    let kit = kit();
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(true), &pairs).await;
    let keys = BTreeMap::from([("ada", ADA), ("bea", BEA), ("cid", ALL)]);
    let mut runs = tokio::task::JoinSet::new();
    for _ in 0..40 {
        for who in keys.keys().copied() {
            let client = as_one(&lab, who);
            runs.spawn(async move { client.run("call", json!({"who": who})).await });
        }
    }
    let envelopes = runs.join_all().await;
    let heard = sink.heard();
    assert_eq!(heard.len(), 120);
    for one in &heard {
        let body = one.json();
        let who = body["who"].as_str().unwrap();
        assert_eq!(body["key"], keys[who], "{who}");
    }
    for envelope in envelopes.iter().take(12) {
        assert_eq!(envelope["status"], "complete");
        assert_eq!(envelope["env"]["KEY"], "[REDACTED]");
        assert_clean(&lab, envelope["run_id"].as_str().unwrap()).await;
    }
    lab.close().await;
}

/// Recovery, resumption and branches find the key again by the name in `run.created`.
#[tokio::test]
async fn a_run_keeps_the_key_of_its_starter_whoever_takes_it_up() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let place = || LedgerPlace::File(dir.path().join("ledger.db"));
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::in_environment(place(), &kit, &environment(false), &pairs).await;
    let run = as_one(&lab, "bea")
        .invoke("call", json!({"who": "bea"}))
        .await;
    sink.until(|heard| heard.len() == 1).await;
    lab.close().await;
    sink.follow(|_| Reply::Now(200, String::new()));
    let lab = Lab::in_environment(place(), &kit, &environment(false), &pairs).await;
    let auditor = as_one(&lab, "cid");
    assert_eq!(auditor.ended(&run).await["status"], "complete");
    // Another operator lets it send once more.
    let path = format!("/runs/{run}/resume");
    let resumed = as_one(&lab, "ada").post(&path, r#"{"from":"send"}"#).await;
    assert_eq!(resumed.status, 202, "{}", resumed.text());
    auditor.ended(&run).await;
    // And a branch that does the same in another's name.
    let fork = json!({"before": "send", "effects": "execute", "go": true}).to_string();
    let branch = as_one(&lab, "ada")
        .post(&format!("/runs/{run}/fork"), fork)
        .await;
    assert_eq!(branch.status, 201, "{}", branch.text());
    let branch = branch.json()["run_id"].as_str().unwrap().to_owned();
    auditor.ended(&branch).await;
    let keys: Vec<Value> = sink
        .heard()
        .iter()
        .map(|one| one.json()["key"].clone())
        .collect();
    assert_eq!(keys.len(), 4, "{keys:?}");
    assert!(keys.iter().all(|key| key == BEA), "{keys:?}");
    assert_clean(&lab, &run).await;
    assert_clean(&lab, &branch).await;
    lab.close().await;
}

/// What a run does with somebody's key is for that somebody to change.
#[tokio::test]
async fn no_one_sends_the_key_of_another_elsewhere() {
    let sink = Sink::new().await;
    let kit = kit();
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(true), &pairs).await;
    let started = as_one(&lab, "ada").run("call", json!({"who": "ada"})).await;
    let run = started["run_id"].as_str().unwrap();
    let overlay =
        json!({"step": "shape", "field": "result", "value": {"to": "evil"}, "reason": "r"});
    let fork = json!({"at": 1, "set": {"params.to": "evil"}, "effects": "execute"});
    let laid = json!({"before": "send", "set": {"step.shape.output.result": {"to": "evil"}}});
    let definition = as_one(&lab, "cid")
        .get(&format!("/runs/{run}/frames?expand=true"))
        .await
        .json();
    let definition = &definition["frames"][0]["data"]["definition"];
    assert!(definition.is_object(), "{definition}");
    let other = json!({"at": 1, "definition": definition, "effects": "execute"});
    let before = sink.heard().len();
    for (word, body) in [
        ("overlay", &overlay),
        ("fork", &fork),
        ("fork", &laid),
        ("fork", &other),
    ] {
        let answer = as_one(&lab, "bea")
            .post(&format!("/runs/{run}/{word}"), body.to_string())
            .await;
        assert_eq!(answer.status, 403, "{word} {body}: {}", answer.text());
        assert_eq!(answer.json()["code"], "forbidden");
        assert!(answer.text().contains("KEY"), "{}", answer.text());
    }
    for who in ["ada", "root"] {
        for (word, body, good) in [
            ("fork", &fork, 201),
            ("fork", &other, 201),
            ("overlay", &overlay, 200),
        ] {
            let answer = as_one(&lab, who)
                .post(&format!("/runs/{run}/{word}"), body.to_string())
                .await;
            assert_eq!(answer.status, good, "{who} {word}: {}", answer.text());
        }
    }
    // A definition of one's own would act with the value for everybody, too.
    let started = as_one(&lab, "cid").run("call", json!({})).await;
    let run = started["run_id"].as_str().unwrap();
    let path = format!("/runs/{run}/fork");
    assert_eq!(
        as_one(&lab, "cid")
            .post(&path, other.to_string())
            .await
            .status,
        403
    );
    assert_eq!(
        as_one(&lab, "cid")
            .post(&path, fork.to_string())
            .await
            .status,
        201
    );
    assert_eq!(
        sink.heard().len(),
        before + 1,
        "branches wait until somebody lets them go on"
    );
    lab.close().await;
}

/// Whoever runs the engine is no principal, and has no key of one.
#[tokio::test]
async fn who_has_no_key_starts_no_run_that_needs_one() {
    let kit = kit();
    let pairs = [("SINK", "http://127.0.0.1:9")];
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &environment(false), &pairs).await;
    let within = Client::within(lab.engine.router.clone());
    let answer = within.post("/invoke/call", "{}").await;
    assert_eq!(answer.status, 403, "{}", answer.text());
    assert!(answer.text().contains("KEY"), "{}", answer.text());
    let shown = [("ktsu-token", "token-of-ada")];
    assert_eq!(
        within
            .send("POST", "/invoke/call", &shown, "{}")
            .await
            .status,
        202
    );
    let runs = within.get("/runs").await.json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
    lab.close().await;
}

#[tokio::test]
async fn a_principal_without_a_key_is_named_at_the_start() {
    let kit = kit();
    let path = kit.dir.path().join("x.env.yaml");
    let text = environment(false).replace("[viewer, auditor]", "[operator]");
    std::fs::write(&path, text).unwrap();
    let opened = assemble::open(Setup {
        kit: kit.load(),
        environment: Some(Environment::load(&path).unwrap()),
        process: process(&[("SINK", "http://127.0.0.1:9")]),
        ledger: LedgerPlace::Memory,
        listen: ([127, 0, 0, 1], 0).into(),
        clock: None,
        agents: Agents::here(),
        own_url: None,
        certificates: None,
        service_token: None,
        standby: None,
        kit_checks: Default::default(),
        gateway: None,
        resume_unfinished: true,
        read_again: None,
    });
    let Err(OpenEngineError::Environment { workflow, error }) = opened.await else {
        panic!("it started")
    };
    assert_eq!(workflow, "call");
    assert_eq!(
        error.to_string(),
        "no value for KEY, and principal cid has none of their own"
    );
}

/// A secret param by value: no run, and the value is nowhere.
#[tokio::test]
async fn a_secret_param_by_value_is_refused_with_its_place() {
    let kit = KitDir::new(&[(
        "w",
        r#"
params:
  schema:
    type: object
    required: [name]
    properties:
      name: {type: string}
      token: {type: string, secret: true}
      nested: {type: object, default: {}, properties: {key: {secret: true}}}
pipeline: [{id: s, transform: {inputs: [{from: params.name}], ops: []}}]
"#,
    )]);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let lab = Lab::on_file(&ledger, &kit, &[]).await;
    let canary = "canary-5up3r-s3cret";
    for (body, pointer) in [
        (json!({"name": "a", "token": canary}), "/token"),
        (
            json!({"name": "a", "nested": {"key": canary}}),
            "/nested/key",
        ),
        (json!({"name": 5, "token": [canary]}), "/token"),
    ] {
        let headers = [("idempotency-key", "k")];
        let answer = lab
            .client
            .send("POST", "/invoke/w", &headers, body.to_string())
            .await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        assert_eq!(answer.json()["code"], "invalid_params");
        assert_eq!(answer.json()["errors"][0]["path"], pointer);
        assert_eq!(answer.json()["errors"][0]["rule"], "secret");
        assert!(!answer.text().contains(canary));
    }
    assert_eq!(lab.client.get("/runs").await.json(), json!({"runs": []}));
    let run = lab.client.run("w", json!({"name": "a"})).await;
    let run = run["run_id"].as_str().unwrap();
    let fork = json!({"at": 1, "set": {"params.token": canary}}).to_string();
    let answer = lab.client.post(&format!("/runs/{run}/fork"), fork).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    assert_eq!(answer.json()["errors"][0]["path"], "/token");
    lab.close().await;
    for entry in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(entry.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(canary));
    }
}

/// Seed 000, invariant 13: what a workflow is does not depend on where it runs.
#[tokio::test]
async fn the_digest_of_a_workflow_does_not_change_with_the_environment() {
    let sinks = [Sink::new().await, Sink::new().await];
    let mut digests = Vec::new();
    for (sink, shared) in sinks.iter().zip([true, false]) {
        let kit = kit();
        let text = environment(shared).replace(
            "variables: {",
            &format!("variables: {{SINK: '{}', ", sink.url),
        );
        let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[]).await;
        let run = as_one(&lab, "ada").run("call", json!({"to": "here"})).await;
        assert_eq!(run["status"], "complete");
        let frames = as_one(&lab, "cid")
            .frames(run["run_id"].as_str().unwrap())
            .await;
        digests.push(frames[0]["data"]["digest"].clone());
        assert_eq!(sink.heard().len(), 1);
        lab.close().await;
    }
    assert!(digests[0].is_string());
    assert_eq!(digests[0], digests[1]);
}
