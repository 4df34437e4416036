//! Responders that wait before they look (`after`).

use ktsu_ledger::event::Candidate;
use ktsu_projections::run::RunState;
use ktsu_projections::world::Responding;

/// Whether a responder still waits with an event, and that or what became of it, in words. What it
/// decided when its timer fired is a decision of its own.
pub(super) fn waiting(state: &RunState, event: u64, told: &Candidate) -> (bool, String) {
    let after = told.after_ms.unwrap_or_default();
    let mut timers = state.responding().into_iter().flat_map(Responding::timers);
    let timer = timers.find(|one| one.event.seq == event && one.responder == told.responder);
    let Some(timer) = timer else {
        return (false, format!("it set a timer of {after} ms"));
    };
    let status = state.status();
    if status.is_terminal() {
        let words = format!(
            "it was to look {after} ms after it; the run is {}, so its timer does not fire",
            status.as_str()
        );
        return (false, words);
    }
    let words = match state.paused() {
        Some(_) => format!("it waits {after} ms after it, not counting the pause of the run"),
        None => format!("it waits until {}, {after} ms after it", timer.due),
    };
    (true, words)
}
