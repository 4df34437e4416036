//! A run that fails midway while others go on.

use serde_json::{Value, json};

use super::{lab, of_type, step};
use crate::support::model::{COST, Model, Said};

const RUNS: usize = 50;
const ITEMS: usize = 8;

const WORKFLOW: &str = r#"
params: {schema: {type: object, required: [list], properties: {list: {type: array}}}}
pipeline:
  - {id: before, agent: ./agents/echo.agent.yaml, params: {msg: before}}
  - {id: each, depends_on: [before], agent: ./agents/echo.agent.yaml, for_each: {from: params.list, concurrency: 4, max_failures: -1}, params: {msg: "{{ item }}"}}
  - {id: aside, depends_on: [before], agent: ./agents/reflects.agent.yaml, params: {msg: aside}}
  - {id: after, depends_on: [each, aside], agent: ./agents/echo.agent.yaml, params: {msg: after}}
output: {map: {each: "{{ step.each.results[*].answer }}"}}
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_fifty_runs_at_once_those_with_an_attack_fail_and_say_where_and_with_what() {
    let attack =
        json!({"answer": "as you wish", "ktsu_injection_attempt": true, "ktsu_flags": ["seen"]});
    let said = attack.clone();
    let model = Model::scripted(move |call| match call.user().as_str() {
        user if user.starts_with("attack") => Said::json(&said),
        user => Said::answer(user),
    })
    .await;
    let (_kit, lab) = lab(&model, &[("work", WORKFLOW)]).await;
    let runs: Vec<_> = (0..RUNS)
        .map(|run| {
            let client = lab.client.clone();
            let attacked = run % 5 == 0;
            let name = |item: usize| match attacked && item == 3 {
                true => format!("attack {run}"),
                false => format!("{run}.{item}"),
            };
            let list: Vec<String> = (0..ITEMS).map(name).collect();
            let expected = list.clone();
            tokio::spawn(async move {
                (
                    attacked,
                    expected,
                    client.run("work", json!({ "list": list })).await,
                )
            })
        })
        .collect();
    for run in runs {
        let (attacked, list, envelope) = run.await.unwrap();
        let steps = envelope["steps"].as_array().unwrap();
        let status = |step: &Value| step["status"].as_str().unwrap().to_owned();
        let statuses: Vec<String> = steps.iter().map(status).collect();
        if !attacked {
            assert_eq!(envelope["status"], "complete", "{envelope:#}");
            assert_eq!(statuses, ["complete"; 4]);
            assert_eq!(envelope["output"], json!({ "each": list }));
            let calls = (1 + ITEMS + 2 + 1) as u64;
            assert_eq!(envelope["totals"]["cost_micro_usd"], calls * COST);
            continue;
        }
        assert_eq!(envelope["status"], "failed");
        assert_eq!(
            envelope["error"]["code"], "injection_attempt",
            "{envelope:#}"
        );
        assert_eq!(envelope["error"]["step"], "each");
        assert_eq!(statuses[..2], ["complete", "failed"], "{envelope:#}");
        assert!(matches!(
            statuses[2].as_str(),
            "complete" | "failed" | "skipped"
        ));
        assert_eq!(statuses[3], "skipped");
        let items = step(&envelope, "each")["items"].as_array().unwrap();
        let ended = |item: &Value| {
            matches!(
                item["status"].as_str(),
                Some("complete" | "failed" | "skipped")
            )
        };
        assert!(items.iter().all(ended), "{envelope:#}");
        let attacked = &items[3];
        assert_eq!(attacked["error"]["code"], "injection_attempt");
        assert_eq!(attacked["raw_output"], attack, "{attacked:#}");
        assert_eq!(attacked["flags"], json!(["seen"]));
        // What was under way when the run failed has no answer on record, and no cost.
        let run = envelope["run_id"].as_str().unwrap();
        let answered = of_type(&lab.client.frames(run).await, "llm.response").len() as u64;
        assert_eq!(envelope["totals"]["cost_micro_usd"], answered * COST);
        assert!(envelope["totals"]["llm_calls"].as_u64() >= Some(answered));
    }
    let health = lab.client.get("/health").await;
    assert_eq!(health.status, 200, "{}", health.text());
}
