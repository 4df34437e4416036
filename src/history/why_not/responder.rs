//! Why a responder did not react, or made less than was expected of it.

use std::collections::BTreeMap;

use ktsu_ledger::Event;
use ktsu_ledger::event::{
    Candidate, Derivation, FiringVerdict, ResponderFailed, TaskKind, WorldEvent,
};
use ktsu_projections::world::{ResponderTaskPhase, Responding, Trigger, TriggerSubject, World};
use ktsu_workflow::definition::{
    CompiledEntry, CompiledResponder, CompiledResponse, CompiledWorlds,
};
use ktsu_workflow::expression::provenance::{FramePointer, Provenance};

use super::waiting::waiting;
use super::{Reason, WhyNot};
use crate::provenance::world_names::ResponderView;
use crate::provenance::worlds::{WorldFacts, cause};
use crate::provenance::{FieldNotFoundError, TracedRun, find_in_world, origins, segments};

/// The most triggers, items and frames that are told of; the latest of them.
const MAX_TOLD: usize = 50;
/// The most responders that an error names.
const MAX_SUGGESTIONS: usize = 20;

/// Why a responder did not react; of all triggers, or of those about one object or relation.
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
    let mut told = Explainer {
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
    let decided = told.decisions(name);
    let pending = told.pending(place);
    if decided.is_empty() && pending.is_empty() {
        told.never();
    }
    let left_out = decided.len().saturating_sub(MAX_TOLD);
    if left_out > 0 {
        let words = format!("{left_out} earlier triggers are left out: --for OBJECT chooses");
        told.push(None, words, &Provenance::default());
    }
    let decided_any = !decided.is_empty();
    for decision in decided.iter().skip(left_out) {
        told.decided(decision);
    }
    for (seq, kind) in pending.iter().take(MAX_TOLD) {
        let words = format!("{}: {}", told.event(*seq, kind), told.held_up());
        told.push(Some(*seq), words, &Provenance::default());
    }
    let status = match (told.reacted, decided_any, pending.is_empty() && !told.waits) {
        (true, ..) => "reacted",
        (false, _, false) => "waiting",
        (false, true, true) => "did not react",
        (false, false, true) => "never triggered",
    };
    Ok(WhyNot {
        run_id: story.state().stream().name().to_owned(),
        step: name.to_owned(),
        object: told.object,
        status: status.to_owned(),
        because: told.because,
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

/// What one trigger was to the responder.
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
            if let Event::World(WorldEvent::Failed(failed)) = &frame.event
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
    /// Whether a timer of its own is still to fire.
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

    /// What was decided about the triggers that count.
    fn decisions(&self, name: &str) -> Vec<Decision<'f>> {
        let mut found = Vec::new();
        for frame in self.story.frames() {
            let Event::World(WorldEvent::Fired(fired)) = &frame.event else {
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

    /// Whether a trigger is about the object that was asked for.
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
        let event = frame.and_then(|frame| match &frame.event {
            Event::World(event) => event.subject(),
            _ => None,
        });
        match event {
            Some(subject) => format!("{kind} of {subject} in frame {seq}"),
            None => format!("{kind} in frame {seq}"),
        }
    }

    /// It was never a candidate: what it waits for, and what came instead.
    fn never(&mut self) {
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

    /// How many events of each type came.
    fn came(&mut self) {
        let mut counts: BTreeMap<String, (u64, u64)> = BTreeMap::new();
        for frame in self.story.frames() {
            let kind = match &frame.event {
                Event::World(WorldEvent::ObjectCreated(made)) => Some(made.kind.clone()),
                Event::World(WorldEvent::RelationCreated(made)) => Some(made.kind.clone()),
                Event::World(WorldEvent::ObjectPatched(patched)) => {
                    let object = self.responding.head().object(&patched.id);
                    Some(object.map_or_else(String::new, |object| object.kind.to_string()))
                }
                Event::World(WorldEvent::RelationRemoved(_) | WorldEvent::Noted(_)) => {
                    Some(String::new())
                }
                Event::Foreign { kind, .. } if kind.starts_with("x.") => Some(String::new()),
                _ => None,
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
        for (name, (count, last)) in counts.into_iter().take(MAX_TOLD) {
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
        let left_out = about.len().saturating_sub(MAX_TOLD);
        for (seq, kind) in about.into_iter().skip(left_out) {
            let place = match self.story.frame(seq).map(|frame| &frame.event) {
                Some(Event::World(WorldEvent::ObjectPatched(patched))) => FramePointer::new(
                    seq,
                    match patched.patch.is_null() {
                        true => "/withheld",
                        false => "/patch",
                    },
                ),
                Some(_) | None => FramePointer::new(seq, "/type"),
            };
            let words = format!("instead: {}", self.event(seq, kind));
            self.push(Some(seq), words, &Provenance::at(place));
        }
    }

    /// What was decided about one trigger.
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
                        let text = guard.text.unwrap_or_default();
                        let value = guard
                            .value
                            .map_or_else(|why| why, |value| value.to_string());
                        let found = view.found_words(responder);
                        (
                            format!("its guard {text} is {value}{found}"),
                            guard.rests_on,
                        )
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
                let (waits, words) = waiting(self.responding, decision.trigger, decision.candidate);
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
            Some(items) => (0..items).map(Some).take(MAX_TOLD).collect(),
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

    /// Why an entry made nothing.
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
            let text = guard.text.unwrap_or_default();
            let value = guard
                .value
                .map_or_else(|why| why, |value| value.to_string());
            return (None, format!("its guard {text} is {value}"), guard.rests_on);
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

    /// Where a task stands: with its frame.
    fn task(&mut self, address: &str, kind: TaskKind) -> (Option<u64>, String) {
        let what = match kind {
            TaskKind::Ask => "question",
            TaskKind::Run => "workflow",
        };
        if let Some((seq, failed)) = self.failures.of_task(address) {
            let words = format!("its {what} failed with {}: {}", failed.code, failed.message);
            return (Some(seq), words);
        }
        let done = self
            .story
            .frames()
            .iter()
            .rev()
            .find_map(|frame| match &frame.event {
                Event::World(WorldEvent::Completed(done)) if done.address == address => {
                    Some((frame.seq, done))
                }
                _ => None,
            });
        if let Some((seq, done)) = done {
            self.reacted = true;
            let skipped: Vec<String> = done
                .skipped
                .iter()
                .map(|one| format!("entry {} made nothing: {}", one.entry, one.reason))
                .collect();
            let more = match skipped.as_slice() {
                [] => String::new(),
                all => format!("; {}", all.join("; ")),
            };
            return (
                Some(seq),
                format!("its {what} was answered, and it reacted{more}"),
            );
        }
        let name = &self.responder.plan.name;
        match self.responding.task(address).map(|task| task.phase) {
            Some(ResponderTaskPhase::Waiting) => {
                let busy = self.responding.announced_tasks(name);
                let words = match self.responder.plan.concurrency {
                    Some(limit) if busy >= limit => {
                        format!(
                            "its {what} waits: {busy} are under way, and concurrency is {limit}"
                        )
                    }
                    Some(_) | None => format!("its {what} has not begun: {}", self.held_up()),
                };
                (None, words)
            }
            Some(ResponderTaskPhase::Announced { seq }) => {
                self.reacted = true;
                (Some(seq), format!("its {what} is under way"))
            }
            Some(ResponderTaskPhase::Ended { seq }) => (
                Some(seq),
                format!("its {what} has ended: {}", self.held_up()),
            ),
            Some(ResponderTaskPhase::SetAside) => {
                let run = self.story.state().stream().name();
                let words =
                    format!("its {what} came to nothing; it begins again with: ktsu resume {run}");
                (None, words)
            }
            None => (None, format!("its {what} is not there any more")),
        }
    }

    /// What keeps a run from going on.
    fn held_up(&self) -> String {
        let state = self.story.state();
        let name = state.stream().name();
        let exhausted = self
            .story
            .frames()
            .iter()
            .rev()
            .find_map(|frame| match &frame.event {
                Event::World(WorldEvent::BudgetExhausted(used)) => Some((frame.seq, used)),
                _ => None,
            });
        if let Some((seq, used)) = exhausted.filter(|_| self.responding.head().is_exhausted()) {
            let reasons = used.reasons.join(", ");
            return format!("the budget was used up first, in frame {seq}: {reasons}");
        }
        if let Some(failing) = state.failing() {
            let (code, message) = (&failing.code, &failing.message);
            return format!("the run failed first, with {code}: {message}");
        }
        if state.paused().is_some() || state.is_parked() {
            return format!("the run is paused: ktsu resume {name}");
        }
        match state.status().is_terminal() {
            true => "it made nothing".to_owned(),
            false => "it is about to be decided".to_owned(),
        }
    }
}

/// Whether a trigger is about an object or a relation: it, or an end of the relation it is about.
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
    let Event::World(event) = event else {
        return Vec::new();
    };
    let ends = match event {
        WorldEvent::RelationCreated(made) => vec![made.source_id.as_str(), made.target_id.as_str()],
        _ => Vec::new(),
    };
    event.subject().into_iter().chain(ends).collect()
}
