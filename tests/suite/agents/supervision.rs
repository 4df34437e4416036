//! Who is watched, and what becomes of work that nobody does any more (seed 000, invariant 19;
//! decision W3).

use serde_json::{Value, json};

use super::{of_type, step};
use crate::support::model::{self, KEY, Model, Said};
use crate::support::services::{Service, Services};
use crate::support::sink::Reply;
use crate::support::{Lab, Sink};

const TWO: &str = r#"
pipeline:
  - {id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}
  - {id: s2, depends_on: [s1], transform: {inputs: [], ops: []}}
"#;

fn is_lost(envelope: &Value, frames: &[Value]) {
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    assert_eq!(envelope["error"]["code"], "heartbeat_timeout");
    assert_eq!(envelope["error"]["step"], "s1");
    assert_eq!(step(envelope, "s1")["status"], "failed");
    assert_eq!(step(envelope, "s2")["status"], "skipped");
    let lost = of_type(frames, "worker.lost");
    assert_eq!(lost[0]["data"]["reason"], "heartbeat");
    assert_eq!(lost[0]["data"]["runtime_alive"], false);
}

/// Both at once: each waits for fifteen seconds of silence.
#[tokio::test]
async fn a_step_whose_runtime_is_gone_or_says_nothing_fails() {
    tokio::join!(killed(), silent());
}

async fn killed() {
    let model = Model::scripted(|_| Said::Never).await;
    let kit = model::kit(&model, &[("two", TWO)]);
    let mut services = Services::start(&kit, &[KEY]);
    let run = services.client().invoke("two", json!({})).await;
    model.until(|calls| !calls.is_empty()).await;
    services.kill(Service::Runtime);
    let envelope = services.client().ended(&run).await;
    is_lost(&envelope, &services.client().frames(&run).await);
}

async fn silent() {
    let model = Model::echo().await;
    let kit = model::kit(&model, &[("two", TWO)]);
    let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
    let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
    let run = lab.client.invoke("two", json!({})).await;
    let envelope = lab.client.ended(&run).await;
    is_lost(&envelope, &lab.client.frames(&run).await);
}

#[tokio::test]
async fn an_orchestrator_that_is_killed_while_a_model_thinks_takes_the_run_up_again() {
    let model = Model::scripted(|_| Said::answer("late").when("go")).await;
    let kit = model::kit(&model, &[("two", TWO)]);
    let mut services = Services::start(&kit, &[KEY]);
    let run = services.client().invoke("two", json!({})).await;
    model.until(|calls| !calls.is_empty()).await;
    services.kill(Service::Orchestrator);
    services.restart(Service::Orchestrator);
    model.open("go");
    let envelope = services.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "s1")["output"], json!({"answer": "late"}));
    assert_eq!(model.calls().len(), 1);
}

/// The runtime said that it took the task, and was killed: the next one is told what is recorded.
#[tokio::test]
async fn a_runtime_that_is_started_again_continues_without_asking_again() {
    let model = Model::scripted(|_| Said::answer("once").when("go")).await;
    let kit = model::kit(&model, &[("two", TWO)]);
    let mut services = Services::start(&kit, &[KEY]);
    let run = services.client().invoke("two", json!({})).await;
    model.until(|calls| !calls.is_empty()).await;
    services.kill(Service::Runtime);
    services.restart(Service::Runtime);
    model.open("go");
    let envelope = services.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "s1")["attempt"], 2);
    assert_eq!(model.calls().len(), 1);
    let frames = services.client().frames(&run).await;
    let lost = of_type(&frames, "worker.lost");
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0]["data"]["reason"], "instance");
}

#[tokio::test]
async fn a_runtime_that_refuses_a_task_fails_the_step_at_once() {
    let model = Model::echo().await;
    let kit = model::kit(&model, &[("two", TWO)]);
    let refusal = json!({"error": "invalid_request", "message": "not mine"}).to_string();
    let runtime = Sink::scripted(move |_| Reply::Now(400, refusal.clone())).await;
    let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
    let envelope = lab.client.run("two", json!({})).await;
    assert_eq!(envelope["error"]["code"], "runtime_refused", "{envelope:#}");
    assert!(
        envelope["error"]["message"]
            .as_str()
            .unwrap()
            .contains("not mine")
    );
}
