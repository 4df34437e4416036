//! The reports of a runtime about a task: each is taken once, in order (seed 000, invariants 15 and 19).

use ktsu_ledger::event::{AgentEvent, Report};

use super::task::{AgentTask, TaskPhase};

/// A report that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedReport {
    /// Number and digest.
    pub report: Report,
    /// Its first frame.
    pub first: u64,
    /// Its last frame.
    pub last: u64,
}

impl AgentTask {
    /// The report of this attempt with a number.
    pub fn accepted_report(&self, n: u32) -> Option<&AcceptedReport> {
        if n == 0 {
            // A `complete` is the last.
            return self.reports.last().filter(|seen| seen.report.n == 0);
        }
        let of = |seen: &AcceptedReport| match seen.report.n {
            0 => u32::MAX,
            n => n,
        };
        let at = self.reports.binary_search_by_key(&n, of).ok()?;
        self.reports.get(at)
    }

    /// The task as checking its next report needs it: of the reports taken before, the last.
    pub fn with_last_report_only(&self) -> Self {
        Self {
            phase: self.phase.clone(),
            attempt: self.attempt,
            last: self.last,
            open_call: self.open_call.clone(),
            last_call: self.last_call.clone(),
            calls: self.calls.clone(),
            recorded_results: self.recorded_results.clone(),
            draft: self.draft.clone(),
            reflection: self.reflection,
            reports: self.reports.last().cloned().into_iter().collect(),
            ..Self::default()
        }
    }

    /// Whether a report is the next one, or goes on with the last.
    pub(crate) fn accepts_report(&self, report: &Report) -> bool {
        match self.reports.last() {
            // The end is the only frame of a `complete`.
            Some(last) if last.report.n == 0 => false,
            _ if report.n == 0 => true,
            Some(last) if last.report.n == report.n => last.report == *report,
            // One that got no answer may be missing: its sender may have had no time left.
            Some(last) => report.n > last.report.n,
            None => true,
        }
    }

    /// Whether a frame belongs to the report by which the task began to wait for people.
    pub(crate) fn continues_last_report(&self, event: &AgentEvent) -> bool {
        let last = self.reports.last().map(|seen| &seen.report);
        self.phase == TaskPhase::Suspended && event.report().is_some() && last == event.report()
    }

    pub(crate) fn note_report(&mut self, seq: u64, report: &Report) {
        match self.reports.last_mut() {
            Some(last) if last.report == *report => last.last = seq,
            _ => self.reports.push(AcceptedReport {
                report: report.clone(),
                first: seq,
                last: seq,
            }),
        }
    }
}
