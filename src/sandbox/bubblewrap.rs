//! The sandbox: bubblewrap, with nothing of the machine but its programs.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use crate::copying::copy;
use crate::execution::{self, Execution, Process, Program};
use crate::folder::{FIRST_USER, FolderError, LAST_USER, PrivateFolder, USERS};
use crate::interrupt::Interrupt;
use crate::left_behind;
use crate::limits::{Limit, SandboxLimits};
use crate::serving::{ServingPlace, ServingProgram};
use crate::status::StatusFile;
use crate::usage::FolderUsage;

/// The command that installs what is needed.
pub(crate) const INSTALL: &str = "apt-get install -y bubblewrap";

/// Path at which programs find their workspace.
const WORKSPACE: &str = "/work";

/// Path at which programs find what is made for them.
const MADE: &str = "/check";

/// Path at which programs find the folder that they are shown.
const SHOWN: &str = "/program";

/// Path of the folder in which programs find services, by name.
const SERVICES: &str = "/services";

/// Bytes of /tmp, and of /dev/shm.
const TMP_BYTES: u64 = 256 << 20;

/// The most files that a process may have open.
const MAX_OPEN: u64 = 1_024;

/// The time that a program may take that only shows whether the sandbox works.
const FIND_TIMEOUT: Duration = Duration::from_secs(60);

/// Files of /etc that programs need, and that hold nothing private.
const ETC: [&str; 6] = [
    "/etc/alternatives",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/mime.types",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
];

/// Closes what was inherited, opens the file for the status, and becomes bubblewrap.
const START: [&str; 2] = [
    r#"status="$1"; shift
for fd in /proc/self/fd/*; do fd="${fd##*/}"; [ "$fd" -gt 2 ] && eval "exec $fd>&-"; done
exec "$@" 3>"$status""#,
    r#"status="$1"; shift
exec 4>&- 5>&- 6>&- 7>&- 8>&- 9>&-
exec "$@" 3>"$status""#,
];

/// The settings with which programs are run.
#[derive(Debug, Clone)]
pub struct Sandbox {
    /// Path of bubblewrap; none if programs run without a sandbox.
    program: Option<PathBuf>,
    /// The user that programs run as, if that is not the one of this process.
    user: Option<u32>,
    interrupt: Interrupt,
}

/// The reason why a program was not run.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// There is no bubblewrap.
    #[error("there is no sandbox: bubblewrap is not installed")]
    Missing,
    /// It does not work here.
    #[error("the sandbox does not work here: {0}")]
    Broken(String),
    /// There is no folder for the program.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// Programs serve in the folder no more.
    #[error("its folder is closed")]
    Closed,
    /// The person wants to stop.
    #[error("it was interrupted")]
    Interrupted,
    /// The program cannot be started.
    #[error("cannot start the program: {0}")]
    Start(#[from] std::io::Error),
}

impl SandboxError {
    /// The command to type, if one helps.
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Missing => Some(INSTALL),
            Self::Broken(_)
            | Self::Folder(_)
            | Self::Closed
            | Self::Interrupted
            | Self::Start(_) => None,
        }
    }
}

impl Sandbox {
    /// The sandbox of this machine, once a program has run in it. What killed processes have left is
    /// removed.
    ///
    /// # Errors
    /// [`SandboxError`].
    pub fn find() -> Result<Self, SandboxError> {
        let found = on_the_path("bwrap").ok_or(SandboxError::Missing)?;
        let sandbox = Self {
            program: Some(found),
            user: user(),
            interrupt: Interrupt::default(),
        };
        left_behind::remove(&std::env::temp_dir());
        let folder = sandbox.empty_folder()?;
        let limits = SandboxLimits {
            time: FIND_TIMEOUT,
            ..SandboxLimits::default()
        };
        let program = Program::new(&["true"], limits);
        let ran = sandbox.run(&folder, &program)?;
        match ran.exit_code() {
            Some(0) => Ok(sandbox),
            code => Err(SandboxError::Broken(format!("`true` ended with {code:?}"))),
        }
    }

    /// No sandbox: programs run as this process, with all that it may do.
    pub fn none() -> Self {
        left_behind::remove(&std::env::temp_dir());
        Self {
            program: None,
            user: None,
            interrupt: Interrupt::default(),
        }
    }

    /// The same, whose programs end by an interrupt.
    #[must_use]
    pub fn ended_by(mut self, interrupt: Interrupt) -> Self {
        self.interrupt = interrupt;
        self
    }

    /// Returns `true` if programs run without a sandbox.
    pub fn is_none(&self) -> bool {
        self.program.is_none()
    }

    /// An empty folder for programs.
    ///
    /// # Errors
    /// [`FolderError::Make`].
    pub fn empty_folder(&self) -> Result<PrivateFolder, FolderError> {
        PrivateFolder::new(self.user)
    }

    /// A folder for programs, with a copy of a folder as their workspace. Links are copied as links;
    /// pipes, sockets and devices are left out.
    ///
    /// # Errors
    /// [`FolderError`].
    pub fn copy_of(&self, original: &Path) -> Result<PrivateFolder, FolderError> {
        let folder = self.empty_folder()?;
        copy(original, &folder, &self.interrupt)?;
        Ok(folder)
    }

    /// Paths at which programs find their workspace, and what is made for them.
    pub fn places(&self, folder: &PrivateFolder) -> (PathBuf, PathBuf) {
        match self.is_none() {
            true => (folder.workspace(), folder.made()),
            false => (PathBuf::from(WORKSPACE), PathBuf::from(MADE)),
        }
    }

    /// Runs a program to its end, or to the limit that it meets. Nothing of it runs afterwards; without
    /// a sandbox, only what stayed in its process group is sure to have ended.
    ///
    /// # Errors
    /// [`SandboxError`]: the program was not run.
    pub fn run(
        &self,
        folder: &PrivateFolder,
        program: &Program<'_>,
    ) -> Result<Execution, SandboxError> {
        let status = StatusFile::new(folder.root());
        let process = Process {
            command: match &self.program {
                Some(bubblewrap) => self.within(bubblewrap, folder, program, status.path()),
                None => without(folder, program),
            },
            has_namespace: !self.is_none(),
            workspace: watched(folder, program),
            before: None,
            interrupt: self.interrupt.clone(),
        };
        if self.interrupt.is_set() {
            return Err(SandboxError::Interrupted);
        }
        let mut ran = execution::run(process, program)?;
        if !self.is_none() {
            let status = status.take();
            ran.take_code(status.exit_code);
            if !status.has_ended() {
                let words = "processes of the program do not end";
                return Err(SandboxError::Broken(words.to_owned()));
            }
        }
        if self.interrupt.is_set() {
            return Err(SandboxError::Interrupted);
        }
        // A process that writes too large a file is ended by SIGXFSZ, and the file is as large as it may
        // be. The same number may be a program's own exit code.
        const TOO_LARGE: i32 = 128 + 25;
        let disk = program.limits.disk;
        if ran.exit_code() == Some(TOO_LARGE)
            && !self.is_none()
            && FolderUsage::of(&folder.workspace(), u64::MAX).largest >= disk
        {
            ran.stopped_by(Limit::Disk(disk));
        }
        match ran.is_known() {
            true => Ok(ran),
            false => Err(SandboxError::Broken(ran.last_words())),
        }
    }

    /// Starts a program that runs for as long as it is held, whose input and output are pipes.
    ///
    /// # Errors
    /// [`SandboxError`]: the program was not started.
    pub fn serve(
        &self,
        folder: &PrivateFolder,
        program: &Program<'_>,
    ) -> Result<ServingProgram, SandboxError> {
        if self.interrupt.is_set() {
            return Err(SandboxError::Interrupted);
        }
        let is_within = program.offered().is_none();
        let occupant = match is_within {
            true => Some(folder.occupancy.enter().ok_or(SandboxError::Closed)?),
            false => None,
        };
        let interrupt = self.interrupt.part();
        let status = StatusFile::new(folder.root());
        let process = Process {
            command: match &self.program {
                Some(bubblewrap) => self.within(bubblewrap, folder, program, status.path()),
                None => without(folder, program),
            },
            has_namespace: !self.is_none(),
            workspace: watched(folder, program),
            // A database has a folder of its own.
            before: is_within.then(|| folder.usage_before_serving()),
            interrupt: interrupt.clone(),
        };
        let place = ServingPlace { occupant, status };
        let started = ServingProgram::start(process, program.limits, interrupt, place);
        Ok(started?)
    }

    /// Path at which a program finds the folder that it is shown.
    pub fn place_of_shown(&self, shown: &PrivateFolder) -> PathBuf {
        match self.is_none() {
            true => shown.workspace(),
            false => PathBuf::from(SHOWN),
        }
    }

    /// Path at which programs find what a service of this name shares.
    pub fn place_of_service(&self, name: &str, folder: &PrivateFolder) -> PathBuf {
        match self.is_none() {
            true => folder.shared(),
            false => Path::new(SERVICES).join(name),
        }
    }

    /// Returns `true` if programs run as root.
    pub fn runs_as_root(&self) -> bool {
        self.is_none() && rustix::process::geteuid().is_root()
    }

    fn within(
        &self,
        bubblewrap: &Path,
        folder: &PrivateFolder,
        program: &Program<'_>,
        status: &Path,
    ) -> Command {
        let bash = ["/bin/bash", "/usr/bin/bash"].map(Path::new);
        let bash = bash.into_iter().find(|bash| bash.exists());
        let (shell, script) = match bash {
            Some(bash) => (bash, START[0]),
            None => (Path::new("/bin/sh"), START[1]),
        };
        let mut command = Command::new(shell);
        command.args(["-c", script, "ktsu"]).arg(status);
        command.arg(bubblewrap).args(["--json-status-fd", "3"]);
        command.args(APART);
        for name in [
            "/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32",
        ] {
            show(&mut command, Path::new(name));
        }
        for name in ETC {
            command.args(["--ro-bind-try", name, name]);
        }
        let root = folder.root();
        let own = [
            ("--ro-bind", root.join("passwd"), "/etc/passwd"),
            ("--ro-bind", root.join("group"), "/etc/group"),
            ("--ro-bind", folder.made(), MADE),
            (program.access(), folder.workspace(), WORKSPACE),
        ];
        for (how, from, to) in own {
            command.arg(how).arg(from).arg(to);
        }
        if let Some(shown) = program.shown() {
            command.arg("--ro-bind").arg(shown.workspace()).arg(SHOWN);
        }
        show_services(&mut command, folder, program);
        let size = TMP_BYTES.to_string();
        command.args(["--proc", "/proc", "--dev", "/dev"]);
        command.args(["--size", &size, "--tmpfs", "/dev/shm"]);
        command.args(["--size", &size, "--tmpfs", "/tmp"]);
        // What is mounted for these two takes as much memory as is written to it.
        command.args(["--remount-ro", "/dev", "--remount-ro", "/"]);
        command.args(["--chdir", WORKSPACE, "--", "prlimit", "--core=0"]);
        let limits = &program.limits;
        command.arg(format!("--data={}", limits.memory));
        // A program that is at its limit is ended; until that is seen, it has no more than twice as many.
        let processes = limits.processes.saturating_mul(2).saturating_add(1);
        command.arg(format!("--nproc={processes}"));
        command.arg(format!("--fsize={}", limits.disk));
        command.arg(format!("--nofile={MAX_OPEN}"));
        command.args(program.arguments);
        command.env_clear().env("PATH", PATH).current_dir("/");
        if let Some(user) = self.user {
            // The groups of this process go with it.
            command.uid(user).gid(user);
        }
        command
    }
}

/// The folders in which programs find programs.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The arguments that separate programs from the machine.
const APART: [&str; 26] = [
    "--unshare-all",
    "--unshare-user",
    "--disable-userns",
    "--uid",
    "1000",
    "--gid",
    "1000",
    "--hostname",
    "sandbox",
    "--cap-drop",
    "ALL",
    "--die-with-parent",
    "--new-session",
    "--clearenv",
    "--setenv",
    "PATH",
    PATH,
    "--setenv",
    "HOME",
    "/tmp",
    "--setenv",
    "LANG",
    "C.UTF-8",
    "--setenv",
    "USER",
    "check",
];

/// Shows a folder of programs as it is here: links as links.
fn show(command: &mut Command, folder: &Path) {
    match fs::read_link(folder) {
        Ok(target) => command.arg("--symlink").arg(target).arg(folder),
        Err(_) => command.arg("--ro-bind-try").arg(folder).arg(folder),
    };
}

/// Shows what services share; only the one that offers it can write to it.
fn show_services(command: &mut Command, folder: &PrivateFolder, program: &Program<'_>) {
    if let Some(name) = program.offered() {
        let place = Path::new(SERVICES).join(name);
        command.arg("--bind").arg(folder.shared()).arg(place);
    }
    for service in program.reached() {
        let place = Path::new(SERVICES).join(service.name);
        let shared = service.folder.shared();
        command.arg("--ro-bind").arg(shared).arg(place);
    }
}

/// The folder whose growth is bounded: all that a program can write to.
fn watched(folder: &PrivateFolder, program: &Program<'_>) -> PathBuf {
    match program.offered() {
        Some(_) => folder.root().to_path_buf(),
        None => folder.workspace(),
    }
}

/// A program as it is run without a sandbox.
fn without(folder: &PrivateFolder, program: &Program<'_>) -> Command {
    let mut arguments = program.arguments.iter();
    let mut command = Command::new(arguments.next().unwrap_or(&"false"));
    command.args(arguments);
    command.current_dir(folder.workspace());
    // Other variables may hold keys of providers.
    command.env_clear();
    for name in ["HOME", "LANG", "PATH", "TMPDIR"] {
        command.envs(std::env::var_os(name).map(|value| (name, value)));
    }
    command
}

fn on_the_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_else(|| PATH.into());
    let mut found = std::env::split_paths(&path).map(|folder| folder.join(name));
    found.find(|path| path.is_absolute() && path.is_file())
}

/// A user of its own for what this process runs, if it is root: limits do not bind root.
fn user() -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let wanted = FIRST_USER + std::process::id() % USERS;
    let map = fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    let is_there = map.lines().any(|line| {
        let mut numbers = line.split_whitespace().map(str::parse::<u64>);
        let first = numbers.next().and_then(Result::ok);
        let count = numbers.nth(1).and_then(Result::ok);
        let (Some(first), Some(count)) = (first, count) else {
            return false;
        };
        (first..first.saturating_add(count)).contains(&u64::from(wanted))
    });
    Some(if is_there { wanted } else { LAST_USER })
}
