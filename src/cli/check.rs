//! `ktsu check`: judges a finished run by the invariants of a file.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::engine::invalid_file;
use super::output::{BAD, DIM, GOOD, WARN, line, note, painted, print_json, row, symbols};
use super::reading::{find_run, open};
use super::workspace::WorkspaceFolder;
use super::{Common, Failure, text};
use crate::eval_file::EvalFile;
use ktsu_codes::{EXIT_COULD_NOT_RUN, EXIT_VERDICT};
use ktsu_eval::{
    CheckResult, CheckStatus, Subject, Verdict, VerdictStatus, Workspace, judge, verdict,
};
use ktsu_history::checked_run::{CheckedRun, CheckedRunError};
use ktsu_ledger::{Hash, StreamId};

/// The most columns for the names of checks.
const MAX_NAME: usize = 40;

/// What `check` takes.
#[derive(Debug, clap::Args)]
pub(super) struct Arguments {
    /// The run: its id, or a unique prefix or suffix of it
    run: String,
    /// The invariants: evals/NAME.eval.yaml
    #[arg(long, value_name = "FILE")]
    spec: PathBuf,
    /// The folder with the files that the run left, for checks of files
    #[arg(long, value_name = "DIR")]
    workspace: Option<PathBuf>,
}

/// Checks a run. Nothing is written.
pub(super) fn run(common: &Common, arguments: &Arguments) -> Result<ExitCode, Failure> {
    let loaded = load(&arguments.spec)?;
    let workspace = arguments.workspace.as_deref().map(WorkspaceFolder::open);
    let workspace = workspace.transpose()?;
    let (reader, place) = open(common)?;
    let (stream, scope) = find_run(&reader, &arguments.run)?;
    if !scope.is_empty() {
        let hint = format!(
            "ktsu check {} --spec {}{}",
            stream.name(),
            arguments.spec.display(),
            place.flag
        );
        return Err(Failure::could_not_run("a child cannot be checked on its own").hint(hint));
    }
    let checked =
        CheckedRun::read(&reader, &stream).map_err(|error| refusal(error, &stream, &place.flag))?;
    let results = judge(
        &loaded.spec,
        &Subject {
            envelope: &checked.envelope,
            frames: &checked.frames,
            workspace: workspace.as_ref().map(|folder| folder as &dyn Workspace),
        },
    );
    let verdict = verdict(&results, loaded.spec.pass_threshold);
    let report = CheckReport {
        stream: &stream,
        head: checked.head,
        file: &loaded,
        results: &results,
        verdict,
    };
    match common.json {
        true => {
            print_json(&report.json())?;
        }
        false => report.print(),
    }
    Ok(match verdict.status {
        VerdictStatus::Passed => ExitCode::SUCCESS,
        VerdictStatus::Failed => ExitCode::from(EXIT_VERDICT),
        VerdictStatus::Error => ExitCode::from(EXIT_COULD_NOT_RUN),
    })
}

/// The invariants of a file; warnings are printed.
fn load(path: &Path) -> Result<EvalFile, Failure> {
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
    match loaded.spec.not_supported() {
        None => Ok(loaded),
        Some((invariant, kind)) => {
            let words = format!(
                "{}: the invariant {:?} has a check of type {kind}, which this version of ktsu does \
                 not make",
                path.display(),
                invariant.name
            );
            Err(Failure::could_not_run(words).hint(
                "it makes output, trace, forbidden, file_exists, file_absent and file_content; \
                 keep the others in a file of their own",
            ))
        }
    }
}

fn refusal(error: CheckedRunError, stream: &StreamId, flag: &str) -> Failure {
    let words = format!("cannot check {}: {error}", stream.name());
    match error {
        CheckedRunError::Read(error) => error.into(),
        CheckedRunError::Missing => Failure::could_not_run(words).hint("ktsu runs lists them"),
        CheckedRunError::Unfinished(_) => {
            Failure::could_not_run(words).hint(format!("ktsu runs get {}{flag}", stream.name()))
        }
        CheckedRunError::Frame(_) | CheckedRunError::Filter(..) => {
            Failure::could_not_run(words).hint("to see what is damaged: ktsu verify")
        }
    }
}

/// What was found about a run.
struct CheckReport<'r> {
    stream: &'r StreamId,
    head: Hash,
    file: &'r EvalFile,
    results: &'r [CheckResult],
    verdict: Verdict,
}

impl CheckReport<'_> {
    fn json(&self) -> Value {
        let results = self.results.iter().map(|result| {
            let mut shown = serde_json::to_value(result).unwrap_or_default();
            shown["passed"] = json!(result.status == CheckStatus::Passed);
            shown
        });
        json!({
            "composite": self.verdict.composite,
            "head": self.head,
            "pass_threshold": self.file.spec.pass_threshold,
            "passed": self.verdict.status == VerdictStatus::Passed,
            "recorded": false,
            "results": results.collect::<Vec<Value>>(),
            "run": self.stream,
            "spec": {
                "digest": self.file.digest,
                "file": self.file.spec.path.display().to_string(),
            },
            "status": self.verdict.status,
        })
    }

    /// Prints a line for each check, and the verdict.
    fn print(&self) {
        let widest = self.results.iter().map(|one| one.name.chars().count());
        let widest = widest.max().unwrap_or(0).min(MAX_NAME);
        for result in self.results {
            let (symbol, style) = match result.status {
                CheckStatus::Passed => (symbols().good(), GOOD),
                CheckStatus::Failed => (symbols().bad(), BAD),
                CheckStatus::Error => (symbols().skipped(), WARN),
            };
            let gate = match result.gate {
                true => ", gate",
                false => "",
            };
            let weight = format!("weight {}{gate}", result.weight);
            row(&format!(
                "{} {:<widest$}  {}  {}",
                painted(style, symbol),
                text::line(&result.name),
                painted(DIM, &format!("{weight:<16}")),
                text::line(&result.reason)
            ));
        }
        let threshold = self.file.spec.pass_threshold;
        let composite = self.verdict.composite;
        let verdict = match self.verdict.status {
            VerdictStatus::Passed => {
                let words = format!("{composite} reaches {threshold}");
                format!("{}: {words}", painted(GOOD, "passed"))
            }
            VerdictStatus::Failed => {
                let words = format!("{composite} is below {threshold}");
                format!("{}: {words}", painted(BAD, "failed"))
            }
            VerdictStatus::Error => {
                let words = "a check could not be made, so the run neither passed nor failed";
                format!("{}: {words}", painted(WARN, "error"))
            }
        };
        line(&format!("{verdict}  {}", painted(DIM, self.stream.name())));
    }
}
