//! A responder that was never triggered: what it reacts to, and which events came instead.

use std::collections::BTreeMap;

use ktsu_ledger::event::WorldEvent;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};

use super::{Explainer, MAX_SHOWN, subjects};

impl Explainer<'_, '_> {
    /// It was never a candidate: what it waits for, and what came instead.
    pub(super) fn never(&mut self) {
        let plan = &self.responder.plan;
        let mut words = format!("it reacts to {}", plan.on.join(", "));
        if !plan.types.is_empty() {
            words.push_str(&format!(" of {}", plan.types.join(", ")));
        }
        if !plan.changed.is_empty() {
            words.push_str(&format!(" that replace {}", plan.changed.join(", ")));
        }
        words.push_str(match self.object.is_some() {
            true => ", and none of them is about that object",
            false => ", and none of them came",
        });
        self.push(None, words, &Provenance::default());
        match self.object.clone() {
            Some(object) => self.came_about(&object),
            None => self.came(),
        }
    }

    /// Adds the number of events of each type that came.
    fn came(&mut self) {
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for frame in self.story.frames() {
            let kind = match frame.event.world() {
                Some(WorldEvent::ObjectCreated(made)) => Some(made.kind.clone()),
                Some(WorldEvent::RelationCreated(made)) => Some(made.kind.clone()),
                Some(WorldEvent::ObjectPatched(patched)) => {
                    let object = self.responding.head().object(&patched.id);
                    Some(object.map_or_else(String::new, |object| object.kind.to_string()))
                }
                Some(WorldEvent::RelationRemoved(_) | WorldEvent::Noted(_)) => Some(String::new()),
                _ => frame.event.is_of_kit().then(String::new),
            };
            if let Some(kind) = kind {
                let event = frame.event.kind();
                let name = match kind.as_str() {
                    "" => event.to_owned(),
                    kind => format!("{event} of {kind}"),
                };
                let count = counts.entry(name).or_insert((0, frame.seq));
                *count = (count.0 + 1, frame.seq);
            }
        }
        for (name, (count, last)) in counts.into_iter().take(MAX_SHOWN) {
            let words = match count {
                1 => format!("instead: {name}"),
                _ => format!("instead: {name}, {count} times, last here"),
            };
            self.push(Some(last), words, &Provenance::default());
        }
    }

    /// The events about an object.
    fn came_about(&mut self, object: &str) {
        let frames = self.story.frames().iter();
        let about = frames.filter(|frame| subjects(&frame.event).contains(&object));
        let about: Vec<_> = about.map(|frame| (frame.seq, frame.event.kind())).collect();
        let left_out = about.len().saturating_sub(MAX_SHOWN);
        for (seq, kind) in about.into_iter().skip(left_out) {
            let frame = self.story.frame(seq);
            let place = match frame.and_then(|frame| frame.event.world()) {
                Some(WorldEvent::ObjectPatched(patched)) if patched.patch.is_null() => "/withheld",
                Some(WorldEvent::ObjectPatched(_)) => "/patch",
                _ => "/type",
            };
            let words = format!("instead: {}", self.event(seq, kind));
            let place = FramePointer::new(seq, place);
            self.push(Some(seq), words, &Provenance::at(place));
        }
    }
}
