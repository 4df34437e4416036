//! `GET /events`: the frames of all runs, followed from anywhere.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use axum::http::Request;
use ktsu::assemble::{Agents, LedgerPlace, Setup, reading};
use serde_json::{Value, json};

use crate::support::client::{Event, Events};
use crate::support::{Client, KitDir, Lab, guarded, process};

/// Runs of a few frames without effects.
fn kit() -> KitDir {
    KitDir::new(&[(
        "hello",
        "params: {schema: {type: object}}\n\
         pipeline: [{id: greet, transform: {inputs: [{from: params}], ops: []}}]\n",
    )])
}

async fn follow(client: &Client, query: &str, last: Option<u64>) -> Events {
    let mut request = Request::get(format!("/events{query}"));
    if let Some(last) = last {
        request = request.header("last-event-id", last.to_string());
    }
    client.listen(request).await.unwrap().unwrap()
}

async fn take(events: &mut Events, count: usize) -> Vec<Event> {
    let mut taken = Vec::new();
    while taken.len() < count {
        taken.push(events.next().await.expect("the stream goes on"));
    }
    taken
}

/// Events up to one that has the id.
async fn take_to(events: &mut Events, last: u64) -> Vec<Event> {
    let mut taken: Vec<Event> = Vec::new();
    while taken.last().is_none_or(|event| event.id != last) {
        taken.push(events.next().await.expect("the stream goes on"));
    }
    taken
}

fn frame(event: &Event) -> Value {
    serde_json::from_str(&event.data).unwrap()
}

#[tokio::test]
async fn a_follower_gets_verdicts_too() {
    let lab = Lab::new(&kit(), &[]).await;
    let run = lab.client.run_hello(1).await.remove(0);
    lab.client.ended(&run).await;
    let mut events = follow(&lab.client, "?pattern=eval.finished,check.result", None).await;
    let spec =
        "invariants: {a: {description: d, check: {type: output, expr: status, equals: complete}}}";
    let body = json!({"run": run, "spec": spec}).to_string();
    let checked = lab.client.post("/checks", body).await.json();
    assert_eq!(checked["status"], "passed", "{checked:#}");
    let taken = take(&mut events, 2).await;
    let frames: Vec<Value> = taken.iter().map(frame).collect();
    let stream = format!("eval:{}", checked["eval_id"].as_str().unwrap());
    let kinds = frames
        .iter()
        .map(|frame| (&frame["stream"], &frame["type"]));
    let expected = [
        (&json!(stream), &json!("check.result")),
        (&json!(stream), &json!("eval.finished")),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
}

#[tokio::test]
async fn a_follower_gets_every_frame_of_every_run_once_and_in_the_order_of_the_ledger() {
    let lab = Lab::new(&kit(), &[]).await;
    let mut early = follow(&lab.client, "", None).await;
    let mut runs = lab.client.run_hello(3).await;
    let forked = json!({"at": 2, "reason": "a look"}).to_string();
    let branch = lab
        .client
        .post(&format!("/runs/{}/fork", runs[0]), forked)
        .await;
    assert_eq!(branch.status, 201, "{}", branch.text());
    let branch = branch.json()["branch_id"].as_str().unwrap().to_owned();
    let resumed = format!("/runs/{branch}/resume");
    assert_eq!(lab.client.post(&resumed, "{}").await.status, 202);
    lab.client.ended(&branch).await;
    let mut expected = lab.client.frames_by_id(&runs).await;
    runs.push(branch.clone());
    let shared = |frame: &Value| frame["stream"] != format!("branch:{branch}");
    let own = lab.client.frames_by_id(std::slice::from_ref(&branch)).await;
    expected.extend(own.into_iter().filter(|(_, frame)| !shared(frame)));
    let followed = take(&mut early, expected.len()).await;
    assert!(followed.is_sorted_by_key(|event| event.id));
    let by_id: BTreeMap<String, Value> = followed
        .iter()
        .map(frame)
        .map(|frame| (frame["id"].as_str().unwrap().to_owned(), frame))
        .collect();
    assert_eq!(by_id, expected);
    // Within a run, the numbers rise one by one.
    for run in &runs {
        let seqs = followed.iter().map(frame);
        let seqs = seqs.filter(|frame| frame["run_id"] == run.as_str());
        let seqs: Vec<u64> = seqs.map(|frame| frame["seq"].as_u64().unwrap()).collect();
        assert!(seqs.windows(2).all(|two| two[1] == two[0] + 1), "{seqs:?}");
    }
    let late = take(&mut follow(&lab.client, "", None).await, followed.len()).await;
    assert_eq!(late, followed);
    // Whoever follows learns of the end of the engine.
    lab.close().await;
    assert_eq!(early.next().await, None);
    assert!(!early.broken);
}

#[tokio::test]
async fn a_pattern_chooses_frames_by_their_types() {
    let lab = Lab::new(&kit(), &[]).await;
    let runs = lab.client.run_hello(2).await;
    let all = lab.client.frames_by_id(&runs).await.len();
    let all = take(&mut follow(&lab.client, "?pattern=*", None).await, all).await;
    for (pattern, wanted) in [
        ("run.completed", &["run.completed"][..]),
        ("step.*", &["step."]),
        (
            "run.created,step.completed",
            &["run.created", "step.completed"],
        ),
        ("run.*,step.completed", &["run.", "step.completed"]),
    ] {
        let is_wanted = |event: &&Event| {
            let kind = frame(event)["type"].as_str().unwrap().to_owned();
            wanted.iter().any(|prefix| kind.starts_with(prefix))
        };
        let expected: Vec<Event> = all.iter().filter(is_wanted).cloned().collect();
        assert!(!expected.is_empty() && expected.len() < all.len());
        let query = format!("?pattern={pattern}");
        let mut events = follow(&lab.client, &query, None).await;
        assert_eq!(
            take(&mut events, expected.len()).await,
            expected,
            "{pattern}"
        );
    }
    // As after the ledger was restored from an earlier copy.
    let last = all.last().unwrap().id;
    drop(follow(&lab.client, &format!("?from={}", last + 1), None).await);
    drop(follow(&lab.client, "", Some(last)).await);
    let beyond = lab.client.get("/events?from=99999999").await;
    let header = [("last-event-id", "99999999")];
    let given = lab.client.send("GET", "/events", &header, "").await;
    for refused in [beyond, given] {
        assert_eq!(refused.status, 404, "{}", refused.text());
        let words = "the last position of the ledger is ";
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    for (pattern, code) in [
        ("run.complete", "unknown_frame_type"),
        ("store.opened", "unknown_frame_type"),
        ("run*", "invalid_query"),
        ("", "invalid_query"),
    ] {
        let refused = lab.client.get(&format!("/events?pattern={pattern}")).await;
        assert_eq!(refused.status, 400, "{pattern}");
        assert_eq!(refused.json()["code"], code, "{pattern}");
    }
}

#[tokio::test]
async fn going_on_after_any_event_gives_exactly_the_rest_also_after_a_restart() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let mut runs = lab.client.run_hello(2).await;
    let first = lab.client.frames_by_id(&runs).await.len();
    let first = take(&mut follow(&lab.client, "", None).await, first).await;
    lab.close().await;
    let lab = Lab::on_file(&path, &kit, &[]).await;
    runs.extend(lab.client.run_hello(1).await);
    let all = lab.client.frames_by_id(&runs).await.len();
    let all = take(&mut follow(&lab.client, "", None).await, all).await;
    assert_eq!(all[..first.len()], first[..]);
    let end = all.last().unwrap().id;
    for (at, event) in all.iter().enumerate() {
        let rest = &all[at + 1..];
        let from = format!("?from={}", event.id + 1);
        for mut events in [
            follow(&lab.client, "", Some(event.id)).await,
            follow(&lab.client, &from, None).await,
            // What the connection says goes before what its address says.
            follow(&lab.client, "?from=1", Some(event.id)).await,
        ] {
            if !rest.is_empty() {
                assert_eq!(take_to(&mut events, end).await, rest);
            }
        }
    }
    lab.close().await;
}

#[tokio::test]
async fn a_live_follower_begins_at_the_end_and_then_misses_nothing() {
    let lab = Lab::new(&kit(), &[]).await;
    lab.client.run_hello(2).await;
    let mut live = follow(&lab.client, "?live=true&pattern=run.*", None).await;
    // The bookmark says where it begins: whoever comes back before the first frame misses nothing.
    let bookmark = live.bookmark().await;
    let run = &lab.client.run_hello(1).await[0];
    let frames = lab.client.frames(run).await;
    let of_run = |frame: &&Value| frame["type"].as_str().unwrap().starts_with("run.");
    let expected = frames.iter().filter(of_run).count();
    let followed = take(&mut live, expected).await;
    assert!(
        followed
            .iter()
            .all(|event| frame(event)["run_id"] == run.as_str())
    );
    let mut again = follow(&lab.client, "?pattern=run.*", Some(bookmark)).await;
    assert_eq!(take(&mut again, expected).await, followed);
}

/// Fifty followers of one ledger see the same, whether they are up to date or far behind.
#[tokio::test]
async fn followers_at_different_positions_see_the_same_frames() {
    let lab = Lab::new(&kit(), &[]).await;
    let mut runs = lab.client.run_hello(30).await;
    let mut followers = Vec::new();
    for _ in 0..25 {
        followers.push(follow(&lab.client, "", None).await);
    }
    runs.extend(lab.client.run_hello(30).await);
    for _ in 0..25 {
        followers.push(follow(&lab.client, "", None).await);
    }
    runs.extend(lab.client.run_hello(5).await);
    let count = lab.client.frames_by_id(&runs).await.len();
    let all = take(&mut followers[0], count).await;
    let numbers: Vec<u64> = all.iter().map(|event| event.id).collect();
    assert!(numbers.is_sorted() && numbers.len() == count);
    for follower in &mut followers[1..] {
        assert_eq!(take(follower, count).await, all);
    }
}

#[tokio::test]
async fn a_follower_that_reads_nothing_delays_neither_runs_nor_other_followers() {
    let lab = Lab::new(&kit(), &[]).await;
    let mut silent = Vec::new();
    for _ in 0..20 {
        silent.push(follow(&lab.client, "", None).await);
    }
    let large = "x".repeat(50_000);
    let mut runs = Vec::new();
    for _ in 0..40 {
        let done = lab.client.run("hello", json!({"text": large})).await;
        runs.push(done["run_id"].as_str().unwrap().to_owned());
    }
    let count = lab.client.frames_by_id(&runs).await.len();
    let mut reading = follow(&lab.client, "", None).await;
    let all = take(&mut reading, count).await;
    assert_eq!(frame(all.last().unwrap())["type"], "run.completed");
    // One that begins to read later gets all of it.
    let late = guarded("a late reader", take(&mut silent[0], count)).await;
    assert_eq!(late, all);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_only_reads_shows_the_frames_that_another_appends() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let mut runs = lab.client.run_hello(1).await;
    let setup = Setup {
        kit: kit.load(),
        environment: None,
        process: process(&[]),
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
    let mut events = follow(&Client::of(&reading.url), "", None).await;
    let before = lab.client.frames_by_id(&runs).await.len();
    let mut followed = take(&mut events, before).await;
    runs.extend(lab.client.run_hello(1).await);
    let count = lab.client.frames_by_id(&runs).await.len();
    followed.extend(take(&mut events, count - before).await);
    let own = take(&mut follow(&lab.client, "", None).await, count).await;
    assert_eq!(followed, own);
    lab.close().await;
    reading.close().await;
}
