//! The tools a task may call, and checks of the calls that a model requests. Pure: servers are
//! listed elsewhere.

use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::ServerTool;
use super::names::{is_covered, names_for_model, qualified};
use super::pins::{ToolDriftError, check_against_lock};
use ktsu_contract::gateway::ToolCall;
use ktsu_contract::report::OfferedTool;
use ktsu_contract::runtime::ToolServer;
use ktsu_schema::Schema;

/// The tools of a task.
#[derive(Default)]
pub(crate) struct Catalogue {
    shelves: Vec<ServerEntry>,
    /// The names that a model has for them, in the order in which it gets them.
    names: Vec<ToolName>,
}

/// One server, and what it offers that may be called.
struct ServerEntry {
    server: String,
    allowlist: Vec<String>,
    gates: Vec<String>,
    stateful: bool,
    suppressed: bool,
    withheld: Vec<String>,
    tools: Vec<Arc<CallableTool>>,
}

/// A tool that may be called.
pub(crate) struct CallableTool {
    tool: Arc<ServerTool>,
    /// Compiled for the first call.
    schema: OnceLock<Result<Schema, String>>,
}

struct ToolName {
    name: String,
    shelf: usize,
    tool: usize,
}

/// A tool of a server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolTarget {
    pub(crate) server: String,
    pub(crate) tool: String,
}

/// The verdict on a call that a model asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum CallVerdict {
    /// No allowlist permits the name: the task ends by it (seed 000, invariant 5).
    NotPermitted,
    /// It is not sent, and the model is told why: the word of `not_sent`, and the text.
    Refused(&'static str, String),
    /// Calls that wait for a person's approval.
    Gated(ToolTarget),
    /// It is sent.
    Allowed(ToolTarget),
}

impl Catalogue {
    /// The tools that may be called, before their servers say what they offer. A server of which
    /// nothing may be called is left out.
    pub(crate) fn of(servers: &[ToolServer]) -> Self {
        let used = servers.iter().filter(|server| !server.allowlist.is_empty());
        let shelves = used.map(|server| ServerEntry {
            server: server.name.clone(),
            allowlist: server.allowlist.clone(),
            gates: server
                .approval_rules
                .iter()
                .map(|rule| rule.pattern.clone())
                .collect(),
            stateful: server.stateful,
            suppressed: server.suppressed,
            withheld: server.withheld.clone(),
            tools: Vec::new(),
        });
        Self {
            shelves: shelves.collect(),
            names: Vec::new(),
        }
    }

    /// Takes in what a server offers.
    ///
    /// # Errors
    /// [`ToolDriftError`]: where its tools are locked, each that may be called has to be as it was.
    pub(crate) fn add_server(
        &mut self,
        server: &ToolServer,
        offered: &[Arc<ServerTool>],
    ) -> Result<(), ToolDriftError> {
        let permitted = |tool: &&Arc<ServerTool>| is_covered(&server.allowlist, &tool.name);
        let permitted: Vec<&Arc<ServerTool>> = offered.iter().filter(permitted).collect();
        let plain: Vec<&ServerTool> = permitted.iter().map(|tool| tool.as_ref()).collect();
        let ToolServer {
            name,
            allowlist,
            pins,
            ..
        } = server;
        check_against_lock(name, allowlist, pins.as_ref(), &plain)?;
        let mut tools: Vec<Arc<CallableTool>> = Vec::new();
        for tool in permitted {
            if tools.iter().all(|known| known.tool.name != tool.name) {
                tools.push(Arc::new(CallableTool {
                    tool: Arc::clone(tool),
                    schema: OnceLock::new(),
                }));
            }
        }
        let mut shelves = self.shelves.iter_mut();
        if let Some(shelf) = shelves.find(|shelf| shelf.server == server.name) {
            shelf.tools = tools;
        }
        self.assign_names();
        Ok(())
    }

    fn assign_names(&mut self) {
        let each = |(at, shelf): (usize, &ServerEntry)| {
            let places = 0..shelf.tools.len();
            places.map(move |tool| (at, tool)).collect::<Vec<_>>()
        };
        let shelves = self.shelves.iter().enumerate();
        let places: Vec<(usize, usize)> = shelves.flat_map(each).collect();
        let pair = |(shelf, tool): &(usize, usize)| {
            let shelf = self.shelves.get(*shelf)?;
            Some((
                shelf.server.as_str(),
                shelf.tools.get(*tool)?.tool.name.as_str(),
            ))
        };
        let names = names_for_model(&places.iter().filter_map(pair).collect::<Vec<_>>());
        let named = places.into_iter().zip(names);
        self.names = named
            .filter_map(|((shelf, tool), name)| {
                let name = name?;
                Some(ToolName { name, shelf, tool })
            })
            .collect();
    }

    /// The tools that are offered to a model.
    pub(crate) fn offered(&self) -> Vec<OfferedTool> {
        let offered = self.names.iter().filter_map(|named| {
            let shelf = self.shelves.get(named.shelf)?;
            let tool = &shelf.tools.get(named.tool)?.tool;
            Some(OfferedTool {
                description: tool.description.clone(),
                digest: tool.digest.clone(),
                input_schema: tool.input_schema.clone(),
                name: named.name.clone(),
                server: shelf.server.clone(),
                tool: tool.name.clone(),
            })
        });
        offered.collect()
    }

    /// Returns `true` if a call to this server without an answer is never sent again by itself. A
    /// server that is not known any more may have been one of these.
    pub(crate) fn stateful(&self, server: &str) -> bool {
        let shelf = self.shelves.iter().find(|shelf| shelf.server == server);
        shelf.is_none_or(|shelf| shelf.stateful)
    }

    /// The tools of these calls whose schema nobody has compiled yet. It is a stranger's and may take
    /// its time, so whoever checks has it done before, where nobody waits for the thread.
    pub(crate) fn uncompiled(
        &self,
        calls: &[(&str, Option<&ToolTarget>)],
    ) -> Vec<Arc<CallableTool>> {
        let known = calls.iter().filter_map(|(name, target)| {
            let target = match target {
                Some(target) => (*target).clone(),
                None => self.target(name)?,
            };
            let (_, known) = self.known(&target)?;
            known.schema.get().is_none().then(|| Arc::clone(known))
        });
        known.collect()
    }

    /// The verdict on a call, as it is recorded.
    pub(crate) fn check_call(&self, call: &ToolCall, secret: bool) -> CallVerdict {
        let Some(target) = self.target(&call.name) else {
            if !self.permits(&call.name) {
                return CallVerdict::NotPermitted;
            }
            return unknown(&call.name);
        };
        if let Some(refused) = self.refusal(&target, &call.arguments, secret) {
            return refused;
        }
        let mut shelves = self.shelves.iter();
        let gated = shelves
            .any(|shelf| shelf.server == target.server && is_covered(&shelf.gates, &target.tool));
        match gated {
            true => CallVerdict::Gated(target),
            false => CallVerdict::Allowed(target),
        }
    }

    /// As [`Catalogue::check_call`], for a call of which it is settled whose it is, and that nobody needs
    /// to be asked about any more.
    pub(crate) fn check_approved(
        &self,
        target: &ToolTarget,
        call: &ToolCall,
        secret: bool,
    ) -> CallVerdict {
        self.refusal(target, &call.arguments, secret)
            .unwrap_or_else(|| CallVerdict::Allowed(target.clone()))
    }

    /// The tool a model means: by the name it was told, or by the full one.
    fn target(&self, name: &str) -> Option<ToolTarget> {
        let of = |named: &ToolName| {
            let shelf = self.shelves.get(named.shelf)?;
            Some(ToolTarget {
                server: shelf.server.clone(),
                tool: shelf.tools.get(named.tool)?.tool.name.clone(),
            })
        };
        if let Some(named) = self.names.iter().find(|named| named.name == name) {
            return of(named);
        }
        let mut targets = self.names.iter().filter_map(of);
        let found = targets.find(|target| qualified(&target.server, &target.tool) == name)?;
        let again = targets.any(|target| qualified(&target.server, &target.tool) == name);
        (!again).then_some(found)
    }

    /// Returns `true` if some server's allowlist permits a name, bare or in full.
    fn permits(&self, name: &str) -> bool {
        self.shelves.iter().any(|shelf| {
            let bare = name.strip_prefix(shelf.server.as_str());
            let bare = bare.and_then(|rest| rest.strip_prefix("__"));
            let mut names = std::iter::once(name).chain(bare);
            names.any(|name| is_covered(&shelf.allowlist, name))
        })
    }

    fn known(&self, target: &ToolTarget) -> Option<(&ServerEntry, &Arc<CallableTool>)> {
        let mut shelves = self.shelves.iter();
        let shelf = shelves.find(|shelf| shelf.server == target.server)?;
        let mut tools = shelf.tools.iter();
        let known = tools.find(|known| known.tool.name == target.tool)?;
        Some((shelf, known))
    }

    /// The reason why a call is not sent.
    fn refusal(&self, target: &ToolTarget, arguments: &Value, secret: bool) -> Option<CallVerdict> {
        let Some((shelf, known)) = self.known(target) else {
            return Some(unknown(&target.tool));
        };
        // What is sent is what is permitted, whatever it was called on the way here.
        if !is_covered(&shelf.allowlist, &target.tool) {
            return Some(CallVerdict::NotPermitted);
        }
        if secret {
            let words = "The call was not sent: its arguments hold a secret.";
            return Some(CallVerdict::Refused(
                "secret_in_arguments",
                format!("Error: {words}"),
            ));
        }
        if let Some(words) = known.argument_error(arguments) {
            return Some(CallVerdict::Refused("invalid_arguments", words));
        }
        let who = match is_covered(&shelf.withheld, &target.tool) {
            true => "a recompute",
            false if shelf.suppressed => "a branch",
            false => return None,
        };
        let word = "suppressed_in_branch";
        let text =
            format!("Error: {word}: {who} does not change the world, so the call was not sent.");
        Some(CallVerdict::Refused(word, text))
    }
}

impl CallableTool {
    /// The schema of its arguments; why it cannot be used, if it cannot.
    pub(crate) fn compile(&self) -> &Result<Schema, String> {
        self.schema.get_or_init(|| {
            let schema = Schema::compile_untrusted(&self.tool.input_schema);
            schema.map_err(|error| error.to_string())
        })
    }

    /// The fault of the arguments, for the model.
    fn argument_error(&self, arguments: &Value) -> Option<String> {
        let Value::Object(members) = arguments else {
            return Some("Error: invalid arguments: expected a JSON object.".to_owned());
        };
        if members.len() == 1 && members.get("_raw").is_some_and(Value::is_string) {
            return Some("Error: invalid arguments: they are not a JSON object.".to_owned());
        }
        let schema = match self.compile() {
            Ok(schema) => schema,
            Err(why) => {
                return Some(format!(
                    "Error: invalid arguments: the schema that the server gives for this tool \
                     cannot be used ({why}), so nothing can be called with it."
                ));
            }
        };
        let violations = schema.check(arguments);
        if violations.is_empty() {
            return None;
        }
        let lines = violations.iter().map(|violation| {
            let place = match violation.pointer.as_str() {
                "" => "/",
                pointer => pointer,
            };
            format!("{place} ({}): {}", violation.rule, violation.message)
        });
        let lines: Vec<String> = lines.collect();
        Some(format!("Error: invalid arguments:\n{}", lines.join("\n")))
    }
}

fn unknown(name: &str) -> CallVerdict {
    CallVerdict::Refused(
        "unknown_tool",
        format!("Error: no server offers a tool named {name}."),
    )
}

#[cfg(test)]
mod exact_tests;
#[cfg(test)]
mod tests;
