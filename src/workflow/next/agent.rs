//! Agent steps: dispatched in one unit, settled in the unit that follows the end of their task.

use std::collections::BTreeMap;

use ktsu_ledger::Event;
use ktsu_ledger::event::plan::{AgentPlan, FanOut};
use ktsu_ledger::event::{
    AgentEvent, DoubtReason, FinishReason, ItemEvent, ItemStarted, ReflectStarted, StepInput,
    WorkerDispatched, WorkerEvent,
};
use ktsu_projections::life::call::SentCall;
use ktsu_projections::run::{
    AgentTask, RunState, Step as StepState, StepKey, TaskAction, TaskId, TaskPhase,
};
use serde_json::json;

use super::ask;
use super::names::{FAN_OUT_INPUT, computed};
use super::servers;
use super::task::TaskSpec;
use super::task_end::{AgentEnd, in_doubt, open_calls};
use super::{Memo, ScopedNames, StepContext, StepDecision, WorkOutcome};
use crate::definition::{CompiledAgent, CompiledStep, CompiledWork, Definition};
use crate::expression::{Expression, NameLookup, to_value};
use crate::template::{LeafSource, RenderedTemplate};

/// The specification of a task that has begun, as its runtime gets it; each dispatch gets the same.
/// `memo` keeps converted values for the next task, so that the items of a fan-out are read once.
pub fn task_spec(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
    id: TaskId,
) -> Option<TaskSpec> {
    if id.item.is_none()
        && let Some(task) = memo.take_task(id.step)
    {
        return Some(task);
    }
    let (scope, step) = match id.step {
        StepKey::Of { scope, step } => (scope, step),
        StepKey::Responder { .. } => return ask::spec(definition, state, memo, id.step),
        StepKey::Gone => return None,
    };
    let at = StepContext::new(definition, state, memo, scope, Some(step))?;
    let compiled = at.acting_step()?;
    let Some(ktsu_ledger::event::plan::StepWork::Agent(plan)) = at.workflow_work() else {
        return None;
    };
    let asked = match id.item {
        Some(item) => at.prepare_task(compiled, plan, &at.names.with_item(item)),
        None => at.prepare_task(compiled, plan, &at.names),
    };
    asked.ok().map(|asked| asked.spec)
}

/// A task as it is asked for: what is recorded of its input, and what its runtime is told.
struct PreparedTask {
    input: BTreeMap<String, StepInput>,
    spec: TaskSpec,
}

impl StepDecision<'_> {
    /// Starts the step, and sends its task out unless there are several.
    pub(super) fn start_agent(&mut self, plan: &AgentPlan) {
        match self.start_input(self.acting, plan) {
            Ok((input, items)) => {
                let started = self.started_with(input, items);
                if items.is_none() {
                    self.dispatch(None, self.attempt(), started);
                }
            }
            Err(failed) => {
                let started = self.started(BTreeMap::new());
                self.settle(self.attempt(), failed, vec![started]);
            }
        }
    }

    /// The rest of an agent step that has started.
    pub(super) fn advance_agent(&mut self, plan: &AgentPlan, held: &StepState) -> Option<()> {
        let tasks = held.tasks.as_deref()?;
        let due = tasks.next_action(plan)?;
        match due {
            TaskAction::Start(item) => self.start_item(plan, item, held.started?),
            TaskAction::Dispatch(index) => {
                let task = tasks.list.get(index as usize)?;
                match self.preparation_error(self.acting, plan, tasks.item(index), task) {
                    None => {
                        let attempt = task.attempt + 1;
                        self.dispatch(tasks.item(index), attempt, task.last);
                    }
                    Some(failed) => match tasks.item(index) {
                        Some(item) => {
                            let attempt = task.attempt;
                            self.fail_item(item, attempt, failed, None, task.last);
                        }
                        None => self.settle(held.attempt, failed, vec![task.last]),
                    },
                }
            }
            TaskAction::Reflect(index) => {
                let task = tasks.list.get(index as usize)?;
                let event = AgentEvent::ReflectStarted(ReflectStarted {
                    attempt: task.attempt,
                    item: tasks.item(index),
                    step: self.step.id.clone(),
                });
                self.unit.push(Event::Agent(event), vec![task.last]);
            }
            TaskAction::GiveUp(index) => {
                let task = tasks.list.get(index as usize)?;
                let message = "no runtime works on it, and none is there to take it over";
                let end = AgentEnd {
                    code: "heartbeat_timeout",
                    message,
                    reason: FinishReason::Error,
                };
                end.push(&mut self.unit, self.step, tasks.item(index), task);
            }
            TaskAction::Reject(index) => {
                let task = tasks.list.get(index as usize)?;
                let TaskPhase::ForcedToFail(doomed) = &task.phase else {
                    return None;
                };
                let end = AgentEnd {
                    code: doomed.code(),
                    message: &doomed.message(),
                    reason: FinishReason::Error,
                };
                end.push(&mut self.unit, self.step, tasks.item(index), task);
            }
            TaskAction::Doubt(index) => {
                let task = tasks.list.get(index as usize)?;
                let stateful = |sending: &&SentCall| sending.stateful;
                let scope = self.unit.scope.clone();
                for sending in open_calls(task).filter(stateful) {
                    let why = DoubtReason::WorkerLost;
                    let item = tasks.item(index);
                    in_doubt(
                        &mut self.unit,
                        scope.clone(),
                        &self.step.id,
                        item,
                        task,
                        sending,
                        why,
                    );
                }
            }
            TaskAction::Settle(index) => {
                let task = tasks.list.get(index as usize)?;
                self.settle_task(plan, tasks.item(index), task)?;
            }
            TaskAction::Fail => self.fail_fan_out(plan, held)?,
            TaskAction::End => self.end_fan_out(held)?,
        }
        Some(())
    }

    fn start_item(&mut self, plan: &AgentPlan, item: u32, started: u64) {
        let names = self.names.with_item(item);
        let held = self.scope.steps.get(self.position as usize);
        let items = held.and_then(|step| step.tasks.as_ref()?.items);
        self.memo.keep(items.is_some_and(|items| item + 1 < items));
        let (input, failed) = match self.prepare_task(self.step, plan, &names) {
            Ok(task) => (task.input, None),
            Err(failed) => (BTreeMap::new(), Some(failed)),
        };
        let event = ItemEvent::Started(ItemStarted {
            input,
            item,
            step: self.step.id.clone(),
        });
        let begun = self.unit.push(Event::Item(event), vec![started]);
        match failed {
            None => self.dispatch(Some(item), self.attempt(), begun),
            Some(failed) => self.fail_item(item, self.attempt() - 1, failed, None, begun),
        }
    }

    fn dispatch(&mut self, item: Option<u32>, attempt: u32, cause: u64) {
        let event = WorkerEvent::Dispatched(WorkerDispatched {
            attempt,
            item,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Worker(event), vec![cause]);
    }
}

impl StepContext<'_> {
    /// The input that the step starts with and, if it fans out, the number of items.
    fn start_input(
        &self,
        step: &CompiledStep,
        plan: &AgentPlan,
    ) -> Result<(BTreeMap<String, StepInput>, Option<u32>), WorkOutcome> {
        match (&plan.for_each, &step.work) {
            (
                Some(each),
                CompiledWork::Agent {
                    from: Some(from), ..
                },
            ) => {
                let (given, count) = self.items(each, from)?;
                Ok((
                    BTreeMap::from([(FAN_OUT_INPUT.to_owned(), given)]),
                    Some(count),
                ))
            }
            _ => {
                let PreparedTask { input, spec } = self.prepare_task(step, plan, &self.names)?;
                self.memo.keep_task(self.key(), spec);
                Ok((input, None))
            }
        }
    }

    /// The items that a fan-out goes over, and their number.
    fn items(&self, each: &FanOut, from: &Expression) -> Result<(StepInput, u32), WorkOutcome> {
        let failed = |words: String| WorkOutcome::failed("expression_failed", words);
        let value = from.evaluate(&self.names);
        let value = value.map_err(|error| failed(error.message))?;
        let Some(items) = value.as_array() else {
            return Err(failed(format!(
                "for_each from {:?}: expected array, got {}",
                each.from,
                value.get_type()
            )));
        };
        let count = u32::try_from(items.len()).unwrap_or(u32::MAX);
        let place = from.as_path();
        let place = place.and_then(|(root, at)| self.names.reference_to(&root, &at));
        let given = match place {
            Some(reference) => StepInput::Ref(reference),
            None => computed(self.names.frames(from.roots()), &to_value(&value)),
        };
        Ok((given, count.min(each.max_items.unwrap_or(u32::MAX))))
    }

    /// The reason why a task is never sent out: a log cut between its start and its end, neither of
    /// which went to a runtime, ends it as it would have ended.
    fn preparation_error(
        &self,
        step: &CompiledStep,
        plan: &AgentPlan,
        item: Option<u32>,
        task: &AgentTask,
    ) -> Option<WorkOutcome> {
        if task.attempt > 0 {
            return None;
        }
        match item {
            Some(item) => {
                let names = self.names.with_item(item);
                self.prepare_task(step, plan, &names).err()
            }
            None => self.start_input(step, plan).err(),
        }
    }

    /// Renders the params, checks them, and renders the prompts with them.
    fn prepare_task(
        &self,
        step: &CompiledStep,
        plan: &AgentPlan,
        names: &ScopedNames<'_>,
    ) -> Result<PreparedTask, WorkOutcome> {
        let failed = |code: &str, words: String| WorkOutcome::failed(code, words);
        let CompiledWork::Agent { params, .. } = &step.work else {
            return Err(failed("expression_failed", "not an agent step".to_owned()));
        };
        let agent = self.definition.agents.get(&plan.file);
        let agent = agent.ok_or_else(|| failed("expression_failed", "no such agent".to_owned()))?;
        let rules = self.rules();
        let mut filled = Vec::new();
        let mut rendered = RenderedTemplate {
            value: json!({}),
            leaves: Vec::new(),
        };
        if let Some(template) = params {
            let secret = |name: &str| names.is_secret(name);
            rendered = template
                .render(names as &dyn NameLookup, &secret, rules)
                .map_err(|error| failed("expression_failed", error.message))?;
            filled = template.expression_pointers();
        }
        if let Some(param) = exposed_secret(agent, &rendered) {
            let words = format!("a secret cannot be given to the param {param:?}, which is none");
            return Err(failed("secret_in_prompt", words));
        }
        let input = names.recorded_inputs("/params", &rendered);
        let params = agent.params(rendered.value, &filled, rules);
        let params = params.map_err(|found| {
            let code = crate::airlock::code_of_first(&found, "invalid_params");
            let first = self.first_violation(found);
            let words = format!(
                "step \"{}\" does not fit the params of agent \"{}\"{first}",
                step.id, agent.file.name
            );
            failed(code, words)
        })?;
        let servers = servers::server_specs(agent, &params, rules)?;
        let prompts = agent.prompts(params, rules);
        let prompts = prompts.map_err(|error| failed("expression_failed", error.message))?;
        Ok(PreparedTask {
            input,
            spec: TaskSpec {
                agent: agent.file.name.clone(),
                system: agent.file.prompt.system.clone(),
                user: prompts.user,
                messages: Vec::new(),
                temperature_millionths: None,
                reflect: prompts.reflect,
                group: self.group(plan, agent),
                max_tokens: plan.max_tokens,
                max_turns: agent.file.max_turns,
                threshold: plan.confidence_threshold_millionths,
                schema: Some(agent.file.output.clone()),
                servers,
            },
        })
    }

    /// The model group: the step's or the agent's, after the policy of the run's root workflow
    /// (`spec` A9).
    fn group(&self, plan: &AgentPlan, agent: &CompiledAgent) -> String {
        let policy = &self.state.outline().root().plan.policy;
        let wanted = plan.group.as_ref().unwrap_or(&agent.file.group);
        policy.group(wanted).to_owned()
    }
}

/// A param that is not secret and gets one.
fn exposed_secret<'r>(agent: &CompiledAgent, rendered: &'r RenderedTemplate) -> Option<&'r str> {
    let secret = rendered.leaves.iter();
    let secret = secret.filter(|leaf| leaf.source == LeafSource::Secret);
    let mut names = secret.filter_map(|leaf| leaf.at.trim_start_matches('/').split('/').next());
    names.find(|name| !agent.is_secret(name))
}
