//! Maps the errors of the orchestrator and of the history to problem documents.

use ktsu_ledger::event;

use crate::checks::RunCheckError;
use ktsu_codes::ErrorCode;
use ktsu_delivery::PatternError;
use ktsu_history::RunReadError;
use ktsu_history::checked_run::CheckedRunError;
use ktsu_history::diff::DiffError;
use ktsu_history::evals::EvalReadError;
use ktsu_history::find;
use ktsu_history::world::WorldReadError;
use ktsu_orchestrator::recompute::RecomputeStartError;
use ktsu_orchestrator::{CommandError, EvalAppendError, InvokeError, ReportError};
use ktsu_schema::message_at;
use ktsu_server::ProblemDetails;
use ktsu_subscriptions::SubscriptionError;
use ktsu_workflow::admit::approval::ApprovalDecisionError;
use ktsu_workflow::admit::intervention::InterventionError;
use ktsu_workflow::admit::post::PostError;
use ktsu_workflow::admit::review::ReviewDecisionError;
use ktsu_workflow::admit::suspend::StepResumptionError;
use ktsu_workflow::recompute::RecomputeError;

pub(crate) fn run_error(error: RunReadError) -> ProblemDetails {
    match error {
        RunReadError::Store(error) => error.into(),
        error => {
            ProblemDetails::new(ErrorCode::Unreadable, error.to_string()).with_hint("ktsu verify")
        }
    }
}

/// The error for a run that was not checked.
pub(crate) fn check_error(error: RunCheckError) -> ProblemDetails {
    let words = error.to_string();
    match error {
        RunCheckError::Spec(_) => ProblemDetails::new(ErrorCode::EvalInvalid, words)
            .with_hint("ktsu schema eval prints what the file may have"),
        RunCheckError::HoldsSecret => ProblemDetails::new(ErrorCode::EvalInvalid, words)
            .with_hint("describe the value by a pattern instead"),
        RunCheckError::NeedsWorkspace => ProblemDetails::new(ErrorCode::CheckNotSupported, words)
            .with_hint("where the files are: ktsu check RUN --spec FILE --workspace DIR"),
        RunCheckError::NeedsSuite(_) => ProblemDetails::new(ErrorCode::CheckNotSupported, words)
            .with_hint("on the machine with the kit: ktsu eval run SPEC"),
        RunCheckError::Run(_, CheckedRunError::Read(error)) => run_error(error),
        RunCheckError::Run(_, CheckedRunError::Missing) => ErrorCode::RunNotFound.into(),
        RunCheckError::Run(_, CheckedRunError::Unfinished(_)) => {
            ProblemDetails::new(ErrorCode::InvalidRunState, words)
                .with_hint("check it once it has ended")
        }
        RunCheckError::Run(_, CheckedRunError::Frame(_) | CheckedRunError::Filter(..)) => {
            ProblemDetails::new(ErrorCode::Unreadable, words).with_hint("ktsu verify")
        }
        RunCheckError::Append(EvalAppendError::Engine(refused)) => invoke_error(refused),
        RunCheckError::Append(EvalAppendError::Removed) => {
            ProblemDetails::new(ErrorCode::RunRemoved, words)
        }
        RunCheckError::Append(EvalAppendError::Ledger(_)) => {
            ProblemDetails::new(ErrorCode::LedgerStopped, words)
        }
        // Requests run no programs.
        RunCheckError::Interrupted => ProblemDetails::new(ErrorCode::Draining, words),
        RunCheckError::Read(error) => eval_error(error),
    }
}

/// The error for an eval that cannot be shown.
pub(crate) fn eval_error(error: EvalReadError) -> ProblemDetails {
    match error {
        EvalReadError::Store(error) => error.into(),
        EvalReadError::Record(_) => {
            ProblemDetails::new(ErrorCode::Unreadable, error.to_string()).with_hint("ktsu verify")
        }
    }
}

pub(crate) fn world_error(error: WorldReadError) -> ProblemDetails {
    let words = error.to_string();
    match error {
        WorldReadError::Run(error) => run_error(error),
        WorldReadError::NoWorld => ErrorCode::NoWorld.into(),
        WorldReadError::NoFrame { .. } => ProblemDetails::new(ErrorCode::NotFound, words),
    }
}

pub(crate) fn pattern_error(error: PatternError) -> ProblemDetails {
    let words = error.to_string();
    let (code, hint) = match error {
        PatternError::Unknown { .. } => {
            (ErrorCode::UnknownFrameType, "ktsu frames RUN shows types")
        }
        PatternError::Empty | PatternError::TooMany | PatternError::Malformed => {
            (ErrorCode::InvalidQuery, "pattern=run.completed,object.*")
        }
    };
    ProblemDetails::new(code, words).with_hint(hint)
}

pub(crate) fn subscription_error(error: SubscriptionError) -> ProblemDetails {
    let words = error.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match error {
        SubscriptionError::NotFound => {
            problem(ErrorCode::SubscriptionNotFound).with_hint("GET /subscriptions lists them")
        }
        SubscriptionError::Declared => problem(ErrorCode::SubscriptionDeclared)
            .with_hint("remove it from the environment file and start again"),
        SubscriptionError::TooMany => problem(ErrorCode::SubscriptionRefused)
            .with_hint("remove one that is not used: DELETE /subscriptions/{id}"),
        SubscriptionError::Refused(_) => problem(ErrorCode::SubscriptionRefused)
            .with_hint("egress.allow of the environment file lists private addresses"),
        SubscriptionError::NoSecret(_) => problem(ErrorCode::SubscriptionRefused)
            .with_hint("export it, or set it under variables, and start again"),
        SubscriptionError::ShownBy(_) => problem(ErrorCode::SubscriptionRefused)
            .with_hint("sign with a key of its own, which is in no other variable"),
        SubscriptionError::DiskFull => problem(ErrorCode::DiskFull),
        SubscriptionError::LedgerStopped(_) => problem(ErrorCode::LedgerStopped),
        SubscriptionError::Store(error) => error.into(),
    }
}

pub(crate) fn decide_error(refused: ApprovalDecisionError) -> ProblemDetails {
    let words = refused.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        ApprovalDecisionError::NotPending { .. } => problem(ErrorCode::ApprovalNotFound),
        ApprovalDecisionError::Several { .. } => {
            problem(ErrorCode::ApprovalRefused).with_hint("give the approval_id of one of them")
        }
        ApprovalDecisionError::OtherArguments { .. } => {
            problem(ErrorCode::ApprovalRefused).with_hint("review the arguments again")
        }
        ApprovalDecisionError::Expired { .. } => problem(ErrorCode::ApprovalExpired),
        ApprovalDecisionError::Proposer { .. } => problem(ErrorCode::ApproverIsProposer),
        ApprovalDecisionError::Twice { .. } | ApprovalDecisionError::NotInDoubt { .. } => {
            problem(ErrorCode::ApprovalRefused)
        }
    }
}

/// The error for data that a step does not take.
pub(crate) fn step_not_resumed(refused: StepResumptionError) -> ProblemDetails {
    let words = refused.to_string();
    match refused {
        StepResumptionError::NotPending { .. } => {
            ProblemDetails::new(ErrorCode::SuspensionNotFound, words)
        }
        StepResumptionError::Over { .. } | StepResumptionError::Expired { .. } => {
            ProblemDetails::new(ErrorCode::SuspensionOver, words)
        }
        StepResumptionError::Stale { .. } => ProblemDetails::new(ErrorCode::SuspensionStale, words)
            .with_hint("look at the suspension that is pending"),
        StepResumptionError::Data { code, .. } => {
            let code = code.parse().unwrap_or(ErrorCode::ResumeDataInvalid);
            ProblemDetails::new(code, words)
        }
    }
}

/// The error for a decision on an outcome that is not taken.
pub(crate) fn review_error(refused: ReviewDecisionError) -> ProblemDetails {
    let words = refused.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        ReviewDecisionError::NotPending { .. } => problem(ErrorCode::ReviewNotFound),
        ReviewDecisionError::Decided { .. } => problem(ErrorCode::ReviewDecided),
        ReviewDecisionError::Expired { .. } => problem(ErrorCode::ReviewExpired),
        ReviewDecisionError::Stale { .. } => {
            problem(ErrorCode::ReviewRefused).with_hint("look at the review that is pending")
        }
        ReviewDecisionError::Otherwise { .. } => problem(ErrorCode::ReviewRefused)
            .with_hint("approve with the same value, or leave the field out; or reject"),
        ReviewDecisionError::Proposer { .. } => problem(ErrorCode::ApproverIsProposer),
        ReviewDecisionError::Twice { .. } | ReviewDecisionError::OverlayOfRejection => {
            problem(ErrorCode::ReviewRefused)
        }
        ReviewDecisionError::Overlay(refused) => refused_command(refused),
    }
}

pub(crate) fn invoke_error(refused: InvokeError) -> ProblemDetails {
    let words = refused.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        InvokeError::UnknownWorkflow => ErrorCode::WorkflowNotFound.into(),
        InvokeError::Params(found) => {
            let code = code_of(&found, ErrorCode::InvalidParams);
            ProblemDetails::new(code, named(&found)).with_errors(found)
        }
        InvokeError::NoRuntime(_) => problem(ErrorCode::RuntimeUnconfigured)
            .with_hint("start the orchestrator with --runtime-url"),
        InvokeError::NoKey { .. } => problem(ErrorCode::Forbidden)
            .with_hint("use the token of a principal that has one: KTSU_TOKEN"),
        InvokeError::KeyReused => ErrorCode::IdempotencyConflict.into(),
        InvokeError::DiskFull => ErrorCode::DiskFull.into(),
        InvokeError::LedgerStopped(reason) => ProblemDetails::new(ErrorCode::LedgerStopped, reason),
        InvokeError::Unread(error) => error.into(),
        InvokeError::Overloaded => problem(ErrorCode::Overloaded),
        InvokeError::Draining => problem(ErrorCode::Draining)
            .with_hint("send it again to the engine that is started next"),
        InvokeError::Internal(reason) => ProblemDetails::new(ErrorCode::Internal, reason),
    }
}

pub(crate) fn recompute_start_error(refused: RecomputeStartError) -> ProblemDetails {
    let words = refused.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        RecomputeStartError::Run(RecomputeError::NoSuchStep(_)) => problem(ErrorCode::StepNotFound),
        RecomputeStartError::Run(_) => problem(ErrorCode::NotRecomputable),
        RecomputeStartError::LacksGroup(_) => {
            problem(ErrorCode::NotRecomputable).with_hint(USE_THE_KIT)
        }
        RecomputeStartError::Engine(refused) => invoke_error(refused),
        RecomputeStartError::Store(_) => problem(ErrorCode::Internal).with_hint("ktsu verify"),
    }
}

/// The hint for a run whose agents need a model group that the gateway does not have.
const USE_THE_KIT: &str = "start the engine with the kit of the run";

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
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        CommandError::Stale { actual, .. } => problem(ErrorCode::StaleRevision)
            .with_hint(format!("review the run, then If-Match: {actual}")),
        CommandError::NotSaid(refused) => refused_command(refused),
        CommandError::NotDecided(refused) => decide_error(refused),
        CommandError::NotReviewed(refused) => review_error(refused),
        CommandError::StepNotResumed(refused) => step_not_resumed(refused),
        CommandError::NotPosted(refused) => post_error(refused),
        CommandError::SecretInName => {
            problem(ErrorCode::PostRefused).with_hint("use a name without it; data is redacted")
        }
        CommandError::NotInvoked(refused) => invoke_error(refused),
        CommandError::Unreadable(_) => problem(ErrorCode::Unreadable).with_hint("ktsu verify"),
        CommandError::Removed => problem(ErrorCode::RunRemoved).with_hint(find::REMOVED_HINT),
        CommandError::HoldsSecret => problem(ErrorCode::ForkRefused)
            .with_hint("declare it under env, and use it as {{ env.NAME }}"),
        CommandError::NoGroup(_) => problem(ErrorCode::RuntimeUnconfigured).with_hint(USE_THE_KIT),
    }
}

/// The hint for limits of a budget of worlds, as a refusal names them: `max_events=10, max_…=2`.
fn raise_hint(limits: &str) -> String {
    let names = limits.split(", ").filter_map(|limit| limit.split_once('='));
    let raised: Vec<String> = names.map(|(name, _)| format!("{name}=N")).collect();
    match raised.is_empty() {
        true => "ktsu resume RUN --raise max_events=N".to_owned(),
        false => format!("to raise it: ktsu resume RUN --raise {}", raised.join(",")),
    }
}

fn post_error(refused: PostError) -> ProblemDetails {
    let words = refused.to_string();
    let problem = |code| ProblemDetails::new(code, words);
    match refused {
        PostError::NoWorlds => ErrorCode::NoWorld.into(),
        PostError::NotOpen(_) => problem(ErrorCode::InvalidRunState)
            .with_hint("post to a run that is in progress or complete, or fork this one"),
        PostError::NotResumed => {
            problem(ErrorCode::InvalidRunState).with_hint("ktsu resume BRANCH, then post again")
        }
        PostError::IsRecompute => {
            problem(ErrorCode::InvalidRunState).with_hint("post to the run it is of")
        }
        PostError::Exhausted(limits) => {
            problem(ErrorCode::BudgetExhausted).with_hint(raise_hint(&limits))
        }
        PostError::KeyReused => ErrorCode::IdempotencyConflict.into(),
        PostError::Stale { actual, .. } => {
            let stale = problem(ErrorCode::StaleRevision);
            match actual {
                Some(actual) => stale.with_hint(format!("review it, then If-Match: {actual}")),
                None => stale,
            }
        }
        PostError::NoSuchFrame { .. } => problem(ErrorCode::StaleRevision),
        PostError::NoSubject(_) => problem(ErrorCode::InvalidRequest)
            .with_hint("post the events about each object on their own"),
        PostError::Unfit { violations, .. } => {
            problem(code_of(&violations, ErrorCode::PostRefused)).with_errors(violations)
        }
        PostError::Rules(_) => {
            problem(ErrorCode::InvalidRunState).with_hint("use the ktsu version that recorded it")
        }
    }
}

fn refused_command(refused: InterventionError) -> ProblemDetails {
    let words = refused.to_string();
    let violated = |code, found: Vec<event::Violation>| {
        ProblemDetails::new(code, format!("{words}: {}", named(&found))).with_errors(found)
    };
    let problem = |code| ProblemDetails::new(code, words.as_str());
    match refused {
        // A 404 never repeats the name.
        InterventionError::NoStep(_) => ErrorCode::StepNotFound.into(),
        InterventionError::NotComplete { .. } => problem(ErrorCode::StepNotComplete),
        InterventionError::UnderReview { ref review, .. } => {
            let hint = format!(
                "replace fields with the decision: ktsu approve {review} --overlay FIELD=VALUE, or POST …/review/decide with `overlay`"
            );
            problem(ErrorCode::StepNotComplete).with_hint(hint)
        }
        InterventionError::NotAnObject(_)
        | InterventionError::Reserved(_)
        | InterventionError::TooDeep => problem(ErrorCode::OverlayRefused),
        InterventionError::NoField(no) => problem(ErrorCode::OverlayRefused).with_hint(no.hint()),
        InterventionError::NoParam(no) => problem(ErrorCode::InvalidParams).with_hint(no.hint()),
        InterventionError::Refused { violations, .. } => {
            violated(ErrorCode::OverlayRefused, violations)
        }
        InterventionError::Prompts(error) => {
            let found = error.violations();
            let problem = problem(ErrorCode::ForkRefused).with_errors(found);
            match error.hint() {
                Some(hint) => problem.with_hint(hint),
                None => problem,
            }
        }
        InterventionError::Params(found) => violated(ErrorCode::InvalidParams, found),
        InterventionError::NoWorlds => problem(ErrorCode::NoWorld),
        InterventionError::UsedUp(limits) => {
            problem(ErrorCode::BudgetExhausted).with_hint(raise_hint(&limits))
        }
        InterventionError::NothingRaised => {
            problem(ErrorCode::InvalidRequest).with_hint(raise_hint(""))
        }
        InterventionError::NotHigher(limit) => {
            problem(ErrorCode::InvalidRequest).with_hint(raise_hint(&limit))
        }
        InterventionError::Rules(_) => {
            problem(ErrorCode::NotResumable).with_hint("use the ktsu version that recorded it")
        }
        InterventionError::ChangesNothing { .. } => problem(ErrorCode::InvalidRunState),
        InterventionError::NotYours => problem(ErrorCode::Forbidden)
            .with_hint("only the principal that started the run or an operator may do this"),
        InterventionError::NotResumable(_)
        | InterventionError::NotRaisable(_)
        | InterventionError::Paused
        | InterventionError::IsRecompute
        | InterventionError::EndedWithoutFrom(_)
        | InterventionError::NothingUnanswered
        | InterventionError::NothingLeftOf(_)
        | InterventionError::Inside(_) => problem(ErrorCode::NotResumable),
        InterventionError::OnResume(_) => {
            problem(ErrorCode::NotResumable).with_hint("restart from the step that was resumed")
        }
        InterventionError::LeavesAFailure { failed, .. } => {
            problem(ErrorCode::NotResumable).with_hint(format!("restart from {failed}"))
        }
        InterventionError::InsideFiring(inside) => {
            let nearest = inside.after.unwrap_or(inside.before);
            problem(ErrorCode::ForkRefused).with_hint(format!("fork it --at {nearest}"))
        }
        InterventionError::Position { .. }
        | InterventionError::NoValue(_)
        | InterventionError::NotARoot => problem(ErrorCode::ForkRefused),
        InterventionError::Fold(_) => problem(ErrorCode::Internal).with_hint("ktsu verify"),
        InterventionError::Broken(_) => problem(ErrorCode::Internal),
    }
}

/// The first violation with its location, and the number of others.
/// The code of a refusal by what a value breaks: one that takes too much to check has its own.
fn code_of(found: &[event::Violation], otherwise: ErrorCode) -> ErrorCode {
    let expensive = |first: &event::Violation| first.rule == ktsu_schema::TOO_EXPENSIVE;
    match found.first().is_some_and(expensive) {
        true => ErrorCode::SchemaTooExpensive,
        false => otherwise,
    }
}

fn named(found: &[event::Violation]) -> String {
    let Some(first) = found.first() else {
        return String::new();
    };
    let what = message_at(&first.message, &first.path);
    match found.len() {
        1 => what,
        count => format!("{what} (and {} more)", count - 1),
    }
}
