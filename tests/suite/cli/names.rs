//! Steps, items and fields by their names: one way to write them for all commands, and what is said of
//! a name that nothing has.

use serde_json::json;

use super::{Desk, Said};

const WORKFLOW: &str = r#"
kind: workflow
name: read
version: 1.0.0
params:
  schema:
    type: object
    additionalProperties: false
    properties:
      list: {type: array, default: [red, green, blue]}
      limit: {type: integer, default: 3}
pipeline:
  - {id: read, agent: ./agents/reader.agent.yaml, for_each: {from: params.list, max_failures: 1}, params: {msg: "{{ item }}"}}
  - {id: one, agent: ./agents/reader.agent.yaml, params: {msg: "{{ params.list[0] }}"}}
  - {id: flat, transform: {inputs: [params.list], ops: [{flatten: {}}]}}
  - {id: call, workflow: inner.workflow.yaml, params: {msg: "{{ params.list[0] }}"}}
  - {id: plain, workflow: plain.workflow.yaml}
"#;
const PLAIN: &str = r#"
kind: workflow
name: plain
version: 1.0.0
visibility: sub-workflow
params: {schema: {type: object, properties: {list: {type: array, default: [[1]]}}}}
pipeline:
  - {id: made, transform: {inputs: [params.list], ops: [{flatten: {}}]}}
"#;
const INNER: &str = r#"
kind: workflow
name: inner
version: 1.0.0
visibility: sub-workflow
params: {schema: {type: object, properties: {msg: {type: string, default: ""}}}}
pipeline:
  - {id: deep, agent: ../agents/reader.agent.yaml, params: {msg: "{{ params.msg }}"}}
output: {map: {kind: "{{ step.deep.kind }}", count: 1}}
"#;
const AGENT: &str = r#"
name: reader
version: 1.0.0
model: std
params: {schema: {type: object, required: [msg], properties: {msg: {type: string}}}}
prompt: {system: s, user: "{{ params.msg }}"}
output: {schema: {type: object, additionalProperties: false, required: [kind], properties: {kind: {type: string}, ktsu_skip_reason: {type: string}, urgency: {type: integer}}}}
"#;
const GATEWAY: &str = r#"
providers: [{name: fake, type: scripted, config: {rules: replies.yaml}}]
model_groups: [{name: std, models: [fake/one]}]
"#;
const RULES: &str = r#"
rules:
  - {when: {user: '\Agreen'}, reply: {kind: 7}}
  - {when: {user: '\Ablue'}, reply: {kind: cold, ktsu_skip_reason: "too blue"}}
default: {reply: {kind: warm}}
"#;

fn ran(desk: &Desk) -> String {
    desk.write_file("kit/workflows/read.workflow.yaml", WORKFLOW);
    desk.write_file("kit/workflows/inner.workflow.yaml", INNER);
    desk.write_file("kit/workflows/plain.workflow.yaml", PLAIN);
    desk.write_file("kit/agents/reader.agent.yaml", AGENT);
    desk.write_file("kit/gateway.yaml", GATEWAY);
    desk.write_file("kit/replies.yaml", RULES);
    desk.write_file("kit/kit.yaml", "default: read\n");
    let said = desk.ktsu(&["run", "kit", "--json"]);
    let envelope = said.is(0).json();
    envelope["run_id"].as_str().unwrap().to_owned()
}

#[test]
fn an_item_of_a_fan_out_is_named_alike_in_every_command() {
    let desk = Desk::new();
    let run = ran(&desk);
    let why = |step: &str| -> Said { desk.ktsu(&["trace", &run, "--why-not", step]) };
    why("read.1")
        .is(0)
        .says("read.1 is failed")
        .says("it failed with schema_violation: ");
    why("step.read.2")
        .is(0)
        .says("read.2 is skipped")
        .says("its agent skipped it: too blue");
    why("read.0").is(0).says("read.0 is complete");
    why("read").is(0).says("read is complete");
    why("read.3")
        .is(2)
        .warns("there is no item \"read.3\"")
        .warns("read.0 to read.2");
    why("one.0").is(2).warns("there is no item \"one.0\"");
    why("call/deep").is(0).says("call/deep is complete");
    // Values of an item, as of a step.
    let of = |path: &str| desk.ktsu(&["trace", &run, "--of", path, "--json"]);
    let direct = of("step.read.results[0].kind").is(0).json();
    let named = of("step.read.0.kind").is(0).json();
    assert_eq!(named["origins"], direct["origins"]);
    assert_eq!(of("read.0.kind").is(0).json()["value"], "warm");
    of("read.9.kind").is(2);
    // Frames of an item, and its baseline.
    let frames = desk.ktsu(&["trace", &run, "--step", "read.1"]);
    assert!(frames.is(0).out.contains("read.1"), "{frames:#?}");
    assert!(!frames.out.contains("read.0"), "{frames:#?}");
    let capture = |step: &str| desk.ktsu(&["capture", &run, "--step", step, "--json"]);
    let one = capture("read.0").is(0).json();
    assert_eq!(one[0]["metadata"]["item"], 0, "{one}");
    assert_eq!(one.as_array().unwrap().len(), 1);
    capture("step.one").is(0);
    capture("read.1").is(2);
    // What begins again, begins again as a step.
    for (command, words) in [
        (
            ["fork", &run, "--before", "read.1"],
            "ktsu fork RUN --before read",
        ),
        (
            ["resume", &run, "--from", "step.read.1"],
            "ktsu resume RUN --from read",
        ),
        (
            ["recompute", &run, "--step", "read.1"],
            "ktsu recompute RUN --step read",
        ),
    ] {
        let said = desk.ktsu(&[&command[..], &["--kit", "kit"]].concat());
        said.is(2)
            .warns("read.1 is an item of a fan-out")
            .warns(words);
    }
    desk.ktsu(&["fork", &run, "--before", "step.one"]).is(0);
    desk.ktsu(&["recompute", &run, "--step", "step.one", "--kit", "kit"])
        .is(0)
        .says("one  clean");
}

#[test]
fn a_step_that_the_run_does_not_have_is_refused_with_the_one_that_was_meant() {
    let desk = Desk::new();
    let run = ran(&desk);
    for (command, hint) in [
        (&["trace", &run, "--step", "oen"][..], "did you mean one?"),
        (&["trace", &run, "--step", "one.0"], "the run has one"),
        (&["trace", &run, "2", "--step", "oen"], "did you mean one?"),
        (&["trace", &run, "--why-not", "oen"], "did you mean one?"),
        (
            &["trace", &run, "--step", "call/dep"],
            "did you mean call/deep?",
        ),
        (
            &["overlay", &run, "oen.kind=x", "--reason", "r"],
            "did you mean one?",
        ),
        (
            &["overlay", &run, "call/dep.kind=x", "--reason", "r"],
            "did you mean call/deep?",
        ),
        (&["fork", &run, "--before", "oen"], "did you mean one?"),
        (
            &["fork", &run, "--set", "step.oen.output.kind=x"],
            "did you mean one?",
        ),
        (
            &["fork", &run, "--before", "elsewhere"],
            "the run has read, one",
        ),
        (
            &["resume", &run, "--from", "oen", "--kit", "kit"],
            "did you mean one?",
        ),
    ] {
        let said = desk.ktsu(command);
        said.is(2).warns("no ").warns(hint);
    }
    // What the run has is shown, be it nothing.
    desk.ktsu(&["trace", &run, "--step", "one", "--failed"])
        .is(0);
    desk.ktsu(&["trace", &run, "--step", "call/deep"]).is(0);
}

#[test]
fn a_fork_edits_a_prompt_by_the_path_of_its_step_and_says_what_is_not_one() {
    let desk = Desk::new();
    let run = ran(&desk);
    let fork = |prompt: &str| desk.ktsu(&["fork", &run, "--before", "one", "--prompt", prompt]);
    for (prompt, words, hint) in [
        (
            "call/dep.system=x",
            "no such agent step",
            "did you mean call/deep?",
        ),
        ("flat.system=x", "asks no model", ""),
        (
            "one.user={{ params.mgs }}",
            "line 1, column 11",
            "did you mean msg?",
        ),
        ("one.system=", "empty", ""),
        ("one.reflect=x", "no such prompt", ""),
        ("one.sytem=x", "sytem", "system"),
        ("one.user=@absent.txt", "absent.txt", ""),
    ] {
        fork(prompt).is(2).warns(words).warns(hint);
    }
    desk.write_file("user.txt", "Green: {{ params.msg }}");
    let branch = fork("one.user=@user.txt").is(0).out.clone();
    let branch = branch
        .split_whitespace()
        .find(|word| word.starts_with("branch_"));
    let branch = branch.expect("the fork names its branch");
    desk.ktsu(&["resume", branch, "--kit", "kit"]).is(0);
    let said = desk.ktsu(&["frames", branch, "--json"]);
    assert!(said.is(0).out.contains("Green: red"), "{said:#?}");
    let first = desk.ktsu(&["frames", &run, "--json"]);
    assert!(!first.is(0).out.contains("Green: red"), "{first:#?}");
}

#[test]
fn a_field_that_cannot_exist_is_refused_with_the_name_that_was_meant() {
    let desk = Desk::new();
    let run = ran(&desk);
    let before = desk.ktsu(&["frames", &run, "--json"]).is(0).out.clone();
    for (set, hint) in [
        ("one.kidn=cold", "did you mean kind?"),
        ("one.urgenci=1", "did you mean urgency?"),
        ("one.weight=1", "it can have: kind, urgency"),
        ("flat.resutl=[]", "did you mean result?"),
        ("read.result=[]", "did you mean results?"),
        ("read.0=[]", "it can have: results"),
        ("call.knid=cold", "did you mean kind?"),
        ("call/deep.kidn=cold", "did you mean kind?"),
        ("plain.o=77", "it can have: result"),
        ("plain/made.o=77", "it can have: result"),
    ] {
        let said = desk.ktsu(&["overlay", &run, set, "--reason", "r"]);
        said.is(2).warns("cannot have a field").warns(hint);
        let path = format!("step.{set}");
        let said = desk.ktsu(&["fork", &run, "--set", &path]);
        said.is(2).warns("cannot have a field").warns(hint);
    }
    desk.ktsu(&["fork", &run, "--set", "params.lmit=3"])
        .is(2)
        .warns("the params cannot have a field \"lmit\"")
        .warns("did you mean limit?");
    // What exists is judged by its schema, and the place is named.
    desk.ktsu(&["fork", &run, "--set", "params.limit=many"])
        .is(2)
        .warns("expected integer, got string at /limit");
    desk.ktsu(&["overlay", &run, "one.kind=7", "--reason", "r"])
        .is(2)
        .warns("expected string, got integer at /kind");
    assert_eq!(desk.ktsu(&["frames", &run, "--json"]).is(0).out, before);
    desk.ktsu(&["overlay", &run, "one.urgency=1", "--reason", "r"])
        .is(0);
    desk.ktsu(&["fork", &run, "--set", "params.limit=4"]).is(0);
}

#[test]
fn a_param_that_does_not_fit_is_named_by_its_pointer_wherever_it_fails() {
    let desk = Desk::new();
    let child = "kind: workflow\nname: child\nversion: 1.0.0\nvisibility: sub-workflow\n\
        params: {schema: {type: object, properties: {limit: {type: integer, default: 7}}}}\npipeline: []\n";
    let agent = AGENT.replace(
        "{msg: {type: string}}",
        "{msg: {type: object, properties: {n: {type: integer}}}}",
    );
    desk.write_file("kit/workflows/child.workflow.yaml", child);
    desk.write_file(
        "kit/agents/reader.agent.yaml",
        &agent.replace("params.msg", "params.msg.n"),
    );
    desk.write_file("kit/gateway.yaml", GATEWAY);
    desk.write_file("kit/replies.yaml", RULES);
    let root = |step: &str, output: &str| {
        format!(
            "kind: workflow\nname: root\nversion: 1.0.0\nparams: {{schema: {{type: object, \
             properties: {{v: {{default: x}}, n: {{type: integer, default: 1}}}}}}}}\n\
             pipeline:\n  - {step}\n{output}"
        )
    };
    let mapped = "output: {map: {sum: '{{ params.v }}'}, schema: {type: object, properties: {sum: {type: integer}}}}\n";
    for (step, output, words) in [
        (
            "{id: a, workflow: child.workflow.yaml, params: {limit: '{{ params.v }}'}}",
            "",
            "does not fit the params of its child: expected integer, got string at /limit",
        ),
        (
            "{id: a, agent: agents/reader.agent.yaml, params: {msg: {n: '{{ params.v }}'}}}",
            "",
            "does not fit the params of agent \"reader\": expected integer, got string at /msg/n",
        ),
        (
            "{id: a, transform: {inputs: [params.v], ops: []}}",
            mapped,
            "on the output of workflow \"root\": expected integer, got string at /sum",
        ),
    ] {
        desk.write_file("kit/workflows/root.workflow.yaml", &root(step, output));
        let said = desk.ktsu(&["run", "kit", "root", "--json", "--ephemeral"]);
        let message = said.is(1).json()["error"]["message"].clone();
        let message = message.as_str().unwrap_or_default();
        assert!(message.ends_with(words), "{message}");
    }
    let given = json!({"n": "many"}).to_string();
    let said = desk.ktsu(&["run", "kit", "root", "--input", &given, "--ephemeral"]);
    said.is(2).warns("expected integer, got string at /n");
}
