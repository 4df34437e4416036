//! The process group of a program without a sandbox. It ends with this process, even if that is killed: its first
//! process, a shell, waits for the end of a pipe that only this process can write to, and ends the group then.

use std::io::{self, PipeWriter};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process_group};

/// Ends its own process group at the end of its input.
const WATCH: &str = "read -r nothing; kill -KILL 0";

/// A process group, whose processes are ended when it is dropped.
#[derive(Debug)]
pub(crate) struct ProcessGroup {
    watcher: Child,
    id: Pid,
    /// It ends with this process.
    _alive: PipeWriter,
}

impl ProcessGroup {
    /// Starts one, with nothing but its watcher.
    pub(crate) fn start() -> io::Result<Self> {
        let (reader, alive) = io::pipe()?;
        let watcher = Command::new("/bin/sh")
            .args(["-c", WATCH])
            .stdin(reader)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .env_clear()
            .current_dir("/")
            .process_group(0)
            .spawn()?;
        let id = i32::try_from(watcher.id()).ok().and_then(Pid::from_raw);
        Ok(Self {
            watcher,
            id: id.ok_or_else(|| io::Error::other("the process group has no id"))?,
            _alive: alive,
        })
    }

    /// Has a program start in it.
    pub(crate) fn takes(&self, command: &mut Command) {
        command.process_group(self.id.as_raw_nonzero().get());
    }

    /// Ends all that is in it. Its id is that of its watcher, which is not waited for before the group is
    /// dropped, so no other group can have it.
    pub(crate) fn end(&self) {
        let _ = kill_process_group(self.id, Signal::KILL);
    }
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        self.end();
        let _ = self.watcher.wait();
    }
}
