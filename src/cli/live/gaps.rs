//! Times in which nothing that is under way went on.

use ktsu_ledger::Frame;
use ktsu_projections::life::{Change, DeadlineShift, changes};

use super::Live;

impl Live {
    /// Time that the clock jumped over, or that passed before a branch was made or went on, is no time
    /// of what is under way, as in envelopes.
    pub(super) fn leave_out(&mut self, frame: &Frame) {
        let forks = frame.event.branched().is_some();
        let (last, parked) = self.last.replace((frame.at, forks)).unwrap_or_default();
        let since = frame.at.millis_since(last);
        let gap = changes(frame).find_map(|change| match change {
            Change::DeadlinesMoved(by_ms, DeadlineShift::Clock) => Some(by_ms.min(since)),
            Change::Forked(_) => Some(since),
            Change::Resumed(_) if parked => Some(since),
            _ => None,
        });
        let Some(gap) = gap else {
            return;
        };
        self.waits.leave_out(gap);
        for running in &mut self.running {
            running.at = running.at.plus_millis(gap);
            running.tally.leave_out(gap);
            let items = running.items.iter_mut();
            let open = items.flat_map(|items| items.open.values_mut());
            open.for_each(|tally| tally.leave_out(gap));
        }
    }
}
