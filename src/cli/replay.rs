//! `ktsu replay`: recorded runs, folded, or decided again.

use std::path::PathBuf;
use std::process::ExitCode;

use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Ledger, LedgerPlace, StreamId};
use serde_json::{Value, json};

use super::envelope::{self, EnvelopeView};
use super::location::nearby_ledger;
use super::output::{BAD, DIM, GOOD, WARN, line, painted, print_json, row};
use super::reading::open_at;
use super::{Common, Failure, against, json as shape, text};
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_history::kit_comparison::RunSelection;
use ktsu_history::replay::{self, ReplayReport, RunReplayError};
use ktsu_history::{self as history, RunReadError, parallel};
use ktsu_opening::find::find_run;
use ktsu_opening::kit::load_kit_as;
use ktsu_workflow::replay::{Definitions, ReplayError};

/// What `replay` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The runs: ids, or unique prefixes or suffixes of them
    #[arg(value_name = "RUN")]
    runs: Vec<String>,
    /// Every run of the ledger
    #[arg(long, conflicts_with = "runs")]
    all: bool,
    /// Decides everything again from the recorded inputs and definition, and compares every byte
    #[arg(long)]
    strict: bool,
    /// Applies the recorded inputs to the kit in this folder, and shows what would differ
    #[arg(
        long,
        value_name = "DIR",
        alias = "project-dir",
        conflicts_with = "strict"
    )]
    against: Option<PathBuf>,
    /// Refuses the kit in that folder if it differs from its ktsu.lock.yaml
    #[arg(long, requires = "against")]
    locked: bool,
    /// Only runs of this workflow
    #[arg(long, requires = "against", value_name = "NAME")]
    workflow: Option<String>,
    /// Only runs accepted at this time or later: 2026-11-20 or 2026-11-20T08:00:00.000000Z
    #[arg(long, requires = "against", value_name = "TIME")]
    since: Option<String>,
}

/// Replays runs.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let place = nearby_ledger(common)?;
    let reader = open_at(&place.ledger)?;
    let streams = against_named(&reader, arguments)?;
    if let Some(dir) = &arguments.against {
        let wanted = against(arguments)?;
        let kit = load_kit_as(dir, arguments.locked)?;
        return against::run(
            common,
            &place.ledger,
            &kit,
            &streams,
            arguments.all,
            &wanted,
        );
    }
    if let ([stream], false) = (streams.as_slice(), arguments.strict) {
        return fold_one(common, &reader, stream);
    }
    let results = replay_all(&place.ledger, &streams, arguments.strict)?;
    print(common, &streams, &results, arguments.strict)
}

fn against(arguments: &Arguments) -> Result<RunSelection, Failure> {
    let since = arguments.since.as_deref().map(|since| {
        let whole = match since.contains('T') {
            true => since.to_owned(),
            false => format!("{since}T00:00:00.000000Z"),
        };
        let words = || format!("{since} is not a time");
        let hint = "write 2026-11-20 or 2026-11-20T08:00:00.000000Z";
        whole
            .parse()
            .map_err(|_| Failure::could_not_run(words()).hint(hint))
    });
    Ok(RunSelection {
        workflow: arguments.workflow.clone(),
        since: since.transpose()?,
    })
}

/// The runs that are meant, each once.
fn against_named(reader: &dyn Reader, arguments: &Arguments) -> Result<Vec<StreamId>, Failure> {
    if arguments.all {
        return Ok(replay::streams(reader)?);
    }
    if arguments.runs.is_empty() {
        return Err(Failure::could_not_run("no run given")
            .hint("ktsu replay RUN…, or ktsu replay --all for every run of the ledger"));
    }
    let mut streams: Vec<StreamId> = Vec::new();
    for asked in &arguments.runs {
        let (stream, _) = find_run(reader, asked)?;
        if !streams.contains(&stream) {
            streams.push(stream);
        }
    }
    Ok(streams)
}

/// One run, folded and shown.
fn fold_one(common: &Common, reader: &dyn Reader, stream: &StreamId) -> Result<ExitCode, Failure> {
    let report = replay::folded(reader, stream).map_err(not_replayed)?;
    let fold = history::envelope(reader, stream)?;
    let shown = fold.as_ref().and_then(|fold| fold.envelope(""));
    if common.json {
        let body = json!({"replay": report, "envelope": shown});
        return print_json(&body);
    }
    if let Some(shown) = &shown {
        let all = format!("ktsu runs get {} --json", stream.name());
        let json = json!(shown).to_string();
        let steps = true;
        envelope::print(&json, EnvelopeView { steps, all: &all })?;
    }
    line(&format!(
        "{} {} frames, head {}",
        painted(DIM, "folded:"),
        report.frames,
        report.head
    ));
    Ok(ExitCode::SUCCESS)
}

type ReplayedRuns = Vec<Result<ReplayReport, RunReplayError>>;

fn replay_all(
    ledger: &LedgerPlace,
    streams: &[StreamId],
    strict: bool,
) -> Result<ReplayedRuns, StoreError> {
    let begin = || {
        let reader = Ledger::open(ledger).reader()?;
        Ok::<_, StoreError>((reader, Definitions::default()))
    };
    parallel::each(streams, begin, |(reader, definitions), stream| {
        if strict {
            replay::strict(reader, stream, definitions)
        } else {
            replay::folded(reader, stream)
        }
    })
}

/// Prints one line per run. A run that could not be replayed outweighs a divergence.
fn print(
    common: &Common,
    streams: &[StreamId],
    results: &ReplayedRuns,
    strict: bool,
) -> Result<ExitCode, Failure> {
    let code = results
        .iter()
        .map(|one| one.as_ref().map_or_else(code, |_| 0));
    let code = code.max().unwrap_or(0);
    if common.json {
        let runs = streams.iter().zip(results);
        let runs: Vec<Value> = runs
            .map(|(stream, one)| replay::verdict(stream, one.as_ref()))
            .collect();
        let body = json!({"strict": strict, "ok": code == 0, "runs": runs});
        line(&shape::pretty(&body.to_string()));
        return Ok(ExitCode::from(code));
    }
    for (stream, one) in streams.iter().zip(results) {
        let words = verdict_text(stream, one);
        // Why one is not as it should be is never cut.
        let read = match one {
            Ok(_) => row(&words),
            Err(_) => line(&words),
        };
        if !read {
            break;
        }
    }
    if streams.len() != 1 {
        let good = results.iter().filter(|one| one.is_ok()).count();
        line(&format!(
            "{good} of {} ok",
            text::count(results.len(), "run")
        ));
    }
    Ok(ExitCode::from(code))
}

fn verdict_text(stream: &StreamId, report: &Result<ReplayReport, RunReplayError>) -> String {
    let name = text::line(stream.name());
    match report {
        Ok(report) => format!(
            "{} {name}  {}  {} frames  {}",
            painted(GOOD, "ok"),
            report.status,
            report.frames,
            painted(DIM, &report.head.to_string()),
        ),
        Err(failed) => {
            let words = text::line(&failed.to_string()).into_owned();
            let mark = match code(failed) {
                EXIT_VERDICT => painted(BAD, "diverged"),
                _ => painted(WARN, "could not run"),
            };
            format!("{mark} {name}: {words}")
        }
    }
}

fn code(failed: &RunReplayError) -> u8 {
    match failed {
        RunReplayError::Stopped(ReplayError::Diverged(_)) => EXIT_VERDICT,
        RunReplayError::Stopped(_) | RunReplayError::Unreadable(_) => EXIT_COULD_NOT_RUN,
    }
}

/// The failure of a run that was not replayed.
fn not_replayed(failed: RunReplayError) -> Failure {
    match failed {
        RunReplayError::Unreadable(RunReadError::Store(error)) => error.into(),
        RunReplayError::Unreadable(other) => other.into(),
        RunReplayError::Stopped(ReplayError::Diverged(diverged)) => {
            Failure::verdict(diverged.to_string())
        }
        RunReplayError::Stopped(other) => Failure::could_not_run(other.to_string()),
    }
}
