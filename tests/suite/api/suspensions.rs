//! Every status of the routes about steps that wait for data, once.

use std::collections::BTreeSet;

use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, Store as _};
use serde_json::json;

use super::describe::{Case, Described};
use crate::support::ledgers::Recorded;
use crate::support::{KitDir, Within};

const FLOW: &str = "pipeline:\n  - {id: a, agent: ./agents/clerk.agent.yaml, \
     params: {text: '{{ resume.data.text }}'}, resume: {schema: {type: object, required: [text]}}}\n";
const CLERK: &str = "name: clerk\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, properties: {text: {type: [string, 'null']}}}}\n\
     prompt: {system: You read., user: 'text {{ params.text }}.'}\ncommands: {suspend: true}\n\
     output: {schema: {type: object, properties: {verdict: {type: string}}}}\n";
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = "values: {text: {from: user, pattern: 'text (.+)[.]'}}
rules:
  - {when: {text: '.'}, reply: {verdict: read}}
  - {when: {turn: 1}, tool_calls: [{name: suspend, arguments: {reason: it is missing, checkpoint: 1}}]}
default: {reply: {verdict: none}}
";

async fn within(store: &MemoryStore, options: Options) -> Within {
    let kit = KitDir::new(&[("reads", FLOW)])
        .with("agents/clerk.agent.yaml", CLERK)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES);
    Within::new(kit.load(), store.clone(), options, &[], None).await
}

/// A run that waits for data.
async fn suspended(api: &Described) -> String {
    let accepted = api.post("/invoke/reads", "{}").await;
    let run = accepted.json()["run_id"].as_str().unwrap().to_owned();
    let mut events = api.client.events(&run, None).await;
    while !events
        .next()
        .await
        .unwrap()
        .data
        .contains("\"suspend.requested\"")
    {}
    run
}

/// The path of a step's link, below the engine.
async fn link(api: &Described, run: &str) -> String {
    let made = api
        .post(&format!("/runs/{run}/steps/a/suspend/link"), "")
        .await;
    assert_eq!(made.status, 200, "{}", made.text());
    let url = made.json()["url"].as_str().unwrap().to_owned();
    url[url.find("/runs/").unwrap()..].to_owned()
}

const GIVEN: &str = r#"{"data": {"text": "clause 7"}}"#;

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let run = suspended(&api).await;
    let other = suspended(&api).await;
    let recorded = Recorded::read(&store, &run).records.len();
    refused(&api, &run).await;
    let frames = Recorded::read(&store, &run).records.len();
    assert_eq!(frames, recorded, "a refusal writes nothing");
    let step = format!("/runs/{run}/steps/a");
    let shown = api.get(&format!("{step}/suspend")).await;
    assert_eq!(shown.status, 200, "{}", shown.text());
    let id = shown.json()["suspend_id"].clone();
    super::pages::are_in_inbox(&api, &[run.as_str(), other.as_str()], true).await;
    let body = json!({"data": {"text": "clause 7"}, "suspend_id": id, "reason": "found"});
    let given = api.post(&format!("{step}/resume"), &body.to_string()).await;
    assert_eq!(given.status, 200, "{}", given.text());
    let by_link = link(&api, &other).await;
    assert_eq!(api.post(&by_link, GIVEN).await.status, 200);
    for path in [format!("{step}/resume"), by_link] {
        let again = api.post(&path, GIVEN).await;
        assert_eq!(
            (again.status, &again.json()["code"]),
            (409, &json!("suspension_over"))
        );
    }
    let made = api.post(&format!("{step}/suspend/link"), "").await;
    assert_eq!(made.status, 409, "{}", made.text());
    assert_eq!(lab.client.ended(&run).await["output"]["verdict"], "read");
    let mut seen = api.seen();
    seen.extend(unable(described).await);
    seen
}

async fn refused(api: &Described, run: &str) {
    let evil = [("origin", "https://evil.example")];
    let prefix = &run[..8];
    let path = |below: &str| format!("/runs/{run}/steps/a/{below}");
    assert_eq!(api.get(&path("suspend?x=1")).await.status, 400);
    for below in ["resume", "suspend/link"] {
        let more = format!("{}?x=1", path(below));
        assert_eq!(api.post(&more, GIVEN).await.status, 400, "{more}");
    }
    let absent = api.get(&path("suspend?suspend_id=sus_0")).await;
    assert_eq!(
        (absent.status, &absent.json()["code"]),
        (404, &json!("suspension_not_found"))
    );
    for (below, method, body) in [
        ("suspend", "GET", ""),
        ("resume", "POST", GIVEN),
        ("suspend/link", "POST", ""),
    ] {
        for (path, status) in [
            (format!("/runs/absent/steps/a/{below}"), 404),
            (format!("/runs/{run}/steps/nothing/{below}"), 404),
            (format!("/runs/{run}/steps/a.0/{below}"), 404),
            (format!("/runs/{prefix}/steps/a/{below}"), 409),
        ] {
            let answer = api.call(method, &path, &[], body).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
        let foreign = api.call(method, &path(below), &evil, body).await;
        assert_eq!(foreign.status, 403);
    }
    let by_link = link(api, run).await;
    let wrong = by_link.replace("token=1.", "token=2.");
    assert_eq!(api.post(&wrong, GIVEN).await.status, 401);
    assert_eq!(api.call("POST", &by_link, &evil, GIVEN).await.status, 403);
    for run in ["absent", prefix] {
        let path = format!("/runs/{run}/steps/a/resume/link?token=1.x");
        let answer = api.post(&path, GIVEN).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.text());
    }
    assert_eq!(api.post(&format!("{by_link}&x=1"), GIVEN).await.status, 400);
    let large = " ".repeat(1024 * 1024 + 1);
    for (body, status, code) in [
        ("nope", 400, "invalid_json"),
        (large.as_str(), 413, "body_too_large"),
        ("{}", 422, "invalid_request"),
        (r#"{"data": 1, "colour": "red"}"#, 422, "invalid_request"),
        (r#"{"data": {}}"#, 422, "resume_data_invalid"),
        (
            r#"{"data": {"text": "x"}, "suspend_id": "sus_0"}"#,
            409,
            "suspension_stale",
        ),
    ] {
        for path in [path("resume"), by_link.clone()] {
            // A link names its suspension by itself.
            if code == "suspension_stale" && path == by_link {
                continue;
            }
            let answer = api.post(&path, body).await;
            assert_eq!(
                (answer.status, &answer.json()["code"]),
                (status, &json!(code)),
                "{path} {body:.60}"
            );
        }
    }
}

/// 507 from a disk that is nearly full, 503 where another owner took the ledger.
async fn unable(described: &Described) -> BTreeSet<Case> {
    let mut seen = BTreeSet::new();
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let run = suspended(&api).await;
    let path = format!("/runs/{run}/steps/a/resume");
    let by_link = link(&api, &run).await;
    let recorded = Recorded::read(&store, &run);
    store.clone().acquire().unwrap();
    for path in [&path, &by_link] {
        let lost = api.post(path, GIVEN).await;
        assert_eq!(lost.status, 503, "{}", lost.text());
    }
    seen.extend(api.seen());
    let mut full = MemoryStore::new();
    recorded.put(&mut full);
    let options = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let lab = within(&full, options).await;
    let api = described.at(&lab.client);
    assert_eq!(api.post(&path, GIVEN).await.status, 507);
    seen.extend(api.seen());
    seen
}
