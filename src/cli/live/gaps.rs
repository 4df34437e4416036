//! Times in which nothing that is under way went on.

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::{Event, Frame};

use super::Live;

impl Live {
    /// Time that the clock jumped over, or that passed before a branch was made or went on, is no time
    /// of what is under way, as in envelopes.
    pub(super) fn leave_out(&mut self, frame: &Frame) {
        let branches = matches!(frame.event, Event::Run(RunEvent::Branched(_)));
        let (last, parked) = self.last.replace((frame.at, branches)).unwrap_or_default();
        let since = frame.at.millis_since(last);
        let gap = match &frame.event {
            Event::Run(RunEvent::ClockJumped(jump)) => {
                jump.forward_ms.unwrap_or_default().min(since)
            }
            Event::Run(RunEvent::Branched(_)) => since,
            Event::Run(RunEvent::Resumed(_)) if parked => since,
            _ => return,
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
