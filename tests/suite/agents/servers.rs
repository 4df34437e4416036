//! What a runtime is told of the tool servers of a task: everything it needs to call them, secrets
//! included, of which nothing is recorded (seed 000, invariants 4, 10 and 13).

use ktsu::assemble::LedgerPlace;
use ktsu_kit::lock;
use serde_json::{Value, json};

use super::of_type;
use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink};

const SECRET: &str = "a-key-of-the-desk";

const FLOW: &str = r#"
env: [{name: DESK_KEY, secret: true}, {name: REGION, default: eu}]
params: {schema: {type: object, properties: {who: {type: string}}}}
pipeline:
  - id: ask
    agent: ./agents/clerk.agent.yaml
    params: {key: "{{ env.DESK_KEY }}", region: "{{ env.REGION }}", who: "{{ params.who }}"}
"#;

const CLERK: &str = r#"
name: clerk
version: 1.0.0
model: m
params:
  schema:
    type: object
    required: [key, region]
    additionalProperties: false
    properties:
      key: {type: string, secret: true}
      region: {type: string}
      who: {type: string, default: nobody}
prompt: {system: s, user: "{{ params.region }}"}
output: {schema: {type: object}}
servers:
  - name: desk
    path: ../servers/desk.server.yaml
    params: {key: "{{ params.key }}", label: "{{ params.region }}/{{ params.who }}"}
    access:
      allowlist:
        - get
        - {name: put, require_approval: {on_reject: recover, timeout: 1m, timeout_behavior: reject}}
  - {name: mail, params: {token: "{{ params.key }}"}}
  - {name: notes, path: ktsu/kv, params: {namespace: desk}}
  - {name: ktsu/envelope}
"#;

const DESK: &str = r#"
name: desk
version: 1.0.0
url: http://desk.example/mcp
stateful: true
params: {key: {secret: true}, label: {}, zone: {default: a}}
auth: {header: X-Desk, scheme: raw, secret: "{{ params.key }}"}
access: {allowlist: ["*", {name: "p*", require_approval: {timeout: 5m, timeout_behavior: reject}}]}
"#;

const CENTRAL: &str = r#"
servers:
  - {name: mail, version: 1.0.0, url: "http://mail.example", params: {token: {secret: true}}}
"#;

fn kit() -> KitDir {
    KitDir::new(&[("w", FLOW)])
        .with("agents/clerk.agent.yaml", CLERK)
        .with("servers/desk.server.yaml", DESK)
        .with("servers.yaml", CENTRAL)
}

/// A runtime that takes every task and does nothing.
async fn idle() -> Sink {
    Sink::scripted(|_| Reply::Now(202, String::new())).await
}

/// The tasks that were sent out, once there are so many.
async fn dispatched(runtime: &Sink, count: usize) -> Vec<Value> {
    runtime
        .until(|heard| heard.iter().filter(|one| one.path == "/invoke").count() == count)
        .await;
    let heard = runtime.heard().into_iter();
    let heard = heard.filter(|one| one.path == "/invoke");
    heard.map(|one| one.json()).collect()
}

#[tokio::test]
async fn a_dispatch_has_all_that_is_needed_to_call_its_tools() {
    let (kit, runtime) = (kit(), idle().await);
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote(&kit, &pairs, &runtime.url).await;
    lab.client.invoke("w", json!({"who": "ann"})).await;
    let tasks = dispatched(&runtime, 1).await;
    assert_eq!(
        tasks[0]["tool_servers"],
        json!([
            {
                "name": "desk",
                "url": "http://desk.example/mcp",
                "allowlist": ["get", "put"],
                "approval_rules": [{
                    "pattern": "put", "on_reject": "fail",
                    "timeout_ms": 60_000, "timeout_behavior": "reject",
                }],
                "auth_header": "X-Desk",
                "auth_value": SECRET,
                "params": {"label": "eu/ann", "zone": "a"},
                "stateful": true,
            },
            {
                "name": "mail",
                "url": "http://mail.example",
                "allowlist": ["*"],
                "params": {"token": SECRET},
            },
            {
                "name": "notes",
                "url": "ktsu:kv",
                "allowlist": ["*"],
                "params": {"namespace": "desk"},
                "stateful": true,
            },
            {"name": "ktsu/envelope", "url": "ktsu:envelope", "allowlist": ["*"]},
        ])
    );
    assert_eq!(tasks[0]["user_message"], "eu");
}

#[tokio::test]
async fn no_frame_and_no_blob_holds_what_a_server_is_given_in_secret() {
    let (kit, runtime) = (kit(), idle().await);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let place = LedgerPlace::File(path.clone());
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote_in(place, &kit, "name: test\n", &pairs, &runtime.url).await;
    let run = lab.client.invoke("w", json!({})).await;
    dispatched(&runtime, 1).await;
    let frames = lab.client.frames(&run).await;
    let started = of_type(&frames, "step.started").remove(0);
    assert_eq!(
        started["data"]["input"]["/params/key"],
        json!({"template": "{{ env.DESK_KEY }}"})
    );
    lab.close().await;
    for file in std::fs::read_dir(dir.path()).unwrap() {
        let bytes = std::fs::read(file.unwrap().path()).unwrap();
        let text = String::from_utf8_lossy(&bytes);
        assert!(!text.contains(SECRET));
    }
}

#[tokio::test]
async fn an_environment_says_where_servers_are_and_never_of_those_that_come_with_ktsu() {
    let (kit, runtime) = (kit(), idle().await);
    let text = "name: test\nservers: {mail: {url: 'http://mail.test'}, ktsu/kv: {url: 'http://k'}, notes: {url: 'http://n'}}\n";
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote_in(LedgerPlace::Memory, &kit, text, &pairs, &runtime.url).await;
    lab.client.invoke("w", json!({})).await;
    let tasks = dispatched(&runtime, 1).await;
    let urls = tasks[0]["tool_servers"].as_array().unwrap().iter();
    let urls: Vec<_> = urls.map(|one| one["url"].as_str().unwrap()).collect();
    let expected = [
        "http://desk.example/mcp",
        "http://mail.test",
        "ktsu:kv",
        "ktsu:envelope",
    ];
    assert_eq!(urls, expected);
}

#[tokio::test]
async fn a_branch_calls_no_stateful_server_unless_it_may_change_the_world() {
    let (kit, runtime) = (kit(), idle().await);
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote(&kit, &pairs, &runtime.url).await;
    let run = lab.client.invoke("w", json!({})).await;
    dispatched(&runtime, 1).await;
    for (effects, held) in [("suppress", true), ("execute", false)] {
        runtime.forget();
        let body = json!({"before": "ask", "go": true, "effects": effects});
        let path = format!("/runs/{run}/fork");
        let answer = lab.client.post(&path, body.to_string()).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let tasks = dispatched(&runtime, 1).await;
        let servers = tasks[0]["tool_servers"].as_array().unwrap().iter();
        let suppressed: Vec<_> = servers.map(|one| one["suppressed"] == true).collect();
        assert_eq!(suppressed, [held, false, held, false], "{effects}");
    }
}

#[tokio::test]
async fn a_task_whose_server_needs_a_secret_that_is_not_here_waits_for_it() {
    let (kit, runtime) = (kit(), idle().await);
    let other = KitDir::new(&[("plain", "pipeline:\n  - {id: t, transform: {ops: []}}\n")]);
    let dir = tempfile::tempdir().unwrap();
    let place = || LedgerPlace::File(dir.path().join("ledger.db"));
    let env = "name: test\n";
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote_in(place(), &kit, env, &pairs, &runtime.url).await;
    let run = lab.client.invoke("w", json!({})).await;
    dispatched(&runtime, 1).await;
    lab.close().await;
    runtime.forget();

    // A branch of it begins where nobody has the key.
    let lab = Lab::remote_in(place(), &other, env, &[], &runtime.url).await;
    let body = json!({"before": "ask", "go": true});
    let path = format!("/runs/{run}/fork");
    let answer = lab.client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let branch = answer.json()["branch_id"].as_str().unwrap().to_owned();
    // Something else runs to its end meanwhile, so the branch has done what it does at once.
    lab.client.run("plain", json!({})).await;
    let frames = lab.client.frames(&branch).await;
    assert_eq!(of_type(&frames, "worker.dispatched").len(), 1);
    let view = lab.client.get(&format!("/runs/{branch}")).await.json();
    assert_eq!(view["run"]["status"], "running", "{view}");
    lab.close().await;
    let sent = runtime.heard();
    assert!(sent.iter().all(|one| one.path != "/invoke"), "{sent:?}");
}

#[tokio::test]
async fn a_server_param_without_a_value_fails_the_step_before_anything_is_sent() {
    let clerk = CLERK.replace(
        "who: {type: string, default: nobody}",
        "who: {type: string}",
    );
    let clerk = clerk.replace("{{ params.region }}/{{ params.who }}", "{{ params.who }}");
    let kit = kit().with("agents/clerk.agent.yaml", &clerk);
    let runtime = idle().await;
    let lab = Lab::remote(&kit, &[("DESK_KEY", SECRET)], &runtime.url).await;
    let envelope = lab.client.run("w", json!({})).await;
    assert_eq!(envelope["error"]["code"], "invalid_params", "{envelope}");
    let words = envelope["error"]["message"].as_str().unwrap();
    assert!(words.contains("the server \"desk\" gets no value for its param \"label\""));
}

#[tokio::test]
async fn what_tools_were_locked_with_is_reported_as_long_as_the_definition_is_that_one() {
    let (kit, runtime) = (kit(), idle().await);
    let mut locked = lock::generate(&kit.load()).unwrap_or_else(|faults| panic!("{faults}"));
    let digest = "0".repeat(64);
    for entry in &mut locked.entries {
        match entry.path.as_str() {
            "servers/desk.server.yaml" => {
                entry.tools = Some([("get".to_owned(), digest.clone())].into());
            }
            // Locked when there was nothing to call.
            "servers.yaml#mail" => entry.tools = Some([].into()),
            _ => {}
        }
    }
    let kit = kit.with(lock::FILE, &lock::to_yaml(&locked));
    let pairs = [("DESK_KEY", SECRET)];
    let lab = Lab::remote(&kit, &pairs, &runtime.url).await;
    let run = lab.client.invoke("w", json!({})).await;
    let tasks = dispatched(&runtime, 1).await;
    let pins = |task: &Value| -> Vec<Value> {
        let servers = task["tool_servers"].as_array().unwrap().iter();
        servers.map(|one| one["pins"].clone()).collect()
    };
    let pinned = json!({"get": digest});
    assert_eq!(
        pins(&tasks[0]),
        [pinned, json!({}), Value::Null, Value::Null]
    );

    let other = KitDir::new(&[("w", &FLOW.replace("default: eu", "default: us"))])
        .with("agents/clerk.agent.yaml", CLERK)
        .with("servers/desk.server.yaml", DESK)
        .with("servers.yaml", CENTRAL);
    let definition = other.load().workflows["w"].definition.json.to_value();
    runtime.forget();
    let body = json!({"before": "ask", "go": true, "definition": definition});
    let path = format!("/runs/{run}/fork");
    let answer = lab.client.post(&path, body.to_string()).await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    let tasks = dispatched(&runtime, 1).await;
    assert_eq!(pins(&tasks[0]), vec![Value::Null; 4]);
}
