//! SIGINT, SIGTERM and SIGHUP.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::output::note;
use ktsu_assemble::Engine;
use ktsu_opening::engine;

/// The exit code when a second signal ends the process at once.
const CUT: i32 = 130;

/// SIGINT, SIGTERM and SIGHUP, from now on. SIGHUP ends no process (decision P4).
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// The meaning of a signal for a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ServiceSignal {
    /// SIGINT or SIGTERM.
    Stop,
    /// SIGHUP: what can be read again is.
    Reload,
}

impl Signals {
    /// Takes them over from the system's default.
    pub(super) fn new() -> Result<Self, Failure> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for SIGINT or SIGTERM.
    pub(super) async fn next(&mut self) {
        while self.next_of_service().await == ServiceSignal::Reload {
            tracing::info!("SIGHUP is ignored: this command reads nothing again");
        }
    }

    /// Waits for one of the three.
    pub(super) async fn next_of_service(&mut self) -> ServiceSignal {
        tokio::select! {
            _ = self.interrupt.recv() => ServiceSignal::Stop,
            _ = self.terminate.recv() => ServiceSignal::Stop,
            _ = self.hangup.recv() => ServiceSignal::Reload,
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

/// Another signal exits the process at once from now on, even while its runtime waits for work that cannot
/// be cancelled.
pub(super) fn exit_by_another() {
    let (ready, is_ready) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            let Ok(mut signals) = Signals::new() else {
                return;
            };
            let _ = ready.send(());
            signals.next().await;
            std::process::exit(CUT)
        });
    });
    // Without it, the process ends all the same, only later.
    let _ = is_ready.recv();
}

/// Closes the engine of a command, as [`engine::drain_and_close`] does.
pub(super) async fn drain_and_close(engine: Engine) -> Result<(), String> {
    engine::drain_and_close(engine, note).await
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader, Write as _};
    use std::process::{Command, Stdio};

    use super::*;

    /// Makes this test a process that waits without an end.
    const WAITS: &str = "KTSU_TEST_WAITS";

    #[test]
    fn another_signal_ends_a_process_that_waits_for_its_runtime() {
        if std::env::var_os(WAITS).is_some() {
            let runtime = tokio::runtime::Runtime::new().unwrap();
            runtime.block_on(async {
                let _first = Signals::new();
                exit_by_another();
                tokio::task::spawn_blocking(|| {
                    loop {
                        std::thread::park();
                    }
                });
            });
            writeln!(std::io::stdout(), "it now waits").unwrap();
            // Waits for what blocks.
            drop(runtime);
        }
        let name = "another_signal_ends_a_process_that_waits_for_its_runtime";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--nocapture", name])
            .env(WAITS, "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut lines = output.lines().map(Result::unwrap);
        assert!(lines.any(|line| line.contains("it now waits")));
        let id = i32::try_from(child.id()).ok();
        let id = id.and_then(rustix::process::Pid::from_raw).unwrap();
        rustix::process::kill_process(id, rustix::process::Signal::INT).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(CUT));
    }
}
