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

use std::path::Path;

use super::loader::Loader;
use known::KitTypes;
use ktsu_workflow::graph::order_or_as_given;

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
