//! Frames that cannot be delivered: listed, and sent again when a person says so.

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::{SECRET, entry, environment, frame_id, kit, shown, until};
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, Lab, Sink};

fn is_step(heard: &Heard) -> bool {
    heard.json()["type"] == "step.completed"
}

async fn dead(client: &Client, query: &str) -> Value {
    let answer = client
        .get(&format!("/subscriptions/picky/dead{query}"))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

fn refuse_steps(heard: &Heard) -> Reply {
    match is_step(heard) {
        true => Reply::Now(422, String::new()),
        false => Reply::Now(200, String::new()),
    }
}

#[tokio::test]
async fn what_is_refused_to_the_last_is_listed_and_sent_again_on_demand() {
    let sink = Sink::scripted(refuse_steps).await;
    let kit = kit();
    let text = environment(&[entry(
        "picky",
        "*",
        &sink.url,
        ", attempts: 2, backoff: 1ms",
    )]);
    let dir = tempfile::tempdir().unwrap();
    let place = || LedgerPlace::File(dir.path().join("ledger.db"));
    let lab = Lab::in_environment(place(), &kit, &text, &[SECRET]).await;
    let mut runs = lab.client.run_hello(2).await;
    // What comes after a dead frame of the same run goes on.
    let ends = |heard: &[Heard]| {
        let is_end = |one: &&Heard| one.json()["type"] == "run.completed";
        heard.iter().filter(is_end).count()
    };
    sink.until(|heard| ends(heard) == 2).await;
    let steps: Vec<Heard> = sink.heard().into_iter().filter(is_step).collect();
    assert_eq!(
        steps.len(),
        8,
        "two steps in each of two runs, two attempts each"
    );
    let listed = dead(&lab.client, "").await;
    let letters = listed["dead"].as_array().unwrap().clone();
    assert_eq!(letters.len(), 4);
    for letter in &letters {
        assert_eq!(
            (&letter["attempts"], &letter["code"]),
            (&json!(2), &json!("webhook_status"))
        );
        assert_eq!(letter["status"], 422);
        let id = format!(
            "run:{}#{}",
            letter["run_id"].as_str().unwrap(),
            letter["seq"]
        );
        let sent: BTreeSet<&str> = steps
            .iter()
            .filter(|one| frame_id(one) == id)
            .map(|one| one.id.as_str())
            .collect();
        assert_eq!(
            sent,
            BTreeSet::from([letter["delivery_id"].as_str().unwrap()])
        );
    }
    let page = dead(&lab.client, "?limit=3").await;
    assert_eq!(page["dead"], json!(letters[..3]));
    let next = format!("?from={}", page["next"]);
    assert_eq!(
        dead(&lab.client, &next).await,
        json!({"dead": letters[3..]})
    );
    assert_eq!(shown(&lab.client, "picky").await["dead"], 4);
    // They are dead after a restart, too, and are not sent again by themselves.
    lab.close().await;
    let before = sink.heard().len();
    let lab = Lab::in_environment(place(), &kit, &text, &[SECRET]).await;
    assert_eq!(dead(&lab.client, "").await["dead"], json!(letters));
    sink.follow(|_| Reply::Now(200, String::new()));
    runs.extend(lab.client.run_hello(1).await);
    let third = lab.client.frames_by_id(&runs[2..]).await.len();
    sink.until(|heard| heard.len() == before + third).await;
    let redriven = lab.client.post("/subscriptions/picky/redrive", "").await;
    assert_eq!(
        (redriven.status, redriven.json()),
        (202, json!({"redriven": 4}))
    );
    sink.until(|heard| heard.len() == before + third + 4).await;
    let again: BTreeSet<String> = sink.heard()[before + third..]
        .iter()
        .map(|one| one.id.clone())
        .collect();
    let expected = letters
        .iter()
        .map(|one| one["delivery_id"].as_str().unwrap().to_owned());
    assert_eq!(again, expected.collect());
    until("nothing to be dead", async || {
        dead(&lab.client, "").await == json!({"dead": []})
    })
    .await;
    lab.close().await;
    // That they were delivered is recorded.
    let lab = Lab::in_environment(place(), &kit, &text, &[SECRET]).await;
    assert_eq!(dead(&lab.client, "").await, json!({"dead": []}));
    let more = lab.client.run_hello(1).await;
    let more = lab.client.frames_by_id(&more).await.len();
    sink.until(|heard| heard.len() >= before + third + 4 + more)
        .await;
    assert_eq!(sink.heard().len(), before + third + 4 + more);
    lab.close().await;
}

#[tokio::test]
async fn a_redriven_frame_that_is_refused_again_is_dead_again() {
    let sink = Sink::scripted(refuse_steps).await;
    let kit = kit();
    let text = environment(&[entry("picky", "step.completed", &sink.url, ", attempts: 1")]);
    let lab = super::lab(&kit, &text).await;
    lab.client.run_hello(1).await;
    until("two dead frames", async || {
        dead(&lab.client, "").await["dead"]
            .as_array()
            .unwrap()
            .len()
            == 2
    })
    .await;
    let before = dead(&lab.client, "").await;
    let redriven = lab.client.post("/subscriptions/picky/redrive", "").await;
    assert_eq!(redriven.json(), json!({"redriven": 2}));
    sink.until(|heard| heard.len() == 4).await;
    until("them to be dead again", async || {
        shown(&lab.client, "picky").await["dead"] == 2
    })
    .await;
    let after = dead(&lab.client, "").await;
    let ids = |listed: &Value| -> Vec<Value> {
        let letters = listed["dead"].as_array().unwrap().iter();
        letters.map(|one| one["delivery_id"].clone()).collect()
    };
    assert_eq!(ids(&after), ids(&before));
}

/// An address that the policy refuses when it is connected to is a failure like any other.
#[tokio::test]
async fn an_address_that_may_not_be_reached_gets_nothing_and_its_frames_are_dead() {
    let kit = kit();
    let sink = Sink::new().await;
    let text = environment(&[
        entry(
            "picky",
            "run.completed",
            "http://10.1.2.3/x",
            ", attempts: 1",
        ),
        entry("fine", "run.completed", &sink.url, ""),
    ]);
    let lab = super::lab(&kit, &text).await;
    lab.client.run_hello(1).await;
    sink.until(|heard| heard.len() == 1).await;
    until("a dead frame", async || {
        shown(&lab.client, "picky").await["dead"] == 1
    })
    .await;
    let letters = dead(&lab.client, "").await;
    assert_eq!(letters["dead"][0]["code"], "webhook_refused");
}
