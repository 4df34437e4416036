//! The reasons why a responder did not react, or made less than was expected of it.

mod never;
mod task;

use std::collections::BTreeMap;

use ktsu_ledger::Event;
use ktsu_ledger::event::{Candidate, Derivation, FiringVerdict, ResponderFailed, WorldEvent};
use ktsu_projections::world::{Responding, Trigger, TriggerSubject, World};
use ktsu_workflow::definition::{
    CompiledEntry, CompiledResponder, CompiledResponse, CompiledWorlds,
};
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};

use super::reasons::{Reason, WhyNot};
use super::waiting::waiting;
use crate::provenance::world_names::{ResponderView, TrackedGuard};
use crate::provenance::worlds::{WorldFacts, cause};
use crate::provenance::{FieldNotFoundError, TracedRun, find_in_world, origins, segments};

/// The most triggers, items and frames that an answer names; the latest of them.
const MAX_SHOWN: usize = 50;
/// The most responders that an error names.
const MAX_SUGGESTIONS: usize = 20;

/// The reasons why a responder did not react; of all triggers, or of those about one object or
/// relation.
///
/// # Errors
/// [`FieldNotFoundError`] if there is no such responder or object.
pub(super) fn why_not(
    story: &TracedRun<'_>,
    name: &str,
    object: Option<&str>,
) -> Result<WhyNot, FieldNotFoundError> {
    let none = || no_responder(story.worlds_before(u64::MAX), name);
    let worlds = story.worlds_before(u64::MAX).ok_or_else(none)?;
    let (place, responder) = worlds.responder(name).ok_or_else(none)?;
    let responding = story.state().responding().ok_or_else(none)?;
    let facts = story.worlds().ok_or_else(none)?;
    let object = object.map(|path| object_id(responding.head(), path));
    let mut explainer = Explainer {
        story,
        facts,
        responding,
        responder,
        object: object.transpose()?,
        failures: Failures::of(story, name),
        because: Vec::new(),
        reacted: false,
        waits: false,
    };
    let decided = explainer.decisions(name);
    let pending = explainer.pending(place);
    if decided.is_empty() && pending.is_empty() {
        explainer.never();
    }
    let left_out = decided.len().saturating_sub(MAX_SHOWN);
    if left_out > 0 {
        let words = format!("{left_out} earlier triggers are left out: --for OBJECT chooses");
        explainer.push(None, words, &Provenance::default());
    }
    let decided_any = !decided.is_empty();
    let shown = decided.iter().skip(left_out);
    for decision in shown.take_while(|_| !story.is_over_bound()) {
        explainer.decided(decision);
    }
    for (seq, kind) in pending.iter().take(MAX_SHOWN) {
        let words = format!("{}: {}", explainer.event(*seq, kind), explainer.held_up());
        explainer.push(Some(*seq), words, &Provenance::default());
    }
    let nothing_due = pending.is_empty() && !explainer.waits;
    let status = match (explainer.reacted, decided_any, nothing_due) {
        (true, ..) => "reacted",
        (false, _, false) => "waiting",
        (false, true, true) => "did not react",
        (false, false, true) => "never triggered",
    };
    Ok(WhyNot {
        run_id: story.state().stream().name().to_owned(),
        step: name.to_owned(),
        object: explainer.object,
        status: status.to_owned(),
        because: explainer.because,
    })
}

/// The error for a name that no responder has.
fn no_responder(worlds: Option<&CompiledWorlds>, name: &str) -> FieldNotFoundError {
    let names = worlds.map_or(&[][..], CompiledWorlds::responders).iter();
    let names = names.map(|responder| responder.plan.name.clone());
    FieldNotFoundError {
        message: format!("there is no responder {name:?}"),
        unnamed: "the run has no such responder".to_owned(),
        there: names.take(MAX_SUGGESTIONS).collect(),
    }
}

fn object_id(world: &World, path: &str) -> Result<String, FieldNotFoundError> {
    let segments = segments(path)?;
    let (found, rest) = find_in_world(world, &segments)?;
    match rest {
        [] => Ok(found.id().to_owned()),
        [..] => Err(FieldNotFoundError {
            message: format!("{path} is a field; --for takes an object or a relation"),
            unnamed: "that is a field".to_owned(),
            there: vec![found.id().to_owned()],
        }),
    }
}

/// The decision of the responder on one trigger.
struct Decision<'f> {
    /// `responder.fired`.
    fired: u64,
    trigger: u64,
    candidate: &'f Candidate,
}

/// The frames that say that the responder failed, by their cause.
struct Failures<'f>(BTreeMap<u64, Vec<(u64, &'f ResponderFailed)>>);

impl<'f> Failures<'f> {
    fn of(story: &TracedRun<'f>, name: &str) -> Self {
        let mut all: BTreeMap<u64, Vec<_>> = BTreeMap::new();
        for frame in story.frames() {
            if let Some(WorldEvent::Failed(failed)) = frame.event.world()
                && failed.responder == name
            {
                let cause = cause(frame).unwrap_or(frame.seq);
                all.entry(cause).or_default().push((frame.seq, failed));
            }
        }
        Self(all)
    }

    /// The failure at an item of a trigger.
    fn at(&self, trigger: u64, item: Option<u32>) -> Option<(u64, &'f ResponderFailed)> {
        let found = self.0.get(&trigger)?.iter();
        let mut found = found.filter(|(_, failed)| failed.item == item || failed.item.is_none());
        found.next().copied()
    }

    fn of_task(&self, address: &str) -> Option<(u64, &'f ResponderFailed)> {
        let mut all = self.0.values().flatten();
        let of_task = |failed: &ResponderFailed| failed.address.as_deref() == Some(address);
        all.find(|(_, failed)| of_task(failed)).copied()
    }
}

struct Explainer<'s, 'f> {
    story: &'s TracedRun<'f>,
    facts: &'s WorldFacts,
    responding: &'s Responding,
    responder: &'s CompiledResponder,
    object: Option<String>,
    failures: Failures<'f>,
    because: Vec<Reason>,
    reacted: bool,
    /// True if a timer of its own is still to fire.
    waits: bool,
}

impl<'f> Explainer<'_, 'f> {
    fn push(&mut self, frame: Option<u64>, text: String, values: &Provenance) {
        self.because.push(Reason {
            step: self.responder.plan.name.clone(),
            frame,
            text,
            values: origins(self.story, values),
        });
    }

    /// The decisions on the triggers that count.
    fn decisions(&self, name: &str) -> Vec<Decision<'f>> {
        let mut found = Vec::new();
        for frame in self.story.frames() {
            let Some(WorldEvent::Fired(fired)) = frame.event.world() else {
                continue;
            };
            let mut candidates = fired.candidates.iter();
            let candidate = candidates.find(|candidate| candidate.responder == name);
            if let (Some(candidate), Some(trigger)) = (candidate, cause(frame))
                && self.counts(trigger)
            {
                found.push(Decision {
                    fired: frame.seq,
                    trigger,
                    candidate,
                });
            }
        }
        found
    }

    /// The triggers that nobody has looked at yet.
    fn pending(&self, place: u32) -> Vec<(u64, String)> {
        let pending = self.responding.pending_triggers();
        pending
            .filter(|one| one.candidates.contains(&place) && self.counts(one.seq))
            .map(|one| (one.seq, one.kind.to_owned()))
            .collect()
    }

    /// Returns `true` if a trigger is about the object that was asked for, or if none was asked
    /// for.
    fn counts(&self, trigger: u64) -> bool {
        let Some(object) = &self.object else {
            return true;
        };
        match self.facts.trigger(trigger) {
            Some((trigger, _)) => is_about(trigger, object),
            None => {
                let frame = self.story.frame(trigger);
                frame.is_some_and(|frame| subjects(&frame.event).contains(&object.as_str()))
            }
        }
    }

    /// `object.created of Claim-…`.
    fn event(&self, seq: u64, kind: &str) -> String {
        let frame = self.story.frame(seq);
        match frame.and_then(|frame| frame.event.world()?.subject()) {
            Some(subject) => format!("{kind} of {subject} in frame {seq}"),
            None => format!("{kind} in frame {seq}"),
        }
    }

    /// Explains the decision on one trigger.
    fn decided(&mut self, decision: &Decision<'f>) {
        let Some((trigger, world)) = self.facts.trigger(decision.trigger) else {
            return;
        };
        let event = self.event(trigger.event_seq(), &trigger.kind);
        let view = ResponderView::of_goal(self.story, self.facts, decision.fired);
        let responder = view
            .as_ref()
            .and_then(|view| view.worlds().responder(&self.responder.plan.name));
        let (Some(view), Some((_, responder))) = (view, responder) else {
            return;
        };
        let none = Provenance::default();
        let seen = view.of_trigger(responder, (trigger, world));
        match decision.candidate.verdict {
            FiringVerdict::False => {
                let (words, values) = match &seen {
                    Ok(view) => {
                        let guard = view.guard(responder.when.as_ref());
                        let found = view.found_words(responder);
                        (format!("{}{found}", guard_words(&guard)), guard.rests_on)
                    }
                    Err(error) => (format!("its guard is false: {}", error.message), none),
                };
                self.push(Some(decision.fired), format!("{event}: {words}"), &values);
            }
            FiringVerdict::Failed => {
                let reason = decision.candidate.reason.as_deref().unwrap_or_default();
                let values = seen.map(|view| view.guard(responder.when.as_ref()).rests_on);
                let words = format!("{event}: it could not be evaluated: {reason}");
                self.push(Some(decision.fired), words, &values.unwrap_or_default());
            }
            FiringVerdict::Postponed => {
                let (waits, words) =
                    waiting(self.story.state(), decision.trigger, decision.candidate);
                self.waits |= waits;
                self.push(Some(decision.fired), format!("{event}: {words}"), &none);
            }
            FiringVerdict::Fired => match seen {
                Ok(view) => self.fired(decision, (trigger, responder), view, &event),
                Err(error) => {
                    let words = format!("{event}: {}", error.message);
                    self.push(Some(decision.fired), words, &none);
                }
            },
        }
    }

    /// It reacted: what it made, asked or ran, and what it did not.
    fn fired(
        &mut self,
        decision: &Decision<'f>,
        (trigger, responder): (&Trigger, &CompiledResponder),
        view: ResponderView<'_>,
        event: &str,
    ) {
        let items = decision.candidate.items;
        if items == Some(0) {
            let guard = view.guard(responder.when.as_ref());
            let found = view.found_words(responder);
            let words = format!("{event}: it holds, and for_each has no items{found}");
            return self.push(Some(decision.fired), words, &guard.rests_on);
        }
        let name = &responder.plan.name;
        let numbers: Vec<Option<u32>> = match items {
            None => vec![None],
            Some(items) => (0..items).map(Some).take(MAX_SHOWN).collect(),
        };
        let mut view = view;
        for item in numbers {
            let of_item = item.map_or_else(String::new, |item| format!(", item {item}"));
            if let Some(kind) = decision.candidate.task {
                let address = trigger.key.address(name, item);
                let (frame, words) = self.task(&address, kind);
                let words = format!("{event}{of_item}: {words}");
                self.push(
                    frame.or(Some(decision.fired)),
                    words,
                    &Provenance::default(),
                );
                continue;
            }
            let CompiledResponse::Emit(entries) = &responder.work else {
                continue;
            };
            (view, _) = view.with_item(responder, item);
            let derived = Derivation {
                entry: 0,
                item,
                responder: Some(name.clone()),
            };
            let mut made = 0;
            for (at, entry) in (0u32..).zip(entries) {
                let derived = Derivation {
                    entry: at,
                    ..derived.clone()
                };
                if self.facts.output(Some(trigger.seq), &derived).is_some() {
                    made += 1;
                    continue;
                }
                view = view.with_entries(entries, Some(trigger.seq), &derived);
                let (frame, words, values) = self.not_made(trigger.seq, (item, at, entry), &view);
                let words = format!("{event}{of_item}: entry {at}: {words}");
                self.push(frame.or(Some(decision.fired)), words, &values);
            }
            if made > 0 {
                self.reacted = true;
                let words = format!(
                    "{event}{of_item}: it reacted, and made {made} of {}",
                    entries.len()
                );
                self.push(Some(decision.fired), words, &Provenance::default());
            }
        }
    }

    /// The reason why an entry made nothing.
    fn not_made(
        &self,
        trigger: u64,
        (item, at, entry): (Option<u32>, u32, &CompiledEntry),
        view: &ResponderView<'_>,
    ) -> (Option<u64>, String, Provenance) {
        let none = Provenance::default();
        if let Some((seq, failed)) = self.failures.at(trigger, item)
            && failed.entry.is_none_or(|failed| failed <= at)
        {
            let words = match failed.entry == Some(at) {
                true => format!("it failed with {}: {}", failed.code, failed.message),
                false => "an entry before it failed".to_owned(),
            };
            return (Some(seq), words, none);
        }
        let guard = view.guard(entry.when.as_ref());
        if !guard.holds {
            return (None, guard_words(&guard), guard.rests_on);
        }
        if let Some(id) = view.keyed_object(entry)
            && let Some(created) = self.facts.created(&id, u64::MAX)
        {
            let place = FramePointer::new(created, "/key");
            let words = format!("an object with its key exists already: {id}");
            return (Some(created), words, Provenance::at(place));
        }
        (None, self.held_up(), none)
    }
}

/// A guard that does not hold, and its value.
fn guard_words(guard: &TrackedGuard) -> String {
    let text = guard.text.as_deref().unwrap_or_default();
    match &guard.value {
        Ok(value) => format!("its guard {text} is {value}"),
        Err(why) => format!("its guard {text} is {why}"),
    }
}

/// Returns `true` if a trigger is about this object or relation, or about a relation that it is an
/// end of.
fn is_about(trigger: &Trigger, id: &str) -> bool {
    match &trigger.subject {
        TriggerSubject::Object { object, .. } => *object.id == *id,
        TriggerSubject::Relation(relation) => {
            [&relation.id, &relation.source_id, &relation.target_id]
                .iter()
                .any(|one| ***one == *id)
        }
        TriggerSubject::Posted(_) | TriggerSubject::Reply { .. } => false,
    }
}

/// The objects and relations that an event is about.
fn subjects(event: &Event) -> Vec<&str> {
    let Some(event) = event.world() else {
        return Vec::new();
    };
    let ends = match event {
        WorldEvent::RelationCreated(made) => vec![made.source_id.as_str(), made.target_id.as_str()],
        _ => Vec::new(),
    };
    event.subject().into_iter().chain(ends).collect()
}
