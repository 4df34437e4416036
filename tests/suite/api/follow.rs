//! Frames as they become durable.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use ktsu::assemble::{Agents, LedgerPlace, Setup, reading};
use serde_json::{Value, json};

use super::lab;
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, process};

/// Every answer waits for somebody to open the gate of its path.
async fn gated() -> Sink {
    Sink::scripted(|heard| Reply::When(heard.path.clone(), 200)).await
}

#[tokio::test]
async fn a_follower_from_before_the_end_sees_every_frame_in_order() {
    let sink = gated().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let run = lab.client.invoke("whole", json!({})).await;
    let mut early = lab.client.events(&run, None).await;
    sink.until(|heard| heard.len() == 1).await;
    let mut middle = lab.client.events(&run, None).await;
    // What an effect rests on was durable, so it can be followed before it is answered.
    let mut seen = Vec::new();
    while seen.last().is_none_or(|kind| kind != "webhook.sent") {
        let event = early.next().await.unwrap();
        let frame: Value = serde_json::from_str(&event.data).unwrap();
        assert_eq!(frame["seq"].as_u64(), Some(event.id));
        seen.push(frame["type"].as_str().unwrap().to_owned());
    }
    sink.open("/part");
    sink.until(|heard| heard.len() == 2).await;
    sink.open("/after");
    let rest = early.drain().await;
    assert!(!early.broken);
    let all = middle.drain().await;
    let late = lab.client.events(&run, None).await.drain().await;
    assert_eq!(all, late);
    assert_eq!(all[seen.len()..], rest[..]);
    let frames = lab.client.frames(&run).await;
    let followed: Vec<Value> = all
        .iter()
        .map(|event| serde_json::from_str(&event.data).unwrap())
        .collect();
    assert_eq!(followed, frames);
    for frame in &followed {
        api.fits("Frame", frame, "an event");
    }
    assert_eq!(frames.last().unwrap()["type"], "run.completed");
}

#[tokio::test]
async fn going_on_after_any_event_leaves_no_gap_and_repeats_nothing() {
    let sink = Sink::new().await;
    let (_kit, lab, _api) = lab(&sink.url).await;
    let run = lab.client.run("whole", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let all = lab.client.events(&run, None).await.drain().await;
    for last in 0..all.len() as u64 {
        let rest = lab.client.events(&run, Some(last)).await.drain().await;
        assert_eq!(rest, all[last as usize + 1..]);
    }
    let headers = [("accept", "text/event-stream"), ("last-event-id", "x")];
    let refused = lab
        .client
        .send("GET", &format!("/runs/{run}/frames"), &headers, "")
        .await;
    assert_eq!(refused.status, 400);
}

/// A reader that drops its connection again and again while the run goes on misses nothing.
#[tokio::test]
async fn a_follower_that_reconnects_while_the_run_continues_misses_nothing() {
    let sink = gated().await;
    let (_kit, lab, _api) = lab(&sink.url).await;
    let run = lab.client.invoke("whole", json!({})).await;
    let mut seen = Vec::new();
    let mut last = None;
    for gate in ["/part", "/after"] {
        sink.until(|heard| heard.iter().any(|one| one.path == gate))
            .await;
        for _ in 0..2 {
            let mut events = lab.client.events(&run, last).await;
            if let Some(event) = events.next().await {
                last = Some(event.id);
                seen.push(event);
            }
        }
        sink.open(gate);
    }
    seen.extend(lab.client.events(&run, last).await.drain().await);
    let numbers: Vec<u64> = seen.iter().map(|event| event.id).collect();
    let expected: Vec<u64> = (0..lab.client.frames(&run).await.len() as u64).collect();
    assert_eq!(numbers, expected);
}

/// The stream of a child carries the child's frames alone, and ends with the run.
#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_only_reads_follows_a_run_of_another_until_it_has_ended() {
    let sink = gated().await;
    let step = "pipeline: [{id: long, webhook: {url: '{{ env.SINK }}/gate'}}]";
    let kit = KitDir::new(&[("long", &format!("env: [{{name: SINK}}]\n{step}\n"))]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let pairs = [("SINK", sink.url.as_str())];
    let lab = Lab::on_file(&path, &kit, &pairs).await;
    let run = lab.client.invoke("long", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    let setup = Setup {
        kit: kit.load(),
        environment: None,
        process: process(&pairs),
        ledger: LedgerPlace::File(path.clone()),
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        clock: None,
        agents: Agents::Nowhere,
        own_url: None,
        certificates: None,
        service_token: None,
        standby: None,
        kit_checks: Default::default(),
        gateway: None,
        resume_unfinished: false,
        read_again: None,
    };
    let reading = reading::open(setup).await.unwrap();
    let client = Client::of(&reading.url);
    let mut events = client.events(&run, None).await;
    let mut ids = Vec::new();
    while !ids.contains(&3) {
        ids.push(events.next().await.expect("it has not ended").id);
    }
    sink.open("/gate");
    ids.extend(events.drain().await.iter().map(|event| event.id));
    assert!(!events.broken);
    let frames = lab.client.frames(&run).await;
    assert_eq!(frames.last().unwrap()["type"], "run.completed");
    assert_eq!(ids, (0..frames.len() as u64).collect::<Vec<_>>());
    lab.close().await;
    reading.close().await;
}

#[tokio::test]
async fn a_child_can_be_followed() {
    let sink = gated().await;
    let (_kit, lab, _api) = lab(&sink.url).await;
    let run = lab.client.invoke("whole", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    let mut events = lab.client.events(&format!("{run}%2Finner"), None).await;
    sink.open("/part");
    sink.open("/after");
    let scopes: BTreeSet<String> = events
        .drain()
        .await
        .iter()
        .map(|event| serde_json::from_str::<Value>(&event.data).unwrap()["scope"].to_string())
        .collect();
    assert_eq!(scopes, BTreeSet::from([r#""inner""#.to_owned()]));
}

/// `?wait` that runs out is 202, and the run goes on.
#[tokio::test]
async fn waiting_that_runs_out_is_no_failure() {
    let sink = gated().await;
    let (_kit, lab, api) = lab(&sink.url).await;
    let answer = api.post("/invoke/whole?wait=0", "{}").await;
    assert_eq!(answer.status, 202);
    let run = answer.json()["run_id"].as_str().unwrap().to_owned();
    let view = api.get(&format!("/runs/{run}")).await.json();
    assert_eq!(view["run"]["status"], "running");
    sink.open("/part");
    sink.open("/after");
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
}

/// A run of more frames than are read at once is followed to its end, and paged without a gap.
#[tokio::test]
async fn a_run_longer_than_a_page_is_followed_whole() {
    let steps: String = (0..520)
        .map(|n| format!("  - {{id: s{n}, transform: {{inputs: [], ops: []}}}}\n"))
        .collect();
    let kit = KitDir::new(&[("long", &format!("pipeline:\n{steps}"))]);
    let lab = Lab::new(&kit, &[]).await;
    let run = lab.client.run("long", json!({})).await["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let frames = lab.client.frames(&run).await;
    assert!(frames.len() > 1040, "{}", frames.len());
    let followed = lab.client.events(&run, None).await.drain().await;
    let numbers: Vec<u64> = followed.iter().map(|event| event.id).collect();
    assert_eq!(numbers, (0..frames.len() as u64).collect::<Vec<_>>());
}
