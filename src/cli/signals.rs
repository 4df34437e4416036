//! SIGINT, SIGTERM and SIGHUP.

use std::time::Duration;

use ktsu_orchestrator::AwaitedEffects;
use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;
use super::output::note;
use crate::assemble::Engine;

/// What the exit code is when a second signal ends the process at once.
const CUT: i32 = 130;

/// How long calls in flight may take to be recorded, unless an option says otherwise.
pub(super) const DRAIN_TIME: Duration = Duration::from_secs(30);

/// How long draining may take before a command says that it waits.
const NOTICE_TIME: Duration = Duration::from_millis(300);

/// SIGINT, SIGTERM and SIGHUP, from now on. SIGHUP ends no process (decision P4).
pub(super) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Signal,
}

/// What a signal means for a service.
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

/// Closes the engine of a command. The calls in flight are recorded first, so that nothing is paid for
/// twice; a webhook without an answer is sent again by the next start, under its delivery id.
pub(super) async fn drain_and_close(engine: Engine) -> Result<(), String> {
    let notice = async {
        tokio::time::sleep(NOTICE_TIME).await;
        let seconds = DRAIN_TIME.as_secs();
        note(&format!(
            "recording the calls in flight, for at most {seconds} s; Ctrl-C ends at once"
        ));
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = engine.drain(AwaitedEffects::Calls, DRAIN_TIME) => {}
        () = notice => {}
    }
    engine.close().await
}
