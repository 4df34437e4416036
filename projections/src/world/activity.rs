//! The activity of responders: which frames count, and how deep they are (decision F5).

pub use ktsu_ledger::event::is_address;
use ktsu_ledger::event::{AgentEvent, WorldEvent};
use ktsu_ledger::{Cause, Event, Frame};

/// The number and the depth of world frames.
#[derive(Debug, Clone, Default)]
pub struct Activity {
    /// The first frame that was taken.
    base: Option<u64>,
    /// By frame, 1 + the largest depth of a world frame that it is or follows from; 0: of none.
    below: Vec<u32>,
    events: u64,
    deepest: Option<u32>,
    last: Option<u64>,
}

impl Activity {
    /// Takes the next frame of a stream, which may be about anything.
    pub fn apply(&mut self, frame: &Frame) {
        // Frames that are not of the world pass on the depth of what they follow from.
        let mut below = self.below_causes(&frame.cause);
        if is_world_frame(frame) {
            self.events += 1;
            self.last = Some(frame.seq);
            self.deepest = self.deepest.max(Some(below));
            below = below.saturating_add(1);
        }
        // A run is folded without gaps; what is not is not followed further.
        let base = *self.base.get_or_insert(frame.seq);
        if frame.seq == base.saturating_add(self.below.len() as u64) {
            self.below.push(below);
        }
    }

    /// Number of world frames.
    pub fn events(&self) -> u64 {
        self.events
    }

    /// The largest depth of a world frame.
    pub fn deepest(&self) -> Option<u32> {
        self.deepest
    }

    /// The last world frame.
    pub fn last(&self) -> Option<u64> {
        self.last
    }

    /// The depth that a world frame with these causes has: 0 for a root, otherwise 1 more than the
    /// deepest world frame that it follows from, directly or through other frames.
    pub fn depth_below(&self, causes: &[Cause]) -> u32 {
        self.below_causes(causes)
    }

    /// The depth of a world frame.
    pub fn depth_of(&self, seq: u64) -> Option<u32> {
        self.below(seq)?.checked_sub(1)
    }

    fn below_causes(&self, causes: &[Cause]) -> u32 {
        let depths = causes.iter().map(|cause| match cause {
            // One that is not there counts as a root.
            Cause::Here(seq) => self.below(*seq).unwrap_or(1),
            Cause::There(..) => 1,
        });
        depths.max().unwrap_or(0)
    }

    fn below(&self, seq: u64) -> Option<u32> {
        let at = seq.checked_sub(self.base?)?;
        self.below.get(usize::try_from(at).ok()?).copied()
    }
}

/// Returns `true` if a frame counts against `max_events` and is listed as one of the world: events
/// about objects and relations, notes and what kits post, and the calls of models and tools that
/// responders started.
pub fn is_world_frame(frame: &Frame) -> bool {
    is_world_event(&frame.event, &frame.scope)
}

/// As [`is_world_frame`], of an event in a scope that has no frame yet.
pub fn is_world_event(event: &Event, scope: &str) -> bool {
    if let Event::Agent(event) = event {
        let calls = matches!(
            event,
            AgentEvent::Request(_)
                | AgentEvent::Response(_)
                | AgentEvent::ToolCalled(_)
                | AgentEvent::ToolReturned(_)
        );
        return calls && (is_address(scope) || is_address(event.step()));
    }
    if let Event::Foreign { kind, .. } = event {
        return kind.starts_with("x.");
    }
    matches!(
        event,
        Event::World(
            WorldEvent::ObjectCreated(_)
                | WorldEvent::ObjectPatched(_)
                | WorldEvent::RelationCreated(_)
                | WorldEvent::RelationRemoved(_)
                | WorldEvent::Noted(_)
        )
    )
}
