//! Suites whose runs have a folder of their own.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};

use super::Desk;
use crate::support::not_tested;
use crate::support::tools::{Asked, Given, ToolServer};

/// An agent that writes a file with a tool, where a param says.
pub(super) const KIT: [(&str, &str); 4] = [
    (
        "w/workflows/w.workflow.yaml",
        "kind: workflow\nname: w\nversion: 1.0.0\n\
         params: {schema: {type: object, required: [at], properties: {at: {type: string}, \
         text: {type: string, default: one}}}}\n\
         pipeline: [{id: a, agent: ../agents/writer.agent.yaml, params: {at: '{{ params.at }}', \
         text: '{{ params.text }}'}}]\noutput: {map: {said: '{{ step.a.said }}'}}\n",
    ),
    (
        "w/agents/writer.agent.yaml",
        "name: writer\nversion: 1.0.0\nmodel: std\n\
         params: {schema: {type: object, required: [at, text], properties: {at: {type: string}, text: {type: string}}}}\n\
         prompt: {system: You write., user: 'Write {{ params.text }} to {{ params.at }}/note.txt'}\n\
         servers: [{name: disk, path: ../servers/disk.server.yaml, params: {root: '{{ params.at }}'}}]\n\
         output: {schema: {type: object, properties: {said: {type: string}}}}\n",
    ),
    (
        "w/gateway.yaml",
        "providers: [{name: desk, type: scripted, config: {rules: rules.yaml}}]\n\
         model_groups: [{name: std, models: [desk/m]}]\n",
    ),
    (
        "w/rules.yaml",
        "values:\n  text: {from: user, pattern: '\\AWrite (\\w+) to'}\n  \
         path: {from: user, pattern: ' to (.+)\\z'}\n  said: {from: tool, pattern: '(.+)'}\n\
         rules:\n  - when: {turn: 1}\n    tool_calls: [{name: write, arguments: \
         {path: '{{ path }}', text: '{{ text }}'}}]\n\
         default:\n  reply: {said: '{{ said }}'}\n",
    ),
];

/// Writes what it is asked to, and says where.
fn write(asked: &Asked) -> Given {
    let path = asked.arguments["path"].as_str().unwrap();
    fs::write(path, asked.arguments["text"].as_str().unwrap()).unwrap();
    Given::text(&format!("wrote {path}"))
}

struct Bench {
    desk: Desk,
    server: ToolServer,
}

impl Bench {
    async fn new(spec: &str) -> Self {
        let server = ToolServer::scripted(crate::support::tools::any(&["write"]), write).await;
        let desk = Desk::new();
        for (path, text) in KIT {
            desk.write_file(path, text);
        }
        let file = format!(
            "name: disk\nversion: 1.0.0\nurl: {}\nparams: {{root: {{default: ''}}}}\n",
            server.url
        );
        desk.write_file("w/servers/disk.server.yaml", &file);
        desk.write_file("w/files/a.txt", "first\n");
        desk.write_file("w/evals/w.eval.yaml", spec);
        Self { desk, server }
    }
}

const SPEC: &str = "subject: {params: {at: '{{ workspace }}'}}\nworkspace: {from: ../files}\nreplicas: 3\n\
    matrix: {params.text: [one, two]}\ninvariants:\n  \
    wrote: {description: d, check: {type: file_content, path: note.txt, pattern: '^(one|two)$'}}\n  \
    kept: {description: d, check: {type: file_content, path: a.txt, contains: first}}\n  \
    said: {description: d, check: {type: output, expr: output.said, equals: 'wrote {{ workspace }}/note.txt'}}\n";

#[tokio::test(flavor = "multi_thread")]
async fn each_run_has_a_copy_and_its_record_has_a_reference_in_place_of_the_path() {
    let bench = Bench::new(SPEC).await;
    let said = bench.desk.ktsu(&["eval", "run", "w", "--json"]);
    let report = said.is(0).json();
    assert_eq!(report["replicas"]["passed"], 6, "{report:#}");
    let paths: Vec<Value> = bench
        .server
        .executed()
        .iter()
        .map(|one| one.arguments["path"].clone())
        .collect();
    let different: std::collections::BTreeSet<String> =
        paths.iter().map(Value::to_string).collect();
    assert_eq!(different.len(), 6, "{paths:?}");
    let shown = bench.desk.ktsu(&["runs", "--json"]).is(0).json();
    for run in shown["runs"].as_array().unwrap() {
        let id = run["run_id"].as_str().unwrap();
        let frames = bench.desk.ktsu(&["frames", id, "--json"]).is(0).out.clone();
        let first: Value = serde_json::from_str(frames.lines().next().unwrap()).unwrap();
        assert_eq!(first["data"]["references"], json!(["workspace"]));
        assert!(frames.contains("{{ workspace }}/note.txt"), "{frames}");
        for path in &different {
            let folder = path.trim_matches('"').trim_end_matches("/note.txt");
            assert!(!frames.contains(folder), "{frames}");
        }
    }
    for path in &paths {
        let note = PathBuf::from(path.as_str().unwrap());
        assert!(!note.parent().unwrap().exists(), "{note:?}");
    }
    let original = fs::read_dir(bench.desk.path().join("w/files")).unwrap();
    assert_eq!(original.count(), 1, "the files of the kit are as they were");
    bench.desk.ktsu(&["verify"]).is(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_run_did_to_its_folder_is_recorded_and_proved() {
    let bench = Bench::new(SPEC).await;
    let report = bench
        .desk
        .ktsu(&["eval", "run", "w", "--json"])
        .is(0)
        .json();
    let id = report["eval_id"].as_str().unwrap();
    let frames = bench
        .desk
        .ktsu(&["frames", id, "--type", "scenario.started", "--json"]);
    let frames = frames.is(0).out.clone();
    let changes: Vec<Value> = frames
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["data"]["workspace"].clone())
        .collect();
    assert_eq!(changes.len(), 6);
    for (at, change) in changes.iter().enumerate() {
        let text = if at < 3 { "one" } else { "two" };
        assert_eq!(change["added"]["note.txt"]["text"], text, "{change:#}");
        assert_eq!(
            (&change["modified"], &change["removed"]),
            (&json!({}), &json!([]))
        );
        assert_eq!(change["before"], changes[0]["before"]);
        assert_eq!(change["after"] == changes[0]["after"], at < 3);
        assert_eq!(change["whole"], true);
    }
    bench
        .desk
        .ktsu(&["evidence", "export", id, "-o", "e.tar"])
        .is(0);
    let verified = bench.desk.ktsu(&["evidence", "verify", "e.tar"]);
    verified.is(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_branch_of_such_a_run_calls_no_tool_server_because_the_folder_is_gone() {
    let bench = Bench::new(&SPEC.replace("replicas: 3\n", "").replace(", two]", "]")).await;
    let report = bench
        .desk
        .ktsu(&["eval", "run", "w", "--json"])
        .is(0)
        .json();
    let run = report["scenarios"][0]["run_id"].as_str().unwrap();
    let frames = bench
        .desk
        .ktsu(&["frames", run, "--json"])
        .is(0)
        .out
        .clone();
    let started = frames
        .lines()
        .position(|line| line.contains("\"step.started\""))
        .unwrap();
    let calls = bench.server.asked().len();
    for at in ["0", &started.to_string()] {
        let forked = bench.desk.ktsu(&[
            "fork",
            run,
            "--go",
            "--at",
            at,
            "--kit",
            "w",
            "--effects",
            "execute",
            "--json",
        ]);
        let shown = format!("{}{}", forked.out, forked.err);
        assert!(shown.contains("reference_gone"), "{at}: {shown}");
    }
    assert_eq!(bench.server.asked().len(), calls, "nothing is called");
    bench.desk.ktsu(&["verify"]).is(0);
}

#[test]
fn a_setup_runs_once_and_what_it_made_is_in_every_copy() {
    let desk = Desk::new();
    let flow = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n  \
        - {id: t, transform: {inputs: [{from: '{a: `1`}'}], ops: []}}\n";
    desk.write_kit("w", flow);
    desk.write_file("w/files/a.txt", "first\n");
    let spec = |setup: &str| {
        let text = format!(
            "subject: {{}}\nworkspace: {{from: ../files, setup: '{setup}', limits: {{disk_mb: 2000}}}}\nreplicas: 2\ninvariants:\n  \
             made: {{description: d, check: {{type: command_exit, command: 'grep -q more a.txt && echo x >> own'}}}}\n  \
             own: {{description: d, check: {{type: file_content, path: own, pattern: '\\Ax\\n\\z'}}}}\n"
        );
        desk.write_file("w/evals/w.eval.yaml", &text);
    };
    spec("echo more >> a.txt");
    let said = desk.ktsu(&["eval", "run", "w"]);
    if said.err.contains("bubblewrap") || said.err.contains("sandbox") {
        return not_tested(&format!("a setup in the sandbox: {}", said.err));
    }
    said.is(0);
    assert_eq!(
        fs::read_to_string(desk.path().join("w/files/a.txt")).unwrap(),
        "first\n"
    );
    spec("echo broken >&2; exit 3");
    let said = desk.ktsu(&["eval", "run", "w"]);
    assert!(
        said.is(2)
            .err
            .contains("the setup of the workspace ended with exit code 3:\nbroken"),
        "{}",
        said.err
    );
    spec("truncate -s 600M a b");
    let said = desk.ktsu(&["eval", "run", "w"]);
    let words = "leaves what cannot be copied for runs: it has more than 1024 MiB";
    assert!(said.is(2).err.contains(words), "{}", said.err);
    let evals = desk.ktsu(&["evals", "--json"]).is(0).json();
    assert_eq!(
        evals["evals"].as_array().unwrap().len(),
        1,
        "nothing is recorded of the others"
    );
    spec("echo more >> a.txt");
    let said = desk.ktsu(&["eval", "run", "w", "--no-sandbox"]);
    said.is(0).says("programs of checks ran without a sandbox");
}

#[test]
fn what_leads_out_of_the_kit_is_refused_before_anything_runs() {
    let desk = Desk::new();
    let flow = "kind: workflow\nname: w\nversion: 1.0.0\npipeline:\n  \
        - {id: t, transform: {inputs: [{from: '{a: `1`}'}], ops: []}}\n";
    desk.write_kit("w", flow);
    desk.write_file("outside/a.txt", "x");
    let checks = "invariants:\n  a: {description: d, check: {type: file_exists, path: a.txt}}\n";
    for (workspace, words) in [
        (
            "workspace: {from: ../../outside}\n",
            "is outside of the kit",
        ),
        ("workspace: {from: ../files}\n", "there is no folder"),
        (
            "",
            "checks of files and programs need a workspace, and runs have none",
        ),
    ] {
        let text = format!("subject: {{}}\n{workspace}{checks}");
        desk.write_file("w/evals/w.eval.yaml", &text);
        let said = desk.ktsu(&["eval", "run", "w"]);
        assert!(said.is(2).err.contains(words), "{words}: {}", said.err);
    }
    assert!(desk.ktsu(&["runs"]).out.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_whose_folder_went_with_a_killed_process_is_begun_anew() {
    let spec = SPEC
        .replace("replicas: 3\n", "")
        .replace("one, two", "one, two, three");
    let spec = spec.replace("one|two", "one|two|three");
    let bench = Bench::new(&spec).await;
    bench
        .server
        .follow(|asked| match asked.arguments["text"].as_str() {
            Some("two") => write(asked).when("open"),
            _ => write(asked),
        });
    let mut child = bench
        .desk
        .command(&["eval", "run", "w", "--parallel", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    bench.server.until(|asked| asked.len() == 2).await;
    child.kill().unwrap();
    child.wait().unwrap();
    bench.server.open("open");
    let evals = bench.desk.ktsu(&["evals", "--json"]).is(0).json();
    let id = evals["evals"][0]["eval_id"].as_str().unwrap().to_owned();
    bench.desk.write_file("w/files/a.txt", "first and more\n");
    let other = bench.desk.ktsu(&["eval", "resume", &id, "--kit", "w"]);
    let words = "runs begin with other files than when the eval was begun";
    assert!(other.is(2).err.contains(words), "{}", other.err);
    bench.desk.write_file("w/files/a.txt", "first\n");
    let resumed = bench
        .desk
        .ktsu(&["eval", "resume", &id, "--kit", "w", "--json"]);
    let report = resumed.is(0).json();
    assert_eq!(report["passed"], 3, "{report:#}");
    let mut written: Vec<String> = bench
        .server
        .executed()
        .iter()
        .map(|one| one.arguments["text"].as_str().unwrap().to_owned())
        .collect();
    written.sort();
    assert_eq!(written, ["one", "three", "two", "two"]);
    bench.desk.ktsu(&["verify"]).is(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_runs_are_scored_again_with_what_they_left_and_nothing_runs() {
    let bench = Bench::new(SPEC).await;
    let first = bench
        .desk
        .ktsu(&["eval", "run", "w", "--json"])
        .is(0)
        .json();
    let id = first["eval_id"].as_str().unwrap();
    let calls = bench.server.asked().len();
    let stricter = SPEC.replace("'^(one|two)$'", "'^one$'");
    bench.desk.write_file("w/evals/strict.eval.yaml", &stricter);
    let spec = ["--spec", "w/evals/strict.eval.yaml"];
    let score = |options: &[&str]| {
        let arguments = ["eval", "score", id, "--kit", "w", "--json"];
        bench.desk.ktsu(&[&arguments, options].concat())
    };
    let second = score(&spec).is(1).json();
    assert_eq!(
        second["replicas"],
        json!({"errors": 0, "failed": 3, "passed": 3})
    );
    let run = |report: &Value, replica: usize| {
        report["scenarios"][1]["replicas"][replica]["run_id"].clone()
    };
    for replica in 0..3 {
        assert_eq!(run(&first, replica), run(&second, replica));
    }
    assert_eq!(score(&[]).is(0).json()["passed"], 2);
    assert_eq!(bench.server.asked().len(), calls, "nothing runs");
    // What runs began with is another now.
    bench.desk.write_file("w/files/a.txt", "changed\n");
    let third = score(&spec).is(2).json();
    assert_eq!(third["replicas"]["errors"], 6);
    assert_eq!(third["scenarios"][0]["replicas"][0]["error"], "not_kept");
    let fewer = SPEC.replace("replicas: 3", "replicas: 2");
    bench.desk.write_file("w/evals/fewer.eval.yaml", &fewer);
    let refused = score(&["--spec", "w/evals/fewer.eval.yaml"]);
    assert!(
        refused
            .is(2)
            .err
            .contains("does not have the scenarios and replicas of the eval"),
        "{}",
        refused.err
    );
    assert_eq!(bench.server.asked().len(), calls, "nothing runs");
    bench.desk.ktsu(&["verify"]).is(0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_has_no_verdict_runs_again_and_the_rest_is_judged_by_what_it_left() {
    let spec = SPEC.replace("replicas: 3\n", "limits: {timeout: 1s}\n");
    let bench = Bench::new(&spec).await;
    bench
        .server
        .follow(|asked| match asked.arguments["text"].as_str() {
            Some("two") => write(asked).when("open"),
            _ => write(asked),
        });
    let first = bench
        .desk
        .ktsu(&["eval", "run", "w", "--json"])
        .is(2)
        .json();
    assert_eq!(first["scenarios"][1]["error"], "timeout", "{first:#}");
    bench.server.open("open");
    let id = first["eval_id"].as_str().unwrap();
    let second = bench
        .desk
        .ktsu(&["eval", "retry", id, "--kit", "w", "--json"])
        .is(0)
        .json();
    let run = |report: &Value, at: usize| report["scenarios"][at]["run_id"].clone();
    assert_eq!(run(&first, 0), run(&second, 0));
    assert_ne!(run(&first, 1), run(&second, 1));
    bench.desk.ktsu(&["verify"]).is(0);
}
