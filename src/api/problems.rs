//! Maps the errors of the orchestrator and of the history to problem documents.

use ktsu_ledger::event;

use ktsu_codes::ErrorCode;
use ktsu_history::RunReadError;
use ktsu_history::diff::DiffError;
use ktsu_orchestrator::recompute::RecomputeStartError;
use ktsu_orchestrator::{CommandError, InvokeError, ReportError};
use ktsu_schema::message_at;
use ktsu_server::{FieldViolation, ProblemDetails};
use ktsu_workflow::admit::approval::ApprovalDecisionError;
use ktsu_workflow::admit::intervention::InterventionError;
use ktsu_workflow::recompute::RecomputeError;

pub(crate) fn run_error(error: RunReadError) -> ProblemDetails {
    match error {
        RunReadError::Store(error) => error.into(),
        error => {
            ProblemDetails::new(ErrorCode::Unreadable, error.to_string()).with_hint("ktsu verify")
        }
    }
}

pub(crate) fn decide_error(refused: ApprovalDecisionError) -> ProblemDetails {
    let (code, hint) = match refused {
        ApprovalDecisionError::NotPending { .. } => (ErrorCode::ApprovalNotFound, None),
        ApprovalDecisionError::Several { .. } => {
            let hint = "give the approval_id of one of them";
            (ErrorCode::ApprovalRefused, Some(hint))
        }
        ApprovalDecisionError::OtherArguments { .. } => {
            let hint = "review the arguments again";
            (ErrorCode::ApprovalRefused, Some(hint))
        }
        ApprovalDecisionError::Expired { .. } => (ErrorCode::ApprovalExpired, None),
        ApprovalDecisionError::Proposer { .. } => (ErrorCode::ApproverIsProposer, None),
        ApprovalDecisionError::Twice { .. } | ApprovalDecisionError::NotInDoubt { .. } => {
            (ErrorCode::ApprovalRefused, None)
        }
    };
    ProblemDetails {
        hint: hint.map(str::to_owned),
        ..ProblemDetails::new(code, refused.to_string())
    }
}

pub(crate) fn invoke_error(refused: InvokeError) -> ProblemDetails {
    let words = refused.to_string();
    match refused {
        InvokeError::UnknownWorkflow => ErrorCode::WorkflowNotFound.into(),
        InvokeError::Params(found) => ProblemDetails::new(ErrorCode::InvalidParams, named(&found))
            .with_errors(violations(found)),
        InvokeError::NoRuntime(_) => ProblemDetails::new(ErrorCode::RuntimeUnconfigured, words)
            .with_hint("start the orchestrator with --runtime-url"),
        InvokeError::NoKey { .. } => ProblemDetails::new(ErrorCode::Forbidden, words)
            .with_hint("use the token of a principal that has one: KTSU_TOKEN"),
        InvokeError::KeyReused => ErrorCode::IdempotencyConflict.into(),
        InvokeError::DiskFull => ErrorCode::DiskFull.into(),
        InvokeError::LedgerStopped(reason) => ProblemDetails::new(ErrorCode::LedgerStopped, reason),
        InvokeError::Overloaded => ProblemDetails::new(ErrorCode::Overloaded, words),
        InvokeError::Internal(reason) => ProblemDetails::new(ErrorCode::Internal, reason),
    }
}

pub(crate) fn recompute_start_error(refused: RecomputeStartError) -> ProblemDetails {
    let words = refused.to_string();
    match refused {
        RecomputeStartError::Run(RecomputeError::NoSuchStep(_)) => {
            ProblemDetails::new(ErrorCode::StepNotFound, words)
        }
        RecomputeStartError::Run(_) => ProblemDetails::new(ErrorCode::NotRecomputable, words),
        RecomputeStartError::LacksGroup(_) => {
            ProblemDetails::new(ErrorCode::NotRecomputable, words)
                .with_hint("start the engine with the kit of the run")
        }
        RecomputeStartError::Engine(refused) => invoke_error(refused),
        RecomputeStartError::Store(words) => {
            ProblemDetails::new(ErrorCode::Internal, words).with_hint("ktsu verify")
        }
    }
}

pub(crate) fn report_error(refused: ReportError) -> ProblemDetails {
    let code = match refused {
        ReportError::Unauthorized => ErrorCode::Unauthorized,
        ReportError::Stale => ErrorCode::StaleReport,
        ReportError::Malformed(_) => ErrorCode::InvalidReport,
        ReportError::Unavailable(_) => ErrorCode::Unavailable,
    };
    ProblemDetails::new(code, refused.to_string())
}

pub(crate) fn compare_error(failed: DiffError) -> ProblemDetails {
    match failed {
        DiffError::Store(error) => error.into(),
        DiffError::NotCompared(other) => {
            ProblemDetails::new(ErrorCode::Internal, other.to_string()).with_hint("ktsu verify")
        }
    }
}

pub(crate) fn command_error(refused: CommandError) -> ProblemDetails {
    let words = refused.to_string();
    match refused {
        CommandError::Stale { actual, .. } => ProblemDetails::new(ErrorCode::StaleRevision, words)
            .with_hint(format!("review the run, then If-Match: {actual}")),
        CommandError::NotSaid(refused) => refused_command(refused),
        CommandError::NotDecided(refused) => decide_error(refused),
        CommandError::NotInvoked(refused) => invoke_error(refused),
        CommandError::Unreadable(_) => {
            ProblemDetails::new(ErrorCode::Unreadable, words).with_hint("ktsu verify")
        }
        CommandError::HoldsSecret => ProblemDetails::new(ErrorCode::ForkRefused, words)
            .with_hint("declare it under env, and use it as {{ env.NAME }}"),
        CommandError::NoGroup(_) => ProblemDetails::new(ErrorCode::RuntimeUnconfigured, words)
            .with_hint("start the engine with the kit of the run"),
    }
}

pub(crate) fn refused_command(refused: InterventionError) -> ProblemDetails {
    let words = refused.to_string();
    match refused {
        // A 404 never repeats the name.
        InterventionError::NoStep(_) => ErrorCode::StepNotFound.into(),
        InterventionError::NotComplete { .. } => {
            ProblemDetails::new(ErrorCode::StepNotComplete, words)
        }
        InterventionError::NotAnObject(_)
        | InterventionError::Reserved(_)
        | InterventionError::TooDeep => ProblemDetails::new(ErrorCode::OverlayRefused, words),
        InterventionError::NoField(no) => {
            ProblemDetails::new(ErrorCode::OverlayRefused, words).with_hint(no.hint())
        }
        InterventionError::NoParam(no) => {
            ProblemDetails::new(ErrorCode::InvalidParams, words).with_hint(no.hint())
        }
        InterventionError::Refused {
            violations: found, ..
        } => {
            let words = format!("{words}: {}", named(&found));
            ProblemDetails::new(ErrorCode::OverlayRefused, words).with_errors(violations(found))
        }
        InterventionError::Params(found) => {
            let words = format!("{words}: {}", named(&found));
            ProblemDetails::new(ErrorCode::InvalidParams, words).with_errors(violations(found))
        }
        InterventionError::Rules(_) => ProblemDetails::new(ErrorCode::NotResumable, words)
            .with_hint("use the ktsu version that recorded it"),
        InterventionError::ChangesNothing { .. } => {
            ProblemDetails::new(ErrorCode::InvalidRunState, words)
        }
        InterventionError::NotYours => ProblemDetails::new(ErrorCode::Forbidden, words)
            .with_hint("only the principal that started the run or an operator may do this"),
        InterventionError::NotResumable(_)
        | InterventionError::Paused
        | InterventionError::IsRecompute
        | InterventionError::EndedWithoutFrom
        | InterventionError::Inside(_) => ProblemDetails::new(ErrorCode::NotResumable, words),
        InterventionError::LeavesAFailure { failed, .. } => {
            ProblemDetails::new(ErrorCode::NotResumable, words)
                .with_hint(format!("restart from {failed}"))
        }
        InterventionError::Position { .. }
        | InterventionError::NoValue(_)
        | InterventionError::NotARoot => ProblemDetails::new(ErrorCode::ForkRefused, words),
        InterventionError::Fold(_) => {
            ProblemDetails::new(ErrorCode::Internal, words).with_hint("ktsu verify")
        }
        InterventionError::Broken(_) => ProblemDetails::new(ErrorCode::Internal, words),
    }
}

/// Violations as HTTP responses show them.
pub(crate) fn violations(found: Vec<event::Violation>) -> Vec<FieldViolation> {
    let shown = |one: event::Violation| FieldViolation {
        path: one.path,
        message: one.message,
        rule: one.rule,
    };
    found.into_iter().map(shown).collect()
}

/// The first violation with its location, and the number of others.
pub(crate) fn named(found: &[event::Violation]) -> String {
    let Some(first) = found.first() else {
        return String::new();
    };
    let what = message_at(&first.message, &first.path);
    match found.len() {
        1 => what,
        count => format!("{what} (and {} more)", count - 1),
    }
}
