//! Which problem a client is answered for each error of the orchestrator and of the history.

use ktsu_ledger::{StoreError, event};

use ktsu_codes::ErrorCode;
use ktsu_history::Unreadable;
use ktsu_history::diff::Failed;
use ktsu_orchestrator::recompute::NotBegun;
use ktsu_orchestrator::{CommandError, InvokeError, NotTaken};
use ktsu_schema::placed;
use ktsu_server::{Problem, Violation};
use ktsu_workflow::admit::approval::NotDecided;
use ktsu_workflow::admit::person::NotSaid;
use ktsu_workflow::recompute::NotRecomputed;

pub(crate) fn unreadable_run(error: Unreadable) -> Problem {
    match &error {
        Unreadable::Store(error) => unreadable(error),
        _ => Problem::new(ErrorCode::Unreadable, error.to_string()).with_hint("ktsu verify"),
    }
}

pub(crate) fn not_decided(refused: NotDecided) -> Problem {
    let words = refused.to_string();
    match refused {
        NotDecided::NotPending { .. } => Problem::new(ErrorCode::ApprovalNotFound, words),
        NotDecided::Several { .. } => Problem::new(ErrorCode::ApprovalRefused, words)
            .with_hint("give the approval_id of one of them"),
        NotDecided::OtherArguments { .. } => {
            Problem::new(ErrorCode::ApprovalRefused, words).with_hint("look at the arguments again")
        }
        NotDecided::Expired { .. } => Problem::new(ErrorCode::ApprovalExpired, words),
        NotDecided::Proposer { .. } => Problem::new(ErrorCode::ApproverIsProposer, words),
        NotDecided::Twice { .. } | NotDecided::NotInDoubt { .. } => {
            Problem::new(ErrorCode::ApprovalRefused, words)
        }
    }
}

pub(crate) fn not_started(refused: InvokeError) -> Problem {
    let words = refused.to_string();
    match refused {
        InvokeError::UnknownWorkflow => ErrorCode::WorkflowNotFound.into(),
        InvokeError::Params(found) => {
            Problem::new(ErrorCode::InvalidParams, named(&found)).with_errors(violations(found))
        }
        InvokeError::NoRuntime(_) => Problem::new(ErrorCode::RuntimeUnconfigured, words)
            .with_hint("start the orchestrator with --runtime-url"),
        InvokeError::NoKey { .. } => Problem::new(ErrorCode::Forbidden, words)
            .with_hint("ask as a principal that has one: KTSU_TOKEN"),
        InvokeError::KeyReused => ErrorCode::IdempotencyConflict.into(),
        InvokeError::DiskFull => ErrorCode::DiskFull.into(),
        InvokeError::LedgerStopped(reason) => Problem::new(ErrorCode::LedgerStopped, reason),
        InvokeError::Overloaded => Problem::new(ErrorCode::Overloaded, words),
        InvokeError::Internal(reason) => Problem::new(ErrorCode::Internal, reason),
    }
}

pub(crate) fn not_begun(refused: NotBegun) -> Problem {
    let words = refused.to_string();
    match refused {
        NotBegun::Run(NotRecomputed::NoSuchStep(_)) => Problem::new(ErrorCode::StepNotFound, words),
        NotBegun::Run(_) => Problem::new(ErrorCode::NotRecomputable, words),
        NotBegun::LacksGroup(_) => Problem::new(ErrorCode::NotRecomputable, words)
            .with_hint("start the engine with the kit the run is of"),
        NotBegun::Engine(refused) => not_started(refused),
        NotBegun::Store(words) => Problem::new(ErrorCode::Internal, words).with_hint("ktsu verify"),
    }
}

pub(crate) fn not_taken(refused: NotTaken) -> Problem {
    let code = match refused {
        NotTaken::Unauthorized => ErrorCode::Unauthorized,
        NotTaken::Stale => ErrorCode::StaleReport,
        NotTaken::Malformed(_) => ErrorCode::InvalidReport,
        NotTaken::Unavailable(_) => ErrorCode::Unavailable,
    };
    Problem::new(code, refused.to_string())
}

pub(crate) fn not_compared(failed: Failed) -> Problem {
    match failed {
        Failed::Store(error) => unreadable(&error),
        Failed::NotCompared(other) => {
            Problem::new(ErrorCode::Internal, other.to_string()).with_hint("ktsu verify")
        }
    }
}

pub(crate) fn not_done(refused: CommandError) -> Problem {
    let words = refused.to_string();
    match refused {
        CommandError::Stale { actual, .. } => Problem::new(ErrorCode::StaleRevision, words)
            .with_hint(format!("look again, then If-Match: {actual}")),
        CommandError::NotSaid(refused) => not_said(refused),
        CommandError::NotDecided(refused) => not_decided(refused),
        CommandError::NotInvoked(refused) => not_started(refused),
        CommandError::Unreadable(_) => {
            Problem::new(ErrorCode::Unreadable, words).with_hint("ktsu verify")
        }
        CommandError::HoldsSecret => Problem::new(ErrorCode::ForkRefused, words)
            .with_hint("declare it under env, and use it as {{ env.NAME }}"),
        CommandError::NoGroup(_) => Problem::new(ErrorCode::RuntimeUnconfigured, words)
            .with_hint("start the engine with the kit of the run"),
    }
}

pub(crate) fn not_said(refused: NotSaid) -> Problem {
    let words = refused.to_string();
    match refused {
        // A 404 never repeats the name.
        NotSaid::NoStep(_) => ErrorCode::StepNotFound.into(),
        NotSaid::NotComplete { .. } => Problem::new(ErrorCode::StepNotComplete, words),
        NotSaid::NotAnObject(_) | NotSaid::Reserved(_) | NotSaid::TooDeep => {
            Problem::new(ErrorCode::OverlayRefused, words)
        }
        NotSaid::NoField(no) => Problem::new(ErrorCode::OverlayRefused, words).with_hint(no.hint()),
        NotSaid::NoParam(no) => Problem::new(ErrorCode::InvalidParams, words).with_hint(no.hint()),
        NotSaid::Refused {
            violations: found, ..
        } => {
            let words = format!("{words}: {}", named(&found));
            Problem::new(ErrorCode::OverlayRefused, words).with_errors(violations(found))
        }
        NotSaid::Params(found) => {
            let words = format!("{words}: {}", named(&found));
            Problem::new(ErrorCode::InvalidParams, words).with_errors(violations(found))
        }
        NotSaid::Rules(_) => Problem::new(ErrorCode::NotResumable, words)
            .with_hint("use the version of ktsu that recorded it"),
        NotSaid::ChangesNothing { .. } => Problem::new(ErrorCode::InvalidRunState, words),
        NotSaid::NotYours => Problem::new(ErrorCode::Forbidden, words)
            .with_hint("whoever started the run may do this, or an operator"),
        NotSaid::NotResumable(_)
        | NotSaid::Paused
        | NotSaid::IsRecompute
        | NotSaid::EndedWithoutFrom
        | NotSaid::Inside(_) => Problem::new(ErrorCode::NotResumable, words),
        NotSaid::LeavesAFailure { failed, .. } => Problem::new(ErrorCode::NotResumable, words)
            .with_hint(format!("begin again with {failed}")),
        NotSaid::Position { .. } | NotSaid::NoValue(_) | NotSaid::NotARoot => {
            Problem::new(ErrorCode::ForkRefused, words)
        }
        NotSaid::Fold(_) => Problem::new(ErrorCode::Internal, words).with_hint("ktsu verify"),
        NotSaid::Broken(_) => Problem::new(ErrorCode::Internal, words),
    }
}

/// Findings as they stand in an answer.
pub(crate) fn violations(found: Vec<event::Violation>) -> Vec<Violation> {
    let shown = |one: event::Violation| Violation {
        path: one.path,
        message: one.message,
        rule: one.rule,
    };
    found.into_iter().map(shown).collect()
}

/// The first finding with its place, and how many there are beside it.
pub(crate) fn named(found: &[event::Violation]) -> String {
    let Some(first) = found.first() else {
        return String::new();
    };
    let what = placed(&first.message, &first.path);
    match found.len() {
        1 => what,
        count => format!("{what} (and {} more)", count - 1),
    }
}

/// The store failed while reading.
pub(crate) fn unreadable(error: &StoreError) -> Problem {
    let code = match error {
        StoreError::Damaged(_) | StoreError::WrongRow(_) => ErrorCode::Unreadable,
        _ => ErrorCode::Internal,
    };
    Problem::new(code, error.to_string()).with_hint("ktsu verify")
}
