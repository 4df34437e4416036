//! What cannot run says why, what to type, and exits 2; a verdict against exits 1.

use super::{Desk, kit};

const BROKEN: &str = "kind: workflow
name: broken
version: 1.0.0
nmae: x
pipeline:
  - id: one
    transform: {inputs: [{from: params}], ops: []}
";

const THINKER: &str =
    "name: thinker\nmodel: m\nprompt: {system: s}\noutput: {schema: {type: object}}\n";

const AGENT: &str = "kind: workflow
name: thinks
version: 1.0.0
pipeline:
  - id: think
    agent: ./agents/thinker.agent.yaml
";

#[test]
fn a_broken_kit_is_refused_in_the_same_words_everywhere() {
    let desk = Desk::new();
    let broken = desk.write_kit("broken", BROKEN);
    let fault = "error[unknown-key]: unknown key \"nmae\"";
    let validate = desk.ktsu(&["validate", &broken]);
    validate
        .is(1)
        .says(fault)
        .says("workflows/broken.workflow.yaml:4:1")
        .says("broken, not valid (1 error)");
    desk.ktsu(&["run", &broken])
        .is(2)
        .warns(fault)
        .warns("ktsu validate broken");
    desk.ktsu(&["start", "--kit", &broken]).is(2).warns(fault);
    desk.ktsu(&["invoke", "broken", "--kit", &broken])
        .is(2)
        .warns(fault);
    let json = desk.ktsu(&["validate", &broken, "--json"]).is(1).json();
    assert_eq!(json["valid"], false);
    assert_eq!(json["faults"][0]["code"], "unknown-key");
}

#[test]
fn a_valid_kit_is_reported_with_its_warnings() {
    let desk = Desk::new();
    desk.ktsu(&["validate", &kit("intake")])
        .is(0)
        .says("kit intake: 2 workflows, valid\n");
    let thinks = desk.write_kit("thinks", AGENT);
    desk.ktsu(&["validate", &thinks])
        .is(1)
        .says("error[agent-not-found]")
        .says("not valid (1 error)");
    desk.write_file("thinks/agents/thinker.agent.yaml", THINKER);
    desk.ktsu(&["validate", &thinks])
        .is(0)
        .says("warning[version-missing]")
        .says("valid (1 warning)");
    let graph = desk.ktsu(&["validate", &kit("intake"), "--graph"]);
    graph
        .is(0)
        .says("graph TD\n")
        .says("    open[\"open [transform]\"]\n")
        .says("    open --> unique\n");
    desk.ktsu(&["validate", "nowhere"])
        .is(2)
        .warns("nowhere is not a folder");
}

#[test]
fn an_environment_is_judged_on_demand() {
    let desk = Desk::new();
    let intake = kit("intake");
    std::fs::write(desk.path().join("empty.env.yaml"), "name: empty\n").unwrap();
    desk.ktsu(&["validate", &intake, "--env", "empty.env.yaml"])
        .is(1)
        .says("workflow intake: no value for RECEIVER_URL");
    desk.ktsu(&["run", &intake, "--env", "empty.env.yaml"])
        .is(2)
        .warns("workflow intake: no value for RECEIVER_URL")
        .warns("export RECEIVER_URL=");
    desk.ktsu(&["validate", &intake, "--env", "none.env.yaml"])
        .is(2);
}

/// What a person has to put right is told alike by every command, and nothing starts.
#[test]
fn an_environment_whose_principals_cannot_be_told_apart_starts_nothing() {
    let desk = Desk::new();
    let hello = kit("hello");
    let text =
        "name: closed\nprincipals:\n- {name: ops, token: {env: OPS_TOKEN}, roles: [admin]}\n";
    std::fs::write(desk.path().join("closed.env.yaml"), text).unwrap();
    let env = ["--env", "closed.env.yaml"];
    desk.ktsu(&["validate", &hello, env[0], env[1]])
        .is(1)
        .says("error[no-value]")
        .says("closed.env.yaml:3:28");
    for command in [
        vec!["run", &hello],
        vec!["start", "--kit", &hello, "--port", "0"],
        vec!["invoke", "hello", "--kit", &hello],
    ] {
        desk.ktsu(&[command, env.to_vec()].concat())
            .is(2)
            .warns("error[no-value]")
            .warns("closed.env.yaml:3:28")
            .warns("export OPS_TOKEN=");
    }
}

#[test]
fn an_agent_without_a_gateway_fails_with_what_is_missing() {
    let desk = Desk::new();
    let thinks = desk.write_kit("thinks", AGENT);
    desk.write_file("thinks/agents/thinker.agent.yaml", THINKER);
    desk.ktsu(&["run", &thinks])
        .is(1)
        .warns("unknown_group")
        .warns("gateway.yaml declares them");
    desk.ktsu(&["start", "runtime"])
        .is(2)
        .warns("--orchestrator http://127.0.0.1:5050");
    desk.ktsu(&["start", "gateway", "--kit", &thinks])
        .is(2)
        .warns("gateway.yaml");
}

#[test]
fn unknown_workflows_are_answered_with_similar_ones() {
    let desk = Desk::new();
    desk.ktsu(&["run", &kit("hello"), "helo"])
        .is(2)
        .warns("kit hello has no workflow helo")
        .warns("did you mean hello?");
    desk.ktsu(&["run", &kit("intake"), "urgent"])
        .is(2)
        .warns("urgent is a sub-workflow");
}

#[test]
fn without_a_ledger_every_reading_command_says_how_to_get_one() {
    let desk = Desk::new();
    for arguments in [
        &["runs"][..],
        &["runs", "get", "run_x"],
        &["frames", "run_x"],
        &["trace", "run_x"],
        &["verify"],
        &["backup", "copy.db"],
    ] {
        let said = desk.ktsu(arguments);
        said.is(2)
            .warns("there is no ledger at ")
            .warns("ktsu run kits/hello");
        assert_eq!(said.out, "", "{arguments:?}");
    }
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 0);
}

#[test]
fn wrong_arguments_exit_2_and_help_exits_0() {
    let desk = Desk::new();
    desk.ktsu(&["rnu"]).is(2).warns("run");
    desk.ktsu(&["run"]).is(2).warns("ktsu run KIT");
    for command in [
        "run", "start", "invoke", "validate", "workflow", "runs", "trace", "frames", "verify",
        "backup", "restore", "version",
    ] {
        desk.ktsu(&[command, "--help"]).is(0).says("Usage: ktsu ");
    }
    desk.ktsu(&["version"])
        .is(0)
        .says(concat!("ktsu ", env!("CARGO_PKG_VERSION"), "\n"));
    desk.ktsu(&["version", "--json"]).is(0).json();
}

#[test]
fn addresses_of_other_machines_are_refused() {
    let desk = Desk::new();
    for host in ["0.0.0.0", "192.0.2.1", "::"] {
        let said = desk.ktsu(&[
            "start",
            "--kit",
            &kit("hello"),
            "--host",
            host,
            "--port",
            "0",
        ]);
        said.is(2).warns("other machines could reach it");
    }
    desk.ktsu(&["start", "--host", "example.com"])
        .is(2)
        .warns("not an IP address");
}

/// A workflow that callers need a secret for, which stands somewhere in `auth`.
fn guarded(auth: &str) -> String {
    format!(
        "kind: workflow\nname: guarded\nversion: 1.0.0\nenv:\n  - {{name: SEC, secret: true}}\n\
         invoke:\n  auth: {auth}\npipeline: []\n"
    )
}

#[test]
fn a_secret_that_is_written_out_where_no_text_belongs_is_in_no_report() {
    for auth in [
        "{secret: [hunter2secret]}",
        "{secret: {value: hunter2secret}}",
        "{secret: {hunter2secret: 1}}",
        "{secert: hunter2secret}",
        "{secert: [hunter2secret]}",
        "{key: hunter2secret}",
        "{header: X-Key, secert: \"hunter2secret\"}",
        "hunter2secret",
        "[hunter2secret]",
        "\n    secert: hunter2secret",
        "\n    secret:\n      - hunter2secret",
        "\n    secret: [\n      hunter2secret]",
    ] {
        let desk = Desk::new();
        let kit = desk.write_kit("guarded", &guarded(auth));
        for more in [&[][..], &["--json"][..]] {
            let said = desk.ktsu(&[&["validate", &kit], more].concat());
            assert_ne!(said.code, 0, "{auth}");
            let all = format!("{}{}", said.out, said.err);
            assert!(!all.contains("hunter2secret"), "{auth}: {all}");
        }
        let run = desk.ktsu(&["run", &kit]);
        assert!(!run.err.contains("hunter2secret"), "{auth}: {}", run.err);
    }
}

#[test]
fn a_secret_is_one_variable_and_nothing_around_it() {
    for (secret, sound) in [
        ("{{ env.SEC }}", true),
        ("{{env.SEC}}", true),
        ("x{{ env.SEC }}", false),
        ("{{ env.SEC }}{{ env.SEC }}", false),
        ("{{ to_number(env.SEC) }}", false),
    ] {
        let desk = Desk::new();
        let webhook = format!(
            "kind: workflow\nname: k\nversion: 1.0.0\nenv:\n  - {{name: SEC, secret: true}}\n\
             pipeline:\n  - id: w\n    webhook: {{url: 'http://x.example/', secret: \"{secret}\"}}\n"
        );
        for text in [guarded(&format!("{{secret: \"{secret}\"}}")), webhook] {
            let kit = desk.write_kit("k", &text.replace("name: guarded", "name: k"));
            let said = desk.ktsu(&["validate", &kit, "--no-env"]);
            match sound {
                true => drop(said.is(0)),
                false => drop(said.is(1).says("is one variable and nothing else")),
            }
        }
    }
}

#[test]
fn a_slip_in_a_file_is_reported_once_in_words_that_lead_to_what_is_right() {
    let desk = Desk::new();
    let server = |timeout: &str| {
        format!(
            "name: crm\nversion: 1.0.0\nurl: https://crm.example/\nstateful: true\n\
                 timeout: {timeout}\naccess: {{allowlist: ['*']}}\n"
        )
    };
    let kit = desk.write_kit(
        "k",
        "kind: workflow\nname: k\nversion: 1.0.0\npipeline: []\n",
    );
    for (timeout, words) in [
        ("8761h", "timeout must be between 1ms and 1h"),
        ("2h", "timeout must be between 1ms and 1h"),
        ("30", "with a unit: 30s, or 30ms"),
        ("\"30\"", "timeout must be a duration such as 500ms"),
    ] {
        desk.write_file("k/servers/crm.server.yaml", &server(timeout));
        let said = desk.ktsu(&["validate", &kit]);
        said.is(1).says(words);
        assert!(!said.out.contains("in quotes"), "{}", said.out);
    }
    desk.write_file("k/servers/crm.server.yaml", &server("30s"));
    desk.ktsu(&["validate", &kit]).is(0);
    // Of two names that are as near, the one that differs in case alone.
    let steps = "kind: workflow\nname: k\nversion: 1.0.0\n\
        params: {schema: {type: object, properties: {a: {type: array, default: []}}}}\npipeline:\n\
        \x20 - {id: r, transform: {inputs: [params.a], ops: [{flatten: {}}]}}\n\
        \x20 - {id: f, transform: {inputs: [params.a], ops: [{flatten: {}}]}}\n\
        output: {map: {x: '{{ step.R.result }}'}}\n";
    let kit = desk.write_kit("k", steps);
    desk.ktsu(&["validate", &kit]).is(1).says("did you mean r?");
}

#[test]
fn a_step_that_is_no_fan_out_keeps_its_name_where_it_is_done_again() {
    let desk = Desk::new();
    desk.ktsu(&["init", "k"]).is(0);
    let run = desk.ktsu(&["run", "k", "--json"]).is(0).json();
    let run = run["run_id"].as_str().unwrap();
    let path = desk.path().join("k/scripted/replies.yaml");
    let replies = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, replies.replace("topic: ", "nonsense: ")).unwrap();
    for command in [
        &["recompute", run, "--kit", "k"][..],
        &["test", "k/baselines", "--kit", "k"],
    ] {
        let said = desk.ktsu(command);
        said.is(1).says("failed on step \"answer\": ");
    }
}

#[test]
fn an_address_that_names_no_ledger_is_no_file_and_its_password_is_not_shown() {
    let desk = Desk::new();
    let address = "mysql://ann:s3cret@db.example/work";
    for command in [&["runs"][..], &["run", &kit("hello")], &["verify"]] {
        let refused = desk.ktsu(&[command, &["--ledger", address]].concat());
        refused
            .is(2)
            .warns("mysql://… is no place for a ledger: it is a file, postgres://ROLE@HOST/DATABASE or esdb://HOST:2113")
            .warns("--ledger FILE");
        assert!(!format!("{refused:?}").contains("s3cret"));
    }
    assert!(!desk.path().join("mysql:").exists());
    desk.ktsu(&["version", "--ledger", address]).is(0);
}
