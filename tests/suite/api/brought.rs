//! Definitions that are brought to a fork, and what of a run is whose to change: the environment
//! that the run recorded decides, whatever a definition says of it.

use ktsu::assemble::LedgerPlace;
use serde_json::{Value, json};

use super::personal::{ADA, ALL, as_one, environment, kit};
use crate::support::{KitDir, Lab};

const NOWHERE: (&str, &str) = ("SINK", "http://127.0.0.1:9");

async fn lab(kit: &KitDir) -> Lab {
    Lab::in_environment(LedgerPlace::Memory, kit, &environment(true), &[NOWHERE]).await
}

/// A run of somebody, and its resolved definition.
async fn started(lab: &Lab, who: &str) -> (String, Value) {
    let envelope = as_one(lab, who).run("call", json!({"who": who})).await;
    let run = envelope["run_id"].as_str().unwrap().to_owned();
    let path = format!("/runs/{run}/frames?expand=true");
    let frames = as_one(lab, "cid").get(&path).await.json();
    (run, frames["frames"][0]["data"]["definition"].clone())
}

/// The root of a definition.
fn root(definition: &mut Value) -> &mut Value {
    let key = definition["root"].as_str().unwrap().to_owned();
    &mut definition["workflows"][key]
}

async fn fork(lab: &Lab, who: &str, run: &str, body: &Value) -> (u16, String) {
    let path = format!("/runs/{run}/fork");
    let answer = as_one(lab, who).post(&path, body.to_string()).await;
    (answer.status, answer.text())
}

#[tokio::test]
async fn a_definition_that_hides_what_it_uses_gets_no_key() {
    let kit = kit();
    let lab = lab(&kit).await;
    for (starter, speaker) in [("ada", "bea"), ("cid", "cid"), ("cid", "ada")] {
        let (run, definition) = started(&lab, starter).await;
        // It does not declare the key, and uses it all the same.
        let mut hidden = definition.clone();
        root(&mut hidden)["env"] = json!([{"name": "SINK", "secret": false}]);
        let body = json!({"at": 1, "definition": hidden, "effects": "execute"});
        for who in [speaker, "root"] {
            let (status, text) = fork(&lab, who, &run, &body).await;
            assert_eq!(status, 422, "{who} on {starter}'s: {text}");
            assert!(text.contains("env.KEY without declaring it"), "{text}");
        }
        // It declares the key as no secret; the run knows better.
        let mut open = definition.clone();
        root(&mut open)["env"] =
            json!([{"name": "KEY", "secret": false}, {"name": "SINK", "secret": false}]);
        let body = json!({"at": 1, "definition": open, "effects": "execute"});
        let (status, text) = fork(&lab, speaker, &run, &body).await;
        assert_eq!(status, 403, "{speaker} on {starter}'s: {text}");
        assert!(text.contains("KEY"), "{text}");
        assert_eq!(fork(&lab, "root", &run, &body).await.0, 201);
    }
    lab.close().await;
}

#[tokio::test]
async fn what_the_run_recorded_decides_and_not_the_definition_at_its_end() {
    let kit = kit();
    let lab = lab(&kit).await;
    let (run, mut keyless) = started(&lab, "ada").await;
    let plan = root(&mut keyless);
    plan["env"] = json!([{"name": "SINK", "secret": false}]);
    let body = &mut plan["steps"][1]["work"]["webhook"]["body"];
    assert!(body["key"].is_string(), "{body}");
    *body = json!({"who": "nobody"});
    let before = json!({"before": "send", "definition": keyless});
    let (status, text) = fork(&lab, "root", &run, &before).await;
    assert_eq!(status, 201, "{text}");
    let branch: Value = serde_json::from_str(&text).unwrap();
    let branch = branch["run_id"].as_str().unwrap();
    // At frame 1 the definition with the key still holds.
    let set = json!({"at": 1, "set": {"params.to": "evil"}, "effects": "execute"});
    let (status, text) = fork(&lab, "bea", branch, &set).await;
    assert_eq!(status, 403, "{text}");
    assert_eq!(fork(&lab, "ada", branch, &set).await.0, 201);
    lab.close().await;
}

#[tokio::test]
async fn who_is_not_known_at_the_moment_keeps_its_keys_from_others() {
    let kit = kit();
    let dir = tempfile::tempdir().unwrap();
    let place = || LedgerPlace::File(dir.path().join("ledger.db"));
    let all = environment(true);
    let lab = Lab::in_environment(place(), &kit, &all, &[NOWHERE]).await;
    let (ada, _) = started(&lab, "ada").await;
    let (cid, _) = started(&lab, "cid").await;
    lab.close().await;
    let without: Vec<_> = all
        .lines()
        .filter(|one| !one.contains("name: ada"))
        .collect();
    let lab = Lab::in_environment(place(), &kit, &without.join("\n"), &[NOWHERE]).await;
    let set = json!({"at": 1, "set": {"params.to": "evil"}, "effects": "execute"});
    let overlay =
        json!({"step": "shape", "field": "result", "value": {"to": "evil"}, "reason": "r"});
    let (status, text) = fork(&lab, "bea", &ada, &set).await;
    assert_eq!(status, 403, "{text}");
    let path = format!("/runs/{ada}/overlay");
    let laid = as_one(&lab, "bea").post(&path, overlay.to_string()).await;
    assert_eq!(laid.status, 403, "{}", laid.text());
    let (status, text) = fork(&lab, "bea", &cid, &set).await;
    assert_eq!(status, 201, "the value for everybody is no key: {text}");
    lab.close().await;
}

#[tokio::test]
async fn a_definition_with_a_secret_written_out_is_refused_without_repeating_it() {
    let kit = kit();
    let lab = lab(&kit).await;
    let (run, definition) = started(&lab, "ada").await;
    for secret in [ADA, ALL, "token-of-bea"] {
        let mut said = definition.clone();
        root(&mut said)["steps"][1]["work"]["webhook"]["body"]["who"] =
            json!(format!("it is {secret}!"));
        let mut named = definition.clone();
        root(&mut named)["steps"][1]["work"]["webhook"]["body"][secret] = json!(1);
        // What is no definition at all is told with its own words otherwise.
        let mut broken = definition.clone();
        root(&mut broken)["visibility"] = json!(secret);
        for definition in [said, named, broken] {
            let body = json!({"at": 1, "definition": definition});
            let (status, text) = fork(&lab, "root", &run, &body).await;
            assert_eq!(status, 422, "{text}");
            assert!(text.contains("secret value"), "{text}");
            assert!(!text.contains(secret), "{text}");
        }
    }
    let runs = as_one(&lab, "cid").get("/runs").await.json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{runs}");
    lab.close().await;
}
