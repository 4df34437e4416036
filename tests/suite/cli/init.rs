//! `ktsu init` and `ktsu completions`: the first minutes.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::json;

use super::Desk;

/// Every file below a folder, with its text.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![dir.to_owned()];
    while let Some(folder) = waiting.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => waiting.push(path),
                false => {
                    let name = path.strip_prefix(dir).unwrap().display().to_string();
                    found.insert(name, std::fs::read(&path).unwrap());
                }
            }
        }
    }
    found
}

#[test]
fn a_new_kit_is_valid_runs_is_locked_and_tests_itself() {
    let desk = Desk::new();
    let said = desk.ktsu(&["init", "My First Kit"]);
    said.is(0)
        .says("My First Kit/workflows/my-first-kit.workflow.yaml")
        .warns("cd 'My First Kit'")
        .warns("ktsu run .");
    let kit = "My First Kit";
    desk.ktsu(&["validate", kit])
        .is(0)
        .says("kit my-first-kit: 1 workflow, valid\n");
    let environment = format!("{kit}/environments/local.env.yaml");
    desk.ktsu(&["validate", kit, "--env", &environment]).is(0);
    let baselines = format!("{kit}/baselines");
    desk.ktsu(&["test", &baselines, "--kit", kit])
        .is(0)
        .says("pass  1 of 1 clean");
    desk.ktsu(&["lock", kit]).is(0);
    let said = desk.ktsu(&["run", kit, "--locked", "--json"]);
    let envelope = said.is(0).json();
    assert_eq!(envelope["output"]["topic"], "problem");
    assert_eq!(envelope["totals"]["llm_calls"], 1);
    let run = envelope["run_id"].as_str().unwrap();
    desk.ktsu(&["capture", run, "-o", "more"]).is(0);
    desk.ktsu(&["test", "more", &baselines, "--kit", kit, "--locked"])
        .is(0)
        .says("pass  2 of 2 clean");
    let asked = r#"{"message": "When do you open?"}"#;
    let said = desk.ktsu(&["run", kit, "--input", asked, "--json"]);
    assert_eq!(said.is(0).json()["output"]["topic"], "question");
}

#[test]
fn a_new_kit_with_an_eval_judges_its_own_run() {
    let desk = Desk::new();
    let said = desk.ktsu(&["init", "desk", "--eval"]);
    said.is(0)
        .says("desk/evals/desk.eval.yaml")
        .warns("ktsu check RUN --spec evals/desk.eval.yaml");
    desk.ktsu(&["validate", "desk"])
        .is(0)
        .says("kit desk: 1 workflow, valid\n");
    let run = desk.ktsu(&["run", "desk", "--json"]).is(0).json();
    let run = run["run_id"].as_str().unwrap();
    let checked = desk.ktsu(&["check", run, "--spec", "desk/evals/desk.eval.yaml"]);
    checked
        .is(0)
        .says("passed: 1 reaches 0.8")
        .warns("recorded as eval_");
}

/// Comments begin with a space, examples with a key or further in.
#[test]
fn the_examples_in_a_new_suite_work_once_they_are_uncommented() {
    let desk = Desk::new();
    desk.ktsu(&["init", "desk", "--eval"]).is(0);
    // Without programs on the path there is no sandbox.
    desk.ktsu(&["eval", "run", "desk"]).is(0).says("2 passed");
    let path = "desk/evals/desk.eval.yaml";
    let text = std::fs::read_to_string(desk.path().join(path)).unwrap();
    let example = |line: &str| -> Option<String> {
        let rest = line.strip_prefix('#')?;
        (!rest.starts_with(' ') || rest.starts_with("  ")).then(|| rest.to_owned())
    };
    let lines = text.lines();
    let all: Vec<String> = lines
        .map(|line| example(line).unwrap_or_else(|| line.to_owned()))
        .collect();
    desk.write_file(path, &(all.join("\n") + "\n"));
    desk.ktsu(&["validate", "desk"]).is(0);
    let report = desk.ktsu(&["eval", "run", "desk", "--json"]).is(0).json();
    let checks = report["scenarios"][0]["invariants"].clone();
    let names: Vec<&str> = checks
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it["name"].as_str().unwrap())
        .collect();
    for name in ["no_files", "no_mail", "friendly"] {
        assert!(names.contains(&name), "{names:?}");
    }
    desk.ktsu(&["verify"]).is(0);
}

/// Nothing is retried unless a file says so (decision S5), so a new kit says so.
#[test]
fn a_new_kit_falls_back_and_retries_and_says_why() {
    let desk = Desk::new();
    desk.ktsu(&["init", "kit"]).is(0);
    let gateway = std::fs::read_to_string(desk.path().join("kit/gateway.yaml")).unwrap();
    for line in [
        "    strategy: fallback",
        "    retry: {attempts: 3, backoff: 1s, on: [rate_limited, server_error, timeout, unreachable]}",
        "    # Nothing is retried unless a file says so. Here: up to 3 attempts, with pauses of 1 s and 2 s,",
    ] {
        assert!(gateway.lines().any(|one| one == line), "{line}\n{gateway}");
    }
    desk.ktsu(&["run", "kit", "--json"]).is(0);
}

#[test]
fn what_is_said_next_works_as_it_is_said() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path().join("here")).unwrap();
    let said = desk.ktsu(&["init", "here", "--json"]).is(0).json();
    assert_eq!(said["kit"], "here");
    let next = said["next"].as_array().unwrap();
    assert_eq!(next[0], "cd here");
    for command in &next[1..] {
        let command = command.as_str().unwrap();
        let words: Vec<&str> = command.split(' ').collect();
        assert_eq!(words[0], "ktsu");
        let mut child = desk.command(&words[1..]);
        let output = child
            .current_dir(desk.path().join("here"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{command}: {output:?}");
    }
    let listed: Vec<&str> = said["files"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| it.as_str().unwrap())
        .collect();
    for path in listed {
        assert!(desk.path().join("here").join(path).is_file(), "{path}");
    }
    // What running leaves behind is nothing to keep under version control.
    assert!(desk.path().join("here/.ktsu").is_dir());
    let ignored = std::fs::read_to_string(desk.path().join("here/.gitignore")).unwrap();
    assert!(ignored.lines().any(|line| line == ".ktsu/"));
}

#[test]
fn nothing_that_is_there_is_written_over_and_half_a_kit_is_never_left() {
    let names = {
        let desk = Desk::new();
        let said = desk.ktsu(&["init", "kit", "--json"]).is(0).json();
        said["files"].as_array().unwrap().clone()
    };
    assert!(names.len() >= 8);
    for name in names {
        let desk = Desk::new();
        let path = format!("kit/{}", name.as_str().unwrap());
        desk.write_file(&path, "mine");
        let before = files(desk.path());
        desk.ktsu(&["init", "kit"])
            .is(2)
            .warns(&path)
            .warns("already exists; nothing was written");
        assert_eq!(files(desk.path()), before);
    }
    let desk = Desk::new();
    desk.write_file("kit", "a file");
    desk.ktsu(&["init", "kit"]).is(2).warns("cannot write");
}

#[cfg(unix)]
#[test]
fn no_file_of_a_new_kit_goes_through_a_link() {
    for (link, target) in [("workflows", "elsewhere"), ("README.md", "nowhere")] {
        let desk = Desk::new();
        std::fs::create_dir_all(desk.path().join("elsewhere")).unwrap();
        std::fs::create_dir_all(desk.path().join("kit")).unwrap();
        let target = desk.path().join(target);
        std::os::unix::fs::symlink(&target, desk.path().join("kit").join(link)).unwrap();
        desk.ktsu(&["init", "kit"])
            .is(2)
            .warns("nothing was written");
        assert_eq!(files(&desk.path().join("elsewhere")), BTreeMap::new());
        assert!(!desk.path().join("nowhere").exists());
    }
}

#[test]
fn every_shell_gets_a_script_that_knows_the_commands() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let said = desk.ktsu(&["completions", shell]);
        for command in ["run", "lock", "init", "completions", "evidence", "replay"] {
            said.is(0).says(command);
        }
        // Long flags stand in some with and in some without their dashes.
        said.says("locked").says("against");
    }
    let script = desk.ktsu(&["completions", "bash"]).out;
    let bash = Command::new("bash").arg("-n").stdin(Stdio::piped()).spawn();
    let mut bash = bash.expect("bash is here");
    bash.stdin
        .take()
        .unwrap()
        .write_all(script.as_bytes())
        .unwrap();
    assert!(bash.wait().unwrap().success());
    let said = desk.ktsu(&["completions", "bash", "--json"]).is(0).json();
    assert_eq!(said["script"], json!(script));
    desk.ktsu(&["completions", "tcsh"]).is(2);
}
