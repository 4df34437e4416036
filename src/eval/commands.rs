//! Checks of how a command ends.

use ktsu_ledger::Hash;
use ktsu_ledger::event::EvalStatus;
use serde_json::json;

use crate::bench::CheckError;
use crate::content::{Workspace, given};
use crate::programs::{CheckProgram, CommandCheck, ProgramRun, Programs};
use crate::results::{CheckFinding, end_of, printed, value_looked_at};

/// The most characters of what a command printed in a reason.
pub(crate) const MAX_PRINTED: usize = 4_096;

/// Checks that a command ends as it has to.
pub(crate) fn find(
    check: &CommandCheck,
    workspace: Option<&dyn Workspace>,
) -> Result<CheckFinding, CheckError> {
    let ran = programs(workspace)?.run(&CheckProgram::Command(check));
    let ran = ran.map_err(not_run)?;
    let said = end_of(&printed(&ran.output), MAX_PRINTED);
    let code = match &ran.end {
        Ok(code) => *code,
        Err(limit) => return Ok(ended(limit, &said)),
    };
    let looked_at = value_looked_at(&json!({
        "bytes": ran.output_bytes,
        "command": Hash::of(check.command.as_bytes()),
        "exit_code": code,
        "output": Hash::of(&ran.output),
    }));
    let holds = code == check.exit_code;
    let reason = match holds {
        true => format!("exit code {code}"),
        false => with(
            format!("exit code {code}, expected {}", check.exit_code),
            &said,
        ),
    };
    let status = match holds {
        true => EvalStatus::Passed,
        false => EvalStatus::Failed,
    };
    Ok(CheckFinding {
        status,
        score: None,
        reason,
        looked_at,
    })
}

/// The interface for running programs.
pub(crate) fn programs(workspace: Option<&dyn Workspace>) -> Result<&dyn Programs, CheckError> {
    let programs = given(workspace)?.programs();
    programs.ok_or_else(|| CheckError::new("programs are not run here"))
}

/// An error because a program was not run; the words may be its own.
pub(crate) fn not_run(words: String) -> CheckError {
    CheckError::new(printed(words.as_bytes()))
}

/// An error because of a limit.
fn ended(limit: &str, said: &str) -> CheckFinding {
    CheckFinding {
        reason: with(format!("the program was ended: {limit}"), said),
        ..CheckFinding::error("")
    }
}

/// An error because of how a program ended that has to end with 0; none if it did. `what`: what it is, in words.
pub(crate) fn not_ended_well(ran: &ProgramRun, what: &str) -> Option<CheckFinding> {
    match &ran.end {
        Ok(0) => None,
        Ok(code) => Some(failed(ran, format!("{what} ended with exit code {code}"))),
        Err(limit) => Some(ended(limit, &errors(ran))),
    }
}

/// An error with what a program printed to its standard error.
pub(crate) fn failed(ran: &ProgramRun, words: String) -> CheckFinding {
    CheckFinding {
        reason: with(words, &errors(ran)),
        ..CheckFinding::error("")
    }
}

/// A reason, with what was printed.
fn with(reason: String, said: &str) -> String {
    match said.is_empty() {
        true => reason,
        false => format!("{reason}; it printed:\n{said}"),
    }
}

/// The end of a program's standard error, as reasons show it.
fn errors(ran: &ProgramRun) -> String {
    end_of(&printed(&ran.errors), MAX_PRINTED)
}
