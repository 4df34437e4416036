//! Frames of all runs, sent to subscribers: over real sockets, with receivers that answer, refuse,
//! hang and come back.

mod commanded;
mod crash;
mod dead;
mod emitted;
mod many;
mod suppressed;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::support::sink::{Heard, Reply};
use crate::support::{Client, GUARD, KitDir, Lab, Sink, guarded};

/// `secret key` in Base64.
const SECRET: (&str, &str) = ("HOOK_SECRET", "whsec_c2VjcmV0IGtleQ==");

/// Runs of some frames, without effects.
fn kit() -> KitDir {
    KitDir::new(&[(
        "hello",
        "params: {schema: {type: object}}\n\
         pipeline:\n\
         - {id: one, transform: {inputs: [{from: params}], ops: []}}\n\
         - {id: two, depends_on: [one], transform: {inputs: [{from: params}], ops: []}}\n",
    )])
}

/// An entry of `subscriptions:`.
fn entry(name: &str, pattern: &str, url: &str, rest: &str) -> String {
    format!(
        "  - {{name: {name}, pattern: '{pattern}', url: '{url}', \
         secret: '{{{{ env.HOOK_SECRET }}}}'{rest}}}\n"
    )
}

fn environment(entries: &[String]) -> String {
    format!("subscriptions:\n{}", entries.concat())
}

async fn lab(kit: &KitDir, text: &str) -> Lab {
    Lab::in_environment(LedgerPlace::Memory, kit, text, &[SECRET]).await
}

fn frame_id(heard: &Heard) -> String {
    heard.json()["id"].as_str().unwrap().to_owned()
}

/// The frames that came, by id.
fn frames(heard: &[Heard]) -> BTreeSet<String> {
    heard.iter().map(frame_id).collect()
}

/// Waits until something is so, by asking again and again.
async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    guarded(what, async {
        while !is_so().await {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

/// The subscription of a name, as an admin sees it.
async fn shown(client: &Client, id: &str) -> Value {
    let listed = client.get("/subscriptions").await.json();
    let listed = listed["subscriptions"].as_array().unwrap().clone();
    let found = listed.into_iter().find(|one| one["id"] == id);
    found.unwrap_or_else(|| panic!("no subscription {id}"))
}

/// The frames of every run came in their order; repetitions count once.
fn assert_in_order(heard: &[Heard]) {
    let mut last: BTreeMap<String, u64> = BTreeMap::new();
    let mut seen = BTreeSet::new();
    for one in heard {
        let frame = one.json();
        let (run, seq) = (
            frame["run_id"].as_str().unwrap(),
            frame["seq"].as_u64().unwrap(),
        );
        if !seen.insert((run.to_owned(), seq)) {
            continue;
        }
        let before = last.insert(run.to_owned(), seq);
        assert!(
            before.is_none_or(|before| before < seq),
            "{run}#{seq} after {before:?}"
        );
    }
}

/// HMAC-SHA256 as RFC 2104 writes it, by hand: the engine uses a library.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64);
    let padded = |pad: u8| {
        let mut block = [pad; 64];
        for (byte, key) in block.iter_mut().zip(key) {
            *byte ^= key;
        }
        block
    };
    let inner = Sha256::new()
        .chain_update(padded(0x36))
        .chain_update(message);
    let outer = Sha256::new()
        .chain_update(padded(0x5c))
        .chain_update(inner.finalize());
    outer.finalize().to_vec()
}

#[tokio::test]
async fn every_frame_arrives_once_signed_and_in_the_order_of_its_run() {
    let sink = Sink::new().await;
    let all = entry("all", "*", &format!("{}/all", sink.url), "");
    let ends = entry(
        "ends",
        "run.completed,run.failed",
        &format!("{}/ends", sink.url),
        "",
    );
    let kit = kit();
    let lab = lab(&kit, &environment(&[all, ends])).await;
    let runs = lab.client.run_hello(5).await;
    let expected = lab.client.frames_by_id(&runs).await;
    sink.until(|heard| heard.len() == expected.len() + runs.len())
        .await;
    let (all, ends): (Vec<_>, Vec<_>) =
        sink.heard().into_iter().partition(|one| one.path == "/all");
    assert_in_order(&all);
    assert_eq!(all.len(), expected.len());
    for one in &all {
        assert_eq!(one.json(), expected[&frame_id(one)]);
        assert_eq!(one.method, "POST");
    }
    assert!(ends.iter().all(|one| one.json()["type"] == "run.completed"));
    assert_eq!(ends.len(), runs.len());
    // An id for each frame and subscription.
    let ids: BTreeSet<&str> = all.iter().chain(&ends).map(|one| one.id.as_str()).collect();
    assert_eq!(ids.len(), all.len() + ends.len());
    let now = ktsu_orchestrator::clock::system_clock()().as_micros() / 1_000_000;
    for one in &all {
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
        let sent: u64 = one.timestamp.parse().unwrap();
        assert!(now - sent <= GUARD.as_secs(), "{sent} {now}");
    }
}

#[tokio::test]
async fn a_subscriber_that_is_down_for_a_while_misses_nothing() {
    let sink = Sink::scripted(|_| Reply::Now(503, String::new())).await;
    let entry = entry("away", "*", &sink.url, ", backoff: 1ms, attempts: 100");
    let kit = kit();
    let lab = lab(&kit, &environment(&[entry])).await;
    let mut runs = lab.client.run_hello(4).await;
    sink.until(|heard| heard.len() >= 5).await;
    let away = shown(&lab.client, "away").await;
    assert_eq!(
        (&away["status"], &away["dead"]),
        (&json!("failing"), &json!(0))
    );
    assert_eq!(away["error"]["code"], "webhook_status");
    assert_eq!(away["error"]["status"], 503);
    let accepted: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let taking = Arc::clone(&accepted);
    sink.follow(move |heard| {
        taking.lock().unwrap().push(heard.clone());
        Reply::Now(204, String::new())
    });
    runs.extend(lab.client.run_hello(2).await);
    let expected = lab.client.frames_by_id(&runs).await.len();
    until("all frames", async || {
        accepted.lock().unwrap().len() >= expected
    })
    .await;
    let accepted = accepted.lock().unwrap().clone();
    // Nothing twice: what was refused was not taken.
    assert_eq!(accepted.len(), expected);
    assert_eq!(frames(&accepted).len(), expected);
    assert_in_order(&accepted);
    until("it to be active", async || {
        shown(&lab.client, "away").await["status"] == "active"
    })
    .await;
}

#[tokio::test]
async fn the_order_of_a_run_holds_whatever_fails_in_between() {
    let count = Mutex::new(0u32);
    let accepted: Arc<Mutex<Vec<Heard>>> = Arc::default();
    let taking = Arc::clone(&accepted);
    let sink = Sink::scripted(move |heard| {
        let mut count = count.lock().unwrap();
        *count += 1;
        if count.is_multiple_of(3) {
            return Reply::Now(500, String::new());
        }
        taking.lock().unwrap().push(heard.clone());
        Reply::Now(200, String::new())
    })
    .await;
    let entry = entry("shaky", "*", &sink.url, ", backoff: 1ms, attempts: 100");
    let kit = kit();
    let lab = lab(&kit, &environment(&[entry])).await;
    let runs = lab.client.run_hello(6).await;
    let expected = lab.client.frames_by_id(&runs).await;
    until("all frames", async || {
        accepted.lock().unwrap().len() >= expected.len()
    })
    .await;
    let accepted = accepted.lock().unwrap().clone();
    assert_in_order(&accepted);
    assert_eq!(frames(&accepted), expected.into_keys().collect());
    // Every attempt at a frame had one id.
    let mut ids: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for one in sink.heard() {
        ids.entry(frame_id(&one)).or_default().insert(one.id);
    }
    assert!(ids.values().all(|ids| ids.len() == 1), "{ids:?}");
}

#[tokio::test]
async fn a_subscription_of_an_admin_gets_what_comes_after_it_until_it_is_removed() {
    let sink = Sink::new().await;
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[SECRET]).await;
    let before = lab.client.run_hello(1).await;
    let body = json!({
        "pattern": "*",
        "url": format!("{}/added", sink.url),
        "secret": "{{ env.HOOK_SECRET }}",
    });
    let added = lab.client.post("/subscriptions", body.to_string()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let id = added.json()["id"].as_str().unwrap().to_owned();
    let mut runs = lab.client.run_hello(2).await;
    let expected = lab.client.frames_by_id(&runs).await.len();
    sink.until(|heard| heard.len() == expected).await;
    lab.close().await;
    // After a stop in good order it goes on behind what was delivered.
    let lab = Lab::on_file(&path, &kit, &[SECRET]).await;
    runs.extend(lab.client.run_hello(1).await);
    let expected = lab.client.frames_by_id(&runs).await;
    // At least once: what was on its way when the process stopped may come again.
    sink.until(|heard| frames(heard) == expected.keys().cloned().collect())
        .await;
    let early = lab.client.frames_by_id(&before).await;
    assert!(early.keys().all(|id| !expected.contains_key(id)));
    lab.close().await;
    // Without its secret it waits, and shows that it does.
    let lab = Lab::on_file(&path, &kit, &[]).await;
    assert_eq!(shown(&lab.client, &id).await["status"], "idle");
    runs.extend(lab.client.run_hello(1).await);
    lab.close().await;
    let lab = Lab::on_file(&path, &kit, &[SECRET]).await;
    let expected = lab.client.frames_by_id(&runs).await;
    sink.until(|heard| frames(heard) == expected.keys().cloned().collect())
        .await;
    let path = format!("/subscriptions/{id}");
    let removed = lab.client.send("DELETE", &path, &[], "").await;
    assert_eq!(removed.status, 204, "{}", removed.text());
    // Another one, so that what it is sent shows that the first one is sent nothing.
    let body = body.to_string().replace("/added", "/second");
    assert_eq!(lab.client.post("/subscriptions", body).await.status, 201);
    let last = lab.client.run_hello(1).await;
    let last = lab.client.frames_by_id(&last).await.len();
    let second = |heard: &[Heard]| heard.iter().filter(|one| one.path == "/second").count();
    sink.until(|heard| second(heard) == last).await;
    let mut first = sink.heard();
    first.retain(|one| one.path == "/added");
    assert_eq!(frames(&first), expected.keys().cloned().collect());
    lab.close().await;
}

/// The key of a subscription that an admin adds is as secret as those that were known at the start.
#[tokio::test]
async fn the_key_of_an_added_subscription_is_kept_out_of_what_is_recorded_from_then_on() {
    let sink = Sink::new().await;
    let kit = KitDir::new(&[(
        "hello",
        "env: [{name: SHOWN, default: none}]\nparams: {schema: {type: object}}\n\
         pipeline: [{id: greet, transform: {inputs: [{from: params}], ops: []}}]\n",
    )]);
    let (name, key) = SECRET;
    let other = "whsec_YW5vdGhlciBrZXkgb2YgYSBob29r";
    let shown = format!("keys: {other}");
    let lab = Lab::new(&kit, &[SECRET, ("OTHER", other), ("SHOWN", &shown)]).await;
    let request = |variable: &str| {
        let url = format!("{}/added", sink.url);
        let secret = format!("{{{{ env.{variable} }}}}");
        json!({"pattern": "*", "url": url, "secret": secret}).to_string()
    };
    let added = lab.client.post("/subscriptions", request(name)).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let run = lab.client.invoke("hello", json!({"said": key})).await;
    lab.client.ended(&run).await;
    let frames = lab.client.frames(&run).await;
    assert!(!json!(frames).to_string().contains(key), "{frames:#?}");
    // Runs record this one as it is.
    let refused = lab.client.post("/subscriptions", request("OTHER")).await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    let words = refused.text();
    assert!(words.contains("SHOWN") && !words.contains(other), "{words}");
}

/// The streams of subscriptions are part of the ledger: they are verified, and no run has them.
#[tokio::test]
async fn what_is_recorded_of_subscriptions_is_verified_and_is_in_no_run() {
    let sink = Sink::new().await;
    let kit = kit();
    let text = environment(&[entry("all", "*", &sink.url, "")]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let place = LedgerPlace::File(path.clone());
    let lab = Lab::in_environment(place, &kit, &text, &[SECRET]).await;
    let runs = lab.client.run_hello(2).await;
    let expected = lab.client.frames_by_id(&runs).await;
    sink.until(|heard| heard.len() == expected.len()).await;
    lab.close().await;
    let options = ktsu_ledger::verify::VerifyOptions::default();
    let report = ktsu_ledger::verify_file(&path, &options, &mut |_| {}).unwrap();
    assert_eq!(report.problems, []);
    let reader = ktsu_ledger::Ledger::open(&path).reader().unwrap();
    crate::evidence::holds(reader.as_ref(), "subscriptions");
    let kinds = |stream: &str| -> Vec<String> {
        let stream = stream.parse().unwrap();
        let frames = ktsu_ledger::branch::frames(reader.as_ref(), &stream).unwrap();
        frames
            .iter()
            .map(|frame| frame.event.kind().to_owned())
            .collect()
    };
    assert_eq!(kinds("subscription:all"), ["subscription.added"]);
    let cursors = kinds("delivery:all");
    assert!(cursors.iter().all(|kind| kind == "delivery.advanced"));
    assert!((1..expected.len()).contains(&cursors.len()), "{cursors:?}");
    let alien = |frame: &Value| {
        let kind = frame["type"].as_str().unwrap();
        kind.starts_with("delivery.") || kind.starts_with("subscription.")
    };
    assert!(!expected.values().any(alien));
}
