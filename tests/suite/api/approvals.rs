//! Every status of what people decide, and of the tool servers that come with ktsu, once.

use std::collections::BTreeSet;

use axum::http::Request;
use ktsu_ledger::appender::Options;
use ktsu_ledger::disk_space::DiskSpace;
use ktsu_ledger::store::{MemoryStore, Store as _};
use serde_json::{Value, json};

use super::describe::{Case, Described};
use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, Within};

const GATED: &str = "pipeline: [{id: keep, agent: ./agents/keeper.agent.yaml}]\n";
const KEEPER: &str = r#"
name: keeper
version: 1.0.0
model: std
prompt: {system: You keep things., user: Keep it.}
servers:
  - name: ktsu/kv
    access: {allowlist: [kv-get, {name: kv-set, require_approval: {on_reject: recover}}]}
output: {schema: {type: object}}
"#;
const GATEWAY: &str = "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [desk/m]}]\n";
const RULES: &str = r#"
rules:
  - when: {turn: 1}
    tool_calls: [{name: kv-set, arguments: {key: k, value: 1}}, {name: kv-set, arguments: {key: l, value: 2}}]
default:
  reply: {kept: true}
"#;

fn kit() -> KitDir {
    KitDir::new(&[("gated", GATED)])
        .with("agents/keeper.agent.yaml", KEEPER)
        .with("gateway.yaml", GATEWAY)
        .with("rules.yaml", RULES)
}

async fn within(store: &MemoryStore, options: Options) -> Within {
    Within::new(kit().load(), store.clone(), options, &[], None).await
}

/// Starts a run, and waits until both of its calls wait for people.
async fn asked(api: &Described) -> (String, Vec<Value>) {
    let accepted = api.post("/invoke/gated", "{}").await;
    let run = accepted.json()["run_id"].as_str().unwrap().to_owned();
    loop {
        let listed = api.get("/approvals").await;
        assert_eq!(listed.status, 200, "{}", listed.text());
        let listed = listed.json().as_array().unwrap().clone();
        if listed.len() == 2 {
            return (run, listed);
        }
        tokio::task::yield_now().await;
    }
}

pub(super) async fn all(described: &Described) -> BTreeSet<Case> {
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let (run, listed) = asked(&api).await;
    let ids = listed
        .iter()
        .map(|asked| asked["approval_id"].as_str().unwrap());
    let ids: Vec<&str> = ids.collect();
    super::pages::are_in_inbox(&api, &ids, true).await;
    let recorded = Recorded::read(&store, &run);
    let step = format!("/runs/{run}/steps/keep/approval");
    refused(&api, &run, &step).await;
    let frames = Recorded::read(&store, &run).records.len();
    assert_eq!(frames, recorded.records.len(), "a refusal writes nothing");
    assert_eq!(
        api.get(&step).await.json()["pending"]
            .as_array()
            .unwrap()
            .len(),
        2
    );
    one_by_one(&api, &step, &listed).await;
    for (record, decision) in listed.iter().zip(["approved", "rejected"]) {
        let body = json!({"decision": decision, "approval_id": record["approval_id"],
            "digest": record["digest"], "reason": "seen"});
        let path = format!("{step}/decide");
        let decided = api.post(&path, &body.to_string()).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
        assert_eq!(decided.json()["status"], decision);
        let again = api.post(&path, &body.to_string()).await;
        assert_eq!(
            (again.status, &again.json()["code"]),
            (409, &json!("approval_already_decided"))
        );
        assert_eq!(again.json()["approval"]["votes"][0]["decision"], decision);
    }
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
    assert_eq!(api.get(&step).await.json()["status"], "rejected");
    let all = api.get("/approvals?status=all").await.json();
    assert_eq!(all.as_array().unwrap().len(), 4, "of both runs");
    assert_eq!(api.get("/reviews").await.status, 200);
    let mut seen = api.seen();
    seen.extend(unable(described).await);
    seen.extend(own_servers(described).await);
    seen
}

/// Each record by its id, and as many as are asked for.
async fn one_by_one(api: &Described, step: &str, listed: &[Value]) {
    for record in listed {
        let id = record["approval_id"].as_str().unwrap();
        let shown = api.get(&format!("{step}?approval_id={id}")).await.json();
        assert_eq!(shown["approval_id"], id);
        assert_eq!(shown["arguments"], record["arguments"]);
    }
    let absent = api.get(&format!("{step}?approval_id=apr_0")).await;
    assert_eq!(
        (absent.status, &absent.json()["code"]),
        (404, &json!("approval_not_found"))
    );
    let first = api.get("/approvals?limit=1").await.json();
    assert_eq!(first, json!([listed[0]]));
}

/// The pages of a list, as the header `Link` leads from one to the next.
async fn pages(api: &Described, first: &str) -> Vec<Vec<Value>> {
    let mut pages = Vec::new();
    let mut path = Some(first.to_owned());
    while let Some(asked) = path {
        let page = api.get(&asked).await;
        assert_eq!(page.status, 200, "{asked}: {}", page.text());
        pages.push(page.json().as_array().unwrap().clone());
        let link = page.headers.get("link").map(|link| link.to_str().unwrap());
        path = link.map(|link| {
            let (target, rest) = link.split_once('>').unwrap();
            assert_eq!(rest, "; rel=\"next\"");
            target.strip_prefix('<').unwrap().to_owned()
        });
    }
    pages
}

#[tokio::test]
async fn approvals_come_in_pages_without_gap_or_repeat() {
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = Described::new(&lab.client).await;
    for _ in 0..3 {
        assert_eq!(api.post("/invoke/gated", "{}").await.status, 202);
    }
    let whole = loop {
        let listed = api.get("/approvals").await.json();
        let listed = listed.as_array().unwrap().clone();
        if listed.len() == 6 {
            break listed;
        }
        tokio::task::yield_now().await;
    };
    for limit in [1, 2, 4, 5, 6] {
        let paged = pages(&api, &format!("/approvals?workflow=gated&limit={limit}")).await;
        assert!(paged.iter().all(|page| page.len() <= limit));
        assert_eq!(paged.len(), 6_usize.div_ceil(limit), "limit {limit}");
        assert_eq!(paged.concat(), whole, "limit {limit}");
    }
    let all = pages(&api, "/approvals?status=all").await;
    assert_eq!(all.len(), 1);
    for limit in [1, 2] {
        let paged = pages(&api, &format!("/approvals?status=all&limit={limit}")).await;
        assert_eq!(paged.concat(), all.concat(), "{limit} runs at a time");
        assert!(paged.len() >= 3 / limit);
    }
}

async fn refused(api: &Described, run: &str, step: &str) {
    let evil = [("origin", "https://evil.example")];
    for path in ["/approvals", "/reviews", step] {
        assert_eq!(api.get(&format!("{path}?x=1")).await.status, 400);
        assert_eq!(api.call("GET", path, &evil, "").await.status, 403);
    }
    let prefix = &run[..8];
    api.post("/invoke/gated", "{}").await;
    for below in ["approval", "approval/decide"] {
        let (method, body) = match below {
            "approval" => ("GET", ""),
            _ => ("POST", r#"{"decision": "approved"}"#),
        };
        for (path, status) in [
            (format!("/runs/absent/steps/keep/{below}"), 404),
            (format!("/runs/{run}/steps/nobody/{below}"), 404),
            (format!("/runs/{prefix}/steps/keep/{below}"), 409),
        ] {
            let answer = api.call(method, &path, &[], body).await;
            assert_eq!(answer.status, status, "{path}: {}", answer.text());
        }
    }
    let decide = format!("{step}/decide");
    let large = " ".repeat(1024 * 1024 + 1);
    for (body, status, code) in [
        ("nope", 400, "invalid_json"),
        (r#"{"decision": "perhaps"}"#, 400, "unknown_decision"),
        (r#"{"decision": "approved"}"#, 409, "approval_refused"),
        (
            r#"{"decision": "approved", "approval_id": "apr_0"}"#,
            404,
            "approval_not_found",
        ),
        (large.as_str(), 413, "body_too_large"),
        ("{}", 422, "invalid_request"),
        (
            r#"{"decision": "approved", "colour": "red"}"#,
            422,
            "invalid_request",
        ),
        (
            r#"{"decision": "approved", "result": "x"}"#,
            422,
            "invalid_request",
        ),
    ] {
        let answer = api.post(&decide, body).await;
        assert_eq!(
            (answer.status, &answer.json()["code"]),
            (status, &json!(code)),
            "{body:.60}"
        );
    }
    let foreign = api
        .call("POST", &decide, &evil, r#"{"decision": "approved"}"#)
        .await;
    assert_eq!(foreign.status, 403);
}

/// 507 from a disk that is nearly full, 503 where another owner took the ledger.
async fn unable(described: &Described) -> BTreeSet<Case> {
    let mut seen = BTreeSet::new();
    let store = MemoryStore::new();
    let lab = within(&store, Options::default()).await;
    let api = described.at(&lab.client);
    let (run, listed) = asked(&api).await;
    let path = format!("/runs/{run}/steps/keep/approval/decide");
    let body = json!({"decision": "approved", "approval_id": listed[0]["approval_id"]}).to_string();
    let recorded = Recorded::read(&store, &run);
    store.clone().acquire().unwrap();
    let lost = api.post(&path, &body).await;
    assert_eq!(lost.status, 503, "{}", lost.text());
    seen.extend(api.seen());
    let mut full = MemoryStore::new();
    recorded.put(&mut full);
    let options = Options {
        disk_space: DiskSpace::by(1000, || Some(999)),
        ..Options::default()
    };
    let lab = within(&full, options).await;
    let api = described.at(&lab.client);
    assert_eq!(api.post(&path, &body).await.status, 507);
    seen.extend(api.seen());
    seen
}

/// The tool servers that come with ktsu, asked by hand for a task that is under way.
async fn own_servers(described: &Described) -> BTreeSet<Case> {
    let model = Model::echo().await;
    let one = "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";
    let kit = model::kit(&model, &[("one", one)]);
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
    let api = described.at(&lab.client);
    lab.client.invoke("one", json!({})).await;
    runtime.until(|heard| !heard.is_empty()).await;
    let task = runtime.heard()[0].json();
    let token = task["callback_url"]
        .as_str()
        .unwrap()
        .split_once("token=")
        .unwrap()
        .1;
    let run = task["run_id"].as_str().unwrap();
    let path = format!("/tools/ktsu/kv?run={run}&step=s1&attempt=1&token={token}");
    let say = |method: &str, params: Value| {
        json!({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).to_string()
    };
    let hello = api
        .post(
            &path,
            &say("initialize", json!({"protocolVersion": "2025-06-18"})),
        )
        .await;
    assert_eq!(hello.json()["result"]["protocolVersion"], "2025-06-18");
    let listed = api.post(&path, &say("tools/list", json!({}))).await;
    assert_eq!(
        listed.json()["result"]["tools"].as_array().unwrap().len(),
        4
    );
    let meta = json!({"ktsu/idempotency-key": "0123"});
    let call = json!({"name": "kv-get", "arguments": {"key": "k"}, "_meta": meta});
    let called = api.post(&path, &say("tools/call", call)).await;
    assert_eq!(
        called.json()["result"]["isError"],
        true,
        "it is not recorded"
    );
    let unknown = api.post(&path, &say("resources/list", json!({}))).await;
    assert_eq!(unknown.json()["error"]["code"], -32601);
    let notice = r#"{"jsonrpc": "2.0", "method": "notifications/initialized"}"#;
    assert_eq!(api.post(&path, notice).await.status, 202);
    let evil = [("origin", "https://evil.example")];
    let bare = path.replace(token, "");
    let other = path.replace("attempt=1", "attempt=2");
    let absent = path.replace(run, "run_absent");
    let strange = path.replace("/kv", "/unknown");
    let large = " ".repeat(1024 * 1024 + 1);
    assert_eq!(api.post(&path, "{").await.status, 400);
    assert_eq!(api.post(&bare, notice).await.status, 401);
    assert_eq!(api.post(&other, notice).await.status, 401);
    assert_eq!(api.call("POST", &path, &evil, notice).await.status, 403);
    assert_eq!(api.post(&absent, notice).await.status, 404);
    assert_eq!(api.post(&strange, notice).await.status, 404);
    assert_eq!(api.post(&path, &large).await.status, 413);
    assert_eq!(api.post(&path, "[]").await.status, 422);
    let html = [("accept", "text/html")];
    assert_eq!(api.call("POST", &path, &html, notice).await.status, 406);
    let mut seen = listening(&api, &lab, &path, token).await;
    let callback = task["callback_url"].as_str().unwrap();
    let callback = &callback[callback.find("/runs/").unwrap()..];
    let sse = path.replacen('?', "/sse?", 1);
    // The stream ends with its attempt, and none is opened after it.
    let (whole, ended) = tokio::join!(api.get(&sse), async {
        api.post(callback, r#"{"status": "failed", "error": "m"}"#)
            .await
    });
    assert_eq!((whole.status, ended.status), (200, 200));
    assert!(whole.text().starts_with("event: endpoint\ndata: /tools/"));
    assert_eq!(api.get(&sse).await.status, 409);
    lab.close().await;
    seen.extend(api.seen());
    seen
}

/// The older transport, by hand.
async fn listening(api: &Described, lab: &Lab, path: &str, token: &str) -> BTreeSet<Case> {
    let evil = [("origin", "https://evil.example")];
    let sse = path.replacen('?', "/sse?", 1);
    let post = path.replacen('?', "/messages?", 1);
    let ping = r#"{"jsonrpc": "2.0", "id": 1, "method": "ping"}"#;
    let strange = |path: &str| path.replace("/kv", "/unknown");
    assert_eq!(api.get(&format!("{sse}&x=1")).await.status, 400);
    assert_eq!(api.get(&sse.replace(token, "")).await.status, 401);
    assert_eq!(api.call("GET", &sse, &evil, "").await.status, 403);
    assert_eq!(api.get(&strange(&sse)).await.status, 404);
    let json = [("accept", "application/json")];
    assert_eq!(api.call("GET", &sse, &json, "").await.status, 406);

    // Within the process nobody reads an answer before it is asked for.
    let within = api.at(&Client::within(lab.engine.router.clone()));
    let mut open = Vec::new();
    let listen = || within.client.listen(Request::get(&sse));
    while let Ok(events) = listen().await.unwrap() {
        open.push(events);
    }
    assert_eq!(open.len(), 8);
    assert_eq!(within.get(&sse).await.status, 503);
    let (_, endpoint) = open[0].named().await.unwrap();
    for _ in 0..16 {
        assert_eq!(within.post(&endpoint, ping).await.status, 202);
    }
    assert_eq!(within.post(&endpoint, ping).await.status, 503);
    let (_, answer) = open[0].named().await.unwrap();
    assert_eq!(answer, r#"{"id":1,"jsonrpc":"2.0","result":{}}"#);
    assert_eq!(within.post(&endpoint, "{").await.status, 400);
    assert_eq!(within.post(&endpoint, "{}").await.status, 400);
    assert_eq!(
        within
            .post(&endpoint.replace(token, "1.0"), ping)
            .await
            .status,
        401
    );
    assert_eq!(
        within.call("POST", &endpoint, &evil, ping).await.status,
        403
    );
    assert_eq!(within.post(&strange(&endpoint), ping).await.status, 404);
    assert_eq!(within.post(&post, ping).await.status, 404);
    let large = " ".repeat(1024 * 1024 + 1);
    assert_eq!(within.post(&endpoint, &large).await.status, 413);
    assert_eq!(within.post(&endpoint, "7").await.status, 422);
    drop(open);
    assert_eq!(
        within.post(&endpoint, ping).await.status,
        404,
        "nobody listens"
    );
    within.seen()
}

/// Keeps the same thing twice, and another one in between.
const IN_TURNS: &str = r#"
rules:
  - when: {turn: 1}
    tool_calls: [{name: kv-set, arguments: {key: k, value: the first words}}]
  - when: {turn: 2}
    tool_calls: [{name: kv-set, arguments: {key: k, value: the other words}}]
  - when: {turn: 3}
    tool_calls: [{name: kv-set, arguments: {key: k, value: the other words}}]
default:
  reply: {kept: true}
"#;

#[tokio::test]
async fn the_inbox_shows_how_a_call_differs_from_the_one_that_was_approved_before_it() {
    let kit = kit().with("rules.yaml", IN_TURNS);
    let lab = Lab::new(&kit, &[]).await;
    let run = lab.client.invoke("gated", json!({})).await;
    let mut events = lab.client.events(&run, None).await;
    let mut pages = Vec::new();
    for _ in 0..3 {
        while !events.next().await.unwrap().data.contains(".requested\"") {}
        let asked = lab.client.get("/approvals").await.json();
        pages.push(lab.client.get("/inspector/inbox").await);
        let decision = json!({"decision": "approved", "approval_id": asked[0]["approval_id"]});
        let path = format!("/runs/{run}/steps/keep/approval/decide");
        let decided = lab.client.post(&path, decision.to_string()).await;
        assert_eq!(decided.status, 200, "{}", decided.text());
    }
    let [first, second, third] = &pages[..] else {
        panic!("three calls")
    };
    let text = first.text();
    assert!(!text.contains("approved before"), "{text}");
    let text = second.text();
    for part in [
        "Differs from the call of",
        "/value",
        "<del>first</del>",
        "<ins>other</ins>",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains(">/key<"), "{text}");
    super::pages::is_harmless(second);
    let text = third.text();
    assert!(text.contains("The same arguments as the call of"), "{text}");
}
