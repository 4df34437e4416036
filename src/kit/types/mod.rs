//! What can be known of the values of a kit before any run, held against what its files do with
//! them: fields that cannot exist, values that can never fit.
//!
//! ```text
//! children before parents: params --steps in order, each expression--> outputs --> output.map
//! ```
//!
//! The types are `workflow::types`; here is where they come from in files, and where what was found
//! stands. A file with faults of its own is looked at as far as it could be read.

mod agent;
mod expressions;
mod workflow;

use std::collections::BTreeMap;
use std::path::Path;

use super::loader::Loader;
use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::YamlNode;
use ktsu_workflow::graph;
use ktsu_workflow::types::infer::InferenceBudget;
use ktsu_workflow::types::schema::{of_output, of_params};
use ktsu_workflow::types::{ValueType, step};

/// Holds every expression of the kit against the types of what it names.
pub(super) fn check(loader: &mut Loader) {
    let nodes = std::mem::take(&mut loader.nodes);
    let mut kit = KitTypes::new(loader, &nodes);
    for path in in_order(loader) {
        kit.workflow(&path);
    }
    kit.agents();
    let found = kit.faults;
    found.into_iter().for_each(|fault| loader.faults.add(fault));
}

/// What is known of a kit so far.
struct KitTypes<'l> {
    loader: &'l Loader,
    nodes: &'l BTreeMap<String, YamlNode>,
    /// What agents give, by path.
    agents: BTreeMap<&'l str, ValueType>,
    /// What agents take, by path.
    agent_params: BTreeMap<&'l str, ValueType>,
    /// What workflows give where they are called, by path.
    outputs: BTreeMap<String, ValueType>,
    /// What workflows take, by path.
    params: BTreeMap<&'l str, ValueType>,
    effort: InferenceBudget,
    faults: Vec<Fault>,
}

impl<'l> KitTypes<'l> {
    fn new(loader: &'l Loader, nodes: &'l BTreeMap<String, YamlNode>) -> Self {
        let agents = loader.agents.iter();
        let agents = agents.filter_map(|(path, draft)| Some((path.as_str(), draft.as_ref()?)));
        let workflows = loader.drafts.iter();
        let workflows =
            workflows.filter_map(|(path, draft)| Some((path.as_str(), draft.as_ref()?)));
        Self {
            loader,
            nodes,
            agents: agents
                .clone()
                .map(|(path, draft)| {
                    let output = of_output(&draft.plan.output.to_value());
                    (path, output.stripped())
                })
                .collect(),
            agent_params: agents
                .map(|(path, draft)| {
                    let schema = draft.plan.params.as_ref().map(|json| json.to_value());
                    (path, of_params(schema.as_ref()))
                })
                .collect(),
            outputs: BTreeMap::new(),
            params: workflows
                .map(|(path, draft)| {
                    let schema = draft.plan.params.as_ref().map(|json| json.to_value());
                    (path, of_params(schema.as_ref()))
                })
                .collect(),
            effort: InferenceBudget::of_a_kit(),
            faults: Vec::new(),
        }
    }

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

    /// What the workflow at a path gives to a step that calls it.
    fn output(&self, path: &str) -> ValueType {
        let known = self.outputs.get(path);
        known.cloned().unwrap_or_else(ValueType::any)
    }
}

/// The workflows, each after those that it calls. Where they call one another there is no order, and
/// what is not known yet may be anything.
fn in_order(loader: &Loader) -> Vec<String> {
    let paths: Vec<&String> = loader.drafts.keys().collect();
    let place = |path: &String| paths.binary_search(&path).unwrap_or(usize::MAX);
    let mut needs = vec![Vec::new(); paths.len()];
    for ((parent, _), child) in &loader.children {
        if let Some(called) = needs.get_mut(place(parent)) {
            called.push(place(child));
        }
    }
    let order: Vec<usize> = match graph::order(&needs) {
        Ok(layers) => layers.into_iter().flatten().collect(),
        Err(_) => (0..paths.len()).collect(),
    };
    let found = order.into_iter().filter_map(|at| paths.get(at));
    found.map(|path| (*path).clone()).collect()
}

/// An output that cannot fit its schema.
fn mismatch(place: ktsu_config::yaml::SourceSpan, what: &str, message: &str) -> Fault {
    let words = format!("{what} can never fit its schema: {message}");
    Fault::new(FaultCode::OutputMismatch, place, words)
}

/// The output of a step and what may stand in its place.
fn with_markers(output: ValueType, skips: bool, suppresses: bool) -> ValueType {
    let mut all = output;
    if skips {
        all = all.join(&step::skipped());
    }
    if suppresses {
        all = all.join(&step::suppressed());
    }
    all
}
