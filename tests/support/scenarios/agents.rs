//! Runs with agents. The sink is the provider of models, too: what a user's message begins with
//! says what the model says.

use serde_json::{Value, json};

use super::super::model::{ECHO, REFLECTS, completion};
use super::super::sink::{Heard, Reply};
use super::Scenario;

pub(crate) const GATEWAY: &str = r#"
env: [{name: SINK}, {name: TOKEN, secret: true}]
providers: [{name: fake, type: openai, config: {base_url: "{{ env.SINK }}/v1", api_key: "{{ env.TOKEN }}"}}]
model_groups: [{name: std, models: [fake/gpt-4o-mini]}]
"#;

pub(super) fn all() -> Vec<Scenario> {
    vec![
        plain(),
        fan_out(),
        fan_out_fails(),
        injection(),
        reflect(),
        repair(),
        beyond_repair(),
        budget(),
        lost(),
        child(),
        timeout(),
        cached(),
    ]
}

fn scenario(name: &str, workflow: &str) -> Scenario {
    Scenario::new(&format!("agent-{name}"), workflow)
        .file("agents/echo.agent.yaml", ECHO)
        .file("agents/reflects.agent.yaml", REFLECTS)
        .file("gateway.yaml", GATEWAY)
        .script(model)
}

/// Whether a request is one for a model.
pub(crate) fn asks_a_model(heard: &Heard) -> bool {
    heard.path == "/v1/chat/completions"
}

/// `gated NAME` waits for the gate of its name; JSON is said back; anything else is the answer.
pub(crate) fn model(heard: &Heard) -> Reply {
    let call = heard.json();
    let messages = call["messages"].as_array().unwrap();
    let text = |at: usize| messages[at]["content"].as_str().unwrap();
    let (system, user) = (text(0), text(1));
    let (word, rest) = user.split_once(' ').unwrap_or((user, ""));
    let answer = |text: &str| json!({ "answer": text }).to_string();
    let said = match (word, messages.len()) {
        _ if system.starts_with("Look") => {
            json!({"answer": format!("{user}, looked at"), "ktsu_confidence": 0.9}).to_string()
        }
        ("broken", 2) | ("hopeless", _) => "{\"answer\":".to_owned(),
        ("broken", _) => answer("repaired"),
        ("never", _) => return Reply::Never,
        ("gated", _) => {
            return Reply::After(
                rest.to_owned(),
                200,
                completion(&call["model"], &answer(rest)),
            );
        }
        _ if user.starts_with('{') => user.to_owned(),
        _ => answer(user),
    };
    Reply::Now(200, completion(&call["model"], &said))
}

fn said(value: &Value) -> String {
    serde_json::to_string(&value.to_string()).unwrap()
}

fn plain() -> Scenario {
    let sure = said(&json!({
        "answer": "sure", "ktsu_confidence": 0.7, "ktsu_flags": ["vip"],
        "ktsu_rationale": "because", "ktsu_zzz": 1, "ktsu_low_quality": false,
    }));
    let skip = said(&json!({"ktsu_skip_reason": "nothing new"}));
    scenario(
        "plain",
        &format!(
            r#"
pipeline:
  - {{id: a, agent: ./agents/echo.agent.yaml, confidence_threshold: 0.7, params: {{msg: {sure}}}}}
  - {{id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {{msg: {skip}}}}}
  - {{id: c, depends_on: [b], agent: ./agents/echo.agent.yaml, params: {{msg: never}}}}
  - {{id: d, agent: ./agents/echo.agent.yaml, params: {{msg: "after {{{{ step.a.answer }}}}"}}}}
output: {{map: {{d: "{{{{ step.d.answer }}}}"}}}}
"#
        ),
    )
}

const EACH: &str = "params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}\npipeline:\n";

fn fan_out() -> Scenario {
    let each = r#"
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 2, max_failures: 1}, params: {msg: "{{ item }}"}}
  - {id: none, agent: ./agents/echo.agent.yaml, for_each: {from: "params.list[?@ == 'none']"}, params: {msg: "{{ item_index }}"}}
output: {map: {all: "{{ step.each.results[*].answer }}"}}
"#;
    let skip = json!({"ktsu_skip_reason": "three"}).to_string();
    let list = json!(["one", json!({"noanswer": 2}).to_string(), skip, "four"]);
    scenario("fan-out", &format!("{EACH}{each}")).body(json!({ "list": list }))
}

fn fan_out_fails() -> Scenario {
    let each = r#"
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1}, params: {msg: "{{ item }}"}}
  - {id: after, depends_on: [each], transform: {inputs: [], ops: []}}
"#;
    let two = json!({"answer": "two", "ktsu_low_quality": true}).to_string();
    let list = json!(["one", two, "three"]);
    scenario("fan-out-fails", &format!("{EACH}{each}")).body(json!({ "list": list }))
}

fn injection() -> Scenario {
    let each = r#"
  - {id: each, agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: after, depends_on: [each], transform: {inputs: [], ops: []}}
"#;
    let two = json!({"answer": "two", "ktsu_injection_attempt": true}).to_string();
    let list = json!(["one", two, "three"]);
    scenario("injection", &format!("{EACH}{each}")).body(json!({ "list": list }))
}

/// Requests that an earlier reply answers: of another step, of items, and of a reflection.
fn cached() -> Scenario {
    scenario(
        "cached",
        r#"
model_policy: {cache: true}
params: {schema: {type: object, properties: {list: {type: array, default: [same, new, new]}}}}
pipeline:
  - {id: first, agent: ./agents/echo.agent.yaml, params: {msg: same}}
  - {id: second, depends_on: [first], agent: ./agents/echo.agent.yaml, params: {msg: same}}
  - {id: each, depends_on: [second], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 1}, params: {msg: "{{ item }}"}}
  - {id: look, depends_on: [each], agent: ./agents/reflects.agent.yaml, params: {msg: twice}}
  - {id: look_again, depends_on: [look], agent: ./agents/reflects.agent.yaml, params: {msg: twice}}
"#,
    )
}

fn reflect() -> Scenario {
    let sure = said(&json!({"answer": "sure", "ktsu_confidence": 0.8}));
    let unsure = said(&json!({"answer": "unsure", "ktsu_confidence": 0.79}));
    scenario(
        "reflect",
        &format!(
            r#"
pipeline:
  - {{id: always, agent: ./agents/reflects.agent.yaml, params: {{msg: always}}}}
  - {{id: sure, agent: ./agents/reflects.agent.yaml, depends_on: [always], confidence_threshold: 0.8, params: {{msg: {sure}}}}}
  - {{id: unsure, agent: ./agents/reflects.agent.yaml, depends_on: [sure], confidence_threshold: 0.8, params: {{msg: {unsure}}}}}
"#
        ),
    )
}

fn repair() -> Scenario {
    scenario(
        "repair",
        "pipeline: [{id: a, agent: ./agents/echo.agent.yaml, params: {msg: broken}}]\n",
    )
}

fn beyond_repair() -> Scenario {
    scenario(
        "beyond-repair",
        r#"
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: hopeless}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: never}}
"#,
    )
}

fn budget() -> Scenario {
    scenario(
        "budget",
        r#"
model_policy: {cost_budget_usd: 0.0003}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: a}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: b}}
  - {id: c, depends_on: [b], agent: ./agents/echo.agent.yaml, params: {msg: c}}
"#,
    )
}

/// The engine is started again while a model thinks.
fn lost() -> Scenario {
    scenario(
        "lost",
        r#"
pipeline:
  - {id: a, agent: ./agents/reflects.agent.yaml, params: {msg: a}}
  - {id: b, depends_on: [a], agent: ./agents/echo.agent.yaml, params: {msg: gated b}}
"#,
    )
    .gates(&["b"])
    .started_again()
}

fn child() -> Scenario {
    scenario(
        "child",
        r#"
model_policy: {cost_budget_usd: 1}
pipeline:
  - {id: call, workflow: ./middle.workflow.yaml, params: {msg: deep}}
  - {id: after, agent: ./agents/echo.agent.yaml, params: {msg: "{{ step.call.answer }}"}}
"#,
    )
    .with(
        "middle",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline: [{id: inner, workflow: ./leaf.workflow.yaml, params: {msg: "{{ params.msg }}"}}]
"#,
    )
    .with(
        "leaf",
        r#"
visibility: sub-workflow
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
pipeline:
  - {id: think, agent: ./agents/echo.agent.yaml, params: {msg: "{{ params.msg }}"}}
  - {id: each, depends_on: [think], agent: ./agents/reflects.agent.yaml, for_each: {from: "[params.msg, 'b']", concurrency: 1}, params: {msg: "item {{ item }}"}}
output: {map: {answer: "{{ step.each.results[1].answer }}"}}
"#,
    )
}

fn timeout() -> Scenario {
    scenario(
        "timeout",
        r#"
model_policy: {timeout_s: 0.3}
pipeline:
  - {id: a, agent: ./agents/echo.agent.yaml, params: {msg: never}}
  - {id: b, depends_on: [a], transform: {inputs: [], ops: []}}
"#,
    )
}
