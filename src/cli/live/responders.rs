//! Responders that wait before they look at something (`after`).

use std::collections::BTreeSet;

use ktsu_ledger::event::{FiringVerdict, RunEvent, WorldEvent};
use ktsu_ledger::{Cause, Event, Frame, Timestamp};

use crate::text;

/// Those that wait, by when each looks, and by what it waits with.
#[derive(Debug, Clone, Default)]
pub(super) struct WaitingResponders(BTreeSet<(Timestamp, u64, String)>);

impl WaitingResponders {
    /// Takes a frame; gives lines about it.
    pub(super) fn apply(&mut self, frame: &Frame) -> Vec<String> {
        match &frame.event {
            Event::World(WorldEvent::Fired(fired)) => {
                let event = event(frame).unwrap_or(frame.seq);
                let all = fired.candidates.iter();
                let waiting = all.filter(|one| one.verdict == FiringVerdict::Postponed);
                let lines = waiting.map(|one| {
                    let after = one.after_ms.unwrap_or_default();
                    let until = frame.at.plus_millis(after);
                    self.0.insert((until, event, one.responder.clone()));
                    let named = text::line(&one.responder);
                    format!("responder {named} waits {}", text::duration(after))
                });
                lines.collect()
            }
            Event::Run(RunEvent::TimerFired(fired)) => {
                let Some(responder) = &fired.responder else {
                    return Vec::new();
                };
                let event = event(frame);
                self.0
                    .retain(|(_, seq, name)| Some(*seq) != event || name != responder);
                vec![format!("responder {} has waited", text::line(responder))]
            }
            Event::Run(RunEvent::Failed(_) | RunEvent::Cancelled(_) | RunEvent::Terminated(_))
                if frame.scope.is_empty() =>
            {
                self.0.clear();
                Vec::new()
            }
            _ => Vec::new(),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The text on the responder whose wait ends first, if any waits.
    pub(super) fn words(&self) -> Option<String> {
        let (until, _, responder) = self.0.first()?;
        let until = text::moment(*until);
        let more = match self.0.len() {
            1 => String::new(),
            count => format!(" ({} more wait longer)", count - 1),
        };
        Some(format!(
            "responder {} waits until {until}{more}",
            text::line(responder)
        ))
    }
}

fn event(frame: &Frame) -> Option<u64> {
    match frame.cause.first()? {
        Cause::Here(seq) => Some(*seq),
        Cause::There(..) => None,
    }
}
