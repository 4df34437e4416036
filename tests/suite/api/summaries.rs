//! Which runs there are and how they went: filters, figures over time, and the stream of changes.

use axum::http::Request;
use serde_json::{Value, json};

use super::lab;
use crate::support::client::Events;
use crate::support::sink::Reply;
use crate::support::{Client, Sink};

async fn changes(client: &Client, last: Option<u64>) -> Events {
    let mut request = Request::get("/summaries");
    if let Some(last) = last {
        request = request.header("last-event-id", last.to_string());
    }
    client.listen(request).await.unwrap().unwrap()
}

/// The next event: its position, and what it says.
async fn next(events: &mut Events) -> (u64, Value) {
    let event = events.next().await.expect("the stream has no end");
    (event.id, serde_json::from_str(&event.data).unwrap())
}

fn ids(list: &Value) -> Vec<&str> {
    let rows = list["runs"].as_array().unwrap().iter();
    rows.map(|row| row["run_id"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn a_follower_gets_the_latest_state_of_each_run_and_after_a_gap_what_changed_since() {
    let sink = Sink::scripted(|heard| Reply::When(heard.path.clone(), 200)).await;
    let (_kit, lab, _api) = lab(&sink.url).await;
    let mut events = changes(&lab.client, None).await;
    let (_, first) = next(&mut events).await;
    assert_eq!(
        first,
        json!({"runs": [], "removed": [], "more": false, "asks": 0})
    );
    let run = lab.client.invoke("whole", json!({})).await;
    let (mut position, mut seen) = (0, json!(null));
    sink.until(|heard| heard.len() == 1).await;
    while seen.is_null() {
        let (id, event) = next(&mut events).await;
        assert_eq!(ids(&event), [run.as_str()], "once each: {event}");
        (position, seen) = (id, event["runs"][0].clone());
    }
    assert_eq!(
        (&seen["status"], &seen["principal"]),
        (&json!("running"), &json!("local"))
    );
    drop(events);
    // What happens meanwhile comes as one event.
    sink.open("/part");
    sink.open("/after");
    lab.client.ended(&run).await;
    let other = lab.client.run("hello", json!({})).await["run_id"].clone();
    let mut events = changes(&lab.client, Some(position)).await;
    let (last, event) = next(&mut events).await;
    let mut expected = [run.as_str(), other.as_str().unwrap()];
    expected.sort_unstable();
    assert_eq!(ids(&event), expected);
    let whole = event["runs"].as_array().unwrap().iter();
    let mut whole = whole.filter(|row| row["run_id"] == json!(run));
    assert_eq!(whole.next().unwrap()["status"], "complete");
    // From a position that the ledger does not have, as after a restore, it begins at the end.
    let mut events = changes(&lab.client, Some(last + 1_000)).await;
    let (begins, event) = next(&mut events).await;
    assert!(ids(&event).is_empty(), "{event}");
    // What signs the ledger may have appended a checkpoint since.
    assert!(
        (last..last + 1_000).contains(&begins),
        "{begins} after {last}"
    );
}

#[tokio::test]
async fn runs_are_found_by_text_principal_time_and_cost() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    let hello = lab.client.run("hello", json!({})).await["run_id"].clone();
    let failed = lab.client.run("whole", json!({})).await["run_id"].clone();
    let (hello, failed) = (hello.as_str().unwrap(), failed.as_str().unwrap());
    let at = api.get(&format!("/runs/{failed}")).await.json();
    let at = at["run"]["created_at"].as_str().unwrap().to_owned();
    for (query, expected) in [
        ("", vec![failed, hello]),
        ("?text=HELLO", vec![hello]),
        ("?text=webhook_UNREACH", vec![failed]),
        (&format!("?text={}", &hello[8..]), vec![hello]),
        ("?text=nothing", vec![]),
        ("?principal=local", vec![failed, hello]),
        ("?principal=loca", vec![]),
        (&format!("?since={at}"), vec![failed]),
        (&format!("?until={at}"), vec![hello]),
        ("?until=2026-11", vec![]),
        ("?min_cost_micro_usd=0", vec![failed, hello]),
        ("?min_cost_micro_usd=1", vec![]),
        ("?flag=asks", vec![]),
        ("?flag=branch", vec![]),
    ] {
        let list = api.get(&format!("/runs{query}")).await.json();
        assert_eq!(ids(&list), expected, "{query}");
        let page = api
            .get(&format!("/inspector/runs{query}").replace("_micro_usd", ""))
            .await;
        for run in [hello, failed] {
            let link = format!("<a href=\"runs/{run}\">");
            assert_eq!(
                page.text().contains(&link),
                expected.contains(&run),
                "{query}"
            );
        }
    }
    let page = api.get("/inspector/runs?since=yesterday").await.text();
    assert!(page.contains("Since is not a time"), "{page}");
    // Pages of what few rows are like.
    let first = api.get("/runs?text=local&limit=1").await.json();
    assert_eq!(ids(&first), [failed]);
    let rest = format!(
        "/runs?text=local&limit=1&cursor={}",
        first["next"].as_str().unwrap()
    );
    assert_eq!(ids(&api.get(&rest).await.json()), [hello]);
}

#[tokio::test]
async fn figures_over_time_count_every_run_once() {
    let (_kit, lab, api) = lab("http://127.0.0.1:9").await;
    for _ in 0..3 {
        lab.client.run("hello", json!({})).await;
    }
    lab.client.run("whole", json!({})).await;
    for intervals in [1, 5, 500] {
        let path = format!("/statistics?intervals={intervals}");
        let figures = api.get(&path).await.json();
        let parts = figures["intervals"].as_array().unwrap();
        assert_eq!(parts.len(), intervals);
        for (member, expected) in [("runs", 4), ("complete", 3), ("failed", 1), ("open", 0)] {
            assert_eq!(figures["all"][member], expected, "{member}");
            let sum: u64 = parts.iter().map(|one| one[member].as_u64().unwrap()).sum();
            assert_eq!(sum, expected, "{member} in {intervals} intervals");
        }
        assert!(figures["all"]["p95_ms"].as_u64() >= figures["all"]["p50_ms"].as_u64());
        assert_eq!(figures["is_whole"], true);
    }
    let none = api
        .get("/statistics?workflow=absent&intervals=2")
        .await
        .json();
    assert_eq!(none["all"]["runs"], 0);
    assert_eq!(none["all"]["p50_ms"], Value::Null);
}
