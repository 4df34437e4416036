//! Every status of the routes about subscriptions, once; and what they refuse.

use std::collections::BTreeSet;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::MemoryStore;
use serde_json::{Value, json};

use super::describe::{Case, Described};
use crate::support::{KitDir, Lab, Sink, Within};

const SECRET: (&str, &str) = ("HOOK_SECRET", "whsec_c2VjcmV0IGtleQ==");

fn kit() -> KitDir {
    KitDir::new(&[("hello", "pipeline: []\n")])
}

fn request(url: &str) -> Value {
    json!({"pattern": "run.*", "url": url, "secret": "{{ env.HOOK_SECRET }}"})
}

fn with(mut body: Value, member: &str, value: Value) -> String {
    body[member] = value;
    body.to_string()
}

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let sink = Sink::new().await;
    let text = format!(
        "subscriptions:\n  - {{name: filed, pattern: '*', url: '{}/filed', secret: {{env: HOOK_SECRET}}}}\n",
        sink.url
    );
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &text, &[SECRET]).await;
    let api = described.at(&lab.client);
    let url = format!("{}/added", sink.url);
    let added = api.post("/subscriptions", &request(&url).to_string()).await;
    assert_eq!(added.status, 201, "{}", added.text());
    let added = added.json();
    let id = added["id"].as_str().unwrap().to_owned();
    assert!(id.starts_with("sub_"));
    assert_eq!(added["secret"], "{{ env.HOOK_SECRET }}");
    assert_eq!(
        (&added["attempts"], &added["by"]),
        (&json!(30), &json!("local"))
    );
    let listed = api.get("/subscriptions").await.json();
    let listed = listed["subscriptions"].as_array().unwrap().clone();
    let ids: Vec<&str> = listed
        .iter()
        .map(|one| one["id"].as_str().unwrap())
        .collect();
    assert_eq!(ids, ["filed", id.as_str()]);
    assert_eq!(
        (&listed[0]["declared"], &listed[1]["declared"]),
        (&json!(true), &json!(false))
    );
    malformed(&api, &url).await;
    refused(&api, &url).await;
    let large = " ".repeat(1024 * 1024 + 1);
    assert_eq!(api.post("/subscriptions", &large).await.status, 413);
    for (method, path) in [
        ("GET", "/subscriptions?x=1"),
        ("POST", "/subscriptions?x=1"),
        ("DELETE", "/subscriptions/filed?x=1"),
        ("GET", "/subscriptions/filed/dead?limit=0"),
        ("POST", "/subscriptions/filed/redrive?x=1"),
    ] {
        let answer = api
            .call(method, path, &[], &request(&url).to_string())
            .await;
        assert_eq!(answer.status, 400, "{method} {path}: {}", answer.text());
    }
    let dead = api.get(&format!("/subscriptions/{id}/dead")).await;
    assert_eq!((dead.status, dead.json()), (200, json!({"dead": []})));
    let redriven = api.post(&format!("/subscriptions/{id}/redrive"), "").await;
    assert_eq!(
        (redriven.status, redriven.json()),
        (202, json!({"redriven": 0}))
    );
    let declared = api.call("DELETE", "/subscriptions/filed", &[], "").await;
    assert_eq!(declared.status, 409);
    assert_eq!(declared.json()["code"], "subscription_declared");
    let path = format!("/subscriptions/{id}");
    let removed = api.call("DELETE", &path, &[], "").await;
    assert_eq!((removed.status, removed.text()), (204, String::new()));
    for (method, below) in [("DELETE", ""), ("GET", "/dead"), ("POST", "/redrive")] {
        for id in [id.as_str(), "absent", "..", "a b"] {
            let path = format!("/subscriptions/{}{below}", id.replace(' ', "%20"));
            let answer = api.client.send(method, &path, &[], "").await;
            assert_eq!(answer.status, 404, "{method} {path}");
        }
        let answer = api
            .call(method, &format!("/subscriptions/{id}{below}"), &[], "")
            .await;
        assert_eq!(answer.json()["code"], "subscription_not_found");
    }
    let listed = api.get("/subscriptions").await.json();
    assert_eq!(listed["subscriptions"].as_array().unwrap().len(), 1);
    api.seen()
}

/// What is wrong is said, and never with the value: it may be a secret in the wrong place.
async fn malformed(api: &Described, url: &str) {
    let canary = "canary-in-clear";
    for (member, value) in [
        ("secret", json!(canary)),
        (
            "secret",
            json!(format!("{canary} {{{{ env.HOOK_SECRET }}}}")),
        ),
        ("secret", json!("{{ params.x }}")),
        ("secret", json!(null)),
        ("url", json!("ftp://example.com")),
        (
            "url",
            json!(format!("https://example.com/{}", "x".repeat(2_001))),
        ),
        ("pattern", json!("run*")),
        ("pattern", json!("")),
        ("attempts", json!(0)),
        ("attempts", json!(101)),
        ("backoff_ms", json!(0)),
        ("backoff_ms", json!(600_001)),
        ("colour", json!("red")),
    ] {
        let body = with(request(url), member, value.clone());
        let answer = api.post("/subscriptions", &body).await;
        assert_eq!(answer.status, 422, "{member}: {value}: {}", answer.text());
        assert_eq!(
            answer.json()["code"],
            "invalid_request",
            "{member}: {value}"
        );
        assert!(!answer.text().contains(canary), "{}", answer.text());
    }
}

async fn refused(api: &Described, url: &str) {
    for (member, value, code, words) in [
        (
            "pattern",
            "run.complete",
            "unknown_frame_type",
            "run.completed",
        ),
        (
            "secret",
            "{{ env.ABSENT }}",
            "subscription_refused",
            "ABSENT",
        ),
        (
            "url",
            "http://10.1.2.3/x",
            "subscription_refused",
            "10.1.2.3",
        ),
        (
            "url",
            "http://169.254.169.254/x",
            "subscription_refused",
            "169.254",
        ),
        (
            "url",
            "http://user:pass@example.com/",
            "subscription_refused",
            "",
        ),
    ] {
        let body = with(request(url), member, json!(value));
        let answer = api.client.post("/subscriptions", body).await;
        assert!(
            matches!(answer.status, 400 | 422),
            "{value}: {}",
            answer.text()
        );
        assert_eq!(answer.json()["code"], code, "{value}");
        assert!(answer.text().contains(words), "{}", answer.text());
        assert!(!answer.text().contains("user:pass"), "{}", answer.text());
    }
}

/// With principals, loopback is private like everything else (decision K6).
#[tokio::test]
async fn the_policy_for_addresses_holds_for_subscriptions_too() {
    let text = "principals: [{name: ada, token: {env: TOKEN}, roles: [admin]}]\n";
    let pairs = [SECRET, ("TOKEN", "token-of-ada")];
    let kit = kit();
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, text, &pairs).await;
    let ada = crate::support::Client::showing(&lab.engine.url, "token-of-ada");
    let sink = Sink::new().await;
    let refused = ada
        .post("/subscriptions", request(&sink.url).to_string())
        .await;
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert_eq!(refused.json()["code"], "subscription_refused");
    // Names that are always this machine are judged before anything resolves them.
    for url in [
        "http://localhost:9/x",
        "http://LOCALHOST./x",
        "https://a.localhost/x",
        "http://ip6-localhost:9/x",
        "http://localhost.localdomain:9/x",
    ] {
        let refused = ada.post("/subscriptions", request(url).to_string()).await;
        assert_eq!(refused.status, 422, "{url}: {}", refused.text());
        let refused = refused.json();
        assert_eq!(refused["code"], "subscription_refused", "{url}");
        let words = refused["message"].as_str().unwrap();
        assert!(words.ends_with(" is a loopback address"), "{words}");
    }
    let listed = ada.get("/subscriptions").await.json();
    assert_eq!(listed, json!({"subscriptions": []}));
    lab.close().await;
    // A policy that lists the name lets it through.
    let listed = format!("{text}egress: {{allow: [localhost]}}\n");
    let lab = Lab::in_environment(LedgerPlace::Memory, &kit, &listed, &pairs).await;
    let ada = crate::support::Client::showing(&lab.engine.url, "token-of-ada");
    let added = request("http://localhost:9/x").to_string();
    assert_eq!(ada.post("/subscriptions", added).await.status, 201);
    lab.close().await;
}

/// Like other writes: nothing new is recorded while the disk is nearly full.
#[tokio::test]
async fn subscriptions_are_not_changed_while_the_disk_is_nearly_full() {
    let kit = kit();
    let options = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let within = Within::new(kit.load(), MemoryStore::new(), options, &[], None).await;
    let body = request("http://example.com/x").to_string();
    let refused = within.client.post("/subscriptions", body).await;
    assert_eq!(refused.status, 507, "{}", refused.text());
    assert_eq!(refused.json()["code"], "disk_full");
    assert_eq!(within.client.get("/subscriptions").await.status, 200);
}
