//! `ktsu test`: tests a kit against baselines, through runtime and gateway.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use futures_util::{StreamExt as _, TryStreamExt as _, stream};

use super::baseline_run::{BaselineFile, BaselineRunResult, answer, step_of};
use super::comparison::{OutputFormat, markdown, print_named, print_repeated, status_text};
use super::location::ledger_location;
use super::logging::{self, LogFormat};
use super::output::{DIM, line, painted, print_failure, print_json, words};
use super::signals::{Signals, drain_and_close};
use super::test_twice::FirstRuns;
use super::{Common, Failure, text};
use ktsu_assemble::{Engine, LedgerPlace, Setup};
use ktsu_baseline::{
    Baseline, BaselineError, BaselineReport, BaselineResult, BaselineVerdict, MAX_FILE,
    ToleratedDifferences, compare,
};
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_kit::Kit;
use ktsu_opening::engine::{open, receiver};
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::files::unreadable;
use ktsu_opening::kit::load_kit_as;

/// The number of baselines tested concurrently.
const MAX_CONCURRENT: usize = 10;
/// The most baselines of one test.
const MAX_BASELINES: usize = 10_000;

/// What `test` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// Baseline files, or folders of them
    #[arg(required = true, value_name = "BASELINE")]
    baselines: Vec<PathBuf>,
    /// The kit to test
    #[arg(
        long,
        value_name = "DIR",
        default_value = ".",
        alias = "project-dir",
        env = "KTSU_PROJECT_DIR"
    )]
    kit: PathBuf,
    /// The environment file
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// How to print the report
    #[arg(long, value_enum)]
    format: Option<OutputFormat>,
    /// Exits with 0 if outputs differ; a schema violation still counts, and other commands
    #[arg(long)]
    no_fail_on_diff: bool,
    /// Exits with 0 if commands differ
    #[arg(long)]
    no_fail_on_commands_diff: bool,
    /// Exits with 0 if there is nothing to compare with
    #[arg(long)]
    allow_not_comparable: bool,
    /// Runs each agent again on the replies and results of its first run, which must give the same
    #[arg(long)]
    twice: bool,
    /// Records the calls on the ledger, as recomputes
    #[arg(long)]
    record: bool,
    /// Refuses a kit that differs from its ktsu.lock.yaml
    #[arg(long)]
    locked: bool,
}

/// Holds baselines against the kit.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    // All files are read first, so that broken ones are reported before any model is called.
    let given = read_all(&arguments.baselines)?;
    let kit = load_kit_as(&arguments.kit, arguments.locked)?;
    for one in &given {
        step_of(&kit, one)?;
    }
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let mut signals = Signals::new()?;
    let environment = load_environment(arguments.env.as_deref(), &arguments.kit)?;
    let ledger = match arguments.record {
        true => ledger_location(common, environment.as_ref())?.ledger,
        false => LedgerPlace::Memory,
    };
    let mut process = process_environment();
    let _receiver = receiver(environment.as_ref(), &mut process, ledger.file()).await?;
    let setup = Setup::embedded(Arc::clone(&kit), environment.clone(), process, ledger);
    let engine = open(setup).await?;
    let mut first = arguments.twice.then(FirstRuns::new).transpose()?;
    let results = tokio::select! {
        results = ask_all(&engine, &kit, &given, first.as_mut()) => Some(results),
        () = signals.next() => None,
    };
    let closed = match arguments.record {
        true => signals.unless_again(drain_and_close(engine)).await,
        false => signals.unless_again(engine.close()).await,
    };
    let Some(results) = results else {
        print_failure("interrupted");
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    };
    let mut results = results?;
    closed.map_err(Failure::could_not_run)?;
    if let Some(first) = first {
        let repeated = tokio::select! {
            repeated = first.repeat(&kit, environment.as_ref(), &given) => repeated?,
            () = signals.next() => {
                print_failure("interrupted");
                return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
            }
        };
        for (result, repeated) in results.iter_mut().zip(repeated) {
            result.repeated = repeated;
        }
    }
    let tolerated = ToleratedDifferences {
        values: arguments.no_fail_on_diff,
        commands: arguments.no_fail_on_commands_diff,
        not_comparable: arguments.allow_not_comparable,
    };
    let report = BaselineReport::of(results, tolerated);
    let format = arguments.format.unwrap_or(match common.json {
        true => OutputFormat::Json,
        false => OutputFormat::Text,
    });
    print(&report, format)?;
    Ok(match report.status {
        BaselineVerdict::Pass => ExitCode::SUCCESS,
        BaselineVerdict::Fail => ExitCode::from(EXIT_VERDICT),
        BaselineVerdict::Error => ExitCode::from(EXIT_COULD_NOT_RUN),
    })
}

/// The files that are named, those of folders included, in the order of their names.
fn read_all(named: &[PathBuf]) -> Result<Vec<BaselineFile>, Failure> {
    let mut files = Vec::new();
    for path in named {
        if !path.is_dir() {
            files.push(path.clone());
            continue;
        }
        for entry in std::fs::read_dir(path).map_err(|error| unreadable(path, &error))? {
            let file = entry.map_err(|error| unreadable(path, &error))?.path();
            if file.extension().is_some_and(|end| end == "json") && file.is_file() {
                files.push(file);
            }
        }
    }
    files.sort();
    files.dedup();
    if files.is_empty() {
        return Err(Failure::could_not_run("no baselines found")
            .hint("to make some: ktsu capture RUN -o DIR"));
    }
    if files.len() > MAX_BASELINES {
        let words = format!(
            "{} baselines are too many: the limit is {MAX_BASELINES}",
            files.len()
        );
        return Err(Failure::could_not_run(words));
    }
    files.iter().map(|file| read(file)).collect()
}

fn read(file: &Path) -> Result<BaselineFile, Failure> {
    let mut bytes = Vec::new();
    let opened = std::fs::File::open(file).and_then(|open| {
        let most = u64::try_from(MAX_FILE).unwrap_or(u64::MAX);
        open.take(most.saturating_add(1)).read_to_end(&mut bytes)
    });
    opened.map_err(|error| unreadable(file, &error))?;
    let baseline = Baseline::read(&bytes).map_err(|wrong: BaselineError| {
        Failure::could_not_run(format!("{}: {wrong}", file.display()))
    })?;
    Ok(BaselineFile {
        file: file.display().to_string(),
        baseline,
    })
}

/// Runs the input of every baseline, and compares; `first` takes the runs.
async fn ask_all(
    engine: &Engine,
    kit: &Kit,
    given: &[BaselineFile],
    mut first: Option<&mut FirstRuns>,
) -> Result<Vec<BaselineResult>, Failure> {
    let asked = stream::iter(given).map(|one| ask(engine, kit, one));
    let mut asked = asked.buffered(MAX_CONCURRENT);
    let mut results = Vec::new();
    while let Some((result, answered)) = asked.try_next().await? {
        if let Some(first) = &mut first {
            first.take(&answered)?;
        }
        results.push(result);
    }
    Ok(results)
}

/// Runs one baseline's input, and compares what came of it.
async fn ask(
    engine: &Engine,
    kit: &Kit,
    given: &BaselineFile,
) -> Result<(BaselineResult, BaselineRunResult), Failure> {
    let results = given.baseline.results();
    let results = results.map_err(|unfit| given.failed(&unfit.to_string()))?;
    let answered = answer(engine, kit, given, &results).await?;
    let (_, found) = step_of(kit, given)?;
    let recorded = &answered.recorded;
    let agent = recorded.plan.agents.get(&found.agent.file).map(Arc::as_ref);
    let compared = compare(&given.baseline, recorded.tasks.first(), found.step, agent);
    let result = BaselineResult::of(given.file.clone(), &given.baseline, compared);
    Ok((result, answered))
}

fn print(report: &BaselineReport, format: OutputFormat) -> Result<(), Failure> {
    match format {
        OutputFormat::Json => drop(print_json(report)?),
        OutputFormat::Text => {
            for one in &report.baselines {
                print_named(&text::line(&one.file), &one.task());
                if let Some(repeated) = &one.repeated {
                    print_repeated(repeated);
                }
            }
            let summary = painted(DIM, &report.summary);
            words(
                &format!("{}  {summary}", status_text(status(report.status))),
                2,
            );
        }
        OutputFormat::Markdown => {
            line(&format!(
                "## Baselines: {}\n\n{}\n",
                status(report.status),
                report.summary
            ));
            for one in report.baselines.iter().filter(|one| !one.is_as_before()) {
                for row in markdown(&text::line(&one.file), &one.task()) {
                    line(&row);
                }
                if let Some(repeated) = one.repeated.as_ref().filter(|one| !one.is_same()) {
                    line(&format!(
                        "Run twice on the same replies: {}\n",
                        repeated.words()
                    ));
                }
            }
        }
    }
    Ok(())
}

fn status(status: BaselineVerdict) -> &'static str {
    match status {
        BaselineVerdict::Pass => "pass",
        BaselineVerdict::Fail => "fail",
        BaselineVerdict::Error => "error",
    }
}
