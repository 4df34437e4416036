//! What operators see of the real binary at work: log lines of every run, and `/metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::process::{Command, Stdio};

use ktsu_ledger::appender::{Appender, Options};
use ktsu_ledger::store::MemoryStore;
use ktsu_projections::RunState;
use ktsu_telemetry::{Metrics, MetricsFormat, RunObserver, Telemetry};
use serde_json::{Value, json};

use crate::support::ledgers::Recorded;
use crate::support::model::{self, KEY, Model, Said};
use crate::support::process::Process;
use crate::support::sink::Reply;
use crate::support::tools::{self, Given, ToolServer};
use crate::support::{Client, KitDir, Sink, Within, guarded};

/// Of the process.
type Variables = &'static [(&'static str, &'static str)];

/// Stands in params, prompts, replies, tool arguments, results, bodies and reasons.
const PAYLOAD: &str = "a-word-of-the-payload";
const MSG: &str = "params: {schema: {type: object, properties: {msg: {type: string}}}}\n";
const WORKS: &str = "env: [{name: HOOK}]
pipeline:
  - {id: act, agent: ./agents/acts.agent.yaml, params: {msg: '{{ params.msg }}'}}
  - {id: shape, depends_on: [act], transform: {inputs: [{from: step.act}], ops: []}}
  - {id: send, depends_on: [shape], webhook: {url: '{{ env.HOOK }}/ok', body: {text: '{{ params.msg }}'}}}
";
const FAILS: &str = "env: [{name: HOOK}]
pipeline:
  - {id: send, webhook: {url: '{{ env.HOOK }}/fails', body: {text: '{{ params.msg }}'}}}
";
const ASKS: &str =
    "pipeline: [{id: ask, agent: ./agents/asks.agent.yaml, params: {msg: '{{ params.msg }}'}}]\n";
const JUDGED: &str = "pipeline: [{id: judge, agent: ./agents/judges.agent.yaml}]\n";
const JUDGE: &str = "name: judges\nversion: 1.0.0\nmodel: std\ncommands: {review: true}\n\
     prompt: {system: s, user: 'judge:'}\n\
     output: {schema: {type: object, properties: {answer: {type: string}}}}\n";
const WAITS: &str = "pipeline: [{id: read, agent: ./agents/reads.agent.yaml, resume: {}, \
     params: {text: '{{ resume.data.text }}'}}]\n";
const READER: &str = "name: reads\nversion: 1.0.0\nmodel: std\ncommands: {suspend: true}\n\
     params: {schema: {type: object, properties: {text: {type: [string, 'null']}}}}\n\
     prompt: {system: s, user: 'read: {{ params.text }}'}\n\
     output: {schema: {type: object, properties: {answer: {type: string}}}}\n";
const PURE: &str = "pipeline: [{id: t, transform: {inputs: [{from: params}], ops: []}}]\n";

/// The world around an engine, and its kit.
struct World {
    kit: KitDir,
    desk: tempfile::TempDir,
    model: Model,
    sink: Sink,
    _tools: ToolServer,
}

impl World {
    async fn new() -> Self {
        let model = Model::scripted(|call| match call.turn() {
            0 if call.content().contains("judge:") => {
                Said::calls(&[("review", json!({"reason": PAYLOAD}))])
            }
            0 if call.content().contains("read:") && !call.content().contains(PAYLOAD) => {
                let asks = json!({"reason": PAYLOAD, "checkpoint": {"at": PAYLOAD}});
                Said::calls(&[("suspend", asks)])
            }
            0 if call.content().contains("act:") => {
                Said::calls(&[("put", json!({"what": call.user()}))])
            }
            _ => Said::answer(PAYLOAD),
        })
        .await;
        let script = |_: &tools::Asked| Given::text(PAYLOAD);
        let tools = ToolServer::scripted(tools::any(&["put"]), script).await;
        let sink = Sink::scripted(|heard| match heard.path.as_str() {
            "/fails" => Reply::Now(500, PAYLOAD.to_owned()),
            _ => Reply::Now(200, PAYLOAD.to_owned()),
        })
        .await;
        let agent = |name: &str, access: &str| {
            format!(
                "name: {name}\nversion: 1.0.0\nmodel: std\n\
                 params: {{schema: {{type: object, properties: {{msg: {{type: string}}}}}}}}\n\
                 prompt: {{system: s, user: 'act: {{{{ params.msg }}}}'}}\n\
                 output: {{schema: {{type: object, required: [answer], properties: {{answer: {{type: string}}}}}}}}\n\
                 servers: [{{name: desk, path: ../servers/desk.server.yaml, access: {{allowlist: [{access}]}}}}]\n"
            )
        };
        let with_params = |rest: &str| format!("{MSG}{rest}");
        let flows = [
            ("works", WORKS),
            ("fails", FAILS),
            ("asks", ASKS),
            ("pure", PURE),
            ("judged", JUDGED),
            ("waits", WAITS),
        ];
        let flows = flows.map(|(name, rest)| (name, with_params(rest)));
        let flows = flows.each_ref().map(|(name, text)| (*name, text.as_str()));
        let kit = model::kit(&model, &flows)
            .with(
                "servers/desk.server.yaml",
                &format!("name: desk\nversion: 1.0.0\nurl: {}\n", tools.url),
            )
            .with("agents/judges.agent.yaml", JUDGE)
            .with("agents/reads.agent.yaml", READER)
            .with("agents/acts.agent.yaml", &agent("acts", "put"))
            .with(
                "agents/asks.agent.yaml",
                &agent(
                    "asks",
                    "{name: put, require_approval: {timeout: 1h, timeout_behavior: fail}}",
                ),
            );
        Self {
            kit,
            desk: tempfile::tempdir().unwrap(),
            model,
            sink,
            _tools: tools,
        }
    }

    /// `ktsu start` with standard error in a file.
    fn start(&self, log: &str, pairs: &[(&str, &str)], arguments: &[&str]) -> Process {
        let stderr = File::create(self.desk.path().join(log)).unwrap();
        let mut command = self.command(pairs, arguments);
        command.stderr(stderr);
        Process::spawn(command)
    }

    fn command(&self, pairs: &[(&str, &str)], arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args(["start", "--json", "--port", "0", "--kit"])
            .arg(self.kit.dir.path())
            .arg("--ledger")
            .arg(self.desk.path().join("ledger.db"))
            .args(arguments)
            .env_clear()
            .env("HOOK", &self.sink.url)
            .env(KEY.0, KEY.1)
            .envs(pairs.iter().copied())
            .current_dir(self.kit.dir.path());
        command
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.desk.path().join(name)).unwrap()
    }
}

async fn post(client: &Client, path: &str, body: Value) {
    let answer = client.post(path, body.to_string()).await;
    assert!(answer.status < 300, "{path}: {}", answer.text());
}

/// Runs of every kind, with the payload wherever one can stand; their ids.
async fn play(client: &Client) -> BTreeMap<&'static str, String> {
    let body = || json!({"msg": PAYLOAD});
    let reason = || json!({"reason": PAYLOAD});
    let mut runs = BTreeMap::new();
    for name in ["works", "fails", "pure"] {
        let envelope = client.run(name, body()).await;
        runs.insert(name, envelope["run_id"].as_str().unwrap().to_owned());
    }
    let asks = client.invoke("asks", body()).await;
    let mut events = client.events(&asks, None).await;
    while let Some(event) = events.next().await {
        if event.data.contains("approval.requested") {
            break;
        }
    }
    post(client, &format!("/runs/{asks}/pause"), reason()).await;
    post(client, &format!("/runs/{asks}/resume"), reason()).await;
    let asked = client
        .get(&format!("/runs/{asks}/steps/ask/approval"))
        .await
        .json();
    let decide = json!({"decision": "approve", "digest": asked["digest"], "reason": PAYLOAD});
    post(
        client,
        &format!("/runs/{asks}/steps/ask/approval/decide"),
        decide,
    )
    .await;
    client.ended(&asks).await;
    runs.insert("asks", asks);
    let judged = client.invoke("judged", body()).await;
    until(client, &judged, "review.requested").await;
    let path = format!("/runs/{judged}/steps/judge/review/decide");
    let decide = json!({"decision": "rejected", "reason": PAYLOAD});
    post(client, &path, decide).await;
    client.ended(&judged).await;
    runs.insert("judged", judged);
    let waits = client.invoke("waits", body()).await;
    until(client, &waits, "suspend.requested").await;
    let path = format!("/runs/{waits}/steps/read/resume");
    post(
        client,
        &path,
        json!({"data": {"text": PAYLOAD}, "reason": PAYLOAD}),
    )
    .await;
    client.ended(&waits).await;
    runs.insert("waits", waits);
    let left = client.invoke("asks", body()).await;
    post(client, &format!("/runs/{left}/cancel"), reason()).await;
    runs.insert("cancelled", left);
    runs
}

/// Follows a run until it has a frame of a type.
async fn until(client: &Client, run: &str, kind: &str) {
    let mut events = client.events(run, None).await;
    while let Some(event) = events.next().await {
        if event.data.contains(kind) {
            return;
        }
    }
    panic!("{run} has no {kind}");
}

/// The lines about a run at a level.
fn lines<'a>(log: &'a [Value], run: &str, level: &str) -> Vec<&'a Value> {
    let about = log
        .iter()
        .filter(|line| line["run_id"] == run && line["level"] == level);
    about.collect()
}

fn words<'a>(lines: &[&'a Value]) -> Vec<&'a str> {
    lines
        .iter()
        .map(|line| line["message"].as_str().unwrap())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_reads_the_log_level_again() {
    let world = World::new().await;
    let file = world.desk.path().join("level.env.yaml");
    let path = file.to_str().unwrap();
    std::fs::write(&file, "variables:\n  OTHER: x\n  LOG_LEVEL: error\n").unwrap();
    let engine = world.start("log", &[], &["--env", path, "--log-format", "json"]);
    engine.client().run("works", json!({"msg": "m"})).await;
    assert_eq!(world.log("log"), "");
    std::fs::write(&file, "variables:\n  OTHER: x\n  LOG_LEVEL: info\n").unwrap();
    engine.signal("HUP");
    let told = async {
        while !world.log("log").contains("SIGHUP: read the log level") {
            tokio::task::yield_now().await;
        }
    };
    guarded("a line about SIGHUP", told).await;
    engine.client().run("works", json!({"msg": "m"})).await;
    engine.stop();
    assert!(world.log("log").contains("run completed"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_runs_life_is_logged_with_its_fields_and_nothing_of_its_payload() {
    let world = World::new().await;
    let engine = world.start("log", &[("KTSU_LOG", "trace")], &["--log-format", "json"]);
    let client = engine.client();
    let runs = play(&client).await;
    let metrics = client.get("/metrics").await.text();
    engine.stop();
    let text = world.log("log");
    assert!(
        world
            .model
            .users()
            .iter()
            .any(|user| user.contains(PAYLOAD))
    );
    assert!(!text.contains(PAYLOAD), "{text}");
    assert!(!metrics.contains(PAYLOAD), "{metrics}");
    let log: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();

    let works = lines(&log, &runs["works"], "INFO");
    assert_eq!(
        words(&works),
        ["run accepted", "run started", "run completed"]
    );
    assert_eq!(works[0]["principal"], "local");
    assert_eq!(works[2]["workflow"], "works");
    assert_eq!(works[2]["status"], "complete");
    assert!(works[2]["cost_usd"].as_f64().unwrap() > 0.0, "{}", works[2]);
    assert!(works[2]["duration_ms"].is_u64());
    let effects = lines(&log, &runs["works"], "DEBUG");
    let expected = [
        "task dispatched",
        "model asked",
        "model answered",
        "tool called",
        "tool returned",
        "model asked",
        "model answered",
        "step ended",
        "webhook sent",
        "webhook answered",
        "step ended",
    ];
    assert_eq!(words(&effects), expected);
    assert_eq!(
        (&effects[1]["step"], &effects[1]["attempt"]),
        (&json!("act"), &json!(1))
    );
    assert_eq!(
        (&effects[1]["group"], &effects[3]["tool"]),
        (&json!("std"), &json!("desk.put"))
    );
    assert_eq!(effects[9]["http_status"], 200);

    let fails = lines(&log, &runs["fails"], "INFO");
    let end = fails.last().unwrap();
    assert_eq!(end["message"], "run failed");
    assert_eq!(
        (&end["step"], &end["status"]),
        (&json!("send"), &json!("failed"))
    );
    assert!(
        end["code"].as_str().unwrap().starts_with("webhook"),
        "{end}"
    );

    let asks = lines(&log, &runs["asks"], "INFO");
    let expected = [
        "run accepted",
        "run started",
        "run waits for approval",
        "run paused: waits for ktsu resume",
        "run resumed",
        "approval decided",
        "run completed",
    ];
    assert_eq!(words(&asks), expected);
    assert_eq!(asks[2]["tool"], "desk.put");
    let judged = lines(&log, &runs["judged"], "INFO");
    let expected = [
        "run accepted",
        "run started",
        "run waits for a review",
        "review decided",
        "run failed",
    ];
    assert_eq!(words(&judged), expected);
    assert_eq!(judged[2]["step"], "judge");
    let waits = lines(&log, &runs["waits"], "INFO");
    let expected = [
        "run accepted",
        "run started",
        "run waits for data",
        "step resumed",
        "run completed",
    ];
    assert_eq!(words(&waits), expected);
    assert_eq!(waits[2]["step"], "read");
    let cancelled = lines(&log, &runs["cancelled"], "INFO");
    assert_eq!(words(&cancelled).last(), Some(&"run cancelled"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_logged_is_said_by_ktsu_log_then_rust_log_then_the_environment_file() {
    let world = World::new().await;
    let file = world.kit.dir.path().join("logs.env.yaml");
    let path = file.to_str().unwrap();
    let cases: [(Variables, Option<&str>, &str); 8] = [
        (&[], None, "INFO"),
        (&[], Some("debug"), "DEBUG"),
        (&[], Some("WARNING"), ""),
        (&[], Some("loud"), "INFO"),
        (&[("RUST_LOG", "debug")], Some("error"), "DEBUG"),
        (&[("RUST_LOG", "[")], None, "INFO"),
        (
            &[("RUST_LOG", "error"), ("KTSU_LOG", "ktsu=debug")],
            None,
            "DEBUG",
        ),
        (
            &[("KTSU_LOG", "off"), ("RUST_LOG", "debug")],
            Some("debug"),
            "",
        ),
    ];
    for (number, (pairs, level, finest)) in cases.into_iter().enumerate() {
        let log = format!("log-{number}");
        let level = level.map(|level| format!("  LOG_LEVEL: {level}\n"));
        let text = format!("variables:\n  OTHER: x\n{}", level.unwrap_or_default());
        std::fs::write(&file, text).unwrap();
        let engine = world.start(&log, pairs, &["--env", path, "--log-format", "json"]);
        engine.client().run("works", json!({"msg": "m"})).await;
        engine.stop();
        let text = world.log(&log);
        let levels: BTreeSet<&str> = text
            .lines()
            .filter(|line| line.contains("\"run_id\""))
            .filter_map(|line| {
                ["INFO", "DEBUG"]
                    .into_iter()
                    .find(|level| line.contains(level))
            })
            .collect();
        let expected = match finest {
            "DEBUG" => BTreeSet::from(["DEBUG", "INFO"]),
            "INFO" => BTreeSet::from(["INFO"]),
            _ => BTreeSet::new(),
        };
        assert_eq!(levels, expected, "{pairs:?} {number}: {text}");
    }
    assert!(
        world
            .log("log-3")
            .contains("ignoring LOG_LEVEL of the environment file")
    );
    assert!(world.log("log-5").contains("ignoring RUST_LOG"));
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_does_not_read_the_log_holds_up_no_run() {
    let world = World::new().await;
    let mut command = world.command(&[("KTSU_LOG", "trace")], &["--log-format", "json"]);
    command.stderr(Stdio::piped());
    let engine = Process::spawn(command);
    let client = engine.client();
    // Some 600 bytes of lines a run, and a pipe that holds 64 KiB.
    for _ in 0..400 {
        let envelope = client.run("pure", json!({"msg": "m"})).await;
        assert_eq!(envelope["status"], "complete");
    }
    engine.kill();
}

/// Series and values, after a strict look at the form.
fn series(text: &str) -> BTreeMap<String, f64> {
    let mut kinds = BTreeMap::new();
    let mut series = BTreeMap::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(
                kinds.insert(name.to_owned(), kind.to_owned()).is_none(),
                "{line}"
            );
            continue;
        }
        if line.starts_with("# HELP ") {
            continue;
        }
        let (key, value) = line.rsplit_once(' ').unwrap();
        let name = key.split('{').next().unwrap();
        let family = ["_bucket", "_sum", "_count"]
            .iter()
            .find_map(|end| name.strip_suffix(end))
            .filter(|family| kinds.get(*family).map(String::as_str) == Some("histogram"))
            .unwrap_or(name);
        assert!(kinds.contains_key(family), "{line} has no type");
        let value: f64 = value.parse().unwrap();
        assert!(
            series.insert(key.to_owned(), value).is_none(),
            "{key} appears twice"
        );
    }
    series
}

/// What the frames of all runs say, by the series that should say the same.
async fn recorded(client: &Client, runs: &[&String]) -> BTreeMap<String, f64> {
    let mut sums: BTreeMap<String, f64> = BTreeMap::new();
    let mut add = |key: &str, value: f64| *sums.entry(key.to_owned()).or_default() += value;
    for run in runs {
        for frame in client.frames(run).await {
            let data = &frame["data"];
            match frame["type"].as_str().unwrap() {
                "llm.response" => {
                    add("ktsu_calls_total{kind=\"model\",outcome=\"ok\"}", 1.0);
                    let tokens = data["tokens_in"].as_f64().unwrap();
                    add(
                        "ktsu_model_tokens_total{group=\"std\",kind=\"input\"}",
                        tokens,
                    );
                    let cost = data["cost_micro_usd"].as_f64().unwrap() / 1e6;
                    add("ktsu_model_cost_usd_total{group=\"std\"}", cost);
                }
                "tool.returned" => add("ktsu_calls_total{kind=\"tool\",outcome=\"ok\"}", 1.0),
                "webhook.delivered" => {
                    add("ktsu_calls_total{kind=\"webhook\",outcome=\"ok\"}", 1.0);
                }
                "webhook.failed" => {
                    add("ktsu_calls_total{kind=\"webhook\",outcome=\"failed\"}", 1.0);
                }
                _ => {}
            }
        }
    }
    sums
}

#[tokio::test(flavor = "multi_thread")]
async fn metrics_count_what_the_ledger_holds_and_continue_after_a_restart() {
    let world = World::new().await;
    let engine = world.start("log", &[("KTSU_LOG", "error")], &[]);
    let client = engine.client();
    let runs = play(&client).await;
    let waiting = client.invoke("asks", json!({"msg": "m"})).await;
    let mut events = client.events(&waiting, None).await;
    while let Some(event) = events.next().await {
        if event.data.contains("approval.requested") {
            break;
        }
    }
    drop(events);
    let fork = client
        .post(&format!("/runs/{}/fork", runs["pure"]), "{}")
        .await;
    assert_eq!(fork.status, 201, "{}", fork.text());
    let all: Vec<&String> = runs.values().chain([&waiting]).collect();
    let frames = recorded(&client, &all).await;
    let answer = client.get("/metrics").await;
    assert_eq!(answer.kind(), "text/plain; version=0.0.4; charset=utf-8");
    let counted = series(&answer.text());
    for (key, value) in &frames {
        let found = counted.get(key).copied().unwrap_or_default();
        assert!((found - value).abs() < 1e-9, "{key}: {found} {value}");
    }
    let of = |series: &BTreeMap<String, f64>, key: &str| series.get(key).copied();
    let ended = |workflow: &str, status: &str| {
        format!("ktsu_runs_ended_total{{workflow=\"{workflow}\",status=\"{status}\"}}")
    };
    let unfinished =
        |status: &str| format!("ktsu_runs_unfinished{{workflow=\"asks\",status=\"{status}\"}}");
    assert_eq!(of(&counted, &ended("works", "complete")), Some(1.0));
    assert_eq!(of(&counted, &ended("fails", "failed")), Some(1.0));
    assert_eq!(of(&counted, &ended("asks", "cancelled")), Some(1.0));
    assert_eq!(of(&counted, &unfinished("waiting")), Some(1.0));
    assert_eq!(of(&counted, &unfinished("running")), Some(0.0));
    assert_eq!(
        of(&counted, "ktsu_runs_accepted_total{workflow=\"pure\"}"),
        Some(2.0)
    );
    let transforms = "ktsu_steps_total{kind=\"transform\",outcome=\"complete\"}";
    assert_eq!(of(&counted, transforms), Some(2.0));
    let failed = "ktsu_steps_total{kind=\"webhook\",outcome=\"failed\"}";
    assert_eq!(of(&counted, failed), Some(1.0));
    assert_eq!(
        of(
            &counted,
            "ktsu_run_duration_seconds_count{workflow=\"works\"}"
        ),
        Some(1.0)
    );
    assert!(of(&counted, "ktsu_disk_free_bytes") > Some(0.0));
    let connections = "ktsu_http_connections{service=\"orchestrator\"}";
    assert!(of(&counted, connections) >= Some(1.0));
    assert!(of(&counted, "ktsu_ledger_commits_total") > Some(5.0));

    engine.kill();
    let engine = world.start("log", &[("KTSU_LOG", "error")], &[]);
    let client = engine.client();
    let counted = series(&client.get("/metrics").await.text());
    assert_eq!(of(&counted, &unfinished("waiting")), Some(1.0));
    post(&client, &format!("/runs/{waiting}/cancel"), json!({})).await;
    // Counted right after the reply.
    let counted = guarded("the cancel is counted", async {
        loop {
            let counted = series(&client.get("/metrics").await.text());
            if of(&counted, &unfinished("waiting")) == Some(0.0) {
                return counted;
            }
        }
    });
    let counted = counted.await;
    assert_eq!(of(&counted, &ended("asks", "cancelled")), Some(1.0));
    let open = [("accept", "application/openmetrics-text; version=1.0.0")];
    let answer = client.send("GET", "/metrics", &open, "").await;
    assert!(answer.kind().starts_with("application/openmetrics-text"));
    assert!(answer.text().ends_with("# EOF\n"));
    engine.kill();
}

#[tokio::test]
async fn nothing_is_counted_before_it_is_durable() {
    let kit = KitDir::new(&[("pure", PURE)]);
    let store = MemoryStore::new();
    let within = Within::new(kit.load(), store.clone(), Options::default(), &[], None).await;
    let envelope = within.client.run("pure", json!({})).await;
    let frames = Recorded::read(&store, envelope["run_id"].as_str().unwrap()).frames();
    let state = RunState::fold(&frames).unwrap();
    let appender = Appender::stopped("a test");
    let telemetry = Telemetry::new(Metrics::default(), &appender, Vec::new());
    let counted = || {
        let counted = series(&telemetry.text(MetricsFormat::Prometheus).unwrap());
        let ended = "ktsu_runs_ended_total{workflow=\"pure\",status=\"complete\"}";
        let steps = "ktsu_steps_total{kind=\"transform\",outcome=\"complete\"}";
        (counted[ended], counted[steps])
    };
    let mut observer = RunObserver::new(&telemetry, &state);
    observer.note(frames.iter(), &state);
    observer.durable(None, "run");
    assert_eq!(counted(), (0.0, 0.0));
    observer.durable(Some(state.next_seq() - 2), "run");
    assert_eq!(counted(), (0.0, 0.0));
    observer.durable(Some(state.next_seq() - 1), "run");
    assert_eq!(counted(), (1.0, 1.0));
    observer.durable(Some(u64::MAX), "run");
    assert_eq!(counted(), (1.0, 1.0));
}
