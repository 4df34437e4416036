//! The real binary, or this one again, as another process: started, killed, reaped by its own id.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::Client;

/// An engine in a process of its own. Killed when dropped.
pub(crate) struct Process {
    child: Child,
    /// Kept open: a process that prints more must not fail for want of somebody to hear it.
    _out: std::io::Lines<BufReader<std::process::ChildStdout>>,
    /// Of the engine; not that of `child` where something stands around it.
    pub(crate) pid: u32,
    pub(crate) url: String,
}

impl Process {
    /// `ktsu start` on a ledger file, at a port the system chooses.
    pub(crate) fn start(kit: &Path, ledger: &Path, pairs: &[(&str, &str)]) -> Self {
        Self::around(Command::new(env!("CARGO_BIN_EXE_ktsu")), kit, ledger, pairs)
    }

    /// The same, as arguments of another command.
    pub(crate) fn within(
        mut around: Command,
        kit: &Path,
        ledger: &Path,
        pairs: &[(&str, &str)],
    ) -> Self {
        around.arg(env!("CARGO_BIN_EXE_ktsu"));
        Self::around(around, kit, ledger, pairs)
    }

    fn around(mut command: Command, kit: &Path, ledger: &Path, pairs: &[(&str, &str)]) -> Self {
        command
            .args(["start", "--json", "--port", "0"])
            .args(["--runtime-port", "0", "--gateway-port", "0", "--kit"])
            .arg(kit);
        command.arg("--ledger").arg(ledger);
        command
            .env_clear()
            .env("KTSU_LOG", "error")
            .current_dir(kit);
        command.envs(pairs.iter().copied());
        Self::spawn(command)
    }

    /// Starts a command that prints a line with `url` and `pid` once it listens.
    pub(crate) fn spawn(command: Command) -> Self {
        Self::try_spawn(command).unwrap_or_else(|why| panic!("{why}"))
    }

    /// As [`Process::spawn`]; says so if it ends instead.
    pub(crate) fn try_spawn(mut command: Command) -> Result<Self, String> {
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap()).lines();
        while let Some(line) = out.next() {
            let line = line.unwrap();
            let told: Result<Value, _> = serde_json::from_str(line.trim());
            if let Ok(told) = told
                && let (Some(url), Some(pid)) = (told["url"].as_str(), told["pid"].as_u64())
            {
                return Ok(Self {
                    child,
                    _out: out,
                    pid: u32::try_from(pid).unwrap(),
                    url: url.to_owned(),
                });
            }
        }
        let status = child.wait().unwrap();
        Err(format!("{command:?} did not start: {status}"))
    }

    pub(crate) fn client(&self) -> Client {
        Client::of(&self.url)
    }

    /// SIGKILL, and waits until it is gone.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has ended by itself; its exit code.
    pub(crate) fn ended(mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }

    /// SIGTERM to the engine, and waits until it and whatever stands around it has ended.
    pub(crate) fn stop(mut self) {
        self.signal("TERM");
        self.child.wait().unwrap();
    }

    /// Stops it where it is. When this returns none of its threads runs any more.
    pub(crate) fn freeze(&self) {
        self.signal("STOP");
        let tasks = format!("/proc/{}/task", self.number());
        let is_stopped = |task: std::fs::DirEntry| {
            let stat = std::fs::read_to_string(task.path().join("stat"));
            // A thread that ends meanwhile runs no more. The state follows the name, which is in parentheses.
            stat.map_or(true, |stat| {
                stat.rsplit(") ")
                    .next()
                    .unwrap_or_default()
                    .starts_with('T')
            })
        };
        super::until("the process stops", || {
            std::fs::read_dir(&tasks).unwrap().flatten().all(is_stopped)
        });
    }

    /// A signal to the engine.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let sent = kill.args(["-s", name, &self.number().to_string()]).status();
        assert!(sent.unwrap().success());
    }

    /// The number of the engine here. The first process of a namespace of its own is the only child of
    /// the command around it.
    fn number(&self) -> u32 {
        if self.pid != 1 {
            return self.pid;
        }
        let around = self.child.id();
        let children = format!("/proc/{around}/task/{around}/children");
        let children = std::fs::read_to_string(children).unwrap();
        children.trim().parse().unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Ended already unless a test failed; then its id is still ours, since nobody reaped it.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
