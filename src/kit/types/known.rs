//! The known types in a kit.

use std::collections::BTreeMap;

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::YamlNode;
use ktsu_ledger::CanonicalJson;
use ktsu_workflow::types::infer::InferenceBudget;
use ktsu_workflow::types::schema::{of_output, of_params};
use ktsu_workflow::types::{ValueType, step};

use crate::loader::Loader;
use crate::workflow::WorkflowDraft;

/// The types of a kit that are known so far.
pub(super) struct KitTypes<'l> {
    pub(super) loader: &'l Loader,
    pub(super) nodes: &'l BTreeMap<String, YamlNode>,
    /// The outputs of agents, by path.
    pub(super) agents: BTreeMap<&'l str, ValueType>,
    /// The params of agents, by path.
    pub(super) agent_params: BTreeMap<&'l str, ValueType>,
    /// The outputs of workflows where they are called, by path.
    pub(super) outputs: BTreeMap<String, ValueType>,
    /// The params of workflows, by path.
    pub(super) params: BTreeMap<&'l str, ValueType>,
    pub(super) effort: InferenceBudget,
    pub(super) faults: Vec<Fault>,
}

impl<'l> KitTypes<'l> {
    pub(super) fn new(loader: &'l Loader, nodes: &'l BTreeMap<String, YamlNode>) -> Self {
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
                .map(|(path, draft)| (path, params_type(draft.plan.params.as_ref())))
                .collect(),
            outputs: BTreeMap::new(),
            params: workflows
                .map(|(path, draft)| (path, params_type(draft.plan.params.as_ref())))
                .collect(),
            effort: InferenceBudget::of_a_kit(),
            faults: Vec::new(),
        }
    }

    /// Adds what one more workflow takes.
    pub(super) fn add_params(&mut self, path: &'l str, draft: &WorkflowDraft) {
        let params = params_type(draft.plan.params.as_ref());
        self.params.insert(path, params);
    }

    /// The output of the workflow at a path for a step that calls it.
    pub(super) fn output(&self, path: &str) -> ValueType {
        let known = self.outputs.get(path);
        known.cloned().unwrap_or_else(ValueType::any)
    }
}

fn params_type(schema: Option<&CanonicalJson>) -> ValueType {
    of_params(schema.map(CanonicalJson::to_value).as_ref())
}

/// An output that cannot fit its schema.
pub(super) fn mismatch(place: ktsu_config::yaml::SourceSpan, what: &str, message: &str) -> Fault {
    let words = format!("{what} can never fit its schema: {message}");
    Fault::new(FaultCode::OutputMismatch, place, words)
}

/// The output of a step and what may stand in its place.
pub(super) fn with_markers(output: ValueType, skips: bool, suppresses: bool) -> ValueType {
    let mut all = output;
    if skips {
        all = all.join(&step::skipped());
    }
    if suppresses {
        all = all.join(&step::suppressed());
    }
    all
}
