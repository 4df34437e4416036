//! The outputs of responders: which entry makes what, under which id, and which may make nothing.

use ktsu_ledger::Frame;
use ktsu_ledger::event::plan::world::IfExists;
use ktsu_ledger::event::{
    Candidate, Derivation, FiringVerdict, OutputRejected, ResponderCompleted, ResponderFailed,
    TaskKind, WorldEvent,
};
use ktsu_projections::world::derivation::{GOAL_ACTOR, relation_id};
use ktsu_projections::world::responding::{Firing, OutputPlace};
use ktsu_projections::world::{Responding, Trigger, TriggerKey, TriggerSubject, object};
use ktsu_workflow::airlock;
use ktsu_workflow::definition::{
    CompiledAsk, CompiledEntry, CompiledMake, CompiledResponder, CompiledResponse, CompiledWorlds,
};
use ktsu_workflow::reserved::{self, ReservedEnd};
use ktsu_workflow::rules::DecisionRules;

const UNDECLARED: &str = "its type is not declared";
const ASKED_FOR_NOTHING: &str = "its model asked that nothing be made of its reply";
const FAILED_REPLY: &str = "its responder fails with the reply";

/// A candidate that reacts.
pub(super) struct ReactingCandidate {
    /// Position among all candidates of the trigger.
    at: u32,
    responder: String,
    items: Option<u32>,
    /// True if its items could not be evaluated: it makes nothing and fails.
    fails: bool,
}

/// The outputs that responders may make next.
pub(super) struct Outputs<'a> {
    pub(super) worlds: &'a CompiledWorlds,
    /// Before the frame that is looked at.
    pub(super) responding: &'a Responding,
    /// The decision rules of the run.
    pub(super) rules: Option<DecisionRules>,
    pub(super) fired: &'a [ReactingCandidate],
}

/// Checks that verdicts are such as the definition of their responders allows; gives those that
/// react, or fail. Which of them wait, the fold has seen to.
pub(super) fn judge_candidates(
    worlds: &CompiledWorlds,
    candidates: &[Candidate],
) -> Result<Vec<ReactingCandidate>, String> {
    let mut fired = Vec::new();
    for (at, told) in (0u32..).zip(candidates) {
        let found = worlds.responder(&told.responder);
        let (_, responder) = found.ok_or("it names an unknown responder")?;
        let (entries, task) = match &responder.work {
            CompiledResponse::Emit(entries) => (count(entries), None),
            CompiledResponse::Ask(_) => (0, Some(TaskKind::Ask)),
            CompiledResponse::Run { .. } => (0, Some(TaskKind::Run)),
        };
        let reacts = told.verdict == FiringVerdict::Fired;
        let right = match reacts {
            true => {
                let listed = told.items.is_some() == responder.for_each.is_some();
                listed && told.entries == entries && told.task == task
            }
            false => told.items.is_none() && told.entries == 0 && told.task.is_none(),
        };
        let reason = told.reason.is_some() == (told.verdict == FiringVerdict::Failed);
        let may_fail = told.verdict == FiringVerdict::Failed && responder.for_each.is_some();
        wrong_if(
            !(right && reason && (may_fail || !told.fails)),
            "a verdict is not one that its responder can have",
        )?;
        if reacts || told.fails {
            fired.push(ReactingCandidate {
                at,
                responder: told.responder.clone(),
                items: told.items,
                fails: told.fails,
            });
        }
    }
    Ok(fired)
}

fn count(entries: &[CompiledEntry]) -> u32 {
    u32::try_from(entries.len()).unwrap_or(u32::MAX)
}

/// Returns `true` if an entry can make nothing: its guard is falsy, or what it makes is there.
fn may_make_nothing(entry: &CompiledEntry) -> bool {
    let keeps = entry.key.is_some() && entry.if_exists == IfExists::Keep;
    entry.when.is_some() || keeps
}

impl Outputs<'_> {
    /// The trigger that a frame is about: the fold has seen to it that it is the current one, or the
    /// one behind it.
    fn trigger(&self, frame: &Frame) -> Option<Trigger> {
        if self.is_of_next(frame) {
            let (next, _) = self.responding.after_current()?;
            return Some(Trigger::clone(&next));
        }
        let (current, _) = self.responding.current()?;
        Some(Trigger::clone(current))
    }

    /// Returns `true` if a frame is about the trigger behind the current one.
    pub(super) fn is_of_next(&self, frame: &Frame) -> bool {
        let current = self.responding.current();
        current.is_some_and(|(current, _)| {
            frame.cause.first() != Some(&ktsu_ledger::Cause::Here(current.seq))
        })
    }

    /// Checks that what is left of the goal may make nothing.
    pub(super) fn goal_may_be_over(&self, has_goal: bool) -> Result<(), String> {
        let Some(next) = self.responding.next_of_goal().filter(|_| has_goal) else {
            return Ok(());
        };
        let left = self.worlds.goal().iter().skip(next as usize);
        let words = "what the goal of the run becomes is missing before it";
        wrong_if(!left.into_iter().all(may_make_nothing), words)
    }

    /// Checks that what is left of the trigger under way may make nothing.
    pub(super) fn rest_may_make_nothing(&self) -> Result<(), String> {
        match self.responding.current() {
            Some((trigger, _)) => self.skips(trigger, None),
            None => Ok(()),
        }
    }

    /// Checks that outputs from the next one on may make nothing, up to a place or the last.
    fn skips(&self, trigger: &Trigger, to: Option<OutputPlace>) -> Result<(), String> {
        let Some(from) = self.responding.firing().and_then(|firing| firing.next()) else {
            return Ok(());
        };
        let words = "an output before it is missing";
        if let TriggerSubject::Reply { task, .. } = &trigger.subject {
            let found = self.worlds.responder(&task.responder);
            let then = found.map_or(&[][..], |(_, responder)| &responder.then);
            let end = to.map_or(u32::MAX, |to| to.entry);
            let skipped = (0u32..).zip(then);
            let mut skipped = skipped.filter(|(at, _)| (from.entry..end).contains(at));
            return wrong_if(!skipped.all(|(_, entry)| may_make_nothing(entry)), words);
        }
        let last = to.map_or(u32::MAX, |to| to.candidate);
        let fired = self.fired.iter();
        for one in fired.filter(|one| (from.candidate..=last).contains(&one.at)) {
            let is_last = to.is_some_and(|to| to.candidate == one.at);
            if one.fails {
                wrong_if(!is_last, words)?;
                continue;
            }
            let Some(CompiledResponse::Emit(entries)) = self
                .worlds
                .responder(&one.responder)
                .map(|(_, found)| &found.work)
            else {
                continue;
            };
            let begin = match one.at == from.candidate {
                true => (from.item, from.entry),
                false => (0, 0),
            };
            let end = match to.filter(|to| to.candidate == one.at) {
                Some(to) => (to.item, to.entry),
                None => (one.items.unwrap_or(1), 0),
            };
            wrong_if(!skippable(entries, begin, end), words)?;
        }
        Ok(())
    }

    /// Checks the data of an object or a relation, independently of who made it.
    pub(super) fn judge_schema(&self, event: &WorldEvent) -> Result<(), String> {
        let head = self.responding.head();
        let (schema, data) = match event {
            WorldEvent::ObjectCreated(event) => {
                let declared = self.worlds.object(&event.kind);
                (declared.ok_or(UNDECLARED)?, event.data.clone())
            }
            WorldEvent::ObjectPatched(event) => {
                let before = head.object(&event.id).ok_or("there is no such object")?;
                let schema = self.worlds.object(&before.kind).flatten();
                (schema, object::merge(&before.data, &event.patch))
            }
            WorldEvent::RelationCreated(event) => {
                let declared = self.worlds.relation(&event.kind);
                let declared = declared.ok_or(UNDECLARED)?;
                let fits = |id: &str, kinds: &[String]| {
                    let found = head.object(id);
                    let known = |kind: &str| kinds.iter().any(|one| one == kind);
                    kinds.is_empty() || found.is_none_or(|found| known(&found.kind))
                };
                let right = fits(&event.source_id, &declared.plan.from)
                    && fits(&event.target_id, &declared.plan.to);
                wrong_if(!right, "its ends are not of the types that it relates")?;
                (declared.schema.as_ref(), event.data.clone())
            }
            _ => return Ok(()),
        };
        let data = match data.is_null() {
            true => serde_json::json!({}),
            false => data.to_value(),
        };
        wrong_if(!data.is_object(), "its data is not an object")?;
        let rules = self.rules.unwrap_or(DecisionRules::NEWEST);
        let broken = schema.is_some_and(|schema| !airlock::check(schema, &data, rules).is_empty());
        wrong_if(broken, "its data does not fit the schema of its type")
    }

    /// Checks that an output is what its entry makes, under the id that follows from its trigger.
    pub(super) fn judge_output(
        &self,
        frame: &Frame,
        event: &WorldEvent,
        derived: &Derivation,
        has_goal: bool,
    ) -> Result<(), String> {
        let (entry, key) = match &derived.responder {
            None => {
                wrong_if(!has_goal, "the run has no goal")?;
                let from = self.responding.next_of_goal().unwrap_or(0);
                let goal = (0u32..).zip(self.worlds.goal());
                let mut skipped = goal.filter(|(at, _)| (from..derived.entry).contains(at));
                let words = "an output before it is missing";
                wrong_if(!skipped.all(|(_, entry)| may_make_nothing(entry)), words)?;
                let entry = self.worlds.goal().get(derived.entry as usize);
                (entry, TriggerKey::goal(derived.entry))
            }
            Some(name) => {
                let trigger = self.trigger(frame).ok_or("it has no trigger")?;
                let responder = self.responder(name)?;
                let entries = entries(responder, &trigger);
                may_react(responder, &trigger)?;
                self.follows(frame, &trigger, name, derived)?;
                let key = trigger.key.output(name, derived.item, derived.entry);
                (entries.get(derived.entry as usize), key)
            }
        };
        let entry = entry.ok_or("its responder has no such entry")?;
        let words = "it is not what its entry makes";
        match (&entry.make, event) {
            (CompiledMake::Object { kind, .. }, WorldEvent::ObjectCreated(made)) => {
                let keyed = made.key.is_some() == entry.key.is_some();
                wrong_if(*kind != made.kind || !keyed, words)?;
                let id = match &made.key {
                    Some(key) => TriggerKey::keyed(kind, key).object_id(kind),
                    None => key.object_id(kind),
                };
                wrong_if(id != made.id, "its id does not follow from its trigger")
            }
            (CompiledMake::Object { kind, .. }, WorldEvent::ObjectPatched(made)) => {
                let head = self.responding.head().object(&made.id);
                let same = head.is_some_and(|object| *object.kind == **kind);
                let patches = entry.key.is_some() && entry.if_exists == IfExists::Patch;
                wrong_if(!patches || !same, words)
            }
            (CompiledMake::Relation { kind, id, .. }, WorldEvent::RelationCreated(made)) => {
                wrong_if(*kind != made.kind, words)?;
                let derived = relation_id(kind, &made.source_id, &made.target_id);
                let right = id.is_some() || derived == made.id;
                wrong_if(!right, "its id does not follow from its ends")
            }
            (CompiledMake::Publish { .. }, WorldEvent::Commanded(_))
            | (CompiledMake::Patch { .. }, WorldEvent::ObjectPatched(_))
            | (CompiledMake::Remove { .. }, WorldEvent::RelationRemoved(_)) => Ok(()),
            _ => Err(words.to_owned()),
        }
    }

    /// Checks that the outputs between the next one and this may make nothing.
    fn follows(
        &self,
        frame: &Frame,
        trigger: &Trigger,
        responder: &str,
        derived: &Derivation,
    ) -> Result<(), String> {
        if self.is_of_next(frame) {
            // Of what is behind the current trigger, a reply alone needs no responder.fired.
            self.rest_may_make_nothing()?;
            let then = self.responder(responder)?.then.iter();
            let mut skipped = then.take(derived.entry as usize);
            let words = "an output before it is missing";
            return wrong_if(!skipped.all(may_make_nothing), words);
        }
        let at = self.fired.iter().find(|one| one.responder == responder);
        let to = OutputPlace {
            candidate: at.map_or(0, |one| one.at),
            item: derived.item.unwrap_or(0),
            entry: derived.entry,
        };
        self.skips(trigger, Some(to))
    }

    /// Checks that a rejected output is one of an entry that would make such an event. Gives the
    /// address of the task whose reply it was made of.
    pub(super) fn judge_rejected(
        &self,
        frame: &Frame,
        rejected: &OutputRejected,
    ) -> Result<Option<String>, String> {
        let derived = &rejected.derived;
        let mut address = None;
        let entry = match &derived.responder {
            None => self.worlds.goal().get(derived.entry as usize),
            Some(name) => {
                let trigger = self.trigger(frame).ok_or("it has no trigger")?;
                may_react(self.responder(name)?, &trigger)?;
                self.follows(frame, &trigger, name, derived)?;
                if let TriggerSubject::Reply { task, .. } = &trigger.subject {
                    address = Some(task.address.to_string());
                }
                let responder = self.responder(name)?;
                entries(responder, &trigger).get(derived.entry as usize)
            }
        };
        let entry = entry.ok_or("its responder has no such entry")?;
        let kind = rejected.kind.as_str();
        let right = match &entry.make {
            CompiledMake::Object { .. } => {
                let patches = entry.if_exists == IfExists::Patch && kind == "object.patched";
                kind == "object.created" || patches
            }
            CompiledMake::Patch { .. } => kind == "object.patched",
            CompiledMake::Relation { .. } => kind == "relation.created",
            // What cannot be told is no output that is rejected: its responder fails.
            CompiledMake::Publish { .. } => false,
            CompiledMake::Remove { .. } => kind == "relation.removed",
        };
        wrong_if(!right, "it is not what its entry makes")?;
        Ok(address)
    }

    /// Checks that nothing more is made of a reply: what is left of it may make nothing, or its
    /// model asked that nothing be made of it, and nothing was.
    pub(super) fn judge_completed(
        &self,
        frame: &Frame,
        done: &ResponderCompleted,
    ) -> Result<(), String> {
        let trigger = self.trigger(frame).ok_or("it has no trigger")?;
        let responder = self.responder(&done.responder)?;
        let words = match reply_end(responder, &trigger) {
            ReplyEnd::Asked(words) => words,
            ReplyEnd::Failed => return Err(FAILED_REPLY.to_owned()),
            ReplyEnd::Given => {
                let guarded = |entry: u32| {
                    let entry = responder.then.get(entry as usize);
                    entry.is_some_and(|entry| entry.when.is_some())
                };
                let right = done.skipped.iter().all(|one| guarded(one.entry));
                wrong_if(!right, "it skips an entry that has no guard")?;
                let behind_all = Derivation {
                    entry: count(&responder.then),
                    item: None,
                    responder: Some(done.responder.clone()),
                };
                return self.follows(frame, &trigger, &done.responder, &behind_all);
            }
        };
        let made = match self.is_of_next(frame) {
            true => {
                self.rest_may_make_nothing()?;
                false
            }
            false => {
                let next = self.responding.firing().and_then(Firing::next);
                next.is_none_or(|next| next.entry > 0)
            }
        };
        let told = done.skipped.iter();
        let told = told.map(|one| (one.entry, one.reason.as_str()));
        let all = (0..count(&responder.then)).map(|entry| (entry, words.as_str()));
        wrong_if(made || !told.eq(all), ASKED_FOR_NOTHING)
    }

    /// Checks that a responder may fail here: outputs before the one that fails are made, or may
    /// make nothing.
    pub(super) fn may_fail(&self, frame: &Frame, failed: &ResponderFailed) -> Result<(), String> {
        if failed.address.is_some() || failed.responder == GOAL_ACTOR {
            return Ok(());
        }
        let words = "its responder has no such entry";
        let trigger = self.trigger(frame).ok_or("it has no trigger")?;
        let responder = self.responder(&failed.responder)?;
        let found = self
            .fired
            .iter()
            .find(|one| one.responder == failed.responder);
        if let Some(failing) = found.filter(|one| one.fails) {
            wrong_if(failed.entry.is_some() || failed.item.is_some(), words)?;
            let to = OutputPlace {
                candidate: failing.at,
                item: 0,
                entry: 0,
            };
            return self.skips(&trigger, Some(to));
        }
        let entry = failed.entry.ok_or(words)?;
        let known = (entry as usize) < entries(responder, &trigger).len();
        let fits = found.is_some_and(|one| {
            let item = failed.item.unwrap_or(0);
            one.items.is_some() == failed.item.is_some() && item < one.items.unwrap_or(1)
        });
        wrong_if(!known || !fits, words)?;
        let derived = Derivation {
            entry,
            item: failed.item,
            responder: Some(failed.responder.clone()),
        };
        self.follows(frame, &trigger, &failed.responder, &derived)
    }

    fn responder(&self, name: &str) -> Result<&CompiledResponder, String> {
        let found = self.worlds.responder(name);
        let (_, responder) = found.ok_or("it names an unknown responder")?;
        Ok(responder)
    }
}

/// The meaning of a reply for its responder, without looking at the schema of its output.
enum ReplyEnd {
    /// Something may be made of it.
    Given,
    /// Its model asked that nothing be made of it, in these words.
    Asked(String),
    /// Its responder fails.
    Failed,
}

fn reply_end(responder: &CompiledResponder, trigger: &Trigger) -> ReplyEnd {
    let TriggerSubject::Reply { outcome, .. } = &trigger.subject else {
        return ReplyEnd::Given;
    };
    let outcome = outcome.to_value();
    let error = outcome.get("error").filter(|error| !error.is_null());
    let (None, Some(output)) = (error, outcome.get("output")) else {
        return ReplyEnd::Failed;
    };
    let CompiledResponse::Ask(CompiledAsk {
        output: Some(_), ..
    }) = &responder.work
    else {
        return ReplyEnd::Given;
    };
    match reserved::evaluate(output, None).end {
        None => ReplyEnd::Given,
        Some(ReservedEnd::Skip(words)) => ReplyEnd::Asked(words),
        Some(ReservedEnd::Fail { .. }) => ReplyEnd::Failed,
    }
}

/// Checks that a responder may make something of a trigger.
fn may_react(responder: &CompiledResponder, trigger: &Trigger) -> Result<(), String> {
    match reply_end(responder, trigger) {
        ReplyEnd::Given => Ok(()),
        ReplyEnd::Asked(_) => Err(ASKED_FOR_NOTHING.to_owned()),
        ReplyEnd::Failed => Err(FAILED_REPLY.to_owned()),
    }
}

/// The entries by which a responder makes something of a trigger.
fn entries<'r>(responder: &'r CompiledResponder, trigger: &Trigger) -> &'r [CompiledEntry] {
    match (&trigger.subject, &responder.work) {
        (TriggerSubject::Reply { .. }, _) => &responder.then,
        (_, CompiledResponse::Emit(entries)) => entries,
        (_, CompiledResponse::Ask(_) | CompiledResponse::Run { .. }) => &[],
    }
}

/// Returns `true` if all outputs of a candidate between two places may make nothing. A place is an
/// item and an entry. There may be more items than can be counted.
fn skippable(entries: &[CompiledEntry], from: (u32, u32), to: (u32, u32)) -> bool {
    let nothing = |from: u32, to: usize| {
        let some = entries.iter().take(to).skip(from as usize);
        some.into_iter().all(may_make_nothing)
    };
    if from >= to {
        return true;
    }
    if from.0 == to.0 {
        return nothing(from.1, to.1 as usize);
    }
    let between = to.0 - from.0 == 1 || nothing(0, entries.len());
    between && nothing(from.1, entries.len()) && nothing(0, to.1 as usize)
}

pub(super) fn wrong_if(condition: bool, words: &str) -> Result<(), String> {
    match condition {
        true => Err(words.to_owned()),
        false => Ok(()),
    }
}
