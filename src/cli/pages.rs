//! The pages of the inspector that a command serves: their addresses, a browser for them, and an engine that
//! only reads.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use ktsu_assemble::reading::ReadOnlyEngine;
use ktsu_assemble::{Agents, LedgerPlace, Setup};
use ktsu_environment::Environment;
use ktsu_kit::Kit;
use ktsu_opening::engine::open_reading;
use ktsu_opening::environment::process_environment;
use serde_json::json;

use super::output::{is_terminal, line};
use super::{Common, Failure};

/// The address of the page of a run, or of an inline child as `RUN/STEP`; that of the list of runs if there is none.
pub(super) fn address(engine: &str, run: Option<&str>) -> String {
    match run {
        Some(run) => format!("{engine}/inspector/runs/{}", run.replace('/', "%2F")),
        None => format!("{engine}/inspector/runs"),
    }
}

/// The address of the page of the kit.
pub(super) fn kit_address(engine: &str) -> String {
    format!("{engine}/inspector/kit")
}

/// Prints an address as JSON, beside the process that serves it.
pub(super) fn print_address(url: &str) {
    line(&json!({"url": url, "pid": std::process::id()}).to_string());
}

/// Opens a browser, if the command runs at a terminal.
pub(super) fn browse(common: &Common, url: &str) {
    if !common.json && is_terminal() {
        // Where there is no browser, the address is on the screen.
        let _ = open::that_detached(url);
    }
}

/// Serves the pages of a ledger at a port of this machine: nothing is written, and no lock is taken.
pub(super) async fn serve(
    ledger: LedgerPlace,
    environment: Option<Environment>,
    port: u16,
) -> Result<ReadOnlyEngine, Failure> {
    let kit = Arc::new(Kit::empty());
    let setup = Setup {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
        agents: Agents::Nowhere,
        resume_unfinished: false,
        ..Setup::embedded(kit, environment, process_environment(), ledger)
    };
    open_reading(setup).await
}
