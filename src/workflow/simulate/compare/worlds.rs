//! The differences that another definition would make to the world of a run: its objects, its
//! relations, and which responders react.

use std::collections::BTreeMap;

use ktsu_ledger::event::{FiringVerdict, WorldEvent};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::normalize;
use ktsu_projections::run::RunState;
use ktsu_projections::world::comparison::{PatchedEntry, object_content, relation_content};
use ktsu_projections::world::{World, WorldComparison};
use serde_json::{Value, json};

use super::super::DivergenceKind;
use super::super::DivergenceKind::{Firing, Object, Relation};
use super::DivergenceCollector;
use super::made::{self, escaped, of_world, place};

/// The verdicts of a run: by trigger, and by responder, with the frame that says so.
type Verdicts = BTreeMap<String, BTreeMap<String, (Verdict, u64)>>;

/// The verdict of a responder on a trigger, and the time for which it waits if it is postponed.
type Verdict = (FiringVerdict, Option<u64>);

impl DivergenceCollector {
    /// Adds the differences in the worlds of a run, in the order of history: what both end with,
    /// and every frame on the way there. A run that loads none has an empty one.
    pub(super) fn worlds(
        &mut self,
        (recorded, before): (&[Frame], &RunState),
        as_recorded: &[Frame],
        (decided, after): (&[Frame], &RunState),
    ) {
        if before.responding().is_none() && after.responding().is_none() {
            return;
        }
        let others = std::mem::take(&mut self.divergences);
        self.verdicts(&verdicts(recorded), &verdicts(decided));
        self.ends(before, after);
        let mut of_world = std::mem::replace(&mut self.divergences, others);
        made::compare(recorded, as_recorded, decided, &mut of_world);
        of_world.sort_by_key(|one| one.frame.unwrap_or(u64::MAX));
        self.divergences.extend(of_world);
    }

    /// Adds the differences between the two worlds in the end.
    fn ends(&mut self, before: &RunState, after: &RunState) {
        let [was, is] = [before, after].map(|state| match state.responding() {
            Some(responding) => responding.head().clone(),
            None => World::default(),
        });
        let found = WorldComparison::between(&was, &is);
        for (ids, world, in_history) in [
            (&found.removed_objects, &was, true),
            (&found.added_objects, &is, false),
        ] {
            for object in ids.iter().filter_map(|id| world.object(id)) {
                let field = place("objects", &object.id);
                let value = (object_content(object), object.changed);
                self.one_sided_entry(Object, &field, value, in_history);
            }
        }
        for (ids, world, in_history) in [
            (&found.removed_relations, &was, true),
            (&found.added_relations, &is, false),
        ] {
            for relation in ids.iter().filter_map(|id| world.relation(id)) {
                let field = place("relations", &relation.id);
                let value = (relation_content(relation), relation.changed);
                self.one_sided_entry(Relation, &field, value, in_history);
            }
        }
        for one in &found.patched_objects {
            let frame = was.object(&one.id).map(|object| object.changed);
            self.patched(Object, &place("objects", &one.id), one, frame);
        }
        for one in &found.patched_relations {
            let frame = was.relation(&one.id).map(|relation| relation.changed);
            self.patched(Relation, &place("relations", &one.id), one, frame);
        }
    }

    fn one_sided_entry(
        &mut self,
        what: DivergenceKind,
        field: &str,
        (value, frame): (Value, u64),
        in_history: bool,
    ) {
        let sides = match in_history {
            true => (Some(value), None),
            false => (None, Some(value)),
        };
        let frame = in_history.then_some(frame);
        self.divergences.push(of_world(what, field, frame, sides));
    }

    fn patched(
        &mut self,
        what: DivergenceKind,
        base: &str,
        patched: &PatchedEntry,
        frame: Option<u64>,
    ) {
        for change in &patched.changes {
            let field = format!("{base}{}", change.path);
            let sides = (change.before.clone(), change.after.clone());
            self.divergences.push(of_world(what, &field, frame, sides));
        }
    }

    /// Adds the differences in which responders react to what both sides have. What only one side
    /// has is named as an object or a relation.
    fn verdicts(&mut self, old: &Verdicts, new: &Verdicts) {
        for (trigger, was) in old {
            let Some(is) = new.get(trigger) else { continue };
            let mut names: Vec<&String> = was.keys().chain(is.keys()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                let (before, after) = (was.get(name), is.get(name));
                let fired = |one: Option<&(Verdict, u64)>| {
                    one.is_some_and(|((verdict, _), _)| *verdict == FiringVerdict::Fired)
                };
                // A responder that one side does not have, and that does not react, changes nothing.
                let matters = match (before, after) {
                    (Some((before, _)), Some((after, _))) => before != after,
                    _ => fired(before) || fired(after),
                };
                if matters {
                    let waits = before.zip(after);
                    let waits = waits.filter(|((was, _), (is, _))| was.0 == is.0).is_some();
                    let side = |one: Option<&(Verdict, u64)>| {
                        let ((verdict, after_ms), _) = one?;
                        Some(if waits {
                            json!(after_ms)
                        } else {
                            json!(verdict)
                        })
                    };
                    let below = if waits { "/after_ms" } else { "" };
                    let field = place("responders", name);
                    let field = format!("{field}/{}{below}", escaped(trigger));
                    let sides = (side(before), side(after));
                    let frame = before.map(|(_, seq)| *seq);
                    self.divergences
                        .push(of_world(Firing, &field, frame, sides));
                }
            }
        }
    }
}

/// The verdicts of responders on each trigger.
fn verdicts(frames: &[Frame]) -> Verdicts {
    let mut found = Verdicts::new();
    for kept in normalize::frames(frames, "") {
        let (Event::World(WorldEvent::Fired(fired)), Some(trigger)) =
            (&kept.frame.event, kept.key.about)
        else {
            continue;
        };
        let of_trigger = found.entry(trigger).or_default();
        for one in &fired.candidates {
            let verdict = ((one.verdict, one.after_ms), kept.frame.seq);
            of_trigger.insert(one.responder.clone(), verdict);
        }
    }
    found
}
