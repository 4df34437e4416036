//! `ktsu inspect`: the pages of a ledger in a browser, for one who may read its file. Nothing is written.

use std::process::ExitCode;

use ktsu_opening::find::find_run;
use ktsu_projections::step_name::scoped_run;

use super::location::nearby_ledger;
use super::output::{line, note_dim};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure, pages};

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
    let run = match &arguments.run {
        None => None,
        Some(given) => {
            let (stream, scope) = find_run(&open_at(&place.ledger)?, given)?;
            Some(scoped_run(stream.name(), &scope))
        }
    };
    let mut signals = Signals::new()?;
    let engine = pages::serve(place.ledger, None, arguments.port).await?;
    let url = pages::address(&engine.url, run.as_deref());
    if common.json {
        pages::print_address(&url);
    } else {
        line(&url);
        note_dim("  Ctrl-C ends it");
    }
    if !arguments.no_open {
        pages::browse(common, &url);
    }
    signals.next().await;
    signals.unless_again(engine.close()).await;
    Ok(ExitCode::SUCCESS)
}
