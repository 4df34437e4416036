//! Recomputes of runs that load worlds: every question is asked again, and the run is decided again
//! with the new replies, to say which objects would differ. The run stays as it is.

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::{engine, goal, replays};
use crate::support::ledgers::{self, Recorded};
use crate::support::model::{KEY, Model, Said};
use crate::support::worlds::{self, Answers};
use crate::support::{Client, KitDir, Sink, Within, guarded};

/// Text becomes reviews, which a model rates. A bad one is apologised for, which is another question.
const REVIEWS: &str = r#"
kind: world
name: reviews
version: 1.0.0
goal:
  - object: {type: Review, data: {text: "{{ goal }} breaks"}}
  - object: {type: Review, data: {text: "{{ goal }} works"}}
objects:
  Review: {schema: {type: object, required: [text], properties: {text: {type: string}, rating: {type: string}, reply: {type: string}}}}
  Alarm: {}
relations:
  about: {from: Alarm, to: Review}
responders:
  - name: rate
    "on": object.created
    type: Review
    ask:
      model: std
      messages:
        - {role: system, content: "Rate it."}
        - {role: user, content: "rate {{ object.data.text }}"}
      output: {schema: {type: object, required: [rating], properties: {rating: {enum: [good, bad]}}}}
    then:
      - patch: {id: "{{ object.id }}", data: {rating: "{{ reply.output.rating }}"}}
  - name: alarm
    "on": object.patched
    type: Review
    changed: [rating]
    when: object.data.rating == 'bad'
    emit:
      - object: {type: Alarm, data: {text: "{{ object.data.text }}"}}
        as: alarm
      - relation: {type: about, from: "{{ alarm.id }}", to: "{{ object.id }}"}
  - name: apologise
    "on": object.patched
    type: Review
    changed: [rating]
    when: object.data.rating == 'bad'
    ask:
      model: fast
      messages: [{role: user, content: "apologise for {{ object.data.text }}"}]
    then:
      - patch: {id: "{{ object.id }}", data: {reply: "{{ reply.text }}"}}
"#;

fn reviews(model: &Model) -> KitDir {
    KitDir::new(&[])
        .with("worlds/reviews.world.yaml", REVIEWS)
        .with("gateway.yaml", &worlds::gateway(model))
}

/// Rates what works as good, and what breaks as bad.
fn rated(user: &str) -> Said {
    match (user.starts_with("rate"), user.ends_with("breaks")) {
        (true, true) => Said::json(&json!({"rating": "bad"})),
        (true, false) => Said::json(&json!({"rating": "good"})),
        (false, _) => Said::Text(format!("{user}!")),
    }
}

/// An engine with a run of a kit that has ended.
struct Stage {
    within: Within,
    store: MemoryStore,
    model: Model,
    _sink: Sink,
    kit: KitDir,
    run: String,
}

impl Stage {
    async fn new(name: &str, kit: KitDir, model: &Model) -> Self {
        let sink = Sink::new().await;
        let store = MemoryStore::new();
        let within = engine(&kit, &store, &sink).await;
        let envelope = within.client.run(name, goal()).await;
        let run = envelope["run_id"].as_str().unwrap().to_owned();
        Self {
            within,
            store,
            model: model.clone(),
            _sink: sink,
            kit,
            run,
        }
    }

    async fn reviews() -> Self {
        let model = Model::scripted(|call| rated(&call.user())).await;
        Self::new("reviews", reviews(&model), &model).await
    }

    fn client(&self) -> &Client {
        &self.within.client
    }

    /// Recomputes the run; it stays as it is, and what was asked is decided again from the record.
    async fn recompute(&self, body: Value) -> Value {
        let before = Recorded::read(&self.store, &self.run);
        let path = format!("/runs/{}/recompute?wait=60", self.run);
        let answer = self
            .client()
            .send("POST", &path, &[], body.to_string())
            .await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let verdict = answer.json();
        let after = Recorded::read(&self.store, &self.run);
        assert_eq!(after.head(), before.head(), "the run has changed");
        let id = verdict["recompute_id"].as_str().unwrap();
        replays(&ledgers::frames(&self.store, id), id);
        verdict
    }

    async fn world(&self) -> Value {
        let answer = self
            .client()
            .get(&format!("/runs/{}/world", self.run))
            .await;
        answer.json()
    }

    /// The id of the object of a type whose text ends like this.
    async fn object(&self, kind: &str, end: &str) -> String {
        let world = self.world().await;
        let mut objects = world["objects"].as_array().unwrap().iter();
        let text = |one: &Value| one["data"]["text"].as_str().unwrap_or_default().to_owned();
        let found = objects.find(|one| one["type"] == kind && text(one).ends_with(end));
        found.unwrap()["id"].as_str().unwrap().to_owned()
    }
}

fn unchanged() -> Value {
    let lists = ["objects", "relations"];
    let kinds = ["added", "removed", "patched"];
    let all = kinds
        .iter()
        .flat_map(|kind| lists.map(|list| format!("{kind}_{list}")));
    all.map(|name| (name, json!([]))).collect()
}

fn task<'a>(verdict: &'a Value, responder: &str, at: usize) -> &'a Value {
    let begin = format!("@{responder}.");
    let tasks = verdict["tasks"].as_array().unwrap().iter();
    let mut found = tasks.filter(|task| task["step"].as_str().unwrap().starts_with(&begin));
    found
        .nth(at)
        .unwrap_or_else(|| panic!("no {responder} {at} in {verdict:#}"))
}

#[tokio::test]
async fn the_same_replies_again_are_clean_and_every_question_is_asked_as_it_was() {
    for name in ["diligence", "research"] {
        let model = Answers::default().model().await;
        let stage = Stage::new(name, worlds::kando(name, &model), &model).await;
        let asked = model.counts();
        let verdict = stage.recompute(json!({})).await;
        assert_eq!(verdict["status"], "clean", "{name}: {verdict:#}");
        assert_eq!(verdict["tasks"].as_array().unwrap().len(), asked.len());
        assert_eq!(verdict["world"], json!({ "diff": unchanged() }));
        // Every request came a second time, byte for byte, and no other.
        let twice = asked.into_iter().map(|(call, count)| (call, count * 2));
        assert_eq!(model.counts(), twice.collect());
    }
}

#[tokio::test]
async fn what_workflows_of_responders_ask_is_asked_again_with_the_questions() {
    let model = Answers::default().model().await;
    let stage = Stage::new("survey", worlds::survey(&model), &model).await;
    let asked = model.counts();
    let verdict = stage.recompute(json!({})).await;
    // A reply that broke its schema breaks it again; the run went on without it.
    assert_eq!(verdict["status"], "schema_violation", "{verdict:#}");
    let careless = task(&verdict, "careless", 0);
    let reason = careless["reason"].as_str().unwrap();
    assert_eq!(reason, "schema_violation: missing required field: never");
    let tasks = verdict["tasks"].as_array().unwrap();
    let others = tasks.iter().filter(|task| task["step"] != careless["step"]);
    assert!(
        others.clone().all(|task| task["status"] == "clean"),
        "{verdict:#}"
    );
    // Three answers, six doubts, three agents of workflows.
    assert_eq!(others.count(), 12);
    assert_eq!(
        task(&verdict, "dig", 2)["step"]
            .as_str()
            .unwrap()
            .split('/')
            .nth(1),
        Some("look")
    );
    assert_eq!(verdict["world"], json!({ "diff": unchanged() }));
    let twice = asked.into_iter().map(|(call, count)| (call, count * 2));
    assert_eq!(model.counts(), twice.collect());

    // Another answer of an agent within a workflow, and another to a question, each with what follows.
    model.say(|call| match call.user().as_str() {
        "dig why the tides" => Said::answer("dug deeper"),
        "answer who the tides" => Said::answer("the moon"),
        _ => worlds::said(call),
    });
    let verdict = stage.recompute(json!({})).await;
    let patched = verdict["world"]["diff"]["patched_objects"]
        .as_array()
        .unwrap();
    let changes: Vec<(&str, &Value)> = patched
        .iter()
        .map(|one| (one["id"].as_str().unwrap(), &one["changes"]))
        .collect();
    let finding = stage.object("Finding", "dig why the tides!").await;
    let question = stage.object("Question", "who the tides").await;
    let topic = stage.object("Topic", "the tides").await;
    let change = |path: &str, before: &str, after: &str| json!([{"path": path, "before": before, "after": after}]);
    let found = |id: &str| changes.iter().find(|(one, _)| *one == id).unwrap().1;
    assert_eq!(changes.len(), 3, "{verdict:#}");
    assert_eq!(
        *found(&finding),
        change("/data/text", "dig why the tides!", "dug deeper")
    );
    assert_eq!(
        *found(&question),
        change("/data/answer", "answer who the tides!", "the moon")
    );
    assert_eq!(
        *found(&topic),
        change("/data/answers/0", "answer who the tides!", "the moon")
    );
    crate::evidence::holds(&stage.store, "a run with two recomputes");
}

#[tokio::test]
async fn another_reply_says_which_objects_would_come_go_and_differ_and_what_would_be_asked() {
    let stage = Stage::reviews().await;
    let (works, breaks) = (
        stage.object("Review", "works").await,
        stage.object("Review", "breaks").await,
    );
    let alarm = stage.object("Alarm", "breaks").await;
    // It rates the other way round.
    stage.model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::json(&json!({"rating": "bad"})),
        "rate the tides breaks" => Said::json(&json!({"rating": "good"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "value_changed", "{verdict:#}");
    assert_eq!(task(&verdict, "apologise", 0)["status"], "clean");
    for at in [0, 1] {
        let changed = task(&verdict, "rate", at);
        assert_eq!(changed["status"], "value_changed");
        assert_eq!(changed["diff"][0]["path"], "/rating");
    }
    let world = &verdict["world"];
    let diff = &world["diff"];
    assert_eq!(diff["removed_objects"], json!([alarm]));
    assert_eq!(diff["added_objects"].as_array().unwrap().len(), 1);
    assert_eq!(diff["added_relations"].as_array().unwrap().len(), 1);
    assert_eq!(diff["removed_relations"].as_array().unwrap().len(), 1);
    let patched: Vec<&str> = diff["patched_objects"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    let mut both = vec![works.as_str(), breaks.as_str()];
    both.sort_unstable();
    assert_eq!(patched, both);
    // One question is new, so nobody has answered it; the recorded one would not be asked.
    let asked = &task(&verdict, "apologise", 0)["step"];
    assert_eq!(world["would_not_ask"], json!([asked]));
    let new = world["would_ask"].as_array().unwrap();
    assert_eq!(new.len(), 1, "{world:#}");
    assert!(new[0].as_str().unwrap().starts_with("@apologise.") && new[0] != *asked);
    assert_eq!(
        world["status"],
        json!({"before": "complete", "after": "running"}),
        "it waits for that answer"
    );
    // It is read again from the record, word for word.
    let id = verdict["recompute_id"].as_str().unwrap();
    let again = stage.client().get(&format!("/runs/{id}/recompute")).await;
    assert_eq!(again.json(), verdict);
}

#[tokio::test]
async fn a_question_that_would_have_other_words_is_named() {
    let guarded = "    when: object.data.rating == 'bad'\n    ask:";
    assert!(REVIEWS.contains(guarded));
    let world = REVIEWS.replace(guarded, "    ask:");
    let world = world.replace(
        "apologise for",
        "apologise for the {{ object.data.rating }}",
    );
    let model = Model::scripted(|call| rated(&call.user())).await;
    let kit = reviews(&model).with("worlds/reviews.world.yaml", &world);
    let stage = Stage::new("reviews", kit, &model).await;
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["world"], json!({ "diff": unchanged() }));
    model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::json(&json!({"rating": "bad"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    let told = verdict["world"]["would_ask_otherwise"].as_array().unwrap();
    assert_eq!(told.len(), 1, "{verdict:#}");
    let asked = [0, 1].map(|at| task(&verdict, "apologise", at)["step"].clone());
    assert!(asked.contains(&told[0]), "{verdict:#}");
    assert!(verdict["world"].get("would_ask").is_none());
}

#[tokio::test]
async fn one_question_alone_is_asked_again_by_its_address() {
    let stage = Stage::reviews().await;
    let whole = stage.recompute(json!({})).await;
    let address = task(&whole, "rate", 1)["step"].clone();
    stage.model.forget();
    let verdict = stage.recompute(json!({ "step": address })).await;
    assert_eq!(stage.model.users(), ["rate the tides works"]);
    assert_eq!(verdict["status"], "clean");
    assert_eq!(verdict["step"], address);
    assert_eq!(verdict["tasks"].as_array().unwrap().len(), 1);
    assert_eq!(verdict["world"], json!({ "diff": unchanged() }));
    let path = format!("/runs/{}/recompute", stage.run);
    let body = r#"{"step": "@rate.0000000000000000"}"#;
    let refused = stage.client().send("POST", &path, &[], body).await;
    assert_eq!(refused.status, 404, "{}", refused.text());
    assert!(
        refused.text().contains(address.as_str().unwrap()),
        "{}",
        refused.text()
    );
}

#[tokio::test]
async fn posts_stay_what_they_were_and_what_follows_from_them_is_compared() {
    let stage = Stage::reviews().await;
    let path = format!("/runs/{}/events", stage.run);
    let post = json!({"type": "object.created", "data": {"type": "Review", "data": {"text": "a kettle breaks"}}});
    let answer = stage.client().post(&path, post.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    stage.client().ended(&stage.run).await;
    let posted = stage.object("Review", "kettle breaks").await;
    let alarm = stage.object("Alarm", "kettle breaks").await;
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "clean", "{verdict:#}");
    assert_eq!(verdict["world"], json!({ "diff": unchanged() }));
    stage.model.say(|call| match call.user().as_str() {
        "rate a kettle breaks" => Said::json(&json!({"rating": "good"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    let diff = &verdict["world"]["diff"];
    assert_eq!(diff["removed_objects"], json!([alarm]), "{verdict:#}");
    assert_eq!(diff["patched_objects"][0]["id"], json!(posted));
    assert_eq!(diff["patched_objects"].as_array().unwrap().len(), 1);
    assert_eq!(diff["added_objects"], json!([]));
}

#[tokio::test]
async fn a_reply_that_breaks_its_schema_would_fail_the_run_and_a_failed_call_says_nothing() {
    let stage = Stage::reviews().await;
    stage.model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::json(&json!({"rating": "splendid"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "schema_violation", "{verdict:#}");
    let broken = task(&verdict, "rate", 1);
    assert_eq!(broken["violations"][0]["rule"], "enum");
    assert_eq!(broken["diff"][0]["after"], "splendid");
    let status = &verdict["world"]["status"];
    assert_eq!(status["after"], "failed", "{verdict:#}");
    assert!(
        status["error"]
            .as_str()
            .unwrap()
            .starts_with("schema_violation: responder rate")
    );
    stage.model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::Error(400),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "failed");
    let failed = task(&verdict, "rate", 1);
    assert_eq!(
        (&failed["status"], &failed["retryable"]),
        (&json!("failed"), &json!(false))
    );
    assert_eq!(
        verdict["world"],
        json!({"diff": unchanged(), "not_applied": [failed["step"]]})
    );
}

#[tokio::test]
async fn a_reply_that_the_run_repeated_is_asked_for() {
    let twice = REVIEWS.replace("{{ goal }} works", "{{ goal }} breaks");
    let model = Model::scripted(|call| rated(&call.user())).await;
    let kit = reviews(&model).with("worlds/reviews.world.yaml", &twice);
    let stage = Stage::new("reviews", kit, &model).await;
    assert_eq!(model.calls().len(), 2, "the second of each is repeated");
    model.forget();
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "clean", "{verdict:#}");
    assert_eq!(verdict["tasks"].as_array().unwrap().len(), 4);
    assert_eq!(model.calls().len(), 4);
    let id = verdict["recompute_id"].as_str().unwrap();
    let frames = stage
        .client()
        .get(&format!("/runs/{id}/frames"))
        .await
        .text();
    assert!(
        !frames.contains("\"cached\":true"),
        "a reply is repeated in the recompute"
    );
}

#[tokio::test]
async fn a_branch_and_a_run_that_a_person_took_up_again_are_recomputed() {
    let stage = Stage::reviews().await;
    let frames = ledgers::frames(&stage.store, &stage.run);
    let at = frames
        .iter()
        .position(|frame| frame.event.kind() == "llm.response")
        .unwrap();
    let fork = json!({"at": at, "go": true}).to_string();
    let answer = stage
        .client()
        .post(&format!("/runs/{}/fork", stage.run), fork)
        .await;
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    stage.client().ended(&branch).await;
    let stage = Stage {
        run: branch,
        ..stage
    };
    let verdict = stage.recompute(json!({})).await;
    assert_eq!(verdict["status"], "clean", "{verdict:#}");
    stage.model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::json(&json!({"rating": "bad"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    let world = &verdict["world"];
    assert_eq!(world.get("reason"), None, "{world:#}");
    assert_eq!(
        world["diff"]["added_objects"].as_array().unwrap().len(),
        1,
        "{world:#}"
    );
    assert_eq!(world["would_ask"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn nothing_is_posted_to_a_recompute_and_no_one_continues_from_it() {
    let stage = Stage::reviews().await;
    let verdict = stage.recompute(json!({})).await;
    let id = verdict["recompute_id"].as_str().unwrap();
    let before = Recorded::read(&stage.store, id).head();
    let post = json!({"type": "note", "data": {"data": {"text": "x"}}}).to_string();
    for (path, body) in [
        ("events", post),
        (
            "resume",
            json!({"raise": {"max_events": 100_000}}).to_string(),
        ),
        ("recompute", "{}".to_owned()),
        ("fork", json!({"at": 3}).to_string()),
    ] {
        let answer = stage
            .client()
            .post(&format!("/runs/{id}/{path}"), body)
            .await;
        assert!(
            (400..500).contains(&answer.status),
            "{path}: {}",
            answer.text()
        );
        assert!(
            answer.text().contains("recompute"),
            "{path}: {}",
            answer.text()
        );
    }
    assert_eq!(Recorded::read(&stage.store, id).head(), before);
}

/// As after a crash at any moment: what is recorded is taken up, and ends in the same verdict.
#[tokio::test]
async fn a_recompute_of_questions_cut_off_after_any_frame_continues_to_the_same_verdict() {
    let stage = Stage::reviews().await;
    stage.model.say(|call| match call.user().as_str() {
        "rate the tides works" => Said::json(&json!({"rating": "bad"})),
        other => rated(other),
    });
    let verdict = stage.recompute(json!({})).await;
    let id = verdict["recompute_id"].as_str().unwrap();
    let (of, made) = (
        Recorded::read(&stage.store, &stage.run),
        Recorded::read(&stage.store, id),
    );
    for count in 1..made.records.len() {
        let mut store = MemoryStore::new();
        of.put(&mut store);
        made.cut(count).put(&mut store);
        let reader = store.clone();
        let within = Within::new(stage.kit.load(), store, Options::default(), &[KEY], None).await;
        guarded("the verdict", within.orchestrator.wait_until_ended(id))
            .await
            .unwrap();
        let again = within
            .client
            .get(&format!("/runs/{id}/recompute"))
            .await
            .json();
        assert_eq!(again, verdict, "cut after {count}");
        replays(&ledgers::frames(&reader, id), &format!("cut after {count}"));
    }
}
