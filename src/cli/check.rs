//! `ktsu check`: judges a finished run by the invariants of a file, and records the verdict.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use axum::body::Body;
use axum::http::Request;
use serde_json::{Value, json};

use super::check_bench::{not_checked, workspace_for};
use super::output::{
    BAD, DIM, GOOD, WARN, line, line_dim, note, note_dim, painted, print_json, row, symbols,
};
use super::owner::{EngineArguments, EngineHandle};
use super::reading::open_at;
use super::signals::Signals;
use super::{Common, Failure, text};
use ktsu_api::checks::{self, CheckRequest, RunCheckError, WITHOUT_SANDBOX};
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_environment::principals::LOCAL;
use ktsu_eval::{EvalSpec, Workspace, verdict};
use ktsu_history::checked_run::CheckedRunError;
use ktsu_history::evals::{self, EvalReport, RunVerdict, SpecReport};
use ktsu_ledger::StreamId;
use ktsu_ledger::event::{CheckResult, EvalStatus, Principal, Score};
use ktsu_ledger::store::Reader;
use ktsu_opening::faults::invalid_file;
use ktsu_opening::find::{find_run, unfinished};
use ktsu_opening::peer::problem;
use ktsu_opening::peer::remote;
use ktsu_opening::quoting::quoted;
use ktsu_peer::Peer;
use ktsu_project::eval_file::{self, EvalFile};
use ktsu_sandbox::Interrupt;

/// The most columns for the names of checks.
const MAX_NAME: usize = 40;

/// The most bytes of a spec that goes through a request, whose body is JSON.
const MAX_POSTED: usize = 256 << 10;

/// What `check` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it
    run: String,
    /// The invariants: evals/NAME.eval.yaml
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
    /// The folder with the files that the run left, for checks of files and those that run programs
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Runs programs of checks as yourself, with all that you may do; the verdict says so
    #[arg(long)]
    no_sandbox: bool,
    /// Prints the verdict, and records nothing
    #[arg(long)]
    no_record: bool,
    #[command(flatten)]
    engine: EngineArguments,
    /// The engine to send the request to [default: the owner of the ledger]
    #[arg(
        long,
        value_name = "URL",
        env = "KTSU_ORCHESTRATOR_URL",
        conflicts_with = "no_record"
    )]
    orchestrator: Option<String>,
}

/// Checks a run. While programs run, SIGINT and SIGTERM end them, and what was made for them is removed.
pub(super) async fn run(common: &Common, arguments: Arguments) -> Result<ExitCode, Failure> {
    let file = load(&arguments.spec)?;
    if let Some(invariant) = file.spec.needs_suite() {
        let error = RunCheckError::NeedsSuite(invariant.name.clone());
        return Err(not_checked(error));
    }
    let interrupt = Interrupt::default();
    if !file.spec.runs_programs() || arguments.workspace.is_none() {
        return check(common, arguments, file, &interrupt).await;
    }
    let mut signals = Signals::new()?;
    let mut checked = std::pin::pin!(check(common, arguments, file, &interrupt));
    tokio::select! {
        checked = &mut checked => checked,
        () = signals.next() => {
            interrupt.set();
            signals.unless_again(checked).await
        }
    }
}

async fn check(
    common: &Common,
    arguments: Arguments,
    file: EvalFile,
    interrupt: &Interrupt,
) -> Result<ExitCode, Failure> {
    let spec = &file.spec;
    if let Some(url) = &arguments.orchestrator {
        if spec.needs_workspace() {
            return Err(not_checked(RunCheckError::NeedsWorkspace));
        }
        let peer = remote(url)?;
        let report = post(&peer, &arguments.run, &file).await?;
        return show_recorded(common, &report, "");
    }
    let place = EngineHandle::ledger_location(common, &arguments.engine)?;
    let reader = open_at(&place.ledger)?;
    let stream = checkable(&reader, &arguments, &place.flag)?;
    let workspace = workspace(&arguments, &file, interrupt).await?;
    let is_without = arguments.no_sandbox && spec.runs_programs();
    let sandbox = is_without.then_some(WITHOUT_SANDBOX);
    can_judge(spec, &arguments)?;
    if arguments.no_record {
        let (run, invariants) = (stream.clone(), file.spec.invariants.clone());
        let judged = tokio::task::spawn_blocking(move || {
            let workspace = workspace.as_ref().map(|it| it.as_ref() as &dyn Workspace);
            let checked = evals::check(&reader, &run, &invariants, workspace);
            (checked, workspace.is_some_and(checks::is_interrupted))
        });
        let (checked, is_interrupted) = judged.await.map_err(Failure::of)?;
        if is_interrupted {
            return Err(not_checked(RunCheckError::Interrupted));
        }
        let checked = checked.map_err(|error| refusal(error, stream.name(), &place.flag))?;
        let scenario = unrecorded(checked, file.spec.pass_threshold);
        let spec = SpecReport {
            digest: file.digest,
            file: file.spec.path.display().to_string(),
        };
        return show(common, &scenario, (&spec, sandbox), None);
    }
    drop(reader);
    let (path, flag) = (place.ledger.to_string(), place.flag.clone());
    let engine = with_kit_of(&arguments.spec, arguments.engine.clone());
    let owner = EngineHandle::open(place, &engine, false).await?;
    if spec.asks_models() && owner.is_ours() && engine.kit.is_none() {
        owner.close().await?;
        let words = "the spec has models judge, and which ones is written in a kit";
        return Err(Failure::could_not_run(words).hint("name the kit: --kit DIR"));
    }
    let report = match owner.orchestrator() {
        Some(orchestrator) if file.spec.needs_workspace() || file.text.len() > MAX_POSTED => {
            let request = CheckRequest {
                run: stream.clone(),
                text: file.text.clone(),
                file: file.spec.path.display().to_string(),
                by: Principal {
                    auth: "none".to_owned(),
                    id: LOCAL.to_owned(),
                },
                reads_files: true,
                without_sandbox: arguments.no_sandbox,
                workspace,
                models: owner.models(),
            };
            let checked = checks::check(orchestrator, request).await;
            checked.map_err(|error| match error {
                RunCheckError::Run(run, error) => refusal(error, &run, &flag),
                error => not_checked(error),
            })
        }
        None if file.spec.needs_workspace() => {
            let words = format!(
                "another process owns {path}, and checks of files and programs are made by the owner"
            );
            let hint = "to see the verdict without a record: --no-record; to record it, stop the \
                        other process first";
            return Err(Failure::could_not_run(words).hint(hint));
        }
        Some(_) | None => post(&owner.peer, stream.name(), &file).await,
    };
    let closed = owner.close().await;
    let report = report?;
    closed?;
    show_recorded(common, &report, &flag)
}

/// The kit says what its secrets are: the one that is named, else the one with the spec.
fn with_kit_of(spec: &Path, engine: EngineArguments) -> EngineArguments {
    // Other folders may be called evals/, too.
    let kit = eval_file::kit_of(spec).filter(|kit| kit.join("workflows").is_dir());
    match engine.kit.clone().or(kit) {
        None => engine.without_kit(),
        kit => EngineArguments { kit, ..engine },
    }
}

/// The workspace that the checks need on this machine: it may take a while to copy.
async fn workspace(
    arguments: &Arguments,
    file: &EvalFile,
    interrupt: &Interrupt,
) -> Result<Option<Box<dyn Workspace + Send>>, Failure> {
    let (spec, folder) = (file.spec.clone(), arguments.workspace.clone());
    let (without_sandbox, interrupt) = (arguments.no_sandbox, interrupt.clone());
    let made = tokio::task::spawn_blocking(move || {
        workspace_for(&spec, folder.as_deref(), without_sandbox, &interrupt)
    });
    made.await.map_err(Failure::of)?
}

/// Refuses to have models judge without a record of it.
fn can_judge(spec: &EvalSpec, arguments: &Arguments) -> Result<(), Failure> {
    if !spec.asks_models() || !arguments.no_record {
        return Ok(());
    }
    let words = "what models are asked is recorded before it is sent, so --no-record does not go with \
                 checks of the type llm_as_judge";
    Err(Failure::could_not_run(words).hint("leave --no-record out"))
}

/// The run, unless it cannot be checked whatever the file says.
fn checkable(reader: &dyn Reader, arguments: &Arguments, flag: &str) -> Result<StreamId, Failure> {
    let (stream, scope) = find_run(reader, &arguments.run)?;
    if !scope.is_empty() {
        let (run, spec) = (stream.name(), quoted(&arguments.spec));
        let hint = format!("ktsu check {run} --spec {spec}{flag}");
        return Err(Failure::could_not_run("a child cannot be checked on its own").hint(hint));
    }
    // An engine is not started for a run that has not ended.
    match unfinished(reader, &stream)? {
        None => Ok(stream),
        Some(status) => {
            let error = CheckedRunError::Unfinished(status.as_str());
            Err(refusal(error, stream.name(), flag))
        }
    }
}

/// Has an engine check a run.
async fn post(peer: &Peer, run: &str, file: &EvalFile) -> Result<EvalReport, Failure> {
    let body = json!({"file": file.spec.path.display().to_string(), "run": run, "spec": file.text});
    let request = Request::post("/checks").body(Body::from(body.to_string()));
    let (status, body) = peer.call_and_read(request.map_err(Failure::of)?).await?;
    if status != 200 {
        let body = serde_json::from_slice(&body).unwrap_or_default();
        return Err(problem(status, &body));
    }
    let read = serde_json::from_slice(&body);
    read.map_err(|error| Failure::could_not_run(format!("cannot read the response: {error}")))
}

/// A verdict as it would be recorded.
fn unrecorded(checked: evals::CheckedScenario, pass_threshold: f64) -> RunVerdict {
    let found = verdict(&checked.results, pass_threshold);
    RunVerdict {
        abandoned: Vec::new(),
        composite: Some(Score::new(found.composite)),
        error: None,
        frames: checked.started.frames,
        head: checked.started.head,
        pass_threshold: Some(Score::new(pass_threshold)),
        passed: found.status == EvalStatus::Passed,
        results: checked.results,
        run_id: checked.started.run.name().to_owned(),
        status: found.status.as_str().to_owned(),
    }
}

/// Shows a recorded verdict. `flag`: ` --ledger FILE`, if one was named.
fn show_recorded(common: &Common, report: &EvalReport, flag: &str) -> Result<ExitCode, Failure> {
    let scenario = report.scenarios.first().and_then(|one| one.runs().first());
    let Some(scenario) = scenario else {
        return Err(Failure::could_not_run("the eval has no scenario"));
    };
    let id = report.eval_id.as_str();
    let about = (&report.spec, report.sandbox.as_deref());
    let shown = show(common, scenario, about, Some(report))?;
    if !common.json {
        print_judges(report);
        note_dim(&format!("recorded as {id}: ktsu evals {id}{flag}"));
    }
    Ok(shown)
}

/// Shows a verdict, what it was judged by, and how programs ran; the exit code says which it is.
/// `recorded`: the eval, if it is recorded.
fn show(
    common: &Common,
    scenario: &RunVerdict,
    (spec, sandbox): (&SpecReport, Option<&str>),
    recorded: Option<&EvalReport>,
) -> Result<ExitCode, Failure> {
    let eval_id = recorded.map(|report| report.eval_id.as_str());
    let mut shown = in_json(scenario, spec, eval_id);
    if let Some(judges) = recorded.and_then(|report| report.judges) {
        shown["judges"] = json!(judges);
    }
    if let Some(sandbox) = sandbox {
        shown["sandbox"] = json!(sandbox);
    }
    match common.json {
        true => drop(print_json(&shown)?),
        false => {
            print_scenario(scenario);
            print_sandbox(sandbox);
        }
    }
    Ok(exit_code(&scenario.status))
}

/// The exit code of a verdict.
pub(super) fn exit_code(status: &str) -> ExitCode {
    match status {
        "passed" => ExitCode::SUCCESS,
        "failed" => ExitCode::from(EXIT_VERDICT),
        _ => ExitCode::from(EXIT_COULD_NOT_RUN),
    }
}

fn in_json(scenario: &RunVerdict, spec: &SpecReport, eval_id: Option<&str>) -> Value {
    let mut shown = json!({
        "composite": scenario.composite,
        "head": scenario.head,
        "pass_threshold": scenario.pass_threshold,
        "passed": scenario.passed,
        "recorded": eval_id.is_some(),
        "results": scenario.results,
        "run": scenario.run_id,
        "spec": spec,
        "status": scenario.status,
    });
    if let Some(id) = eval_id {
        shown["eval_id"] = json!(id);
    }
    shown
}

/// The invariants of a file; warnings are printed.
pub(super) fn load(path: &Path) -> Result<EvalFile, Failure> {
    if !path.exists() {
        let words = format!("there is no file {}", path.display());
        return Err(Failure::could_not_run(words).hint("the invariants of a kit are in evals/"));
    }
    let loaded = EvalFile::load(path, path);
    let loaded = loaded.map_err(|faults| invalid_file("the invariants are not valid", &faults))?;
    for warning in &loaded.warnings.faults {
        note(&format!(
            "{}: {}:{}: {}",
            painted(WARN, "warning"),
            text::line(&warning.file.display().to_string()),
            warning.line,
            text::line(&warning.message)
        ));
    }
    Ok(loaded)
}

pub(super) fn refusal(error: CheckedRunError, run: &str, flag: &str) -> Failure {
    let words = format!("cannot check {run}: {error}");
    match error {
        CheckedRunError::Read(error) => error.into(),
        CheckedRunError::Missing => Failure::could_not_run(words).hint("ktsu runs lists them"),
        CheckedRunError::Unfinished(_) => {
            Failure::could_not_run(words).hint(format!("ktsu runs get {run}{flag}"))
        }
        CheckedRunError::Frame(_) | CheckedRunError::Filter(..) => {
            Failure::could_not_run(words).hint("to see what is damaged: ktsu verify")
        }
    }
}

/// Says how programs of checks ran, if that was not in the sandbox.
pub(super) fn print_sandbox(sandbox: Option<&str>) {
    if sandbox == Some(WITHOUT_SANDBOX) {
        let warning = painted(WARN, "warning");
        line(&format!(
            "{warning}: programs of checks ran without a sandbox"
        ));
    }
}

/// Says what checks used of models, if they asked any.
pub(super) fn print_judges(report: &EvalReport) {
    if let Some(judges) = report.judges {
        let calls = text::count(judges.llm_calls, "model call");
        let cost = text::cost(judges.cost_micro_usd);
        line_dim(&format!("judges: {calls}, {cost}"));
    }
}

/// Prints a line for each check of a run, and the verdict.
pub(super) fn print_scenario(scenario: &RunVerdict) {
    let widest = scenario.results.iter().map(|one| one.name.chars().count());
    let widest = widest.max().unwrap_or(0).min(MAX_NAME);
    for result in &scenario.results {
        print_result(result, widest);
    }
    let number = |number: Option<Score>| number.map_or_else(String::new, |it| it.to_string());
    let (composite, threshold) = (number(scenario.composite), number(scenario.pass_threshold));
    let verdict = match scenario.status.as_str() {
        "passed" => {
            let words = format!("{composite} reaches {threshold}");
            format!("{}: {words}", painted(GOOD, "passed"))
        }
        "failed" => {
            let words = format!("{composite} is below {threshold}");
            format!("{}: {words}", painted(BAD, "failed"))
        }
        "error" => {
            let words = match &scenario.error {
                None => "a check could not be made, so the run neither passed nor failed",
                Some(error) => error,
            };
            format!("{}: {words}", painted(WARN, "error"))
        }
        other => text::line(other).into_owned(),
    };
    line(&format!(
        "{verdict}  {}",
        painted(DIM, &text::line(&scenario.run_id))
    ));
}

fn print_result(result: &CheckResult, widest: usize) {
    let (symbol, style) = match result.status {
        EvalStatus::Passed => (symbols().good(), GOOD),
        EvalStatus::Failed => (symbols().bad(), BAD),
        EvalStatus::Error => (symbols().skipped(), WARN),
    };
    let gate = match result.gate {
        true => ", gate",
        false => "",
    };
    let weight = format!("weight {}{gate}", result.weight);
    // What a program printed has lines.
    let mut reason = result.reason.lines();
    row(&format!(
        "{} {:<widest$}  {}  {}",
        painted(style, symbol),
        text::line(&result.name),
        painted(DIM, &format!("{weight:<16}")),
        text::line(reason.next().unwrap_or_default())
    ));
    for printed in reason {
        line(&format!("    {}", text::line(printed)));
    }
}
