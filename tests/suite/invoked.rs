//! Workflows that the outcome of an agent runs: children of its step, from outside.

use std::process::Command;
use std::sync::Arc;

use ktsu::assemble::LedgerPlace;
use ktsu_ledger::branch;
use ktsu_ledger::event::StepEvent;
use ktsu_ledger::store::{MemoryStore, SqliteReader};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Backend, Event, Frame, StreamId};
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::effects::by_frames::hold_at_every_cut;
use crate::evidence;
use crate::support::ledgers::Recorded;
use crate::support::process::Process;
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, KitDir, Lab, Sink, campaign};

const JUDGE: &str = "name: judge\nversion: 1.0.0\nmodel: std\nprompt: {system: s}\n\
     commands: {emit: [claim.*], invoke: [verify, plain, undone]}\n\
     output: {schema: {type: object, properties: {n: {type: integer}}}}\n";
const CHECKER: &str = "name: checker\nversion: 1.0.0\nmodel: std\n\
     params: {schema: {type: object, required: [claim], properties: {claim: {type: string}}}}\n\
     prompt: {system: s, user: '{{ params.claim }}'}\n\
     output: {schema: {type: object, required: [said], properties: {said: {type: string}}}}\n";
const PARAMS: &str = "visibility: sub-workflow\nparams: {schema: {type: object, \
     required: [claim], properties: {claim: {type: string}, note: {type: string, default: none}}}}\n";
const MAIN: &str = "
pipeline:
  - id: a
    agent: ./agents/judge.agent.yaml
    may_invoke:
      verify: {workflow: ./verify.workflow.yaml, concurrency: 2, max_items: 3}
      plain: {workflow: ./plain.workflow.yaml, concurrency: 2}
      secret: ./plain.workflow.yaml
  - id: b
    depends_on: [a]
    transform: {inputs: ['{{ step.a.ktsu_invoked }}']}
output: {map: {own: '{{ step.a }}', all: '{{ step.b.result }}', second: '{{ step.a.ktsu_invoked[1].said }}'}}
";

const MANY: &str = "
pipeline:
  - id: f
    agent: ./agents/judge.agent.yaml
    for_each: {from: params.list, max_failures: -1}
    may_invoke: {verify: ./verify.workflow.yaml}
  - {id: g, depends_on: [f], transform: {inputs: ['{{ step.f.results }}']}}
";

fn kit() -> KitDir {
    let verify = format!(
        "{PARAMS}pipeline: [{{id: v, agent: ./agents/checker.agent.yaml, \
         params: {{claim: '{{{{ params.claim }}}}'}}}}]\n"
    );
    let plain = format!(
        "{PARAMS}pipeline: [{{id: v, transform: {{inputs: ['{{{{ params.claim }}}}']}}}}, \
         {{id: w, depends_on: [v], transform: {{inputs: ['{{{{ v.result }}}}']}}}}]\n\
         output: {{map: {{said: '{{{{ w.result }}}}'}}}}\n"
    );
    KitDir::new(&[
        ("main", MAIN),
        ("many", MANY),
        ("verify", &verify),
        ("plain", &plain),
    ])
    .with("agents/judge.agent.yaml", JUDGE)
    .with("agents/checker.agent.yaml", CHECKER)
}

fn claims(step: &str, claims: &[&str]) -> Value {
    let inputs: Vec<Value> = claims.iter().map(|claim| json!({"claim": claim})).collect();
    json!({"type": "fanout", "step": step, "inputs": inputs})
}

fn claim(step: &str, claim: &str) -> Value {
    json!({"type": "invoke", "step": step, "input": {"claim": claim}})
}

/// A runtime that takes every task and ends it: the judge with these commands, a checker with its
/// claim in capitals, or an error where that is `bad`, or not at all where it is `silent`.
async fn runtime(commands: Value) -> Sink {
    Sink::scripted(move |heard| {
        if heard.path == "/invoke" {
            let (heard, commands) = (heard.clone(), commands.clone());
            tokio::spawn(async move { complete(&heard, &commands).await });
        }
        Reply::Now(202, String::new())
    })
    .await
}

async fn complete(heard: &Heard, commands: &Value) {
    let task = heard.json();
    let metrics = json!({"model_resolved": "m", "tokens_in": 10, "tokens_out": 3,
        "cost_usd": 0.5, "llm_calls": 1, "tool_calls": 0});
    let claim = task["user_message"].as_str().unwrap_or_default();
    if claim == "silent" {
        return;
    }
    let body = if task["agent_name"] == "judge" {
        json!({"status": "ok", "output": {"n": 7, "ktsu_invoked": "mine"}, "metrics": metrics,
            "commands": commands})
    } else if claim == "bad" {
        json!({"status": "failed", "metrics": metrics,
            "error": {"code": "agent_failed", "message": "no", "retryable": false}})
    } else {
        json!({"status": "ok", "output": {"said": claim.to_uppercase()}, "metrics": metrics})
    };
    let url = task["callback_url"].as_str().unwrap();
    let rest = url.strip_prefix("http://").unwrap();
    let (host, path) = rest.split_at(rest.find('/').unwrap());
    // The engine may be gone by now, and begins the task again.
    let client = Client::of(&format!("http://{host}"));
    let answer = client.try_send("POST", path, &[], body.to_string()).await;
    if let Some(answer) = answer {
        assert!(matches!(answer.status, 200 | 409), "{}", answer.text());
    }
}

async fn lab(runtime: &Sink, store: &MemoryStore) -> Lab {
    let backend: Arc<dyn Backend> = Arc::new(store.clone());
    let place = LedgerPlace::Backend(backend);
    Lab::remote_on(place, &kit(), &runtime.url).await
}

fn frames(store: &MemoryStore, run: &str) -> Vec<Frame> {
    branch::frames(store, &StreamId::run(run).unwrap()).unwrap()
}

/// Everything that is said of a ledger holds: its chains, the decisions in it, its evidence.
fn holds(store: &MemoryStore, run: &str) {
    let frames = frames(store, run);
    if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
        panic!("{run}: {diverged}");
    }
    hold_at_every_cut(&frames);
    let report = verify(store, &verify::VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, [], "{run}");
    evidence::sound(store, run);
}

/// A run whose step runs two children at once, then one more.
pub(crate) async fn recorded() -> Recorded {
    let commands = json!([claims("verify", &["p", "q"]), claim("plain", "z")]);
    recorded_of("main", json!({}), commands).await
}

/// A run whose step emits before and between what it runs.
pub(crate) async fn recorded_emits() -> Recorded {
    let emit = |n: u64| json!({"type": "emit", "topic": "claim.judged", "payload": n});
    let runs = [claim("verify", "p"), claims("verify", &["q"])];
    let commands = json!([emit(0), runs[0], emit(2), runs[1]]);
    recorded_of("main", json!({}), commands).await
}

/// A run of two items, one invoked workflow of each of which fails.
pub(crate) async fn recorded_items() -> Recorded {
    let commands = json!([claims("verify", &["p", "bad"])]);
    recorded_of("many", json!({"list": [1, 2]}), commands).await
}

async fn recorded_of(workflow: &str, params: Value, commands: Value) -> Recorded {
    let runtime = runtime(commands).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke(workflow, params).await;
    lab.client.ended(&run).await;
    lab.close().await;
    Recorded::read(&store, &run)
}

/// Types and scopes of some frames, in their order.
fn kinds(frames: &[Frame], wanted: &[&str]) -> Vec<String> {
    let frames = frames.iter();
    let frames = frames.filter(|frame| wanted.contains(&frame.event.kind()));
    frames
        .map(|frame| format!("{} {}", frame.event.kind(), frame.scope))
        .collect()
}

#[tokio::test]
async fn a_fanout_runs_children_of_its_step_and_the_envelope_has_what_they_gave() {
    let commands = json!([claims("verify", &["p", "q", "r"]), claim("plain", "z")]);
    let runtime = runtime(commands).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke("main", json!({})).await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(
        envelope["output"]["own"],
        json!({"n": 7}),
        "not what it claims"
    );
    assert_eq!(envelope["output"]["second"], "Q");
    let all = json!([{"said": "P"}, {"said": "Q"}, {"said": "R"}, {"said": "z"}]);
    assert_eq!(envelope["output"]["all"], all);
    let steps = envelope["steps"].as_array().unwrap();
    let step = steps.iter().find(|step| step["id"] == "a").unwrap();
    let told: Vec<Value> = step["invoked"].as_array().unwrap().clone();
    let names = ["a/verify.0", "a/verify.1", "a/verify.2", "a/plain.3"];
    for ((one, name), output) in told.iter().zip(names).zip(all.as_array().unwrap()) {
        assert_eq!(
            (&one["run"], &one["status"], &one["output"]),
            (&json!(name), &json!("complete"), output)
        );
    }
    assert_eq!(told.len(), 4);
    // The usage of the judge and of three checkers.
    for metrics in [&step["metrics"], &envelope["totals"]] {
        assert_eq!(metrics["tokens_in"], 40, "{metrics}");
        assert_eq!(metrics["tokens_out"], 12, "{metrics}");
    }
    let child = lab
        .client
        .get(&format!("/runs/{run}/a/verify.1/envelope"))
        .await;
    let child = child.json();
    assert_eq!(child["params"], json!({"claim": "q", "note": "none"}));
    assert_eq!(child["output"], json!({"said": "Q"}));
    // Isolated: a checker is given its claim and nothing else.
    for heard in runtime.heard().iter().filter(|one| one.path == "/invoke") {
        let task = heard.json();
        assert!(
            task["agent_name"] == "judge"
                || ["p", "q", "r"].contains(&task["user_message"].as_str().unwrap()),
            "{task}"
        );
    }
    let frames = frames(&store, &run);
    let begun = ["command.requested", "command.completed", "run.started"];
    let begun = kinds(&frames, &begun);
    assert_eq!(begun[1..3], ["command.requested ", "command.requested "]);
    assert_eq!(begun[3], "run.started a/verify.0");
    assert_eq!(
        begun[begun.len() - 2..],
        ["run.started a/plain.3", "command.completed "]
    );
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn what_an_outcome_emits_is_recorded_after_its_last_child_or_not_at_all() {
    let emit = |n: u64| json!({"type": "emit", "topic": "claim.judged", "payload": n});
    for last in ["q", "bad"] {
        let commands = json!([
            emit(0),
            claim("verify", "p"),
            emit(2),
            claims("verify", &[last])
        ]);
        let runtime = runtime(commands).await;
        let store = MemoryStore::new();
        let lab = lab(&runtime, &store).await;
        let run = lab.client.invoke("main", json!({})).await;
        lab.client.ended(&run).await;
        let frames = frames(&store, &run);
        let own = frames.iter().filter(|frame| frame.scope.is_empty());
        let own = own.filter_map(|frame| match &frame.event {
            Event::Step(StepEvent::Commanded(one)) => Some(format!("asked {}", one.index)),
            Event::Step(StepEvent::CommandCompleted(one)) => Some(format!("done {}", one.index)),
            Event::Step(StepEvent::Completed(one)) if one.step == "a" => Some("end".to_owned()),
            _ => None,
        });
        let told: Vec<String> = own.collect();
        let whole = [
            "asked 1", "asked 3", "done 1", "done 3", "asked 0", "asked 2", "end",
        ];
        match last {
            "bad" => assert_eq!(told, whole[..3]),
            _ => assert_eq!(told, whole),
        }
        holds(&store, &run);
        lab.close().await;
    }
}

#[tokio::test]
async fn an_item_whose_invoked_child_fails_is_tolerated_like_any_failed_item() {
    let runtime = runtime(json!([claims("verify", &["p", "bad"])])).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke("many", json!({"list": [1, 2]})).await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let results = envelope["output"]["result"].as_array().unwrap();
    for (at, one) in results.iter().enumerate() {
        let words = "invoke_failed: the invoked verify.1 failed: agent_failed: no";
        assert_eq!(one, &json!({"item_index": at, "ktsu_error": words}));
    }
    assert_eq!(results.len(), 2);
    holds(&store, &run);
    lab.close().await;
}

#[tokio::test]
async fn why_a_step_waits_is_said_down_to_what_its_commands_run() {
    let runtime = runtime(json!([claims("verify", &["silent"])])).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke("main", json!({})).await;
    let silent =
        |heard: &Heard| heard.path == "/invoke" && heard.json()["user_message"] == "silent";
    runtime.until(|all| all.iter().any(silent)).await;
    let why = async |path: &str, step: &str| -> Vec<String> {
        let path = format!("/runs/{run}{path}/trace?why_not={step}");
        let answer = lab.client.get(&path).await;
        let because = answer.json()["why_not"]["because"].clone();
        let because = because
            .as_array()
            .unwrap_or_else(|| panic!("{}", answer.text()));
        let words = |one: &Value| {
            format!(
                "{}: {}",
                one["step"].as_str().unwrap(),
                one["text"].as_str().unwrap()
            )
        };
        because.iter().map(words).collect()
    };
    let inner = "a/verify.0/v: it waits for its agent";
    let outer = ["a: it waits for the workflow a/verify.0", inner];
    assert_eq!(why("", "a").await, outer);
    let child = ["a/verify.0: it waits for one of its steps", inner];
    assert_eq!(why("", "a%2Fverify.0").await, child);
    assert_eq!(why("", "a%2Fverify.0%2Fv").await, [inner]);
    assert_eq!(why("/a/verify.0", "v").await, [inner]);
    lab.close().await;
}

#[tokio::test]
async fn a_field_of_what_a_command_ran_is_traced_by_either_name() {
    let runtime = runtime(json!([claims("verify", &["p", "q"])])).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke("main", json!({})).await;
    lab.client.ended(&run).await;
    let of = async |path: &str| {
        let answer = lab
            .client
            .get(&format!("/runs/{run}/trace?of={path}"))
            .await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        let origin = &answer.json()["origin"];
        let told = (origin["chain"].clone(), origin["deciders"].clone());
        assert!(told.0.is_array(), "{path}: {}", answer.text());
        told
    };
    let one = of("step.a.ktsu_invoked[1].said").await;
    assert_eq!(one, of("step.a.invoked[1].output.said").await);
    lab.close().await;
}

#[tokio::test]
async fn what_a_command_may_not_do_leaves_nothing_and_a_child_that_fails_is_named() {
    for (commands, code, committed) in [
        (
            json!([claim("secret", "x")]),
            "command_not_permitted",
            false,
        ),
        (
            json!([claim("undone", "x")]),
            "command_not_permitted",
            false,
        ),
        (
            json!([{"type": "invoke", "step": "plain", "input": {"claim": 3}}]),
            "invalid_params",
            false,
        ),
        (
            json!([claims("verify", &["a", "b", "c", "d"])]),
            "outcome_invalid",
            false,
        ),
        (
            json!([claims("verify", &["a", "bad"])]),
            "invoke_failed",
            true,
        ),
    ] {
        let runtime = runtime(commands).await;
        let store = MemoryStore::new();
        let lab = lab(&runtime, &store).await;
        let run = lab.client.invoke("main", json!({})).await;
        let envelope = lab.client.ended(&run).await;
        let steps = envelope["steps"].as_array().unwrap();
        let error = &steps.iter().find(|step| step["id"] == "a").unwrap()["error"];
        assert_eq!(error["code"], code, "{envelope:#}");
        let kinds = kinds(&frames(&store, &run), &["command.requested"]);
        assert_eq!(!kinds.is_empty(), committed, "{code}");
        if committed {
            let message = error["message"].as_str().unwrap();
            assert!(message.contains("verify.1"), "{message}");
            assert_eq!(envelope["error"]["step"], "a/verify.1/v", "where it began");
        }
        holds(&store, &run);
        lab.close().await;
    }
}

#[tokio::test]
async fn cut_after_any_frame_of_its_commands_a_run_comes_to_the_same_end_and_forks_do_too() {
    let commands = json!([claims("plain", &["p", "q", "r"]), claim("plain", "z")]);
    let runtime = runtime(commands).await;
    let original = MemoryStore::new();
    let first = lab(&runtime, &original).await;
    let run = first.client.invoke("main", json!({})).await;
    let whole = first.client.ended(&run).await;
    first.close().await;
    assert_eq!(whole["status"], "complete", "{whole:#}");
    let recorded = Recorded::read(&original, &run);
    // A restart has a frame of its own, so numbers differ behind it.
    let frames_of = |store: &MemoryStore| -> Vec<(String, String)> {
        let frames = frames(store, &run);
        let told = frames.iter();
        let told = told.map(|frame| (frame.scope.clone(), frame.event.kind().to_owned()));
        told.filter(|(_, kind)| kind != "run.continued").collect()
    };
    let wanted = frames_of(&original);
    let begin = wanted
        .iter()
        .position(|(_, kind)| kind == "agent.finished")
        .unwrap();
    for cut in begin + 1..recorded.records.len() {
        let mut store = MemoryStore::new();
        recorded.cut(cut).put(&mut store);
        let lab = lab(&runtime, &store).await;
        let envelope = lab.client.ended(&run).await;
        assert_eq!(envelope["output"], whole["output"], "cut at {cut}");
        assert_eq!(frames_of(&store), wanted, "cut at {cut}");
        let fork = json!({"at": cut, "go": true}).to_string();
        let answer = lab.client.post(&format!("/runs/{run}/fork"), fork).await;
        assert_eq!(answer.status, 201, "{}", answer.text());
        let forked = answer.json()["branch_id"].as_str().unwrap().to_owned();
        let envelope = lab.client.ended(&forked).await;
        assert_eq!(envelope["output"], whole["output"], "forked at {cut}");
        holds(&store, &forked);
        lab.close().await;
    }
}

#[tokio::test]
async fn a_recompute_asks_the_agents_of_children_again_and_runs_no_child() {
    let commands = json!([claims("verify", &["p", "q"])]);
    let runtime = runtime(commands).await;
    let store = MemoryStore::new();
    let lab = lab(&runtime, &store).await;
    let run = lab.client.invoke("main", json!({})).await;
    lab.client.ended(&run).await;
    let before = runtime.heard().len();
    let path = format!("/runs/{run}/recompute?wait=60");
    let verdict = lab.client.post(&path, "{}").await;
    assert!(verdict.status < 300, "{}", verdict.text());
    let heard = runtime.heard();
    let again = heard[before..].iter().filter(|one| one.path == "/invoke");
    let mut again: Vec<String> = again
        .map(|one| one.json()["agent_name"].as_str().unwrap().to_owned())
        .collect();
    again.sort();
    assert_eq!(again, ["checker", "checker", "judge"]);
    lab.close().await;
}

/// Killed as soon as some frame is seen; whatever it did by then counts, and nothing twice.
#[tokio::test(flavor = "multi_thread")]
async fn killed_between_a_command_and_its_children_each_child_runs_once() {
    let commands = json!([claims("plain", &["p", "q", "r"]), claim("plain", "z")]);
    let runtime = runtime(commands).await;
    let kit = kit();
    let start = |ledger: &std::path::Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args(["start", "orchestrator", "--json", "--port", "0", "--kit"])
            .arg(kit.dir.path());
        command.arg("--ledger").arg(ledger);
        command.args(["--runtime-url", &runtime.url]);
        command.env_clear().env("KTSU_LOG", "error");
        command.current_dir(kit.dir.path());
        Process::spawn(command)
    };
    let moments = [
        "agent.finished",
        "command.requested",
        "run.started",
        "command.completed",
    ];
    for round in 0..campaign(moments.len(), 20) {
        let dir = tempfile::tempdir().unwrap();
        let ledger = dir.path().join("ledger.db");
        let engine = start(&ledger);
        let run = engine.client().invoke("main", json!({})).await;
        let mut events = engine.client().events(&run, None).await;
        let moment = moments[round % moments.len()];
        while let Some(event) = events.next().await {
            let frame: Value = serde_json::from_str(&event.data).unwrap();
            let of_the_run = frame["type"] == "run.started" && frame["scope"] == "";
            if frame["type"] == moment && !of_the_run {
                break;
            }
        }
        engine.kill();
        let engine = start(&ledger);
        let envelope = engine.client().ended(&run).await;
        assert_eq!(envelope["output"]["second"], "q", "{moment}: {envelope:#}");
        engine.stop();
        let reader = SqliteReader::open(&ledger).unwrap();
        let frames = branch::frames(&reader, &StreamId::run(&run).unwrap()).unwrap();
        let mut begun = kinds(&frames, &["run.started"]);
        begun.retain(|one| one.contains("a/"));
        let names: Vec<String> = (0..4).map(|n| format!("run.started a/plain.{n}")).collect();
        assert_eq!(begun, names, "{moment}");
        let commands = kinds(&frames, &["command.requested", "command.completed"]);
        assert_eq!(commands.len(), 4, "{moment}: {commands:?}");
        if let Err(diverged) = replay(&frames, &mut Definitions::default()) {
            panic!("{moment}: {diverged}");
        }
        evidence::sound(&reader, moment);
    }
}
