//! Responders that wait before they look (`after`).

use ktsu_ledger::event::Candidate;
use ktsu_projections::world::Responding;

/// Whether a responder still waits with an event, and that or what became of it, in words.
pub(super) fn waiting(responding: &Responding, event: u64, told: &Candidate) -> (bool, String) {
    let mut timers = responding.timers();
    let timer = timers.find(|one| one.event.seq == event && one.responder == told.responder);
    let after = told.after_ms.unwrap_or_default();
    match timer {
        Some(timer) => (
            true,
            format!("it waits until {}, {after} ms after it", timer.due),
        ),
        None => (false, format!("it waited {after} ms, and looked then")),
    }
}
