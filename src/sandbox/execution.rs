//! The life of a program: started, watched, ended by itself or by a limit, its output drained.

use std::io::{self, PipeReader, Read, Write as _};
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::folder::PrivateFolder;
use crate::interrupt::Interrupt;
use crate::limits::{Limit, SandboxLimits};
use crate::process_group::ProcessGroup;
use crate::usage::{FolderUsage, ProcessUsage};

/// The least time between looks at what a program takes.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// The pause between looks, as a multiple of the time that a look takes.
const PAUSE_PER_LOOK: u32 = 5;

/// The time that a program that is being ended may take, before all that belongs to it is ended as
/// well.
const END_TIMEOUT: Duration = Duration::from_secs(10);

/// The time for which the output of a program that has ended is waited for.
const OUTPUT_TIMEOUT: Duration = Duration::from_secs(2);

/// The bytes that a program may write, as a multiple of those that it may keep: files are written
/// again, or removed.
const MAX_REWRITES: u64 = 8;

/// A program that is to be run.
#[derive(Debug, Clone)]
pub struct Program<'p> {
    /// The program and its arguments.
    pub(crate) arguments: &'p [&'p str],
    pub(crate) limits: SandboxLimits,
    input: &'p [u8],
    is_apart: bool,
    is_read_only: bool,
    shown: Option<&'p PrivateFolder>,
    offered: Option<&'p str>,
    reached: Vec<ReachedService<'p>>,
}

/// A service that a program reaches through what it shares.
#[derive(Debug, Clone, Copy)]
pub struct ReachedService<'p> {
    /// Its name.
    pub name: &'p str,
    /// The folder that it runs in.
    pub folder: &'p PrivateFolder,
}

/// A process to be started, and what is watched of it.
pub(crate) struct Process {
    pub(crate) command: Command,
    /// True if the first process below it takes all others with it.
    pub(crate) has_namespace: bool,
    pub(crate) workspace: PathBuf,
    /// Usage of the workspace when its limits began to count; none if they do when it starts.
    pub(crate) before: Option<FolderUsage>,
    pub(crate) interrupt: Interrupt,
}

/// The outcome of a program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Execution {
    end: Option<ProgramEnd>,
    /// Standard output; with standard error, unless they were asked for apart.
    pub output: ProgramOutput,
    /// Standard error, if it was asked for apart.
    pub errors: ProgramOutput,
}

/// The end of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProgramEnd {
    /// By itself; 128 and the number of the signal, if it was one.
    Exited(i32),
    /// By a limit.
    Stopped(Limit),
}

/// The output that a program has printed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramOutput {
    /// The end of it.
    pub kept: Vec<u8>,
    /// Number of bytes that were printed.
    pub total: u64,
}

impl<'p> Program<'p> {
    /// A program without input, that may write to its workspace.
    pub fn new(arguments: &'p [&'p str], limits: SandboxLimits) -> Self {
        Self {
            arguments,
            limits,
            input: b"",
            is_apart: false,
            is_read_only: false,
            shown: None,
            offered: None,
            reached: Vec::new(),
        }
    }

    /// The same, which can read a copy of another folder.
    #[must_use]
    pub fn shows(mut self, folder: &'p PrivateFolder) -> Self {
        self.shown = Some(folder);
        self
    }

    /// The same, which offers a service of this name: it can write to what its folder shares.
    #[must_use]
    pub fn offers(mut self, name: &'p str) -> Self {
        self.offered = Some(name);
        self
    }

    pub(crate) fn offered(&self) -> Option<&'p str> {
        self.offered
    }

    /// The same, which reaches services.
    #[must_use]
    pub fn reaches(mut self, services: Vec<ReachedService<'p>>) -> Self {
        self.reached = services;
        self
    }

    pub(crate) fn reached(&self) -> &[ReachedService<'p>] {
        &self.reached
    }

    pub(crate) fn shown(&self) -> Option<&'p PrivateFolder> {
        self.shown
    }

    /// The same with an input, and with its output apart from its errors.
    #[must_use]
    pub fn with_input(mut self, input: &'p [u8]) -> Self {
        self.input = input;
        self.is_apart = true;
        self
    }

    /// The same, which can only read its workspace.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.is_read_only = true;
        self
    }

    /// The option by which bubblewrap mounts the workspace.
    pub(crate) fn access(&self) -> &'static str {
        match self.is_read_only {
            true => "--ro-bind",
            false => "--bind",
        }
    }
}

impl Execution {
    /// The program's end.
    pub fn end(&self) -> ProgramEnd {
        self.end.unwrap_or(ProgramEnd::Exited(-1))
    }

    pub(crate) fn exit_code(&self) -> Option<i32> {
        match self.end? {
            ProgramEnd::Exited(code) => Some(code),
            ProgramEnd::Stopped(_) => None,
        }
    }

    /// Takes what the sandbox says about the program for what its own exit code says.
    pub(crate) fn take_code(&mut self, code: Option<i32>) {
        if !matches!(self.end, Some(ProgramEnd::Stopped(_))) {
            self.end = code.map(ProgramEnd::Exited);
        }
    }

    pub(crate) fn stopped_by(&mut self, limit: Limit) {
        self.end = Some(ProgramEnd::Stopped(limit));
    }

    /// Returns `true` if the program ran at all.
    pub(crate) fn is_known(&self) -> bool {
        self.end.is_some()
    }

    /// The last line that was printed, in place of the program.
    pub(crate) fn last_words(&self) -> String {
        let printed = [&self.output, &self.errors].map(|one| one.kept.as_slice());
        let text = String::from_utf8_lossy(&printed.concat()).trim().to_owned();
        match text.lines().last() {
            Some(last) => last.to_owned(),
            None => "it ended before the program did".to_owned(),
        }
    }
}

/// The output into which a process is drained, by a thread of its own.
pub(crate) type Drain = Arc<Mutex<ProgramOutput>>;

/// The events that threads report of a process.
pub(crate) enum ProcessEvent {
    Ended(io::Result<ExitStatus>),
    Drained,
}

/// Runs a process to its end. The thread that calls this is its parent as long as it runs.
pub(crate) fn run(mut process: Process, program: &Program<'_>) -> io::Result<Execution> {
    let (reader, writer) = io::pipe()?;
    let errors = match program.is_apart {
        true => Some(io::pipe()?),
        false => None,
    };
    let (errors, errors_writer) = match errors {
        Some((reader, writer)) => (Some(reader), writer),
        None => (None, writer.try_clone()?),
    };
    let limits = &program.limits;
    let mut started = start(
        &mut process,
        limits,
        (writer, errors_writer),
        Duration::ZERO,
    )?;
    feed(started.input.take(), program.input.to_vec());
    let kept = limits.output;
    let output = drain(reader, kept, started.sender.clone());
    let drains = 1 + usize::from(errors.is_some());
    let errors = errors.map(|reader| drain(reader, kept, started.sender.clone()));
    let (end, drained) = started.wait()?;
    started.wait_for_output(drains.saturating_sub(drained));
    let taken = |drain: &Drain| {
        let mut output = drain.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *output)
    };
    Ok(Execution {
        end: Some(end),
        output: taken(&output),
        errors: errors.as_ref().map(taken).unwrap_or_default(),
    })
}

/// Gives a process its input, which it need not read.
fn feed(stdin: Option<ChildStdin>, input: Vec<u8>) {
    if let Some(mut stdin) = stdin
        && !input.is_empty()
    {
        thread::spawn(move || stdin.write_all(&input));
    }
}

/// Reads all that comes, and keeps the end of it.
pub(crate) fn drain(mut reader: PipeReader, kept: usize, sender: Sender<ProcessEvent>) -> Drain {
    let drained = Drain::default();
    let shared = Arc::clone(&drained);
    thread::spawn(move || {
        let mut buffer = [0; 64 << 10];
        loop {
            let read = match reader.read(&mut buffer) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(_) => break,
            };
            let mut output = shared.lock().unwrap_or_else(PoisonError::into_inner);
            output.take(buffer.get(..read).unwrap_or_default(), kept);
        }
        let _ = sender.send(ProcessEvent::Drained);
    });
    drained
}

impl ProgramOutput {
    fn take(&mut self, bytes: &[u8], most: usize) {
        self.total = self.total.saturating_add(bytes.len() as u64);
        self.kept.extend_from_slice(bytes);
        let over = self.kept.len().saturating_sub(most);
        self.kept.drain(..over);
    }
}

fn wait_for_output(reports: &Receiver<ProcessEvent>, mut open: usize) {
    let until = Instant::now() + OUTPUT_TIMEOUT;
    while open > 0 {
        match reports.recv_timeout(until.saturating_duration_since(Instant::now())) {
            Ok(ProcessEvent::Drained) => open -= 1,
            Ok(ProcessEvent::Ended(_)) => {}
            Err(_) => return,
        }
    }
}

/// A process that is watched.
pub(crate) struct ProcessWatch<'w> {
    id: Pid,
    /// The group that it is in, without a sandbox.
    group: Option<ProcessGroup>,
    process: &'w Process,
    limits: &'w SandboxLimits,
    /// Usage of the workspace when it began.
    before: FolderUsage,
    began: Instant,
    /// The least time between looks.
    pause: Duration,
}

/// A process that was started: its watch, and what it reports.
pub(crate) struct Started<'w> {
    pub(crate) watch: ProcessWatch<'w>,
    pub(crate) input: Option<ChildStdin>,
    pub(crate) sender: Sender<ProcessEvent>,
    reports: Receiver<ProcessEvent>,
}

/// Starts a process, whose output goes to these pipes. The thread that calls this has to live as long as
/// the process.
pub(crate) fn start<'w>(
    process: &'w mut Process,
    limits: &'w SandboxLimits,
    (output, errors): (io::PipeWriter, io::PipeWriter),
    pause: Duration,
) -> io::Result<Started<'w>> {
    let command = &mut process.command;
    command.stdin(Stdio::piped()).stdout(output).stderr(errors);
    let before = process.before;
    let before = before.unwrap_or_else(|| FolderUsage::of(&process.workspace, u64::MAX));
    let group = match process.has_namespace {
        true => None,
        false => Some(ProcessGroup::start()?),
    };
    group.iter().for_each(|group| group.takes(command));
    let mut child = command.spawn()?;
    // The command holds the pipes that it was given, and they end with their last holder.
    process.command = Command::new("");
    let id = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    let id = id.ok_or_else(|| io::Error::other("the process has no id"))?;
    let input = child.stdin.take();
    let (sender, reports) = channel();
    let ended = sender.clone();
    thread::spawn(move || ended.send(ProcessEvent::Ended(child.wait())));
    let watch = ProcessWatch {
        id,
        group,
        process,
        limits,
        before,
        began: Instant::now(),
        pause,
    };
    Ok(Started {
        watch,
        input,
        sender,
        reports,
    })
}

impl Started<'_> {
    /// Waits for the end of the process; also how many outputs have ended before.
    pub(crate) fn wait(&self) -> io::Result<(ProgramEnd, usize)> {
        self.watch.wait(&self.reports)
    }

    /// Waits for the end of so many outputs, but not for long.
    pub(crate) fn wait_for_output(&self, open: usize) {
        wait_for_output(&self.reports, open);
    }
}

impl ProcessWatch<'_> {
    /// Waits for the end of the process, and brings it about if it meets a limit or is interrupted. Also
    /// how many outputs have ended before.
    fn wait(&self, reports: &Receiver<ProcessEvent>) -> io::Result<(ProgramEnd, usize)> {
        let (mut stopped, mut drained) = (None, 0);
        let mut next_look = Instant::now();
        loop {
            let left = self.limits.time.saturating_sub(self.began.elapsed());
            let pause = LOOK_INTERVAL.min(left.max(Duration::from_millis(1)));
            match reports.recv_timeout(pause) {
                Ok(ProcessEvent::Drained) => {
                    drained += 1;
                    continue;
                }
                Ok(ProcessEvent::Ended(status)) => {
                    let status = status?;
                    self.end_others();
                    let end = match stopped {
                        Some((Some(limit), _)) => ProgramEnd::Stopped(limit),
                        Some((None, _)) | None => ProgramEnd::Exited(code(status)),
                    };
                    return Ok((end, drained));
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    return Err(io::Error::other("the process was lost"));
                }
            }
            let looked = Instant::now();
            let is_early = looked < next_look && !left.is_zero();
            if is_early && stopped.is_none() && !self.process.interrupt.is_set() {
                continue;
            }
            let usage = ProcessUsage::below(self.id.as_raw_nonzero().get());
            match stopped {
                None if self.process.interrupt.is_set() => stopped = Some((None, Instant::now())),
                None => {
                    let limit = self.exceeded(&usage);
                    stopped = limit.map(|limit| (Some(limit), Instant::now()));
                }
                Some((_, since)) if since.elapsed() > END_TIMEOUT => {
                    let _ = kill_process(self.id, Signal::KILL);
                }
                Some(_) => {}
            }
            if stopped.is_some() {
                self.stop(&usage);
            }
            let pause = looked.elapsed().saturating_mul(PAUSE_PER_LOOK);
            next_look = Instant::now() + pause.max(self.pause);
        }
    }

    /// The limit that is met.
    fn exceeded(&self, usage: &ProcessUsage) -> Option<Limit> {
        let limits = self.limits;
        if self.began.elapsed() >= limits.time {
            return Some(Limit::Time(limits.time));
        }
        // The first two are those of the sandbox.
        let own = if self.process.has_namespace { 1 } else { 0 };
        let count = usage.all.len().saturating_sub(own) as u64;
        if count >= limits.processes {
            return Some(Limit::Processes(limits.processes));
        }
        if usage.memory > limits.memory {
            return Some(Limit::Memory(limits.memory));
        }
        let (before, most) = (&self.before, self.before.files.saturating_add(limits.files));
        let folder = FolderUsage::of(&self.process.workspace, most);
        if folder.files > most || (folder.is_too_deep && !before.is_too_deep) {
            return Some(Limit::Files(limits.files));
        }
        let grown = folder.bytes.saturating_sub(before.bytes);
        let is_over = grown > limits.disk || usage.written / MAX_REWRITES > limits.disk;
        is_over.then_some(Limit::Disk(limits.disk))
    }

    /// Ends everything that belongs to the process. The first process of a namespace takes all others
    /// with it, and the sandbox ends once they are gone.
    fn stop(&self, usage: &ProcessUsage) {
        let processes = match self.process.has_namespace {
            true => &usage.children,
            false => &usage.all,
        };
        for process in processes.iter().filter_map(|one| Pid::from_raw(*one)) {
            let _ = kill_process(process, Signal::KILL);
        }
        self.end_others();
    }

    /// Ends what a process without a namespace has left.
    fn end_others(&self) {
        self.group.iter().for_each(ProcessGroup::end);
    }
}

fn code(status: ExitStatus) -> i32 {
    let by_signal = status.signal().map(|signal| 128 + signal);
    status.code().or(by_signal).unwrap_or(-1)
}
