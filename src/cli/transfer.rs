//! `ktsu export` and `ktsu import`: moving runs between ledgers.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ValueEnum;
use serde_json::{Value, json};

use super::evidence::{not_exported, write_new};
use super::location::nearby_ledger;
use super::output::{GOOD, line, painted, print_json, symbols};
use super::reading::open_seeing_all;
use super::{Common, Failure, json as shape, text};
use ktsu_assemble::import::{self, ImportError};
use ktsu_evidence::export::ExportSelection;
use ktsu_evidence::transfer;
use ktsu_opening::engine::explain;
use ktsu_opening::files::create_folder_of;
use ktsu_opening::find::find_run;

/// The format of the frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum ExportFormat {
    /// The stored bytes, for `ktsu import`
    Jsonl,
    /// CloudEvents 1.0, for event collectors; cannot be imported
    Cloudevents,
}

/// What `export` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ExportRunArguments {
    /// The runs; their branches, and the runs they were forked from, are included
    #[arg(required_unless_present = "all", conflicts_with = "all")]
    runs: Vec<String>,
    /// Every run of the ledger
    #[arg(long)]
    all: bool,
    /// With the verdicts about these runs, and the other runs that those are about
    #[arg(long)]
    evals: bool,
    /// The format of the frames
    #[arg(long, value_enum, default_value = "jsonl")]
    format: ExportFormat,
    /// A file, which must not exist yet [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// What `import` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ImportArguments {
    /// A file written by `ktsu export`
    file: PathBuf,
}

/// Writes the lines.
pub(super) fn export(common: &Common, arguments: &ExportRunArguments) -> Result<ExitCode, Failure> {
    let (reader, _) = open_seeing_all(common)?;
    let mut wanted = ExportSelection {
        all: arguments.all,
        evals: arguments.evals,
        ..ExportSelection::default()
    };
    for run in &arguments.runs {
        wanted.streams.push(find_run(&reader, run)?.0);
    }
    let lines = match arguments.format {
        ExportFormat::Jsonl => transfer::export(&reader, &wanted),
        ExportFormat::Cloudevents => transfer::cloud_events(&reader, &wanted),
    };
    let lines = lines.map_err(not_exported)?;
    match &arguments.output {
        Some(path) => {
            write_new(path, lines.as_bytes())?;
            let frames = frames_in(&lines, arguments.format);
            return written(common, path, lines.len(), frames);
        }
        // Nothing in them steers a terminal: what could is escaped, which would change the bytes
        // that are hashed. Those are for files and pipes.
        None => {
            for one in lines.lines() {
                if !line(&shape::compact(one)) {
                    break;
                }
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of frames among the lines.
fn frames_in(lines: &str, format: ExportFormat) -> u64 {
    match format {
        ExportFormat::Jsonl => {
            let header = lines.lines().next().unwrap_or_default();
            let header: Value = serde_json::from_str(header).unwrap_or_default();
            header["frames"].as_u64().unwrap_or_default()
        }
        ExportFormat::Cloudevents => lines.lines().count() as u64,
    }
}

/// Says what is in the file.
fn written(common: &Common, path: &Path, bytes: usize, frames: u64) -> Result<ExitCode, Failure> {
    let file = path.display().to_string();
    if common.json {
        return print_json(&json!({"bytes": bytes, "file": file, "frames": frames}));
    }
    line(&format!(
        "{} {} holds {}, {}",
        painted(GOOD, symbols().good()),
        text::line(&file),
        text::count(frames, "frame"),
        text::count(bytes, "byte")
    ));
    Ok(ExitCode::SUCCESS)
}

/// Takes runs in.
pub(super) async fn import(
    common: &Common,
    arguments: ImportArguments,
) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let name = arguments.file.display().to_string();
    let failed = |why: String| {
        Failure::could_not_run(format!("cannot import {name}: {why}"))
            .hint("nothing was written; to export runs: ktsu export RUN -o FILE")
    };
    let read = std::fs::read(&arguments.file);
    let lines = read.map_err(|error| failed(error.to_string()))?;
    place.ledger.file().map_or(Ok(()), create_folder_of)?;
    let ledger = place.ledger.to_string();
    let done = tokio::task::spawn_blocking(move || import::import(place.ledger, &lines));
    let done = done.await.map_err(|error| failed(error.to_string()))?;
    let imported = done.map_err(|refused| match refused {
        ImportError::Lines(why) => failed(why),
        ImportError::Ledger(refused) => explain(refused, &ledger),
    })?;
    if common.json {
        let body = json!({
            "file": name, "frames": imported.frames, "known": imported.known,
            "streams": imported.streams,
        });
        return print_json(&body);
    }
    let known = match imported.known {
        0 => String::new(),
        some => format!("; {some} already present"),
    };
    line(&format!(
        "{} {}: {} of {}{known}",
        painted(GOOD, "✓"),
        text::line(&name),
        text::count(imported.frames, "frame"),
        text::count(imported.streams, "run")
    ));
    Ok(ExitCode::SUCCESS)
}
