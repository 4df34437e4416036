//! The decision rules a run recorded decide it for ever, and what differs between them.

use std::collections::BTreeMap;

use ktsu_ledger::appender::Options;
use ktsu_ledger::event::RunEvent;
use ktsu_ledger::store::MemoryStore;
use ktsu_ledger::{Event, Frame, Hash, Record, StreamId, branch};
use ktsu_workflow::replay::{Definitions, ReplayError, replay};
use ktsu_workflow::rules::RULES;
use serde_json::{Value, json};

use crate::golden::goldens;
use crate::support::ledgers::Recorded;
use crate::support::model::{KEY, Model, Said};
use crate::support::scenarios::{self, TOKEN, agents};
use crate::support::sink::Reply;
use crate::support::{Client, KitDir, Lab, Sink, Within, model, stopped};

/// The same frames as if they had been recorded under these rules, in a chain that is whole.
fn under(recorded: &Recorded, rules: u32) -> Recorded {
    let mut changed = recorded.clone();
    let mut prev = Hash::ZERO;
    for record in &mut changed.records {
        let (open, _) = record.body.rsplit_once(",\"prev\":\"").unwrap();
        let mut body = format!("{open},\"prev\":\"{prev}\"}}");
        for before in 1..=9 {
            let said = format!("\"rules\":{before},\"version\"");
            body = body.replace(&said, &format!("\"rules\":{rules},\"version\""));
        }
        prev = Hash::of(body.as_bytes());
        *record = Record {
            seq: record.seq,
            hash: prev,
            body,
        };
    }
    changed
}

/// The numbers that the frames of a run name.
fn numbers(frames: &[Frame]) -> Vec<u32> {
    let number = |frame: &Frame| match &frame.event {
        Event::Run(RunEvent::Branched(branch)) => Some(branch.rules),
        event => event.created().map(|created| created.rules),
    };
    frames.iter().filter_map(number).collect()
}

fn golden(name: &str) -> Recorded {
    let found = goldens().into_iter().find(|(golden, _)| golden == name);
    found.unwrap_or_else(|| panic!("no golden {name}")).1
}

fn stored(recorded: &Recorded) -> MemoryStore {
    let mut store = MemoryStore::new();
    recorded.put(&mut store);
    store
}

fn effective(store: &MemoryStore, run: &str) -> Vec<Frame> {
    branch::frames(store, &StreamId::run(run).unwrap()).unwrap()
}

async fn post(client: &Client, path: &str, body: Value) -> (u16, Value) {
    let answer = client.post(path, body.to_string()).await;
    (answer.status, answer.json())
}

/// An engine with the kit of a golden of scenarios, on a store that has that golden.
async fn engine_of(name: &str, store: &MemoryStore, frames: &[Frame], sink: &Sink) -> Within {
    let all = scenarios::all();
    let scenario = all.iter().find(|one| one.name == name).unwrap();
    let pairs = [("SINK", sink.url.as_str()), ("TOKEN", TOKEN)];
    let clock = stopped(frames.last().unwrap().at);
    let kit = scenario.kit().load();
    Within::new(kit, store.clone(), Options::default(), &pairs, Some(clock)).await
}

#[tokio::test]
async fn a_new_run_records_the_newest_rules() {
    let kit = KitDir::new(&[("w", "pipeline:\n  - {id: t, transform: {ops: []}}\n")]);
    let lab = Lab::new(&kit, &[]).await;
    let run = lab.client.invoke("w", json!({})).await;
    lab.client.ended(&run).await;
    let frames = lab.client.frames(&run).await;
    assert_eq!(frames[0]["data"]["rules"], 7, "{}", frames[0]);
}

/// Whatever a person does to a golden of the first rules, what follows is decided by those.
#[tokio::test]
async fn a_run_under_rules_1_is_forked_changed_resumed_and_recomputed_under_them() {
    let sink = Sink::new().await;
    sink.follow(|heard| match agents::asks_a_model(heard) {
        true => agents::model(heard),
        false => Reply::Now(200, r#"{"received":true}"#.to_owned()),
    });
    for name in [
        "transforms",
        "conditions",
        "children-execute",
        "agent-plain",
    ] {
        let recorded = golden(&format!("v1-{name}"));
        let frames = recorded.frames();
        let (store, run) = (stored(&recorded), recorded.stream.name());
        let within = engine_of(name, &store, &frames, &sink).await;
        let client = &within.client;
        let mut streams = Vec::new();
        for position in [0, 1, frames.len() / 2, frames.len()] {
            // Once without reading what is shared, and once with all of it.
            for go in [false, true] {
                let body = json!({"at": position, "go": go});
                let (status, told) = post(client, &format!("/runs/{run}/fork"), body).await;
                assert_eq!(status, 201, "{name} at {position}: {told}");
                let branch = told["branch_id"].as_str().unwrap().to_owned();
                if go {
                    client.ended(&branch).await;
                }
                // A branch of a branch keeps them, too.
                let path = format!("/runs/{branch}/fork");
                let (status, told) = post(client, &path, json!({"go": go})).await;
                assert_eq!(status, 201, "{name} at {position}: {told}");
                streams.extend([branch, told["branch_id"].as_str().unwrap().to_owned()]);
            }
        }
        let view = client.get(&format!("/runs/{run}")).await.json();
        let first = view["steps"].as_array().unwrap().iter();
        let first = first
            .map(|step| step["id"].as_str().unwrap())
            .next()
            .unwrap();
        let body = json!({"from": first});
        let (status, told) = post(client, &format!("/runs/{run}/resume"), body).await;
        assert_eq!(status, 202, "{name}: {told}");
        client.ended(run).await;
        streams.push(run.to_owned());
        if name == "agent-plain" {
            let path = format!("/runs/{run}/recompute?wait=60");
            let (status, told) = post(client, &path, json!({})).await;
            assert_eq!(status, 200, "{told}");
            streams.push(told["recompute_id"].as_str().unwrap().to_owned());
        }
        for stream in streams {
            let frames = effective(&store, &stream);
            let numbers = numbers(&frames);
            assert!(numbers.iter().all(|one| *one == 1), "{stream}: {numbers:?}");
            if let Err(stopped) = replay(&frames, &mut Definitions::default()) {
                panic!("{name}, {stream}: {stopped}");
            }
        }
    }
}

#[tokio::test]
async fn a_golden_of_rules_1_that_was_cut_continues_to_the_same_frames() {
    let sink = Sink::new().await;
    for name in ["transforms"] {
        let recorded = golden(&format!("v1-{name}"));
        let frames = recorded.frames();
        let run = recorded.stream.name();
        for cut in 1..frames.len() {
            let store = stored(&recorded.cut(cut));
            let within = engine_of(name, &store, &frames[..cut], &sink).await;
            let recovered = within.recovered;
            assert_eq!((recovered.unfinished, recovered.other_rules), (1, 0));
            within.client.ended(run).await;
            let got = effective(&store, run);
            replay(&got, &mut Definitions::default()).unwrap();
            let kinds = |frames: &[Frame]| -> BTreeMap<String, usize> {
                let mut kinds = BTreeMap::new();
                for frame in frames {
                    // Where it was taken up again shows in a frame of its own.
                    if frame.event.kind() != "run.continued" {
                        *kinds.entry(frame.event.kind().to_owned()).or_default() += 1;
                    }
                }
                kinds
            };
            assert_eq!(kinds(&got), kinds(&frames), "{name} cut after {cut}");
        }
    }
}

#[tokio::test]
async fn an_unfinished_run_of_rules_no_one_knows_is_listed_and_left_alone() {
    let sink = Sink::new().await;
    let recorded = golden("v1-transforms");
    for rules in [8, 9] {
        let newer = under(&recorded, rules).cut(2);
        let frames = newer.frames();
        assert_eq!(numbers(&frames), [rules]);
        let (store, run) = (stored(&newer), newer.stream.name());
        let within = engine_of("transforms", &store, &frames, &sink).await;
        let recovered = within.recovered;
        assert_eq!((recovered.unfinished, recovered.other_rules), (1, 1));
        assert_eq!((recovered.unreadable, recovered.left), (0, 0));
        let client = &within.client;
        let listed = client.get("/runs").await.json();
        assert_eq!(listed["runs"][0]["run_id"], run, "{listed}");
        assert_eq!(listed["runs"][0]["status"], "running", "{listed}");
        let words = format!("decision rules {rules}, while this version of ktsu has rules 1 to 7");
        for (path, body) in [
            ("fork", json!({})),
            ("fork", json!({"at": 1})),
            ("fork", json!({"at": 0, "go": true})),
            ("fork", json!({"go": true, "reason": "to see"})),
            ("resume", json!({"from": "sorted"})),
            (
                "overlay",
                json!({"step": "a", "field": "result", "value": [], "reason": "no"}),
            ),
            ("recompute", json!({})),
        ] {
            let (status, told) = post(client, &format!("/runs/{run}/{path}"), body.clone()).await;
            let refused = match path {
                "recompute" => (422, "not_recomputable"),
                _ => (409, "not_resumable"),
            };
            let code = told["code"].as_str().unwrap();
            assert_eq!((status, code), refused, "{path} {body}: {told}");
            let detail = told["message"].as_str().unwrap();
            assert!(detail.contains(&words), "{path} {body}: {told}");
        }
        assert_eq!(effective(&store, run).len(), 2, "something was decided");
        match replay(&frames, &mut Definitions::default()) {
            Err(ReplayError::Rules { recorded, ours, .. }) => {
                assert_eq!((recorded, ours), (rules, RULES))
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A run begun under these rules: the first frame of one, recorded as if it were of them.
pub(crate) async fn decided(
    kit: &KitDir,
    workflow: &str,
    body: Value,
    rules: u32,
) -> (Value, Vec<Frame>) {
    let lab = Lab::new(kit, &[KEY]).await;
    let run = lab.client.invoke(workflow, body).await;
    lab.client.ended(&run).await;
    let read = {
        let run = run.clone();
        let readers = lab.engine.orchestrator.readers();
        readers.with(move |reader| Ok::<_, ktsu_ledger::StoreError>(Recorded::read(reader, &run)))
    };
    let begun = under(&read.await.unwrap(), rules).cut(1);
    let store = stored(&begun);
    let clock = stopped(begun.frames()[0].at);
    let options = Options::default();
    let within = Within::new(kit.load(), store.clone(), options, &[KEY], Some(clock)).await;
    assert_eq!(within.recovered.unfinished, 1);
    let envelope = within.client.ended(&run).await;
    let frames = effective(&store, &run);
    assert_eq!(numbers(&frames), [rules]);
    replay(&frames, &mut Definitions::default()).unwrap();
    (envelope, frames)
}

const PARENT: &str = r#"
params:
  schema:
    type: object
    properties: {limit: {type: integer}, word: {type: string}}
pipeline:
  - id: call
    workflow: ./child.workflow.yaml
    params:
      limit: "{{ params.limit }}"
      nullable: "{{ params.limit }}"
      any: "{{ params.word }}"
      deep: {limit: "{{ params.limit }}", word: "x{{ params.word }}"}
output:
  map: {got: "{{ step.call }}"}
"#;

const CHILD: &str = r#"
visibility: sub-workflow
params:
  schema:
    type: object
    required: [nullable]
    properties:
      limit: {type: integer, default: 7}
      nullable: {type: [integer, "null"]}
      any: {}
      deep: {type: object, properties: {limit: {type: integer, default: 8}, word: {type: string}}}
pipeline: [{id: t, transform: {ops: []}}]
output:
  map: {params: "{{ params }}"}
"#;

#[tokio::test]
async fn a_null_that_a_template_gives_a_child_is_absence_where_its_schema_does_not_allow_null() {
    let kit = KitDir::new(&[("w", PARENT), ("child", CHILD)]);
    let given =
        json!({"limit": 7, "nullable": null, "any": null, "deep": {"limit": 8, "word": "x"}});
    let (envelope, frames) = decided(&kit, "w", json!({}), 2).await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    assert_eq!(envelope["output"]["got"]["params"], given);
    // A default that took the place of a null came from nobody.
    let calls = |frame: &&Frame| frame.event.kind() == "step.started" && frame.scope.is_empty();
    let started = frames.iter().find(calls).unwrap().event.data();
    let from = |at: &str| started["input"][at]["value"]["from"].clone();
    assert_eq!(from("/params/limit"), json!([]), "{started:#}");
    assert_eq!(from("/params/nullable"), json!([0]), "{started:#}");
    // What is there is handed on as it is.
    let whole = json!({"limit": 3, "nullable": 3, "any": "w", "deep": {"limit": 3, "word": "xw"}});
    let (envelope, _) = decided(&kit, "w", json!({"limit": 3, "word": "w"}), 2).await;
    assert_eq!(envelope["output"]["got"]["params"], whole, "{envelope:#}");
    // Under rules 1 it was a value.
    let (envelope, _) = decided(&kit, "w", json!({}), 1).await;
    assert_eq!(envelope["error"]["code"], "invalid_params", "{envelope:#}");
    let message = envelope["error"]["message"].as_str().unwrap();
    assert!(
        message.contains("missing required field: nullable"),
        "{message}"
    );
}

const UNFIT: &str = r#"
params: {schema: {type: object, properties: {v: {default: x}}}}
pipeline:
  - {id: call, workflow: ./child.workflow.yaml, params: {limit: "{{ params.v }}", nullable: 1}}
"#;

const UNFIT_OUTPUT: &str = r#"
params: {schema: {type: object, properties: {v: {default: x}}}}
pipeline: [{id: t, transform: {ops: []}}]
output:
  map: {sum: "{{ params.v }}"}
  schema: {type: object, properties: {sum: {type: integer}}}
"#;

#[tokio::test]
async fn a_failure_of_params_or_of_an_output_names_its_place_as_its_rules_do() {
    let kit = KitDir::new(&[("w", UNFIT), ("output", UNFIT_OUTPUT), ("child", CHILD)]);
    for (workflow, rules, words) in [
        ("w", 1, "of its child: expected integer, got string"),
        (
            "w",
            2,
            "of its child: expected integer, got string at /limit",
        ),
        ("output", 1, ": expected integer, got string at \"/sum\""),
        ("output", 2, ": expected integer, got string at /sum"),
    ] {
        let (envelope, _) = decided(&kit, workflow, json!({}), rules).await;
        let message = envelope["error"]["message"].as_str().unwrap();
        assert!(message.ends_with(words), "rules {rules}: {message}");
    }
}

#[tokio::test]
async fn a_null_in_the_body_of_a_request_is_no_template() {
    let kit = KitDir::new(&[("w", PARENT), ("child", CHILD)]);
    let lab = Lab::new(&kit, &[]).await;
    let (status, told) = post(&lab.client, "/invoke/w", json!({"limit": null})).await;
    assert_eq!(
        (status, &told["code"]),
        (422, &json!("invalid_params")),
        "{told}"
    );
}

const ASKED: &str = r#"
name: asked
version: 1.0.0
model: std
prompt: {system: You say it back.}
params:
  schema:
    type: object
    properties:
      limit: {type: integer, default: 7}
      one: {enum: [1, null]}
      text: {type: string, default: none}
      any: {}
output: {schema: {type: object}}
"#;

#[tokio::test]
async fn an_agent_takes_nulls_as_a_child_does() {
    let model = Model::scripted(|call| Said::json(&json!({"got": call.user()}))).await;
    let workflow = "
params: {schema: {type: object, properties: {n: {type: integer}}}}
pipeline:
  - id: ask
    agent: ./agents/asked.agent.yaml
    params: {limit: '{{ params.n }}', one: '{{ params.n }}', text: '{{ params.n }}', any: '{{ params.n }}'}
";
    let kit = model::kit(&model, &[("w", workflow)]).with("agents/asked.agent.yaml", ASKED);
    for (rules, given) in [
        (1, json!({"limit": 7, "text": "none"})),
        (
            2,
            json!({"limit": 7, "one": null, "text": "none", "any": null}),
        ),
    ] {
        let (envelope, _) = decided(&kit, "w", json!({}), rules).await;
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        let got = envelope["steps"][0]["output"]["got"].as_str().unwrap();
        let got: Value = serde_json::from_str(got).unwrap();
        assert_eq!(got, given, "rules {rules}");
    }
}

#[tokio::test]
async fn text_made_of_whole_numbers_has_no_exponent_and_under_rules_1_what_it_had() {
    let workflow = "
params: {schema: {type: object}}
pipeline: [{id: t, transform: {ops: []}}]
output:
  map: {text: 'a {{ params.large }} b {{ params.zero }} c {{ params.list }}', large: '{{ params.large }}'}
";
    let kit = KitDir::new(&[("w", workflow)]);
    let body = r#"{"large": 1e16, "zero": -0, "list": [2e16]}"#;
    let body: Value = serde_json::from_str(body).unwrap();
    let (envelope, frames) = decided(&kit, "w", body.clone(), 2).await;
    let text = envelope["output"]["text"].as_str().unwrap();
    assert_eq!(text, "a 10000000000000000 b 0 c [20000000000000000]");
    let (envelope, _) = decided(&kit, "w", body, 1).await;
    let before = envelope["output"]["text"].as_str().unwrap();
    assert_ne!(text, before);
    // Where the text came from is worked out by the same rules.
    let story = ktsu_history::provenance::TracedRun::of(&frames).unwrap();
    let told = ktsu_history::provenance::answer(&story, "", "output.text").unwrap();
    assert_eq!(told.value, text);
}

#[tokio::test]
async fn a_reply_of_the_secure_parser_without_a_field_it_promises_breaks_its_schema() {
    let promised = json!({
        "ktsu_injection_attempt": false, "ktsu_low_quality": false,
        "ktsu_confidence": 0.9, "ktsu_flags": [],
    });
    let workflow = "
params: {schema: {type: object, properties: {mails: {type: array}}}}
pipeline:
  - id: parse
    agent: ktsu/secure-parser@1.0.0
    model: {group: std}
    params: {source_field: the mail itself, extract: {intent: {type: string}}}
";
    for name in promised.as_object().unwrap().keys() {
        let mut said = promised.clone();
        said.as_object_mut().unwrap().remove(name);
        said["intent"] = json!("billing");
        let model = Model::scripted(move |_| Said::json(&said)).await;
        let kit = model::kit(&model, &[("w", workflow)]);
        let (envelope, _) = decided(&kit, "w", json!({}), 2).await;
        let error = &envelope["steps"][0]["error"];
        assert_eq!(error["code"], "schema_violation", "{name}: {envelope:#}");
        let message = error["message"].as_str().unwrap();
        assert!(
            message.contains(&format!("missing required field: {name}")),
            "{message}"
        );
        assert_eq!(envelope["steps"][0]["raw_output"]["intent"], "billing");
        let (envelope, _) = decided(&kit, "w", json!({}), 1).await;
        assert_eq!(envelope["status"], "complete", "{name} under rules 1");
    }
}

#[tokio::test]
async fn a_field_that_the_secure_parser_promises_is_what_its_schema_says() {
    let promised = json!({
        "ktsu_injection_attempt": false, "ktsu_low_quality": false,
        "ktsu_confidence": 0.9, "ktsu_flags": [],
    });
    let workflow = "
pipeline:
  - id: parse
    agent: ktsu/secure-parser@1.0.0
    model: {group: std}
    params: {source_field: the mail itself, extract: {intent: {type: string}}}
";
    for (name, said, words) in [
        (
            "ktsu_injection_attempt",
            json!(null),
            "expected boolean, got null at /ktsu_injection_attempt",
        ),
        (
            "ktsu_low_quality",
            json!(null),
            "expected boolean, got null at /ktsu_low_quality",
        ),
        (
            "ktsu_confidence",
            json!("high"),
            "expected number, got string at /ktsu_confidence",
        ),
        (
            "ktsu_confidence",
            json!(7),
            "expected at most 1 at /ktsu_confidence",
        ),
        (
            "ktsu_flags",
            json!("none"),
            "expected array, got string at /ktsu_flags",
        ),
    ] {
        let mut output = promised.clone();
        output[name] = said;
        let model = Model::scripted(move |_| Said::json(&output)).await;
        let kit = model::kit(&model, &[("w", workflow)]);
        let (envelope, _) = decided(&kit, "w", json!({}), 2).await;
        let error = &envelope["steps"][0]["error"];
        assert_eq!(error["code"], "schema_violation", "{name}: {envelope:#}");
        let message = error["message"].as_str().unwrap();
        assert!(message.contains(words), "{message}");
        let (envelope, _) = decided(&kit, "w", json!({}), 1).await;
        assert_eq!(envelope["status"], "complete", "{name} under rules 1");
    }
}

const HANDED: &str = r#"
params: {schema: {type: object, properties: {o: {type: object}, big: {type: string}}}}
pipeline:
  - id: call
    workflow: ./child.workflow.yaml
    params: {obj: "{{ params.o }}", mixed: {o: "{{ params.o }}", big: "{{ params.big }}"}}
output:
  map: {got: "{{ step.call }}"}
"#;

const HANDED_TO: &str = r##"
visibility: sub-workflow
params:
  schema:
    type: object
    properties:
      obj: {$ref: "#/$defs/o"}
      mixed: {type: object, properties: {o: {$ref: "#/$defs/o"}}}
    $defs: {o: {type: object, properties: {x: {type: integer, default: 5}, y: {type: integer}}}}
pipeline: [{id: t, transform: {ops: []}}]
output:
  map: {params: "{{ params }}", x: "{{ params.obj.x }}"}
"##;

#[tokio::test]
async fn a_param_of_a_child_has_the_defaults_within_it_when_it_is_handed_on_whole() {
    let kit = KitDir::new(&[("w", HANDED), ("child", HANDED_TO)]);
    let body = json!({"o": {"y": 1}, "big": "words"});
    let (envelope, frames) = decided(&kit, "w", body.clone(), 2).await;
    let filled = json!({"x": 5, "y": 1});
    let got = json!({"params": {"obj": filled, "mixed": {"o": filled, "big": "words"}}, "x": 5});
    assert_eq!(envelope["output"]["got"], got, "{envelope:#}");
    let mut started = frames.iter().map(|frame| frame.event.data());
    let input = started.find_map(|data| data.get("input").cloned()).unwrap();
    assert_eq!(
        input["/params/obj"]["value"],
        json!({"from": [0], "value": filled})
    );
    let big = json!({"frame": 0, "path": "/params/big"});
    assert_eq!(
        input["/params/mixed/big"]["ref"], big,
        "what nothing was filled into"
    );
    let story = ktsu_history::provenance::TracedRun::of(&frames).unwrap();
    let told = ktsu_history::provenance::answer(&story, "", "output.got.x").unwrap();
    assert_eq!(told.value, 5);
    // What lacks nothing is handed on as the place where it stands.
    let (_, frames) = decided(&kit, "w", json!({"o": {"x": 1}, "big": "b"}), 2).await;
    let mut started = frames.iter().map(|frame| frame.event.data());
    let input = started.find_map(|data| data.get("input").cloned()).unwrap();
    assert_eq!(
        input["/params/obj"]["ref"],
        json!({"frame": 0, "path": "/params/o"})
    );
    let (envelope, _) = decided(&kit, "w", body, 1).await;
    assert_eq!(envelope["output"]["got"]["x"], Value::Null, "rules 1");
}

const CONFIDENT: &str = "
name: asked
version: 1.0.0
model: std
prompt: {system: You answer.}
output:
  schema:
    type: object
    allOf: [{required: [ktsu_confidence, a], properties: {ktsu_confidence: {type: number}, a: {type: integer}}}]
";

#[tokio::test]
async fn a_reserved_field_that_a_part_of_the_schema_requires_is_not_missing() {
    let model = Model::scripted(|_| Said::json(&json!({"a": 1, "ktsu_confidence": 0.9}))).await;
    let workflow = "
pipeline:
  - {id: ask, agent: ./agents/asked.agent.yaml, confidence_threshold: 0.5}
";
    let kit = model::kit(&model, &[("w", workflow)]).with("agents/asked.agent.yaml", CONFIDENT);
    let (envelope, _) = decided(&kit, "w", json!({}), 2).await;
    assert_eq!(
        envelope["steps"][0]["output"],
        json!({"a": 1}),
        "{envelope:#}"
    );
    let (envelope, _) = decided(&kit, "w", json!({}), 1).await;
    assert_eq!(
        envelope["steps"][0]["error"]["code"], "schema_violation",
        "rules 1"
    );
}
