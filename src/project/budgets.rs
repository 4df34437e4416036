//! Budgets that a model without a price would end, detected before any run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ktsu_ledger::event::plan::{Plan, StepWork, Unpriced, Visibility};

use ktsu_config::fault::{Fault, FaultCode};
use ktsu_config::yaml::{self, SourceSpan};
use ktsu_environment::Environment;
use ktsu_gateway::Config;
use ktsu_gateway::config::Group;
use ktsu_kit::{GATEWAY, Kit};

/// The JSON Pointer of the budget in a workflow.
const BUDGET: &str = "/model_policy/cost_budget_usd";

/// A warning for every workflow with a budget and every model without a price that it may ask.
pub(super) fn unpriced(kit: &Kit, dir: &Path, environment: Option<&Environment>) -> Vec<Fault> {
    let file = Path::new(GATEWAY);
    if !dir.join(file).is_file() {
        return Vec::new();
    }
    // Errors in the gateway's file are reported elsewhere.
    let Ok(config) = Config::load_in(dir, file, environment) else {
        return Vec::new();
    };
    let groups: BTreeMap<&str, &Group> = config
        .groups()
        .iter()
        .map(|group| (group.name.as_str(), group))
        .collect();
    let roots = kit.workflows.values();
    let roots = roots.filter(|one| one.visibility == Visibility::Root);
    let mut found = Vec::new();
    for workflow in roots {
        let asked = budgeted_groups(&workflow.definition.plan);
        let asked = asked.iter().filter_map(|name| groups.get(name));
        let place = place(kit, &workflow.path);
        for group in asked {
            let unpriced = unpriced_models(group).into_iter();
            let fault = |model| fault(model, &group.name, place).in_file(Path::new(&workflow.path));
            found.extend(unpriced.map(fault));
        }
    }
    found
}

/// The groups that a run may ask under its budget: none if it has no budget, or may ask models
/// without a price.
fn budgeted_groups(plan: &Plan) -> BTreeSet<&str> {
    let policy = plan.workflows.get(&plan.root).map(|root| &root.policy);
    let bound = policy.filter(|policy| {
        policy.cost_budget_micro_usd.is_some() && policy.unpriced == Unpriced::Refuse
    });
    let Some(policy) = bound else {
        return BTreeSet::new();
    };
    let steps = plan.workflows.values().flat_map(|workflow| &workflow.steps);
    let groups = steps.filter_map(|step| {
        let StepWork::Agent(agent) = &step.work else {
            return None;
        };
        let own = plan.agents.get(&agent.file).map(|file| file.group.as_str());
        Some(policy.group(agent.group.as_deref().or(own)?))
    });
    groups.collect()
}

fn unpriced_models(group: &Group) -> BTreeSet<&str> {
    let models = group.models.iter().map(|model| model.id.as_str());
    models.filter(|id| group.prices.of(id).is_none()).collect()
}

fn fault(model: &str, group: &str, place: SourceSpan) -> Fault {
    let words = format!(
        "the model {model:?} of the group {group:?} has no price, so its calls under this budget \
         fail with budget_unpriced"
    );
    let hint = format!(
        "price it in gateway.yaml, in the group {group}: pricing: [{{model: {model}, \
         input_per_million_usd: …, output_per_million_usd: …}}]; or write unpriced: allow beside \
         the budget"
    );
    Fault::new(FaultCode::UnpricedModel, place, words)
        .warning()
        .hint(hint)
}

/// The position of the budget in a workflow's file.
fn place(kit: &Kit, path: &str) -> SourceSpan {
    let source = kit.warnings.sources.get(Path::new(path));
    let node = source.and_then(|text| yaml::parse(text).ok());
    node.map(|node| node.at(BUDGET).place).unwrap_or_default()
}
