//! Checks of worlds against the rest of their kit: other worlds, workflows, variables.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::SourceSpan;
use ktsu_ledger::event::plan::Visibility;
use ktsu_ledger::event::plan::world::{ObjectType, RelationType};
use ktsu_workflow::world::{GOAL_OBJECT, STEP_OBJECT};

use super::draft::{TypeKind, Worlds};
use super::{params, reach};
use crate::links;
use crate::loader::Loader;

/// Checks every link of the worlds of a kit.
pub(crate) fn check(loader: &mut Loader) {
    let worlds: Worlds<'_> = loader
        .worlds
        .iter()
        .filter_map(|(path, draft)| Some((path.as_str(), draft.as_ref()?)))
        .collect();
    let mut found = Vec::new();
    names(&worlds, &mut found);
    declared_alike(&worlds, &mut found);
    params::check(&worlds, &mut found);
    // Of a world that cannot be read it is not known what it declares.
    if worlds.len() == loader.worlds.len() {
        types(&worlds, &mut found);
        reach::check(loader, &worlds, &mut found);
    }
    runs(loader, &worlds, &mut found);
    variables(loader, &worlds, &mut found);
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

/// A responder is known by its name in every run, and all worlds of a kit are loaded together.
fn names(worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let mut seen: BTreeMap<&str, (&str, SourceSpan)> = BTreeMap::new();
    for (path, draft) in worlds {
        let named = draft.plan.all_responders().zip(&draft.responders);
        for (plan, responder) in named {
            let Some((file, first)) = seen.get(plan.name.as_str()) else {
                seen.insert(&plan.name, (path, responder.place));
                continue;
            };
            let words = format!("the name {:?} appears twice", plan.name);
            let fault = Fault::new(FaultCode::DuplicateName, responder.place, words);
            let hint = match file == path {
                true => format!("the first one is on line {}", first.line),
                false => format!("the first one is in {file} on line {}", first.line),
            };
            found.push(fault.hint(hint).in_file(Path::new(path)));
        }
    }
}

/// A type that several worlds declare is the same in all of them.
fn declared_alike(worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let mut objects: BTreeMap<&String, (&str, &ObjectType)> = BTreeMap::new();
    let mut relations: BTreeMap<&String, (&str, &RelationType)> = BTreeMap::new();
    for (path, draft) in worlds {
        let mut differs = |kind: TypeKind, name: &String, other: &str| {
            let place = draft.declared.get(&(kind, name.clone())).copied();
            let words = format!("{other} declares the type {name:?} otherwise");
            let fault = Fault::new(FaultCode::DuplicateName, place.unwrap_or_default(), words);
            let hint = "declare it once: the worlds of a kit know the types of each other";
            found.push(fault.hint(hint).in_file(Path::new(path)));
        };
        for (name, object) in &draft.plan.objects {
            match objects.get(name) {
                Some((other, known)) if *known != object => differs(TypeKind::Object, name, other),
                Some(_) => {}
                None => drop(objects.insert(name, (*path, object))),
            }
        }
        for (name, relation) in &draft.plan.relations {
            match relations.get(name) {
                Some((other, known)) if *known != relation => {
                    differs(TypeKind::Relation, name, other);
                }
                Some(_) => {}
                None => drop(relations.insert(name, (*path, relation))),
            }
        }
    }
}

/// Every type that is named is declared by one of the worlds.
fn types(worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let declared = worlds.iter().flat_map(|(_, draft)| draft.declared.keys());
    let declared: BTreeSet<(TypeKind, &str)> = declared
        .map(|(kind, name)| (*kind, name.as_str()))
        .collect();
    let kinds = [TypeKind::Object, TypeKind::Relation];
    let no_goal = worlds.iter().all(|(_, draft)| draft.plan.goal.is_none());
    for (path, draft) in worlds {
        for mention in &draft.types {
            let (kind, name) = (mention.kind, mention.name.as_str());
            let is_built_in = name == STEP_OBJECT || (name == GOAL_OBJECT && no_goal);
            let mut taken = kinds.into_iter().filter(|other| kind.takes(*other));
            if (is_built_in && kind != TypeKind::Relation)
                || taken.any(|other| declared.contains(&(other, name)))
            {
                continue;
            }
            let of_kind = declared.iter().filter(|(other, _)| kind.takes(*other));
            let known: Vec<&str> = of_kind.map(|(_, name)| *name).collect();
            let words = format!("there is no type of {} {:?}", kind.words(), mention.name);
            let fault = Fault::new(FaultCode::UnknownType, mention.place, words);
            let is_other = kinds.iter().any(|other| declared.contains(&(*other, name)));
            let fault = match (is_other, kind) {
                (true, TypeKind::Object) => fault.hint("it is a type of relations"),
                (true, TypeKind::Relation) => fault.hint("it is a type of objects"),
                _ => {
                    let otherwise = match known.is_empty() {
                        true => "declare it under objects or relations".to_owned(),
                        false => format!("declared are {}", known.join(", ")),
                    };
                    fault.suggest_or(&mention.name, known.iter().copied(), otherwise)
                }
            };
            found.push(fault.in_file(Path::new(path)));
        }
    }
}

/// Checks that what responders run fits the workflow that they run.
fn runs(loader: &Loader, worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    for (path, draft) in worlds {
        let responders = draft.plan.all_responders().zip(&draft.responders);
        for (position, (plan, responder)) in responders.enumerate() {
            let child = loader.runs.get(&((*path).to_owned(), position));
            let child = child.and_then(|child| loader.drafts.get(child)?.as_ref());
            if let (Some(run), Some(said), Some(child)) = (plan.work.child(), &responder.run, child)
            {
                let mut faults = Vec::new();
                links::child(run, said, child, "the responder", &mut faults);
                let faults = faults.into_iter();
                found.extend(faults.map(|fault| fault.in_file(Path::new(path))));
            }
        }
    }
}

/// A variable that is declared more than once means the same everywhere: a run has one value for it.
fn variables(loader: &Loader, worlds: &Worlds<'_>, found: &mut Vec<Fault>) {
    let roots = loader.drafts.iter().filter_map(|(path, draft)| {
        let draft = draft.as_ref()?;
        let is_root = draft.plan.visibility == Visibility::Root;
        is_root.then_some((path.as_str(), draft))
    });
    let mut known = BTreeMap::new();
    for (path, draft) in roots {
        for variable in &draft.plan.env {
            known.entry(&variable.name).or_insert((path, variable));
        }
    }
    for (path, draft) in worlds {
        for (variable, place) in &draft.env {
            let (other, first) = known.entry(&variable.name).or_insert((path, variable));
            if *first != variable {
                let words = format!(
                    "{other} declares the variable {:?} otherwise",
                    variable.name
                );
                let fault = Fault::new(FaultCode::DuplicateVariable, *place, words);
                found.push(fault.in_file(Path::new(path)));
            }
        }
    }
}
