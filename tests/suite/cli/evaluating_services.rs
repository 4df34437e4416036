//! Suites with programs beside each run: tool servers that work in its folder.

use std::fs;
use std::process::Stdio;

use serde_json::{Value, json};

use super::evaluating_workspaces::KIT;
use super::{Desk, Said, has_process};
use crate::support::{not_tested, until};

/// A program that speaks MCP, a message a line, and offers a tool. `setup` is what it does first, `call` what it does
/// with `given`, the arguments of a call: it leaves a text in `said`. Between its messages are lines that are none.
pub(super) fn program(setup: &str, call: &str) -> String {
    let call: String = call
        .lines()
        .map(|line| format!("        {line}\n"))
        .collect();
    PROGRAM
        .replace("SETUP", setup)
        .replace("        CALL\n", &call)
}

const PROGRAM: &str = r#"
import json, os, sys
SETUP
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked or "method" not in asked:
        continue
    def say(result):
        print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], "result": result}), flush=True)
    if asked["method"] == "initialize":
        print("a line that is no message", flush=True)
        print(json.dumps({"jsonrpc": "2.0", "id": 77, "method": "ping"}), flush=True)
        say({"protocolVersion": asked["params"]["protocolVersion"], "capabilities": {"tools": {}},
             "serverInfo": {"name": "disk", "version": "1"}})
    elif asked["method"] == "tools/list":
        say({"tools": [{"name": "write", "inputSchema": {"type": "object"}}]})
    elif asked["method"] == "tools/call":
        given = asked["params"]["arguments"]
        CALL
        say({"content": [{"type": "text", "text": said}]})
"#;

/// Writes a file below the folder that the program is given.
const WRITE: &str = r#"path = os.path.join(root, given["path"])
with open(path, "a") as file:
    file.write(given["text"])
said = "wrote " + path"#;

const CHECKS: &str = "invariants:\n  \
    wrote: {description: d, check: {type: file_content, path: note.txt, pattern: '\\Aone\\z'}}\n  \
    said: {description: d, check: {type: output, expr: output.said, equals: 'wrote {{ workspace }}/note.txt'}}\n";

const SERVICE: &str = "services: {disk: {type: mcp, from: ../program, command: [python3, '{{ program }}/server.py', \
    '{{ workspace }}']}}\n";

/// A desk with a kit whose tool server is out of reach, and a suite with a service in place of it. `before`
/// is what the service does before each call.
fn desk(before: &str, suite: &str) -> Desk {
    let desk = Desk::new();
    for (path, text) in KIT {
        desk.write_file(path, text);
    }
    let file = "name: disk\nversion: 1.0.0\nurl: http://127.0.0.1:9/mcp\n\
        params: {root: {default: ''}}\n";
    desk.write_file("w/servers/disk.server.yaml", file);
    desk.write_file("w/files/a.txt", "first\n");
    let program = program("root = sys.argv[1]", &format!("{before}\n{WRITE}"));
    desk.write_file("w/program/server.py", &program);
    let spec = format!(
        "subject: {{params: {{at: '{{{{ workspace }}}}'}}}}\nworkspace: {{from: ../files}}\n{suite}{CHECKS}"
    );
    desk.write_file("w/evals/w.eval.yaml", &spec);
    desk
}

/// What the suite gives; none where there is no sandbox, which is said.
fn run(desk: &Desk) -> Option<Said> {
    let said = desk.ktsu(&["eval", "run", "w", "--json"]);
    if said.err.contains("there is no sandbox") || said.err.contains("sandbox does not work") {
        not_tested(&format!("services of suites: {}", said.err));
        return None;
    }
    Some(said)
}

#[test]
fn a_service_works_in_the_folder_of_its_run_and_ends_with_it() {
    let suite = format!("replicas: 3\n{SERVICE}")
        .replace("'{{ workspace }}'", "'{{ workspace }}', mark86397");
    let desk = desk("pass", &suite);
    let Some(said) = run(&desk) else { return };
    let report = said.is(0).json();
    assert_eq!(report["replicas"]["passed"], 3, "{report:#}");
    assert!(!has_process("mark86397"));
    let runs = desk.ktsu(&["runs", "--json"]).is(0).json();
    for run in runs["runs"].as_array().unwrap() {
        let id = run["run_id"].as_str().unwrap();
        let frames = desk.ktsu(&["frames", id, "--json"]).is(0).out.clone();
        let first: Value = serde_json::from_str(frames.lines().next().unwrap()).unwrap();
        assert_eq!(
            first["data"]["references"],
            json!(["servers.disk", "workspace"])
        );
        assert!(!frames.contains("/work/"), "{frames}");
    }
    let without = desk
        .ktsu(&["eval", "run", "w", "--no-sandbox", "--json"])
        .is(0)
        .json();
    assert_eq!(
        (&without["sandbox"], &without["passed"]),
        (&json!("none"), &json!(1))
    );
    assert!(!has_process("mark86397"));
    desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_service_can_have_params_of_its_scenario_in_its_command() {
    let suite = format!("matrix: {{params.text: [one, two]}}\n{SERVICE}").replace(
        "'{{ workspace }}'",
        "'{{ params.at }}', 'as {{ params.text }}'",
    );
    let desk = desk(
        "given = asked['params']['arguments']; given['text'] = sys.argv[2]",
        &suite,
    );
    let Some(said) = run(&desk) else { return };
    let id = said.json()["eval_id"].as_str().unwrap().to_owned();
    let frames = desk.ktsu(&["frames", &id, "--type", "scenario.started", "--json"]);
    let notes = frames.is(0).out.lines().map(|line| {
        let frame: Value = serde_json::from_str(line).unwrap();
        frame["data"]["workspace"]["added"]["note.txt"]["text"].clone()
    });
    assert_eq!(notes.collect::<Vec<_>>(), ["as one", "as two"]);
}

#[test]
fn a_service_reaches_nothing_but_the_folder_of_its_run() {
    let desk = desk(
        "given = asked['params']['arguments']; given['text'] = ' '.join(str(os.path.exists(one)) for one in \
         [os.path.expanduser('~root'), '/etc/shadow', '/program/server.py', root + '/a.txt'])",
        SERVICE,
    );
    let Some(said) = run(&desk) else { return };
    let report = said.is(1).json();
    let id = report["eval_id"].as_str().unwrap();
    let frames = desk.ktsu(&["frames", id, "--type", "scenario.started", "--json"]);
    let frame: Value = serde_json::from_str(frames.is(0).out.trim()).unwrap();
    let note = &frame["data"]["workspace"]["added"]["note.txt"]["text"];
    assert_eq!(note, "False False True True");
}

#[test]
fn a_service_that_ends_hangs_or_never_begins_leaves_a_verdict() {
    for (before, suite, code, words) in [
        (
            "sys.exit('out of ink')",
            SERVICE.to_owned(),
            1,
            "it ended with exit code 1: out of ink",
        ),
        (
            "os.write(1, b'x' * (17 << 20))",
            SERVICE.to_owned(),
            1,
            "the service disk does not answer: it sent a message of more than 16 MiB",
        ),
        (
            "while True: os.write(1, b'{\"id\":1,\"method\":\"ping\",\"jsonrpc\":\"2.0\"}\\n')",
            SERVICE.to_owned(),
            1,
            "the service disk does not answer: it does not read its input",
        ),
        (
            "pass",
            SERVICE.replace("server.py", "missing.py"),
            1,
            "it ended with exit code 2",
        ),
        (
            "import time; time.sleep(86396.5)",
            format!("{SERVICE}limits: {{timeout: 2s}}\n"),
            2,
            "timeout",
        ),
        (
            "held = bytearray(256 << 20)",
            SERVICE.replace("type: mcp,", "type: mcp, limits: {memory_mb: 64},"),
            1,
            "the service disk does not answer: it ended with exit code 1: MemoryError",
        ),
    ] {
        let desk = desk(before, &suite);
        let Some(said) = run(&desk) else { return };
        let report = said.is(code).json();
        let run = report["scenarios"][0]["run_id"].as_str().unwrap();
        let frames = desk.ktsu(&["frames", run, "--json"]).is(0).out.clone();
        let shown = format!("{report}{frames}{}", said.err);
        assert!(shown.contains(words), "{words}: {report:#}\n{frames}");
        assert!(!has_process("86396.5"));
        desk.ktsu(&["verify"]).is(0);
    }
}

#[test]
fn services_that_cannot_be_are_refused_before_anything_runs() {
    for (suite, words) in [
        (
            SERVICE.replace("disk:", "drive:"),
            "in place of the tool server drive, which the kit does not have",
        ),
        (
            "services: {cache: {type: redis}}\n".to_owned(),
            "the service cache is of the type \"redis\", which is not supported yet",
        ),
        (
            SERVICE.replace("../program", "../../program"),
            "there is no folder",
        ),
    ] {
        let desk = desk("pass", &suite);
        let said = desk.ktsu(&["eval", "run", "w"]);
        assert!(said.is(2).err.contains(words), "{words}: {}", said.err);
        let evals = desk.ktsu(&["evals", "--json"]);
        assert!(
            evals.code != 0 || evals.json()["evals"] == json!([]),
            "{}",
            evals.out
        );
    }
}

#[test]
fn the_rest_of_an_eval_has_a_sandbox_if_the_beginning_had_one() {
    let suite = format!("replicas: 2\nlimits: {{cost_usd: 0}}\n{SERVICE}");
    let desk = desk("pass", &suite);
    let Some(said) = run(&desk) else { return };
    let id = said.is(2).json()["eval_id"].as_str().unwrap().to_owned();
    let resume = |options: &[&str]| {
        let arguments = [
            "eval",
            "resume",
            &id,
            "--kit",
            "w",
            "--cost-limit",
            "9",
            "--json",
        ];
        desk.ktsu(&[&arguments, options].concat())
    };
    let refused = resume(&["--no-sandbox"]);
    let words = "the eval was begun with a sandbox, so the rest of it has one, too";
    assert!(refused.is(2).err.contains(words), "{}", refused.err);
    assert_eq!(resume(&[]).is(0).json()["passed"], 1);
    let without = desk.ktsu(&["eval", "run", "w", "--no-sandbox"]);
    assert!(
        without.is(2).err.contains("--no-sandbox"),
        "{}",
        without.err
    );
}

#[test]
fn a_service_without_a_sandbox_ends_even_if_ktsu_is_killed() {
    // The service has a process of its own, which outlives its parent.
    let desk = desk("pass", "");
    let begun = desk.path().join("begun");
    let command = format!("sleep 86389.5 & touch {}; sleep 86388.5", begun.display());
    let service = format!("services: {{disk: {{type: mcp, command: [sh, -c, '{command}']}}}}\n");
    let spec = format!(
        "subject: {{params: {{at: '{{{{ workspace }}}}'}}}}\nworkspace: {{from: ../files}}\n{service}{CHECKS}"
    );
    desk.write_file("w/evals/w.eval.yaml", &spec);
    desk.write_file("tmp/other", "");
    let folders = || fs::read_dir(desk.path().join("tmp")).unwrap().count() - 1;
    let command = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.env("TMPDIR", desk.path().join("tmp"));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command
    };
    let mut killed = command(&["eval", "run", "w", "--no-sandbox"])
        .spawn()
        .unwrap();
    until("the service does not begin", || begun.exists());
    assert!(has_process("86389.5") && has_process("86388.5"));
    killed.kill().unwrap();
    killed.wait().unwrap();
    until("the service does not end", || {
        !has_process("86389.5") && !has_process("86388.5")
    });
    // What it has left is removed by the next command that runs programs.
    assert!(folders() > 0);
    let suite = spec
        .replace(&service, "")
        .replace("workspace: {", "workspace: {setup: exit 1, ");
    desk.write_file("w/evals/w.eval.yaml", &suite);
    let status = command(&["eval", "run", "w", "--no-sandbox"]).status();
    assert_eq!((status.unwrap().code(), folders()), (Some(2), 0));
}

#[test]
fn a_verdict_is_judged_again_without_what_its_run_left() {
    let before =
        "[open(os.path.join(root, 'ab'[one]), 'w').write(str(one) * 900_000) for one in range(2)]";
    let desk = desk(before, SERVICE);
    let checks = "invariants: {said: {description: d, check: {type: output, expr: output.said}}}\n";
    let spec = format!(
        "subject: {{params: {{at: '{{{{ workspace }}}}'}}}}\nworkspace: {{from: ../files}}\n{SERVICE}{checks}"
    );
    desk.write_file("w/evals/w.eval.yaml", &spec);
    let Some(said) = run(&desk) else { return };
    let report = said.is(0).json();
    let run = report["scenarios"][0]["run_id"].as_str().unwrap();
    desk.ktsu(&["evidence", "export", run, "--evals", "-o", "a.tar"])
        .is(0);
    assert!(fs::metadata(desk.path().join("a.tar")).unwrap().len() > 1_800_000);
    let verify = ["evidence", "verify", "a.tar", "--run-size", "1"];
    desk.ktsu(&[&verify[..], &["--require", "evals"]].concat())
        .is(0)
        .says("1 verdict follows from 1 check made again");
}
