//! Checks that run programs: in a sandbox, beside a copy of the workspace, within limits.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Desk, Said, has_process, kit, repository, send};
use crate::support::{not_tested, until};

/// A finished run of the kit triage, and a workspace with a file.
struct Bench {
    desk: Desk,
    run: String,
}

impl Bench {
    /// None where there is no sandbox, which is said.
    fn new() -> Option<Self> {
        let bench = Self::without_sandbox();
        let probe =
            "invariants: {a: {description: d, check: {type: command_exit, command: 'true'}}}";
        bench.desk.write_file("probe.eval.yaml", probe);
        let said = bench.check_by("probe.eval.yaml", &["--no-record"]);
        if said.code != 0 {
            not_tested(&format!("checks that run programs: {}", said.err));
            return None;
        }
        Some(bench)
    }

    fn without_sandbox() -> Self {
        let desk = Desk::new();
        let ticket = repository().join("kits/triage/examples/ticket.json");
        let input = format!("@{}", ticket.display());
        let ran = desk.ktsu(&["run", &kit("triage"), "ticket", "--input", &input, "--json"]);
        let run = ran.is(0).json()["run_id"].as_str().unwrap().to_owned();
        desk.write_file("left/a.txt", "first\n");
        Self { desk, run }
    }

    fn check_by(&self, spec: &str, options: &[&str]) -> Said {
        let arguments = ["check", &self.run, "--spec", spec, "--workspace", "left"];
        self.desk.ktsu(&[&arguments, options].concat())
    }

    /// The results of checks, in order.
    fn results(&self, checks: &[&str], options: &[&str]) -> Vec<Value> {
        let lines: String = (0..)
            .zip(checks)
            .map(|(at, check)| format!("  c{at}: {{description: d, check: {check}}}\n"))
            .collect();
        let text = format!("invariants:\n{lines}scoring: {{pass_threshold: 0}}\n");
        self.desk.write_file("evals/spec.eval.yaml", &text);
        let said = self.check_by("evals/spec.eval.yaml", &[&["--json"], options].concat());
        let report: Value =
            serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:#?}"));
        report["results"].as_array().unwrap().clone()
    }
}

fn shown(results: &[Value]) -> Vec<(&str, &str)> {
    let each = results.iter().map(|one| {
        (
            one["status"].as_str().unwrap(),
            one["reason"].as_str().unwrap(),
        )
    });
    each.collect()
}

/// Everything in a folder: names, links, texts.
fn files(folder: &Path) -> Vec<(String, String)> {
    let mut all: Vec<_> = fs::read_dir(folder)
        .unwrap()
        .flatten()
        .map(|entry| {
            let path = entry.path();
            let text = match fs::read_link(&path) {
                Ok(target) => target.display().to_string(),
                Err(_) => fs::read_to_string(&path).unwrap_or_default(),
            };
            (entry.file_name().to_string_lossy().into_owned(), text)
        })
        .collect();
    all.sort();
    all
}

#[test]
fn commands_are_run_in_a_copy_that_checks_share_and_verdicts_are_recorded() {
    let Some(bench) = Bench::new() else { return };
    let results = bench.results(
        &[
            "{type: command_exit, command: 'grep -q first a.txt'}",
            "{type: command_exit, command: 'echo second > b.txt; rm a.txt; exit 4', exit_code: 4}",
            "{type: file_content, path: b.txt, contains: second}",
            "{type: file_absent, path: a.txt}",
            "{type: command_exit, command: 'echo out; echo more >&2; exit 1'}",
            "{type: command_exit, command: 'sleep 86398.1', limits: {time: 200ms}}",
        ],
        &[],
    );
    assert_eq!(
        shown(&results),
        [
            ("passed", "exit code 0"),
            ("passed", "exit code 4"),
            ("passed", "b.txt is as expected"),
            ("passed", "a.txt does not exist"),
            ("failed", "exit code 1, expected 0; it printed:\nout\nmore"),
            ("error", "the program was ended: it took longer than 200ms"),
        ]
    );
    assert!(!has_process("86398.1"));
    let left = files(&bench.desk.path().join("left"));
    assert_eq!(left, [("a.txt".to_owned(), "first\n".to_owned())]);
    let said = bench.check_by("evals/spec.eval.yaml", &[]);
    said.is(2)
        .says("exit code 1, expected 0; it printed:\n    out\n    more\n");
    assert!(!said.out.contains("sandbox"), "{}", said.out);
    bench
        .desk
        .ktsu(&["verify"])
        .is(0)
        .says("checks of what is not in the run");
}

#[test]
fn hostile_programs_end_by_their_limits_and_change_nothing_outside_of_the_copy() {
    let Some(bench) = Bench::new() else { return };
    let root = bench.desk.path();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let port = listener.local_addr().unwrap().port();
    bench.desk.write_file("outside.txt", "secret");
    symlink(root.join("outside.txt"), root.join("left/link")).unwrap();
    let before = files(root);
    let outside = root.display();
    let reads = format!(
        "cat /etc/shadow {outside}/outside.txt {outside}/ktsu.db link $HOME/.ssh/* && exit 9; \
         ls {outside} && exit 9; echo changed > link; exit 0"
    );
    let calls = format!("bash -c 'exec 3<>/dev/tcp/127.0.0.1/{port}' && exit 9; exit 0");
    let results = bench.results(
        &[
            "{type: command_exit, command: \"sh -c 'while :; do sleep 86398.2 & done'; exec sleep 86398.2\", limits: {processes: 20, time: 5s}}",
            "{type: command_exit, command: 'exec cat /dev/zero > large', limits: {disk_mb: 8, time: 10s}}",
            &format!("{{type: command_exit, command: {}}}", json!(reads)),
            &format!("{{type: command_exit, command: {}}}", json!(calls)),
            "{type: command_exit, command: 'head -c 1G /dev/zero; exit 1'}",
            "{type: command_exit, command: 'setsid sleep 86398.2 & nohup sleep 86398.2 & exit 0'}",
            "{type: command_exit, command: 'rm -rf /work/* /work/.* /usr /check /etc 2>/dev/null; exit 0'}",
            "{type: command_exit, command: 'test -z \"$(ls -A)\"'}",
            "{type: command_exit, command: 'ln -s /etc/passwd out; ln -s / root'}",
            "{type: file_content, path: root/etc/passwd, contains: root}",
        ],
        &[],
    );
    let shown = shown(&results);
    let of = |at: usize| (shown[at].0, &shown[at].1[..shown[at].1.len().min(80)]);
    assert_eq!(of(0).0, "error");
    assert!(shown[0].1.contains("had 20 processes"), "{:?}", of(0));
    assert_eq!(of(1).0, "error");
    assert!(
        of(1)
            .1
            .starts_with("the program was ended: it wrote more than 8 MiB"),
        "{:?}",
        of(1)
    );
    for at in [2, 3, 5, 6, 7, 8] {
        assert_eq!(of(at), ("passed", "exit code 0"), "{at}");
    }
    assert_eq!(shown[4].0, "failed");
    assert!(shown[4].1.len() < 5_000, "{}", shown[4].1.len());
    assert_eq!(
        of(9),
        ("error", "root/etc/passwd leads out of the workspace")
    );
    assert!(listener.accept().is_err());
    assert!(!has_process("86398.2"));
    let now = files(root);
    let names = |all: &[(String, String)]| {
        let own = |name: &&(String, String)| !name.0.contains("ktsu") && name.0 != "evals";
        all.iter().filter(own).cloned().collect::<Vec<_>>()
    };
    assert_eq!(names(&now), names(&before));
    assert_eq!(
        fs::read_to_string(root.join("left/a.txt")).unwrap(),
        "first\n"
    );
}

const SCRIPT: &str = r#"
import json, os, sys
context = json.load(sys.stdin)
sys.stderr.write("for people only\n")
trace = [json.loads(line) for line in open(context["trace_path"])]
audit = [json.loads(line) for line in open(context["audit_log_path"])]
def can_write(path):
    try:
        open(path, "w").close()
        return True
    except OSError:
        return False
print(json.dumps({
    "passed": True,
    "score": 0.75,
    "reason": " ".join(sorted(context)) + " %s" % (os.listdir(context["workspace_path"]),),
    "details": {
        "calls": len([one for one in trace if one["event_type"] == "llm_call"]),
        "audit": [one["type"] for one in audit],
        "writes": [can_write(context[name] + more) for name, more in (
            ("workspace_path", "/new"), ("trace_path", ""), ("audit_log_path", ""))],
        "params": sorted(context["scenario_params"]),
    },
}))
"#;

#[test]
fn a_script_reads_the_run_and_gives_a_score_of_its_own() {
    let Some(bench) = Bench::new() else { return };
    for (name, text) in [
        ("good.py", SCRIPT),
        (
            "three.py",
            "import sys; sys.stderr.write('no such key'); sys.exit(3)",
        ),
        ("words.sh", "echo passed"),
        ("own", "#!/bin/sh\necho true\n"),
        ("long.py", "while True: print('x' * 1000)"),
    ] {
        bench.desk.write_file(&format!("evals/checks/{name}"), text);
    }
    bench.desk.write_file("outside.py", "print('true')");
    let root = bench.desk.path();
    symlink(root.join("outside.py"), root.join("evals/checks/link.py")).unwrap();
    let results = bench.results(
        &[
            "{type: custom, script: checks/good.py}",
            "{type: custom, script: checks/good.py, runs_in: sandbox}",
            "{type: file_exists, path: new}",
            "{type: custom, script: checks/three.py}",
            "{type: custom, script: checks/words.sh}",
            "{type: custom, script: checks/own}",
            "{type: custom, script: checks/absent.py}",
            "{type: custom, script: checks/link.py}",
            "{type: custom, script: checks/long.py, limits: {time: 300ms}}",
        ],
        &[],
    );
    let shown = shown(&results);
    let keys = "audit_log_path sandbox_id scenario_params services task trace_path workspace_path";
    for (at, writes) in [(0, "[false,false,false]"), (1, "[true,false,false]")] {
        assert_eq!(shown[at].0, "passed", "{}", shown[at].1);
        assert_eq!(results[at]["score"], json!(0.75));
        assert!(shown[at].1.starts_with(keys), "{}", shown[at].1);
        assert!(shown[at].1.contains("'a.txt'"), "{}", shown[at].1);
        assert!(shown[at].1.contains(writes), "{}", shown[at].1);
        assert!(!shown[at].1.contains("for people only"), "{}", shown[at].1);
    }
    assert_ne!(results[0]["looked_at"], results[1]["looked_at"]);
    assert_eq!(shown[2].0, "passed");
    let words = [
        (3, "exit code 3; it printed:\nno such key"),
        (4, "did not print JSON"),
        (6, "there is no script"),
        (7, "leads out of the folder of the spec"),
        (8, "it took longer than 300ms"),
    ];
    for (at, words) in words {
        assert_eq!(shown[at].0, "error", "{}", shown[at].1);
        assert!(shown[at].1.contains(words), "{}", shown[at].1);
    }
    assert_eq!(shown[5], ("passed", "the script gives 1"));
    let spec = "invariants: {a: {description: d, check: {type: custom, script: checks/three.py}}}";
    bench.desk.write_file("evals/one.eval.yaml", spec);
    bench
        .check_by("evals/one.eval.yaml", &[])
        .is(2)
        .says("error: ");
}

#[test]
fn without_a_sandbox_nothing_is_run_unless_a_person_wants_it_and_the_record_says_so() {
    let bench = Bench::without_sandbox();
    let spec = "invariants: {a: {description: d, check: {type: command_exit, command: 'test -f a.txt; env'}}}";
    bench.desk.write_file("a.eval.yaml", spec);
    let arguments = [
        "check",
        &bench.run,
        "--spec",
        "a.eval.yaml",
        "--workspace",
        "left",
    ];
    // A machine without bubblewrap: a folder without programs is where it looks.
    let mut command = bench.desk.command(&arguments);
    let refused = command
        .env("PATH", bench.desk.path().join("left"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let words = String::from_utf8_lossy(&refused.stderr);
    assert!(words.contains("apt-get install -y bubblewrap"), "{words}");
    assert!(words.contains("--no-sandbox"), "{words}");
    assert!(
        !bench
            .desk
            .ktsu(&["evals", "--json"])
            .is(0)
            .out
            .contains("eval_id")
    );
    let ran = bench
        .desk
        .ktsu(&[&arguments[..], &["--no-sandbox", "--json"]].concat());
    let eval = ran.is(0).json();
    assert_eq!(eval["sandbox"], "none");
    let id = eval["eval_id"].as_str().unwrap();
    bench
        .desk
        .ktsu(&["evals", id])
        .is(0)
        .says("without a sandbox");
    let frames = bench
        .desk
        .ktsu(&["frames", id, "--json", "--type", "eval.started"]);
    let frame: Value = serde_json::from_str(frames.is(0).out.trim()).unwrap();
    assert_eq!(frame["data"]["sandbox"], "none");
    bench.desk.ktsu(&["verify"]).is(0);
    // Said of programs alone.
    bench.desk.write_file(
        "b.eval.yaml",
        "invariants: {a: {description: d, check: {type: file_exists, path: a.txt}}}",
    );
    let arguments = [
        "check",
        &bench.run,
        "--spec",
        "b.eval.yaml",
        "--workspace",
        "left",
        "--json",
    ];
    let ran = bench
        .desk
        .ktsu(&[&arguments[..], &["--no-sandbox"]].concat());
    assert_eq!(ran.is(0).json().get("sandbox"), None);
}

#[test]
fn another_user_has_the_same_sandbox_and_the_same_limits() {
    let Some(bench) = Bench::new() else { return };
    if !Command::new("setpriv")
        .args([
            "--reuid",
            "65534",
            "--regid",
            "65534",
            "--clear-groups",
            "true",
        ])
        .status()
        .is_ok_and(|status| status.success())
    {
        return not_tested("checks that run programs, as another user");
    }
    let root = bench.desk.path();
    bench.desk.write_file(
        "a.eval.yaml",
        "invariants:\n  a: {description: d, check: {type: command_exit, command: 'grep first a.txt && echo x > b.txt'}}\n  \
         b: {description: d, check: {type: command_exit, command: \"sh -c 'while :; do sleep 86398.3 & done'; exec sleep 86398.3\", limits: {processes: 20, time: 5s}}}\n  \
         c: {description: d, check: {type: command_exit, command: 'exec cat /dev/zero > large', limits: {disk_mb: 8}}}\n",
    );
    let all = ["-R", "65534:65534"];
    let given = Command::new("chown").args(all).arg(root).status();
    assert!(given.unwrap().success());
    // The binary is below a folder that others may not enter.
    let binary = root.join("ktsu-copy");
    fs::copy(env!("CARGO_BIN_EXE_ktsu"), &binary).unwrap();
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]);
    command
        .arg(&binary)
        .args(["check", &bench.run, "--spec", "a.eval.yaml"]);
    command
        .args(["--workspace", "left", "--json"])
        .current_dir(root)
        .env_clear();
    let output = command.env("TMPDIR", root).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
    let results = report["results"].as_array().unwrap();
    let found: Vec<_> = results
        .iter()
        .map(|one| one["status"].as_str().unwrap())
        .collect();
    assert_eq!(found, ["passed", "error", "error"], "{report}");
    assert!(!has_process("86398.3"));
    let left = fs::read_dir(root).unwrap().flatten();
    let mut left = left.map(|one| one.file_name().to_string_lossy().into_owned());
    assert!(!left.any(|name| name.starts_with("ktsu-check-")));
}

/// A check whose program sleeps so long, in a temporary folder of its own.
struct Sleeping {
    child: std::process::Child,
    copies: tempfile::TempDir,
    seconds: &'static str,
}

impl Sleeping {
    fn begin(bench: &Bench, seconds: &'static str, options: &[&str]) -> Self {
        // Without a sandbox, what leaves the group keeps running.
        let away = match options.contains(&"--no-sandbox") {
            true => "",
            false => "setsid ",
        };
        let spec = format!(
            "invariants: {{a: {{description: d, check: {{type: command_exit, \
             command: '{away}sleep {seconds} & sleep {seconds}'}}}}}}"
        );
        bench.desk.write_file("a.eval.yaml", &spec);
        let arguments = ["check", &bench.run, "--spec", "a.eval.yaml", "--workspace"];
        let arguments = [&arguments[..], &["left"], options].concat();
        let mut command = bench.desk.command(&arguments);
        // The user of the program has to reach the copy.
        let copies = tempfile::tempdir().unwrap();
        fs::set_permissions(copies.path(), fs::Permissions::from_mode(0o711)).unwrap();
        command.env("TMPDIR", copies.path());
        let child = command.stderr(Stdio::piped()).spawn().unwrap();
        let begun = Self {
            child,
            copies,
            seconds,
        };
        until("the program does not begin", || begun.runs());
        begun
    }

    fn runs(&self) -> bool {
        has_process(&format!("sleep\u{0}{}", self.seconds))
    }

    fn copies(&self) -> usize {
        fs::read_dir(self.copies.path()).unwrap().count()
    }
}

#[test]
fn programs_end_with_the_command_that_runs_them_and_the_next_one_removes_their_copy() {
    let Some(bench) = Bench::new() else { return };
    let mut killed = Sleeping::begin(&bench, "86398.4", &[]);
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    until("the program does not end", || !killed.runs());
    assert_eq!(killed.copies(), 1);
    let next = [
        "check",
        &bench.run,
        "--spec",
        "probe.eval.yaml",
        "--workspace",
        "left",
    ];
    let mut next = bench.desk.command(&next);
    let next = next.env("TMPDIR", killed.copies.path()).output().unwrap();
    assert_eq!(next.status.code(), Some(0));
    assert_eq!(killed.copies(), 0);
}

#[test]
fn an_interrupted_check_ends_its_program_removes_the_copy_and_records_nothing() {
    let Some(bench) = Bench::new() else { return };
    for (signal, seconds, options) in [
        ("INT", "86398.5", &[][..]),
        ("TERM", "86398.6", &[]),
        ("INT", "86398.7", &["--no-record"]),
        ("TERM", "86398.8", &["--no-sandbox"]),
    ] {
        let mut check = Sleeping::begin(&bench, seconds, options);
        send(signal, check.child.id());
        let ended = check.child.wait().unwrap();
        assert!(!check.runs(), "{signal}");
        assert_eq!(check.copies(), 0, "{signal}");
        let mut words = String::new();
        let mut said = check.child.stderr.take().unwrap();
        said.read_to_string(&mut words).unwrap();
        assert_eq!(ended.code(), Some(2), "{words}");
        assert!(
            words.contains("interrupted: nothing is recorded"),
            "{words}"
        );
    }
    let evals = bench.desk.ktsu(&["evals", "--json"]);
    assert!(!evals.is(0).out.contains("eval_id"), "{evals:?}");
}
