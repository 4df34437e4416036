//! The basis of the results of checks, and so who can make them again.

use ktsu_ledger::event::{CheckResult, EvalStatus};

use crate::model_judge::check::JudgeInput;
use crate::model_judge::finding::JudgeReplies;
use crate::spec::{CheckKind, Invariant};

/// The basis of the result of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RestsOn {
    /// The run and the eval alone.
    Record,
    /// Replies that the eval has, to a question about what it does not have.
    Both,
    /// Data that neither has.
    Else,
}

/// `has_services`: whether it is known what services received.
pub(crate) fn rests_on(
    invariant: &Invariant,
    replies: &JudgeReplies,
    has_services: bool,
) -> RestsOn {
    match &invariant.check {
        CheckKind::Output(_) | CheckKind::Trace(_) | CheckKind::Forbidden(_) => RestsOn::Record,
        CheckKind::Judge(_) if !replies.has_calls_of(&invariant.name) => RestsOn::Else,
        CheckKind::Judge(check) => match check.input {
            JudgeInput::Output => RestsOn::Record,
            JudgeInput::Service { .. } if has_services => RestsOn::Record,
            JudgeInput::Service { .. } | JudgeInput::Workspace => RestsOn::Both,
        },
        CheckKind::HttpMock(_) if has_services => RestsOn::Record,
        CheckKind::FileExists(_)
        | CheckKind::FileAbsent(_)
        | CheckKind::FileContent(_)
        | CheckKind::CommandExit(_)
        | CheckKind::Custom(_)
        | CheckKind::Sql(_)
        | CheckKind::HttpMock(_) => RestsOn::Else,
    }
}

/// Returns `true` if a model is said to have judged, and was not asked.
pub(crate) fn is_made_up(invariant: &Invariant, result: &CheckResult) -> bool {
    matches!(invariant.check, CheckKind::Judge(_)) && result.status != EvalStatus::Error
}
