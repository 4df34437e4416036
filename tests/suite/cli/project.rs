//! What a command takes for granted: the environment that a start would use, and the kit that one
//! variable names for all commands.

use super::{Desk, Said};

const KIT: &str = "kind: workflow
name: call
version: 1.0.0
env:
  - {name: PLACE}
  - {name: KEY, secret: true}
pipeline:
  - {id: send, webhook: {url: '{{ env.PLACE }}/x', secret: '{{ env.KEY }}'}}
";

const AGENT: &str = "name: clerk
version: 1.0.0
model: fast
prompt: {system: Answer.}
output: {schema: {type: object, properties: {a: {type: string}}}}
";

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write_kit("call", KIT);
    desk
}

fn with(desk: &Desk, variables: &[(&str, &str)], arguments: &[&str]) -> Said {
    let mut command = desk.command(arguments);
    command.envs(variables.iter().copied());
    let output = command.output().unwrap();
    Said {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8(output.stdout).unwrap(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// What `validate` says, `run` says: both find it, or neither does.
#[track_caller]
fn both_find(desk: &Desk, variables: &[(&str, &str)], words: &str) {
    let said = with(desk, variables, &["validate", "call"]);
    said.is(1).says(words);
    let run = with(desk, variables, &["run", "call", "--ephemeral"]);
    run.is(2).warns(words);
}

#[test]
fn validate_finds_a_variable_without_a_value_where_run_would() {
    let desk = desk();
    // Without an environment file the process environment is all there is.
    both_find(&desk, &[], "workflow call: no value for PLACE, KEY");
    let place = [("PLACE", "http://127.0.0.1:9")];
    both_find(&desk, &place, "no value for KEY");
    desk.ktsu(&["validate", "call"]).warns("--no-env");
    desk.ktsu(&["validate", "call", "--no-env"])
        .is(0)
        .says("call: 1 workflow, valid");
    // The nearest local environment, from the kit upward.
    let local = "variables: {PLACE: 'http://127.0.0.1:9'}\n";
    desk.write_file("environments/local.env.yaml", local);
    both_find(&desk, &[], "workflow call: no value for KEY");
    desk.ktsu(&["validate", "call"])
        .warns("environments/local.env.yaml");
    let json = desk.ktsu(&["validate", "call", "--json"]).is(1).json();
    assert_eq!(json["environment_file"], "environments/local.env.yaml");
    // A default, or what the process sets, is a value; what KTSU_ENV names goes before the nearest.
    let key = [("KEY", "long-enough")];
    with(&desk, &key, &["validate", "call"]).is(0);
    desk.write_file("other.env.yaml", "variables: {}\n");
    let other = [("KEY", "long-enough"), ("KTSU_ENV", "other.env.yaml")];
    both_find(&desk, &other, "no value for PLACE");
    with(&desk, &other, &["validate", "call", "--no-env"]).is(0);
    // One that is named and not there is no verdict.
    let gone = [("KTSU_ENV", "gone.env.yaml")];
    with(&desk, &gone, &["validate", "call"])
        .is(2)
        .warns("no environment file at gone.env.yaml");
}

#[test]
fn validate_warns_of_a_budget_that_a_model_without_a_price_ends_and_says_how_to_price_it() {
    let desk = Desk::new();
    let ask = "  - {id: ask, agent: agents/clerk.agent.yaml}\n";
    let workflow = |policy: &str| {
        format!("kind: workflow\nname: call\nversion: 1.0.0\n{policy}pipeline:\n{ask}")
    };
    desk.write_kit("call", &workflow("model_policy: {cost_budget_usd: 1}\n"));
    desk.write_file("call/agents/clerk.agent.yaml", AGENT);
    desk.write_file("call/rules.yaml", "rules: []\ndefault: {reply: {a: b}}\n");
    let gateway = |pricing: &str| {
        let gateway = format!(
            "providers: [{{name: p, type: scripted, config: {{rules: rules.yaml}}}}]\n\
             model_groups: [{{name: fast, models: [p/own]{pricing}}}]\n"
        );
        desk.write_file("call/gateway.yaml", &gateway);
    };
    gateway("");
    let price = "pricing: [{model: own, input_per_million_usd: …, output_per_million_usd: …}]";
    desk.ktsu(&["validate", "call"])
        .is(0)
        .says("warning[unpriced-model]")
        .says(price)
        .says("unpriced: allow");
    // What it says to do is enough.
    gateway(&format!(", {}", price.replace('…', "1")));
    let said = desk.ktsu(&["validate", "call"]);
    assert!(!said.is(0).out.contains("unpriced-model"), "{said:#?}");
}

#[test]
fn validate_finds_a_secret_that_is_too_short_where_run_would() {
    let desk = desk();
    let local = "variables: {PLACE: 'http://127.0.0.1:9', KEY: short}\n";
    desk.write_file("environments/local.env.yaml", local);
    both_find(&desk, &[], "secrets need at least 6 characters: KEY");
    let mark = [("KEY", "whsec_")];
    both_find(&desk, &mark, "secrets need at least 6 characters: KEY");
    desk.ktsu(&["validate", "call", "--no-env"]).is(0);
}

#[test]
fn validate_finds_a_broken_rules_file_of_the_local_environment() {
    let desk = Desk::new();
    let call = "kind: workflow\nname: call\nversion: 1.0.0\npipeline:\n  - {id: a, agent: agents/clerk.agent.yaml}\n";
    desk.write_kit("call", call);
    desk.write_file("call/agents/clerk.agent.yaml", AGENT);
    let gateway = "env: [{name: REAL_KEY, secret: true}]
providers:
  - {name: real, type: openai, config: {base_url: 'http://127.0.0.1:9', api_key: '{{ env.REAL_KEY }}'}}
model_groups:
  - {name: fast, models: [real/m]}
";
    desk.write_file("call/gateway.yaml", gateway);
    let said = desk.ktsu(&["validate", "call"]);
    said.is(1).says("REAL_KEY");
    desk.ktsu(&["validate", "call", "--no-env"]).is(0);
    let local = "providers: [{name: real, type: scripted, config: {rules: rules.yaml}}]\n";
    desk.write_file("environments/local.env.yaml", local);
    desk.write_file(
        "environments/rules.yaml",
        "rules: [{wehn: {}, reply: {}}]\n",
    );
    both_find(&desk, &[], "unknown key \"wehn\"");
    desk.ktsu(&["validate", "call", "--no-env"]).is(0);
}

#[test]
fn every_command_that_takes_a_kit_takes_it_by_the_same_two_names() {
    let desk = Desk::new();
    let plain = "kind: workflow\nname: plain\nversion: 1.0.0\npipeline:\n  - {id: a, transform: {inputs: [], ops: []}}\n";
    desk.write_kit("plain", plain);
    let commands: [(&[&str], i32); 7] = [
        (&["validate"], 0),
        (&["lock"], 0),
        (&["lock", "--check"], 0),
        (&["run"], 0),
        (&["invoke", "plain"], 0),
        (&["workflow", "tree", "plain"], 0),
        // It has read the kit: what is missing is the baseline.
        (&["test", "none.json"], 2),
    ];
    for (command, code) in commands {
        let by_variable = with(&desk, &[("KTSU_PROJECT_DIR", "plain")], command);
        by_variable.is(code);
        let by_flag = desk.ktsu(&[command, &["--project-dir", "plain"]].concat());
        by_flag.is(code);
        let nowhere = desk.ktsu(&[command, &["--project-dir", "nowhere"]].concat());
        nowhere.is(2);
        // What is said on the command line goes before the variable.
        let both = [("KTSU_PROJECT_DIR", "nowhere")];
        let both = with(
            &desk,
            &both,
            &[command, &["--project-dir", "plain"]].concat(),
        );
        both.is(code);
    }
    let run = desk.hello();
    let commands: [&[&str]; 4] = [
        &["fork", &run, "--before", "measure", "--go"],
        &["resume", &run, "--from", "measure"],
        &["recompute", &run],
        &["replay", &run, "--against"],
    ];
    for command in commands {
        let is_replay = command[0] == "replay";
        let bare: Vec<&str> = command
            .iter()
            .copied()
            .filter(|one| *one != "--against")
            .collect();
        let by_flag = desk.ktsu(&[bare.as_slice(), &["--project-dir", "nowhere"]].concat());
        by_flag.is(2).warns("nowhere is not a folder");
        if !is_replay {
            let by_variable = with(&desk, &[("KTSU_PROJECT_DIR", "nowhere")], &bare);
            by_variable.is(2).warns("nowhere is not a folder");
        }
    }
    // One word beside a named kit is the workflow; two are one too many.
    desk.ktsu(&["run", "--project-dir", "plain", "plain", "--ephemeral"])
        .is(0);
    desk.ktsu(&["run", "--project-dir", "plain", "plain", "plain"])
        .is(2)
        .warns("already names the kit");
    desk.ktsu(&["run", "--kit", "plain", "plain", "--ephemeral"])
        .is(0);
    desk.ktsu(&["run"])
        .is(2)
        .warns("no kit given")
        .warns("Usage: ktsu run [OPTIONS] [KIT] [WORKFLOW]");
}

#[test]
fn a_command_without_a_kit_looks_for_the_ledger_where_the_others_do() {
    let desk = Desk::new();
    let plain = "kind: workflow\nname: plain\nversion: 1.0.0\npipeline: []\n";
    desk.write_kit("plain", plain);
    desk.write_file("plain/environments/local.env.yaml", "ledger: its.db\n");
    let project = [("KTSU_PROJECT_DIR", "plain")];
    with(&desk, &project, &["run"]).is(0);
    let runs = with(&desk, &project, &["runs", "--json"]);
    assert!(runs.is(0).out.contains("\"plain\""), "{runs:#?}");
}

#[test]
fn a_secret_that_is_written_out_in_a_definition_keeps_a_run_from_starting() {
    let desk = Desk::new();
    let write = |text: &str| {
        let workflow = format!(
            "kind: workflow\nname: call\nversion: 1.0.0\nenv: [{{name: KEY, secret: true}}]\n\
             params: {{schema: {{type: object, properties: {{a: {{type: string, default: b}}}}}}}}\n\
             pipeline: [{{id: s, summary: 'with {text}', transform: {{inputs: [{{from: params}}], \
             ops: [{{map: {{expr: a}}}}]}}}}]\n"
        );
        desk.write_kit("call", &workflow);
    };
    let ktsu = |arguments: &[&str]| with(&desk, &[("KEY", "hunter-2-hunter")], arguments);
    write("a key");
    ktsu(&["run", "call", "--ephemeral"]).is(0);
    for text in [
        "hunter-2-hunter",
        "aHVudGVyLTItaHVudGVy",
        "h\\u0075nter-2-hunter",
    ] {
        write(text);
        let said = ktsu(&["run", "call", "--ephemeral"]);
        said.is(2)
            .warns("written out in the definition, at /workflows/workflows~1call.workflow.yaml/steps/0/summary");
        assert!(!said.err.contains(text), "{}", said.err);
        let said = ktsu(&["validate", "call"]);
        assert!(said.is(1).out.contains("/steps/0/summary"), "{}", said.out);
    }
    // The kit alone has no values to compare with.
    ktsu(&["validate", "call", "--no-env"]).is(0);
    // Numbers are recorded, too. The names of the format are not what an author wrote.
    write("48151623");
    let validated = |key: &str| with(&desk, &[("KEY", key)], &["validate", "call"]);
    validated("48151623").is(1);
    validated("summary").is(0);
}

#[test]
fn keys_of_the_engine_are_looked_for_in_definitions_too() {
    const KEY: &str = "bm8gb25lIGlzIHRvIHNlZSB0aGlzIGtleSBvZiBvdXI=";
    let desk = Desk::new();
    let write = |text: &str| {
        let workflow = format!(
            "kind: workflow\nname: call\nversion: 1.0.0\n\
             pipeline: [{{id: s, summary: 'with {text}', transform: {{inputs: [{{from: params}}], ops: []}}}}]\n"
        );
        desk.write_kit("call", &workflow);
    };
    desk.write_file(
        "call/environments/local.env.yaml",
        "subscriptions: [{name: one, pattern: run.completed, url: 'http://127.0.0.1:9', secret: {env: HOOK}}]\n",
    );
    let hook = format!("whsec_{KEY}");
    let absent = "whsec_YW5vdGhlciBrZXkgb2YgdGhpcyBlbmdpbmU=";
    for (variables, text) in [
        ([("KTSU_SIGNING_KEY", KEY), ("HOOK", absent)], KEY),
        ([("KTSU_SIGNING_KEY", ""), ("HOOK", &hook)], &hook),
        // The prefix is no part of the key.
        ([("KTSU_SIGNING_KEY", ""), ("HOOK", &hook)], KEY),
    ] {
        let ktsu = |arguments: &[&str]| with(&desk, &variables, arguments);
        write(text);
        let said = ktsu(&["validate", "call"]);
        assert!(said.is(1).out.contains("/steps/0/summary"), "{}", said.out);
        let said = ktsu(&["run", "call", "--ephemeral"]);
        said.is(2).warns("/steps/0/summary");
        assert!(!said.err.contains(KEY), "{}", said.err);
        write("none of them");
        ktsu(&["validate", "call"]).is(0);
        ktsu(&["run", "call", "--ephemeral"]).is(0);
    }
}

#[test]
fn a_plain_variable_that_holds_a_providers_key_keeps_a_run_from_starting() {
    let desk = Desk::new();
    let workflow =
        "kind: workflow\nname: call\nversion: 1.0.0\nenv: [{name: PLACE}]\npipeline: []\n";
    desk.write_kit("call", workflow);
    let gateway = "env: [{name: LLM_KEY, secret: true}]\n\
        providers: [{name: p, type: openai, config: {base_url: 'http://127.0.0.1:9/v1', \
        api_key: '{{ env.LLM_KEY }}'}}]\nmodel_groups: [{name: fast, models: [p/m]}]\n";
    desk.write_file("call/gateway.yaml", gateway);
    let run = |place: &str| {
        let variables = [("LLM_KEY", "sk-of-the-provider"), ("PLACE", place)];
        with(&desk, &variables, &["run", "call", "--ephemeral"])
    };
    run("somewhere").is(0);
    run("at sk-of-the-provider").is(2).warns("PLACE");
    let shown = [
        ("LLM_KEY", "sk-of-the-provider"),
        ("PLACE", "at sk-of-the-provider"),
    ];
    let said = with(&desk, &shown, &["validate", "call"]);
    assert!(said.is(1).out.contains("PLACE"), "{}", said.out);
}
