//! `ktsu run`: the main job in one command.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use super::embedded::{self, EmbeddedRun};
use super::input::effects_words;
use super::location::ledger_location;
use super::lock::warn_of_drift;
use super::{Common, Failure, folder};
use ktsu_config::fault::Faults;
use ktsu_config::read;
use ktsu_eval::Answers;
use ktsu_kit::Kit;
use ktsu_ledger::event::Effects;
use ktsu_opening::environment::load_environment;
use ktsu_opening::faults::invalid_file;
use ktsu_opening::input::{about_example, input_of, with_goal, workflow_of};
use ktsu_opening::kit::load_kit_as;

/// The answers of a kit, from its folder.
const KIT_ANSWERS: &str = "examples/answers.yaml";

/// What `run` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The kit's folder [default: KTSU_PROJECT_DIR]
    kit: Option<PathBuf>,
    /// The workflow [default: the kit's default, or its only one]
    workflow: Option<String>,
    /// The kit's folder, in place of KIT: WORKFLOW is then the only argument
    #[arg(long = "kit", alias = "project-dir", value_name = "DIR")]
    project_dir: Option<PathBuf>,
    /// The params, as JSON or from a file [default: examples/default.json of the kit]
    #[arg(long, value_name = "JSON|@FILE")]
    input: Option<String>,
    /// Answers what waits for people from a file, without a terminal: people: [{match, decision | data}]
    #[arg(long, value_name = "FILE")]
    answers: Option<PathBuf>,
    /// Answers from examples/answers.yaml of the kit
    #[arg(long, short, conflicts_with = "answers")]
    yes: bool,
    /// Sets the param `goal`, for workflows that have one
    #[arg(long, value_name = "TEXT")]
    goal: Option<String>,
    /// The environment file [default: the nearest environments/local.env.yaml, from the kit upward]
    #[arg(long, env = "KTSU_ENV", value_name = "FILE")]
    env: Option<PathBuf>,
    /// Keeps the ledger in memory: it is gone when the command ends, and --ledger is ignored
    #[arg(long)]
    ephemeral: bool,
    /// Whether webhooks and messages of the run are sent
    #[arg(long, value_name = "WHAT", default_value = "execute", value_parser = effects_words())]
    effects: Effects,
    /// Makes every model call, although an earlier reply of the run may answer it
    #[arg(long)]
    no_cache: bool,
    /// Refuses a kit that differs from its ktsu.lock.yaml
    #[arg(long)]
    locked: bool,
    /// Opens the page of the run in a browser, and serves it until Ctrl-C, also after the end of the run
    #[arg(long, conflicts_with = "ephemeral")]
    open: bool,
    /// Prints only the answer and errors
    #[arg(long, short)]
    pub(super) quiet: bool,
}

/// Runs a workflow and shows it.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let (kit, workflow) =
        folder::and_workflow(arguments.project_dir, arguments.kit, arguments.workflow)?;
    let dir = kit;
    let kit = load_kit_as(&dir, arguments.locked)?;
    warn_of_drift(&kit, &dir);
    let workflow = workflow_of(&kit, workflow.as_deref())?;
    let input = input_of(&kit, &workflow, arguments.input.as_deref())?;
    let input = with_goal(&kit, &workflow, input, arguments.goal.as_deref())?;
    let answers = answers_of(&kit, arguments.yes, arguments.answers.as_deref())?;
    let environment = load_environment(arguments.env.as_deref(), &kit.root)?;
    let ledger = match arguments.ephemeral {
        true => None,
        false => Some(ledger_location(common, environment.as_ref())?),
    };
    let job = EmbeddedRun {
        kit: Arc::clone(&kit),
        workflow: workflow.clone(),
        input,
        key: None,
        effects: arguments.effects,
        no_cache: arguments.no_cache,
        environment,
        answers,
        ledger,
        open: arguments.open,
    };
    let ended = embedded::run(common, job).await;
    ended.map_err(|failure| about_example(failure, &kit, &workflow, arguments.input.as_deref()))
}

/// The answers in place of people: of a file, or with `--yes` of the kit's own.
fn answers_of(kit: &Kit, yes: bool, file: Option<&Path>) -> Result<Option<Arc<Answers>>, Failure> {
    let path = match file {
        Some(file) => file.to_owned(),
        None if yes => kit.root.join(KIT_ANSWERS),
        None => return Ok(None),
    };
    if !path.is_file() {
        let failure = Failure::could_not_run(format!("no answers at {}", path.display()));
        return Err(
            failure.hint("a file of answers: people: [{match: {step: judge}, decision: approved}]")
        );
    }
    let mut faults = Faults::default();
    let answers = match read::source(&path, &path, &mut faults) {
        Some(text) => Answers::parse(&path, &text),
        None => Err(faults),
    };
    let answers = answers.map_err(|faults| invalid_file("the answers are not valid", &faults))?;
    Ok(Some(Arc::new(answers)))
}
