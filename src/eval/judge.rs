//! All checks of a spec, one after another.

use ktsu_ledger::event::{CheckResult, EvalStatus, Score};
use ktsu_workflow::expression::{Evaluator, Tracker};
use serde_json::Value;

use crate::bench::{Bench, CheckError};
use crate::commands;
use crate::content::{self, Workspace};
use crate::frames::FrameView;
use crate::http_mock::assertions;
use crate::http_mock::record::ServiceRecords;
use crate::model_judge::finding::{self, JudgeReplies};
use crate::output;
use crate::results::CheckFinding;
use crate::scripts;
use crate::spec::{CheckKind, EvalSpec, Invariant};
use crate::sql;
use crate::trace;

/// The number of times that the budget of expressions is filled again: no run of checks takes more
/// than this many times what one expression may take.
const MAX_REFILLS: u32 = 16;

/// The subject of the checks: a run, and what belongs to it.
#[derive(Clone, Copy)]
pub struct Subject<'s> {
    /// The envelope of the run, whole: as `ktsu runs get --json` shows it.
    pub envelope: &'s Value,
    /// All of its frames, in order.
    pub frames: &'s [FrameView],
    /// The files it left, if there is a folder with them.
    pub workspace: Option<&'s dyn Workspace>,
    /// The records of what services of the suite received, if that is known.
    pub services: Option<&'s ServiceRecords>,
    /// The replies of models to the checks that ask one.
    pub replies: Option<&'s JudgeReplies>,
}

/// The result of every check, in the order of the file. The same spec and subject give the same
/// results.
pub fn judge(spec: &EvalSpec, subject: &Subject<'_>) -> Vec<CheckResult> {
    let mut results = Vec::with_capacity(spec.invariants.len());
    judge_each(&spec.invariants, subject, &mut |result| {
        results.push(result)
    });
    results
}

/// As [`judge`], for some invariants of a spec, each result as soon as it is there.
pub fn judge_each<'i>(
    invariants: impl IntoIterator<Item = &'i Invariant>,
    subject: &Subject<'_>,
    take: &mut dyn FnMut(CheckResult),
) {
    let mut tracker = Tracker::default();
    let mut bench = Bench::new(subject.frames, Evaluator::new(&mut tracker));
    let mut refills = MAX_REFILLS;
    for invariant in invariants {
        let mut found = find(invariant, subject, &mut bench);
        // Earlier checks may have spent what this one needs.
        if found.as_ref().is_err_and(|error| error.is_spent) && refills > 0 {
            refills -= 1;
            bench.evaluator.refill();
            found = find(invariant, subject, &mut bench);
        } else if let Err(error) = &mut found
            && error.is_spent
        {
            error.message = "the expressions of all checks take too much work together".to_owned();
        }
        let found = found.unwrap_or_else(|error| CheckFinding::error(&error.message));
        take(result(invariant, found));
    }
}

fn find(
    invariant: &Invariant,
    subject: &Subject<'_>,
    bench: &mut Bench<'_, '_>,
) -> Result<CheckFinding, CheckError> {
    match &invariant.check {
        CheckKind::Output(check) => output::find(check, subject.envelope, bench),
        CheckKind::Trace(check) => trace::find(check, subject.envelope, bench),
        CheckKind::Forbidden(filter) => trace::none(filter, bench),
        CheckKind::FileExists(path) => content::exists(path, true, subject.workspace),
        CheckKind::FileAbsent(path) => content::exists(path, false, subject.workspace),
        CheckKind::FileContent(check) => content::find(check, subject.workspace, bench),
        CheckKind::CommandExit(check) => commands::find(check, subject.workspace),
        CheckKind::Custom(check) => {
            let services = subject.services;
            scripts::find(check, subject.workspace, services, bench.frames)
        }
        CheckKind::Judge(check) => {
            let asked = (invariant.name.as_str(), check.as_ref());
            let (services, replies) = (subject.services, subject.replies);
            finding::find(asked, subject.envelope, services, replies, bench.frames)
        }
        CheckKind::Sql(check) => sql::find(check, subject.workspace),
        CheckKind::HttpMock(check) => assertions::find(check, subject.services, bench),
    }
}

/// The finding of a check, as a result of the first scenario; how long it took is not known here.
fn result(invariant: &Invariant, found: CheckFinding) -> CheckResult {
    let score = match (found.status, found.score) {
        (EvalStatus::Passed | EvalStatus::Failed, Some(score)) => score,
        (EvalStatus::Passed, None) => 1.0,
        (EvalStatus::Failed, None) | (EvalStatus::Error, _) => 0.0,
    };
    CheckResult {
        check: invariant.check.name().to_owned(),
        duration_ms: 0,
        gate: invariant.gate,
        index: invariant.index,
        looked_at: found.looked_at,
        name: invariant.name.clone(),
        passed: found.status == EvalStatus::Passed,
        reason: found.reason,
        replica: 0,
        scenario: 0,
        score: Score::new(score),
        status: found.status,
        weight: Score::new(invariant.weight),
    }
}
