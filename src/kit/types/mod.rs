//! Type checks of a kit before any run: fields that cannot exist, values that can never fit.
//!
//! ```text
//! children before parents: params --steps in order, each expression--> outputs --> output.map
//! ```
//!
//! The types themselves are in `workflow::types`; this module derives them from files and reports
//! findings with their location. A file with other faults is checked as far as it could be read.

mod agent;
mod expressions;
mod known;
mod workflow;
mod world;
mod world_types;

use std::collections::BTreeMap;
use std::path::Path;

use super::checked::CheckedAlone;
use super::loader::Loader;
use super::workflow::WorkflowDraft;
use known::KitTypes;
use ktsu_config::fault::Fault;
use ktsu_config::yaml::{self, YamlNode};
use ktsu_workflow::graph::order_or_as_given;
use world_types::WorldTypes;

/// Checks a workflow that calls neither agents nor workflows, so that its tree is no longer needed;
/// nothing if it calls some.
pub(super) fn check_alone(
    path: &str,
    text: &str,
    draft: &WorkflowDraft,
    node: &YamlNode,
) -> Option<CheckedAlone> {
    let calls = |step: &super::step::StepDraft| step.agent.is_some() || step.child.is_some();
    if draft.steps.iter().any(calls) {
        return None;
    }
    let (loader, nodes) = (Loader::default(), BTreeMap::new());
    let mut kit = KitTypes::new(&loader, &nodes);
    kit.add_params(path, draft);
    let (output, faults) = workflow::check(&kit, path, text, draft, node);
    Some(CheckedAlone {
        output,
        faults,
        effort: kit.effort.spent(),
    })
}

/// Holds every expression of the kit against the types of what it names.
pub(super) fn check(loader: &mut Loader) {
    let mut nodes = std::mem::take(&mut loader.nodes);
    let alone = std::mem::take(&mut loader.checked);
    let paths: Vec<String> = alone.keys().cloned().collect();
    let found = find(loader, &nodes, alone).unwrap_or_else(|| {
        let sources = &loader.faults.sources;
        let again = paths.into_iter().filter_map(|path| {
            let node = yaml::parse(sources.get(Path::new(&path))?).ok()?;
            Some((path, node))
        });
        nodes.extend(again);
        find(loader, &nodes, BTreeMap::new()).unwrap_or_default()
    });
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

/// The faults, given what is known of some workflows. Nothing where that and the rest cost more
/// than a kit may: what is found then depends on the order of the checks, so that of files counts,
/// and all of them are needed.
fn find(
    loader: &Loader,
    nodes: &BTreeMap<String, YamlNode>,
    alone: BTreeMap<String, CheckedAlone>,
) -> Option<Vec<Fault>> {
    let mut kit = KitTypes::new(loader, nodes);
    let known = !alone.is_empty();
    for (path, checked) in alone {
        kit.effort.charge(checked.effort);
        kit.outputs.insert(path, checked.output);
        kit.faults.extend(checked.faults);
    }
    for path in in_order(loader) {
        kit.workflow(&path);
    }
    kit.agents();
    kit.worlds();
    (!(known && kit.effort.is_spent())).then_some(kit.faults)
}

impl KitTypes<'_> {
    fn workflow(&mut self, path: &str) {
        let draft = self.loader.drafts.get(path).and_then(Option::as_ref);
        let text = self.loader.faults.sources.get(Path::new(path));
        let node = self.nodes.get(path);
        if let (Some(draft), Some(text), Some(node)) = (draft, text, node) {
            let (output, faults) = workflow::check(self, path, text, draft, node);
            self.outputs.insert(path.to_owned(), output);
            self.faults.extend(faults);
        }
    }

    fn worlds(&mut self) {
        let types = WorldTypes::of(self.loader);
        let mut found = Vec::new();
        for (path, draft) in &self.loader.worlds {
            let text = self.loader.faults.sources.get(Path::new(path));
            let node = self.nodes.get(path);
            if let (Some(draft), Some(text), Some(node)) = (draft, text, node) {
                found.extend(world::check(self, &types, (path, text), draft, node));
            }
        }
        self.faults.extend(found);
    }

    fn agents(&mut self) {
        for (path, draft) in &self.loader.agents {
            let text = self.loader.faults.sources.get(Path::new(path));
            let params = self.agent_params.get(path.as_str());
            let node = self.nodes.get(path);
            if let (Some(draft), Some(text), Some(params), Some(node)) = (draft, text, params, node)
            {
                let schema = draft.params.as_ref().map(|params| &params.schema);
                let judged = schema.is_none_or(|one| one.is_closed() || one.is_left_open());
                let faults = agent::check(path, text, node, params, judged, &self.effort);
                self.faults.extend(faults);
            }
        }
    }
}

/// The workflows, each after those that it calls. Where they call one another there is no order, and
/// what is not known yet may be anything.
fn in_order(loader: &Loader) -> Vec<String> {
    let (paths, needs) = loader.call_graph();
    let order = order_or_as_given(&needs).into_iter();
    let found = order.filter_map(|at| paths.get(at));
    found.map(|path| (*path).clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::kit;

    const OFF: &str = "kind: workflow
name: off
version: 1.0.0
params: {schema: {type: object, additionalProperties: false, properties: {a: {type: string}}}}
pipeline:
  - {id: s, transform: {inputs: ['{{ params.b }}']}}
output: {map: {x: '{{ s.y }}'}}
";

    /// A kit whose only workflow was read, and its faults.
    fn faults(change: impl FnOnce(&mut Loader)) -> Vec<String> {
        let dir = kit(&[("workflows/off.workflow.yaml", OFF)]);
        let mut loader = Loader {
            root: dir.path().canonicalize().unwrap(),
            ..Loader::default()
        };
        loader.read_workflows(&["workflows/off.workflow.yaml".to_owned()]);
        change(&mut loader);
        check(&mut loader);
        let found = loader.faults.faults.iter();
        let found = found.map(|fault| format!("{}:{} {}", fault.line, fault.column, fault.message));
        found.collect()
    }

    #[test]
    fn a_workflow_that_calls_nothing_is_checked_as_it_is_read() {
        let found = faults(|loader| {
            assert_eq!(loader.checked.len(), 1);
            assert!(loader.nodes.is_empty(), "its tree is gone");
        });
        assert!(!found.is_empty());
    }

    #[test]
    fn where_the_checks_cost_more_than_a_kit_may_all_are_repeated_in_order() {
        let usual = faults(|_| ());
        let again = faults(|loader| {
            for checked in loader.checked.values_mut() {
                checked.effort = u64::MAX;
                checked.faults.clear();
            }
        });
        assert_eq!(usual, again);
    }
}
