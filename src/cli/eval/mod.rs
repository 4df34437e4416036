//! `ktsu eval run` and `ktsu eval resume`: run what a spec names, once for each combination of its
//! matrix and each replica, and judge every run.
//!
//! ```text
//! spec ─▶ scenarios × replicas ─Bench─▶ runs ─▶ checks ─EvalWriter─▶ frames ─▶ report
//! ```

mod again;
mod bench;
mod ended;
mod folders;
mod formats;
mod http_mocks;
mod job;
mod judged;
mod report;
mod stops;
mod suites;
mod tool_bridge;
mod tool_process;
mod turns;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ktsu_codes::EXIT_COULD_NOT_RUN;
use ktsu_eval::{EvalRecord, EvalSpec, Held};
use ktsu_history::evals::{self, EvalReadError};
use ktsu_ledger::{Hash, StreamId};

use self::again::Again;
use self::bench::SuiteRunner;
use self::job::{BenchArguments, Job};
use self::judged::JudgedSuite;
use self::suites::SuiteFile;
use super::location::ledger_location;
use super::logging::warn_of;
use super::logging::{self, LogFormat};
use super::output::print_failure;
use super::reading::open_at;
use super::signals::{Signals, drain_and_close, exit_by_another};
use super::{Common, Failure};
use ktsu_assemble::{Engine, Setup};
use ktsu_config::fault::Faults;
use ktsu_kit::Kit;
use ktsu_opening::engine::{open, receiver};
use ktsu_opening::environment::{load_environment, process_environment};
use ktsu_opening::find::find_eval;
use ktsu_opening::kit::load_kit;
use ktsu_opening::peer::{peer_of, token_header};
use ktsu_project::eval_file::{self, EvalFile};
use ktsu_workflow::admit::ENGINE;

#[derive(Debug, clap::Subcommand)]
pub(super) enum EvalCommand {
    /// Runs the subject of a spec, once for each combination of its matrix, and judges every run
    Run(RunArguments),
    /// Finishes an eval that was interrupted: what it has judged is not run again
    Resume(EvalResumeArguments),
    /// Runs again what an eval has no verdict on, and judges all of it anew, as an eval of its own
    Retry(EvalResumeArguments),
    /// Judges the recorded runs of an eval once more, by another spec, as an eval of its own; nothing runs
    Score(ScoreArguments),
}

/// What `eval run` takes.
#[derive(Debug, clap::Args)]
pub(super) struct RunArguments {
    /// The spec, evals/NAME.eval.yaml; or a kit, for every spec in its evals/ that has a subject
    spec: PathBuf,
    /// The kit [default: the folder that has the spec in its evals/]
    #[arg(long, value_name = "DIR", alias = "project-dir")]
    kit: Option<PathBuf>,
    /// Only the scenario of this name, as reports have it
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    #[command(flatten)]
    common: BenchArguments,
}

/// What `eval resume` and `eval retry` take.
#[derive(Debug, clap::Args)]
pub(super) struct EvalResumeArguments {
    /// The eval: its id, or a unique prefix or suffix of it
    eval: String,
    /// The kit that it runs
    #[arg(long, value_name = "DIR", alias = "project-dir", default_value = ".")]
    kit: PathBuf,
    #[command(flatten)]
    common: BenchArguments,
}

/// What `eval score` takes.
#[derive(Debug, clap::Args)]
pub(super) struct ScoreArguments {
    #[command(flatten)]
    eval: EvalResumeArguments,
    /// The spec, which names the same scenarios [default: that of the eval]
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
}

/// Runs suites, or the rest of one.
pub(super) async fn run(common: &Common, command: EvalCommand) -> Result<ExitCode, Failure> {
    match command {
        EvalCommand::Run(arguments) => {
            let only = arguments.scenario.as_deref();
            let (kit, suites) = suites::named(&arguments.spec, arguments.kit, only)?;
            judge(common, &kit, &arguments.common, Job::New(suites)).await
        }
        EvalCommand::Resume(arguments) => {
            let (stream, record) = recorded(common, &arguments, false)?;
            let suite = suite_of(&arguments, &record, stream.name())?;
            let job = Job::Rest(Box::new((suite, stream, record)));
            judge(common, &arguments.kit, &arguments.common, job).await
        }
        EvalCommand::Retry(arguments) => {
            let (stream, record) = recorded(common, &arguments, true)?;
            let suite = suite_of(&arguments, &record, stream.name())?;
            let job = Job::Errors(Box::new((suite, stream, record)));
            judge(common, &arguments.kit, &arguments.common, job).await
        }
        EvalCommand::Score(ScoreArguments { eval, spec }) => {
            let (stream, record) = recorded(common, &eval, true)?;
            let suite = match spec {
                Some(spec) => suites::of_the_same_scenarios(&spec, &record)?,
                None => suite_of(&eval, &record, stream.name())?,
            };
            let job = Job::Score(Box::new((suite, stream, record)));
            judge(common, &eval.kit, &eval.common, job).await
        }
    }
}

async fn judge(
    common: &Common,
    dir: &Path,
    arguments: &BenchArguments,
    job: Job,
) -> Result<ExitCode, Failure> {
    let kit = load_kit(dir)?;
    job.suites().try_for_each(|suite| suite.can_run(&kit))?;
    logging::start(LogFormat::Text, logging::default_level("warn"))?;
    let token = token_header()?;
    let mut signals = Signals::new()?;
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let place = ledger_location(common, environment.as_ref())?;
    let mut process = process_environment();
    for suite in job.suites() {
        for (name, reference) in suite.suite.services.variables() {
            // Runs get their service's URL, so the environment need not have one.
            process.entry(name.to_owned()).or_insert(reference);
        }
    }
    let _receiver = receiver(environment.as_ref(), &mut process, place.ledger.file()).await?;
    environment.iter().for_each(|file| warn_of(&file.warnings));
    let ledger = place.ledger.clone();
    let engine = open(Setup {
        resume_unfinished: false,
        ..Setup::embedded(Arc::clone(&kit), environment, process, ledger)
    })
    .await?;
    if let Err(refused) = has_models(&engine, &kit, arguments, &job) {
        drain_and_close(engine)
            .await
            .map_err(Failure::could_not_run)?;
        return Err(refused);
    }
    let bench = SuiteRunner::new(
        &engine,
        peer_of(&engine, token),
        &kit,
        arguments,
        common.json,
    );
    let (under_way, interrupt) = (bench.under_way(), bench.interrupt());
    let again = Again {
        kit: dir,
        env: arguments.env.as_deref(),
        ledger: &place.flag,
        without_sandbox: arguments.no_sandbox,
    };
    let judged = tokio::select! {
        judged = bench.judge(&job) => Some(judged),
        () = signals.next() => None,
    };
    if judged.is_none() {
        // Copies of files may still be made or removed.
        exit_by_another();
    }
    // What still runs beside runs is of no use any more.
    interrupt.set();
    let closed = signals.unless_again(drain_and_close(engine)).await;
    let Some(judged) = judged else {
        let rest = match under_way.get() {
            None => String::new(),
            Some(id) => format!(": ktsu eval resume {id}{} finishes it", again.options()),
        };
        print_failure(&format!("interrupted; what is judged is kept{rest}"));
        return Ok(ExitCode::from(EXIT_COULD_NOT_RUN));
    };
    let judged = judged?;
    closed.map_err(Failure::could_not_run)?;
    write(arguments, &judged)?;
    report::show(common, &judged, &again)
}

/// Refuses suites whose models are not those that the arguments allow.
fn has_models(
    engine: &Engine,
    kit: &Kit,
    arguments: &BenchArguments,
    job: &Job,
) -> Result<(), Failure> {
    let (scripted, unpriced) = (engine.scripted_groups(), engine.unpriced_models());
    job.suites().try_for_each(|suite| {
        if arguments.offline {
            suite.is_scripted(kit, &scripted)?;
        }
        suite.has_prices(arguments.cost_limit, &unpriced)
    })
}

/// Writes the files that were asked for.
fn write(arguments: &BenchArguments, judged: &[JudgedSuite<'_>]) -> Result<(), Failure> {
    let files = [
        (
            &arguments.junit,
            formats::junit as fn(&[JudgedSuite<'_>]) -> String,
        ),
        (&arguments.markdown, formats::markdown),
    ];
    for (path, format) in files {
        if let Some(path) = path {
            std::fs::write(path, format(judged)).map_err(|error| {
                Failure::could_not_run(format!("cannot write {}: {error}", path.display()))
            })?;
        }
    }
    Ok(())
}

/// The record of an eval; one that `is_finished`, or one that is not.
fn recorded(
    common: &Common,
    arguments: &EvalResumeArguments,
    is_finished: bool,
) -> Result<(StreamId, EvalRecord), Failure> {
    let environment = load_environment(arguments.common.env.as_deref(), &arguments.kit)?;
    let place = ledger_location(common, environment.as_ref())?;
    let reader = open_at(&place.ledger)?;
    let stream = find_eval(&reader, &arguments.eval)?;
    let name = stream.name().to_owned();
    let damaged = |why: &str| {
        Failure::could_not_run(format!("{name}: {why}")).hint("to see what is damaged: ktsu verify")
    };
    let record = evals::record(&reader, &stream, Held::WithoutContents);
    let record = record.map_err(|error| match error {
        EvalReadError::Store(error) => Failure::from(error),
        EvalReadError::Record(fault) => damaged(fault.reason),
    })?;
    match (record.finished, is_finished) {
        (Some(_), false) => {
            let words = format!("{name} is finished, so there is nothing to resume");
            return Err(
                Failure::could_not_run(words).hint(format!("ktsu evals {name}{}", place.flag))
            );
        }
        (None, true) => {
            let words = format!("{name} is not finished");
            let again = Again {
                kit: &arguments.kit,
                env: arguments.common.env.as_deref(),
                ledger: &place.flag,
                without_sandbox: arguments.common.no_sandbox,
            };
            let hint = format!("ktsu eval resume {name}{}", again.options());
            return Err(Failure::could_not_run(words).hint(hint));
        }
        (Some(_), true) | (None, false) => {}
    }
    Ok((stream, record))
}

/// The suite that an eval records.
fn suite_of(
    arguments: &EvalResumeArguments,
    record: &EvalRecord,
    name: &str,
) -> Result<SuiteFile, Failure> {
    let damaged = |why: &str| {
        Failure::could_not_run(format!("{name}: {why}")).hint("to see what is damaged: ktsu verify")
    };
    let Some(suite) = record.started.suite.clone() else {
        let words = format!("{name} checks a run that was there before, so it has nothing to run");
        return Err(Failure::could_not_run(words).hint("ktsu check RUN --spec FILE checks it anew"));
    };
    if record.started.engine != ENGINE {
        let words = format!(
            "{name} was begun by another version, {}",
            record.started.engine
        );
        return Err(Failure::could_not_run(words).hint("ktsu eval run SPEC judges all of it anew"));
    }
    let (file, text) = (&record.started.file, &record.started.spec);
    // The record has the name of the file alone.
    let there = arguments.kit.join(eval_file::FOLDER).join(file);
    let file = match there.is_file() {
        true => there,
        false => PathBuf::from(file),
    };
    record.spec(ENGINE).map_err(|fault| damaged(fault.reason))?;
    let (spec, _) = EvalSpec::parse(&file, text).map_err(|_| damaged("its spec cannot be read"))?;
    let file = EvalFile {
        spec,
        text: text.clone(),
        digest: Hash::of(text.as_bytes()),
        warnings: Faults::default(),
    };
    let above = arguments.kit.join(eval_file::FOLDER);
    SuiteFile::of(file, above, suite.only.as_deref())
}
