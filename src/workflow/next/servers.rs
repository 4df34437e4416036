//! The params of a task's tool servers: plain values are part of the task, secrets are added by
//! those who have them.

use ktsu_ledger::event::plan::ServerPlan;
use ktsu_projections::run::{RunState, StepKey};
use serde_json::{Map, Value, json};

use super::WorkOutcome;
use crate::definition::{
    CompiledAgent, CompiledWork, Definition, ServerParamError, ServerParamValues,
};
use crate::expression::NameLookup;
use crate::rules::DecisionRules;

/// A tool server of a task, without its secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// As the definition has it.
    pub plan: ServerPlan,
    /// The values of its params that are not secret.
    pub params: ServerParamValues,
}

/// The servers of an agent that was given these params.
pub(super) fn server_specs(
    agent: &CompiledAgent,
    params: &Map<String, Value>,
    rules: DecisionRules,
) -> Result<Vec<ServerSpec>, WorkOutcome> {
    let servers = agent.servers.iter().map(|server| {
        Ok(ServerSpec {
            plan: server.plan.clone(),
            params: server.values(params, false, rules)?,
        })
    });
    let servers: Result<_, ServerParamError> = servers.collect();
    servers
        .map_err(|missing| WorkOutcome::failed(missing_value_code(&missing), missing.to_string()))
}

/// The error code of a step for a missing value.
pub fn missing_value_code(missing: &ServerParamError) -> &'static str {
    match missing {
        ServerParamError::Value { .. } => "invalid_params",
        ServerParamError::Expression { .. } | ServerParamError::Params => "expression_failed",
    }
}

/// The secret values of the servers of a task, in their order. `names` knows secrets by value: what
/// comes of this is for one sending, and never recorded. Nothing if the task is no more.
pub fn secret_values(
    definition: &Definition,
    state: &RunState,
    at: StepKey,
    names: &dyn NameLookup,
) -> Option<Result<Vec<ServerParamValues>, ServerParamError>> {
    let plan = state.agent_plan(at)?;
    let compiled = definition.acting_step(state, at)?;
    let agent = definition.agents.get(&plan.file)?;
    let rules = DecisionRules::of(state);
    let (given, filled) = match &compiled.work {
        CompiledWork::Agent {
            params: Some(params),
            ..
        } => match params.render(names, &|_| false, rules) {
            Ok(rendered) => (rendered.value, params.expression_pointers()),
            Err(_) => return Some(Err(ServerParamError::Params)),
        },
        CompiledWork::Agent { params: None, .. }
        | CompiledWork::Transform(_)
        | CompiledWork::Webhook { .. }
        | CompiledWork::Workflow { .. } => (json!({}), Vec::new()),
    };
    let Ok(given) = agent.params(given, &filled, rules) else {
        return Some(Err(ServerParamError::Params));
    };
    let values = agent.servers.iter();
    let values = values.map(|server| server.values(&given, true, rules));
    Some(values.collect())
}
