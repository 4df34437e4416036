//! The contract between orchestrator and runtimes, spoken by hand (seed 000, invariants 8 and 15;
//! decisions W1 and W2).

use serde_json::{Value, json};

use super::{of_type, step};
use crate::support::client::Answer;
use crate::support::model::{self, KEY, Model};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink};

/// An engine whose runtime takes every task and does nothing by itself.
struct ByHand {
    _kit: KitDir,
    lab: Lab,
    runtime: Sink,
}

impl ByHand {
    async fn new(workflows: &[(&str, &str)]) -> Self {
        let model = Model::echo().await;
        let kit = model::kit(&model, workflows);
        let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
        let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
        Self {
            _kit: kit,
            lab,
            runtime,
        }
    }

    fn client(&self) -> &Client {
        &self.lab.client
    }

    fn dispatches(&self) -> Vec<Value> {
        let heard = self.runtime.heard();
        let invoked = heard.iter().filter(|one| one.path == "/invoke");
        invoked.map(|one| one.json()).collect()
    }

    /// What was dispatched for a step, once it was.
    async fn task(&self, run: &str, step: &str) -> Task {
        let wanted = |value: &Value| {
            value["step_id"] == step && value["run_id"].as_str().unwrap().starts_with(run)
        };
        self.runtime
            .until(|heard| {
                heard
                    .iter()
                    .any(|one| one.path == "/invoke" && wanted(&one.json()))
            })
            .await;
        let invoke = self.dispatches().into_iter().find(wanted).unwrap();
        Task {
            client: self.client().clone(),
            invoke,
        }
    }
}

/// A task, as a runtime has it.
struct Task {
    client: Client,
    invoke: Value,
}

impl Task {
    /// The path and query of a URL of the dispatch.
    fn path(&self, which: &str) -> String {
        let url = self.invoke[which].as_str().unwrap();
        let rest = url.strip_prefix("http://").unwrap();
        rest[rest.find('/').unwrap()..].to_owned()
    }

    async fn report(&self, n: u32, events: &Value) -> Answer {
        let body = json!({"attempt": 1, "n": n, "events": events});
        self.client
            .post(&self.path("report_url"), body.to_string())
            .await
    }

    async fn complete(&self, body: &Value) -> Answer {
        self.client
            .post(&self.path("callback_url"), body.to_string())
            .await
    }

    fn request(&self) -> Value {
        let messages = json!([{"role": "system", "content": self.invoke["system"]}, {"role": "user", "content": self.invoke["user_message"]}]);
        json!([{"type": "llm.request", "data": {"group": "std", "max_tokens": 1024, "messages": messages, "purpose": "turn"}}])
    }

    fn response(&self, seq: &Value, content: &str) -> Value {
        json!({"type": "llm.response", "data": {"request": seq, "content": content, "provider": "fake", "model": "gpt-4o-mini", "tokens_in": 1000, "tokens_out": 200, "cost_micro_usd": 270, "prices": "p", "duration_ms": 1, "cached": false}})
    }
}

fn finished(output: &Value) -> Value {
    json!({"type": "agent.finished", "data": {"reason": "completed", "outcome": {"output": output}}})
}

const ONE: &str = "pipeline: [{id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}]\n";
const TWO: &str = "pipeline:\n  - {id: s1, agent: ./agents/echo.agent.yaml, params: {msg: hi}}\n  - {id: s2, agent: ./agents/echo.agent.yaml, params: {msg: hi}}\n";

/// Decisions F3 and P1: a runtime that does not know yet that a deadline moved is no judge of it.
#[tokio::test]
async fn that_the_time_is_over_is_the_orchestrators_to_say() {
    let hour = format!("model_policy: {{timeout_s: 3600}}\n{ONE}");
    let hand = ByHand::new(&[("one", ONE), ("hour", &hour)]).await;
    let error = json!({"code": "timeout", "message": "no output", "retryable": false});
    let late = json!([{"type": "agent.finished", "data": {"reason": "timeout", "outcome": {"error": error}}}]);
    for (workflow, paused) in [("hour", false), ("hour", true), ("one", true)] {
        let run = hand.client().invoke(workflow, json!({})).await;
        let task = hand.task(&run, "s1").await;
        let say = async |word: &str| {
            let path = format!("/runs/{run}/{word}");
            hand.client().post(&path, "{}").await.status
        };
        if paused {
            assert_eq!(say("pause").await, 200);
        }
        let before = hand.client().frames(&run).await;
        assert_eq!(
            task.report(1, &late).await.status,
            409,
            "{workflow} {paused}"
        );
        assert_eq!(hand.client().frames(&run).await, before);
        if paused {
            assert_eq!(say("resume").await, 202);
        }
        // Whoever names the task no more has lost it, and it goes out again.
        let beat = |runtime: &str, active: Value| json!({"runtime_id": runtime, "active": active});
        let name = json!([{"run_id": run, "step_id": "s1", "attempt": 1}]);
        for body in [beat("first", name), beat("second", json!([]))] {
            let answer = hand.client().post("/heartbeat", body.to_string()).await;
            assert_eq!(answer.status, 200, "{}", answer.text());
        }
        let again = |heard: &[crate::support::sink::Heard]| {
            let invoked = heard.iter().filter(|one| one.path == "/invoke");
            invoked
                .map(|one| one.json())
                .any(|one| one["run_id"] == run.as_str() && one["attempt"] == 2)
        };
        hand.runtime.until(again).await;
    }
    // Where there is no deadline and the run goes on, the runtime's own bound holds.
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    assert_eq!(task.report(1, &late).await.status, 200);
    let envelope = hand.client().ended(&run).await;
    assert_eq!(step(&envelope, "s1")["error"]["code"], "timeout");
}

#[tokio::test]
async fn a_dispatch_says_everything_a_runtime_needs_and_shows_no_token_elsewhere() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let invoke = &task.invoke;
    assert_eq!(invoke["attempt"], 1);
    assert_eq!(invoke["agent_name"], "echo");
    assert_eq!(invoke["system"], "s");
    assert_eq!(invoke["user_message"], "hi");
    assert_eq!(invoke["model"], json!({"group": "std", "max_tokens": 1024}));
    assert_eq!(invoke["max_turns"], 10);
    assert_eq!(invoke["tool_servers"], json!([]));
    assert_eq!(invoke["history"], json!([]));
    assert_eq!(invoke["output_schema"]["required"], json!(["answer"]));
    let url = invoke["report_url"].as_str().unwrap();
    let token = url.split_once("token=").unwrap().1.to_owned();
    assert!(
        task.path("callback_url")
            .starts_with(&format!("/runs/{run}/steps/s1/complete?token="))
    );
    for path in ["frames?expand=true", "envelope", "trace"] {
        let answer = hand.client().get(&format!("/runs/{run}/{path}")).await;
        assert_eq!(answer.status, 200);
        assert!(!answer.text().contains(&token), "{path}");
    }
}

#[tokio::test]
async fn reports_by_hand_run_a_step_to_its_end() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let first = task.report(1, &task.request()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let first = first.json();
    assert_eq!(first["n"], 1);
    assert_eq!(first["reflect"], false);
    assert_eq!(first["events"][0]["type"], "llm.request");
    let seq = &first["events"][0]["seq"];
    let output = json!({"answer": "by hand"});
    let answered = task.response(seq, &output.to_string());
    let second = task.report(2, &json!([answered, finished(&output)])).await;
    assert_eq!(second.status, 200, "{}", second.text());
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(step(&envelope, "s1")["output"], output);
    assert_eq!(envelope["totals"]["cost_micro_usd"], 270);
}

#[tokio::test]
async fn null_for_a_list_of_an_outcome_is_none_whichever_way_it_comes() {
    let hand = ByHand::new(&[("two", TWO)]).await;
    let run = hand.client().invoke("two", json!({})).await;
    let (one, two) = (hand.task(&run, "s1").await, hand.task(&run, "s2").await);
    let output = json!({"answer": "by hand"});
    let mut ended = finished(&output);
    ended["data"]["outcome"]["events"] = Value::Null;
    ended["data"]["outcome"]["commands"] = Value::Null;
    let answer = one.report(1, &json!([ended])).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let nulls = json!({"status": "ok", "output": output, "events": null, "commands": null});
    let answer = two.complete(&nulls).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let envelope = hand.client().ended(&run).await;
    assert_eq!(step(&envelope, "s1")["output"], output);
    assert_eq!(step(&envelope, "s2")["output"], output);
}

#[tokio::test]
async fn the_same_report_is_answered_the_same_and_another_under_its_number_is_refused() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let first = task.report(1, &task.request()).await;
    let again = task.report(1, &task.request()).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    let other = finished(&json!({"answer": "other"}));
    let refused = task.report(1, &json!([other])).await;
    assert_eq!(refused.status, 409);
    assert_eq!(refused.json()["code"], "stale_report");
    let seq = first.json()["events"][0]["seq"].clone();
    let output = json!({"answer": "x"});
    let last = json!([task.response(&seq, "{\"answer\":\"x\"}"), finished(&output)]);
    let ended = task.report(2, &last).await;
    assert_eq!(ended.status, 200);
    let envelope = hand.client().ended(&run).await;
    let frames = hand.client().frames(&run).await;
    // Late, after the end of the run: what was taken is answered as it was, all else is refused.
    let late = task.report(2, &last).await;
    assert_eq!((late.status, &late.body), (200, &ended.body));
    let late = task.report(1, &task.request()).await;
    assert_eq!((late.status, &late.body), (200, &first.body));
    assert_eq!(task.report(2, &json!([other_end()])).await.status, 409);
    assert_eq!(task.report(3, &json!([other_end()])).await.status, 409);
    let forged = json!({"status": "ok", "output": {"answer": "late"}});
    assert_eq!(task.complete(&forged).await.status, 409);
    assert_eq!(hand.client().ended(&run).await, envelope);
    assert_eq!(hand.client().frames(&run).await, frames);
}

fn other_end() -> Value {
    finished(&json!({"answer": "late"}))
}

#[tokio::test]
async fn what_is_forged_changes_nothing() {
    let hand = ByHand::new(&[("two", TWO)]).await;
    let run = hand.client().invoke("two", json!({})).await;
    let (one, two) = (hand.task(&run, "s1").await, hand.task(&run, "s2").await);
    let before = hand.client().frames(&run).await;
    let forged = json!({"status": "ok", "output": {"answer": "FORGED"}}).to_string();
    let report = json!({"attempt": 1, "n": 1, "events": [other_end()]}).to_string();
    let token_of = |task: &Task| {
        task.path("callback_url")
            .split_once("token=")
            .unwrap()
            .1
            .to_owned()
    };
    let (own, other) = (token_of(&one), token_of(&two));
    let raised = own.replacen("1.", "2.", 1);
    let cut = own[..own.len() - 1].to_owned();
    for token in [
        "",
        "token=",
        "token=x",
        &format!("token={other}"),
        &format!("token={raised}"),
        &format!("token={cut}"),
    ] {
        for (what, body) in [("complete", &forged), ("report", &report)] {
            let path = format!("/runs/{run}/steps/s1/{what}?{token}");
            let answer = hand.client().post(&path, body.clone()).await;
            assert_eq!(answer.status, 401, "{path}: {}", answer.text());
            assert_eq!(answer.json()["code"], "unauthorized");
        }
    }
    // The right token, but about another attempt.
    let body = json!({"attempt": 2, "n": 1, "events": [other_end()]}).to_string();
    let answer = hand.client().post(&one.path("report_url"), body).await;
    assert_eq!(answer.status, 409);
    for (path, body, expected) in [
        (
            one.path("report_url"),
            r#"{"attempt":1,"n":0,"events":[]}"#,
            422,
        ),
        (
            one.path("report_url"),
            r#"{"attempt":1,"n":1,"events":[]}"#,
            422,
        ),
        (
            one.path("report_url"),
            r#"{"attempt":1,"n":1,"events":[{"type":"agent.sang","data":{}}]}"#,
            422,
        ),
        (one.path("report_url"), "[]", 422),
        (one.path("report_url"), "nope", 400),
        (one.path("callback_url"), r#"{"status":"maybe"}"#, 422),
        (
            one.path("callback_url")
                .replace(&run, "run_00000000000000000000000000"),
            "{}",
            404,
        ),
        (one.path("report_url").replace(&run, "absent"), "{}", 404),
        (one.path("report_url").replace("s1", "s1.0"), "{}", 401),
    ] {
        let answer = hand.client().post(&path, body).await;
        assert_eq!(answer.status, expected, "{path} {body}: {}", answer.text());
    }
    assert_eq!(hand.client().frames(&run).await, before);
    for task in [&one, &two] {
        let real = json!({"status": "ok", "output": {"answer": "real"}});
        assert_eq!(task.complete(&real).await.status, 200);
    }
    let envelope = hand.client().ended(&run).await;
    assert_eq!(step(&envelope, "s1")["output"], json!({"answer": "real"}));
}

#[tokio::test]
async fn a_report_that_does_not_follow_is_refused_and_the_task_continues() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    // An answer to what was not asked.
    let stray = json!([task.response(&json!(1), "{}")]);
    let status = task.report(1, &stray).await.status;
    assert!(matches!(status, 409 | 422), "{status}");
    let neither =
        json!([{"type": "agent.finished", "data": {"reason": "completed", "outcome": {}}}]);
    assert_eq!(task.report(1, &neither).await.status, 422);
    let output = json!({"answer": "x"});
    assert_eq!(
        task.report(1, &json!([finished(&output)])).await.status,
        200
    );
    assert_eq!(hand.client().ended(&run).await["status"], "complete");
}

#[tokio::test]
async fn a_complete_ends_a_step_with_what_it_claims_and_fails_it_with_its_error() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let metrics = json!({"model_resolved": "fake/m", "tokens_in": 5, "tokens_out": 6, "cost_usd": 0.000_007, "llm_calls": 2, "tool_calls": 0});
    let body = json!({"status": "ok", "output": {"answer": "x"}, "metrics": metrics});
    assert_eq!(task.complete(&body).await.status, 200);
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["totals"]["tokens_in"], 5, "{envelope:#}");
    assert_eq!(envelope["totals"]["cost_micro_usd"], 7);
    assert_eq!(envelope["totals"]["llm_calls"], 2);
    for (error, code, message) in [
        (json!("it broke"), "agent_failed", "it broke"),
        (
            json!({"code": "mine", "message": "so", "retryable": false}),
            "mine",
            "so",
        ),
    ] {
        let run = hand.client().invoke("one", json!({})).await;
        let task = hand.task(&run, "s1").await;
        let body = json!({"status": "failed", "error": error, "raw_output": "half"});
        assert_eq!(task.complete(&body).await.status, 200);
        let envelope = hand.client().ended(&run).await;
        let s1 = step(&envelope, "s1");
        assert_eq!(s1["error"]["code"], code, "{envelope:#}");
        assert!(s1["error"]["message"].as_str().unwrap().contains(message));
        assert_eq!(s1["raw_output"], "half");
    }
    // What it claims is judged like any output.
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let body = json!({"status": "ok", "output": {"noanswer": 1}});
    assert_eq!(task.complete(&body).await.status, 200);
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["error"]["code"], "schema_violation");
}

#[tokio::test]
async fn commands_of_an_outcome_fail_the_step_and_its_events_are_kept() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    for (extra, status) in [
        (
            json!({"events": [{"type": "note", "payload": {"a": 1}}]}),
            "complete",
        ),
        (json!({"commands": [{"type": "send_mail"}]}), "failed"),
    ] {
        let run = hand.client().invoke("one", json!({})).await;
        let task = hand.task(&run, "s1").await;
        let mut body = json!({"status": "ok", "output": {"answer": "x"}});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        assert_eq!(task.complete(&body).await.status, 200);
        let envelope = hand.client().ended(&run).await;
        assert_eq!(envelope["status"], status, "{envelope:#}");
        let frames = hand.client().frames(&run).await;
        let outcome = &of_type(&frames, "agent.finished")[0]["data"]["outcome"];
        for (name, value) in extra.as_object().unwrap() {
            assert_eq!(&outcome[name], value);
        }
        if status == "failed" {
            assert!(
                envelope["error"]["message"]
                    .as_str()
                    .unwrap()
                    .contains("send_mail")
            );
        }
    }
}

#[tokio::test]
async fn a_task_of_a_child_is_reported_with_escaped_and_with_raw_slashes() {
    let part = format!("visibility: sub-workflow\n{TWO}");
    let root = "pipeline: [{id: call, workflow: ./middle.workflow.yaml}]\n";
    let middle =
        "visibility: sub-workflow\npipeline: [{id: inner, workflow: ./part.workflow.yaml}]\n";
    let hand = ByHand::new(&[("root", root), ("middle", middle), ("part", &part)]).await;
    let run = hand.client().invoke("root", json!({})).await;
    let (one, two) = (hand.task(&run, "s1").await, hand.task(&run, "s2").await);
    assert_eq!(one.invoke["run_id"], format!("{run}/call/inner"));
    assert!(
        one.path("report_url")
            .starts_with(&format!("/runs/{run}%2Fcall%2Finner/steps/s1/report?"))
    );
    let first = one.report(1, &one.request()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let raw = one.path("callback_url").replace("%2F", "/");
    let body = json!({"status": "ok", "output": {"answer": "raw"}}).to_string();
    let answer = hand.client().post(&raw, body.clone()).await;
    assert_eq!(answer.status, 200, "{raw}: {}", answer.text());
    // The same step of the root is another task.
    let elsewhere = two.path("callback_url").replace("%2Fcall%2Finner", "");
    assert_eq!(
        hand.client().post(&elsewhere, body.clone()).await.status,
        401
    );
    let answer = hand.client().post(&two.path("callback_url"), body).await;
    assert_eq!(answer.status, 200);
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let inner = hand
        .client()
        .get(&format!("/runs/{run}/call/inner/envelope"))
        .await;
    assert_eq!(
        step(&inner.json(), "s1")["output"],
        json!({"answer": "raw"})
    );
}

#[tokio::test]
async fn a_heartbeat_learns_what_no_one_waits_for_and_writes_nothing() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let frames = hand.client().frames(&run).await;
    let own = json!({"run_id": run, "step_id": "s1", "attempt": 1});
    let stale = json!({"run_id": run, "step_id": "s1", "attempt": 2});
    let gone = json!({"run_id": "run_gone", "step_id": "x"});
    let beat = |active: Value| json!({"runtime_id": "by hand", "active": active}).to_string();
    let answer = hand.client().post("/heartbeat", beat(json!([own]))).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"stop": []})));
    let answer = hand
        .client()
        .post("/heartbeat", beat(json!([stale, gone])))
        .await;
    let mut stop = answer.json()["stop"].as_array().unwrap().clone();
    stop.sort_by_key(|task| task["run_id"].to_string());
    assert_eq!(stop, [stale, gone]);
    assert_eq!(hand.client().frames(&run).await, frames);
    assert_eq!(hand.client().post("/heartbeat", "{}").await.status, 422);
    let body = json!({"status": "ok", "output": {"answer": "x"}});
    assert_eq!(task.complete(&body).await.status, 200);
    hand.client().ended(&run).await;
    let answer = hand.client().post("/heartbeat", beat(json!([own]))).await;
    assert_eq!(answer.json(), json!({"stop": [own]}));
}

/// Whoever beats beside the configured runtime does not cost it its work.
#[tokio::test]
async fn another_instance_takes_nothing_from_the_runtime_at_hand() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    hand.runtime.follow(|heard| match heard.path.as_str() {
        "/health" => Reply::Now(200, r#"{"status":"ok","runtime_id":"at hand"}"#.to_owned()),
        _ => Reply::Now(202, String::new()),
    });
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let own = json!({"run_id": run, "step_id": "s1", "attempt": 1});
    let beat = |id: &str, active: Value| json!({"runtime_id": id, "active": active}).to_string();
    let first = beat("at hand", json!([own]));
    assert_eq!(hand.client().post("/heartbeat", first).await.status, 200);
    let before = hand.client().frames(&run).await;
    for other in 0..5 {
        let other = beat(&format!("other {other}"), json!([]));
        assert_eq!(hand.client().post("/heartbeat", other).await.status, 200);
    }
    assert_eq!(hand.client().frames(&run).await, before);
    let body = json!({"status": "ok", "output": {"answer": "x"}});
    assert_eq!(task.complete(&body).await.status, 200);
}

/// A runtime that is started anew and does not name a task has lost it: the next attempt comes with
/// what was recorded, and the token of the first is worth nothing any more.
#[tokio::test]
async fn a_lost_task_is_dispatched_again_with_its_history() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let own = json!({"run_id": run, "step_id": "s1", "attempt": 1});
    let beat = |id: &str, active: Value| json!({"runtime_id": id, "active": active}).to_string();
    hand.client()
        .post("/heartbeat", beat("first", json!([own])))
        .await;
    let first = task.report(1, &task.request()).await.json();
    let said = task.response(&first["events"][0]["seq"], "{\"answer\":\"x\"}");
    assert_eq!(task.report(2, &json!([said])).await.status, 200);
    hand.client()
        .post("/heartbeat", beat("second", json!([])))
        .await;
    hand.runtime
        .until(|heard| heard.iter().filter(|one| one.path == "/invoke").count() == 2)
        .await;
    let again = hand.dispatches().remove(1);
    assert_eq!(again["attempt"], 2);
    let kinds: Vec<&str> = again["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert!(
        kinds.starts_with(&["llm.request", "llm.response"]),
        "{kinds:?}"
    );
    assert_eq!(again["history"][1]["data"]["content"], "{\"answer\":\"x\"}");
    assert_eq!(task.report(3, &json!([other_end()])).await.status, 409);
    let second = Task {
        client: hand.client().clone(),
        invoke: again,
    };
    let body = json!({"status": "ok", "output": {"answer": "second"}});
    assert_eq!(second.complete(&body).await.status, 200);
    let envelope = hand.client().ended(&run).await;
    assert_eq!(step(&envelope, "s1")["output"], json!({"answer": "second"}));
    assert_eq!(step(&envelope, "s1")["attempt"], 2);
    assert_eq!(envelope["totals"]["llm_calls"], 1, "{envelope:#}");
    let lost = of_type(&hand.client().frames(&run).await, "worker.lost");
    assert_eq!(lost.len(), 1);
    assert_eq!(lost[0]["data"]["reason"], "instance");
}

/// An earlier runtime stops at a gated tool and waits for a dispatch that never comes: the step ends,
/// and what it used by then counts.
#[tokio::test]
async fn a_runtime_of_the_earlier_contract_that_meets_a_gated_tool_ends_its_step_at_once() {
    let hand = ByHand::new(&[("one", ONE)]).await;
    let run = hand.client().invoke("one", json!({})).await;
    let task = hand.task(&run, "s1").await;
    let waits = json!({
        "run_id": run, "step_id": "s1", "status": "pending_approval",
        "messages": [{"role": "user", "content": "hi"}],
        "pending_approval": {"tool_name": "delete-all", "tool_use_id": "t1", "arguments": {"a": 1},
            "on_reject": "fail", "timeout_ms": 0, "timeout_behavior": ""},
        "original_request": {"tool_servers": [{"auth_value": "Bearer of-somebody"}]},
        "metrics": {"model_resolved": "fake/gpt-4o-mini", "tokens_in": 1000, "tokens_out": 200,
            "cost_usd": 0.00027, "duration_ms": 5, "llm_calls": 1, "tool_calls": 0},
    });
    let answer = task.complete(&waits).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["status"], "failed", "{envelope:#}");
    assert_eq!(envelope["error"]["code"], "approval_unsupported");
    let words = envelope["error"]["message"].as_str().unwrap();
    assert!(words.contains("delete-all"), "{words}");
    assert_eq!(envelope["totals"]["cost_micro_usd"], 270);
    assert_eq!(envelope["totals"]["llm_calls"], 1);
    assert_eq!(hand.dispatches().len(), 1);
    let frames = hand.client().frames(&run).await;
    assert_eq!(of_type(&frames, "worker.dispatched").len(), 1);
    assert!(!json!(frames).to_string().contains("of-somebody"));
    let again = task.complete(&waits).await;
    assert_eq!(again.status, 409, "the attempt has ended");
}
