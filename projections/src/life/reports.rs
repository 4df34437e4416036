//! The reports of a runtime about one attempt of a task: each is taken once, in order (seed 000,
//! invariants 15 and 19).

use ktsu_ledger::event::ReportReference;

/// A report that was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AcceptedReport {
    /// Number and digest.
    pub report: ReportReference,
    /// Its first frame.
    pub first: u64,
    /// Its last frame.
    pub last: u64,
}

/// The report with a number.
pub(crate) fn numbered(reports: &[AcceptedReport], n: u32) -> Option<&AcceptedReport> {
    if n == 0 {
        // A `complete` is the last.
        return reports.last().filter(|seen| seen.report.n == 0);
    }
    let of = |seen: &AcceptedReport| match seen.report.n {
        0 => u32::MAX,
        n => n,
    };
    let at = reports.binary_search_by_key(&n, of).ok()?;
    reports.get(at)
}

/// Returns `true` if a report is the next one, or another frame of the last.
pub(crate) fn is_next(reports: &[AcceptedReport], report: &ReportReference) -> bool {
    match reports.last() {
        // The end is the only frame of a `complete`.
        Some(last) if last.report.n == 0 => false,
        _ if report.n == 0 => true,
        Some(last) if last.report.n == report.n => last.report == *report,
        // One that got no answer may be missing: its sender may have had no time left.
        Some(last) => report.n > last.report.n,
        None => true,
    }
}

/// Takes a frame of a report.
pub(crate) fn take(reports: &mut Vec<AcceptedReport>, seq: u64, report: &ReportReference) {
    match reports.last_mut() {
        Some(last) if last.report == *report => last.last = seq,
        _ => reports.push(AcceptedReport {
            report: report.clone(),
            first: seq,
            last: seq,
        }),
    }
}
