//! A recorded run under another definition: its recorded inputs are given to new decisions wherever
//! they fit.
//!
//! An input is matched by subject, not by number: scope, step, item, attempt, purpose or sending.
//! One that does not fit yet waits until it does; one that never fits is left over. Effects of the
//! new definition without a recorded answer stay unanswered: nothing is called.

mod compare;
mod divergence;
mod locate;
mod policies;
mod renumber;

pub use compare::compare;
pub use divergence::{Divergence, DivergenceKind};

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ktsu_ledger::event::{
    ContinueReason, EnvValue, PersonEvent, Role, RunCreated, RunEvent, WorkerEvent, WorldEvent,
};
use ktsu_ledger::{CanonicalJson, Cause, Draft, Event, Frame, Hash, Timestamp};
use ktsu_projections::run::{RunState, StepStatus, TaskId};
use ktsu_projections::world::Responding;
use ktsu_projections::world::activity::is_address;
use serde_json::{Map, Value};

use super::definition::Definition;
use super::next::{Memo, TaskSpec, task_spec};
use super::params;
use super::redecide::{Redecider, split_input, to_draft};
use super::replay::Definitions;
use super::rules::DecisionRules;
use super::timers;
use super::turn::{InvariantViolation, Turn, continuation, link_for};
use ktsu_schema::message_at;

/// A task: scope, step, item, attempt.
pub type TaskAttemptKey = (String, String, Option<u32>, u32);

/// A run as it would have gone.
#[derive(Debug)]
pub struct Simulation {
    /// The frames that would have been recorded.
    pub frames: Vec<Frame>,
    /// The specification that the runtime would have got of each task that was sent out.
    pub task_specs: BTreeMap<TaskAttemptKey, TaskSpec>,
    /// Recorded inputs that found no place.
    pub unused_inputs: Vec<Frame>,
    /// The state in which it ended, or in which it waits.
    pub state: RunState,
}

/// The reason why a run cannot be tried.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SimulationError {
    /// It does not begin with an invocation of its own.
    #[error("it does not begin with run.created: only runs can be simulated, not branches")]
    NoInvocation,
    /// A person changed it on the way.
    #[error("frame {0}: {1} changes the run; only runs without interventions can be simulated")]
    Disturbed(u64, String),
    /// The new definition would not have taken the invocation.
    #[error("the invocation would be refused: {0}")]
    Refused(String),
    /// A promise of ours that did not hold.
    #[error("{0}")]
    Broken(String),
}

/// Tries a recorded run under a definition. `recorded_as` is the one it was recorded under.
///
/// # Errors
/// [`SimulationError`].
pub fn simulate(
    recorded: &[Frame],
    recorded_as: &Definition,
    definition: &Arc<Definition>,
) -> Result<Simulation, SimulationError> {
    let Some((first, rest)) = recorded.split_first() else {
        return Err(SimulationError::NoInvocation);
    };
    let Event::Run(RunEvent::Created(created)) = &first.event else {
        return Err(SimulationError::NoInvocation);
    };
    let created = adapted_invocation(created, recorded_as, definition)?;
    let draft = Draft {
        event: Event::Run(RunEvent::Created(Box::new(created))),
        ..to_draft(first)
    };
    let begun = Redecider::begin(Arc::clone(definition), first, draft);
    take_inputs(recorded, rest, begun, recorded_as, None)
}

/// Decides a recorded run again under its own definitions, with everything that people did to it.
/// Its inputs may have been replaced by others with the same subjects: by other replies, say.
///
/// # Errors
/// [`SimulationError`].
pub fn redecide(
    recorded: &[Frame],
    definitions: &mut Definitions,
) -> Result<Simulation, SimulationError> {
    let Some((first, rest)) = recorded.split_first() else {
        return Err(SimulationError::NoInvocation);
    };
    let mut introduced = HashMap::new();
    for frame in recorded {
        let brought = definitions.introduced_by(frame);
        let brought = brought.map_err(|error| SimulationError::Broken(error.to_string()))?;
        introduced.extend(brought.map(|definition| (frame.seq, definition)));
    }
    let definition = introduced.get(&first.seq);
    let definition = Arc::clone(definition.ok_or(SimulationError::NoInvocation)?);
    let begun = Redecider::begin(Arc::clone(&definition), first, to_draft(first));
    take_inputs(recorded, rest, begun, &definition, Some(introduced))
}

/// Takes everything that is recorded behind the invocation. `introduced`: what people did to the run is
/// taken, too, and these are the definitions that frames bring.
fn take_inputs(
    recorded: &[Frame],
    rest: &[Frame],
    begun: Result<(Redecider, Turn), InvariantViolation>,
    recorded_as: &Definition,
    introduced: Option<HashMap<u64, Arc<Definition>>>,
) -> Result<Simulation, SimulationError> {
    let (run, turn) = begun.map_err(|broken| SimulationError::Broken(broken.to_string()))?;
    let mut stage = Simulator {
        run,
        frames: Vec::new(),
        task_specs: BTreeMap::new(),
        recorded,
        recorded_as,
        numbers: HashMap::from([(0, 0)]),
        introduced,
    };
    stage.record_turn(turn)?;
    let mut waiting: Vec<&[Frame]> = Vec::new();
    let mut left: Vec<Frame> = Vec::new();
    let (mut rest, mut ended) = (rest, false);
    while let (input @ [frame, ..], after) = split_input(rest) {
        rest = after;
        if frame.event.role() == Role::Input {
            stage.fire_timers(frame, after)?;
        }
        match &frame.event {
            // Those of the new definition fire by its own.
            event if waits_no_more(event).is_some() => continue,
            Event::Run(RunEvent::Continued(again)) => {
                if again.why == ContinueReason::Idle {
                    ended = true;
                    stage.end_if_idle()?;
                }
                continue;
            }
            event if event.role() == Role::Decision => continue,
            event if is_intervention(event) && stage.introduced.is_none() => {
                let kind = frame.event.kind().to_owned();
                return Err(SimulationError::Disturbed(frame.seq, kind));
            }
            _ => waiting.push(input),
        }
        stage.feed(&mut waiting, &mut left)?;
    }
    let failed = recorded.iter().any(|frame| {
        frame.scope.is_empty() && matches!(frame.event, Event::Run(RunEvent::Failed(_)))
    });
    if ended || failed {
        // It may have more to do than it had when it was recorded, or go on where that failed.
        while stage.fire_timer(None)? {}
        stage.end_if_idle()?;
    }
    left.extend(waiting.into_iter().flatten().cloned());
    Ok(Simulation {
        frames: stage.frames,
        task_specs: stage.task_specs,
        unused_inputs: left,
        state: stage.run.state,
    })
}

/// The responder that had waited long enough, if an input says so.
fn waits_no_more(event: &Event) -> Option<&str> {
    let Event::Run(RunEvent::TimerFired(fired)) = event else {
        return None;
    };
    fired.responder.as_deref()
}

/// Returns `true` if a person changed the course of a run with an input that the run did not ask
/// for.
pub fn is_intervention(event: &Event) -> bool {
    let changes_course = matches!(
        event,
        Event::Run(RunEvent::Resumed(_))
            | Event::Person(PersonEvent::OverlaySet(_))
            | Event::World(WorldEvent::BudgetRaised(_))
    );
    changes_course || event.branched().is_some()
}

/// The invocation, as the new definition would have taken it: a param that had its default is
/// taken for one that was not given.
fn adapted_invocation(
    created: &RunCreated,
    recorded_as: &Definition,
    definition: &Definition,
) -> Result<RunCreated, SimulationError> {
    let Some(root) = definition.root() else {
        return Err(SimulationError::Refused("there is no root".to_owned()));
    };
    let mut given = created.params.to_value();
    let before = recorded_as
        .root()
        .and_then(|root| root.plan.params.as_ref());
    if let (Some(schema), Value::Object(given)) = (before, &mut given) {
        without_defaults(&schema.to_value(), given);
    }
    let rules = DecisionRules::from_recorded(created.rules);
    let rules = rules.map_err(|unknown| SimulationError::Refused(unknown.to_string()))?;
    let resolved = params::resolve(root.params.as_ref(), given, rules).map_err(|found| {
        let words = found
            .iter()
            .map(|one| message_at(&one.message, &one.pointer));
        SimulationError::Refused(words.collect::<Vec<_>>().join("; "))
    })?;
    let mut env = created.env.clone();
    for variable in &root.plan.env {
        if env.contains_key(&variable.name) {
            continue;
        }
        let value = match (variable.secret, &variable.default) {
            (true, _) => EnvValue::Secret,
            (false, Some(default)) => EnvValue::Value(default.clone()),
            (false, None) => continue,
        };
        env.insert(variable.name.clone(), value);
    }
    env.retain(|name, _| root.plan.env.iter().any(|one| one.name == *name));
    Ok(RunCreated {
        definition: definition.json.clone(),
        digest: definition.digest.clone(),
        env,
        params: CanonicalJson::from_value(&resolved)
            .map_err(|unfit| SimulationError::Refused(unfit.to_string()))?,
        version: root.plan.version.clone(),
        workflow: root.plan.name.clone(),
        ..created.clone()
    })
}

fn without_defaults(schema: &Value, given: &mut Map<String, Value>) {
    let properties = schema.get("properties").and_then(Value::as_object);
    for (name, property) in properties.into_iter().flatten() {
        let default = property.get("default");
        if default.is_some() && given.get(name) == default {
            given.remove(name);
        }
    }
}

/// A run while it is tried.
struct Simulator<'a> {
    run: Redecider,
    frames: Vec<Frame>,
    task_specs: BTreeMap<TaskAttemptKey, TaskSpec>,
    recorded: &'a [Frame],
    recorded_as: &'a Definition,
    /// The numbers that recorded inputs have here, and recorded decisions that inputs name.
    numbers: HashMap<u64, u64>,
    /// The definitions that frames bring, where what people did to the run is taken.
    introduced: Option<HashMap<u64, Arc<Definition>>>,
}

impl Simulator<'_> {
    /// Gives whatever fits, in recorded order, until nothing fits any more. Only the last one has
    /// not been tried: the others did not fit, and nothing was decided since.
    fn feed(
        &mut self,
        waiting: &mut Vec<&[Frame]>,
        left: &mut Vec<Frame>,
    ) -> Result<(), SimulationError> {
        let mut at = waiting.len().saturating_sub(1);
        while let Some(input) = waiting.get(at).copied() {
            if self.can_never_apply(input) {
                left.extend(waiting.remove(at).iter().cloned());
            } else if self.try_input(input)? {
                waiting.remove(at);
                // What was decided may have made room for an earlier one.
                at = 0;
            } else {
                at += 1;
            }
        }
        Ok(())
    }

    /// Returns `true` if an input can never fit: its subject has ended, or is not there.
    fn can_never_apply(&self, input: &[Frame]) -> bool {
        let Some(first) = input.first() else {
            return true;
        };
        if first.event.posted().is_some() {
            return !self.run.state.takes_posts();
        }
        // A person takes up what has ended.
        if is_intervention(&first.event) {
            return false;
        }
        if self.run.state.status().is_terminal() {
            return true;
        }
        let data = first.event.data();
        let step = data.get("step").and_then(Value::as_str);
        let path = first.scope.split('/').filter(|part| !part.is_empty());
        let mut scope = String::new();
        for step in path.chain(step) {
            let Some(held) = self.run.state.scope_at(&scope) else {
                return false;
            };
            let Some(held) = self.run.state.scope(held) else {
                return false;
            };
            if scope.is_empty() && is_address(step) {
                // A responder may still ask or run it.
                scope.push_str(step);
                continue;
            }
            // A command of an item runs within `STEP.INDEX`.
            let id = step.split_once('.').map_or(step, |(id, _)| id);
            let Some(position) = held.shape.position(id) else {
                return true;
            };
            let status = held.steps.get(position as usize).map(|step| step.status);
            let over = !matches!(status, Some(StepStatus::Pending | StepStatus::Running));
            if over {
                return true;
            }
            if !scope.is_empty() {
                scope.push('/');
            }
            scope.push_str(step);
        }
        false
    }

    /// Gives an input, if the state takes it.
    fn try_input(&mut self, input: &[Frame]) -> Result<bool, SimulationError> {
        let Some(first) = input.first() else {
            return Ok(false);
        };
        let at = first.at.max(self.run.state.at());
        let drafts: Vec<Draft> = input
            .iter()
            .map(|frame| self.renumbered(frame, input))
            .collect();
        let Some(draft) = drafts.first().cloned() else {
            return Ok(false);
        };
        let broken = |error: &dyn std::fmt::Display| SimulationError::Broken(error.to_string());
        let link = link_for(&self.run.state, &draft);
        let sealed = draft.seal(link, at).map_err(|error| broken(&error))?;
        if self.run.state.check(&sealed.frame).is_err() {
            return Ok(false);
        }
        // A report is taken whole or not at all.
        let before = (input.len() > 1).then(|| self.run.state.clone());
        let seq = self.run.state.next_seq();
        match (self.run.decide(drafts, at), before) {
            (Ok(turn), _) => {
                let numbers = input.iter().map(|frame| frame.seq).zip(seq..);
                self.numbers.extend(numbers);
                let introduced = self.introduced.as_ref();
                if let Some(definition) = introduced.and_then(|all| all.get(&first.seq)) {
                    self.run.definition = Arc::clone(definition);
                }
                self.record_turn(turn)?;
                Ok(true)
            }
            (Err(_), Some(before)) => {
                self.run.state = before;
                self.run.memo = Memo::default();
                Ok(false)
            }
            (Err(error), None) => Err(broken(&error)),
        }
    }

    /// A recorded input with the numbers that what it names has here.
    fn renumbered(&self, frame: &Frame, report: &[Frame]) -> Draft {
        let here = |seq: u64| {
            let within = report.iter().position(|one| one.seq == seq);
            within
                .map(|at| self.run.state.next_seq() + at as u64)
                .or_else(|| self.numbers.get(&seq).copied())
        };
        let mut draft = to_draft(frame);
        let causes = frame.cause.iter().filter_map(|cause| match cause {
            Cause::Here(seq) => here(*seq).map(Cause::Here),
            Cause::There(..) => None,
        });
        draft.cause = causes.collect();
        renumber::renumber(&mut draft.event, here);
        if let Event::Run(RunEvent::Branched(branch)) = &mut draft.event {
            branch.fork_position = self.run.state.next_seq();
        }
        draft
    }

    /// Keeps what a turn came to, and what was told to whoever was sent out; goes on where a bound
    /// ended it.
    fn record_turn(&mut self, turn: Turn) -> Result<(), SimulationError> {
        let mut turn = turn;
        loop {
            for sealed in turn.sealed {
                self.record_task_spec(&sealed.frame);
                let answered = renumber::answered(&sealed.frame, self.recorded, &self.numbers);
                self.numbers.extend(answered);
                self.frames.push(sealed.frame);
            }
            if !turn.more {
                return Ok(());
            }
            let draft = continuation(&self.run.state, ContinueReason::Bound);
            let next = self.run.decide(vec![draft], self.run.state.at());
            turn = next.map_err(|broken| SimulationError::Broken(broken.to_string()))?;
        }
    }

    /// Fires the timers of responders that were due when an input came, but for those that fire later
    /// in the record: an engine may be late.
    fn fire_timers(&mut self, input: &Frame, rest: &[Frame]) -> Result<(), SimulationError> {
        let fires_now = waits_no_more(&input.event).is_some();
        loop {
            let next = self.run.state.responding().and_then(Responding::next_timer);
            let Some(next) = next else { return Ok(()) };
            let of_next = |frame: &Frame| waits_no_more(&frame.event) == Some(next.responder);
            let before = self.recorded_as.worlds();
            let before = before.and_then(|all| all.responder(next.responder));
            let as_before = before.is_some_and(|(_, one)| one.plan.after_ms == Some(next.after_ms));
            let is_late = !fires_now && as_before && rest.iter().any(of_next);
            if next.due > input.at || is_late {
                return Ok(());
            }
            if !self.fire_timer(Some(input.at))? || fires_now {
                return Ok(());
            }
        }
    }

    /// Fires the next timer of a responder, at some moment or when it is due. Whether there was one
    /// that may fire.
    fn fire_timer(&mut self, at: Option<Timestamp>) -> Result<bool, SimulationError> {
        let state = &self.run.state;
        let Some(next) = state.responding().and_then(Responding::next_timer) else {
            return Ok(false);
        };
        let draft = timers::responder_waited(&next);
        let at = at.unwrap_or(next.due).max(state.at());
        let broken = |error: &dyn std::fmt::Display| SimulationError::Broken(error.to_string());
        let sealed = draft.clone().seal(state.link(), at);
        let sealed = sealed.map_err(|error| broken(&error))?;
        if state.check(&sealed.frame).is_err() {
            return Ok(false);
        }
        let turn = self.run.decide(vec![draft], at);
        self.record_turn(turn.map_err(|error| broken(&error))?)?;
        Ok(true)
    }

    /// Ends a run that loads worlds, if nothing is due in it.
    fn end_if_idle(&mut self) -> Result<(), SimulationError> {
        if !self.run.state.worlds_are_idle() {
            return Ok(());
        }
        let draft = continuation(&self.run.state, ContinueReason::Idle);
        let turn = self.run.decide(vec![draft], self.run.state.at());
        self.record_turn(turn.map_err(|broken| SimulationError::Broken(broken.to_string()))?)
    }

    fn record_task_spec(&mut self, frame: &Frame) {
        let Event::Worker(WorkerEvent::Dispatched(sent)) = &frame.event else {
            return;
        };
        let place = self.run.state.step_at(&frame.scope, &sent.step);
        let Some(step) = place else { return };
        let told = task_spec(
            &self.run.definition,
            &self.run.state,
            &self.run.memo,
            TaskId {
                step,
                item: sent.item,
            },
        );
        let name = (
            frame.scope.clone(),
            sent.step.clone(),
            sent.item,
            sent.attempt,
        );
        self.task_specs.extend(told.map(|told| (name, told)));
    }
}

/// The head of the simulated run; equal to the recorded one if nothing differs and no turn was cut.
pub fn head(rehearsal: &Simulation) -> Hash {
    rehearsal.state.link().prev
}

#[cfg(test)]
mod tests;
