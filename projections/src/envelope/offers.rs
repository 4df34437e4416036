//! Entries of allowlists that no tool matches which a model was offered: found in the requests that
//! tell a model of its tools.

use std::borrow::Cow;
use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::plan::ServerPlan;
use ktsu_ledger::event::{LlmRequest, Purpose};
use serde::Deserialize;

use super::EnvelopeWarning;
use crate::life::commanded::COMMANDS_SERVER;
use crate::run::{AgentShape, RunState, StepKey};

/// The code of these warnings.
const CODE: &str = "tool_not_offered";

/// The tools that models were offered, by the agents' keys in the definition.
#[derive(Debug, Clone, Default)]
pub(super) struct ToolOffers(BTreeMap<String, ToolOffer>);

/// The latest offer to an agent.
#[derive(Debug, Clone)]
struct ToolOffer {
    tools: Option<CanonicalJson>,
    /// The step that it was for, as `id` or `call/id`.
    step: String,
    /// Servers, and entries of their allowlists.
    unmatched: Vec<(String, String)>,
}

/// A tool, as a request lists it.
#[derive(Deserialize)]
struct OfferedTool<'a> {
    #[serde(borrow)]
    server: Cow<'a, str>,
    #[serde(borrow)]
    tool: Cow<'a, str>,
}

impl ToolOffers {
    /// Takes a request of a step.
    pub(super) fn take(&mut self, state: &RunState, at: u32, request: &LlmRequest) {
        let scope = state.scope(at);
        let position = scope.and_then(|scope| scope.shape.position(&request.step));
        let Some((scope, position)) = scope.zip(position) else {
            return;
        };
        let Some(agent) = state.agent_plan(StepKey::of(at, position)) else {
            return;
        };
        let Some(shape) = state.outline().agent(&agent.file) else {
            return;
        };
        let begins = request.purpose == Purpose::Turn && request.base.is_none();
        let known = self.0.get(&agent.file);
        if shape.servers.is_empty()
            || !begins
            || known.is_some_and(|offer| offer.tools == request.tools)
            || !is_whole(request, shape)
        {
            return;
        }
        let offer = ToolOffer {
            unmatched: unmatched(&shape.servers, request.tools.as_ref()),
            tools: request.tools.clone(),
            step: scope.path_of(position),
        };
        self.0.insert(agent.file.clone(), offer);
    }

    /// Another definition has agents of its own.
    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    /// A warning for each entry.
    pub(super) fn warnings(&self) -> impl Iterator<Item = EnvelopeWarning> {
        self.0.values().flat_map(|offer| {
            let warning = |(server, entry): &(String, String)| EnvelopeWarning {
                code: CODE.to_owned(),
                message: format!(
                    "the allowlist entry {entry:?} of the server {server} matches no tool that the \
                     model was offered"
                ),
                responder: None,
                step: Some(offer.step.clone()),
            };
            offer.unmatched.iter().map(warning)
        })
    }
}

/// A message of a request that names the frame it is in.
#[derive(Deserialize)]
struct NamedMessage {
    frame: Option<u64>,
}

/// Returns `true` if a request without a base has all tools of its agent: a model is offered none
/// in its last turn, which is the first only where there is no other.
fn is_whole(request: &LlmRequest, shape: &AgentShape) -> bool {
    let is_first = || {
        let messages = serde_json::from_str::<Vec<NamedMessage>>(request.messages.as_str());
        messages.is_ok_and(|all| all.iter().all(|message| message.frame.is_none()))
    };
    request.tools.is_some() || (shape.max_turns > 1 && is_first())
}

/// The entries that cover none of these tools.
fn unmatched(servers: &[ServerPlan], tools: Option<&CanonicalJson>) -> Vec<(String, String)> {
    let text = tools.map_or("[]", CanonicalJson::as_str);
    let Ok(offered) = serde_json::from_str::<Vec<OfferedTool<'_>>>(text) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    // It offers what a step declares, and no file lists its tools.
    let listed = |server: &&ServerPlan| server.file != COMMANDS_SERVER;
    for server in servers.iter().filter(listed) {
        let names = || {
            offered
                .iter()
                .filter(|one| one.server == server.name.as_str())
        };
        for rule in server.tools.iter().filter(|rule| rule.pattern != "*") {
            if !names().any(|one| rule.covers(&one.tool)) {
                found.push((server.name.clone(), rule.pattern.clone()));
            }
        }
    }
    found
}
