//! `ktsu capture`: baseline files made of a recorded run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::output::{line, note, print_json};
use super::reading::open;
use super::{Common, Failure, json as shape, text};
use ktsu_baseline::{Baseline, CaptureOptions, capture};
use ktsu_history as history;
use ktsu_opening::files::put;
use ktsu_opening::find::find_run;
use ktsu_workflow::recompute::RecordedRun;

/// What `capture` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it
    run: String,
    /// Only this step, or this item of a fan-out: triage, call/inner, classify.8
    #[arg(long, value_name = "STEP")]
    step: Option<String>,
    /// A file that ends in .json, or a folder for several baselines [default: standard output]
    #[arg(short, long, value_name = "FILE|DIR")]
    output: Option<PathBuf>,
    /// A label stored in the baseline
    #[arg(long)]
    label: Option<String>,
    /// Metadata stored in the baseline
    #[arg(long = "meta", value_name = "KEY=VALUE", value_parser = pair)]
    meta: Vec<(String, String)>,
    /// Replaces existing baselines
    #[arg(long, requires = "output")]
    force: bool,
    /// Stores the hashes of outputs and commands instead of them
    #[arg(long)]
    hash_only: bool,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (key, value) = text.split_once('=').ok_or("a key, = and a value")?;
    Ok((key.to_owned(), value.to_owned()))
}

/// Captures a run.
pub(super) fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let (reader, _) = open(common)?;
    let (stream, scope) = find_run(&reader, &arguments.run)?;
    if !scope.is_empty() {
        let hint = format!("ktsu capture {} --step {scope}/STEP", stream.name());
        return Err(Failure::could_not_run("a child cannot be captured on its own").hint(hint));
    }
    let frames = history::frames(&reader, &stream)?;
    let recorded = RecordedRun::from_frames(&frames).map_err(history::RunReadError::from)?;
    let wanted = CaptureOptions {
        step: arguments.step,
        label: arguments.label,
        meta: BTreeMap::from_iter(arguments.meta),
        hash_only: arguments.hash_only,
    };
    let (made, left) = capture(&recorded, &wanted);
    for name in &left {
        note(&format!("{} has no output to capture", text::line(name)));
    }
    if made.is_empty() {
        let paths: std::collections::BTreeSet<String> =
            recorded.ended().map(|task| task.path()).collect();
        let paths = Vec::from_iter(paths).join(", ");
        return Err(Failure::could_not_run("nothing to capture")
            .hint(format!("agent steps of this run: {paths}")));
    }
    let texts = made.iter().map(write_files);
    let texts = texts.collect::<Result<Vec<String>, Failure>>()?;
    let Some(output) = &arguments.output else {
        return print(common, &texts);
    };
    let files: Vec<PathBuf> = if is_file(output) {
        if made.len() > 1 {
            let words = format!("{} baselines do not fit into one file", made.len());
            return Err(Failure::could_not_run(words)
                .hint("name a folder with -o DIR, or one step with --step"));
        }
        vec![output.clone()]
    } else {
        let names = made
            .iter()
            .map(|baseline| output.join(baseline.file_name()));
        names.collect()
    };
    if !arguments.force
        && let Some(there) = files.iter().find(|file| file.symlink_metadata().is_ok())
    {
        let words = format!("{} already exists; nothing was written", there.display());
        return Err(Failure::could_not_run(words).hint("to replace it: --force"));
    }
    for (file, text) in files.iter().zip(&texts) {
        put(file, text)?;
    }
    if common.json {
        let names: Vec<String> = files
            .iter()
            .map(|file| file.display().to_string())
            .collect();
        return print_json(&json!({"files": names, "without_output": left}));
    }
    for file in &files {
        line(&text::line(&file.display().to_string()));
    }
    Ok(ExitCode::SUCCESS)
}

fn print(common: &Common, texts: &[String]) -> Result<ExitCode, Failure> {
    match texts {
        _ if common.json => line(&shape::pretty(&format!("[{}]", texts.join(",")))),
        [one] => line(&shape::pretty(one)),
        _ => {
            let words = format!("cannot print {} baselines", texts.len());
            return Err(Failure::could_not_run(words).hint(
                "name a folder with -o DIR, one step with --step, or print an array with --json",
            ));
        }
    };
    Ok(ExitCode::SUCCESS)
}

fn write_files(baseline: &Baseline) -> Result<String, Failure> {
    baseline.write().map_err(|unfit| {
        let name = text::line(&baseline.snapshot.step).into_owned();
        Failure::could_not_run(format!("cannot capture {name}: {unfit}"))
    })
}

fn is_file(path: &Path) -> bool {
    !path.is_dir() && path.extension().is_some_and(|end| end == "json")
}
