//! The world of a run, as programs read it.

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::describe::Described;
use crate::support::worlds::TIDES;
use crate::support::{KitDir, Lab};

/// Whom it asks nobody knows.
const ASKS: &str = r#"
kind: world
name: asks
version: 1.0.0
objects: {Goal: {}}
responders:
  - name: answer
    "on": object.created
    type: Goal
    ask: {model: nobody, messages: [{role: user, content: "{{ object.data.goal }}"}]}
    then: []
"#;
const HELLO: &str = "pipeline: []\n";

/// An engine with a kit of that world alone.
async fn lab() -> (KitDir, Lab) {
    let kit = KitDir::new(&[]).with("worlds/tides.world.yaml", TIDES);
    let lab = Lab::new(&kit, &[]).await;
    (kit, lab)
}

/// What the route answers with success.
pub(super) async fn all(api: &Described) -> Vec<super::describe::Case> {
    let (_kit, lab) = lab().await;
    let api = api.at(&lab.client);
    let run = lab.client.run("tides", json!({"goal": "tides"})).await;
    let run = run["run_id"].as_str().unwrap();
    for path in [
        format!("/runs/{run}/world"),
        format!("/inspector/runs/{run}/world"),
    ] {
        assert_eq!(api.get(&path).await.status, 200, "{path}");
    }
    let kit = KitDir::new(&[]).with("worlds/asks.world.yaml", ASKS);
    let lab = Lab::new(&kit, &[]).await;
    let more = api.at(&lab.client);
    let run = lab.client.run("asks", json!({"goal": "tides"})).await;
    let run = run["run_id"].as_str().unwrap();
    let envelope = more.get(&format!("/runs/{run}/envelope")).await.json();
    assert_eq!(envelope["world"]["objects"], json!({"Goal": 1}));
    assert_eq!(envelope["warnings"][0]["responder"], "answer", "{envelope}");
    let seen = api.seen().into_iter().chain(more.seen());
    seen.chain(too_large(&api).await).collect()
}

/// A chain of notes whose guards count what there is.
const CHAIN: &str = r#"
kind: world
name: chain
version: 1.0.0
goal: [{object: {type: Note, data: {n: 1}}}]
objects: {Note: {}}
responders:
  - name: next
    "on": object.created
    type: Note
    with: {all: {count: Note}}
    when: all < `150`
    emit: [{object: {type: Note, data: {n: "{{ sum([object.data.n, `1`]) }}"}}}]
budget: {max_recursion_depth: 1000}
"#;

/// An engine that lets traces do little work.
async fn bounded() -> (KitDir, Lab, String) {
    let kit = KitDir::new(&[]).with("worlds/chain.world.yaml", CHAIN);
    let bound = "limits: {trace_work: 1000}\n";
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, bound, &[]).await;
    let run = lab.client.run("chain", json!({"goal": "notes"})).await;
    let run = run["run_id"].as_str().unwrap().to_owned();
    (kit, lab, run)
}

async fn too_large(api: &Described) -> Vec<super::describe::Case> {
    let (_kit, lab, run) = bounded().await;
    let api = api.at(&lab.client);
    let answer = api.get(&format!("/runs/{run}/trace?of=Note[149].n")).await;
    assert_eq!(answer.status, 422, "{}", answer.text());
    let body = answer.json();
    assert_eq!(body["code"], "trace_too_large");
    let command = format!("ktsu trace {run} --of PATH");
    assert!(body["hint"].as_str().unwrap().ends_with(&command), "{body}");
    let words = body.to_string();
    assert!(!words.contains("Note"), "{words}");
    for (asked, command) in [("", ""), ("?type=responder.", ""), ("?frame=9", " 9")] {
        let answer = api.get(&format!("/runs/{run}/trace{asked}")).await;
        assert_eq!(answer.status, 422, "{}", answer.text());
        let body = answer.json();
        assert_eq!(body["code"], "trace_too_large");
        let command = format!("ktsu trace {run}{command}");
        assert!(body["hint"].as_str().unwrap().ends_with(&command), "{body}");
    }
    let short = api.get(&format!("/runs/{run}/trace?of=Note[9].n")).await;
    assert_eq!(short.status, 200, "{}", short.text());
    assert_eq!(short.json()["origin"]["value"], 10);
    api.seen().into_iter().collect()
}

#[tokio::test]
async fn many_traces_at_once_leave_room_for_other_requests() {
    let (_kit, lab, run) = bounded().await;
    let path = format!("/runs/{run}/trace?of=Note[30].n");
    let traces = (0..64).map(|_| lab.client.get(&path));
    let traces = futures_util::future::join_all(traces);
    let others = async {
        for below in ["", "/world?limit=1", "/frames?limit=1"] {
            let answer = lab.client.get(&format!("/runs/{run}{below}")).await;
            assert_eq!(answer.status, 200, "{below}");
        }
    };
    let (traces, ()) = tokio::join!(traces, others);
    assert!(traces.iter().all(|trace| trace.status == 200));
}

fn merged(pages: &[Value], name: &str) -> Vec<Value> {
    let lists = pages.iter().map(|page| page[name].as_array().unwrap());
    lists.flatten().cloned().collect()
}

#[tokio::test]
async fn a_world_comes_whole_or_in_pages_and_as_any_frame_left_it() {
    let (_kit, lab) = lab().await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.run("tides", json!({"goal": "tides"})).await;
    let run = run["run_id"].as_str().unwrap();
    let world = api.get(&format!("/runs/{run}/world")).await.json();
    assert_eq!(world["run_id"], run);
    assert_eq!(world["context"], json!({"budget_exhausted": false}));
    assert_eq!(world["objects"].as_array().unwrap().len(), 3);
    assert_eq!(world["relations"].as_array().unwrap().len(), 2);
    assert!(world.get("next").is_none());
    let last = world["at"].as_u64().unwrap();
    let end = api
        .get(&format!("/runs/{run}/frames?from={last}"))
        .await
        .json();
    assert_eq!(end["frames"][0]["data"]["world"], world["world_hash"]);

    for limit in 1..=6 {
        let (mut pages, mut from) = (Vec::new(), json!(0));
        while !from.is_null() {
            let path = format!("/runs/{run}/world?at={last}&from={from}&limit={limit}");
            let page = api.get(&path).await.json();
            assert_eq!(page["world_hash"], world["world_hash"]);
            let entries = merged(std::slice::from_ref(&page), "objects").len()
                + merged(std::slice::from_ref(&page), "relations").len();
            assert!((1..=limit).contains(&entries), "{page}");
            from = page["next"].clone();
            pages.push(page);
        }
        for name in ["objects", "relations"] {
            assert_eq!(json!(merged(&pages, name)), world[name], "{limit}");
        }
    }
    let topic = &world["objects"][0]["created"];
    let then = api
        .get(&format!("/runs/{run}/world?at={topic}"))
        .await
        .json();
    assert_eq!(then["objects"].as_array().unwrap().len(), 1);
    assert_eq!(then["objects"][0]["id"], world["objects"][0]["id"]);
    assert_eq!(then["objects"][0]["data"]["state"], "open");
    assert_eq!(world["objects"][0]["data"]["state"], "asked");
    assert_eq!(then["relations"], json!([]));
    assert_ne!(then["world_hash"], world["world_hash"]);
}

#[tokio::test]
async fn what_has_no_world_is_refused() {
    let (_kit, lab) = lab().await;
    let api = Described::new(&lab.client).await;
    let run = lab.client.run("tides", json!({"goal": "tides"})).await;
    let tides = run["run_id"].as_str().unwrap();
    for (path, status, code) in [
        ("/runs/absent/world".to_owned(), 404, "run_not_found"),
        (format!("/runs/{tides}/world?at=9999"), 404, "not_found"),
        (format!("/runs/{tides}/world?at=last"), 400, "invalid_query"),
        (format!("/runs/{tides}/world?limit=0"), 400, "invalid_query"),
        (
            format!("/runs/{tides}/world?limit=10001"),
            400,
            "invalid_query",
        ),
    ] {
        let answer = api.get(&path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text());
        assert_eq!(answer.json()["code"], code, "{path}");
    }
    let kit = KitDir::new(&[("hello", HELLO)]);
    let lab = Lab::new(&kit, &[]).await;
    let api = api.at(&lab.client);
    let run = lab.client.run("hello", json!({})).await;
    let run = run["run_id"].as_str().unwrap();
    let answer = api.get(&format!("/runs/{run}/world")).await;
    assert_eq!(
        (answer.status, answer.json()["code"].as_str()),
        (409, Some("no_world"))
    );
}
