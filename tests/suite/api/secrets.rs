//! A secret stands in nothing that is recorded or answered (DESIGN 1, decision K3).

use ktsu_ledger::appender::Options;
use ktsu_ledger::store::{Audit as _, MemoryStore};
use serde_json::json;

use crate::support::ledgers::Recorded;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink, Within};

const SECRET: &str = "tok/en+with \"odd\" bytes";

fn kit() -> KitDir {
    KitDir::new(&[(
        "quiet",
        r#"
env: [{name: TOKEN, secret: true}, {name: SINK}]
params:
  schema: {type: object, properties: {note: {}}}
pipeline:
  - id: tell
    webhook:
      url: "{{ env.SINK }}/tell"
      body: {token: "{{ env.TOKEN }}", header: "Bearer {{ env.TOKEN }}", note: "{{ params.note }}"}
  - id: again
    depends_on: [tell]
    webhook: {url: "{{ env.SINK }}/again", body: {note: "{{ params.note }}"}}
"#,
    )])
}

/// The forms in which somebody could read it.
fn forms() -> Vec<String> {
    let json = serde_json::to_string(SECRET).unwrap();
    vec![
        SECRET.to_owned(),
        json[1..json.len() - 1].to_owned(),
        "tok%2Fen%2Bwith%20%22odd%22%20bytes".to_owned(),
        "dG9rL2VuK3dpdGggIm9kZCIgYnl0ZXM".to_owned(),
    ]
}

fn clean(what: &str, text: &str) {
    for form in forms() {
        assert!(
            !text.contains(&form),
            "{what} holds the secret as {form}: {text}"
        );
    }
    assert!(!text.contains("atok/"), "{what} holds its beginning");
}

#[tokio::test]
async fn a_secret_that_is_echoed_and_repeated_is_recorded_nowhere() {
    let answers = [
        json!({"you_sent": SECRET, "nested": [{"again": format!("<{SECRET}>")}]}).to_string(),
        format!("plain text with {SECRET} in it"),
        format!("basic {}", "dG9rL2VuK3dpdGggIm9kZCIgYnl0ZXM="),
        json!({ SECRET: "as a name" }).to_string(),
        // Cut off in the middle of it, where an answer is too long to be kept.
        format!("{}{SECRET}", " ".repeat(64 * 1024 - 12)),
        format!("{}{SECRET}", "a".repeat(64 * 1024 - 8)),
    ];
    for status in [200, 500] {
        for echo in &answers {
            let echo = echo.clone();
            let sink = Sink::scripted(move |_| Reply::Now(status, echo.clone())).await;
            let store = MemoryStore::new();
            let pairs = [("TOKEN", SECRET), ("SINK", sink.url.as_str())];
            let options = Options::default();
            let within = Within::new(kit().load(), store.clone(), options, &pairs, None).await;
            let client = &within.client;
            let body = json!({"note": {"text": format!("as {SECRET}"), "list": [SECRET]}});
            let envelope = client.run("quiet", body).await;
            let run = envelope["run_id"].as_str().unwrap();
            // It is sent where it belongs, whole.
            let heard = sink.heard();
            assert_eq!(heard[0].json()["token"], json!(SECRET));
            assert_eq!(heard[0].json()["header"], json!(format!("Bearer {SECRET}")));
            assert_eq!(heard[0].json()["note"]["list"], json!(["[REDACTED]"]));
            assert_eq!(envelope["env"]["TOKEN"], "[REDACTED]");
            for below in ["", "/envelope", "/frames", "/frames?expand=true", "/trace"] {
                let answer = client.get(&format!("/runs/{run}{below}")).await;
                clean(below, &answer.text());
            }
            clean("/runs", &client.get("/runs").await.text());
            for event in client.events(run, None).await.drain().await {
                clean("an event", &event.data);
            }
            let recorded = Recorded::read(&store, run);
            for record in &recorded.records {
                clean("a frame", &record.body);
            }
            for blob in store.scan_blobs(0, 1000).unwrap() {
                clean("a blob", &String::from_utf8_lossy(&blob.body));
            }
        }
    }
}

/// That another kit's engine has no such secret is nothing the world said.
#[tokio::test]
async fn a_run_whose_secret_is_not_here_waits_for_an_engine_that_has_it() {
    let sink = Sink::scripted(|_| Reply::Never).await;
    let kit = KitDir::new(&[(
        "w",
        r#"
env: [{name: TOKEN, secret: true}, {name: SINK}]
pipeline:
  - {id: call, webhook: {url: "{{ env.SINK }}/x", body: {token: "{{ env.TOKEN }}"}}}
"#,
    )]);
    let other = KitDir::new(&[("plain", "pipeline:\n  - {id: t, transform: {ops: []}}\n")]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", "a-token-of-ours")];
    let lab = Lab::on_file(&path, &kit, &pairs).await;
    let run = lab.client.invoke("w", json!({})).await;
    sink.until(|heard| heard.len() == 1).await;
    lab.close().await;

    let lab = Lab::on_file(&path, &other, &[]).await;
    assert_eq!(lab.engine.recovered.unfinished, 1);
    // Something else runs to its end meanwhile, so this engine has done what it does at a start.
    lab.client.run("plain", json!({})).await;
    let view = lab.client.get(&format!("/runs/{run}")).await.json();
    assert_eq!(view["run"]["status"], "running", "{view}");
    lab.close().await;
    assert_eq!(sink.heard().len(), 1, "nothing was sent without the secret");

    sink.follow(|_| Reply::Now(200, String::new()));
    let lab = Lab::on_file(&path, &kit, &pairs).await;
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
    lab.close().await;
    let heard = sink.heard();
    assert_eq!(heard.len(), 2);
    assert_eq!(
        (&heard[0].id, &heard[0].body),
        (&heard[1].id, &heard[1].body)
    );
}
