//! `ktsu/commands`: what a model commands besides its output (seed 004). A call is judged here and
//! carried out later: its runtime puts what was accepted into the outcome of the step.

use ktsu_ledger::event::plan::AgentPlan;
use ktsu_projections::life::call::{RequestedCall, RequestedCalls};
use ktsu_projections::life::commanded::ModelCommands;
use ktsu_workflow::commands::{MAX_OUTCOME_COMMANDS, OutcomeCommand, read_commands};
use ktsu_workflow::definition::Definition;
use ktsu_workflow::permitted;
use ktsu_workflow::rules::DecisionRules;
use serde_json::{Value, json};

use super::CallResult;

/// The tools that it offers to a step that may be resumed to these others. The allowlist of an
/// agent leaves what its file declares.
pub(super) fn tools(resume_steps: &[String]) -> Value {
    let mut all = every_tool();
    let suspend = all.as_array_mut().and_then(|all| all.last_mut());
    if let Some(suspend) = suspend.filter(|_| !resume_steps.is_empty()) {
        suspend["inputSchema"]["properties"]["resumeStep"] = json!({
            "type": "string",
            "enum": resume_steps,
            "description": "The step that continues in your place, and gives the answer; without \
                it, you begin again",
        });
    }
    all
}

fn every_tool() -> Value {
    json!([{
        "name": "emit",
        "description": "Tells other systems about a topic, once your answer has been accepted. \
            Calling it again with the same arguments changes nothing.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "topic": {"type": "string", "description": "What it is about: claim.verified"},
                "payload": {"description": "What is told: any JSON value"},
            },
            "required": ["topic", "payload"],
            "additionalProperties": false,
        },
    }, {
        "name": "invoke",
        "description": "Runs a workflow once your answer has been accepted. You do not see what it \
            gives; the steps after yours do.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "step": {"type": "string", "description": "The name that this step has for it"},
                "input": {"description": "Its params: an object"},
            },
            "required": ["step", "input"],
            "additionalProperties": false,
        },
    }, {
        "name": "fanout",
        "description": "Runs a workflow for each input, once your answer has been accepted. You do \
            not see what it gives; the steps after yours do.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "step": {"type": "string", "description": "The name that this step has for it"},
                "inputs": {"type": "array", "description": "The params of each: objects"},
            },
            "required": ["step", "inputs"],
            "additionalProperties": false,
        },
    }, {
        "name": "review",
        "description": "Has a person decide whether your answer counts, before anything else \
            happens. Give your answer as well; you do not see the decision.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "description": "Why a person should look"},
                "payload": {"description": "What they should see besides your answer: any JSON \
                    value"},
            },
            "required": ["reason"],
            "additionalProperties": false,
        },
    }, {
        "name": "suspend",
        "description": "Stops here until data are there that you ask for: a document, say. You then \
            begin again with them and with your checkpoint, and without this conversation. Your \
            answer now does not count, nor do other commands.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "reason": {"type": "string", "description": "What you need, for the person who \
                    gives it"},
                "checkpoint": {"description": "What you want to know when you begin again: any JSON \
                    value"},
            },
            "required": ["reason", "checkpoint"],
            "additionalProperties": false,
        },
    }])
}

/// By what commands are judged.
pub(super) struct CommandJudge<'a> {
    /// Of the run.
    pub(super) definition: &'a Definition,
    /// Of the step.
    pub(super) plan: &'a AgentPlan,
    /// Of the run.
    pub(super) rules: DecisionRules,
    /// The steps that the step may be resumed to.
    pub(super) resume_steps: &'a [String],
}

impl CommandJudge<'_> {
    /// Checks that the command of a call that is not yet answered may be part of the outcome, after
    /// those that come before it.
    pub(super) fn noted_call(
        &self,
        accepted: &ModelCommands,
        calls: &RequestedCalls,
        call: &RequestedCall,
    ) -> CallResult {
        let judged = |call: &RequestedCall| {
            let sending = call.state.sent();
            let tool = sending.map_or("", |sending| sending.tool.as_str());
            self.noted(tool, &call.arguments.to_value())
        };
        if accepted.blocks(calls, call, |one| judged(one).is_ok()) {
            let words = "you have asked for a review or for data already, and may ask once";
            return Err(words.to_owned());
        }
        let before = accepted.before(calls, call, |one| judged(one).is_ok());
        if before.is_some_and(|before| before >= MAX_OUTCOME_COMMANDS) {
            return Err(format!(
                "the outcome has {MAX_OUTCOME_COMMANDS} commands already, and may have no more"
            ));
        }
        judged(call)
    }

    /// Checks that a command may be part of the outcome.
    pub(super) fn noted(&self, tool: &str, arguments: &Value) -> CallResult {
        let mut command = json!({"type": tool});
        if let (Some(command), Some(arguments)) = (command.as_object_mut(), arguments.as_object()) {
            let members = arguments.iter().filter(|(name, _)| *name != "type");
            command.extend(members.map(|(name, value)| (name.clone(), value.clone())));
        }
        let read = read_commands(Some(&json!([command])), DecisionRules::NEWEST);
        // The place is one in the arguments.
        let read = read.map_err(|why| {
            let why = why.replace(" at /commands/0/", " at /");
            why.trim_end_matches(" at /commands/0").to_owned()
        });
        for command in read? {
            self.judge(&command)?;
        }
        Ok(json!({"accepted": true}))
    }

    fn judge(&self, command: &OutcomeCommand) -> Result<(), String> {
        let agent = self.definition.agents.get(&self.plan.file);
        match command {
            OutcomeCommand::Emit { topic, .. } => {
                let emits = agent.and_then(|agent| agent.emits.as_ref());
                if emits.is_some_and(|emits| emits.matches(topic)) {
                    return Ok(());
                }
                let declared = emits.map_or_else(|| "nothing".to_owned(), ToString::to_string);
                Err(format!(
                    "the topic {topic:?} is not declared; you may emit {declared}"
                ))
            }
            OutcomeCommand::Invoke { step, .. } | OutcomeCommand::Fanout { step, .. } => {
                let declared = agent.and_then(|agent| agent.file.commands.as_ref());
                let offered = || {
                    let names = self.plan.may_invoke.keys();
                    let names =
                        names.filter(|name| declared.is_some_and(|all| all.may_invoke(name)));
                    names.cloned().collect::<Vec<_>>().join(", ")
                };
                if !self.plan.may_invoke.contains_key(step) {
                    return Err(format!(
                        "there is no {step:?}; you may invoke {}",
                        offered()
                    ));
                }
                permitted::check_declared(declared, command)
                    .and_then(|()| {
                        permitted::check_inputs(self.definition, self.plan, self.rules, command)
                    })
                    .map_err(|(_, words)| words)
            }
            OutcomeCommand::Review { .. } => {
                let declared = agent.and_then(|agent| agent.file.commands.as_ref());
                // An item of a fan-out that asks for one fails with its outcome, before anything of
                // that counts.
                match declared.is_some_and(|all| all.review.is_some()) {
                    true => Ok(()),
                    false => Err("review is not offered".to_owned()),
                }
            }
            OutcomeCommand::Suspend { resume_step, .. } => {
                let declared = agent.and_then(|agent| agent.file.commands.as_ref());
                if declared.is_none_or(|all| all.suspend.is_none()) {
                    return Err("suspend is not offered".to_owned());
                }
                match resume_step {
                    Some(_) if self.resume_steps.is_empty() => {
                        Err("leave resumeStep out: this step begins again".to_owned())
                    }
                    Some(step) if !self.resume_steps.contains(step) => Err(format!(
                        "this step cannot be resumed to {step:?}, only to {}",
                        self.resume_steps.join(" or ")
                    )),
                    Some(_) | None => Ok(()),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ktsu_ledger::event::plan::StepWork;

    use super::*;

    fn definition() -> Definition {
        let workflow = |name: &str, steps: Value| {
            json!({"name": name, "params": {"required": ["claim"]}, "steps": steps,
                "version": "1.0.0", "visibility": "root", "webhooks": "execute"})
        };
        let invoke = json!({"child": {"webhooks": "execute", "workflow": "verify"},
            "concurrency": 1, "max_items": 2});
        let agent = json!({"agent": "a", "file": "a", "max_tokens": 1,
            "may_invoke": {"other": invoke, "verify": invoke}});
        let steps = json!([{"id": "s", "needs": [], "work": {"agent": agent}}]);
        let plan = json!({
            "agents": {"a": {"commands": {"emit": ["claim.*"], "invoke": ["verify"]},
                "group": "g", "max_turns": 1, "name": "a", "output": {"type": "object"},
                "prompt": {"system": "s"}, "version": "1.0.0"}},
            "format": 1, "root": "main",
            "workflows": {"main": workflow("main", steps), "verify": workflow("verify", json!([]))},
        });
        Definition::compile(serde_json::from_value(plan).unwrap()).unwrap()
    }

    #[test]
    fn a_command_is_accepted_if_it_is_well_formed_and_declared() {
        let definition = definition();
        let main = &definition.plan.workflows["main"].steps[0];
        let StepWork::Agent(plan) = &main.work else {
            panic!("not an agent step");
        };
        let judge = CommandJudge {
            definition: &definition,
            plan,
            rules: DecisionRules::NEWEST,
            resume_steps: &[],
        };
        let noted = |tool: &str, arguments: Value| judge.noted(tool, &arguments);
        let accepted = Ok(json!({"accepted": true}));
        let claim = json!({"topic": "claim.seen", "payload": null});
        assert_eq!(noted("emit", claim), accepted);
        let invoke = json!({"step": "verify", "input": {"claim": 1}});
        assert_eq!(noted("invoke", invoke), accepted);
        let fanout =
            |count: usize| json!({"step": "verify", "inputs": vec![json!({"claim": 1}); count]});
        assert_eq!(noted("fanout", fanout(2)), accepted);
        for (tool, arguments, words) in [
            (
                "emit",
                json!({"topic": "other", "payload": 1}),
                "the topic \"other\" is not declared; you may emit claim.*",
            ),
            (
                "invoke",
                json!({"step": "nothing", "input": {}}),
                "there is no \"nothing\"; you may invoke verify",
            ),
            (
                "invoke",
                json!({"step": "other", "input": {"claim": 1}}),
                "the agent does not declare that it invokes \"other\"",
            ),
            (
                "fanout",
                fanout(3),
                "the fanout of \"verify\" has 3 inputs, and may have 2",
            ),
            ("emit", json!({"topic": "claim.seen"}), "payload"),
            ("emit", json!({"topic": "", "payload": 1}), "topic"),
            ("review", json!({"reason": "r"}), "review is not offered"),
            ("exec", json!({}), "exec"),
            (
                "review",
                json!({"type": "emit", "topic": "claim.seen", "payload": 1}),
                "review has no such member; it has type, reason, payload at /topic",
            ),
        ] {
            let refused = noted(tool, arguments).unwrap_err();
            assert!(refused.contains(words), "{tool}: {refused}");
        }
        let suspend = json!({"reason": "r", "checkpoint": 1, "resumeStep": "read"});
        let refused = noted("suspend", suspend).unwrap_err();
        assert_eq!(refused, "suspend is not offered");
        let unfit = json!({"step": "verify", "input": {}});
        let refused = noted("invoke", unfit).unwrap_err();
        assert!(refused.starts_with("the input of \"verify\" does not fit its params"));
    }

    #[test]
    fn a_step_may_be_named_that_continues_where_there_is_one() {
        let mut definition = definition().plan;
        let file = Arc::make_mut(definition.agents.get_mut("a").unwrap());
        let suspend = json!({"suspend": {"timeout_ms": 1}});
        file.commands = Some(serde_json::from_value(suspend).unwrap());
        let definition = Definition::compile(definition).unwrap();
        let StepWork::Agent(plan) = &definition.plan.workflows["main"].steps[0].work else {
            panic!("not an agent step");
        };
        let noted = |steps: &[&str], named: &str| {
            let steps: Vec<String> = steps.iter().map(|step| (*step).to_owned()).collect();
            let judge = CommandJudge {
                definition: &definition,
                plan,
                rules: DecisionRules::NEWEST,
                resume_steps: &steps,
            };
            let arguments = json!({"reason": "r", "checkpoint": 1, "resumeStep": named});
            judge.noted("suspend", &arguments)
        };
        assert_eq!(noted(&["read"], "read"), Ok(json!({"accepted": true})));
        assert_eq!(
            noted(&["read", "scan"], "s").unwrap_err(),
            "this step cannot be resumed to \"s\", only to read or scan"
        );
        assert_eq!(
            noted(&[], "read").unwrap_err(),
            "leave resumeStep out: this step begins again"
        );
        let offered = |steps: &[String]| tools(steps)[4]["inputSchema"]["properties"].clone();
        assert_eq!(offered(&[]).get("resumeStep"), None);
        let one = offered(&["read".to_owned()]);
        assert_eq!(one["resumeStep"]["enum"], json!(["read"]));
    }
}
