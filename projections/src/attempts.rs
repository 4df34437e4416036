//! The attempts of steps and items: when each began, and how it ended, whether or not it still counts.
//!
//! The fold never refuses a frame. It knows lives by their changes ([`crate::life::changes`]).

use std::collections::{HashMap, VecDeque};

use ktsu_ledger::{Frame, Timestamp};
use serde::Serialize;
use utoipa::ToSchema;

use crate::life::change::Task;
use crate::life::{Change, PersonQuestion, changes};
use crate::lineage::item_name;
use crate::run::StepStatus;

/// The most attempts of a step or an item that are kept beside the latest.
pub const MAX_EARLIER_ATTEMPTS: usize = 20;

/// The status of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AttemptStatus {
    /// Under way.
    Running,
    /// It asked for data; the next attempt begins with them.
    Suspended,
    /// Ended well.
    Complete,
    /// Ended badly.
    Failed,
    /// Ended without an output.
    Skipped,
    /// It did not end before the next one began, or before its step was to begin again.
    Replaced,
}

/// An attempt of a step or an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepAttempt {
    /// Counted from 1, the last one if a person's answers led to several; in an inline child that begins
    /// again, its steps count from 1 again.
    pub number: u32,
    /// The frame of its beginning.
    pub frame: u64,
    /// The time of its beginning.
    pub began: Timestamp,
    /// The time of its end, or of its replacement.
    pub ended: Option<Timestamp>,
    /// How it ended.
    pub status: AttemptStatus,
    /// The code of the error with which it failed.
    pub error: Option<String>,
    /// True from a question about a call or an outcome to the dispatch after it.
    is_asked: bool,
}

/// The attempts of one step or item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskAttempts {
    /// The number of those before [`Self::earlier`].
    pub before: u64,
    /// The last ones before the latest, at most [`MAX_EARLIER_ATTEMPTS`].
    pub earlier: VecDeque<StepAttempt>,
    /// The one that counts.
    pub latest: Option<StepAttempt>,
}

/// The attempts of a run and of its inline children. See the module documentation.
#[derive(Debug, Default)]
pub struct AttemptHistory {
    /// By scope and name.
    tasks: HashMap<(String, String), TaskAttempts>,
    /// The last fork, and the time of the frame before it: what was in progress did not continue.
    fork: Option<(u64, Timestamp)>,
    /// The time of the last frame.
    at: Timestamp,
}

impl AttemptStatus {
    /// As it is shown.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Suspended => "suspended",
            Self::Complete => "complete",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
            Self::Replaced => "replaced",
        }
    }
}

impl AttemptHistory {
    /// The attempts of a history.
    pub fn fold<'a>(frames: impl IntoIterator<Item = &'a Frame>) -> Self {
        let mut history = Self::default();
        for frame in frames {
            history.apply(frame);
        }
        history
    }

    /// The attempts of a step or an item. If it is pending, none of them counts: a branch has its
    /// steps begin again without a frame about each.
    pub fn of(&self, scope: &str, name: &str, is_pending: bool) -> TaskAttempts {
        let key = (scope.to_owned(), name.to_owned());
        let mut found = self.tasks.get(&key).cloned().unwrap_or_default();
        if is_pending {
            found.retire(self.at, self.fork);
        }
        found
    }

    fn apply(&mut self, frame: &Frame) {
        for change in changes(frame) {
            self.follow(frame, &change);
        }
        self.at = frame.at;
    }

    fn follow(&mut self, frame: &Frame, change: &Change<'_>) {
        match change {
            Change::Forked(_) => self.fork = Some((frame.seq, self.at)),
            Change::StepMoved(step, status) => {
                let task = Task { step, item: None };
                let number = frame.event.started().map_or(0, |started| started.attempt);
                self.moved(frame, task, *status, number);
            }
            Change::ItemMoved(task, status) => {
                let latest = self.latest(frame, task.step, None);
                let number = latest.map_or(0, |attempt| attempt.number);
                self.moved(frame, *task, *status, number);
            }
            Change::Dispatched(task, number) => self.dispatched(frame, *task, *number),
            Change::Asked(task, question) => {
                let Some(open) = self.task(frame, *task).open() else {
                    return;
                };
                match question {
                    PersonQuestion::Data(_) => open.status = AttemptStatus::Suspended,
                    PersonQuestion::Call(_)
                    | PersonQuestion::Doubt(_)
                    | PersonQuestion::Outcome(_) => open.is_asked = true,
                }
            }
            Change::Created(_)
            | Change::ScopeMoved(_)
            | Change::Stopped(..)
            | Change::Paused(_)
            | Change::Resumed(_)
            | Change::DeadlinesMoved(..)
            | Change::Finished(..)
            | Change::Commanded(_)
            | Change::Answered(..)
            | Change::Expired(..) => {}
        }
    }

    fn dispatched(&mut self, frame: &Frame, task: Task<'_>, number: u32) {
        let fork = self.fork;
        match self.task(frame, task).open() {
            // What a person answers does not begin it again.
            Some(open) if open.is_asked && fork.is_none_or(|(seq, _)| seq < open.frame) => {
                (open.number, open.is_asked) = (number, false);
            }
            Some(open) if open.number != number => self.begin(frame, task, number),
            _ => {}
        }
    }

    fn moved(&mut self, frame: &Frame, task: Task<'_>, status: StepStatus, number: u32) {
        let end = match status {
            StepStatus::Running => return self.begin(frame, task, number),
            StepStatus::Pending => {
                let fork = self.fork;
                return self.task(frame, task).retire(frame.at, fork);
            }
            StepStatus::Complete => AttemptStatus::Complete,
            StepStatus::Failed => AttemptStatus::Failed,
            StepStatus::Skipped => AttemptStatus::Skipped,
        };
        if let Some(open) = self.task(frame, task).open() {
            open.ended = Some(frame.at);
            open.status = end;
            open.error = frame.event.failure().map(str::to_owned);
        }
    }

    fn begin(&mut self, frame: &Frame, task: Task<'_>, number: u32) {
        let fork = self.fork;
        let attempts = self.task(frame, task);
        attempts.retire(frame.at, fork);
        attempts.latest = Some(StepAttempt {
            number,
            frame: frame.seq,
            began: frame.at,
            ended: None,
            status: AttemptStatus::Running,
            error: None,
            is_asked: false,
        });
    }

    fn latest(&self, frame: &Frame, step: &str, item: Option<u32>) -> Option<&StepAttempt> {
        let key = (frame.scope.clone(), item_name(step, item));
        self.tasks.get(&key)?.latest.as_ref()
    }

    fn task(&mut self, frame: &Frame, task: Task<'_>) -> &mut TaskAttempts {
        let key = (frame.scope.clone(), task.name());
        self.tasks.entry(key).or_default()
    }
}

impl TaskAttempts {
    fn open(&mut self) -> Option<&mut StepAttempt> {
        let latest = self.latest.as_mut();
        latest.filter(|attempt| attempt.ended.is_none())
    }

    /// The latest attempt, if there is one, does not count any more.
    fn retire(&mut self, at: Timestamp, fork: Option<(u64, Timestamp)>) {
        if let Some(open) = self.open() {
            let fork = fork.filter(|(seq, _)| open.frame < *seq);
            open.ended = Some(fork.map_or(at, |(_, before)| before));
            if open.status == AttemptStatus::Running {
                open.status = AttemptStatus::Replaced;
            }
        }
        self.earlier.extend(self.latest.take());
        if self.earlier.len() > MAX_EARLIER_ATTEMPTS {
            self.earlier.pop_front();
            self.before += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use ktsu_ledger::{CanonicalJson, Hash, Record};
    use serde_json::{Value, json};

    use super::*;

    /// Frames, a millisecond apart, about the step `a` or its items.
    fn frames(events: &[(&str, Value)]) -> Vec<Frame> {
        let frame = |(seq, (kind, data)): (u64, &(&str, Value))| {
            let mut data = data.clone();
            data["step"] = json!("a");
            let data = CanonicalJson::from_value(&data).unwrap();
            let prev = Hash::ZERO;
            let body = format!(
                r#"{{"v":1,"stream":"run:r","seq":{seq},"type":"{kind}","scope":"","actor":"runtime","cause":[],"at":"1970-01-01T00:00:00.{seq:03}000Z","data":{},"ext":[],"prev":"{prev}"}}"#,
                data.as_str(),
            );
            let hash = Hash::of(body.as_bytes());
            Record { seq, hash, body }.decode_bare().unwrap()
        };
        (0u64..).zip(events).map(frame).collect()
    }

    /// Each attempt: its number, its frame, its end, its status and its error.
    fn lines(attempts: &TaskAttempts) -> Vec<String> {
        let line = |one: &StepAttempt| {
            let ended = one.ended.map(|at| at.millis_since(Timestamp::default()));
            let ended = ended.map(|ms| ms.to_string()).unwrap_or_default();
            let error = one.error.as_deref().unwrap_or_default();
            let (number, frame, status) = (one.number, one.frame, one.status.as_str());
            format!("{number}: {frame}-{ended} {status} {error}")
                .trim_end()
                .to_owned()
        };
        let all = attempts.earlier.iter().chain(&attempts.latest);
        all.map(line).collect()
    }

    fn of(events: &[(&str, Value)], name: &str) -> TaskAttempts {
        AttemptHistory::fold(&frames(events)).of("", name, false)
    }

    fn attempt(kind: &'static str, attempt: u32) -> (&'static str, Value) {
        let failed = json!({"attempt": attempt, "code": "no_answer", "message": ""});
        (kind, failed)
    }

    #[test]
    fn a_step_that_fails_and_begins_again_has_two_attempts() {
        let events = [
            attempt("step.started", 1),
            attempt("worker.dispatched", 1),
            attempt("step.failed", 1),
            attempt("step.reset", 1),
            attempt("step.started", 2),
            attempt("worker.dispatched", 2),
            attempt("step.completed", 2),
        ];
        let both = ["1: 0-2 failed no_answer", "2: 4-6 complete"];
        assert_eq!(lines(&of(&events, "a")), both);
        let before = of(&events[..4], "a");
        assert_eq!((before.earlier.len(), before.latest), (1, None));
    }

    #[test]
    fn a_task_whose_worker_is_lost_has_an_attempt_for_each_dispatch() {
        let item = |(kind, mut data): (&'static str, Value)| {
            data["item"] = json!(3);
            (kind, data)
        };
        let events = [
            attempt("step.started", 2),
            item(("item.started", json!({}))),
            item(attempt("worker.dispatched", 2)),
            item(attempt("worker.dispatched", 3)),
            item(attempt("item.failed", 3)),
        ];
        let both = ["2: 1-3 replaced", "3: 3-4 failed no_answer"];
        assert_eq!(lines(&of(&events, "a.3")), both);
        assert_eq!(lines(&of(&events, "a")), ["2: 0- running"]);
    }

    #[test]
    fn a_task_that_asks_people_about_a_call_continues_once_they_answer() {
        let asked = json!({
            "arguments": {"frame": 0, "path": ""}, "attempt": 1, "call": 0, "digest": "d",
            "policy": {"on_reject": "recover", "quorum": 1}, "report": {"digest": "d", "n": 1}, "response": 0,
            "server": "s", "tool": "t",
        });
        let events = [
            attempt("step.started", 1),
            attempt("worker.dispatched", 1),
            ("approval.requested", asked),
            attempt("worker.dispatched", 2),
            attempt("worker.dispatched", 3),
            attempt("step.completed", 3),
        ];
        assert_eq!(lines(&of(&events[..4], "a")), ["2: 0- running"]);
        // A worker that is lost after the answer is another matter.
        let both = ["2: 0-4 replaced", "3: 4-5 complete"];
        assert_eq!(lines(&of(&events, "a")), both);
    }

    #[test]
    fn a_step_that_waits_for_data_begins_again_with_them() {
        let asked = json!({"attempt": 1, "command": 0});
        let events = [
            attempt("step.started", 1),
            ("suspend.requested", asked),
            attempt("step.reset", 1),
            attempt("step.started", 2),
        ];
        let both = ["1: 0-2 suspended", "2: 3- running"];
        assert_eq!(lines(&of(&events, "a")), both);
        let failed = [&events[..2], &[attempt("step.failed", 1)]].concat();
        assert_eq!(lines(&of(&failed, "a")), ["1: 0-2 failed no_answer"]);
    }

    #[test]
    fn what_was_in_progress_when_a_branch_was_made_ended_before_it() {
        let branch = json!({"branch_id": "b", "by": {"auth": "none", "id": "ann"},
            "effects": "suppress", "engine": "", "fork_position": 1, "parent_run_id": "r",
            "restarts": false, "rules": 1});
        let events = [
            attempt("step.started", 1),
            attempt("worker.dispatched", 1),
            attempt("step.noted", 1),
            ("branch.created", branch),
            attempt("worker.dispatched", 2),
        ];
        let both = ["1: 0-2 replaced", "2: 4- running"];
        assert_eq!(lines(&of(&events, "a")), both);
        let pending = AttemptHistory::fold(&frames(&events[..4])).of("", "a", true);
        assert_eq!(lines(&pending), ["1: 0-2 replaced"]);
        assert_eq!(pending.latest, None);
    }

    #[test]
    fn of_many_attempts_the_last_are_kept_and_the_others_counted() {
        let kept = u32::try_from(MAX_EARLIER_ATTEMPTS).unwrap();
        let events: Vec<_> = (1..=kept + 3)
            .map(|number| attempt("step.started", number))
            .collect();
        let found = of(&events, "a");
        assert_eq!(
            (found.earlier.len(), found.before),
            (MAX_EARLIER_ATTEMPTS, 2)
        );
        assert_eq!(found.earlier.front().map(|one| one.number), Some(3));
        assert_eq!(found.latest.map(|one| one.number), Some(kept + 3));
    }
}
