//! What the tool servers of a task are told: the plain values with everything else a runtime is
//! told, the secrets apart, by whoever has them.

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_projections::run::RunState;
use serde_json::{Map, Value, json};

use super::Outcome;
use crate::definition::{Agent, CompiledWork, Definition, Missing, Values};
use crate::expression::Names;
use crate::rules::DecisionRules;

/// A tool server of a task, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToldServer {
    /// As the definition has it.
    pub plan: ServerPlan,
    /// What it is told of everything that is no secret.
    pub params: Values,
}

/// The servers of an agent that was given these params.
pub(super) fn told(
    agent: &Agent,
    params: &Map<String, Value>,
    rules: DecisionRules,
) -> Result<Vec<ToldServer>, Outcome> {
    let servers = agent.servers.iter().map(|server| {
        Ok(ToldServer {
            plan: server.plan.clone(),
            params: server.values(params, false, rules)?,
        })
    });
    let servers: Result<_, Missing> = servers.collect();
    servers.map_err(|missing| Outcome::failed(code(&missing), missing.to_string()))
}

/// What a missing value is for a step.
pub fn code(missing: &Missing) -> &'static str {
    match missing {
        Missing::Value { .. } => "invalid_params",
        Missing::Expression { .. } | Missing::Params => "expression_failed",
    }
}

/// The secret values of the servers of a task, in their order. `names` knows secrets by value: what
/// comes of this is for one sending, and never recorded. Nothing if the task is no more.
pub fn secret_values(
    definition: &Definition,
    state: &RunState,
    scope: u32,
    step: u32,
    names: &dyn Names,
) -> Option<Result<Vec<Values>, Missing>> {
    let shape = &state.scope(scope)?.shape;
    let ktsu_ledger::event::plan::Work::Agent(plan) = &shape.step(step)?.work else {
        return None;
    };
    let compiled = definition.workflow(&shape.key)?.steps.get(step as usize)?;
    let agent = definition.agents.get(&plan.file)?;
    let rules = DecisionRules::of(state);
    let (given, filled) = match &compiled.work {
        CompiledWork::Agent {
            params: Some(params),
            ..
        } => match params.render(names, &|_| false, rules) {
            Ok(rendered) => (rendered.value, params.filled()),
            Err(_) => return Some(Err(Missing::Params)),
        },
        CompiledWork::Agent { params: None, .. }
        | CompiledWork::Transform(_)
        | CompiledWork::Webhook { .. }
        | CompiledWork::Workflow { .. } => (json!({}), Vec::new()),
    };
    let Ok(given) = agent.params(given, &filled, rules) else {
        return Some(Err(Missing::Params));
    };
    let values = agent.servers.iter();
    let values = values.map(|server| server.values(&given, true, rules));
    Some(values.collect())
}
