//! The reactions of responders to a trigger: pure functions of the definition, the world as of the
//! trigger, and what a run's state says is next (seed 002).
//!
//! ```text
//! Responding (state) ──next──▶ Announce(task)     a model is to be asked, a workflow to be run
//!                          ├─▶ Frame(draft)       responder.fired, or what an entry made
//!                          └─▶ Rejected(drafts)   an output that is not valid, and its responder
//! ```
//!
//! [`next`] gives one thing at a time; whoever asks appends it, folds it, and asks again. Outputs
//! are made when they are asked for, so a trigger that wants a million of them takes the memory of
//! its items. [`ResponderMemo`] keeps what was evaluated between two questions, so that going through
//! them takes time in proportion to their number; it may be thrown away at any moment, and is, when
//! a process ends.
//!
//! Pieces: `names` what expressions see; `look_up` the names of `with`; `verdict` which candidates
//! react; `output` what an entry makes; `ask` what a reply comes to; `reply` reactions to it.

mod ask;
mod look_up;
mod names;
mod output;
mod reply;
mod verdict;

use std::collections::BTreeMap;
use std::sync::Arc;

use jmespath::Rcvar;
use ktsu_ledger::event::{EnvValue, ResponderFailed, ResponderFired, TaskKind, WorldEvent};
use ktsu_ledger::{Actor, Cause, Draft, Event};
use ktsu_projections::world::derivation::GOAL_ACTOR;
use ktsu_projections::world::responding::OutputPlace;
use ktsu_projections::world::{
    Responding, TaskContext, Trigger, TriggerKey, TriggerSubject, World,
};
use serde_json::Value;

use crate::definition::{CompiledResponder, CompiledResponse, CompiledWorlds};
use crate::expression::EvaluationError;
use crate::rules::DecisionRules;
use crate::template::Template;
use names::ResponderNames;
use output::Maker;
pub(crate) use output::misfit;
pub use verdict::MAX_TASKS;
use verdict::{Evaluated, Evaluation};

pub(crate) use ask::{ReplyEnd, evaluate as evaluate_reply};
pub use look_up::{FoundObjects, InspectedLookup, MAX_COUNTED};

/// The context that all responders of a run share.
#[derive(Clone, Copy)]
pub struct RespondContext<'a> {
    /// The worlds of its definition.
    pub worlds: &'a CompiledWorlds,
    /// Gives its params, an object. They may be large, and few decisions need them.
    pub params: &'a dyn Fn() -> Rcvar,
    /// Gives its goal, if it was given one; see [`goal_of`].
    pub goal: &'a dyn Fn() -> Option<Rcvar>,
    /// Its environment. Secrets are unknown to expressions.
    pub env: &'a BTreeMap<String, EnvValue>,
    /// The rules by which it is decided.
    pub rules: DecisionRules,
    /// True if nothing is sent to other systems.
    pub suppresses: bool,
}

/// The next response of the responders of a run.
#[derive(Debug)]
pub enum Response {
    /// A frame to append.
    Frame(Box<Draft>),
    /// `output.rejected` and `responder.failed`: two frames, in one append. Unless the responder
    /// says `on_error: continue`, the run fails with the second.
    Rejected(Box<[Draft; 2]>),
    /// `responder.failed` alone: what a responder should do could not be evaluated, or what it asked
    /// failed. As with [`Response::Rejected`], the run may fail with it.
    Failed(Box<Draft>),
    /// This task is to be announced. See [`task_request`] for what it asks.
    Announce(Arc<TaskContext>),
}

/// The values that were evaluated of the trigger under way.
#[derive(Debug, Default)]
pub struct ResponderMemo {
    /// The trigger that it is about.
    trigger: Option<u64>,
    /// By candidate.
    candidates: BTreeMap<u32, Evaluation>,
    /// Of the item under way.
    made: Option<ItemMemo>,
    /// Outputs before this one make nothing, as long as the run has no more frames than this.
    passed: Option<OutputPlace>,
    frames: u64,
}

/// The values that entries of an item made.
#[derive(Debug, Default)]
struct ItemMemo {
    /// Candidate and item.
    of: (u32, u32),
    /// By the names that later entries have for it.
    made: BTreeMap<String, Rcvar>,
    /// The first entry that was not looked at.
    next: u32,
}

/// The next response, or `None` until there is another frame.
///
/// Tasks come before outputs that are decided after them.
pub fn next(
    context: RespondContext<'_>,
    responding: &Responding,
    memo: &mut ResponderMemo,
) -> Option<Response> {
    if responding.head().is_exhausted() {
        return None;
    }
    let task = |passed| due_task(context.worlds, responding, passed).map(Response::Announce);
    failed(responding)
        .or_else(|| next_of_goal(context, responding))
        .or_else(|| task(None))
        .or_else(|| next_output(context, responding, memo))
        .or_else(|| task(Some(u32::MAX)))
}

/// `responder.failed` behind an `output.rejected` that a log ends with.
fn failed(responding: &Responding) -> Option<Response> {
    let rejected = responding.rejected()?;
    let current = responding.current();
    let task = current.map(|(trigger, _)| match &trigger.subject {
        TriggerSubject::Reply { task, .. } => (trigger.seq, Some(task)),
        TriggerSubject::Object { .. } | TriggerSubject::Relation(_) | TriggerSubject::Posted(_) => {
            (trigger.seq, None)
        }
    });
    let responder = rejected.derived.responder.as_deref();
    let (trigger, task) = task.filter(|_| responder.is_some()).unzip();
    let failed = ResponderFailed {
        address: task.flatten().map(|task| task.address.to_string()),
        code: rejected.code.clone(),
        entry: Some(rejected.derived.entry),
        item: rejected.derived.item,
        message: rejected.message.clone(),
        responder: responder.unwrap_or(GOAL_ACTOR).to_owned(),
    };
    Some(Response::Failed(Box::new(Draft {
        scope: String::new(),
        actor: actor(responder),
        cause: trigger.map(Cause::Here).into_iter().collect(),
        event: Event::World(WorldEvent::Failed(failed)),
    })))
}

/// The next task to announce: its turn has come, and its responder has not as many under way as it
/// may have. `passed`: candidates of the trigger under way before this one make nothing more.
pub fn due_task(
    worlds: &CompiledWorlds,
    responding: &Responding,
    passed: Option<u32>,
) -> Option<Arc<TaskContext>> {
    let may_start = |task: &&Arc<TaskContext>| {
        let responder = worlds.responder(&task.responder);
        let limit = responder.and_then(|(_, responder)| responder.plan.concurrency);
        limit.is_none_or(|limit| responding.announced_tasks(&task.responder) < limit)
    };
    let due = responding.due_tasks(passed);
    due.into_iter().find(may_start).cloned()
}

/// The next frame of the trigger at the cursor, or of the one behind it.
pub fn next_output(
    context: RespondContext<'_>,
    responding: &Responding,
    memo: &mut ResponderMemo,
) -> Option<Response> {
    let (trigger, world) = responding.current()?;
    let stage = Stage {
        context,
        trigger,
        world,
        head: responding.head(),
    };
    memo.begin(trigger.seq);
    if let TriggerSubject::Reply { task, outcome } = &trigger.subject {
        let next = responding.firing()?.next()?;
        return Some(reply::react(&stage, (task, outcome), next.entry));
    }
    let Some(firing) = responding.firing() else {
        return Some(fired(&stage, responding, memo));
    };
    let mut place = firing
        .next()
        .max(memo.passed.filter(|_| firing.next().is_some()));
    while let Some(at) = place {
        if let Some(reason) = firing.failure(at) {
            return stage.fail(at, reason);
        }
        match stage.output(memo, at) {
            Some(response) => return Some(response),
            None => place = firing.after(at),
        }
        memo.passed = place.or(Some(OutputPlace {
            candidate: u32::MAX,
            item: 0,
            entry: 0,
        }));
        if place.is_none() {
            break;
        }
    }
    let (trigger, world) = responding.after_current()?;
    let stage = Stage {
        context,
        trigger: &trigger,
        world: &world,
        head: responding.head(),
    };
    if let TriggerSubject::Reply { task, outcome } = &trigger.subject {
        return Some(reply::react(&stage, (task, outcome), 0));
    }
    // What is evaluated here is evaluated for this trigger, which is not the current one yet.
    let mut memo = ResponderMemo::default();
    Some(fired(&stage, responding, &mut memo))
}

/// The next frame of what the goal of a run becomes, before anything reacts to it. A run without a
/// goal makes nothing of it.
fn next_of_goal(context: RespondContext<'_>, responding: &Responding) -> Option<Response> {
    let from = responding.next_of_goal()?;
    (context.goal)()?;
    let names = ResponderNames::of_goal(context);
    let maker = Maker {
        context,
        head: responding.head(),
        responder: None,
        cause: Vec::new(),
        key: None,
        trigger: None,
    };
    let mut locals = BTreeMap::new();
    for (at, entry) in (0u32..).zip(context.worlds.goal()) {
        let made = maker.make(entry, (None, at), &names.with_locals(&locals));
        let made = match made {
            Ok(made) => made,
            Err(refused) if at >= from => return Some(maker.refuse((None, at), None, refused)),
            Err(_) => None,
        };
        let Some(made) = made else {
            continue;
        };
        if let Some(event) = made.event.filter(|_| at >= from) {
            return Some(Response::Frame(Box::new(maker.draft(event))));
        }
        if let Some(name) = &entry.as_name {
            locals.insert(name.clone(), made.shown);
        }
    }
    None
}

/// A trigger, the world as of it, and the world at the head.
struct Stage<'a> {
    context: RespondContext<'a>,
    trigger: &'a Arc<Trigger>,
    world: &'a World,
    head: &'a World,
}

/// The goal among the params of a run, if it was given one.
pub fn goal_of(params: &Rcvar) -> Option<Rcvar> {
    let goal = params.as_object()?.get("goal")?;
    goal.is_string().then(|| goal.clone())
}

impl ResponderMemo {
    /// The run has so many frames. What made nothing before the last of them might make something now.
    pub fn at(&mut self, frames: u64) {
        if self.frames != frames {
            self.frames = frames;
            self.passed = None;
        }
    }

    fn begin(&mut self, trigger: u64) {
        if self.trigger != Some(trigger) {
            *self = Self {
                trigger: Some(trigger),
                frames: self.frames,
                ..Self::default()
            };
        }
    }
}

/// `responder.fired`: evaluates every candidate that does not wait.
fn fired(stage: &Stage<'_>, responding: &Responding, memo: &mut ResponderMemo) -> Response {
    let mut candidates = Vec::new();
    let mut timers = 0;
    for (at, place) in (0u32..).zip(&stage.trigger.candidates) {
        let Some(responder) = stage.context.worlds.responders().get(*place as usize) else {
            continue;
        };
        let sets_timer = responding.sets_timer(stage.trigger, *place, timers);
        let evaluated = verdict::judge(stage, responder, sets_timer);
        timers += usize::from(matches!(evaluated, Evaluated::Postponed));
        candidates.push(evaluated.candidate(responder));
        if let Evaluated::Fired(evaluation) = evaluated {
            memo.candidates.insert(at, evaluation);
        }
    }
    let event = WorldEvent::Fired(ResponderFired { candidates });
    Response::Frame(Box::new(Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: vec![Cause::Here(stage.trigger.seq)],
        event: Event::World(event),
    }))
}

impl<'a> Stage<'a> {
    /// One output, or nothing where its entry makes nothing.
    fn output(&self, memo: &mut ResponderMemo, at: OutputPlace) -> Option<Response> {
        let place = self.trigger.candidates.get(at.candidate as usize)?;
        let responder = self.context.worlds.responders().get(*place as usize)?;
        let CompiledResponse::Emit(entries) = &responder.work else {
            return None;
        };
        let evaluation = match memo.candidates.entry(at.candidate) {
            std::collections::btree_map::Entry::Occupied(known) => known.into_mut(),
            // After a restart, and only then.
            std::collections::btree_map::Entry::Vacant(vacant) => {
                match verdict::evaluate(self, responder) {
                    Evaluated::Fired(evaluation) => vacant.insert(evaluation),
                    Evaluated::False
                    | Evaluated::Failed(_)
                    | Evaluated::ItemsFailed(_)
                    | Evaluated::Postponed => return None,
                }
            }
        };
        let item = evaluation.item(at.item);
        let numbered = evaluation.items.is_some().then_some(at.item);
        let names = ResponderNames::of_trigger(self.context, self.trigger, self.world)
            .with_locals(&evaluation.found)
            .with_item(item, at.item);
        let maker = self.maker(&responder.plan.name);
        let of = (at.candidate, at.item);
        // The same output may be asked for again, where a bound ended a turn before it.
        let again = |known: &ItemMemo| known.of == of && known.next <= at.entry;
        let known = memo.made.take().filter(again);
        let ItemMemo {
            mut made, mut next, ..
        } = known.unwrap_or_default();
        let mut result = Ok(None);
        // Names of earlier entries are made again after a restart: they follow from the trigger.
        for (number, entry) in (0u32..).zip(entries).skip(next as usize) {
            if number > at.entry {
                break;
            }
            next = number + 1;
            if number < at.entry && entry.as_name.is_none() {
                continue;
            }
            let names = names.with_locals(&made);
            let one = maker.make(entry, (numbered, number), &names);
            let shown = one
                .as_ref()
                .ok()
                .and_then(Option::as_ref)
                .map(|one| one.shown.clone());
            if let (Some(name), Some(shown)) = (&entry.as_name, shown) {
                made.insert(name.clone(), shown);
            }
            if number == at.entry {
                result = one;
            }
        }
        memo.made = Some(ItemMemo { of, made, next });
        match result {
            Ok(made) => {
                let event = made.and_then(|made| made.event)?;
                Some(Response::Frame(Box::new(maker.draft(event))))
            }
            Err(refused) => Some(maker.refuse((numbered, at.entry), None, refused)),
        }
    }

    /// `responder.failed` of a candidate whose items could not be evaluated.
    fn fail(&self, at: OutputPlace, reason: &str) -> Option<Response> {
        let candidate = self.trigger.candidates.get(at.candidate as usize)?;
        let responder = self.context.worlds.responders().get(*candidate as usize)?;
        let name = &responder.plan.name;
        let failed = WorldEvent::Failed(ResponderFailed {
            address: None,
            code: "expression_failed".to_owned(),
            entry: None,
            item: None,
            message: reason.to_owned(),
            responder: name.clone(),
        });
        let draft = self.maker(name).draft(failed);
        Some(Response::Failed(Box::new(draft)))
    }

    fn maker<'m>(&'m self, responder: &'m str) -> Maker<'m>
    where
        'a: 'm,
    {
        Maker {
            context: self.context,
            head: self.head,
            responder: Some(responder),
            cause: vec![Cause::Here(self.trigger.seq)],
            key: Some(&self.trigger.key),
            trigger: None,
        }
    }
}

/// The content of a task: what it asks of a model, or gives to a workflow.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskRequest {
    /// Messages for a model, `(role, text)`, in order. Group, limits and schema are in the plan.
    Ask(Vec<(&'static str, String)>),
    /// The params of a workflow, a key of the plan's workflows.
    Run {
        /// The workflow.
        workflow: String,
        /// An object.
        params: Value,
        /// The places in it that an expression filled.
        filled: Vec<String>,
    },
}

/// Renders what a task asks, from the world as of its trigger: the same whenever it is asked.
///
/// # Errors
/// [`EvaluationError`]: the task fails with it.
pub fn task_request(
    context: RespondContext<'_>,
    task: &TaskContext,
) -> Result<Option<TaskRequest>, EvaluationError> {
    let Some((_, responder)) = context.worlds.responder(&task.responder) else {
        return Ok(None);
    };
    let stage = Stage {
        context,
        trigger: &task.trigger,
        world: &task.world,
        head: &task.world,
    };
    let Evaluated::Fired(evaluation) = verdict::evaluate(&stage, responder) else {
        return Ok(None);
    };
    let item = task.item.unwrap_or_default();
    let names = ResponderNames::of_trigger(context, &task.trigger, &task.world)
        .with_locals(&evaluation.found)
        .with_item(evaluation.item(item), item);
    let render = |template: &Template| {
        let rendered = template.render(&names, &|name| names.is_secret(name), context.rules)?;
        Ok::<Value, EvaluationError>(rendered.value)
    };
    match (&responder.work, task.kind) {
        (CompiledResponse::Ask(ask), TaskKind::Ask) => {
            let messages = ask.messages.iter().map(|(role, content)| {
                let content = render(content)?;
                Ok((
                    role.as_str(),
                    crate::template::text_of(&content, context.rules),
                ))
            });
            let messages = messages.collect::<Result<_, EvaluationError>>()?;
            Ok(Some(TaskRequest::Ask(messages)))
        }
        (CompiledResponse::Run { workflow, params }, TaskKind::Run) => {
            let rendered = params.as_ref().map(render).transpose()?;
            let filled = params.as_ref().map(Template::expression_pointers);
            Ok(Some(TaskRequest::Run {
                workflow: workflow.clone(),
                params: rendered.unwrap_or_else(|| Value::Object(serde_json::Map::new())),
                filled: filled.unwrap_or_default(),
            }))
        }
        _ => Ok(None),
    }
}

/// The results of the look-ups of a responder for a trigger in a world: the one as of the trigger,
/// or for a reaction to a reply the one as of the reply.
///
/// # Errors
/// [`EvaluationError`] of the first that cannot be evaluated.
pub fn inspect_lookups(
    context: RespondContext<'_>,
    responder: &CompiledResponder,
    (trigger, world): (&Trigger, &World),
) -> Result<Vec<InspectedLookup>, EvaluationError> {
    let names = ResponderNames::of_trigger(context, trigger, world);
    look_up::inspect(responder, &names, world, context.rules)
}

/// The actor of what a responder makes, or of what the goal becomes.
fn actor(responder: Option<&str>) -> Actor {
    Actor::Responder(responder.unwrap_or(GOAL_ACTOR).to_owned())
}

/// The key of an output: of a trigger, or of the goal of a run.
fn output_key(
    trigger: Option<&TriggerKey>,
    responder: Option<&str>,
    at: (Option<u32>, u32),
) -> TriggerKey {
    match (trigger, responder) {
        (Some(trigger), Some(responder)) => trigger.output(responder, at.0, at.1),
        _ => TriggerKey::goal(at.1),
    }
}

#[cfg(test)]
mod failed_tests;
#[cfg(test)]
mod loop_tests;
#[cfg(test)]
mod worlds_tests;
