//! Forks, overlays and resumptions, from outside: what is shared is shared, nothing is done twice,
//! and what a person says goes through the same doors as everything else.

use ktsu_ledger::appender::Options;
use ktsu_ledger::branch;
use ktsu_ledger::event::{AgentEvent, RunEvent, StepEvent};
use ktsu_ledger::store::{MemoryStore, Reader as _, SqliteReader};
use ktsu_ledger::verify::{self, verify};
use ktsu_ledger::{Event, Frame, StreamId};
use ktsu_projections::RunState;
use ktsu_projections::run::RunStatus;
use ktsu_workflow::replay::{Definitions, replay};
use serde_json::{Value, json};

use crate::evidence;
use crate::support::ledgers::Recorded;
use crate::support::scenarios::{self, Played, Scenario, TOKEN, agents, tools};
use crate::support::sink::{Heard, Reply};
use crate::support::{Client, KitDir, Lab, Sink, Within, stopped};

/// A sink whose models say what they always say. Nobody answers webhooks.
fn models_alone(sink: &Sink) {
    sink.forget();
    sink.follow(|heard| match agents::asks_a_model(heard) {
        true => match agents::model(heard) {
            Reply::After(_, status, text) => Reply::Now(status, text),
            reply => reply,
        },
        false => Reply::Never,
    });
}

async fn fork(client: &Client, run: &str, body: Value) -> String {
    let answer = client
        .post(&format!("/runs/{run}/fork"), body.to_string())
        .await;
    assert_eq!(answer.status, 201, "{}", answer.text());
    answer.json()["branch_id"].as_str().unwrap().to_owned()
}

fn effective(store: &MemoryStore, run: &str) -> Vec<Frame> {
    branch::frames(store, &StreamId::run(run).unwrap()).unwrap()
}

/// A model whose answer is shared is not asked the same again.
fn asked_once(shared: &[Frame], heard: &[Heard], told: &str) {
    let mut answered = Vec::new();
    for frame in shared {
        if let Event::Agent(AgentEvent::Response(answer)) = &frame.event {
            answered.push(answer.request);
        }
    }
    for frame in shared.iter().filter(|frame| answered.contains(&frame.seq)) {
        let Event::Agent(AgentEvent::Request(request)) = &frame.event else {
            continue;
        };
        let messages = request.messages.to_value();
        let same = |one: &&Heard| agents::asks_a_model(one) && one.json()["messages"] == messages;
        assert_eq!(
            heard.iter().filter(same).count(),
            0,
            "{told}: {messages} was asked again"
        );
    }
}

async fn fork_everywhere(scenario: &Scenario) {
    let sink = Sink::new().await;
    let original: Played = scenario.play(&sink).await;
    let frames = original.recorded.frames();
    let kit = scenario.kit();
    let kit = kit.load();
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let run = original.recorded.stream.name().to_owned();
    for position in 0..=frames.len() {
        let told = format!("{} forked at {position} of {}", scenario.name, frames.len());
        models_alone(&sink);
        let mut store = MemoryStore::new();
        original.recorded.put(&mut store);
        let clock = stopped(frames[frames.len() - 1].at);
        let options = Options::default();
        let within = Within::new(kit.clone(), store.clone(), options, &pairs, Some(clock)).await;
        let branch = fork(&within.client, &run, json!({"at": position, "go": true})).await;
        let envelope = within.client.ended(&branch).await;
        let status = envelope["status"].as_str().unwrap();
        assert!(
            ["complete", "failed"].contains(&status),
            "{told}: {envelope}"
        );
        let got = effective(&store, &branch);
        for (shared, original) in got.iter().zip(&frames).take(position) {
            assert_eq!(shared.hash, original.hash, "{told}");
        }
        let marker = &got[position];
        assert!(
            matches!(&marker.event, Event::Run(RunEvent::Branched(one)) if one.fork_position == position as u64)
        );
        assert_eq!(
            Recorded::read(&store, &run).records,
            original.recorded.records,
            "{told}"
        );
        let heard = sink.heard();
        let webhooks = heard
            .iter()
            .filter(|one| !agents::asks_a_model(one))
            .count();
        assert_eq!(webhooks, 0, "{told}: a webhook of a branch was sent");
        asked_once(&got[..position], &heard, &told);
        if let Err(diverged) = replay(&got, &mut Definitions::default()) {
            panic!("{told}: {diverged}");
        }
        let report = verify(&store, &verify::VerifyOptions::default(), &mut |_| {});
        assert_eq!(report.problems, [], "{told}");
        evidence::sound(&store, &told);
    }
}

macro_rules! forked {
    ($($test:ident: $name:literal;)*) => {$(
        #[tokio::test]
        async fn $test() {
            let all = scenarios::all();
            let scenario = all.iter().find(|one| one.name == $name).expect("the scenario");
            fork_everywhere(scenario).await;
        }
    )*};
}

forked! {
    transforms_are_forked_everywhere: "transforms";
    conditions_are_forked_everywhere: "conditions";
    a_failure_is_forked_everywhere: "failure";
    children_are_forked_everywhere: "children-execute";
    a_failing_child_is_forked_everywhere: "failing-child";
    secrets_are_forked_everywhere: "secrets";
    a_dead_webhook_is_forked_everywhere: "dead";
    a_plain_agent_is_forked_everywhere: "agent-plain";
    a_reflecting_agent_is_forked_everywhere: "agent-reflect";
    a_repaired_draft_is_forked_everywhere: "agent-repair";
    a_fan_out_is_forked_everywhere: "agent-fan-out";
    an_agent_in_a_child_is_forked_everywhere: "agent-child";
}

/// Forks a run with tools at every frame. What waits in a branch is decided as it was, or approved;
/// nothing is sent to a server whose calls last, and no result that is shared is asked for again.
async fn acting_is_forked_everywhere(name: &str) {
    let all = tools::all();
    let acting = all.iter().find(|one| one.name == name);
    let acting = acting.expect("the scenario");
    let folder = tempfile::tempdir().unwrap();
    let ledger = folder.path().join("ledger.db");
    let (stage, run) = acting.play(&ledger).await;
    let client = stage.of("eva");
    let reader = SqliteReader::open(&ledger).unwrap();
    let original = Recorded::read(&reader, &run);
    let frames = original.frames();
    for position in 1..=frames.len() {
        let told = format!("{name} forked at {position} of {}", frames.len());
        stage.sink.forget();
        stage.sink.open("slow");
        let branch = fork(&client, &run, json!({"at": position, "go": true})).await;
        stage
            .attend(&branch, |tool| match tool {
                "late" | "soft" => Vec::new(),
                "two" => vec![("ann", "approved"), ("bob", "approved")],
                _ => vec![("ann", "approved")],
            })
            .await;
        let heard = stage.sink.heard();
        let called: Vec<String> = heard.iter().filter_map(tools::tool_of).collect();
        let lasts = called.iter().any(|tool| tool.ends_with("write"));
        assert!(!lasts, "{told}: a branch changed the world: {called:?}");
        let stream: StreamId = format!("branch:{branch}").parse().unwrap();
        let got = branch::frames(&reader, &stream).unwrap();
        let (shared, own) = got.split_at(position);
        for (ours, original) in shared.iter().zip(&frames) {
            assert_eq!(ours.hash, original.hash, "{told}");
        }
        let ended = RunState::fold(&got).unwrap();
        let kinds: Vec<&str> = own.iter().map(|frame| frame.event.kind()).collect();
        assert_eq!(ended.status(), RunStatus::Complete, "{told}: {kinds:?}");
        // A call goes out once for each frame that says so.
        let keys: Vec<&str> = own.iter().filter_map(key_of).collect();
        assert_eq!(called.len(), keys.len(), "{told}: {called:?}");
        let sent = heard.iter().filter(|one| tools::tool_of(one).is_some());
        for one in sent {
            let key = one.json()["params"]["_meta"]["ktsu/idempotency-key"].clone();
            let key = key.as_str().unwrap();
            assert!(keys.contains(&key), "{told}: {key} of another run");
            assert!(!shared.iter().any(|it| key_of(it) == Some(key)), "{told}");
        }
        asked_again(shared, own, &told);
        if let Err(diverged) = replay(&got, &mut Definitions::default()) {
            panic!("{told}: {diverged}");
        }
    }
    assert_eq!(Recorded::read(&reader, &run).records, original.records);
    let report = verify(&reader, &verify::VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.problems, [], "{name}");
    evidence::holds(&reader, name);
    stage.lab.close().await;
}

fn key_of(frame: &Frame) -> Option<&str> {
    match &frame.event {
        Event::Agent(AgentEvent::ToolCalled(called)) => Some(&called.idempotency_key),
        _ => None,
    }
}

/// No call of a branch rests on an approval from before the fork that had not been used, and none
/// asks for a result that is shared.
fn asked_again(shared: &[Frame], own: &[Frame], told: &str) {
    let used = |request: u64| {
        shared.iter().any(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::ToolCalled(it)) if it.approval == Some(request))
        })
    };
    let returned = |response: u64, call: u32| {
        shared.iter().any(|frame| {
            matches!(&frame.event, Event::Agent(AgentEvent::ToolReturned(it))
                if (it.response, it.call) == (response, call))
        })
    };
    for frame in own {
        let Event::Agent(AgentEvent::ToolCalled(called)) = &frame.event else {
            continue;
        };
        let again = returned(called.response, called.call);
        assert!(!again, "{told}: a shared result was asked for again");
        if let Some(approval) = called.approval.filter(|it| *it < own[0].seq) {
            assert!(used(approval), "{told}: an approval of the parent was used");
        }
    }
}

macro_rules! acting {
    ($($test:ident: $name:literal;)*) => {$(
        #[tokio::test]
        async fn $test() {
            acting_is_forked_everywhere($name).await;
        }
    )*};
}

acting! {
    calls_are_forked_everywhere: "tool-calls";
    calls_sent_again_are_forked_everywhere: "tool-again";
    a_doubt_is_forked_everywhere: "tool-doubt-again";
    a_doubt_that_was_settled_is_forked_everywhere: "tool-doubt-happened";
    an_approval_is_forked_everywhere: "tool-approved";
    a_rejection_is_forked_everywhere: "tool-recovers";
    a_quorum_is_forked_everywhere: "tool-quorum";
    two_gates_are_forked_everywhere: "tool-two-gates";
}

const NUMBERS: &str = r#"
params:
  schema:
    type: object
    required: [numbers]
    additionalProperties: false
    properties:
      numbers: {type: array, items: {type: integer}}
      least: {type: integer, default: 2}
pipeline:
  - id: large
    transform:
      inputs: [{from: params.numbers}]
      ops: [{filter: {expr: "@ >= `2`"}}]
    output:
      schema:
        type: object
        required: [result]
        properties: {result: {type: array, items: {type: integer}}}
  - id: sum
    transform:
      inputs: [{from: "{sum: sum(step.large.result), least: params.least}"}]
      ops: []
output:
  map:
    sum: "{{ step.sum.result.sum }}"
    least: "{{ step.sum.result.least }}"
    large: "{{ step.large.result }}"
"#;

async fn numbers() -> (Lab, String) {
    let kit = KitDir::new(&[("root", NUMBERS)]);
    let lab = Lab::new(&kit, &[]).await;
    let run = lab
        .client
        .invoke("root", json!({"numbers": [1, 2, 3]}))
        .await;
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["output"]["sum"], 5, "{envelope}");
    (lab, run)
}

#[tokio::test]
async fn a_branch_waits_until_a_person_lets_it_continue() {
    let (lab, run) = numbers().await;
    let branch = fork(&lab.client, &run, json!({"before": "sum"})).await;
    let waiting = lab
        .client
        .get(&format!("/runs/{branch}/envelope"))
        .await
        .json();
    assert_eq!(waiting["status"], "waiting");
    assert_eq!(waiting["branch"]["parent_run_id"], run.as_str());
    let row = lab.client.get("/runs?kind=branch").await.json();
    assert_eq!(row["runs"][0]["status"], "waiting");
    let said = lab
        .client
        .post(&format!("/runs/{branch}/resume"), "{}")
        .await;
    assert_eq!(said.status, 202, "{}", said.text());
    let ended = lab.client.ended(&branch).await;
    assert_eq!(ended["status"], "complete");
    assert_eq!(ended["output"]["sum"], 5);
    let again = lab
        .client
        .post(&format!("/runs/{branch}/resume"), "{}")
        .await;
    assert_eq!(
        (again.status, again.json()["code"].clone()),
        (409, json!("not_resumable"))
    );
}

#[tokio::test]
async fn values_set_by_a_fork_hold_from_there_on_and_nowhere_else() {
    let (lab, run) = numbers().await;
    let before = lab
        .client
        .get(&format!("/runs/{run}/envelope"))
        .await
        .text();
    let set = json!({"step.large.output.result": [10, 20], "params.least": 7});
    let branch = fork(
        &lab.client,
        &run,
        json!({"before": "sum", "set": set, "go": true}),
    )
    .await;
    let ended = lab.client.ended(&branch).await;
    assert_eq!(
        ended["output"],
        json!({"sum": 30, "least": 7, "large": [10, 20]})
    );
    assert_eq!(ended["params"]["least"], 7);
    assert_eq!(ended["steps"][0]["computed"]["result"], json!([2, 3]));
    assert_eq!(
        lab.client
            .get(&format!("/runs/{run}/envelope"))
            .await
            .text(),
        before
    );
    let inner = fork(&lab.client, &branch, json!({"before": "sum", "go": true})).await;
    let ended = lab.client.ended(&inner).await;
    assert_eq!(
        ended["output"]["sum"], 30,
        "a fork of a fork starts from what that has"
    );
}

#[tokio::test]
async fn a_fork_at_nothing_is_a_run_of_its_own() {
    let (lab, run) = numbers().await;
    let set = json!({"params.numbers": [5, 6]});
    let branch = fork(&lab.client, &run, json!({"at": 0, "set": set, "go": true})).await;
    let ended = lab.client.ended(&branch).await;
    assert_eq!(ended["output"]["sum"], 11, "{ended}");
    let frames = lab.client.frames(&branch).await;
    assert_eq!(frames[0]["type"], "branch.created");
    assert_eq!(frames[0]["seq"], 0);
}

#[tokio::test]
async fn what_cannot_be_forked_is_refused_and_writes_nothing() {
    let (lab, run) = numbers().await;
    let refused = [
        (json!({"at": 1000}), 422, "fork_refused"),
        (json!({"at": -1}), 422, "invalid_request"),
        (json!({"at": 1, "before": "sum"}), 422, "invalid_request"),
        (json!({"before": "nobody"}), 404, "step_not_found"),
        (json!({"nonsense": true}), 422, "invalid_request"),
        (
            json!({"set": {"params.numbers": "x"}}),
            422,
            "invalid_params",
        ),
        (json!({"set": {"params.unknown": 1}}), 422, "invalid_params"),
        (
            json!({"set": {"step.large.output.result": ["x"]}}),
            422,
            "overlay_refused",
        ),
        (
            json!({"set": {"step.large.output.ktsu_flags": []}}),
            422,
            "overlay_refused",
        ),
        (
            json!({"at": 2, "set": {"step.sum.output.result": 1}}),
            409,
            "step_not_complete",
        ),
        (json!({"set": {"nobody.knows": 1}}), 422, "invalid_request"),
        (json!({"definition": {"format": 1}}), 422, "fork_refused"),
        (json!({"effects": "maybe"}), 422, "invalid_request"),
    ];
    for (body, status, code) in refused {
        let answer = lab
            .client
            .post(&format!("/runs/{run}/fork"), body.to_string())
            .await;
        let told = format!("{body}: {}", answer.text());
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (status, json!(code)),
            "{told}"
        );
    }
    let part = json!({"definition": {"format": 1, "root": "r", "workflows": {"r": {"name": 5}}}});
    let path = format!("/runs/{run}/fork");
    let refused = lab.client.post(&path, part.to_string()).await.json();
    let words = "/definition/workflows/r/name: expected string, got integer";
    assert!(
        refused["detail"].as_str().unwrap().ends_with(words),
        "{refused}"
    );
    assert_eq!(refused["errors"][0]["path"], "/definition/workflows/r/name");
    assert_eq!(refused["errors"][0]["rule"], "type");
    let unknown = lab.client.post("/runs/run_nobody/fork", "{}").await;
    assert_eq!(unknown.status, 404);
    let branches = lab.client.get("/runs?kind=branch").await.json();
    assert_eq!(branches["runs"], json!([]));
}

#[tokio::test]
async fn an_overlay_is_what_later_steps_see_and_recomputing_does_not_touch_it() {
    let (lab, run) = numbers().await;
    let set = json!({"step": "large", "field": "result", "value": [40, 2], "reason": "counted"});
    let said = lab
        .client
        .post(&format!("/runs/{run}/overlay"), set.to_string())
        .await;
    assert_eq!(said.status, 200, "{}", said.text());
    let envelope = lab
        .client
        .get(&format!("/runs/{run}/envelope"))
        .await
        .json();
    assert_eq!(envelope["steps"][0]["output"]["result"], json!([40, 2]));
    assert_eq!(envelope["steps"][0]["overlay"], json!({"result": [40, 2]}));
    // What was computed from it stays as it was; what only shows it follows.
    let output = json!({"sum": 5, "least": 2, "large": [40, 2]});
    assert_eq!(envelope["output"], output);
    let from = json!({"from": "sum"});
    lab.client
        .post(&format!("/runs/{run}/resume"), from.to_string())
        .await;
    let ended = lab.client.ended(&run).await;
    assert_eq!(
        ended["output"],
        json!({"sum": 42, "least": 2, "large": [40, 2]})
    );
    assert_eq!(ended["steps"][1]["attempt"], 2);
    // The step itself begins again: computed anew, and the overlay stays over it.
    let from = json!({"from": "large", "reason": "once more"});
    lab.client
        .post(&format!("/runs/{run}/resume"), from.to_string())
        .await;
    let ended = lab.client.ended(&run).await;
    assert_eq!(ended["steps"][0]["computed"]["result"], json!([2, 3]));
    assert_eq!(ended["output"]["sum"], 42);
    let frames = lab.client.frames(&run).await;
    let word = frames
        .iter()
        .find(|frame| frame["type"] == "overlay.set")
        .unwrap();
    assert_eq!(word["actor"], "principal:local");
    assert_eq!(word["data"]["by"], json!({"auth": "none", "id": "local"}));
    assert_eq!(word["data"]["reason"], "counted");
}

#[tokio::test]
async fn the_layers_of_a_step_show_what_it_computed_what_people_set_and_where_that_does_not_fit() {
    let (lab, run) = numbers().await;
    let state = |run: String| {
        let client = &lab.client;
        async move { client.get(&format!("/runs/{run}/state")).await.json() }
    };
    let before = state(run.clone()).await;
    assert_eq!(
        before["steps"]["large"],
        json!({"computed": {"result": [2, 3]}, "effective": {"result": [2, 3]}})
    );
    let set = json!({"step": "large", "field": "result", "value": [40, 2], "reason": "counted"});
    let last = before["last"].to_string();
    let known = [("if-match", last.as_str())];
    let path = format!("/runs/{run}/overlay");
    let said = lab
        .client
        .send("PATCH", &path, &known, set.to_string())
        .await;
    assert_eq!(said.status, 200, "{}", said.text());
    let layers = json!({"computed": {"result": [2, 3]}, "overlay": {"result": [40, 2]},
        "effective": {"result": [40, 2]}});
    let after = state(run.clone()).await;
    assert_eq!(after["steps"]["large"], layers);
    assert_eq!(after["last"], said.json()["last"]);
    // In a branch whose schema no longer allows the value, it is kept, and named.
    let (was, is) = (
        "{result: {type: array, items: {type: integer}}}",
        "{result: {maxItems: 1}}",
    );
    let changed = NUMBERS.replace(was, is);
    assert_ne!(changed, NUMBERS);
    let kit = KitDir::new(&[("root", changed.as_str())]).load();
    let definition = kit.workflows["root"].definition.json.to_value();
    let body = json!({"at_frame": after["last"], "definition": definition});
    let branch = fork(&lab.client, &run, body).await;
    let branched = &state(branch).await["steps"]["large"];
    assert_eq!(branched["overlay"], layers["overlay"]);
    assert_eq!(branched["effective"], layers["effective"]);
    let conflict = &branched["conflicts"][0];
    assert_eq!(
        (&conflict["path"], &conflict["rule"]),
        (&json!("/result"), &json!("maxItems"))
    );
    let unknown = lab.client.get("/runs/run_none/state").await;
    assert_eq!(unknown.status, 404);
}

/// Outputs with and without a map, of a run, a branch and an inline child.
#[tokio::test]
async fn the_output_of_an_envelope_follows_overlays_and_diff_and_trace_agree_with_it() {
    let child = "
visibility: sub-workflow
pipeline: [{id: inner, transform: {inputs: [{from: '`[1]`'}], ops: []}}]
";
    let plain = "
pipeline:
  - {id: call, workflow: ./child.workflow.yaml}
  - {id: last, depends_on: [call], transform: {inputs: [{from: '[`2`, `3`]'}], ops: []}}
";
    let mapped = format!("{plain}output: {{map: {{at: 'now {{{{ step.last.result }}}}'}}}}\n");
    let kit = KitDir::new(&[("child", child), ("plain", plain), ("mapped", &mapped)]);
    let lab = Lab::new(&kit, &[]).await;
    let client = &lab.client;
    let overlay = async |run: &str, step: &str| {
        let set = json!({"step": step, "field": "result", "value": [9], "reason": "counted"});
        let path = format!("/runs/{run}/overlay");
        let said = client.post(&path, set.to_string()).await;
        assert_eq!(said.status, 200, "{}", said.text());
    };
    let envelope = async |run: &str| client.get(&format!("/runs/{run}/envelope")).await.json();
    for (workflow, before, after) in [
        ("plain", json!({"result": [2, 3]}), json!({"result": [9]})),
        (
            "mapped",
            json!({"at": "now [2,3]"}),
            json!({"at": "now [9]"}),
        ),
    ] {
        let run = client.invoke(workflow, json!({})).await;
        assert_eq!(client.ended(&run).await["output"], before);
        let recorded = client.frames(&run).await;
        let branch = fork(client, &run, json!({})).await;
        overlay(&branch, "last").await;
        let shown = envelope(&branch).await;
        assert_eq!(shown["output"], after, "{workflow}: {shown:#}");
        assert_eq!(shown["steps"][1]["output"], json!({"result": [9]}));
        assert_eq!(envelope(&run).await["output"], before, "{workflow}");
        // The frames hold what they held.
        let frames = client.frames(&branch).await;
        assert_eq!(frames[..recorded.len()], recorded, "{workflow}");
        let told = client
            .get(&format!("/diff?a={run}&b={branch}"))
            .await
            .json();
        let changes = told["envelope"].as_array().unwrap().iter();
        let changes: Vec<&Value> = changes
            .filter(|one| one["path"].as_str().unwrap().starts_with("/output"))
            .collect();
        assert!(!changes.is_empty(), "{workflow}: {told:#}");
        let traced = client
            .get(&format!("/runs/{branch}/trace?of=output"))
            .await
            .json();
        assert_eq!(traced["origin"]["value"], after, "{workflow}: {traced:#}");

        // In an inline child, too. What its parent took over is what its parent goes on with.
        overlay(&format!("{run}%2Fcall"), "inner").await;
        let shown = envelope(&format!("{run}%2Fcall")).await;
        assert_eq!(shown["output"], json!({"result": [9]}), "{shown:#}");
        let shown = envelope(&run).await;
        assert_eq!(shown["steps"][0]["output"], json!({"result": [1]}));
        assert_eq!(shown["output"], before, "{workflow}");
    }
    lab.close().await;
}

#[tokio::test]
async fn equal_branches_do_not_differ_by_their_names() {
    let (lab, run) = numbers().await;
    for body in [json!({}), json!({"at": 3, "go": true})] {
        let (one, two) = (
            fork(&lab.client, &run, body.clone()).await,
            fork(&lab.client, &run, body.clone()).await,
        );
        for branch in [&one, &two] {
            if body.get("go").is_some() {
                lab.client.ended(branch).await;
            }
        }
        let told = lab.client.get(&format!("/diff?a={one}&b={two}")).await;
        let told = told.json();
        assert_eq!(told["same"], true, "{body}: {told:#}");
    }
}

#[tokio::test]
async fn an_overlay_passes_the_air_lock_or_writes_nothing() {
    let (lab, run) = numbers().await;
    let frames = lab.client.frames(&run).await.len();
    let overlay = |step: &str, field: &str, value: Value| json!({"step": step, "field": field, "value": value, "reason": "a test"});
    let refused = [
        (
            overlay("large", "result", json!(["x"])),
            422,
            "overlay_refused",
        ),
        (
            overlay("large", "ktsu_flags", json!([])),
            422,
            "overlay_refused",
        ),
        (
            overlay("nobody", "result", json!([])),
            404,
            "step_not_found",
        ),
        (
            json!({"step": "large", "field": "result", "value": []}),
            422,
            "invalid_request",
        ),
    ];
    for (body, status, code) in refused {
        let answer = lab
            .client
            .post(&format!("/runs/{run}/overlay"), body.to_string())
            .await;
        assert_eq!(
            (answer.status, answer.json()["code"].clone()),
            (status, json!(code)),
            "{body}"
        );
    }
    let body = overlay("large", "result", json!([1])).to_string();
    let path = format!("/runs/{run}/overlay");
    let stale = [("if-match", "0")];
    let answer = lab.client.send("POST", &path, &stale, body.clone()).await;
    assert_eq!(
        (answer.status, answer.json()["code"].clone()),
        (409, json!("stale_revision"))
    );
    assert_eq!(
        lab.client.frames(&run).await.len(),
        frames,
        "a refusal writes nothing"
    );
    let last = (frames - 1).to_string();
    let known = [("if-match", last.as_str())];
    let answer = lab.client.send("POST", &path, &known, body.clone()).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    let answer = lab.client.send("POST", &path, &known, body).await;
    assert_eq!(answer.status, 409, "the same revision serves once");
}

#[tokio::test]
async fn of_many_who_write_on_one_revision_one_is_heard() {
    let (lab, run) = numbers().await;
    let last = (lab.client.frames(&run).await.len() - 1).to_string();
    let path = format!("/runs/{run}/overlay");
    let mut asked = Vec::new();
    for number in 0..20 {
        let body = json!({"step": "large", "field": "result", "value": [number], "reason": "race"});
        let (client, path, last) = (lab.client.clone(), path.clone(), last.clone());
        asked.push(tokio::spawn(async move {
            let header = [("if-match", last.as_str())];
            client
                .send("POST", &path, &header, body.to_string())
                .await
                .status
        }));
    }
    let mut statuses = Vec::new();
    for one in asked {
        statuses.push(one.await.unwrap());
    }
    statuses.sort_unstable();
    assert_eq!(statuses[0], 200);
    assert!(
        statuses[1..].iter().all(|status| *status == 409),
        "{statuses:?}"
    );
}

const FAILS_ONCE: &str = r#"
env: [{name: SINK}]
pipeline:
  - id: first
    webhook: {url: "{{ env.SINK }}/first"}
  - id: second
    depends_on: [first]
    webhook: {url: "{{ env.SINK }}/second"}
  - id: third
    depends_on: [second]
    webhook: {url: "{{ env.SINK }}/third"}
"#;

#[tokio::test]
async fn a_failed_run_continues_from_the_step_that_failed() {
    let sink = Sink::new().await;
    sink.follow(|heard| match heard.path.as_str() {
        "/second" => Reply::Now(500, String::new()),
        _ => Reply::Now(200, String::new()),
    });
    let kit = KitDir::new(&[("root", FAILS_ONCE)]);
    let lab = Lab::new(&kit, &[("SINK", sink.url.as_str())]).await;
    let run = lab.client.invoke("root", json!({})).await;
    assert_eq!(lab.client.ended(&run).await["status"], "failed");
    let path = format!("/runs/{run}/resume");
    let other = lab
        .client
        .post(&path, json!({"from": "third"}).to_string())
        .await;
    assert_eq!(other.json()["code"], "not_resumable", "{}", other.text());
    let nothing = lab.client.post(&path, "{}").await;
    assert_eq!(nothing.json()["code"], "not_resumable");
    sink.forget();
    sink.follow(|_| Reply::Now(200, String::new()));
    let said = lab
        .client
        .post(&path, json!({"from": "second"}).to_string())
        .await;
    assert_eq!(said.status, 202, "{}", said.text());
    let ended = lab.client.ended(&run).await;
    assert_eq!(ended["status"], "complete", "{ended}");
    assert_eq!(ended["steps"][1]["attempt"], 2);
    let heard: Vec<String> = sink.heard().into_iter().map(|one| one.path).collect();
    assert_eq!(
        heard,
        ["/second", "/third"],
        "what is complete is not sent again"
    );
    let frames = lab.client.frames(&run).await;
    let ids: Vec<&Value> = frames
        .iter()
        .filter(|frame| frame["type"] == "webhook.sent" && frame["data"]["step"] == "second")
        .map(|frame| &frame["data"]["delivery_id"])
        .collect();
    assert_ne!(ids[0], ids[1], "another attempt is another delivery");
}

#[tokio::test]
async fn a_branch_continues_with_another_definition_and_keeps_what_has_ended() {
    let (lab, run) = numbers().await;
    let changed = NUMBERS.replace("sum(step.large.result)", "length(step.large.result)");
    let kit = KitDir::new(&[("root", changed.as_str())]).load();
    let definition = kit.workflows["root"].definition.json.to_value();
    let body = json!({"before": "sum", "definition": definition, "go": true});
    let branch = fork(&lab.client, &run, body).await;
    let ended = lab.client.ended(&branch).await;
    assert_eq!(ended["output"]["sum"], 2, "{ended}");
    assert_eq!(ended["steps"][0]["attempt"], 1);
}

#[tokio::test]
async fn effects_of_a_branch_are_made_only_if_asked_for() {
    let sink = Sink::new().await;
    sink.follow(|_| Reply::Now(200, String::new()));
    let kit = KitDir::new(&[("root", FAILS_ONCE)]);
    let lab = Lab::new(&kit, &[("SINK", sink.url.as_str())]).await;
    let run = lab.client.invoke("root", json!({})).await;
    lab.client.ended(&run).await;
    sink.forget();
    let silent = fork(&lab.client, &run, json!({"before": "second", "go": true})).await;
    let ended = lab.client.ended(&silent).await;
    assert_eq!(ended["status"], "complete");
    assert_eq!(
        ended["steps"][2]["output"],
        json!({"suppressed": true, "reason": "webhooks_suppressed"})
    );
    assert_eq!(sink.heard().len(), 0);
    let body = json!({"before": "third", "go": true, "effects": "execute"});
    let loud = fork(&lab.client, &run, body).await;
    assert_eq!(lab.client.ended(&loud).await["status"], "complete");
    assert_eq!(sink.heard().len(), 1);
}

/// A resumed run that is cut anywhere after the word goes on to the same end.
#[tokio::test]
async fn a_resumed_run_that_is_cut_ends_the_same() {
    let kit = KitDir::new(&[("root", NUMBERS)]);
    let store = MemoryStore::new();
    let options = Options::default;
    let within = Within::new(kit.load(), store.clone(), options(), &[], None).await;
    let run = within
        .client
        .invoke("root", json!({"numbers": [1, 2, 3]}))
        .await;
    within.client.ended(&run).await;
    let set = json!({"step": "large", "field": "result", "value": [9], "reason": "counted"});
    within
        .client
        .post(&format!("/runs/{run}/overlay"), set.to_string())
        .await;
    let from = json!({"from": "large"}).to_string();
    within
        .client
        .post(&format!("/runs/{run}/resume"), from)
        .await;
    let wanted = within.client.ended(&run).await["output"].clone();
    assert_eq!(wanted["sum"], 9);
    let recorded = Recorded::read(&store, &run);
    let frames = recorded.frames();
    let resumed = |frame: &Frame| matches!(frame.event, Event::Run(RunEvent::Resumed(_)));
    let word = frames.iter().position(resumed).unwrap();
    let resets = frames
        .iter()
        .filter(|frame| matches!(frame.event, Event::Step(StepEvent::Reset(_))));
    assert_eq!(resets.count(), 2);
    replay(&frames, &mut Definitions::default()).unwrap();
    for cut in word + 1..frames.len() {
        let mut store = MemoryStore::new();
        recorded.cut(cut).put(&mut store);
        let within = Within::new(kit.load(), store.clone(), options(), &[], None).await;
        let ended = within.client.ended(&run).await;
        assert_eq!(ended["output"], wanted, "cut after {cut}");
        let got = Recorded::read(&store, &run).frames();
        replay(&got, &mut Definitions::default()).unwrap();
    }
}

#[tokio::test]
async fn a_hundred_forks_of_ten_megabytes_take_less_than_one() {
    let steps: String = (0..12)
        .map(|number| {
            format!(
                "  - id: copy{number}\n    transform:\n      inputs: [{{from: \"params.rows\"}}]\n      ops: [{{map: {{expr: \"{{n: '{number}', row: @}}\"}}}}]\n"
            )
        })
        .collect();
    let workflow = format!(
        "params:\n  schema:\n    type: object\n    properties: {{rows: {{type: array}}}}\npipeline:\n{steps}"
    );
    let kit = KitDir::new(&[("root", workflow.as_str())]);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("ledger.db");
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let rows: Vec<String> = (0..9_000).map(|row| format!("{row:0>90}")).collect();
    let run = lab.client.invoke("root", json!({ "rows": rows })).await;
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
    let frames = lab.client.frames(&run).await.len();
    lab.close().await;
    let size = || std::fs::metadata(&path).unwrap().len();
    let before = size();
    assert!(before > 10_000_000, "{before}");
    let lab = Lab::on_file(&path, &kit, &[]).await;
    let mut branches = Vec::new();
    for number in 0..100 {
        let position = 1 + number % (frames - 1);
        branches.push(fork(&lab.client, &run, json!({"at": position})).await);
    }
    lab.close().await;
    let grown = size() - before;
    assert!(grown < 1_000_000, "{grown} bytes");
    let reader = SqliteReader::open(&path).unwrap();
    let stream = StreamId::run(&branches[40]).unwrap();
    assert!(reader.tail(&stream).unwrap().is_some());
    let report = ktsu_ledger::verify_file(&path, &verify::VerifyOptions::default(), &mut |_| {});
    assert_eq!(report.unwrap().problems, []);
}
