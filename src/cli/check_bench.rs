//! The resources that checks of a run need on this machine: the files that it left, and programs
//! beside them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ktsu_eval::{
    CheckProgram, CommandCheck, EvalSpec, ProgramPlaces, ProgramRun, Programs, Workspace,
};
use ktsu_ledger::Hash;
use ktsu_sandbox::{
    Execution, FolderError, Interrupt, PrivateFolder, Program, ProgramEnd, Sandbox, SandboxError,
};

use super::Failure;
use super::databases::RunDatabases;
use super::program_limits::limits;
use super::spec_files;
use super::workspace::WorkspaceFolder;
use ktsu_api::checks::RunCheckError;

/// The most MiB of a script.
const MAX_SCRIPT_MIB: u64 = 1;

/// The name of a script where it runs.
const SCRIPT: &str = "script";

/// The name of the audit log there.
const AUDIT_LOG: &str = "audit.jsonl";

/// The name of the trace there.
const TRACE: &str = "trace.jsonl";

/// A private copy of the files of a run, and programs beside it. Checks share it, in their order.
#[derive(Debug)]
pub(super) struct CheckBench {
    files: WorkspaceFolder,
    folder: Arc<PrivateFolder>,
    sandbox: Sandbox,
    /// The folder that scripts are in.
    scripts: PathBuf,
    interrupt: Interrupt,
    /// Those of its run.
    databases: Arc<RunDatabases>,
}

/// The workspace for the checks of a spec: the folder itself if they only read it, or else a copy, beside
/// which programs run until they are interrupted.
///
/// # Errors
/// There is no such folder, it cannot be copied, or there is no sandbox.
pub(super) fn workspace_for(
    spec: &EvalSpec,
    folder: Option<&Path>,
    without_sandbox: bool,
    interrupt: &Interrupt,
) -> Result<Option<Box<dyn Workspace + Send>>, Failure> {
    let Some(folder) = folder else {
        return Ok(None);
    };
    let files = WorkspaceFolder::open(folder)?;
    if !spec.runs_programs() {
        return Ok(Some(Box::new(files)));
    }
    let sandbox = found_sandbox(without_sandbox, interrupt)?;
    let copy = sandbox.copy_of(folder);
    let copy = copy.map_err(|error| not_copied(folder, &error))?;
    let scripts = folder_of(&spec.path);
    let databases = Arc::default();
    let bench = CheckBench::beside(Arc::new(copy), sandbox, (scripts, databases), interrupt)?;
    Ok(Some(Box::new(bench)))
}

/// The folder that a file is in.
pub(super) fn folder_of(file: &Path) -> PathBuf {
    let above = file.parent().filter(|path| !path.as_os_str().is_empty());
    above.unwrap_or(Path::new(".")).to_path_buf()
}

/// The sandbox, unless a person wants none. Its programs end by an interrupt.
pub(super) fn found_sandbox(without: bool, interrupt: &Interrupt) -> Result<Sandbox, Failure> {
    let sandbox = match without {
        true => Sandbox::none(),
        false => Sandbox::find().map_err(no_sandbox)?,
    };
    Ok(sandbox.ended_by(interrupt.clone()))
}

/// Runs a command in a folder.
///
/// # Errors
/// Why it did not end as it should, in words that follow its name.
pub(super) fn command_in(
    sandbox: &Sandbox,
    folder: &PrivateFolder,
    command: &CommandCheck,
) -> Result<(), String> {
    let arguments = ["sh", "-c", &command.command];
    let program = Program::new(&arguments, limits(command.limits));
    let ran = sandbox.run(folder, &program);
    let ran = ran.map_err(|error| format!("was not run: {error}"))?;
    let ended = match ran.end() {
        ProgramEnd::Exited(code) if code == command.exit_code => return Ok(()),
        ProgramEnd::Exited(code) => format!("ended with exit code {code}"),
        ProgramEnd::Stopped(limit) => format!("was ended: {limit}"),
    };
    let printed = String::from_utf8_lossy(&ran.output.kept);
    match printed.trim() {
        "" => Err(ended),
        printed => Err(format!("{ended}:\n{printed}")),
    }
}

fn no_sandbox(error: SandboxError) -> Failure {
    let hint = match error.hint() {
        Some(install) => {
            format!("{install}; or, if you trust the files and the spec: --no-sandbox")
        }
        None => {
            "bubblewrap 0.8 and prlimit are needed, and user namespaces have to be allowed; or, \
                 if you trust the files and the spec: --no-sandbox"
                .to_owned()
        }
    };
    Failure::could_not_run(error.to_string()).hint(hint)
}

/// The failure of a run that was not checked.
pub(super) fn not_checked(error: RunCheckError) -> Failure {
    let hint = match &error {
        RunCheckError::NeedsWorkspace => {
            "on the machine with the files: ktsu check RUN --spec FILE --workspace DIR"
        }
        RunCheckError::NeedsSuite(_) => "needs a suite: ktsu eval run SPEC",
        RunCheckError::HoldsSecret => "describe the value by a pattern instead",
        RunCheckError::Spec(_)
        | RunCheckError::Run(..)
        | RunCheckError::Interrupted
        | RunCheckError::Append(_)
        | RunCheckError::Read(_) => return Failure::of(error),
    };
    Failure::of(error).hint(hint)
}

fn not_copied(folder: &Path, error: &FolderError) -> Failure {
    if matches!(error, FolderError::Interrupted) {
        return not_checked(RunCheckError::Interrupted);
    }
    let words = format!("cannot copy the workspace {}: {error}", folder.display());
    Failure::could_not_run(words)
        .hint("name a folder with the files that the checks need, and no more")
}

impl Workspace for CheckBench {
    fn read(&self, relative: &str) -> Result<Option<Vec<u8>>, String> {
        self.files.read(relative)
    }

    fn exists(&self, relative: &str) -> Result<bool, String> {
        self.files.exists(relative)
    }

    fn overview(&self) -> Result<String, String> {
        self.files.overview()
    }

    fn programs(&self) -> Option<&dyn Programs> {
        Some(self)
    }
}

impl Programs for CheckBench {
    fn places(&self) -> ProgramPlaces {
        let (workspace, made) = self.sandbox.places(&self.folder);
        let shown = |path: PathBuf| path.display().to_string();
        ProgramPlaces {
            workspace: shown(workspace),
            audit_log: shown(made.join(AUDIT_LOG)),
            trace: shown(made.join(TRACE)),
            databases: self.databases.places(),
        }
    }

    fn run(&self, program: &CheckProgram<'_>) -> Result<ProgramRun, String> {
        match program {
            CheckProgram::Command(check) => {
                let arguments = ["sh", "-c", &check.command];
                let ran = self.execute(Program::new(&arguments, limits(check.limits)))?;
                Ok(program_run(ran, None))
            }
            CheckProgram::Query(check) => {
                let ran = self.databases.query(check, &self.folder)?;
                Ok(program_run(ran, None))
            }
            CheckProgram::Script {
                check,
                input,
                audit_log,
                trace,
            } => {
                let script =
                    spec_files::read(&self.scripts, &check.script, "script", MAX_SCRIPT_MIB)?;
                for (name, bytes) in [
                    (SCRIPT, script.as_slice()),
                    (AUDIT_LOG, audit_log.as_bytes()),
                    (TRACE, trace.as_bytes()),
                ] {
                    let made = self.folder.make(name, bytes);
                    made.map_err(|error| error.to_string())?;
                }
                let (_, made) = self.sandbox.places(&self.folder);
                let path = made.join(SCRIPT).display().to_string();
                let arguments = match interpreter(&check.script, &script) {
                    Some(interpreter) => vec![interpreter, &path],
                    None => vec![path.as_str()],
                };
                let program = Program::new(&arguments, limits(check.limits));
                let program = program.with_input(input.as_bytes());
                let program = match check.reads_only {
                    true => program.read_only(),
                    false => program,
                };
                let ran = self.execute(program)?;
                Ok(program_run(ran, Some(Hash::of(&script))))
            }
        }
    }

    fn is_interrupted(&self) -> bool {
        self.interrupt.is_set()
    }
}

impl CheckBench {
    /// Programs beside a folder, with the scripts of another one.
    pub(super) fn beside(
        folder: Arc<PrivateFolder>,
        sandbox: Sandbox,
        (scripts, databases): (PathBuf, Arc<RunDatabases>),
        interrupt: &Interrupt,
    ) -> Result<Self, Failure> {
        Ok(Self {
            files: WorkspaceFolder::open(&folder.workspace())?,
            folder,
            sandbox,
            scripts,
            interrupt: interrupt.clone(),
            databases,
        })
    }

    fn execute(&self, program: Program<'_>) -> Result<Execution, String> {
        let ran = self
            .sandbox
            .run(&self.folder, &program.reaches(self.databases.reached()));
        ran.map_err(|error| error.to_string())
    }
}

/// The interpreter of a script that does not name one itself.
fn interpreter(name: &str, script: &[u8]) -> Option<&'static str> {
    match name {
        _ if script.starts_with(b"#!") => None,
        name if name.ends_with(".sh") => Some("sh"),
        _ => Some("python3"),
    }
}

fn program_run(ran: Execution, script: Option<Hash>) -> ProgramRun {
    ProgramRun {
        end: match ran.end() {
            ProgramEnd::Exited(code) => Ok(code),
            ProgramEnd::Stopped(limit) => Err(limit.to_string()),
        },
        output: ran.output.kept,
        output_bytes: ran.output.total,
        errors: ran.errors.kept,
        script,
    }
}
