//! SIGINT and SIGTERM.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// What the exit code is when a second signal ends the process at once.
const CUT: i32 = 130;

/// SIGINT and SIGTERM, from now on.
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// Takes both over from the system's default.
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for one.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }

    /// Runs something that may take a while; another signal exits the process at once. What is
    /// durable by then is enough to continue from.
    pub(super) async fn unless_again<T>(&mut self, work: impl Future<Output = T>) -> T {
        tokio::select! {
            done = work => done,
            () = self.next() => std::process::exit(CUT),
        }
    }
}
