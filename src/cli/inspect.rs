//! `ktsu inspect`: the pages of a ledger in a browser, for one who may read its file. Nothing is written.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use ktsu_assemble::{Agents, Setup};
use ktsu_kit::Kit;
use ktsu_opening::engine::open_reading;
use ktsu_opening::environment::process_environment;
use ktsu_opening::find::find_run;
use ktsu_projections::step_name::scoped_run;
use serde_json::json;

use super::location::nearby_ledger;
use super::output::{is_terminal, line, note_dim};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure};

/// What `inspect` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run or branch to begin with: its id, or a unique prefix or suffix of it [default: the list of runs]
    run: Option<String>,
    /// The port of 127.0.0.1; 0 for any free one
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Opens no browser
    #[arg(long)]
    no_open: bool,
}

/// Serves the pages until it is stopped.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let page = match &arguments.run {
        None => "runs".to_owned(),
        Some(given) => {
            let (stream, scope) = find_run(&open_at(&place.ledger)?, given)?;
            let name = scoped_run(stream.name(), &scope).replace('/', "%2F");
            format!("runs/{name}")
        }
    };
    let mut signals = Signals::new()?;
    let kit = Arc::new(Kit::empty());
    let setup = Setup {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, arguments.port)),
        agents: Agents::Nowhere,
        resume_unfinished: false,
        ..Setup::embedded(kit, None, process_environment(), place.ledger.clone())
    };
    let engine = open_reading(setup).await?;
    let url = format!("{}/inspector/{page}", engine.url);
    if common.json {
        line(&json!({"url": url, "pid": std::process::id()}).to_string());
    } else {
        line(&url);
        note_dim("  Ctrl-C ends it");
    }
    if !arguments.no_open && !common.json && is_terminal() {
        // Where there is no browser, the address is on the screen.
        let _ = open::that_detached(&url);
    }
    signals.next().await;
    signals.unless_again(engine.close()).await;
    Ok(ExitCode::SUCCESS)
}
