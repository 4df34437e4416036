//! The command line, whole: the real binary, its standard output, standard error and exit code.

#![allow(clippy::unwrap_used)]

mod against;
mod agents;
mod answering;
mod asking;
mod baselines;
mod boot;
mod branches;
mod check_programs;
mod checking;
mod commanded;
mod deciding;
mod derived;
mod developing;
mod diff;
mod drift;
mod evaluating;
mod evaluating_databases;
mod evaluating_http;
mod evaluating_kills;
mod evaluating_mariadb;
mod evaluating_models;
mod evaluating_replicas;
mod evaluating_services;
mod evaluating_workspaces;
mod evidence;
mod failing;
mod guidance;
mod init;
mod inspecting;
mod judging;
mod lock;
mod locking_tools;
mod names;
mod on_postgres;
mod owning;
mod page;
mod posts;
mod principals;
mod project;
mod reading;
mod repeated;
mod replay;
mod resuming;
mod reviewing;
mod running;
mod schemas;
mod speaking;
mod standby;
mod steering;
mod story;
mod trace;
mod triage;
mod world;
mod world_trace;
mod worlds;

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A working directory, and nothing else: no variable of the machine gets through.
struct Desk {
    dir: TempDir,
}

/// What a command said.
#[derive(Debug)]
struct Said {
    code: i32,
    out: String,
    err: String,
}

/// Whether a process with this among its words is left on the machine.
fn has_process(words: &str) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut lines = processes.filter_map(|one| std::fs::read(one.path().join("cmdline")).ok());
    lines.any(|line| String::from_utf8_lossy(&line).contains(words))
}

impl Said {
    /// What a command says.
    fn of(command: &mut Command) -> Self {
        let output = command.output().unwrap();
        Self {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// It went as expected, or the test shows what was said instead.
    #[track_caller]
    fn is(&self, code: i32) -> &Self {
        assert_eq!(self.code, code, "{self:#?}");
        self
    }

    #[track_caller]
    fn says(&self, words: &str) -> &Self {
        assert!(self.out.contains(words), "no {words:?} in {self:#?}");
        self
    }

    #[track_caller]
    fn warns(&self, words: &str) -> &Self {
        assert!(self.err.contains(words), "no {words:?} in {self:#?}");
        self
    }

    /// Standard output as the one document it has to be.
    #[track_caller]
    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:#?}"))
    }
}

impl Desk {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
        }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ktsu"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command
    }

    fn ktsu(&self, arguments: &[&str]) -> Said {
        Said::of(&mut self.command(arguments))
    }

    /// Runs the kit hello and gives the run's id.
    fn hello(&self) -> String {
        let said = self.ktsu(&["run", &kit("hello"), "--json"]);
        let envelope = said.is(0).json();
        envelope["run_id"].as_str().unwrap().to_owned()
    }

    /// A kit of one workflow.
    fn write_kit(&self, name: &str, workflow: &str) -> String {
        let folder = self.path().join(name).join("workflows");
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join(format!("{name}.workflow.yaml")), workflow).unwrap();
        name.to_owned()
    }

    /// Another file below the desk.
    fn write_file(&self, path: &str, text: &str) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// An engine that stays.
    fn start(&self, arguments: &[&str]) -> Owner {
        let all = [&["start", "--port", "0"], arguments].concat();
        let mut child = self
            .command(&all)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let ready = lines.next().and_then(Result::ok);
        let url = ready
            .as_deref()
            .and_then(|line| line.strip_prefix("ktsu listens on "));
        let Some(url) = url else {
            let mut err = String::new();
            child
                .stderr
                .take()
                .unwrap()
                .read_to_string(&mut err)
                .unwrap();
            panic!("not ready: {ready:?} {err}");
        };
        Owner {
            url: url.to_owned(),
            child,
        }
    }
}

/// An engine at work, ended with the test.
struct Owner {
    url: String,
    child: Child,
}

impl Owner {
    /// Asks it to stop, and waits: exit code and standard error.
    fn stop(mut self, signal: &str) -> (i32, String) {
        send(signal, self.child.id());
        let status = self.child.wait().unwrap();
        let mut err = String::new();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        (status.code().unwrap_or(-1), err)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn send(signal: &str, pid: u32) {
    let sent = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .status();
    assert!(sent.unwrap().success());
}

/// A kit of this repository.
fn kit(name: &str) -> String {
    repository().join("kits").join(name).display().to_string()
}

fn repository() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// A workflow that posts to a URL and ends with what came back.
fn posting(url: &str) -> String {
    format!(
        "kind: workflow
name: post
version: 1.0.0
pipeline:
  - id: send
    webhook:
      url: {url}/hook
      timeout_s: 30
      body: {{text: hello}}
output:
  map:
    sent: \"{{{{ step.send.sent }}}}\"
"
    )
}
