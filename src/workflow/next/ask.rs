//! The questions that responders ask models, and the workflows that they run: announced, kept
//! going, and checked before their responder reacts.

use std::collections::BTreeMap;

use ktsu_ledger::event::plan::ChildPlan;
use ktsu_ledger::event::plan::world::{AskPlan, ResponderWork};
use ktsu_ledger::event::{
    FinishReason, OutputChecked, ReservedEvaluated, ResponderFailed, StepEvent, StepInput,
    WorkerDispatched, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{Actor, Cause, Draft, Event};
use ktsu_projections::run::{AgentTask, RunState, StepKey, TaskAction, TaskPhase};
use ktsu_projections::world::{TaskContext, Trigger, TriggerSubject};
use serde_json::Value;

use super::names::computed;
use super::open::{ChildOpening, Opener};
use super::task::TaskSpec;
use super::task_end::AgentEnd;
use super::{DecisionBatch, Memo};
use crate::defaults::segment;
use crate::definition::{CompiledResponse, Definition};
use crate::failure_text::clipped;
use crate::params;
use crate::respond::{RespondContext, TaskRequest, evaluate_reply, task_request};
use crate::rules::DecisionRules;
use ktsu_schema::message_at;

/// The code of what could not be evaluated.
const FAILED: &str = "expression_failed";

/// Announces what a responder wants; or fails the responder where that cannot be evaluated.
pub(super) fn announce(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
    task: &TaskContext,
) -> Option<Vec<Draft>> {
    let mut unit = DecisionBatch::new(state, "");
    let request = match with_context(definition, state, memo, |context| {
        task_request(context, task)
    })? {
        Ok(Some(request)) => request,
        Ok(None) => {
            let words = "the responder is not in the definition any more";
            return Some(vec![failed(task, FAILED, words)]);
        }
        Err(error) => return Some(vec![failed(task, FAILED, &error.message)]),
    };
    let attempts = state
        .responding()?
        .task(&task.address)
        .map_or(0, |task| task.attempts);
    match request {
        TaskRequest::Ask(_) => {
            let event = WorkerEvent::Dispatched(WorkerDispatched {
                attempt: attempts + 1,
                item: None,
                step: task.address.to_string(),
            });
            unit.push(Event::Worker(event), vec![task.trigger.seq]);
        }
        TaskRequest::Run {
            workflow,
            params,
            filled,
        } => {
            let given = (workflow.as_str(), params, filled.as_slice());
            match child_params(definition, given, (task, DecisionRules::of(state))) {
                Ok(input) => {
                    let (plan, root) = child_plan(definition, task).zip(state.scope(0))?;
                    let opening = ChildOpening {
                        opener: Opener::Responder,
                        around: root,
                        plan,
                        path: task.address.to_string(),
                        input,
                        cause: task.trigger.seq,
                    };
                    opening.decide(state, &mut unit);
                }
                Err((code, words)) => return Some(vec![failed(task, code, &words)]),
            }
        }
    }
    Some(unit.drafts)
}

/// `responder.failed` of something that could not begin.
fn failed(task: &TaskContext, code: &str, message: &str) -> Draft {
    let event = WorldEvent::Failed(ResponderFailed {
        address: Some(task.address.to_string()),
        code: code.to_owned(),
        entry: None,
        item: task.item,
        message: clipped(message.to_owned()),
        responder: task.responder.to_string(),
    });
    Draft {
        scope: String::new(),
        actor: Actor::Responder(task.responder.to_string()),
        cause: vec![Cause::Here(task.trigger.seq)],
        event: Event::World(event),
    }
}

/// The params of a workflow, with its defaults, if they fit its schema.
fn child_params(
    definition: &Definition,
    (workflow, mut body, filled): (&str, Value, &[String]),
    (task, rules): (&TaskContext, DecisionRules),
) -> Result<BTreeMap<String, StepInput>, (&'static str, String)> {
    let child = definition.workflow(workflow);
    let schema = child.and_then(|child| child.params.as_ref());
    params::without_nulls(schema, &mut body, filled, rules);
    let resolved = params::resolve(schema, body, rules).map_err(|found| {
        let code = crate::airlock::code_of_first(&found, "invalid_params");
        let first = found
            .first()
            .map(|first| message_at(&first.message, &first.pointer));
        let first = first.unwrap_or_default();
        let responder = &task.responder;
        let words = format!("responder {responder} does not fit the params of {workflow}: {first}");
        (code, words)
    })?;
    let Value::Object(members) = resolved else {
        return Ok(BTreeMap::new());
    };
    let from = task.trigger.seq;
    let given = members.iter().map(|(name, value)| {
        let place = format!("/params/{}", segment(name));
        (place, computed(vec![from], value))
    });
    Ok(given.collect())
}

fn child_plan<'d>(definition: &'d Definition, task: &TaskContext) -> Option<&'d ChildPlan> {
    let (_, responder) = definition.worlds()?.responder(&task.responder)?;
    responder.plan.work.child()
}

/// The specification of a question, as its runtime gets it.
pub(super) fn spec(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
    at: StepKey,
) -> Option<TaskSpec> {
    let address = state.step_id(at)?;
    let task = &state.responding()?.task(address)?.context;
    let asked = with_context(definition, state, memo, |context| {
        task_request(context, task)
    })?;
    let Ok(Some(TaskRequest::Ask(messages))) = asked else {
        return None;
    };
    let (plan, name) = ask_plan(definition, task)?;
    let policy = &state.outline().root().plan.policy;
    let of_role = |system: bool| {
        let texts = messages
            .iter()
            .filter(|(role, _)| (*role == "system") == system);
        let texts: Vec<&str> = texts.map(|(_, text)| text.as_str()).collect();
        texts.join("\n\n")
    };
    Some(TaskSpec {
        agent: name.to_owned(),
        system: of_role(true),
        user: of_role(false),
        messages: messages
            .into_iter()
            .map(|(role, text)| (role.to_owned(), text))
            .collect(),
        reflect: None,
        group: policy.group(&plan.group).to_owned(),
        temperature_millionths: plan.temperature_millionths,
        max_tokens: plan.max_tokens,
        max_turns: 1,
        threshold: None,
        schema: plan.output.clone(),
        servers: Vec::new(),
    })
}

fn ask_plan<'d>(definition: &'d Definition, task: &TaskContext) -> Option<(&'d AskPlan, &'d str)> {
    let (_, responder) = definition.worlds()?.responder(&task.responder)?;
    match &responder.plan.work {
        ResponderWork::Ask(plan) => Some((plan, &responder.plan.name)),
        ResponderWork::Emit(_) | ResponderWork::Run(_) => None,
    }
}

/// The frames that are due for a question under way, but for its reply: it is sent out again, or
/// given up.
pub(super) fn advance(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
    at: StepKey,
) -> Option<Vec<Draft>> {
    let address = state.step_id(at)?;
    let task = state.task(at, None)?;
    let mut unit = DecisionBatch::new(state, "");
    let end = |unit: &mut DecisionBatch, code: &str, message: &str| {
        let end = AgentEnd {
            code,
            message,
            reason: FinishReason::Error,
        };
        end.push_in(unit, String::new(), address, None, task);
    };
    match state.ask_action(at)? {
        TaskAction::Dispatch(_) if spec(definition, state, memo, at).is_some() => {
            let event = WorkerEvent::Dispatched(WorkerDispatched {
                attempt: task.attempt + 1,
                item: None,
                step: address.to_owned(),
            });
            unit.push(Event::Worker(event), vec![task.last]);
        }
        TaskAction::Dispatch(_) => {
            end(
                &mut unit,
                FAILED,
                "the question cannot be evaluated any more",
            );
        }
        TaskAction::GiveUp(_) => {
            let message = "no runtime works on it, and none is there to take it over";
            end(&mut unit, "heartbeat_timeout", message);
        }
        TaskAction::Reject(_) => {
            let TaskPhase::ForcedToFail(doomed) = &task.phase else {
                return None;
            };
            end(&mut unit, doomed.code(), &doomed.message());
        }
        TaskAction::Start(_)
        | TaskAction::Reflect(_)
        | TaskAction::Doubt(_)
        | TaskAction::Settle(_)
        | TaskAction::Fail
        | TaskAction::End => return None,
    }
    Some(unit.drafts)
}

/// Whatever is not recorded yet of what a reply comes to, before its responder reacts to it:
/// reserved fields, and the verdict of the air-lock.
pub(super) fn check_reply(
    definition: &Definition,
    state: &RunState,
    trigger: &Trigger,
) -> Option<Vec<Draft>> {
    let TriggerSubject::Reply { task, outcome } = &trigger.subject else {
        return None;
    };
    let (_, responder) = definition.worlds()?.responder(&task.responder)?;
    let CompiledResponse::Ask(ask) = &responder.work else {
        return None;
    };
    ask.output.as_ref()?;
    let at = state.step_at("", &task.address)?;
    let recorded: &AgentTask = state.task(at, None)?;
    let verdict = evaluate_reply(ask, &outcome.to_value(), DecisionRules::of(state));
    let mut unit = DecisionBatch::new(state, "");
    let mut cause = recorded.last;
    let (attempt, step) = (recorded.attempt, task.address.to_string());
    for field in verdict.fields.iter().skip(recorded.evaluated) {
        let event = StepEvent::ReservedEvaluated(ReservedEvaluated {
            attempt,
            field: field.name.to_owned(),
            item: None,
            step: step.clone(),
            value: field.value.clone(),
            verdict: field.verdict,
        });
        cause = unit.push(Event::Step(event), vec![cause]);
    }
    if let Some(errors) = verdict.errors.filter(|_| recorded.checked.is_none()) {
        let event = StepEvent::OutputChecked(OutputChecked {
            attempt,
            valid: errors.is_empty(),
            errors,
            item: None,
            step,
        });
        unit.push(Event::Step(event), vec![cause]);
    }
    (!unit.drafts.is_empty()).then_some(unit.drafts)
}

/// Calls a function with what responders see of the run.
pub(super) fn with_context<T>(
    definition: &Definition,
    state: &RunState,
    memo: &Memo,
    evaluate: impl FnOnce(RespondContext<'_>) -> T,
) -> Option<T> {
    let params = || memo.params(state, 0);
    let goal = || memo.goal(state);
    Some(evaluate(RespondContext {
        worlds: definition.worlds()?,
        params: &params,
        goal: &goal,
        env: &state.created().env,
        rules: DecisionRules::of(state),
        suppresses: state.suppresses_effects(),
    }))
}
