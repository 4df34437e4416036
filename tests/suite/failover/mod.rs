//! The owner of a ledger on PostgreSQL, its server or its network is lost while clients work; a standby
//! takes over. The real binary on a real server; skipped, with a note, where PostgreSQL is not installed.
//!
//! `KTSU_FAILOVERS` says how often (once without it; 20 in a full campaign), with 64 clients instead of
//! 16, and holds each takeover to a lease and a second.

mod clients;
mod clocks;
mod cut_off;
mod killed;
mod machines;
mod network;
mod partitions;
mod promoted;
mod reported;
mod waiting;
mod zombies;

use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use ktsu_ledger::LedgerPlace;
use ktsu_ledger::store::lease::LEASE;

use crate::support::load::{KEY, kit};
use crate::support::model;
use crate::support::process::Process;
use crate::support::services::free;
use crate::support::{KitDir, Sink, campaign, not_tested};

/// The time that a takeover may take beside a lease.
const SLACK: Duration = Duration::from_secs(1);

/// How often something fails over.
fn failovers() -> usize {
    let wanted = std::env::var("KTSU_FAILOVERS").ok();
    wanted.map_or(campaign(1, 20), |wanted| wanted.parse().unwrap())
}

fn clients() -> usize {
    if failovers() > 1 { 64 } else { 16 }
}

/// A takeover is in time. Where other tests work beside it, it may take twice as long.
fn is_in_time(took: Duration) {
    let limit = LEASE + SLACK;
    let limit = if failovers() > 1 { limit } else { limit * 2 };
    eprintln!("takeover after {took:?}");
    assert!(took <= limit, "a takeover took {took:?}");
}

/// Runs what blocks, beside the tasks of the test.
fn beside<T>(work: impl FnOnce() -> T) -> T {
    tokio::task::block_in_place(work)
}

/// A command around an engine that makes it a process of another machine, as far as others can tell:
/// nothing knows that it has ended, and so its lease counts.
fn elsewhere() -> Command {
    let around = |command: &mut Command| {
        command.args(["--pid", "--fork", "--kill-child=KILL"]);
    };
    let mut tried = Command::new("unshare");
    around(&mut tried);
    if tried
        .arg("true")
        .output()
        .is_ok_and(|it| it.status.success())
    {
        let mut command = Command::new("unshare");
        around(&mut command);
        command.arg(env!("CARGO_BIN_EXE_ktsu"));
        return command;
    }
    not_tested("takeovers after a lease: this user may not have a namespace of processes");
    Command::new(env!("CARGO_BIN_EXE_ktsu"))
}

/// A ledger on a server, and what the engines on it need.
struct Place {
    kit: KitDir,
    sink: Sink,
    address: String,
}

impl Place {
    async fn new(address: String) -> Self {
        Self::with(kit(), address).await
    }

    /// With a kit of its own.
    async fn with(kit: KitDir, address: String) -> Self {
        Self {
            kit,
            sink: Sink::new().await,
            address,
        }
    }

    fn ledger(&self) -> LedgerPlace {
        let place: ktsu_postgres::PostgresPlace = self.address.parse().unwrap();
        LedgerPlace::Backend(Arc::new(place))
    }

    /// An engine as its unit file starts it: the owner if there is none, or else a standby.
    fn engine(&self) -> Process {
        self.engine_of(&elsewhere, &self.address)
    }

    /// As [`Place::engine`], within such a command.
    fn engine_within(&self, around: &dyn Fn() -> Command) -> Process {
        self.engine_of(around, &self.address)
    }

    /// As [`Place::engine`], which calls the server of the ledger at another address.
    fn engine_at(&self, address: &str) -> Process {
        self.engine_of(&elsewhere, address)
    }

    fn engine_of(&self, around: &dyn Fn() -> Command, address: &str) -> Process {
        beside(|| {
            started(|[port, ..]| {
                let mut command = around();
                command.args(["start", "--standby", "--json", "--port", &port]);
                command.args(["--runtime-port", "0", "--gateway-port", "0"]);
                command.args(["--ledger", address, "--kit"]);
                command.arg(self.kit.dir.path());
                quiet(&mut command).env("SINK", &self.sink.url);
                command.env(model::KEY.0, model::KEY.1);
                command.current_dir(self.kit.dir.path());
                command
            })
        })
    }
}

/// The environment of an engine: nothing of the machine's, and the signing key.
fn quiet(command: &mut Command) -> &mut Command {
    let log = std::env::var("KTSU_TEST_LOG");
    command.env_clear().env("KTSU_SIGNING_KEY", KEY);
    // Programs around an engine are found by it.
    command.env("PATH", std::env::var("PATH").unwrap_or_default());
    command.env("KTSU_LOG", log.unwrap_or("error".to_owned()))
}

/// Starts a command that listens at one of some ports, which something else may get first: then at
/// others.
fn started(command: impl Fn([String; 3]) -> Command) -> Process {
    let mut tries = (0..10).map(|_| Process::try_spawn(command(free().map(|it| it.to_string()))));
    let started = tries.find_map(Result::ok);
    started.expect("an engine does not start at ten ports")
}
