//! The acceptance cases about worlds, a test each. One of them, that a broken snapshot of a world
//! changes nothing, has none: there is no such file, and a world at any frame is a fold of the frames.
//!
//! Frames of a case are folded as they are, and posted to a run: a run begins with frames of its own,
//! so theirs have other numbers there.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::store::{SqliteReader, SqliteStore, Store as _};
use ktsu_ledger::{Entry, Frame, Hash};
use ktsu_projections::Lineage;
use ktsu_projections::world::World;
use serde_json::{Map, Value, json};

use crate::golden::written;
use crate::support::ledgers::Recorded;
use crate::support::model::{KEY, Model, Said};
use crate::support::sink::Reply;
use crate::support::worlds::{gateway, kando, said};
use crate::support::{Client, KitDir, Lab, Sink};

/// The types of the cases, and nothing that reacts to them.
const NODES: &str = r#"
kind: world
name: nodes
version: 1.0.0
objects: {Node: {}}
relations: {supports: {}}
"#;

/// A model is asked about each topic.
const TOPICS: &str = r#"
kind: world
name: topics
version: 1.0.0
objects: {Topic: {}, Remark: {}}
responders:
  - name: remark
    "on": object.created
    type: Topic
    ask:
      model: std
      messages: [{role: user, content: "{{ object.data.text }}"}]
    then:
      - object: {type: Remark, data: {text: "{{ reply.text }}"}}
"#;

/// The case of a name.
fn case(name: &str) -> Value {
    let text = include_str!("../../cases/world-cases.json");
    let all: Vec<Value> = serde_json::from_str(text).unwrap();
    let found = all.into_iter().find(|case| case["name"] == name);
    found.unwrap_or_else(|| panic!("there is no case {name:?}"))
}

/// The frames of a case, as a ledger could have them.
fn frames(case: &Value) -> Vec<Frame> {
    let all = case["input"]["frames"].as_array().unwrap();
    let place = |id: &Value| all.iter().position(|frame| frame["id"] == *id).unwrap();
    let frames = (0u64..).zip(all).map(|(seq, frame)| {
        let cause: Vec<usize> = frame["cause"]
            .as_array()
            .unwrap()
            .iter()
            .map(place)
            .collect();
        let body = json!({"v": 1, "stream": "run:case", "seq": seq, "type": frame["type"],
            "scope": "", "actor": "orchestrator", "cause": cause,
            "at": "2027-01-15T08:00:00.000000Z", "data": frame["data"], "ext": [],
            "prev": Hash::ZERO});
        written(seq, &body).decode_bare().unwrap()
    });
    frames.collect()
}

fn fold(case: &Value) -> World {
    World::fold(Arc::default(), &frames(case))
}

/// Objects and relations by their ids, with the members that cases name.
fn named(list: &Value) -> Value {
    let all = list.as_array().unwrap().iter().map(|one| {
        let mut members = one.as_object().unwrap().clone();
        let relates = members.contains_key("source_id");
        members.retain(|name, _| match name.as_str() {
            "type" | "source_id" | "target_id" => true,
            "data" => !relates,
            _ => false,
        });
        (one["id"].as_str().unwrap().to_owned(), json!(members))
    });
    json!(all.collect::<Map<_, _>>())
}

fn nodes() -> KitDir {
    KitDir::new(&[]).with("worlds/nodes.world.yaml", NODES)
}

/// A complete run without a goal.
async fn begun(client: &Client, workflow: &str) -> String {
    let envelope = client.run(workflow, json!({})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    envelope["run_id"].as_str().unwrap().to_owned()
}

async fn post(client: &Client, run: &str, event: &Value) -> u16 {
    let path = format!("/runs/{run}/events");
    client.post(&path, event.to_string()).await.status
}

/// An event of a case, without what says where it stood.
fn event(frame: &Value) -> Value {
    json!({"type": frame["type"], "data": frame["data"]})
}

/// The world of a run to which the events of a case are posted.
async fn posted(case: &Value) -> Value {
    let kit = nodes();
    let lab = Lab::new(&kit, &[]).await;
    let run = begun(&lab.client, "nodes").await;
    for frame in case["input"]["frames"].as_array().unwrap() {
        assert_eq!(post(&lab.client, &run, &event(frame)).await, 200, "{frame}");
    }
    let ended = lab.client.ended(&run).await;
    assert_eq!(ended["status"], "complete", "{ended:#}");
    let world = lab.client.get(&format!("/runs/{run}/world")).await.json();
    lab.close().await;
    world
}

/// What the program says on this ledger: its exit code and standard output.
fn ktsu(ledger: &Path, arguments: &[&str]) -> (i32, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ktsu"))
        .args(arguments)
        .arg("--ledger")
        .arg(ledger)
        .env_clear()
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    let code = output.status.code().unwrap_or(-1);
    (code, String::from_utf8(output.stdout).unwrap())
}

#[tokio::test]
async fn a_nested_value_is_replaced_and_not_merged() {
    let case = case("nested value is replaced, not merged");
    let wanted = &case["expect"]["objects"];
    assert_eq!(named(&posted(&case).await["objects"]), *wanted);
    let world = fold(&case);
    let object = world.object("o1").unwrap();
    assert_eq!(object.data.to_value(), wanted["o1"]["data"]);
    assert_eq!(*object.kind, *wanted["o1"]["type"].as_str().unwrap());
}

#[tokio::test]
async fn a_relation_is_removed_once_and_again_and_may_relate_what_does_not_exist() {
    let case = case("relation removal, repeated removal and dangling endpoints");
    let wanted = &case["expect"]["relations"];
    let world = posted(&case).await;
    assert_eq!(named(&world["relations"]), *wanted);
    assert_eq!(world["objects"], json!([]));
    let world = fold(&case);
    let ids = |relations: Vec<&str>| json!(relations);
    let all = world.relations();
    let all = all.iter().map(|relation| &*relation.id);
    assert_eq!(ids(all.collect()), json!(["r2"]));
    let left = world.relations_of("ghost1", None);
    assert_eq!(
        ids(left.map(|relation| &*relation.id).collect()),
        json!(["r2"])
    );
}

/// Decision F8. The frame that `verify` names is the one behind the beginning of its run.
#[tokio::test]
async fn a_patch_of_a_missing_object_is_refused_found_by_verify_and_ignored_by_the_fold() {
    let case = case("patch of a missing object");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let kit = nodes();
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let run = begun(&lab.client, "nodes").await;
    let frames = lab.client.frames(&run).await.len();
    let patch = event(&case["input"]["frames"][0]);
    let status = post(&lab.client, &run, &patch).await;
    assert!((400..500).contains(&status), "{status}");
    assert_eq!(lab.client.frames(&run).await.len(), frames);
    let node =
        json!({"type": "object.created", "data": {"id": "node1", "type": "Node", "data": {}}});
    assert_eq!(post(&lab.client, &run, &node).await, 200);
    let there = json!({"type": "object.patched", "data": {"id": "node1", "patch": {"x": 1}}});
    assert_eq!(post(&lab.client, &run, &there).await, 200);
    lab.client.ended(&run).await;
    lab.close().await;

    // Somebody else's ledger, in which the patch stands all the same.
    let honest = Recorded::read(&SqliteReader::open(&path).unwrap(), &run);
    let forged = crate::evidence::book::rechained(&honest, |_, body| {
        match body.contains("\"type\":\"object.patched\"") {
            true => body.replace("\"id\":\"node1\"", "\"id\":\"ghost\""),
            false => body,
        }
    });
    let at = honest.frames();
    let at = at.iter().find(|one| one.event.kind() == "object.patched");
    let at = at.unwrap().seq;
    let foreign = folder.path().join("foreign.db");
    let mut store = SqliteStore::open(&foreign).unwrap();
    let epoch = store.acquire().unwrap();
    let entry = Entry::from_records(&forged.stream, forged.records.clone(), forged.blobs);
    for outcome in store.append(epoch, &[entry.unwrap()]).unwrap() {
        outcome.unwrap();
    }
    drop(store);
    let (code, said) = ktsu(&foreign, &["verify", "--json"]);
    assert_eq!(code, 1, "{said}");
    let said: Value = serde_json::from_str(&said).unwrap();
    let mut problems = said["report"]["problems"].as_array().unwrap().iter();
    let named = problems.any(|problem| {
        problem["seq"] == at && problem["message"].as_str().unwrap().contains("ghost")
    });
    assert!(named, "frame {at}: {said:#}");

    let wanted = &case["expect"]["permissive_projection_of_foreign_ledger"];
    let world = fold(&case);
    assert_eq!(json!(world.object_count()), json!(0));
    assert_eq!(json!(world.ignored_patches()), wanted["ignored_frames"]);
}

#[tokio::test]
async fn a_responder_that_sets_itself_off_ends_at_the_limit_of_depth() {
    let case = case("depth limit ends a self-triggering responder");
    let limits = &case["input"]["budget"];
    let world = format!(
        "{NODES}budget: {limits}\n\
         goal: [{{object: {{type: Node}}}}]\n\
         responders:\n  \
         - {{name: again, \"on\": object.created, type: Node, emit: [{{object: {{type: Node}}}}]}}\n"
    );
    let kit = KitDir::new(&[]).with("worlds/nodes.world.yaml", &world);
    let lab = Lab::new(&kit, &[]).await;
    let envelope = lab.client.run("nodes", json!({"goal": "depth"})).await;
    let wanted = &case["expect"];
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let frames = lab.client.frames(run).await;
    assert!((frames.len() as u64) < wanted["ledger_length_below"].as_u64().unwrap());
    let ends = frames
        .iter()
        .filter(|one| one["type"] == "budget.exhausted");
    let ends: Vec<&Value> = ends.collect();
    assert_eq!(json!(ends.len()), wanted["exhausted_count"]);
    let reasons = ends[0]["data"]["reasons"].as_array().unwrap();
    assert!(reasons.contains(&wanted["reasons_contain"]), "{reasons:?}");
    lab.close().await;
}

#[tokio::test]
async fn a_trace_of_a_diamond_has_every_frame_once() {
    let case = case("diamond trace");
    let all = case["input"]["frames"].as_array().unwrap();
    let lineage = Lineage::from_frames(&frames(&case));
    let traced = |id: &Value| -> Vec<&str> {
        let at = all.iter().position(|frame| frame["id"] == *id).unwrap();
        let reached = lineage.ancestors(at as u64).into_iter();
        let id = |seq: u64| all[usize::try_from(seq).unwrap()]["id"].as_str().unwrap();
        reached.map(id).collect()
    };
    let mut found = traced(&case["input"]["trace"]);
    assert_eq!(json!(found[0]), case["expect"]["first"]);
    // Each once: the list has no more of them.
    found.sort_unstable();
    assert_eq!(json!(found), case["expect"]["ids_sorted"]);
    assert_eq!(json!(traced(&json!("a"))), case["expect"]["trace_of_a"]);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let kit = nodes();
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let run = begun(&lab.client, "nodes").await;
    lab.close().await;
    assert_eq!(ktsu(&path, &["trace", &run, "0"]).0, 0);
    assert_eq!(ktsu(&path, &["trace", &run, "999"]).0, 2);
}

#[tokio::test]
async fn a_branch_reads_the_replies_that_it_shares_and_no_one_reads_its_own() {
    let case = case("branch cache isolation");
    let model = Model::scripted(said).await;
    let kit = KitDir::new(&[])
        .with("worlds/topics.world.yaml", TOPICS)
        .with("gateway.yaml", &gateway(&model));
    let lab = Lab::new(&kit, &[KEY]).await;
    let client = &lab.client;
    let run = begun(client, "topics").await;
    let asks = async |run: &str, text: &str| {
        let topic =
            json!({"type": "object.created", "data": {"type": "Topic", "data": {"text": text}}});
        assert_eq!(post(client, run, &topic).await, 200);
        let ended = client.ended(run).await;
        assert_eq!(ended["status"], "complete", "{ended:#}");
    };
    asks(&run, "P").await;
    let mut branches = Vec::new();
    for _ in 0..2 {
        let path = format!("/runs/{run}/fork");
        let made = client.post(&path, r#"{"go": true}"#).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let branch = made.json()["branch_id"].as_str().unwrap().to_owned();
        client.ended(&branch).await;
        branches.push(branch);
    }
    asks(&branches[0], "P").await;
    asks(&branches[0], "Q").await;
    asks(&branches[1], "Q").await;
    asks(&run, "Q").await;
    for (text, count) in case["expect"]["upstream_calls"].as_object().unwrap() {
        let calls = model.users().into_iter().filter(|user| user == text);
        assert_eq!(json!(calls.count()), *count, "{text}");
    }
    lab.close().await;
}

#[tokio::test]
async fn a_fork_at_a_frame_that_is_not_there_makes_no_branch() {
    let case = case("invalid fork point");
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let kit = nodes();
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let run = begun(&lab.client, "nodes").await;
    let frames = lab.client.frames(&run).await.len();
    lab.close().await;
    let wanted = i32::try_from(case["expect"]["exit_code"].as_i64().unwrap()).unwrap();
    // The cases are of a run of six frames: before the first, and one behind its end.
    assert_eq!(case["input"]["fork_at"], json!([-1, 7]));
    let behind = (frames + 1).to_string();
    for (run, at) in [(run.as_str(), "-1"), (&run, &behind), ("run_unknown", "1")] {
        let at = format!("--at={at}");
        let (code, said) = ktsu(&path, &["fork", run, &at]);
        assert_eq!(code, wanted, "{run} {at}: {said}");
    }
    let (_, listed) = ktsu(&path, &["runs", "--json"]);
    let listed: Value = serde_json::from_str(&listed).unwrap();
    let runs = listed["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 1, "{listed:#}");
}

/// The frames that are compared are more than those of the world, which the case counts.
#[tokio::test]
async fn a_run_is_replayed_offline_and_its_hash_is_verified() {
    let case = case("strict replay is offline and hash-verified");
    let model = Model::scripted(said).await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ledger.db");
    let kit = kando("research", &model);
    let lab = Lab::on_file(&path, &kit, &[KEY]).await;
    let envelope = lab.client.run("research", json!({"goal": "tides"})).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let run = envelope["run_id"].as_str().unwrap();
    let world = lab.client.get(&format!("/runs/{run}/world")).await.json();
    assert_eq!(world["events"], case["expect"]["frames_compared"]);
    lab.close().await;
    let calls = model.calls().len();
    model.say(|_| Said::Error(500));
    let (code, said) = ktsu(&path, &["replay", run, "--strict"]);
    assert_eq!(json!(code), case["expect"]["exit_code"], "{said}");
    assert_eq!(model.calls().len(), calls, "a replay calls nobody");
    let recorded = Recorded::read(&SqliteReader::open(&path).unwrap(), run);
    let end = recorded.frames().pop().unwrap();
    assert_eq!(end.event.data()["world"], world["world_hash"]);
    assert_eq!(envelope["world"]["world_hash"], world["world_hash"]);
}

#[tokio::test]
async fn diligence_has_its_shape_with_a_provider_and_without() {
    let case = case("diligence shape");
    let input = &case["input"];
    for (at, provider) in input["provider"].as_array().unwrap().iter().enumerate() {
        let model = Model::scripted(said).await;
        let kit = kando("diligence", &model);
        if provider == "none" {
            std::fs::remove_file(kit.dir.path().join("gateway.yaml")).unwrap();
        }
        let lab = Lab::new(&kit, &[KEY]).await;
        let goal = json!({"goal": input["goal"]});
        let envelope = lab.client.run("diligence", goal).await;
        let run = envelope["run_id"].as_str().unwrap();
        let world = lab.client.get(&format!("/runs/{run}/world")).await.json();
        assert_eq!(
            world["events"], case["expect"]["frames"][at],
            "{envelope:#}"
        );
        assert_eq!(envelope["world"]["objects"], case["expect"]["objects"]);
        let mut objects = world["objects"].as_array().unwrap().iter();
        let claim = objects.find(|one| one["type"] == "Claim").unwrap();
        assert_eq!(claim["data"]["status"], case["expect"]["claim_status"][at]);
        lab.close().await;
    }
}

/// `*` is every frame of a run here, and not those of its world alone.
#[tokio::test]
async fn a_subscriber_that_fails_changes_nothing_for_others_and_in_the_ledger() {
    let case = case("failing subscriber is isolated");
    let sink = Sink::scripted(|heard| match heard.path == "/fails" {
        true => Reply::Now(500, String::new()),
        false => Reply::Now(204, String::new()),
    });
    let sink = sink.await;
    let mut entries = String::from("subscriptions:\n");
    for (name, pattern) in [("fails", "object.*"), ("all", "*")] {
        entries += &format!(
            "  - {{name: {name}, pattern: '{pattern}', url: '{}/{name}', \
             secret: '{{{{ env.HOOK_SECRET }}}}', backoff: 1ms, attempts: 3}}\n",
            sink.url
        );
    }
    let secret = ("HOOK_SECRET", "whsec_c2VjcmV0IGtleQ==");
    let kinds = async |text: &str| {
        let kit = nodes();
        let place = LedgerPlace::Memory;
        let lab = Lab::in_environment(place, &kit, text, &[secret]).await;
        let run = begun(&lab.client, "nodes").await;
        for event in [
            json!({"type": "object.created", "data": {"id": "o1", "type": "Node", "data": {}}}),
            json!({"type": "relation.created", "data": {"id": "r1", "type": "supports",
                "source_id": "o1", "target_id": "o2"}}),
        ] {
            assert_eq!(post(&lab.client, &run, &event).await, 200);
        }
        lab.client.ended(&run).await;
        let frames = lab.client.frames(&run).await;
        if text.contains("fails") {
            let all = |path: &str| sink.heard().iter().filter(|one| one.path == path).count();
            sink.until(|_| all("/all") == frames.len() && all("/fails") == 3)
                .await;
        }
        lab.close().await;
        let frames = frames.iter();
        frames
            .map(|frame| frame["type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let with = kinds(&entries).await;
    let without = kinds("subscriptions: []\n").await;
    assert_eq!(with, without);
    let heard = sink.heard();
    let of_world = heard.iter().filter(|one| {
        let frame = one.json();
        let kind = frame["type"].as_str().unwrap();
        one.path == "/all" && (kind.starts_with("object.") || kind.starts_with("relation."))
    });
    assert_eq!(
        json!(of_world.count()),
        case["expect"]["second_subscriber_received"]
    );
}
