//! The acceptance cases that need an engine, and the invariants of seed 000 they stand for.

use serde_json::{Value, json};

use crate::support::sink::Reply;
use crate::support::{KitDir, Lab, Sink};

/// The case of a name.
fn case(name: &str) -> Value {
    let all: Vec<Value> = serde_json::from_str(include_str!("../cases/ktsu-cases.json")).unwrap();
    let mut all = all.into_iter();
    all.find(|case| case["name"] == name)
        .unwrap_or_else(|| panic!("there is no case {name:?}"))
}

/// A step of an envelope.
fn step<'a>(envelope: &'a Value, id: &str) -> &'a Value {
    let steps = envelope["steps"].as_array().unwrap();
    steps
        .iter()
        .find(|step| step["id"] == id)
        .unwrap_or_else(|| panic!("no step {id} in {envelope:#}"))
}

/// YAML is a superset of JSON, so a value of a case can stand in a file as it is.
fn yaml(value: &Value) -> String {
    value.to_string()
}

/// Invariant 31, decision S7.
#[tokio::test]
async fn webhooks_inside_a_child_fire_only_if_both_sides_agree() {
    let case = case("webhooks inside a child fire only on double opt-in");
    let matrix = case["input"]["matrix"].as_array().unwrap();
    for (row, sides) in matrix.iter().enumerate() {
        let sink = Sink::new().await;
        let side = |name: &str| match sides[name].as_str() {
            Some(word) => format!("webhooks: {word}"),
            None => String::new(),
        };
        let pipeline = yaml(&case["input"]["child_pipeline"]).replace("$SINK", &sink.url);
        let child = format!(
            "visibility: sub-workflow\n{}\npipeline: {pipeline}\n",
            side("child")
        );
        let parent = format!(
            "pipeline:\n  - id: call\n    workflow: ./child.workflow.yaml\n    {}\n",
            side("parent")
        );
        let kit = KitDir::new(&[("child", &child), ("parent", &parent)]);
        let lab = Lab::new(&kit, &[]).await;
        let envelope = lab.client.run("parent", json!({})).await;
        let run = envelope["run_id"].as_str().unwrap();
        let inner = lab
            .client
            .get(&format!("/runs/{run}%2Fcall/envelope"))
            .await
            .json();
        assert_eq!(envelope["status"], case["expect"]["run"], "{sides}");
        assert_eq!(
            json!(sink.heard().len()),
            case["expect"]["calls"][row],
            "{sides}"
        );
        assert_eq!(
            step(&inner, "h")["status"],
            case["expect"]["child_step"][row],
            "{sides}: {inner:#}"
        );
        let suppressed = lab.client.frames(run).await;
        let sent = suppressed
            .iter()
            .filter(|frame| frame["type"] == "webhook.sent");
        assert_eq!(json!(sent.count()), case["expect"]["calls"][row]);
    }
}

/// The half the cases leave out: the parent agrees, the child does not. `validate` warns, and the
/// run suppresses (invariant 31, decision S7).
#[tokio::test]
async fn the_parents_half_alone_is_a_warning_and_sends_nothing() {
    for side in ["", "webhooks: suppress"] {
        let sink = Sink::new().await;
        let child = format!(
            "visibility: sub-workflow\n{side}\npipeline:\n  \
             - {{id: h, webhook: {{url: \"{}\"}}}}\n",
            sink.url
        );
        let parent =
            "pipeline:\n  - {id: call, workflow: ./child.workflow.yaml, webhooks: execute}\n";
        let kit = KitDir::new(&[("child", &child), ("parent", parent)]);
        let warnings = &kit.load().warnings.faults;
        assert!(
            warnings.iter().any(|one| one.message.contains("webhook")),
            "{side:?} is not warned of"
        );
        let lab = Lab::new(&kit, &[]).await;
        let envelope = lab.client.run("parent", json!({})).await;
        assert_eq!(envelope["status"], "complete");
        let run = envelope["run_id"].as_str().unwrap();
        let inner = lab
            .client
            .get(&format!("/runs/{run}/call/envelope"))
            .await
            .json();
        assert_eq!(step(&inner, "h")["status"], "skipped");
        assert_eq!(step(&inner, "h")["skip_reason"], "webhooks_suppressed");
        assert_eq!(sink.heard(), []);
    }
}

/// Suppression is inherited (decision S7): two children that agree with each other send nothing
/// below a root step that does not.
#[tokio::test]
async fn suppression_is_inherited_by_children_of_children() {
    for (outer, expected) in [("execute", 1), ("suppress", 0)] {
        let sink = Sink::new().await;
        let leaf = format!(
            "visibility: sub-workflow\nwebhooks: execute\npipeline:\n  \
             - {{id: h, webhook: {{url: \"{}\"}}}}\n",
            sink.url
        );
        let middle = "visibility: sub-workflow\nwebhooks: execute\npipeline:\n  \
                      - {id: b, workflow: ./leaf.workflow.yaml, webhooks: execute}\n";
        let root = format!(
            "pipeline:\n  - {{id: a, workflow: ./middle.workflow.yaml, webhooks: {outer}}}\n"
        );
        let kit = KitDir::new(&[("leaf", &leaf), ("middle", middle), ("root", &root)]);
        let lab = Lab::new(&kit, &[]).await;
        let envelope = lab.client.run("root", json!({})).await;
        assert_eq!(envelope["status"], "complete");
        assert_eq!(sink.heard().len(), expected, "{outer}");
    }
}

/// Invariant 14.
#[tokio::test]
async fn a_missing_param_is_refused_and_no_run_exists() {
    let case = case("missing required param is refused and no run exists");
    let workflow = format!(
        "params: {{schema: {}}}\npipeline: []\n",
        yaml(&case["input"]["schema"])
    );
    let kit = KitDir::new(&[("w", &workflow)]);
    let lab = Lab::new(&kit, &[]).await;
    let answer = lab
        .client
        .post("/invoke/w", case["input"]["body"].to_string())
        .await;
    assert_eq!(json!(answer.status), case["expect"]["http_status"]);
    let named = case["expect"]["error_contains"].as_str().unwrap();
    assert!(answer.text().contains(named), "{}", answer.text());
    let runs = lab.client.get("/runs").await.json();
    assert_eq!(
        json!(runs["runs"].as_array().unwrap().len()),
        case["expect"]["runs_created"]
    );
    // Valid: the run can be read the moment it is acknowledged, with its defaults.
    let run = lab.client.invoke("w", json!({"msg": "a"})).await;
    let envelope = lab.client.get(&format!("/runs/{run}/envelope")).await;
    assert_eq!(envelope.status, 200);
    assert_eq!(envelope.json()["params"], json!({"msg": "a", "n": 3}));
}

/// The group `auth`, with the values it names.
#[tokio::test]
async fn the_secret_of_an_invocation_is_resolved_first() {
    let case = case("templated invoke secret is resolved before comparing");
    let input = &case["input"];
    let workflow = format!(
        "env: {}\ninvoke: {{auth: {}}}\npipeline: []\n",
        yaml(&input["workflow_env"]),
        yaml(&input["auth"])
    );
    let kit = KitDir::new(&[("w", &workflow)]);
    let hook = input["process_env"]["HOOK"].as_str().unwrap();
    let lab = Lab::new(&kit, &[("HOOK", hook)]).await;
    let mut got = Vec::new();
    for headers in input["requests"].as_array().unwrap() {
        let headers = headers.as_object().unwrap().iter();
        let headers: Vec<_> = headers
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        got.push(
            lab.client
                .send("POST", "/invoke/w", &headers, "{}")
                .await
                .status,
        );
    }
    assert_eq!(json!(got), case["expect"]["http_status"]);
}

/// Invariant 25, decision T3: a condition is judged by the engine; what fails to be true is
/// skipped, nothing is sent, and the run completes.
#[tokio::test]
async fn a_condition_decides_whether_a_webhook_is_sent() {
    let sink = Sink::new().await;
    let kit = KitDir::new(&[(
        "w",
        r#"
env: [{name: SINK}]
params: {schema: {type: object, properties: {go: {type: boolean}}}}
pipeline:
  - id: call
    condition: "params.go == `true`"
    webhook: {url: "{{ env.SINK }}/call"}
  - id: after
    depends_on: [call]
    webhook: {url: "{{ env.SINK }}/after", body: {call: "{{ step.call }}"}}
"#,
    )]);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    for (body, calls, status) in [
        (json!({}), 0, "skipped"),
        (json!({"go": false}), 0, "skipped"),
        (json!({"go": true}), 1, "complete"),
    ] {
        sink.forget();
        let envelope = lab.client.run("w", body.clone()).await;
        assert_eq!(envelope["status"], "complete", "{body}");
        assert_eq!(step(&envelope, "call")["status"], status, "{body}");
        let heard = sink.heard();
        assert_eq!(
            heard.iter().filter(|one| one.path == "/call").count(),
            calls,
            "{body}"
        );
        // Decision S3: a step skipped by its own condition satisfies its dependants.
        assert_eq!(step(&envelope, "after")["status"], "complete");
        let after = heard
            .iter()
            .find(|one| one.path == "/after")
            .unwrap()
            .json();
        if calls == 0 {
            assert_eq!(after["call"]["skipped"], true);
            assert_eq!(step(&envelope, "call")["skip_reason"], "condition_false");
        } else {
            assert_eq!(after["call"], json!({"sent": true, "status_code": 200}));
        }
        assert_eq!(envelope["totals"]["llm_calls"], 0);
    }
}

/// Invariant 11, decision S4: a failure is told, what needs it is skipped, what is under way
/// elsewhere is stopped, and a late answer changes nothing.
#[tokio::test]
async fn a_failing_step_ends_the_run_and_says_why() {
    let sink = Sink::scripted(|heard| match heard.path.as_str() {
        "/a" => Reply::When("a".to_owned(), 500),
        _ => Reply::When("slow".to_owned(), 200),
    })
    .await;
    let kit = KitDir::new(&[(
        "w",
        r#"
env: [{name: SINK}]
pipeline:
  - {id: a, webhook: {url: "{{ env.SINK }}/a"}}
  - {id: b, depends_on: [a], webhook: {url: "{{ env.SINK }}/b"}}
  - {id: slow, webhook: {url: "{{ env.SINK }}/slow"}}
  - {id: c, depends_on: [slow], webhook: {url: "{{ env.SINK }}/c"}}
"#,
    )]);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    let run = lab.client.invoke("w", json!({})).await;
    sink.until(|heard| heard.len() == 2).await;
    sink.open("a");
    let envelope = lab.client.ended(&run).await;
    assert_eq!(envelope["status"], "failed");
    assert_eq!(envelope["error"]["code"], "webhook_status");
    assert_eq!(envelope["error"]["step"], "a");
    let message = step(&envelope, "a")["error"]["message"].as_str().unwrap();
    assert!(message.contains("returned status 500"), "{message}");
    assert_eq!(step(&envelope, "slow")["status"], "failed");
    assert_eq!(step(&envelope, "slow")["error"]["code"], "stopped");
    for skipped in ["b", "c"] {
        assert_eq!(step(&envelope, skipped)["status"], "skipped");
        assert_eq!(step(&envelope, skipped)["skip_reason"], "run_failed");
    }
    let before = lab.client.frames(&run).await;
    sink.open("slow");
    // Another run passes the same engine, and the late answer has left no frame.
    let next = lab.client.invoke("w", json!({})).await;
    lab.client.ended(&next).await;
    assert_eq!(lab.client.frames(&run).await, before);
    let heard = sink.heard();
    let calls = |path: &str| heard.iter().filter(|one| one.path == path).count();
    assert_eq!((calls("/b"), calls("/c")), (0, 0));
    assert_eq!(
        calls("/a"),
        2,
        "once a run: nothing is sent again unless the file says so"
    );
    // What needs to stand together does: the failure is one turn, its end the run's last frame.
    let kinds: Vec<&str> = before
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(kinds.last(), Some(&"run.failed"));
}

/// Invariant 29: children are inline, readable, and counted once.
#[tokio::test]
async fn children_of_children_are_read_by_path() {
    let sink = Sink::new().await;
    let leaf = r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink, n], properties: {sink: {type: string}, n: {}}}}
pipeline:
  - {id: call, webhook: {url: "{{ params.sink }}/leaf", body: {n: "{{ params.n }}"}}}
"#;
    let middle = r#"
visibility: sub-workflow
webhooks: execute
params: {schema: {type: object, required: [sink], properties: {sink: {type: string}}}}
pipeline:
  - id: b
    workflow: ./leaf.workflow.yaml
    webhooks: execute
    params: {sink: "{{ params.sink }}", n: 2}
output: {map: {from_leaf: "{{ step.b }}"}}
"#;
    let root = r#"
env: [{name: SINK}]
pipeline:
  - id: a
    workflow: ./middle.workflow.yaml
    webhooks: execute
    params: {sink: "{{ env.SINK }}"}
"#;
    let kit = KitDir::new(&[("leaf", leaf), ("middle", middle), ("root", root)]);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    let envelope = lab.client.run("root", json!({})).await;
    let run = envelope["run_id"].as_str().unwrap();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let sent = json!({"sent": true, "status_code": 200});
    assert_eq!(envelope["output"], json!({"from_leaf": sent}));
    for path in ["a", "a%2Fb", "a/b"] {
        let child = lab
            .client
            .get(&format!("/runs/{run}/{path}/envelope"))
            .await;
        let child = child.json();
        assert_eq!(child["status"], "complete", "{path}");
        let spelled = path.replace("%2F", "/");
        assert_eq!(child["run_id"], json!(format!("{run}/{spelled}")));
    }
    let leaf = lab
        .client
        .get(&format!("/runs/{run}/a/b/envelope"))
        .await
        .json();
    assert_eq!(leaf["params"]["n"], 2);
    assert_eq!(leaf["steps"][0]["output"], sent);
    assert_eq!(sink.heard().len(), 1);
    // One stream, one order: every frame of a child is one of the run.
    let all = lab.client.frames(run).await;
    for scope in ["a", "a%2Fb"] {
        let part = lab
            .client
            .get(&format!("/runs/{run}%2F{scope}/frames"))
            .await
            .json();
        for frame in part["frames"].as_array().unwrap() {
            assert!(all.contains(frame));
        }
    }
}

/// Invariant 32: params are the one way in; defaults count, unknown ones do not pass.
#[tokio::test]
async fn a_child_sees_its_defaults_and_nothing_else() {
    let child = r#"
visibility: sub-workflow
params:
  schema:
    type: object
    required: [x]
    additionalProperties: false
    properties: {x: {type: [string, integer]}, y: {type: string, default: d}}
pipeline:
  - {id: see, transform: {inputs: [{from: params}], ops: [{map: {expr: "@"}}]}}
"#;
    let parent = r#"
params: {schema: {type: object, properties: {x: {}, z: {}}}}
pipeline:
  - {id: call, workflow: ./child.workflow.yaml, params: {x: "{{ params.x }}"}}
"#;
    let kit = KitDir::new(&[("child", child), ("parent", parent)]);
    let lab = Lab::new(&kit, &[]).await;
    let envelope = lab
        .client
        .run("parent", json!({"x": "given", "z": "hidden"}))
        .await;
    assert_eq!(
        envelope["output"],
        json!({"result": [{"x": "given", "y": "d"}]})
    );
    // What is required and null is missing: the run fails before any step of the child.
    for body in [json!({}), json!({"x": null}), json!({"x": ["wrong type"]})] {
        let envelope = lab.client.run("parent", body.clone()).await;
        assert_eq!(envelope["status"], "failed", "{body}");
        assert_eq!(envelope["error"]["code"], "invalid_params", "{body}");
        let frames = lab
            .client
            .frames(envelope["run_id"].as_str().unwrap())
            .await;
        assert!(frames.iter().all(|frame| frame["scope"] == ""), "{body}");
    }
    // An extra param where none is allowed is found before anything runs.
    let extra =
        "pipeline:\n  - {id: call, workflow: ./child.workflow.yaml, params: {x: a, q: 1}}\n";
    let kit = KitDir::new(&[("child", child), ("parent", extra)]);
    assert!(ktsu_kit::load(kit.dir.path()).is_err());
    // A required one that is not given at all, too.
    let none = "pipeline:\n  - {id: call, workflow: ./child.workflow.yaml, params: {y: a}}\n";
    let kit = KitDir::new(&[("child", child), ("parent", none)]);
    assert!(ktsu_kit::load(kit.dir.path()).is_err());
}

/// Invariant 33, decisions T1 and T5: one rule for values everywhere.
#[tokio::test]
async fn values_keep_their_types_on_the_way_to_children_and_webhooks() {
    let sink = Sink::new().await;
    let child = r#"
visibility: sub-workflow
params: {schema: {type: object, properties: {a: {}, b: {}, c: {}, d: {}, e: {}, f: {}, g: {}}}}
pipeline:
  - {id: see, transform: {inputs: [{from: params}], ops: [{map: {expr: "@"}}]}}
"#;
    let values = r#"{a: plain, b: "{{ params.n }}", c: "n={{ params.n }}", d: "{{ step.s.result[0] }}", e: "{{ env.R }}", f: "env:R", g: "{{ params.nope }}"}"#;
    let parent = format!(
        r#"
env: [{{name: R, default: eu}}, {{name: SINK}}]
params: {{schema: {{type: object, properties: {{n: {{type: integer}}, o: {{}}, nope: {{}}}}}}}}
pipeline:
  - {{id: s, transform: {{inputs: [{{from: params.o}}], ops: [{{map: {{expr: "@"}}}}]}}}}
  - {{id: call, workflow: ./child.workflow.yaml, params: {values}}}
  - id: tell
    webhook:
      url: "{{{{ env.SINK }}}}/tell?n={{{{ params.n }}}}"
      body:
        same: {values}
        literal: {{int: 5, float: 0.5, big: 12345678901234567890, yes: true, none: null, list: [1, "{{{{ params.n }}}}", {{deep: "x{{{{ params.n }}}}y"}}]}}
        text: "o={{{{ params.o }}}} t={{{{ step.s.result[0].flag }}}} m={{{{ params.nope }}}}."
"#
    );
    let kit = KitDir::new(&[("child", child), ("parent", &parent)]);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    let object = json!({"k": [1, 2.5], "flag": false});
    let envelope = lab
        .client
        .run("parent", json!({"n": 12345678, "o": object}))
        .await;
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let seen = json!({
        "a": "plain", "b": 12345678, "c": "n=12345678", "d": object, "e": "eu", "f": "env:R",
        "g": null,
    });
    assert_eq!(step(&envelope, "call")["output"], json!({"result": [seen]}));
    let heard = sink.heard();
    assert_eq!(heard[0].path, "/tell?n=12345678");
    assert_eq!(heard[0].json()["same"], seen);
    let literal: Value = serde_json::from_str(
        r#"{"int":5,"float":0.5,"big":12345678901234567890,"yes":true,"none":null,
            "list":[1,12345678,{"deep":"x12345678y"}]}"#,
    )
    .unwrap();
    assert_eq!(heard[0].json()["literal"], literal);
    let text = r#"o={"flag":false,"k":[1,2.5]} t=false m=."#;
    assert_eq!(heard[0].json()["text"], json!(text));
}

/// Invariant 22: pure steps cost nothing; decision S5: a webhook is sent again only where the
/// file says so, under one id and with one body.
#[tokio::test]
async fn a_declared_retry_repeats_the_delivery_and_nothing_else() {
    let sink = Sink::new().await;
    let kit = KitDir::new(&[(
        "w",
        r#"
env: [{name: SINK}]
params: {schema: {type: object, properties: {n: {type: integer, default: 7}}}}
pipeline:
  - {id: t, transform: {inputs: [{from: params.n}], ops: []}}
  - id: call
    webhook:
      url: "{{ env.SINK }}/call"
      body: {t: "{{ step.t.result }}"}
      retry: {attempts: 3, backoff: 10ms, on: [server_error]}
"#,
    )]);
    let lab = Lab::new(&kit, &[("SINK", &sink.url)]).await;
    for (answers, calls, status) in [
        (vec![500, 503, 200], 3, "complete"),
        (vec![500, 500, 500], 3, "failed"),
        (vec![404], 1, "failed"),
        (vec![200], 1, "complete"),
    ] {
        sink.forget();
        let left = std::sync::Mutex::new(answers.clone().into_iter());
        sink.follow(move |_| Reply::Now(left.lock().unwrap().next().unwrap(), String::new()));
        let envelope = lab.client.run("w", json!({})).await;
        assert_eq!(envelope["status"], status, "{answers:?}");
        let heard = sink.heard();
        assert_eq!(heard.len(), calls, "{answers:?}");
        assert!(
            heard
                .iter()
                .all(|one| one == &heard[0] && one.id.starts_with("whd_"))
        );
        assert_eq!(heard[0].json(), json!({"t": 7}));
        let run = envelope["run_id"].as_str().unwrap();
        let frames = lab.client.frames(run).await;
        let count = |kind: &str| frames.iter().filter(|one| one["type"] == kind).count();
        assert_eq!(count("webhook.sent"), calls);
        // What is announced is what is sent, every time.
        let announced = frames.iter().filter(|one| one["type"] == "webhook.sent");
        for (announced, sent) in announced.zip(&heard) {
            assert_eq!(announced["data"]["delivery_id"], json!(sent.id));
            let hash = ktsu_ledger::Hash::of(&sent.body).to_string();
            assert_eq!(announced["data"]["body_hash"], json!(hash));
        }
        assert_eq!(
            count("webhook.dead"),
            usize::from(calls == 3 && status == "failed")
        );
        for cost in [
            "cost_micro_usd",
            "llm_calls",
            "tokens_in",
            "tokens_out",
            "tool_calls",
        ] {
            assert_eq!(envelope["totals"][cost], 0);
        }
    }
}

/// Decision S2: the steps of a layer run at once. Nobody is answered until all were heard.
#[tokio::test]
async fn webhooks_of_one_layer_are_under_way_together() {
    let sink = Sink::scripted(|_| Reply::When("all".to_owned(), 200)).await;
    let steps: String = (0..8)
        .map(|n| format!("  - {{id: s{n}, webhook: {{url: \"{}/{n}\"}}}}\n", sink.url))
        .collect();
    let kit = KitDir::new(&[("w", &format!("pipeline:\n{steps}"))]);
    let lab = Lab::new(&kit, &[]).await;
    let run = lab.client.invoke("w", json!({})).await;
    sink.until(|heard| heard.len() == 8).await;
    sink.open("all");
    assert_eq!(lab.client.ended(&run).await["status"], "complete");
}
