//! Events that are posted to the world of a run, and budgets that are raised.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::{MemoryStore, SqliteReader};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use super::describe::{Case, Described};
use super::unable;
use crate::support::ledgers::Recorded;
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, Within};

/// A company, and what people add: evidence, contradictions and reports are related to what they
/// name, if it is there.
const DILIGENCE: &str = r#"
kind: world
name: diligence
version: 1.0.0
goal:
  - object: {type: Company, data: {name: "{{ goal }}"}}
objects:
  Company: {schema: {type: object, required: [name], properties: {name: {type: string}}}}
  Claim: {schema: {type: object, properties: {company_id: {type: string}}}}
  Evidence: {schema: {type: object, properties: {claim_id: {type: string}}}}
  Contradiction: {}
  Report: {}
relations:
  sourced_from: {from: Evidence, to: Claim}
  contradicts: {from: Claim, to: Claim}
  depends_on: {from: Report, to: Company}
responders:
  - name: claim-of-company
    "on": object.created
    type: Company
    emit: [{object: {type: Claim, data: {company_id: "{{ object.id }}"}}}]
  - name: source-of-evidence
    "on": object.created
    type: Evidence
    with: {claim: {object: "{{ object.data.claim_id }}"}}
    when: claim
    emit: [{relation: {type: sourced_from, from: "{{ object.id }}", to: "{{ claim.id }}"}}]
  - name: contradiction
    "on": object.created
    type: Contradiction
    with:
      a: {object: "{{ object.data.claim_a_id }}"}
      b: {object: "{{ object.data.claim_b_id }}"}
    when: a && b
    emit: [{relation: {type: contradicts, from: "{{ a.id }}", to: "{{ b.id }}"}}]
  - name: report-of-company
    "on": object.created
    type: Report
    with: {company: {object: "{{ object.data.company_id }}"}}
    when: company
    emit: [{relation: {type: depends_on, from: "{{ object.id }}", to: "{{ company.id }}"}}]
budget: {max_events: 200000}
"#;
/// A remark that makes another one, for ever.
const ENDLESS: &str = r#"
kind: world
name: endless
version: 1.0.0
objects: {Again: {}}
responders:
  - name: first
    "on": object.created
    type: Goal
    emit: [{object: {type: Again}}]
  - name: again
    "on": object.created
    type: Again
    emit: [{object: {type: Again}}]
"#;
const NOTE: &str = r#"{"type": "note"}"#;

fn kit() -> KitDir {
    KitDir::new(&[]).with("worlds/diligence.world.yaml", DILIGENCE)
}

fn object(kind: &str, id: &str, data: Value) -> Value {
    json!({"type": "object.created", "data": {"type": kind, "id": id, "data": data}})
}

async fn world(client: &Client, run: &str) -> Value {
    client.get(&format!("/runs/{run}/world")).await.json()
}

/// The ids of the objects of a type, or of the relations.
fn ids(world: &Value, list: &str, kind: &str) -> Vec<String> {
    let all = world[list].as_array().unwrap().iter();
    let some = all.filter(|one| one["type"] == kind);
    some.map(|one| one["id"].as_str().unwrap().to_owned())
        .collect()
}

/// A run of the world that is complete.
async fn acme(client: &Client) -> String {
    let run = client.run("diligence", json!({"goal": "Acme"})).await;
    run["run_id"].as_str().unwrap().to_owned()
}

/// Every status of the route, once.
pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let kit = kit();
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let api = described.at(&within.client);
    let run = acme(&within.client).await;
    let recorded = Recorded::read(&store, &run);
    refused(&api, &run).await;
    let frames = Recorded::read(&store, &run).records.len();
    assert_eq!(frames, recorded.records.len(), "a refusal writes nothing");
    let answer = api.post(&format!("/runs/{run}/events"), NOTE).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let mut seen = api.seen();
    let bodies = [("events", NOTE.to_owned())];
    let (unable, left) = unable::posts(described, &kit, &recorded, &bodies).await;
    assert_eq!(left, [frames; 2]);
    seen.extend(unable);
    let kit = KitDir::new(&[("hello", "pipeline: []\n")]);
    let lab = Lab::new(&kit, &[]).await;
    let api = described.at(&lab.client);
    let hello = lab.client.run("hello", json!({})).await;
    let hello = hello["run_id"].as_str().unwrap();
    let answer = api.post(&format!("/runs/{hello}/events"), NOTE).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (409, Some("no_world"))
    );
    seen.extend(api.seen());
    seen
}

async fn refused(api: &Described, run: &str) {
    let path = format!("/runs/{run}/events");
    let large = " ".repeat(1024 * 1024 + 1);
    let many = Value::from(vec![json!({"type": "note"}); 257]).to_string();
    let long = json!({"type": "relation.removed", "data": {"id": "x".repeat(257)}}).to_string();
    for (path, body, status, code) in [
        (path.clone(), "nope", 400, "invalid_json"),
        (path.clone(), "", 400, "invalid_json"),
        (format!("{path}?x=1"), NOTE, 400, "invalid_query"),
        ("/runs/absent/events".to_owned(), NOTE, 404, "run_not_found"),
        (path.clone(), large.as_str(), 413, "body_too_large"),
        (path.clone(), "5", 422, "not_an_object"),
        (path.clone(), "[]", 422, "invalid_request"),
        (path.clone(), many.as_str(), 422, "invalid_request"),
        (path.clone(), long.as_str(), 422, "invalid_request"),
        (
            path.clone(),
            r#"{"type": "run.paused"}"#,
            422,
            "invalid_request",
        ),
        (path.clone(), r#"{"type": "x.one"}"#, 422, "invalid_request"),
        (
            path.clone(),
            r#"{"type": "note", "by": "me"}"#,
            422,
            "invalid_request",
        ),
        (
            path.clone(),
            r#"[{"type": "note"}, {"type": "object.patched", "data": {"id": "a"}}]"#,
            422,
            "invalid_request",
        ),
        (
            path.clone(),
            r#"{"type": "object.created", "data": {"type": "Tide"}}"#,
            422,
            "post_refused",
        ),
    ] {
        let answer = api.post(&path, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert_eq!(answer.json()["code"], code, "{body}");
    }
    let evil = [("origin", "https://evil.example")];
    let answer = api.call("POST", &path, &evil, NOTE).await;
    assert_eq!(answer.json()["code"], "foreign_origin");
    for (name, value, code) in [
        ("if-match", "x", "invalid_request"),
        ("if-match", "1", "invalid_request"),
        ("idempotency-key", "a b", "invalid_query"),
    ] {
        let answer = api.call("POST", &path, &[(name, value)], NOTE).await;
        assert_eq!(answer.json()["code"], code, "{name}: {value}");
    }
}

#[tokio::test]
async fn what_is_added_to_a_finished_run_is_related_if_it_names_what_is_there() {
    // Row 26.
    let lab = Lab::new(&kit(), &[]).await;
    let api = Described::new(&lab.client).await;
    let run = acme(&lab.client).await;
    let before = world(&lab.client, &run).await;
    let claim = ids(&before, "objects", "Claim").remove(0);
    let company = ids(&before, "objects", "Company").remove(0);
    let posts = json!([
        object("Evidence", "e1", json!({"claim_id": claim})),
        object("Evidence", "e2", json!({"claim_id": "unknown"})),
        object(
            "Contradiction",
            "x1",
            json!({"claim_a_id": claim, "claim_b_id": claim})
        ),
        object(
            "Contradiction",
            "x2",
            json!({"claim_a_id": claim, "claim_b_id": "no"})
        ),
        object("Report", "r1", json!({"company_id": company})),
        object("Report", "r2", json!({})),
    ]);
    let path = format!("/runs/{run}/events");
    let answer = api.post(&path, &posts.to_string()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let receipt = answer.json();
    assert_eq!(receipt["post"], 1);
    let first = before["at"].as_u64().unwrap() + 1;
    for (at, event) in (0..).zip(receipt["events"].as_array().unwrap()) {
        assert_eq!(event["seq"], first + at);
        assert_eq!(event["type"], "object.created");
    }
    assert_eq!(receipt["events"][4]["id"], "r1");
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete");
    let after = world(&lab.client, &run).await;
    for (kind, ends) in [
        ("sourced_from", ("e1", claim.as_str())),
        ("contradicts", (claim.as_str(), claim.as_str())),
        ("depends_on", ("r1", company.as_str())),
    ] {
        let relations = after["relations"].as_array().unwrap().iter();
        let relations: Vec<_> = relations.filter(|one| one["type"] == kind).collect();
        assert_eq!(relations.len(), 1, "{kind}");
        assert_eq!(relations[0]["source_id"], ends.0);
        assert_eq!(relations[0]["target_id"], ends.1);
    }
    assert_ne!(after["world_hash"], before["world_hash"]);
    let last = after["at"].as_u64().unwrap();
    let frames = lab.client.frames(&run).await;
    assert_eq!(frames[last as usize]["type"], "run.completed");
    assert_eq!(frames[last as usize]["data"]["world"], after["world_hash"]);
    let posted = &frames[first as usize];
    assert_eq!(posted["actor"], "principal:local");
    assert_eq!(posted["data"]["post"]["n"], 1);
    let path = format!("/runs/{run}/replay");
    let replayed = api.post(&path, r#"{"strict": true}"#);
    assert_eq!(replayed.await.json()["verdict"], "ok");
}

#[tokio::test]
async fn a_repeated_request_gets_the_same_answer_and_a_stale_one_none() {
    let lab = Lab::new(&kit(), &[]).await;
    let api = Described::new(&lab.client).await;
    let run = acme(&lab.client).await;
    let path = format!("/runs/{run}/events");
    // Without ids, so that they are made from the number of the post.
    let body = json!([{"type": "object.created", "data": {"type": "Report"}}, {"type": "note"}]);
    let key = [("idempotency-key", "k1")];
    let first = api.call("POST", &path, &key, &body.to_string()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    lab.client.ended(&run).await;
    let frames = lab.client.frames(&run).await.len();
    // Written otherwise, it is the same request.
    let again = format!(" {} ", body.to_string().replace("note", r"n\u006fte"));
    let again = api.call("POST", &path, &key, &again).await;
    assert_eq!(again.text(), first.text());
    let other = api.call("POST", &path, &key, NOTE).await;
    assert_eq!(other.status, 409);
    assert_eq!(other.json()["code"], "idempotency_conflict");
    assert_eq!(lab.client.frames(&run).await.len(), frames);
    let made = first.json()["events"][0].clone();
    let id = made["id"].as_str().unwrap();
    assert!(ids(&world(&lab.client, &run).await, "objects", "Report").contains(&id.to_owned()));

    let patch = |n: u64| json!({"type": "object.patched", "data": {"id": id, "patch": {"n": n}}});
    let seq = made["seq"].to_string();
    let known = [("if-match", seq.as_str())];
    let patched = api.call("POST", &path, &known, &patch(1).to_string()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
    let stale = api.call("POST", &path, &known, &patch(2).to_string()).await;
    assert_eq!(stale.status, 409);
    assert_eq!(stale.json()["code"], "stale_revision");
    let now = patched.json()["events"][0]["seq"].to_string();
    assert!(stale.text().contains(&format!("If-Match: {now}")));
    let quoted = format!("\"{now}\"");
    let known = [("if-match", quoted.as_str())];
    let patched = api.call("POST", &path, &known, &patch(3).to_string()).await;
    assert_eq!(patched.status, 200, "{}", patched.text());
}

/// A run of the endless world, under a budget.
async fn endless(budget: &str) -> (Lab, Described, String) {
    let text = format!("{ENDLESS}budget: {{{budget}}}\n");
    let kit = KitDir::new(&[]).with("worlds/endless.world.yaml", &text);
    let lab = Lab::new(&kit, &[]).await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.run("endless", json!({"goal": "more"})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    (lab, api, run)
}

async fn exhausted(client: &Client, run: &str) -> Value {
    let frames = client.frames(run).await;
    let found = frames
        .iter()
        .rfind(|frame| frame["type"] == "budget.exhausted");
    found.unwrap()["data"].clone()
}

#[tokio::test]
async fn a_run_whose_budget_is_used_up_continues_once_what_is_used_up_is_raised() {
    let (lab, api, run) = endless("max_events: 5, max_recursion_depth: 50").await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["error"]["code"], "budget_exhausted");
    let resume = format!("/runs/{run}/resume");
    let frames = lab.client.frames(&run).await.len();
    for (path, body, status, code) in [
        (resume.as_str(), "{}", 409, "budget_exhausted"),
        (
            resume.as_str(),
            r#"{"raise": {"max_recursion_depth": 60}}"#,
            409,
            "budget_exhausted",
        ),
        (
            resume.as_str(),
            r#"{"raise": {"max_events": 5}}"#,
            422,
            "invalid_request",
        ),
        (resume.as_str(), r#"{"raise": {}}"#, 422, "invalid_request"),
        (
            resume.as_str(),
            r#"{"raise": {"max_llm_cost_usd": -1}}"#,
            422,
            "invalid_request",
        ),
        (
            resume.as_str(),
            r#"{"raise": {"max_events": 9}, "from": "a"}"#,
            422,
            "invalid_request",
        ),
        (
            &format!("/runs/{run}/events"),
            NOTE,
            409,
            "budget_exhausted",
        ),
    ] {
        let answer = api.post(path, body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.text());
        assert_eq!(answer.json()["code"], code, "{body}");
    }
    assert_eq!(lab.client.frames(&run).await.len(), frames);
    let events = format!("/runs/{run}/events");
    // The first of them reads the run, and the second is refused in the same words without that.
    let words = [api.post(&events, NOTE).await, api.post(&events, NOTE).await];
    assert_eq!(words[0].text(), words[1].text());
    assert!(
        words[0].text().contains("max_events=5"),
        "{}",
        words[0].text()
    );
    let body = r#"{"raise": {"max_events": 8, "max_wall_seconds": 4000.5}, "reason": "seen"}"#;
    let answer = api.post(&resume, body).await;
    assert_eq!(answer.status, 202, "{}", answer.text());
    lab.client.ended(&run).await;
    let raised = &lab.client.frames(&run).await[frames];
    assert_eq!(raised["type"], "budget.raised");
    assert_eq!(raised["actor"], "principal:local");
    assert_eq!(raised["data"]["max_events"], 8);
    assert_eq!(raised["data"]["max_wall_ms"], 4_000_500);
    assert_eq!(raised["data"]["reason"], "seen");
    let told = exhausted(&lab.client, &run).await;
    assert_eq!(told["reasons"], json!(["max_events=8"]));
    let refused = api.post(&events, NOTE).await;
    assert!(
        refused.text().contains("max_events=8"),
        "{}",
        refused.text()
    );
    assert_eq!(told["event_count"], 8);
    let path = format!("/runs/{run}/replay");
    let replay = api.post(&path, r#"{"strict": true}"#);
    assert_eq!(replay.await.json()["verdict"], "ok");
}

#[tokio::test]
async fn a_world_that_never_rests_ends_with_its_time() {
    let (lab, _, run) =
        endless("max_events: 1000000000, max_recursion_depth: 1000000, max_wall_seconds: 0.2")
            .await;
    let told = exhausted(&lab.client, &run).await;
    assert_eq!(told["reasons"], json!(["max_wall_seconds=0.2"]));
    assert!(told["elapsed_ms"].as_u64() >= Some(200));
}

#[tokio::test]
async fn time_ends_a_run_that_waits_for_an_answer_and_cancelled_runs_take_no_posts() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let sends = "env: [{name: SINK}]\npipeline: [{id: send, webhook: {url: \"{{ env.SINK }}\"}}]\n";
    let of = |seconds: &str| {
        let text = format!("{DILIGENCE}\n").replace(
            "max_events",
            &format!("max_wall_seconds: {seconds}, max_events"),
        );
        KitDir::new(&[("sends", sends)]).with("worlds/diligence.world.yaml", &text)
    };
    let lab = Lab::new(&of("0.2"), &[("SINK", &sink.url)]).await;
    let run = lab.client.invoke("sends", json!({})).await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["error"]["code"], "budget_exhausted");
    assert_eq!(envelope["steps"][0]["status"], "failed");
    let told = exhausted(&lab.client, &run).await;
    assert_eq!(told["reasons"], json!(["max_wall_seconds=0.2"]));

    let lab = Lab::new(&of("3600"), &[("SINK", &sink.url)]).await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.invoke("sends", json!({})).await;
    sink.until(|heard| heard.len() == 2).await;
    // A run under way takes posts, and goes on.
    let path = format!("/runs/{run}/events");
    assert_eq!(api.post(&path, NOTE).await.status, 200);
    api.post(&format!("/runs/{run}/cancel"), "{}").await;
    lab.client.ended(&run).await;
    let answer = api.post(&path, NOTE).await;
    assert_eq!(answer.status, 409);
    assert_eq!(answer.json()["code"], "invalid_run_state");
}

/// How many posts race: 500 in every run of the tests.
fn races() -> usize {
    let posts = std::env::var("KTSU_POSTS").ok();
    posts.and_then(|posts| posts.parse().ok()).unwrap_or(500)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn posts_that_race_the_end_of_their_run_are_neither_lost_nor_doubled() {
    const CLIENTS: usize = 8;
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ledger.db");
    let lab = Lab::on_file(&file, &kit(), &[]).await;
    let run = acme(&lab.client).await;
    let claim = ids(&world(&lab.client, &run).await, "objects", "Claim").remove(0);
    let posts = races();
    let posting = (0..CLIENTS).map(|client| {
        let (lab, run, claim) = (lab.client.clone(), run.clone(), claim.clone());
        tokio::spawn(async move {
            let path = format!("/runs/{run}/events");
            let mut receipts = BTreeMap::new();
            for at in (client..posts).step_by(CLIENTS) {
                let id = format!("e{at}");
                let body = object("Evidence", &id, json!({"claim_id": claim})).to_string();
                let headers = [("idempotency-key", id.as_str())];
                let send = || lab.send("POST", &path, &headers, body.clone());
                // Every third request is sent twice at once, as by a client that heard nothing.
                let (one, other) = match at % 3 {
                    0 => {
                        let both = tokio::join!(send(), send());
                        (both.0, Some(both.1))
                    }
                    _ => (send().await, None),
                };
                assert_eq!(one.status, 200, "{}", one.text());
                if let Some(other) = other {
                    assert_eq!(one.text(), other.text());
                }
                let frame = one.json()["events"][0]["seq"].as_u64().unwrap();
                receipts.insert(frame, id);
            }
            receipts
        })
    });
    let mut receipts = BTreeMap::new();
    for one in posting.collect::<Vec<_>>() {
        receipts.extend(one.await.unwrap());
    }
    assert_eq!(receipts.len(), posts, "no frame is two posts");
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete");
    let frames = lab.client.frames(&run).await;
    let posted = frames
        .iter()
        .filter(|frame| !frame["data"]["post"].is_null());
    let mut numbers = Vec::new();
    for frame in posted {
        let seq = frame["seq"].as_u64().unwrap();
        assert_eq!(frame["data"]["id"], receipts[&seq].as_str());
        numbers.push(frame["data"]["post"]["n"].as_u64().unwrap());
    }
    assert_eq!(numbers, Vec::from_iter(1..=posts as u64));
    let count = |kind: &str| frames.iter().filter(|frame| frame["type"] == kind).count();
    assert_eq!(count("relation.created"), posts, "each is reacted to once");
    let last = frames.last().unwrap();
    assert_eq!(last["type"], "run.completed");
    assert!((1..=posts + 1).contains(&count("run.completed")));
    let after = world(&lab.client, &run).await;
    assert_eq!(last["data"]["world"], after["world_hash"]);
    lab.close().await;
    // Each of many ends hashes the whole world: longer than a request may take.
    let recorded = Recorded::read(&SqliteReader::open(&file).unwrap(), &run).frames();
    replay(&recorded, &mut Definitions::default()).unwrap();
}
