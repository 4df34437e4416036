//! The attempts of a step or an item as times, and the calls of each.

use ktsu_projections::attempts::{AttemptStatus, StepAttempt};
use ktsu_projections::envelope::ShownStatus;
use ktsu_projections::run::StepStatus;
use serde::Serialize;
use utoipa::ToSchema;

use super::SkeletonBuilder;
use super::calls::{CallSpan, MAX_CALLS, is_zero};

/// The most calls of an earlier attempt that are shown.
const MAX_EARLIER_CALLS: usize = 50;

/// An attempt of a step or an item before the latest one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct AttemptSpan {
    /// Its number; in an inline child that begins again, its steps count from 1 again.
    pub number: u32,
    /// The frame of its beginning.
    pub frame: u64,
    /// Its beginning.
    pub from_ms: u64,
    /// Its end, or when it was replaced.
    pub until_ms: u64,
    /// How it ended.
    pub status: AttemptStatus,
    /// The code of the error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The calls that were announced in it, and what it asked people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallSpan>,
    /// The number of calls before those, of which at most 50 are shown.
    #[serde(skip_serializing_if = "is_zero")]
    pub earlier_calls: usize,
}

/// The attempts of a step or an item, each with its calls.
pub(super) struct AttemptSpans {
    pub(super) earlier: Vec<AttemptSpan>,
    /// The number of those before.
    pub(super) before: u64,
    /// The beginning of the latest one.
    pub(super) from_ms: Option<u64>,
    pub(super) calls: Vec<CallSpan>,
    pub(super) earlier_calls: usize,
}

impl SkeletonBuilder<'_> {
    /// The attempts of a step or an item that ended at a moment, if it has ended.
    pub(super) fn attempts(
        &self,
        scope: &str,
        name: &str,
        status: ShownStatus,
        until_ms: Option<u64>,
    ) -> AttemptSpans {
        let is_pending = status == ShownStatus::Own(StepStatus::Pending);
        let found = self.attempts.of(scope, name, is_pending);
        let latest = found.latest.as_ref();
        // Without an earlier attempt, every call is of the latest.
        let begin = match found.earlier.is_empty() {
            true => 0,
            false => latest.map_or(u64::MAX, |latest| latest.frame),
        };
        let nexts = found.earlier.iter().skip(1).map(|next| next.frame);
        let nexts = nexts.chain([begin]);
        let earlier = found.earlier.iter().zip(nexts);
        let earlier = earlier.map(|(attempt, next)| self.attempt(scope, name, attempt, next));
        let frames = begin..u64::MAX;
        let (calls, earlier_calls) =
            self.spans
                .of_attempt((scope, name), frames, MAX_CALLS, until_ms);
        AttemptSpans {
            earlier: earlier.collect(),
            before: found.before,
            from_ms: latest.map(|latest| self.since(latest.began)),
            calls,
            earlier_calls,
        }
    }

    /// An attempt before the one that begins with a frame.
    fn attempt(&self, scope: &str, name: &str, attempt: &StepAttempt, next: u64) -> AttemptSpan {
        let until_ms = self.since(attempt.ended.unwrap_or(attempt.began));
        let frames = attempt.frame..next;
        let (calls, earlier_calls) =
            self.spans
                .of_attempt((scope, name), frames, MAX_EARLIER_CALLS, Some(until_ms));
        AttemptSpan {
            number: attempt.number,
            frame: attempt.frame,
            from_ms: self.since(attempt.began),
            until_ms,
            status: attempt.status,
            error: attempt.error.clone(),
            calls,
            earlier_calls,
        }
    }
}
