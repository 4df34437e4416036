//! People who pause, cancel and terminate runs in every state, on the real binary (decisions P1, P2).

mod kills;
mod people;
mod states;
mod waiting;

use serde_json::{Value, json};

use crate::support::model::{self, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, KitDir, Sink};

/// What opens whatever is held.
const GATE: &str = "gate";

/// The states a run can be steered in, each a workflow of the kit.
const STATES: [(&str, &str); 12] = [
    ("model", ASKS),
    ("tool", ACTS),
    ("doubt", DOUBTS),
    ("approval", IS_ASKED),
    ("review", IS_JUDGED),
    ("suspension", WAITS),
    ("webhook", SENDS),
    ("backoff", FAILS),
    ("fan_out", FANS_OUT),
    ("child", HOLDS_A_CHILD),
    ("reflect", REFLECTS),
    ("budget", IS_HELD),
];

const MSG: &str =
    "params: {schema: {type: object, properties: {msg: {type: string, default: hi}}}}\n";
const ASKS: &str = "pipeline:
  - {id: work, agent: ./agents/echo.agent.yaml, params: {msg: held}}
  - {id: after, depends_on: [work], transform: {inputs: [{from: step.work}], ops: []}}
";
const ACTS: &str =
    "pipeline: [{id: work, agent: ./agents/acts.agent.yaml, params: {msg: '{{ params.msg }}'}}]\n";
const DOUBTS: &str = "pipeline: [{id: work, agent: ./agents/doubts.agent.yaml, params: {msg: '{{ params.msg }}'}}]\n";
const IS_ASKED: &str =
    "pipeline: [{id: work, agent: ./agents/asks.agent.yaml, params: {msg: '{{ params.msg }}'}}]\n";
const IS_JUDGED: &str = "pipeline:
  - {id: work, agent: ./agents/judges.agent.yaml, params: {msg: '{{ params.msg }}'}}
  - {id: after, depends_on: [work], transform: {inputs: [{from: step.work}], ops: []}}
";
const WAITS: &str = "pipeline:
  - id: work
    agent: ./agents/waits.agent.yaml
    params: {msg: '{{ params.msg }}'}
    resume: {schema: {type: object}}
  - {id: after, depends_on: [work], transform: {inputs: [{from: step.work}], ops: []}}
";
const SENDS: &str = "env: [{name: HOOK}]
pipeline:
  - {id: work, webhook: {url: '{{ env.HOOK }}/held', body: {text: '{{ params.msg }}'}}}
  - {id: after, depends_on: [work], webhook: {url: '{{ env.HOOK }}/after', body: {}}}
";
const FAILS: &str = "env: [{name: HOOK}]
pipeline:
  - {id: work, webhook: {url: '{{ env.HOOK }}/fails', body: {}, retry: {attempts: 3, backoff: 1s, on: [server_error]}}}
";
const FANS_OUT: &str = "pipeline:
  - {id: list, transform: {inputs: [{from: params}], ops: [{map: {expr: \"{all: ['held', 'held 2', 'held 3', 'held 4']}\"}}]}}
  - {id: work, depends_on: [list], for_each: {from: 'step.list.result[0].all', concurrency: 2}, agent: ./agents/echo.agent.yaml, params: {msg: '{{ item }}'}}
";
const HOLDS_A_CHILD: &str = "pipeline:
  - {id: work, workflow: ./part.workflow.yaml}
  - {id: after, depends_on: [work], transform: {inputs: [{from: step.work}], ops: []}}
";
const REFLECTS: &str =
    "pipeline: [{id: work, agent: ./agents/reflects.agent.yaml, params: {msg: reflect}}]\n";
const IS_HELD: &str = "model_policy: {cost_budget_usd: 1}
pipeline:
  - {id: work, agent: ./agents/echo.agent.yaml, params: {msg: held}}
  - {id: more, agent: ./agents/echo.agent.yaml, params: {msg: held too}}
";
const KNOWS: &str = "env: [{name: HOOK}, {name: LLM_KEY, secret: true}]
pipeline:
  - {id: work, webhook: {url: '{{ env.HOOK }}/held', body: {key: '{{ env.LLM_KEY }}'}}}
";
const PART: &str = "visibility: sub-workflow
pipeline:
  - {id: inner, agent: ./agents/echo.agent.yaml, params: {msg: held}}
  - {id: later, depends_on: [inner], agent: ./agents/echo.agent.yaml, params: {msg: later}}
";

/// An engine, and the world around it that answers when the gate is open.
struct World {
    engine: Option<Process>,
    kit: KitDir,
    ledger: tempfile::TempDir,
    model: Model,
    tools: ToolServer,
    sink: Sink,
}

impl World {
    async fn new() -> Self {
        let model = Model::scripted(|call| {
            let user = call.content();
            match () {
                () if user.contains("act:") && call.turn() == 0 => {
                    Said::calls(&[("put", json!({"what": call.user()}))])
                }
                () if user.contains("judge:") && call.turn() == 0 => {
                    Said::calls(&[("review", json!({"reason": "r"}))])
                }
                () if user.contains("wait:") && call.turn() == 0 => {
                    Said::calls(&[("suspend", json!({"reason": "r", "checkpoint": 1}))])
                }
                () if user.contains("Look at it once more") => Said::answer("b").when(GATE),
                () if user.contains("held") => Said::answer("a").when(GATE),
                () => Said::answer("a"),
            }
        })
        .await;
        let tools =
            ToolServer::scripted(tools::any(&["put"]), |asked| match asked.arguments["what"]
                .as_str()
            {
                Some(what) if what.contains("broken") => Given::Broken,
                _ => Given::text("put").when(GATE),
            })
            .await;
        let sink = Sink::scripted(|heard| match heard.path.as_str() {
            "/held" => Reply::When(GATE.to_owned(), 200),
            "/fails" => Reply::Now(500, String::new()),
            _ => Reply::Now(200, String::new()),
        })
        .await;
        let flows: Vec<(&str, String)> = STATES
            .iter()
            .map(|(name, rest)| (*name, format!("{MSG}{rest}")))
            .chain([("part", PART.to_owned()), ("secret", KNOWS.to_owned())])
            .collect();
        let flows: Vec<(&str, &str)> = flows.iter().map(|(name, text)| (*name, &**text)).collect();
        let server = |name: &str, more: &str| {
            format!("name: {name}\nversion: 1.0.0\nurl: {}\n{more}", tools.url)
        };
        let agent = |name: &str, prompt: &str, server: &str, access: &str| {
            format!(
                "name: {name}\nversion: 1.0.0\nmodel: std\n\
                 params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}\n\
                 prompt: {{system: s, user: '{prompt} {{{{ params.msg }}}}'}}\n\
                 output: {{schema: {{type: object, required: [answer], properties: {{answer: {{type: string}}}}}}}}\n\
                 servers: [{{name: {server}, path: ../servers/{server}.server.yaml, access: {{allowlist: [{access}]}}}}]\n"
            )
        };
        let commands = |name: &str, prompt: &str, command: &str| {
            format!(
                "name: {name}\nversion: 1.0.0\nmodel: std\n\
                 params: {{schema: {{type: object, required: [msg], properties: {{msg: {{type: string}}}}}}}}\n\
                 prompt: {{system: s, user: '{prompt} {{{{ params.msg }}}}'}}\n\
                 output: {{schema: {{type: object, required: [answer], properties: {{answer: {{type: string}}}}}}}}\n\
                 commands: {{{command}: true}}\n"
            )
        };
        let kit = model::kit(&model, &flows)
            .with(
                "agents/judges.agent.yaml",
                &commands("judges", "judge:", "review"),
            )
            .with(
                "agents/waits.agent.yaml",
                &commands("waits", "wait:", "suspend"),
            )
            .with("servers/desk.server.yaml", &server("desk", ""))
            .with(
                "servers/once.server.yaml",
                &server("once", "stateful: true\n"),
            )
            .with(
                "agents/acts.agent.yaml",
                &agent("acts", "act:", "desk", "put"),
            )
            .with(
                "agents/doubts.agent.yaml",
                &agent("doubts", "act: broken", "once", "put"),
            )
            .with(
                "agents/asks.agent.yaml",
                &agent(
                    "asks",
                    "act:",
                    "desk",
                    "{name: put, require_approval: {timeout: 1h, timeout_behavior: fail}}",
                ),
            );
        let mut world = Self {
            engine: None,
            kit,
            ledger: tempfile::tempdir().unwrap(),
            model,
            tools,
            sink,
        };
        world.start();
        world
    }

    fn start(&mut self) {
        let pairs = [KEY, ("HOOK", self.sink.url.as_str())];
        let ledger = self.ledger.path().join("ledger.db");
        self.engine = Some(Process::start(self.kit.dir.path(), &ledger, &pairs));
    }

    /// SIGKILL, and another engine on the same ledger.
    fn restart(&mut self) {
        self.engine.take().unwrap().kill();
        self.start();
    }

    fn client(&self) -> Client {
        self.engine.as_ref().unwrap().client()
    }

    fn open_the_gate(&self) {
        self.model.open(GATE);
        self.tools.open(GATE);
        self.sink.open(GATE);
    }

    /// A new run in this state.
    async fn run_in(&self, state: &str) -> String {
        let run = self.client().invoke(state, json!({})).await;
        let (kind, count) = match state {
            "model" | "child" | "budget" => ("llm.request", 1),
            "reflect" | "fan_out" => ("llm.request", 2),
            "tool" => ("tool.called", 1),
            "doubt" => ("tool.in_doubt", 1),
            "approval" => ("approval.requested", 1),
            "review" => ("review.requested", 1),
            "suspension" => ("suspend.requested", 1),
            "webhook" | "secret" => ("webhook.sent", 1),
            "backoff" => ("webhook.failed", 1),
            other => panic!("no state {other}"),
        };
        self.seen(&run, kind, count).await;
        // What was sent is counted before the engine may be killed.
        match kind {
            "llm.request" => self.model.until(|calls| calls.len() >= count).await,
            "webhook.sent" => self.sink.until(|heard| !heard.is_empty()).await,
            _ => {}
        }
        run
    }

    /// Waits until so many frames of a type are recorded; gives the number of the last.
    async fn seen(&self, run: &str, kind: &str, count: usize) -> u64 {
        let mut events = self.client().events(run, None).await;
        let mut left = count;
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            left -= usize::from(frame["type"] == kind);
            if left == 0 {
                return frame["seq"].as_u64().unwrap();
            }
        }
        panic!("{run} ended without {count} of {kind}");
    }

    /// What all that is outside was asked so far.
    fn effects(&self) -> usize {
        self.model.calls().len() + self.tools.executed().len() + self.sink.heard().len()
    }

    async fn say(&self, run: &str, word: &str) -> (u16, Value) {
        let body = json!({"reason": "a reason"}).to_string();
        let path = format!("/runs/{run}/{word}");
        let answer = self.client().post(&path, body).await;
        (answer.status, answer.json())
    }

    async fn frames(&self, run: &str) -> Vec<Value> {
        self.client().frames(run).await
    }

    async fn envelope(&self, run: &str) -> Value {
        let path = format!("/runs/{run}/envelope");
        self.client().get(&path).await.json()
    }

    /// Whether all that was decided is decided again alike.
    async fn replays(&self, run: &str) {
        let path = format!("/runs/{run}/replay");
        let answer = self.client().post(&path, "{}").await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        let said = answer.json();
        assert_eq!(said["verdict"], "ok", "{said}");
    }
}

/// The types of frames, in order.
fn kinds(frames: &[Value]) -> Vec<&str> {
    let kinds = frames.iter().map(|frame| frame["type"].as_str().unwrap());
    kinds.collect()
}
