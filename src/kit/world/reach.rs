//! The warnings about what is hardly meant, though it would run: responders that nothing reaches,
//! rules that only a budget ends, guards that miss what comes later.

use std::collections::BTreeSet;
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::event::plan::Visibility;
use ktsu_ledger::event::plan::world::{EntryPlan, MakePlan, ResponderPlan};
use ktsu_workflow::expression::{Expression, Vocabulary};
use ktsu_workflow::graph;
use ktsu_workflow::world::{GOAL_OBJECT, STEP_OBJECT, TriggerKind, names_wanted_absent};
use serde_json::Value;

use super::draft::{ResponderDraft, Worlds};
use crate::loader::Loader;

/// A responder, and where it stands.
struct PlacedResponder<'l> {
    path: &'l str,
    plan: &'l ResponderPlan,
    draft: &'l ResponderDraft,
}

/// Looks through the worlds of a kit.
pub(super) fn check(loader: &Loader, worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let mut responders = Vec::new();
    for (path, draft) in worlds {
        let placed = draft.plan.all_responders().zip(&draft.responders);
        responders.extend(placed.map(|(plan, draft)| PlacedResponder { path, plan, draft }));
    }
    let steps = loader
        .drafts
        .values()
        .flatten()
        .any(|draft| draft.plan.visibility == Visibility::Root && !draft.steps.is_empty());
    let mut made: BTreeSet<&str> = BTreeSet::new();
    made.insert(GOAL_OBJECT);
    for (_, draft) in worlds {
        let goal = draft.plan.goal.iter().flatten();
        made.extend(goal.filter_map(created));
    }
    for placed in &responders {
        made.extend(entries(placed.plan).filter_map(created));
    }
    for placed in &responders {
        found.extend(unreachable(placed, steps));
        found.extend(made_twice(placed));
        found.extend(missed(placed, &responders, &made));
    }
    found.extend(endless(&responders));
}

fn warning(placed: &PlacedResponder<'_>, code: FaultCode, at: SourceSpan, words: String) -> Fault {
    let fault = Fault::new(code, at, words).warning();
    fault.in_file(Path::new(placed.path))
}

/// Everything an emission or a reaction makes.
fn entries(plan: &ResponderPlan) -> impl Iterator<Item = &EntryPlan> {
    plan.work.entries().iter().chain(&plan.then)
}

/// The type of the object that an entry makes.
fn created(entry: &EntryPlan) -> Option<&str> {
    match &entry.make {
        MakePlan::Object { kind, .. } => Some(kind),
        MakePlan::Patch { .. } | MakePlan::Relation { .. } | MakePlan::Remove { .. } => None,
    }
}

/// A responder none of whose events can happen. Anything but what steps do can be posted, and steps
/// complete only where there are some.
fn unreachable(placed: &PlacedResponder<'_>, steps: bool) -> Option<Fault> {
    let never = |event: &String| {
        let of_steps = event == "step.completed"
            || placed
                .plan
                .types
                .first()
                .is_some_and(|kind| kind == STEP_OBJECT)
                && placed.plan.types.len() == 1;
        of_steps && !steps
    };
    let events = &placed.plan.on;
    if events.is_empty() || !events.iter().all(never) {
        return None;
    }
    let words = "no step of this kit ever completes in a run of its own".to_owned();
    let hint = "step.completed is about the steps of a root workflow";
    let place = placed.draft.on;
    Some(warning(placed, FaultCode::UnreachableResponder, place, words).hint(hint))
}

/// A guard that says "there is none yet" sees the world as of its trigger: of two triggers in the
/// queue, neither sees what the other makes.
fn made_twice(placed: &PlacedResponder<'_>) -> Option<Fault> {
    let absent = absent_names(placed.plan);
    let mut lookups = placed.plan.lookups.iter();
    let guarded = lookups.find_map(|lookup| {
        let kind = &lookup.find.query()?.kind;
        let mut made = entries(placed.plan);
        let unkeyed = made.any(|entry| entry.key.is_none() && created(entry) == Some(kind));
        (absent.contains(&lookup.name) && unkeyed).then_some((&lookup.name, kind))
    });
    let (name, kind) = guarded?;
    let words =
        format!("two triggers in a row may both find no {kind} in {name:?}, and make one each");
    let fault = warning(
        placed,
        FaultCode::MadeTwice,
        placed.draft.guard.unwrap_or(placed.draft.place),
        words,
    );
    Some(fault.hint("give the entry a key: it is judged when the object is made"))
}

/// The names of which the guard wants nothing to be there.
fn absent_names(plan: &ResponderPlan) -> BTreeSet<String> {
    let when = plan.when.as_deref();
    let parsed = when.map(|when| Expression::parse_with(when, Vocabulary::Responder));
    match parsed {
        Some(Ok(expression)) => names_wanted_absent(&expression),
        Some(Err(_)) | None => BTreeSet::new(),
    }
}

/// A guard that reads objects which only come from outside, while nothing reacts when one comes
/// after the trigger.
fn missed(
    placed: &PlacedResponder<'_>,
    all: &[PlacedResponder<'_>],
    made: &BTreeSet<&str>,
) -> Option<Fault> {
    let absent = absent_names(placed.plan);
    let lookup = placed.plan.lookups.iter().find(|lookup| {
        let Some(query) = lookup.find.query() else {
            return false;
        };
        let from_outside = !made.contains(query.kind.as_str()) && query.kind != STEP_OBJECT;
        let awaited = all
            .iter()
            .any(|one| reacts_to_object(one.plan, &query.kind));
        from_outside && !awaited && !absent.contains(&lookup.name)
    })?;
    let kind = &lookup.find.query()?.kind;
    let words = format!(
        "{:?} reads {kind}, and nothing reacts when one comes later",
        lookup.name
    );
    let place = placed.draft.lookups.get(&lookup.name).copied();
    let place = place.unwrap_or(placed.draft.place);
    let fault = warning(placed, FaultCode::MissedLater, place, words);
    Some(fault.hint(format!("add a responder on object.created of {kind}")))
}

fn reacts_to_object(plan: &ResponderPlan, kind: &str) -> bool {
    let of_type = plan.types.is_empty() || plan.types.iter().any(|one| one == kind);
    of_type && plan.on.iter().any(|on| on == "object.created" || on == "*")
}

/// Responders that set each other off, none of which has a guard: only a budget ends that. One warning
/// for all that reach one another.
fn endless(all: &[PlacedResponder<'_>]) -> Vec<Fault> {
    let free = |one: &PlacedResponder<'_>| one.draft.guard.is_none() && one.plan.for_each.is_none();
    let mut sets: Vec<Vec<usize>> = vec![Vec::new(); all.len()];
    for (from, placed) in all.iter().enumerate().filter(|(_, one)| free(one)) {
        let certain = || entries(placed.plan).filter(|entry| entry.when.is_none());
        for (to, other) in all.iter().enumerate().filter(|(_, one)| free(one)) {
            if certain().any(|entry| sets_off(entry, other.plan)) {
                sets[from].push(to);
            }
        }
    }
    let circles = graph::circles(&sets).into_iter();
    circles
        .filter_map(|circle| endless_circle(all, &sets, &circle))
        .collect()
}

/// The warning about responders that reach one another.
fn endless_circle(
    all: &[PlacedResponder<'_>],
    sets: &[Vec<usize>],
    circle: &[usize],
) -> Option<Fault> {
    let first = all.get(*circle.first()?)?;
    let name = |at: &usize| all.get(*at).map_or("", |one| one.plan.name.as_str());
    let words = match circle {
        [one] => format!("{:?} sets itself off, and only a budget ends it", name(one)),
        many => format!(
            "responders set each other off, and only a budget ends it: {}",
            match around(sets, many) {
                Some(path) => path.iter().map(name).collect::<Vec<_>>().join(" -> "),
                None => many.iter().map(name).collect::<Vec<_>>().join(", "),
            }
        ),
    };
    let code = FaultCode::EndlessResponders;
    let fault = warning(first, code, first.draft.place, words);
    Some(fault.hint("give one of them a `when`, or its entry a key"))
}

/// The way around, back to the first, where there is only one.
fn around(sets: &[Vec<usize>], circle: &[usize]) -> Option<Vec<usize>> {
    let mut path = vec![*circle.first()?];
    for _ in circle {
        let at = *path.last()?;
        let mut next = sets.get(at)?.iter().filter(|to| circle.contains(to));
        let (to, other) = (next.next()?, next.next());
        if other.is_some() {
            return None;
        }
        path.push(*to);
    }
    (path.first() == path.last()).then_some(path)
}

/// Returns `true` if what an entry makes certainly is a trigger of a responder.
fn sets_off(entry: &EntryPlan, plan: &ResponderPlan) -> bool {
    let reacts = |event: &str, kind: Option<&str>| {
        let of_type = match kind {
            Some(kind) => plan.types.is_empty() || plan.types.iter().any(|one| one == kind),
            None => plan.types.is_empty(),
        };
        of_type
            && plan
                .on
                .iter()
                .any(|on| on == event || TriggerKind::of(on) == Some(TriggerKind::Every))
    };
    match &entry.make {
        // One that has a key is made once.
        MakePlan::Object { kind, .. } => {
            entry.key.is_none() && reacts("object.created", Some(kind))
        }
        MakePlan::Relation { kind, .. } => reacts("relation.created", Some(kind)),
        MakePlan::Remove { .. } => reacts("relation.removed", None),
        MakePlan::Patch { data, .. } => {
            let value = data.to_value();
            let patched = value.as_object().map(|members| members.keys());
            let mut patched = patched.into_iter().flatten();
            let changes = plan.changed.is_empty()
                || patched.any(|name| plan.changed.iter().any(|one| one == name));
            changes && !matches!(value, Value::Null) && reacts("object.patched", None)
        }
    }
}
