//! A runtime of somebody else that answers what responders ask, and people who stop, pause and cancel
//! runs meanwhile.

use serde_json::{Value, json};

use crate::support::client::Answer;
use crate::support::model::KEY;
use crate::support::sink::{Heard, Reply};
use crate::support::worlds::Known;
use crate::support::{Client, KitDir, Lab, Sink};

const ASKS: &str = r#"
goal: [{object: {type: Topic, data: {text: "{{ goal }}"}}}]
objects: {Topic: {}}
responders:
  - name: asks
    "on": object.created
    type: Topic
    ask: {model: std, messages: [{role: user, content: "What is {{ object.data.text }}?"}]}
    then: [{patch: {id: "{{ object.id }}", data: {known: "{{ reply.text }}"}}}]
"#;

const RUNS: &str = r#"
goal: [{object: {type: Topic, data: {text: "{{ goal }}"}}}]
objects: {Topic: {}}
responders:
  - name: digs
    "on": object.created
    type: Topic
    run: {workflow: workflows/part.workflow.yaml, params: {text: "{{ object.data.text }}"}}
    then: [{patch: {id: "{{ object.id }}", data: {known: "{{ result.text }}"}}}]
"#;
const PART: &str = r#"
visibility: sub-workflow
params: {schema: {type: object, required: [text], properties: {text: {type: string}}}}
pipeline: [{id: look, agent: ./agents/echo.agent.yaml, params: {msg: "dig {{ params.text }}"}}]
output: {map: {text: "{{ step.look.answer }}"}}
"#;

/// An engine whose runtime takes every task and does nothing by itself.
struct ByHand {
    lab: Lab,
    runtime: Sink,
    _kit: KitDir,
}

impl ByHand {
    async fn new(world: &str) -> Self {
        let head = "kind: world\nname: w\nversion: 1.0.0\n";
        let kit = KitDir::new(&[("main", "pipeline: []\n"), ("part", PART)])
            .with("agents/echo.agent.yaml", crate::support::model::ECHO)
            .with("worlds/w.world.yaml", &format!("{head}{world}"))
            .with(
                "gateway.yaml",
                &crate::support::model::gateway("http://127.0.0.1:9"),
            );
        let runtime = Sink::scripted(|_| Reply::Now(202, String::new())).await;
        let lab = Lab::remote(&kit, &[KEY], &runtime.url).await;
        Self {
            lab,
            runtime,
            _kit: kit,
        }
    }

    fn client(&self) -> &Client {
        &self.lab.client
    }

    async fn run(&self) -> String {
        self.run_of("tides").await
    }

    async fn run_of(&self, goal: &str) -> String {
        self.client().invoke("w", json!({"goal": goal})).await
    }

    /// What was dispatched for the questions of a run, once there are so many.
    async fn tasks(&self, run: &str, count: usize) -> Vec<Task> {
        let own = |one: &&Heard| {
            let of_run = |id: &Value| id.as_str().is_some_and(|id| id.starts_with(run));
            one.path == "/invoke" && of_run(&one.json()["run_id"])
        };
        let enough = |all: &[Heard]| all.iter().filter(own).count() >= count;
        self.runtime.until(enough).await;
        let heard = self.runtime.heard();
        let tasks = heard.iter().filter(own).map(|one| Task {
            client: self.client().clone(),
            invoke: one.json(),
        });
        tasks.collect()
    }

    async fn task(&self, run: &str) -> Task {
        self.tasks(run, 1).await.remove(0)
    }

    async fn steer(&self, run: &str, word: &str) -> u16 {
        let path = format!("/runs/{run}/{word}");
        self.client().post(&path, "{}").await.status
    }

    /// The run completes, and what is known of its topic is this.
    async fn completes_with(&self, run: &str, known: &str) {
        let envelope = self.client().ended(run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let world = Known::of(self.client(), run).await;
        assert_eq!(world.of_type("Topic")[0]["known"], known);
    }

    async fn kinds(&self, run: &str) -> Vec<String> {
        let frames = self.client().frames(run).await;
        let kinds = frames.iter().map(|frame| frame["type"].as_str().unwrap());
        kinds.map(str::to_owned).collect()
    }
}

/// A question, as a runtime has it.
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

    fn address(&self) -> &str {
        self.invoke["step_id"].as_str().unwrap()
    }

    async fn report(&self, n: u32, events: &Value) -> Answer {
        let attempt = &self.invoke["attempt"];
        let body = json!({"attempt": attempt, "n": n, "events": events});
        let path = self.path("report_url");
        self.client.post(&path, body.to_string()).await
    }

    async fn complete(&self, body: &Value) -> Answer {
        let path = self.path("callback_url");
        self.client.post(&path, body.to_string()).await
    }

    fn request(&self) -> Value {
        let messages = json!([{"role": "user", "content": self.invoke["user_message"]}]);
        json!([{"type": "llm.request", "data": {"group": "std", "max_tokens": 1024,
            "messages": messages, "purpose": "turn"}}])
    }
}

fn response(seq: &Value, content: &str) -> Value {
    json!({"type": "llm.response", "data": {"request": seq, "content": content, "provider": "fake",
        "model": "gpt-4o-mini", "tokens_in": 1000, "tokens_out": 200, "cost_micro_usd": 270,
        "prices": "p", "duration_ms": 1, "cached": false}})
}

fn finished(output: &Value) -> Value {
    json!({"type": "agent.finished", "data": {"reason": "completed", "outcome": {"output": output}}})
}

fn failed(code: &str, message: &str) -> Value {
    let error = json!({"code": code, "message": message, "retryable": false});
    json!({"type": "agent.finished", "data": {"reason": "error", "outcome": {"error": error}}})
}

#[tokio::test]
async fn reports_by_hand_answer_a_question_at_its_address() {
    let hand = ByHand::new(ASKS).await;
    let run = hand.run().await;
    let task = hand.task(&run).await;
    assert!(task.address().starts_with("@asks."), "{}", task.invoke);
    assert_eq!(task.invoke["user_message"], "What is tides?");
    let path = format!("/runs/{run}/steps/{}/report?token=", task.address());
    assert!(task.path("report_url").starts_with(&path));
    let first = task.report(1, &task.request()).await;
    assert_eq!(first.status, 200, "{}", first.text());
    let again = task.report(1, &task.request()).await;
    assert_eq!((again.status, &again.body), (200, &first.body));
    let seq = first.json()["events"][0]["seq"].clone();
    let last = json!([
        response(&seq, "the sea's breath"),
        finished(&json!("the sea's breath"))
    ]);
    let ended = task.report(2, &last).await;
    assert_eq!(ended.status, 200, "{}", ended.text());
    hand.completes_with(&run, "the sea's breath").await;
    // Late: what was taken is answered as it was, all else is refused.
    let before = hand.client().frames(&run).await;
    let late = task.report(2, &last).await;
    assert_eq!((late.status, &late.body), (200, &ended.body));
    assert_eq!(
        task.report(3, &json!([finished(&json!("x"))])).await.status,
        409
    );
    assert_eq!(
        task.complete(&json!({"status": "ok", "output": "x"}))
            .await
            .status,
        409
    );
    assert_eq!(hand.client().frames(&run).await, before);
}

#[tokio::test]
async fn a_runtime_that_only_completes_answers_a_question() {
    let hand = ByHand::new(ASKS).await;
    let run = hand.run().await;
    let task = hand.task(&run).await;
    let done = task
        .complete(&json!({"status": "ok", "output": "breath"}))
        .await;
    assert_eq!(done.status, 200, "{}", done.text());
    hand.completes_with(&run, "breath").await;
}

#[tokio::test]
async fn the_token_of_a_question_is_good_for_nothing_else() {
    let two = ASKS.replace("    ask:", "    for_each: {items: [a, b]}\n    ask:");
    let hand = ByHand::new(&two).await;
    let run = hand.run().await;
    let tasks = hand.tasks(&run, 2).await;
    let before = hand.client().frames(&run).await;
    let token = |task: &Task| {
        task.path("report_url")
            .split_once("token=")
            .unwrap()
            .1
            .to_owned()
    };
    let own = tasks[0].address();
    let zeros = format!("@asks.{}", "0".repeat(16));
    let body = json!({"attempt": 1, "n": 1, "events": [finished(&json!("FORGED"))]}).to_string();
    for (address, token, expected) in [
        (own, token(&tasks[1]), 401),
        (own, String::new(), 401),
        (own, token(&tasks[0]).replacen("1.", "2.", 1), 401),
        (zeros.as_str(), token(&tasks[0]), 401),
        ("@asks", token(&tasks[0]), 404),
        ("@asks.xyz", token(&tasks[0]), 404),
        ("@.0000000000000000", token(&tasks[0]), 404),
        ("@asks.0000000000000000.0", token(&tasks[0]), 404),
        ("@asks.0000000000000000%2Fx", token(&tasks[0]), 404),
        ("asks", token(&tasks[0]), 401),
    ] {
        for what in ["report", "complete"] {
            let path = format!("/runs/{run}/steps/{address}/{what}?token={token}");
            let answer = hand.client().post(&path, body.clone()).await;
            assert_eq!(answer.status, expected, "{path}: {}", answer.text());
        }
    }
    for (n, events) in [
        (0, json!([finished(&json!("x"))])),
        (1, json!([])),
        (1, json!([{"type": "agent.sang", "data": {}}])),
        (1, json!([response(&json!(1), "x")])),
        // A question has no tools, and is never looked at again.
        (
            1,
            json!([{"type": "tool.called", "data": {"call": 0, "tool": "put", "server": "x"}}]),
        ),
    ] {
        let answer = tasks[0].report(n, &events).await;
        assert_eq!(answer.status, 422, "{events}: {}", answer.text());
    }
    assert_eq!(hand.client().frames(&run).await, before);
}

#[tokio::test]
async fn what_a_runtime_says_is_bounded_and_never_stops_the_engine() {
    let goes_on = format!("{ASKS}    on_error: continue\n");
    let hand = ByHand::new(&goes_on).await;
    let long = "x".repeat(2 * 1024 * 1024);
    let ends = [
        failed("provider_error", &long),
        failed(&long, "no"),
        finished(&json!(long)),
        finished(&json!({"no": "text"})),
        json!({"type": "agent.finished", "data": {"reason": "completed",
            "outcome": {"output": "x", "commands": [{"type": "publish", "name": long}]}}}),
    ];
    for (number, end) in ends.iter().enumerate() {
        let run = hand.run().await;
        let task = hand.task(&run).await;
        let answer = task.report(1, &json!([end])).await;
        assert_eq!(answer.status, 200, "{number}: {}", answer.text());
        let envelope = hand.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{number}");
        let frames = hand.client().frames(&run).await;
        let failed = frames.iter().find(|one| one["type"] == "responder.failed");
        let failed = failed.unwrap_or_else(|| panic!("{number}: {:?}", frames.last()));
        let message = failed["data"]["message"].as_str().unwrap();
        assert!(
            message.len() < 16 * 1024,
            "{number}: {} bytes",
            message.len()
        );
    }
    let run = hand.run().await;
    let task = hand.task(&run).await;
    let neither = json!([finished(&Value::Null)]);
    assert_eq!(task.report(1, &neither).await.status, 422);
    // One that ends its run says it in the envelope, too.
    let hand = ByHand::new(ASKS).await;
    let run = hand.run().await;
    let task = hand.task(&run).await;
    let answer = task
        .report(1, &json!([failed("provider_error", &long)]))
        .await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let envelope = hand.client().ended(&run).await;
    assert_eq!(envelope["error"]["code"], "provider_error");
    assert!(envelope.to_string().len() < 64 * 1024);
}

#[tokio::test]
async fn goals_that_try_everything_are_text() {
    let hand = ByHand::new(ASKS).await;
    for goal in [
        "{{ env.LLM_KEY }}",
        "{{ goal }}",
        "'; drop table frames; --",
        "\u{1b}[31m\u{202e}\u{0}",
        "\"}}{{",
        "",
        "@asks.0000000000000000",
        &"long ".repeat(50_000),
    ] {
        let run = hand.run_of(goal).await;
        let task = hand.task(&run).await;
        assert_eq!(task.invoke["user_message"], format!("What is {goal}?"));
        let done = task
            .complete(&json!({"status": "ok", "output": goal}))
            .await;
        assert_eq!(done.status, 200, "{}", done.text());
        let envelope = hand.client().ended(&run).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let known = Known::of(hand.client(), &run).await;
        assert_eq!(
            known.of_type("Topic"),
            [&json!({"text": goal, "known": goal})]
        );
    }
}

#[tokio::test]
async fn a_question_in_flight_is_stopped_with_its_run() {
    let hand = ByHand::new(ASKS).await;
    for word in ["cancel", "terminate"] {
        let run = hand.run().await;
        let task = hand.task(&run).await;
        let first = task.report(1, &task.request()).await;
        assert_eq!(first.status, 200);
        assert_eq!(hand.steer(&run, word).await, 200, "{word}");
        let envelope = hand.client().ended(&run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        let before = hand.client().frames(&run).await;
        let late = json!([finished(&json!("late"))]);
        assert_eq!(task.report(2, &late).await.status, 409);
        assert_eq!(
            task.complete(&json!({"status": "ok", "output": "x"}))
                .await
                .status,
            409
        );
        assert_eq!(hand.client().frames(&run).await, before);
        let ended = before.iter().filter(|one| one["type"] == "agent.finished");
        assert_eq!(ended.count(), 1);
        // Once more, from a branch: the question is asked again there, under a token of its own.
        let path = format!("/runs/{run}/fork");
        let body = json!({"at": 3, "go": true}).to_string();
        let branch = hand.client().post(&path, body).await;
        assert_eq!(branch.status, 201, "{}", branch.text());
        let branch = branch.json()["branch_id"].as_str().unwrap().to_owned();
        let again = hand.task(&branch).await;
        assert_eq!(again.address(), task.address());
        assert_ne!(again.path("report_url"), task.path("report_url"));
        let done = again
            .complete(&json!({"status": "ok", "output": "x"}))
            .await;
        assert_eq!(done.status, 200, "{}", done.text());
        let envelope = hand.client().ended(&branch).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
    }
}

#[tokio::test]
async fn a_workflow_of_a_responder_in_flight_is_stopped_with_its_run() {
    let hand = ByHand::new(RUNS).await;
    for word in ["cancel", "terminate"] {
        let run = hand.run().await;
        let task = hand.task(&run).await;
        assert_eq!(hand.steer(&run, word).await, 200, "{word}");
        let envelope = hand.client().ended(&run).await;
        assert_eq!(envelope["status"], "cancelled", "{envelope:#}");
        let done = json!({"status": "ok", "output": {"answer": "x"}});
        assert_eq!(task.complete(&done).await.status, 409);
        let frames = hand.client().frames(&run).await;
        let of_child = frames
            .iter()
            .filter(|one| one["scope"].as_str() > Some("@"));
        let kinds: Vec<&str> = of_child.map(|one| one["type"].as_str().unwrap()).collect();
        let ends = ["agent.finished", "step.failed", "run.failed"];
        assert!(kinds.ends_with(&ends), "{word}: {kinds:?}");
    }
}

#[tokio::test]
async fn a_paused_run_takes_a_reply_and_reacts_to_it_later() {
    let hand = ByHand::new(ASKS).await;
    let run = hand.run().await;
    let task = hand.task(&run).await;
    let first = task.report(1, &task.request()).await;
    let seq = first.json()["events"][0]["seq"].clone();
    assert_eq!(hand.steer(&run, "pause").await, 200);
    let last = json!([response(&seq, "breath"), finished(&json!("breath"))]);
    assert_eq!(task.report(2, &last).await.status, 200);
    let kinds = hand.kinds(&run).await;
    assert_eq!(kinds.last().unwrap(), "agent.finished", "{kinds:?}");
    assert_eq!(hand.steer(&run, "resume").await, 202);
    hand.completes_with(&run, "breath").await;
}

/// Paused in the middle of everything: nothing starts until it is resumed, and nothing is lost.
#[tokio::test]
async fn a_question_that_is_lost_while_its_run_is_paused_is_asked_again_later() {
    let hand = ByHand::new(ASKS).await;
    let run = hand.run().await;
    let task = hand.task(&run).await;
    assert_eq!(hand.steer(&run, "pause").await, 200);
    let beat = |runtime: &str, active: Value| json!({"runtime_id": runtime, "active": active});
    let name = json!([{"run_id": run, "step_id": task.address(), "attempt": 1}]);
    for body in [beat("first", name), beat("second", json!([]))] {
        let answer = hand.client().post("/heartbeat", body.to_string()).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    assert_eq!(hand.steer(&run, "resume").await, 202);
    let again = hand.tasks(&run, 2).await.remove(1);
    assert_eq!(again.invoke["attempt"], 2);
    assert_eq!(
        task.report(1, &json!([finished(&json!("old"))]))
            .await
            .status,
        409
    );
    let done = again
        .complete(&json!({"status": "ok", "output": "new"}))
        .await;
    assert_eq!(done.status, 200, "{}", done.text());
    hand.completes_with(&run, "new").await;
}
