//! The routes over real sockets, every answer held against `/openapi.json`.

mod access;
mod approvals;
mod bodies;
mod brought;
mod compared;
mod describe;
mod diff_page;
mod evals;
mod evidence;
mod follow;
mod fork_estimate;
mod fork_prompts;
mod frames_page;
mod graph_page;
mod hold;
mod home;
mod idempotency;
mod kit_page;
mod lists;
mod offered;
mod origins;
mod pages;
mod people;
mod personal;
mod posts;
mod promised;
mod recent;
mod recompute;
mod reports;
mod reviews;
mod secrets;
mod signed_in;
mod signing;
mod skeleton;
mod steer;
mod step_page;
mod steps;
mod streams;
mod subscriptions;
mod summaries;
mod suspensions;
mod tour;
mod types;
mod unable;
mod world;
mod world_page;

use serde_json::json;

use crate::support::{KitDir, Lab};
use describe::Described;
pub(crate) use pages::TAGS;

/// Workflows that between them reach every route.
fn kit() -> KitDir {
    KitDir::new(&[
        (
            "hello",
            r#"
params:
  schema:
    type: object
    properties:
      msg: {type: string, default: hello}
      list: {type: array, items: {}, default: []}
pipeline:
  - id: greet
    transform:
      inputs: [{from: params}]
      ops: [{map: {expr: "{text: msg}"}}]
  - id: count
    transform:
      inputs: [{from: step.greet.result}]
      ops: [{map: {expr: text}}]
output:
  map: {text: "{{ step.greet.result[0].text }}"}
"#,
        ),
        (
            "part",
            r#"
visibility: sub-workflow
webhooks: execute
params:
  schema: {type: object, required: [sink], properties: {sink: {type: string}}}
pipeline:
  - id: call
    webhook: {url: "{{ params.sink }}/part", body: {n: 1}}
"#,
        ),
        (
            "whole",
            r#"
env: [{name: SINK}]
pipeline:
  - id: inner
    workflow: ./part.workflow.yaml
    webhooks: execute
    params: {sink: "{{ env.SINK }}"}
  - id: after
    depends_on: [inner]
    webhook: {url: "{{ env.SINK }}/after", body: {inner: "{{ step.inner }}"}}
"#,
        ),
        (
            "locked",
            r#"
env: [{name: HOOK, secret: true}]
invoke: {auth: {header: X-Key, scheme: raw, secret: "{{ env.HOOK }}"}}
pipeline: []
"#,
        ),
        (
            "thinking",
            r#"
pipeline:
  - id: think
    agent: ./agents/thinker.agent.yaml
"#,
        ),
    ])
    .with(
        "agents/thinker.agent.yaml",
        "name: thinker\nmodel: m\nprompt: {system: s, user: u}\noutput: {schema: {type: object}}\nservers: [{name: tools, path: servers/tools.server.yaml}]\n",
    )
    .with(
        "servers/tools.server.yaml",
        "name: tools\nversion: 1.0.0\nurl: http://127.0.0.1:9\n",
    )
}

const HOOK: &str = "s3cr3t-hook";

/// An engine on that kit, whose every answer is checked.
async fn lab(sink: &str) -> (KitDir, Lab, Described) {
    let kit = kit();
    let lab = Lab::new(&kit, &[("SINK", sink), ("HOOK", HOOK)]).await;
    let api = Described::new(&lab.client).await;
    (kit, lab, api)
}

/// The case of the group `auth`, and the same for every way to be wrong: who does not know the
/// secret cannot tell what exists, except that something is there to be asked for it.
#[tokio::test]
async fn a_templated_secret_is_resolved_before_it_is_compared() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    let sent = [
        (vec![("X-Key", HOOK)], 202),
        (vec![("X-Key", "{{ env.HOOK }}")], 401),
        (vec![("X-Key", "nope")], 401),
        (vec![], 401),
        (vec![("Authorization", HOOK)], 401),
    ];
    for (headers, expected) in sent {
        let answer = api.call("POST", "/invoke/locked", &headers, "{}").await;
        assert_eq!(answer.status, expected, "{headers:?}");
    }
    let runs = api.get("/runs").await.json();
    assert_eq!(runs["runs"].as_array().unwrap().len(), 1);
}

/// Seed 000, invariant 30: nobody can tell a sub-workflow from nothing, whatever they send.
#[tokio::test]
async fn a_sub_workflow_and_nothing_answer_alike() {
    let (_kit, _lab, api) = lab("http://127.0.0.1:9").await;
    for headers in [vec![], vec![("X-Key", HOOK)]] {
        let unknown = api.call("POST", "/invoke/absent", &headers, "{}").await;
        let hidden = api.call("POST", "/invoke/part", &headers, "{}").await;
        assert_eq!(unknown.status, 404);
        assert_eq!(hidden.status, 404);
        assert_eq!(unknown.body, hidden.body);
        let names = |headers: &axum::http::HeaderMap| -> Vec<String> {
            headers.keys().map(ToString::to_string).collect()
        };
        assert_eq!(names(&unknown.headers), names(&hidden.headers));
    }
    // Not even what is wrong with the body or the query may differ.
    for (query, body) in [("", "not json"), ("", "[]"), ("?wait=9999", "{}")] {
        let unknown = api.post(&format!("/invoke/absent{query}"), body).await;
        let hidden = api.post(&format!("/invoke/part{query}"), body).await;
        assert_eq!(unknown.status, hidden.status, "{query} {body}");
        assert_eq!(unknown.body, hidden.body);
    }
    assert_eq!(api.get("/runs").await.json(), json!({"runs": []}));
}
