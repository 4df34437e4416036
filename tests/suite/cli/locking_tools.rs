//! `ktsu lock --tools`: what it needs of the environment, and what it says of tools that are listed
//! and cannot be called.

use serde_json::{Value, json};

use super::Desk;
use crate::support::tools::{Given, ToolServer};

const FLOW: &str = "kind: workflow
name: one
version: 1.0.0
env: [{name: DESK_KEY, secret: true}, {name: REGION}, {name: HOOK}, {name: OTHER_KEY, secret: true}]
pipeline:
  - id: ask
    agent: ./agents/clerk.agent.yaml
    params: {key: '{{ env.DESK_KEY }}', zone: '{{ env.REGION }}', other: '{{ env.OTHER_KEY }}'}
  - {id: tell, webhook: {url: '{{ env.HOOK }}/done'}}
";
const CLERK: &str = "
name: clerk
version: 1.0.0
model: std
params:
  schema:
    type: object
    required: [key, zone, other]
    properties:
      key: {type: string, secret: true}
      zone: {type: string}
      other: {type: string, secret: true}
prompt: {system: s, user: u}
servers:
  - name: desk
    path: ../servers/desk.server.yaml
    params: {key: '{{ params.key }}', zone: '{{ params.zone }}'}
output: {schema: {type: object}}
";
const GATEWAY: &str = "providers: [{name: p, type: scripted, config: {rules: rules.yaml}}]\n\
                       model_groups: [{name: std, models: [p/m]}]\n";
const ENVIRONMENT: &str = "principals: [{name: ada, token: {env: ADA_TOKEN}, roles: [operator]}]\n\
                           egress: {allow: [127.0.0.1]}\n";

fn desk(url: &str) -> Desk {
    let desk = Desk::new();
    let server = format!(
        "name: desk\nversion: 1.0.0\nurl: {url}\nparams: {{key: {{secret: true}}, zone: {{}}}}\n\
         auth: {{header: X-Key, scheme: raw, secret: '{{{{ params.key }}}}'}}\n"
    );
    for (path, text) in [
        ("kit/kit.yaml", "name: kit\nversion: 1.0.0\n"),
        ("kit/workflows/one.workflow.yaml", FLOW),
        ("kit/agents/clerk.agent.yaml", CLERK),
        ("kit/gateway.yaml", GATEWAY),
        (
            "kit/rules.yaml",
            "rules: []\ndefault: {reply: {done: true}}\n",
        ),
        ("kit/servers/desk.server.yaml", &server),
        ("kit/environments/local.env.yaml", ENVIRONMENT),
    ] {
        desk.write_file(path, text);
    }
    desk
}

fn locks(desk: &Desk, flags: &[&str], variables: &[(&str, &str)]) -> (i32, String, String) {
    let arguments = [&["lock", "kit", "--tools"], flags].concat();
    let mut command = desk.command(&arguments);
    let output = command.envs(variables.iter().copied()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn locking_tools_needs_the_variables_of_the_servers_alone_and_names_the_missing_one() {
    let tools = json!([{"name": "get", "inputSchema": {"type": "object"}}]);
    let server = ToolServer::scripted(tools, |_| Given::text("it")).await;
    let desk = desk(&server.url);
    let (key, region) = (("DESK_KEY", "key-of-the-desk"), ("REGION", "eu"));
    for (variables, missing) in [
        (&[][..], "no value for DESK_KEY, REGION\n"),
        (&[key][..], "no value for REGION\n"),
        (&[region][..], "no value for DESK_KEY\n"),
        (
            &[region, ("DESK_KEY", "abc")][..],
            "secrets need at least 6 characters: DESK_KEY\n",
        ),
    ] {
        let (code, _, err) = locks(&desk, &[], variables);
        assert_eq!(code, 2, "{err}");
        let named = format!("servers/desk.server.yaml: {missing}");
        assert!(err.contains(&named), "no {named:?} in {err}");
        for other in ["HOOK", "OTHER_KEY", "ADA_TOKEN"] {
            assert!(!err.contains(other), "{err}");
        }
    }
    let (_, _, err) = locks(&desk, &[], &[key]);
    assert!(err.contains("hint: export REGION=…"), "{err}");
    let (code, _, err) = locks(&desk, &[], &[key, region]);
    assert_eq!(code, 0, "{err}");
    let lock = std::fs::read_to_string(desk.path().join("kit/ktsu.lock.yaml")).unwrap();
    assert!(lock.contains("\"get\": \""), "{lock}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_tool_that_can_only_be_called_as_a_task_is_offered_to_no_one_and_locking_warns_of_it() {
    let tools = json!([
        {"name": "get", "inputSchema": {"type": "object"}},
        {"name": "export", "inputSchema": {"type": "object"},
         "execution": {"taskSupport": "required"}},
        {"name": "report", "inputSchema": {"type": "object"},
         "execution": {"taskSupport": "optional"}},
    ]);
    let server = ToolServer::scripted(tools, |_| Given::text("it")).await;
    let desk = desk(&server.url);
    desk.write_file(
        "kit/workflows/one.workflow.yaml",
        &FLOW.replace(
            "  - {id: tell, webhook: {url: '{{ env.HOOK }}/done'}}\n",
            "",
        ),
    );
    desk.write_file("kit/environments/local.env.yaml", "{}\n");
    let variables = [
        ("DESK_KEY", "key-of-the-desk"),
        ("REGION", "eu"),
        ("OTHER_KEY", "another-key"),
        ("HOOK", "unused"),
    ];
    let reason = "it requires MCP tasks, which ktsu does not support";
    let (code, _, err) = locks(&desk, &[], &variables);
    assert_eq!(code, 0, "{err}");
    let warning = format!(
        "warning: servers/desk.server.yaml: the tool \"export\" is not offered: {reason}\n"
    );
    assert!(err.contains(&warning), "{err}");
    assert!(err.contains("tools locked: get, report\n"), "{err}");
    // It is no difference from the lock.
    let (code, out, err) = locks(&desk, &["--check", "--json"], &variables);
    assert_eq!(code, 0, "{out}{err}");
    let out: Value = serde_json::from_str(&out).unwrap();
    let left_out =
        json!([{"path": "servers/desk.server.yaml", "tool": "export", "reason": reason}]);
    assert_eq!(
        (&out["locked"], &out["left_out"]),
        (&json!(true), &left_out)
    );

    let mut run = desk.command(&["run", "kit", "one", "--locked", "--json"]);
    let run = run.envs(variables).output().unwrap();
    let envelope: Value = serde_json::from_slice(&run.stdout).unwrap();
    assert_eq!(envelope["status"], "complete", "{envelope:#}");
    let id = envelope["run_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--json", "--expand"]);
    frames.is(0).says("\"report\"");
    assert!(!frames.out.contains("\"export\""), "{}", frames.out);
}

#[test]
fn entries_of_allowlists_of_built_in_servers_that_match_no_tool_are_warned_of() {
    let desk = Desk::new();
    let agent = "name: keeper\nversion: 1.0.0\nmodel: std\nprompt: {system: s, user: u}\n\
        servers:\n  - {name: notes, path: ktsu/kv@1.0.0, access: {allowlist: [kv-get, kv-putt]}}\n\
        output: {schema: {type: object}}\n";
    desk.write_file("kit/kit.yaml", "name: kit\nversion: 1.0.0\n");
    desk.write_file("kit/gateway.yaml", GATEWAY);
    desk.write_file(
        "kit/rules.yaml",
        "rules: []\ndefault: {reply: {done: true}}\n",
    );
    desk.write_file("kit/agents/keeper.agent.yaml", agent);
    let flow = "kind: workflow\nname: keep\nversion: 1.0.0\npipeline:\n  \
        - {id: keep, agent: ./agents/keeper.agent.yaml}\n";
    desk.write_file("kit/workflows/keep.workflow.yaml", flow);
    let said = desk.ktsu(&["validate", "kit", "--tools"]);
    said.is(0);
    assert!(
        said.err
            .contains("the allowlist entry \"kv-putt\" matches no tool"),
        "{}",
        said.err
    );
    assert!(!said.err.contains("kv-get\""), "{}", said.err);
}

/// An entry that covers no tool is a slip, or a tool that is gone; tools that no entry names are
/// nobody's loss.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn entries_of_allowlists_that_match_no_tool_are_warned_of() {
    let tools = json!([
        {"name": "get", "inputSchema": {"type": "object"}},
        {"name": "put", "inputSchema": {"type": "object"}},
    ]);
    let server = ToolServer::scripted(tools, |_| Given::text("it")).await;
    let desk = desk(&server.url);
    let listing = |entries: &str| {
        let uses = "path: ../servers/desk.server.yaml\n";
        let access = format!("{uses}    access: {{allowlist: {entries}}}\n");
        let agent = CLERK.replace(uses, &access);
        desk.write_file("kit/agents/clerk.agent.yaml", &agent);
    };
    let variables = [
        ("DESK_KEY", "key-of-the-desk"),
        ("REGION", "eu"),
        ("HOOK", "http://127.0.0.1:9"),
        ("OTHER_KEY", "another-key"),
        ("ADA_TOKEN", "token-of-ada"),
    ];
    let validates = |flags: &[&str]| {
        let arguments = [&["validate", "kit", "--tools"], flags].concat();
        let mut command = desk.command(&arguments);
        let output = command.envs(variables).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        assert!(output.status.success(), "{output:?}");
        (text(output.stdout), text(output.stderr))
    };
    listing("[get, putt, 'send-*']");
    let words = [
        "warning: servers/desk.server.yaml: the allowlist entry \"putt\" matches no tool that the \
         server offers: did you mean put?\n",
        "warning: servers/desk.server.yaml: the allowlist entry \"send-*\" matches no tool that the \
         server offers\n",
    ];
    let (code, _, err) = locks(&desk, &[], &variables);
    assert_eq!(code, 0, "{err}");
    let (_, said) = validates(&[]);
    for words in words {
        assert!(err.contains(words), "{err}");
        assert!(said.contains(words), "{said}");
    }
    let (json, _) = validates(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let entries = [("putt", json!("put")), ("send-*", Value::Null)];
    for (place, (entry, near)) in entries.into_iter().enumerate() {
        let found = &json["tools"]["unmatched"][place];
        assert_eq!((&found["entry"], &found["near"]), (&json!(entry), &near));
    }
    // So does the envelope of a run; its webhook has no receiver here.
    let webhook = "  - {id: tell, webhook: {url: '{{ env.HOOK }}/done'}}\n";
    let flow = "kit/workflows/one.workflow.yaml";
    desk.write_file(flow, &FLOW.replace(webhook, ""));
    let run = |entries: &str| {
        listing(entries);
        let mut run = desk.command(&["run", "kit", "one", "--json"]);
        let run = run.envs(variables).output().unwrap();
        let envelope: Value = serde_json::from_slice(&run.stdout).unwrap();
        assert_eq!(envelope["status"], "complete", "{envelope:#}");
        envelope["warnings"].clone()
    };
    let warnings = run("[get, putt, 'send-*']");
    assert_eq!(warnings.as_array().map(Vec::len), Some(2), "{warnings:#}");
    assert_eq!(warnings[0]["code"], "tool_not_offered");
    assert_eq!(run("[get]"), Value::Null);
    desk.write_file(flow, FLOW);
    // What no entry names gives no warning, and neither does a list that matches.
    listing("[get]");
    let (_, said) = validates(&[]);
    assert!(!said.contains("warning"), "{said}");
    // A server that does not answer is no fault of the kit.
    drop(server);
    let file = "kit/servers/desk.server.yaml";
    let text = std::fs::read_to_string(desk.path().join(file)).unwrap();
    let lines = text.lines().map(|line| match line.starts_with("url:") {
        true => "url: http://127.0.0.1:9/mcp".to_owned(),
        false => line.to_owned(),
    });
    let lines: Vec<String> = lines.collect();
    desk.write_file(file, &(lines.join("\n") + "\n"));
    let (_, said) = validates(&[]);
    assert!(said.contains("servers/desk.server.yaml: "), "{said}");
}
