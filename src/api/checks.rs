//! Checking a finished run, and recording what was found.

use std::path::Path;

use crate::judges::{EvalLog, JudgeModels};
use ktsu_config::fault::{Fault, Faults, Severity};
use ktsu_eval::{EvalSpec, EvalWriter, Invariant, JudgeCheck, JudgeInput, Workspace};
use ktsu_history::checked_run::{CheckedRun, CheckedRunError};
use ktsu_history::evals::{self, BesideRun, EvalReadError, EvalReport};
use ktsu_ledger::event::{CheckResult, EvalStarted, Principal};
use ktsu_ledger::store::StoreError;
use ktsu_ledger::{Hash, StreamId};
use ktsu_orchestrator::{EvalAppendError, Orchestrator, ReadKind};
use ktsu_workflow::admit::ENGINE;

/// The most characters of the name of a file in the record.
const MAX_FILE_NAME: usize = 200;

/// The word in an eval for programs that ran without a sandbox.
pub const WITHOUT_SANDBOX: &str = "none";

/// A run to be checked, and what it is checked by.
pub struct CheckRequest {
    /// The run.
    pub run: StreamId,
    /// The text of the spec.
    pub text: String,
    /// The name of its file.
    pub file: String,
    /// The person who asks.
    pub by: Principal,
    /// True if files of this machine may be read: only for commands that own the ledger, for none
    /// of the routes.
    pub reads_files: bool,
    /// True if the person wants programs to run without a sandbox.
    pub without_sandbox: bool,
    /// The folder with the files that the run left.
    pub workspace: Option<Box<dyn Workspace + Send>>,
    /// The models that checks may ask.
    pub models: JudgeModels,
}

/// The reason why a run was not checked. Nothing was recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RunCheckError {
    /// The spec is not valid: where, and what is wrong.
    #[error("{0}")]
    Spec(String),
    /// Checks of files, and those that run programs, need a folder.
    #[error(
        "the spec checks files or runs programs, which only the machine of the workspace can do"
    )]
    NeedsWorkspace,
    /// Checks of services need those of a suite.
    #[error("the invariant {0:?} looks at a service, which only the runs of a suite have")]
    NeedsSuite(String),
    /// A secret in what would be recorded.
    #[error("the spec holds a secret of the kit, and would be recorded")]
    HoldsSecret,
    /// The run cannot be checked.
    #[error("cannot check {0}: {1}")]
    Run(String, CheckedRunError),
    /// The person wanted to stop while programs ran.
    #[error("interrupted: nothing is recorded")]
    Interrupted,
    /// The eval cannot be recorded.
    #[error(transparent)]
    Append(#[from] EvalAppendError),
    /// A record that cannot be read back.
    #[error(transparent)]
    Read(#[from] EvalReadError),
}

impl From<StoreError> for RunCheckError {
    fn from(error: StoreError) -> Self {
        Self::Read(error.into())
    }
}

/// Makes every check of a spec, records the verdict in a stream of its own, and returns it.
///
/// # Errors
/// [`RunCheckError`].
pub async fn check(
    orchestrator: &Orchestrator,
    request: CheckRequest,
) -> Result<EvalReport, RunCheckError> {
    let CheckRequest {
        run,
        text,
        file,
        by,
        reads_files,
        without_sandbox,
        workspace,
        models,
    } = request;
    let readers = orchestrator.readers();
    let (engine, stream) = (orchestrator.clone(), run.clone());
    // Reading a spec takes as long as its patterns are large: not on a thread that serves others.
    let read = readers.with_kind(ReadKind::Search, move |reader| {
        let spec = spec(&file, &text)?;
        if let Some(invariant) = spec.needs_suite() {
            return Err(RunCheckError::NeedsSuite(invariant.name.clone()));
        }
        if spec.needs_workspace() && !reads_files {
            return Err(RunCheckError::NeedsWorkspace);
        }
        let mut started = started(&engine, &spec, (&file, text), by)?;
        if without_sandbox && spec.runs_programs() {
            started.sandbox = Some(WITHOUT_SANDBOX.to_owned());
        }
        let checked = CheckedRun::read(reader, &stream, None);
        let checked =
            checked.map_err(|error| RunCheckError::Run(stream.name().to_owned(), error))?;
        Ok((spec, started, checked))
    });
    let (spec, started, checked) = read.await?;
    let threshold = spec.pass_threshold;
    let (workspace, log, replies) = match spec.asks_models() {
        false => (workspace, Err(EvalWriter::begin(started, threshold)), None),
        true => {
            let (workspace, files) = overview(&spec, workspace).await?;
            let log = begin(orchestrator, &models, started, threshold).await?;
            let place = log.next_run().await?;
            let replies = log
                .replies(place, &run, &spec, &checked, (files, None))
                .await?;
            (workspace, Ok(log), Some(replies))
        }
    };
    let (runs_programs, engine) = (spec.runs_programs(), orchestrator.clone());
    let judge = move || {
        let workspace = workspace.as_ref().map(|it| it.as_ref() as &dyn Workspace);
        let invariants = &spec.invariants;
        let beside = BesideRun {
            workspace,
            services: None,
            replies: replies.as_ref(),
        };
        let mut checked = evals::check_read(checked, &run, invariants, beside);
        if workspace.is_some_and(is_interrupted) {
            return Err(RunCheckError::Interrupted);
        }
        redact(&engine, &spec.invariants, &mut checked.results);
        Ok::<_, RunCheckError>(checked)
    };
    let checked = match runs_programs {
        false => readers.with_kind(ReadKind::Search, |_| judge()).await?,
        // Programs take minutes, and there are few readers.
        true => {
            let judged = tokio::task::spawn_blocking(judge).await;
            judged.map_err(|error| EvalAppendError::Ledger(error.to_string()))??
        }
    };
    let stream = match log {
        Ok(log) => {
            log.judged(checked.started, Ok(checked.results)).await?;
            log.finish().await?;
            log.stream().clone()
        }
        Err((mut writer, mut events)) => {
            events.extend(writer.judged(checked.started, Ok(checked.results)));
            events.extend(writer.finish());
            let mut eval = orchestrator.new_eval()?;
            orchestrator.append_eval(&mut eval, events).await?;
            eval.stream
        }
    };
    report(orchestrator, stream).await
}

/// Records the beginning of an eval whose checks ask models.
///
/// # Errors
/// [`EvalAppendError`].
pub async fn begin(
    orchestrator: &Orchestrator,
    models: &JudgeModels,
    started: EvalStarted,
    pass_threshold: f64,
) -> Result<EvalLog, EvalAppendError> {
    let mut eval = orchestrator.new_eval()?;
    let (writer, events) = EvalWriter::begin(started, pass_threshold);
    orchestrator.append_eval(&mut eval, events).await?;
    Ok(EvalLog::new(orchestrator, models, (eval, writer), None))
}

/// The files that a run left, and their text for models if a check wants it.
type Files = (
    Option<Box<dyn Workspace + Send>>,
    Option<Result<String, String>>,
);

/// Reads the files that models judge, before any program changes them.
pub async fn overview(
    spec: &EvalSpec,
    workspace: Option<Box<dyn Workspace + Send>>,
) -> Result<Files, EvalAppendError> {
    let wants_files = |check: &JudgeCheck| matches!(check.input, JudgeInput::Workspace);
    let wanted = spec.judges().any(|(_, check)| wants_files(check));
    let workspace = match (workspace, wanted) {
        (Some(workspace), true) => workspace,
        (unread, _) => return Ok((unread, None)),
    };
    let read = tokio::task::spawn_blocking(move || {
        let files = workspace.overview();
        (Some(workspace), Some(files))
    });
    let read = read.await;
    read.map_err(|error| EvalAppendError::Ledger(error.to_string()))
}

/// Takes secrets of the kit out of results. What programs print may hold one, and what is recorded must not.
pub fn redact(orchestrator: &Orchestrator, invariants: &[Invariant], results: &mut [CheckResult]) {
    for (invariant, result) in invariants.iter().zip(results) {
        if invariant.check.runs_program() {
            result.reason = orchestrator.redacted(&result.reason);
        }
    }
}

/// Returns `true` if programs were ended because the person wants to stop, so that their results
/// say nothing.
pub fn is_interrupted(workspace: &dyn Workspace) -> bool {
    let programs = workspace.programs();
    programs.is_some_and(|programs| programs.is_interrupted())
}

/// The record of an eval.
///
/// # Errors
/// [`RunCheckError`].
pub async fn report(
    orchestrator: &Orchestrator,
    stream: StreamId,
) -> Result<EvalReport, RunCheckError> {
    let read = orchestrator
        .readers()
        .with_kind(ReadKind::Run, move |reader| {
            let report = evals::read(reader, &stream)?;
            let gone = || StoreError::Damaged(format!("{stream}: all its frames are missing"));
            Ok::<_, RunCheckError>(report.ok_or_else(gone)?)
        });
    read.await
}

/// The first event of an eval by a spec.
///
/// # Errors
/// [`RunCheckError::HoldsSecret`].
pub fn started(
    orchestrator: &Orchestrator,
    spec: &EvalSpec,
    (file, text): (&str, String),
    by: Principal,
) -> Result<EvalStarted, RunCheckError> {
    // What is read from a text may hold what the text does not: YAML has escapes.
    let holds_secret =
        orchestrator.redacted(&text) != text || orchestrator.holds_secret(&spec.as_json.to_value());
    if holds_secret {
        return Err(RunCheckError::HoldsSecret);
    }
    Ok(EvalStarted {
        by,
        checks: spec.as_json.clone(),
        engine: ENGINE.to_owned(),
        file: orchestrator.redacted(&name_of(file)),
        sandbox: None,
        spec_digest: Hash::of(text.as_bytes()),
        spec: text,
        suite: None,
    })
}

/// The name of a file, without the folders of this machine.
fn name_of(file: &str) -> String {
    let name = Path::new(file).file_name().and_then(|name| name.to_str());
    let name = name.unwrap_or("spec.eval.yaml").chars();
    name.take(MAX_FILE_NAME).collect()
}

/// A spec whose checks can all be made.
fn spec(file: &str, text: &str) -> Result<EvalSpec, RunCheckError> {
    let parsed = EvalSpec::parse(Path::new(file), text);
    let (spec, _) = parsed.map_err(|faults| RunCheckError::Spec(first_fault(&faults)))?;
    Ok(spec)
}

/// `evals/a.eval.yaml:3:5: …`, with what to type next.
fn first_fault(faults: &Faults) -> String {
    let is_error = |fault: &&Fault| fault.severity == Severity::Error;
    let mut errors = faults.faults.iter().filter(is_error);
    let Some(first) = errors.next() else {
        return "the spec is not valid".to_owned();
    };
    let place = format!("{}:{}:{}", first.file.display(), first.line, first.column);
    let hint = first.hint.as_deref();
    let hint = hint.map_or_else(String::new, |hint| format!(" ({hint})"));
    let more = match errors.count() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    format!("{place}: {}{hint}{more}", first.message)
}
