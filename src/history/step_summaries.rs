//! What the authors of steps wrote about them for people who look at a run.

use std::collections::BTreeMap;

use ktsu_projections::run::{RunState, StepKey};
use ktsu_projections::step_name::StepName;
use ktsu_workflow::next::step_summaries;

use super::skeleton::{RunSkeleton, StepSpan};

/// The most steps and items of a page that have one.
const MAX_SUMMARIES: usize = 2_000;

/// A few words about steps and items.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepSummaries {
    /// The words, by the path of the step or item.
    pub words: BTreeMap<String, String>,
    /// True if the others are left out, since they would take too long to render.
    pub is_cut: bool,
}

/// The summaries of the steps and items of a skeleton, as the values of the run are now.
pub fn summaries_of(state: &RunState, run: &RunSkeleton) -> StepSummaries {
    let mut paths = Vec::new();
    collect(&run.steps, &mut paths);
    let placed = paths.into_iter();
    let placed = placed.filter_map(|path| Some((path, place_of(state, path)?)));
    let (paths, places): (Vec<&str>, Vec<_>) = placed.unzip();
    let summaries = step_summaries(state, &places);
    let is_cut = summaries.len() < paths.len();
    let found = paths.into_iter().zip(summaries);
    StepSummaries {
        words: found
            .filter_map(|(path, summary)| Some((path.to_owned(), summary?)))
            .collect(),
        is_cut,
    }
}

/// The paths of steps that have begun. Children are as deep as their workflows are nested, which the kit
/// bounds.
fn collect<'s>(steps: &'s [StepSpan], paths: &mut Vec<&'s str>) {
    for step in steps {
        if paths.len() >= MAX_SUMMARIES {
            return;
        }
        if step.from_ms.is_some() {
            paths.push(&step.path);
        }
        collect(&step.items, paths);
        for child in &step.children {
            collect(&child.steps, paths);
        }
    }
}

fn place_of(state: &RunState, path: &str) -> Option<(StepKey, Option<u32>)> {
    let name = StepName::parse(path);
    let (scope, id) = name.path.rsplit_once('/').unwrap_or(("", &name.path));
    let scope = state.scope_at(scope)?;
    let step = state.scope(scope)?.shape.position(id)?;
    Some((StepKey::of(scope, step), name.item))
}
