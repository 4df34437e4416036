//! What steps and responders emit, sent to those who subscribe to its topic.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{SECRET, environment, hmac};
use crate::support::process::Process;
use crate::support::sink::{Heard, Reply};
use crate::support::{KitDir, Lab, Sink};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ktsu::assemble::LedgerPlace;

const AGENT: &str = "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {system: s}\n\
     output: {schema: {type: object, properties: {n: {type: integer}}}}\n";
const ONE: &str = "pipeline: [{id: s1, agent: ./agents/judge.agent.yaml}]\n";
/// Tells of each finding, and of what it makes of none.
const WORLD: &str = r#"
kind: world
name: desk
version: 1.0.0
goal:
  - object: {type: Topic, data: {text: "{{ goal }}"}}
objects: {Topic: {}, Finding: {}}
responders:
  - name: finds
    "on": object.created
    type: Topic
    for_each: {items: [1, 2]}
    emit:
      - object: {type: Finding, data: {of: "{{ object.data.text }}", number: "{{ item }}"}}
    publish: {topic: "finding.{{ object.data.text }}", payload: {number: "{{ item }}"}}
  - name: plain
    "on": object.created
    type: Topic
    emit: []
    publish: {topic: goal.seen}
"#;

fn topics(name: &str, topics: &str, url: &str) -> String {
    format!(
        "  - {{name: {name}, topics: '{topics}', url: '{url}', backoff: 5ms, \
         secret: '{{{{ env.HOOK_SECRET }}}}'}}\n"
    )
}

fn kit(commands: &str) -> KitDir {
    KitDir::new(&[("one", ONE)]).with("agents/judge.agent.yaml", &format!("{AGENT}{commands}"))
}

/// A run whose one task ends with an outcome.
async fn ended_with(lab: &Lab, runtime: &Sink, outcome: Value) -> String {
    let before = runtime.heard().len();
    let run = lab.client.invoke("one", json!({})).await;
    runtime.until(|heard| heard.len() > before).await;
    let task = runtime.heard()[before].json();
    let url = task["callback_url"].as_str().unwrap();
    let rest = url.strip_prefix("http://").unwrap();
    let path = &rest[rest.find('/').unwrap()..];
    let mut body = outcome;
    body["status"] = json!("ok");
    assert_eq!(lab.client.post(path, body.to_string()).await.status, 200);
    run
}

fn assert_signed(one: &Heard) {
    let signed = [
        one.id.as_bytes(),
        b".",
        one.timestamp.as_bytes(),
        b".",
        &one.body,
    ]
    .concat();
    let signature = BASE64_STANDARD.encode(hmac(b"secret key", &signed));
    assert_eq!(one.signature, format!("v1,{signature}"));
}

fn emit(topic: &str, payload: Value) -> Value {
    json!({"type": "emit", "topic": topic, "payload": payload})
}

#[tokio::test]
async fn what_a_step_emits_is_sent_once_and_signed_to_those_who_want_its_topic() {
    let sink = Sink::new().await;
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let claims = topics("claims", "claim.*", &sink.url);
    let ends = super::entry("ends", "run.completed", &format!("{}/ends", sink.url), "");
    let text = environment(&[claims, ends]);
    let kit = kit("commands: {emit: ['claim.*', other]}\n");
    let lab = Lab::remote_in(LedgerPlace::Memory, &kit, &text, &[SECRET], &runtime.url).await;
    let outcome = json!({"output": {"n": 1},
        "events": [{"type": "claims_extracted", "payload": {"count": 2}}],
        "commands": [emit("claim.verified", json!({"id": [1, 2]})), emit("other", json!(3)),
            emit("claim.seen", json!(null))]});
    let run = ended_with(&lab, &runtime, outcome).await;
    sink.until(|heard| heard.len() >= 3).await;
    let heard: Vec<Heard> = sink
        .heard()
        .into_iter()
        .filter(|one| one.path != "/ends")
        .collect();
    let told: Vec<Value> = heard.iter().map(Heard::json).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert_eq!(told[0]["topic"], "claim.verified");
    assert_eq!(told[0]["payload"], json!({"id": [1, 2]}));
    assert_eq!(
        (&told[1]["topic"], &told[1]["payload"]),
        (&json!("claim.seen"), &Value::Null)
    );
    for (one, told) in heard.iter().zip(&told) {
        assert_signed(one);
        assert_eq!(
            (&told["run_id"], &told["step"]),
            (&json!(run), &json!("s1"))
        );
    }
    // One append holds the frames, in this order, before the end of the step.
    let frames = lab.client.frames_by_id(std::slice::from_ref(&run)).await;
    let mut frames: Vec<&Value> = frames.values().collect();
    frames.sort_by_key(|frame| frame["seq"].as_u64());
    let kinds: Vec<&str> = frames
        .iter()
        .map(|frame| frame["type"].as_str().unwrap())
        .collect();
    let checked = kinds
        .iter()
        .position(|kind| *kind == "step.output_checked")
        .unwrap();
    assert_eq!(
        kinds[checked + 1..checked + 6],
        [
            "note",
            "command.requested",
            "command.requested",
            "command.requested",
            "step.completed"
        ]
    );
    let note = &frames[checked + 1]["data"];
    assert_eq!(note["type"], "claims_extracted");
    assert_eq!(note["event"]["path"], "/outcome/events/0");
    assert_eq!(told[0]["frame"], frames[checked + 2]["id"]);
    lab.close().await;
}

#[tokio::test]
async fn an_outcome_that_may_not_command_what_it_does_leaves_nothing() {
    let sink = Sink::new().await;
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let text = environment(&[topics("all", "*", &sink.url)]);
    let kit = kit("commands: {emit: [claim.verified]}\n");
    let lab = Lab::remote_in(LedgerPlace::Memory, &kit, &text, &[SECRET], &runtime.url).await;
    let good = emit("claim.verified", json!(1));
    let review = json!({"type": "review", "reason": "r"});
    let suspend = json!({"type": "suspend", "reason": "s", "checkpoint": {}});
    for (commands, output, code) in [
        (
            json!([good, emit("claim.lost", json!(1))]),
            json!({}),
            "command_not_permitted",
        ),
        (json!([good, good]), json!({}), "outcome_invalid"),
        (
            json!([good, suspend.clone()]),
            json!({}),
            "command_not_permitted",
        ),
        (
            json!([good, review.clone()]),
            json!({}),
            "command_not_permitted",
        ),
        (json!([review, suspend]), json!({}), "outcome_invalid"),
        (json!([good]), json!({"n": "text"}), "schema_violation"),
        (
            json!([good]),
            json!({"ktsu_skip_reason": "no"}),
            "outcome_invalid",
        ),
        (
            json!([good]),
            json!({"ktsu_needs_human": true}),
            "needs_human_review",
        ),
    ] {
        let outcome = json!({"output": output, "commands": commands,
            "events": [{"type": "asked"}]});
        let run = ended_with(&lab, &runtime, outcome).await;
        let envelope = lab.client.ended(&run).await;
        assert_eq!(envelope["error"]["code"], code, "{envelope}");
        let frames = lab.client.frames_by_id(&[run]).await;
        let committed = |frame: &&Value| {
            ["note", "command.requested"].contains(&frame["type"].as_str().unwrap())
        };
        assert_eq!(frames.values().filter(committed).count(), 0, "{code}");
    }
    assert_eq!(sink.heard().len(), 0);
    lab.close().await;
}

/// The receiver takes the last of them, and the engine never hears of it; or is killed as soon as it
/// has answered.
#[tokio::test(flavor = "multi_thread")]
async fn what_responders_publish_survives_a_crash_under_the_same_id() {
    let sink = Sink::scripted(|heard| match heard.json()["topic"] == "finding.x" {
        true => Reply::Never,
        false => Reply::Now(200, String::new()),
    })
    .await;
    let text = environment(&[topics("all", "*", &sink.url)]);
    let kit = KitDir::new(&[])
        .with("worlds/desk.world.yaml", WORLD)
        .with("environments/local.env.yaml", &text);
    let dir = tempfile::tempdir().unwrap();
    let ledger = dir.path().join("ledger.db");
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
    let run = engine.client().invoke("desk", json!({"goal": "x"})).await;
    let finding = |heard: &&Heard| heard.json()["topic"] == "finding.x";
    sink.until(|heard| heard.iter().any(|one| finding(&one)))
        .await;
    engine.kill();
    sink.follow(|_| Reply::Now(200, String::new()));
    let before = sink.heard().len();
    let engine = Process::start(kit.dir.path(), &ledger, &[SECRET]);
    let ids =
        |heard: &[Heard]| -> BTreeSet<String> { heard.iter().map(|one| one.id.clone()).collect() };
    sink.until(|heard| heard.len() > before && ids(heard).len() == 3)
        .await;
    let frames = engine.client().frames_by_id(&[run]).await;
    let requested = frames
        .values()
        .filter(|frame| frame["type"] == "command.requested");
    let mut requested: Vec<(Value, Value)> = requested
        .map(|frame| {
            (
                frame["data"]["topic"].clone(),
                frame["data"]["payload"].clone(),
            )
        })
        .collect();
    requested.sort_by_key(|(topic, payload)| format!("{topic}{payload}"));
    assert_eq!(
        requested,
        [
            (json!("finding.x"), json!({"number": 1})),
            (json!("finding.x"), json!({"number": 2})),
            (json!("goal.seen"), json!({})),
        ]
    );
    for one in &sink.heard() {
        assert_signed(one);
        let told = one.json();
        let frame = &frames[told["frame"].as_str().unwrap()];
        assert_eq!(told["payload"], frame["data"]["payload"]);
        assert_eq!(told["responder"], frame["data"]["derived"]["responder"]);
    }
    engine.stop();
}
