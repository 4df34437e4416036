//! The difference that the new replies of a recompute would make to the world of its run: which
//! objects and relations would differ.
//!
//! ```text
//! history ─redecide─────────────────────────▶ world ─┐
//! history ─new replies in their place─redecide─▶ world ┴─▶ what differs
//! ```
//!
//! Nothing is called and nothing recorded. Posts, what people did, and replies that are not recomputed
//! stay what they were. What responders would ask because of a new reply has no answer: it is named.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ktsu_ledger::event::{AgentEvent, AgentFinished, PersonEvent, RecomputeCompared, Sameness};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::{FoldError, RunState, TaskId};
use ktsu_projections::step_name::path_in;
use ktsu_projections::world::{ResponderTaskPhase, Responding, World, WorldComparison};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RecordedRun;
use super::questions::{ASKS, address};
use crate::effects::{EffectKind, effects_due};
use crate::replay::Definitions;
use crate::simulate::{Simulation, is_intervention, redecide};

/// The report of a recompute about the world of its run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecomputedWorld {
    /// The differences of the world, had the new replies come in the place of the recorded ones.
    pub diff: WorldComparison,
    /// The reason why nothing is said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The status of the run, if it would be another.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<StatusChange>,
    /// The questions and steps that would be asked or done, and have no recorded answer: addresses
    /// of questions, paths of steps.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_ask: Vec<String>,
    /// The tasks and questions that would be asked with other words. The reply is the one to the
    /// recorded words, so what follows from it may be different again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_ask_otherwise: Vec<String>,
    /// The questions and steps that would not be asked or done any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub would_not_ask: Vec<String>,
    /// Recorded posts, and what else people did, that would find no place: `post 2`, `run.resumed`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unused: Vec<String>,
    /// The tasks and questions of the run that this recompute did not ask again, since the run
    /// recorded no end of them. Empty if one step was requested.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_recomputed: Vec<String>,
    /// New replies that are not among what decided this: the call failed, or the engine had ended the
    /// recorded one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_applied: Vec<String>,
}

/// The status of a run, and the one that it would have.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StatusChange {
    /// `complete`, `failed`, …
    pub before: String,
    /// Likewise.
    pub after: String,
    /// The error with which it would fail, if it would: `code: message`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A task of the run: scope, step, item.
type TaskKey = (String, String, Option<u32>);

/// The difference that the replies of a recompute would make to the world of its run, or `None` if
/// that loads none. `history` ends where the recompute was made.
///
/// # Errors
/// [`FoldError`] if one of the two does not fold.
pub fn recomputed_world(
    history: &[Frame],
    fresh: &[Frame],
    compared: &RecomputeCompared,
) -> Result<Option<RecomputedWorld>, FoldError> {
    let state = RunState::fold(history)?;
    let Some(responding) = state.responding() else {
        return Ok(None);
    };
    let mut found = RecomputedWorld {
        not_recomputed: not_recomputed(history, fresh, compared)?,
        ..RecomputedWorld::default()
    };
    let replies = replies(fresh, compared, &mut found.not_applied);
    if replies.is_empty() {
        return Ok(Some(found));
    }
    let replaced = replaced(history, replies, &mut found.not_applied);
    let mut definitions = Definitions::default();
    let base = redecide(history, &mut definitions);
    let new = base.and_then(|base| Ok((base, redecide(&replaced, &mut definitions)?)));
    let (base, new) = match new {
        Ok(both) => both,
        Err(error) => {
            found.reason = Some(format!("the run cannot be decided again: {error}"));
            return Ok(Some(found));
        }
    };
    if !WorldComparison::between(responding.head(), &world(&base)).is_empty() {
        let words = "the run does not come to its recorded world when it is decided again";
        found.reason = Some(words.to_owned());
        return Ok(Some(found));
    }
    found.diff = WorldComparison::between(&world(&base), &world(&new));
    found.would_ask_otherwise = asked_otherwise(&base, &new);
    let (was, is) = (unanswered(&base.state), unanswered(&new.state));
    found.would_ask = is.difference(&was).cloned().collect();
    let ((asked, posted), (not_asked, not_posted)) = (unused(&base), unused(&new));
    found.would_not_ask = not_asked.difference(&asked).cloned().collect();
    found.unused = not_posted.difference(&posted).cloned().collect();
    let (before, after) = (base.state.status(), new.state.status());
    found.status = (before != after).then(|| StatusChange {
        before: before.as_str().to_owned(),
        after: after.as_str().to_owned(),
        error: new
            .state
            .failing()
            .map(|failed| format!("{}: {}", failed.code, failed.message)),
    });
    Ok(Some(found))
}

fn world(run: &Simulation) -> World {
    let responding = run.state.responding();
    responding.map_or_else(World::default, |responding| responding.head().clone())
}

/// The tasks and questions that an agent or a model was asked in the run, and not in its recompute.
fn not_recomputed(
    history: &[Frame],
    fresh: &[Frame],
    compared: &RecomputeCompared,
) -> Result<Vec<String>, FoldError> {
    let created = fresh.first().and_then(|first| first.event.created());
    if created.is_some_and(|created| created.of.as_ref().is_some_and(|of| of.step.is_some())) {
        return Ok(Vec::new());
    }
    let recorded = RecordedRun::from_frames(history)?;
    let tasks = recorded.tasks.iter().filter(|task| task.dispatched);
    let tasks = tasks.map(|task| (task.path(), task.item));
    let asks = recorded.asks.iter().map(|ask| (ask.address.clone(), None));
    let again = |(path, item): &(String, Option<u32>)| {
        let mut again = compared.tasks.iter();
        again.any(|task| task.step == *path && task.item == *item)
    };
    let left = tasks.chain(asks).filter(|task| !again(task));
    let names = left.map(|(path, item): (String, Option<u32>)| item_name(&path, item));
    Ok(names.collect())
}

/// The ends of tasks that come in the place of the recorded ones.
fn replies(
    fresh: &[Frame],
    compared: &RecomputeCompared,
    not_applied: &mut Vec<String>,
) -> BTreeMap<TaskKey, AgentFinished> {
    let mut ends = HashMap::new();
    for frame in fresh {
        if let Some(end) = frame.event.finished() {
            ends.insert((end.step.as_str(), end.item), end);
        }
    }
    let mut replies = BTreeMap::new();
    for asked in again(fresh) {
        let mut tasks = compared.tasks.iter();
        let task = tasks.find(|task| task.step == asked.path && task.item == asked.item);
        let end = ends.get(&(asked.step.as_str(), asked.place)).copied();
        match (task.map(|task| task.status), end) {
            (Some(Sameness::Clean) | None, _) => {}
            (Some(Sameness::Failed), _) | (Some(_), None) => {
                not_applied.push(item_name(&asked.path, asked.item));
            }
            (Some(_), Some(end)) => {
                replies.insert(asked.key(), end.clone());
            }
        }
    }
    replies
}

/// A task of a run, and the task of its recompute.
struct AskedAgain {
    path: String,
    item: Option<u32>,
    step: String,
    place: Option<u32>,
}

impl AskedAgain {
    fn key(&self) -> TaskKey {
        let inner = self.path.rsplit_once('/');
        let (scope, step) = inner.unwrap_or(("", &self.path));
        (scope.to_owned(), step.to_owned(), self.item)
    }
}

/// The tasks and questions of a recompute, as its first frame has them.
fn again(fresh: &[Frame]) -> Vec<AskedAgain> {
    let created = fresh.first().and_then(|first| first.event.created());
    let params = created.map_or(Value::Null, |created| created.params.to_value());
    let number = |value: &Value| u32::try_from(value.as_u64()?).ok();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for (id, step) in params["steps"].as_object().into_iter().flatten() {
        let tasks = step["tasks"].as_array().into_iter().flatten();
        all.extend((0u32..).zip(tasks).map(|(place, task)| AskedAgain {
            path: text(&step["step"]),
            item: number(&task["item"]),
            step: id.clone(),
            place: Some(place),
        }));
    }
    for (responder, asks) in params[ASKS].as_object().into_iter().flatten() {
        let asks = asks.as_array().into_iter().flatten();
        all.extend((0u32..).zip(asks).map(|(place, ask)| AskedAgain {
            path: text(&ask["step"]),
            item: None,
            step: address(responder, place),
            place: None,
        }));
    }
    all
}

/// A history with other ends of its tasks, each in the place of the last that a runtime reported.
fn replaced(
    history: &[Frame],
    mut replies: BTreeMap<TaskKey, AgentFinished>,
    not_applied: &mut Vec<String>,
) -> Vec<Frame> {
    let mut frames = history.to_vec();
    for frame in frames.iter_mut().rev() {
        let Event::Agent(AgentEvent::Finished(end)) = &mut frame.event else {
            continue;
        };
        let key = (frame.scope.clone(), end.step.clone(), end.item);
        if end.report.is_none() {
            continue;
        }
        if let Some(reply) = replies.remove(&key) {
            end.outcome = reply.outcome;
            end.reason = reply.reason;
            end.metrics = reply.metrics;
        }
    }
    let left = replies.into_keys();
    not_applied.extend(left.map(|(scope, step, item)| item_name(&path_in(&scope, &step), item)));
    frames
}

/// Tasks of both runs whose models are told other things.
fn asked_otherwise(base: &Simulation, new: &Simulation) -> Vec<String> {
    let specs = base.task_specs.iter();
    let differ = specs.filter(|(key, told)| {
        let other = new.task_specs.get(*key);
        other.is_some_and(|other| other != *told)
    });
    let names = differ.map(|((scope, step, item, _), _)| item_name(&path_in(scope, step), *item));
    let names: BTreeSet<String> = names.collect();
    names.into_iter().collect()
}

/// The tasks and questions that wait for an answer.
fn unanswered(state: &RunState) -> BTreeSet<String> {
    if state.status().is_terminal() {
        return BTreeSet::new();
    }
    let path = |at: TaskId| {
        let scope = state.scope_of(at.step)?;
        let path = path_in(&scope.path, state.step_id(at.step)?);
        Some(item_name(&path, at.item))
    };
    let due = effects_due(state).into_iter();
    let due = due.filter_map(|effect| match effect.kind {
        EffectKind::Webhook(at) | EffectKind::Task(at) => path(at),
        EffectKind::Notice(_) | EffectKind::Comparison => None,
    });
    let tasks = state.responding().into_iter().flat_map(Responding::tasks);
    let waits = tasks.filter(|task| task.phase == ResponderTaskPhase::Waiting);
    due.chain(waits.map(|task| task.context.address.to_string()))
        .collect()
}

/// Recorded inputs that found no place: about which steps and questions, and which others.
fn unused(run: &Simulation) -> (BTreeSet<String>, BTreeSet<String>) {
    let (mut asked, mut others) = (BTreeSet::new(), BTreeSet::new());
    for frame in &run.unused_inputs {
        if let Some((_, post)) = frame.event.posted() {
            others.insert(format!("post {}", post.n));
        } else if let Event::Agent(event) = &frame.event {
            let path = path_in(&frame.scope, event.step());
            asked.insert(item_name(&path, event.item()));
        } else if let Event::Webhook(event) = &frame.event {
            asked.insert(path_in(&frame.scope, event.step()));
        } else if let Event::Person(PersonEvent::ReviewDecided(event)) = &frame.event {
            asked.insert(path_in(&frame.scope, &event.step));
        } else if is_intervention(&frame.event) {
            others.insert(frame.event.kind().to_owned());
        }
    }
    (asked, others)
}
