//! Programs that run for as long as they are held.

use std::io::{self, PipeReader};
use std::process::ChildStdin;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::execution::{self, Drain, Process, ProgramEnd};
use crate::interrupt::Interrupt;
use crate::limits::SandboxLimits;
use crate::occupancy::Occupant;
use crate::status::StatusFile;

/// The least time between looks at what a program takes.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

/// A program that serves through its standard input and output, until it ends, is dropped, or meets a
/// limit. Once it is dropped, nothing of it runs, or the folder that it serves in cannot be closed.
#[derive(Debug)]
pub struct ServingProgram {
    /// Its standard input.
    pub input: Option<ChildStdin>,
    /// Its standard output.
    pub output: Option<PipeReader>,
    ending: Ending,
    interrupt: Interrupt,
    watching: Option<JoinHandle<()>>,
}

/// The end of a program, for those who wait for it.
#[derive(Debug, Clone)]
pub struct Ending {
    errors: Drain,
    end: Arc<(Mutex<Option<ProgramEnd>>, Condvar)>,
}

/// The place where a program serves.
#[derive(Debug)]
pub(crate) struct ServingPlace {
    /// Its place in the workspace; none of a program that has a folder of its own.
    pub(crate) occupant: Option<Occupant>,
    /// Says when nothing of it runs; it is never written without a sandbox.
    pub(crate) status: StatusFile,
}

/// The result that the thread that watches a program gives back once it runs.
type Began = io::Result<(Option<ChildStdin>, Drain)>;

impl ServingProgram {
    /// Starts a process. `interrupt` ends it.
    pub(crate) fn start(
        process: Process,
        limits: SandboxLimits,
        interrupt: Interrupt,
        place: ServingPlace,
    ) -> io::Result<Self> {
        let (output, writer) = io::pipe()?;
        let (sender, began) = channel();
        let end = Arc::new((Mutex::new(None), Condvar::new()));
        let ended = Arc::clone(&end);
        // A process may end with the thread that has started it.
        let watching = thread::spawn(move || {
            let found = watch(process, &limits, writer, &sender);
            let (end, changed) = &*ended;
            *end.lock().unwrap_or_else(PoisonError::into_inner) = found;
            changed.notify_all();
            place.leave();
        });
        let lost = |_| io::Error::other("the program was not started");
        let (input, errors) = began.recv().map_err(lost)??;
        Ok(Self {
            input,
            output: Some(output),
            ending: Ending { errors, end },
            interrupt,
            watching: Some(watching),
        })
    }

    /// The program's end, for those who wait for it.
    pub fn ending(&self) -> Ending {
        self.ending.clone()
    }
}

impl ServingPlace {
    /// Leaves the folder, once nothing of the program runs.
    fn leave(self) {
        let has_ended = self.status.take().has_ended();
        if let Some(occupant) = self.occupant.filter(|_| !has_ended) {
            occupant.stay();
        }
    }
}

impl Ending {
    /// Waits so long for the end: how the program ended, and the last line that it wrote to its standard
    /// error; none if it still runs.
    pub fn wait(&self, most: Duration) -> Option<(ProgramEnd, String)> {
        let (end, changed) = &*self.end;
        let running = end.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = changed.wait_timeout_while(running, most, |end| end.is_none());
        let (end, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let errors = self.errors.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(&errors.kept);
        let last = text.trim().lines().last().unwrap_or_default();
        end.map(|end| (end, last.to_owned()))
    }
}

/// Runs a process to its end.
fn watch(
    mut process: Process,
    limits: &SandboxLimits,
    output: io::PipeWriter,
    began: &Sender<Began>,
) -> Option<ProgramEnd> {
    let started = io::pipe().and_then(|(errors, writer)| {
        let pipes = (output, writer);
        let started = execution::start(&mut process, limits, pipes, LOOK_INTERVAL)?;
        Ok((started, errors))
    });
    let (mut started, errors) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = began.send(Err(error));
            return None;
        }
    };
    let errors = execution::drain(errors, limits.output, started.sender.clone());
    let _ = began.send(Ok((started.input.take(), errors)));
    let (end, drained) = started.wait().ok()?;
    // What it wrote last may still be on its way.
    started.wait_for_output(1_usize.saturating_sub(drained));
    Some(end)
}

impl Drop for ServingProgram {
    fn drop(&mut self) {
        self.interrupt.set();
        // A program that waits for its input ends by itself.
        drop(self.input.take());
        if let Some(watching) = self.watching.take() {
            let _ = watching.join();
        }
    }
}
