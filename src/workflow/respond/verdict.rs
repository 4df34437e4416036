//! The candidates that react to a trigger, and how often.

use std::collections::BTreeMap;
use std::sync::Arc;

use jmespath::Rcvar;
use ktsu_ledger::event::{Candidate, FiringVerdict, TaskKind};
use ktsu_projections::world::MAX_TIMERS;

use super::look_up::look_up;
use super::names::ResponderNames;
use super::{RespondContext, Stage};
use crate::definition::{CompiledForEach, CompiledResponder, CompiledResponse};
use crate::expression::{EvaluationError, from_value, truthy};
use crate::failure_text::clipped;

/// The most items for which one firing of a responder asks a model or runs a workflow: each is kept
/// until it ends, with the world as of the trigger.
pub const MAX_TASKS: usize = ktsu_projections::world::MAX_TASKS as usize;

/// The values that a responder found, if it reacts.
#[derive(Debug)]
pub(super) struct Evaluation {
    /// The results of its look-ups.
    pub(super) found: BTreeMap<String, Rcvar>,
    /// The items that it goes through, if it has a `for_each`.
    pub(super) items: Option<Arc<Vec<Rcvar>>>,
}

/// The verdict of a responder on a trigger.
#[derive(Debug)]
pub(super) enum Evaluated {
    /// It reacts.
    Fired(Evaluation),
    /// Its guard is falsy.
    False,
    /// Its guard or a look-up could not be evaluated: as if the guard were falsy (decision T3).
    Failed(String),
    /// It should react, and what it goes through could not be evaluated: it fails.
    ItemsFailed(String),
    /// It waits first.
    Postponed,
}

impl Evaluation {
    pub(super) fn item(&self, at: u32) -> Option<Rcvar> {
        self.items.as_ref()?.get(at as usize).cloned()
    }
}

impl Evaluated {
    /// As it is recorded.
    pub(super) fn candidate(&self, responder: &CompiledResponder) -> Candidate {
        let mut candidate = Candidate {
            after_ms: None,
            entries: 0,
            fails: false,
            items: None,
            reason: None,
            responder: responder.plan.name.clone(),
            task: None,
            verdict: FiringVerdict::False,
        };
        match self {
            Self::Fired(evaluation) => {
                candidate.verdict = FiringVerdict::Fired;
                let items = evaluation.items.as_ref();
                candidate.items = items.map(|items| u32::try_from(items.len()).unwrap_or(u32::MAX));
                match &responder.work {
                    CompiledResponse::Emit(entries) => {
                        candidate.entries = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                    }
                    CompiledResponse::Ask(_) => candidate.task = Some(TaskKind::Ask),
                    CompiledResponse::Run { .. } => candidate.task = Some(TaskKind::Run),
                }
            }
            Self::False => {}
            Self::Failed(reason) | Self::ItemsFailed(reason) => {
                candidate.verdict = FiringVerdict::Failed;
                candidate.reason = Some(clipped(reason.clone()));
                candidate.fails = matches!(self, Self::ItemsFailed(_));
            }
            Self::Postponed => {
                candidate.verdict = FiringVerdict::Postponed;
                candidate.after_ms = responder.plan.after_ms;
            }
        }
        candidate
    }
}

/// The verdict of a candidate where the trigger is taken: one that waits sets a timer, if there is
/// room for one more.
pub(super) fn judge(
    stage: &Stage<'_>,
    responder: &CompiledResponder,
    sets_timer: Option<bool>,
) -> Evaluated {
    match sets_timer {
        None => evaluate(stage, responder),
        Some(true) => Evaluated::Postponed,
        Some(false) => {
            let words = format!("{MAX_TIMERS} timers of responders are set already");
            Evaluated::Failed(words)
        }
    }
}

/// Evaluates look-ups, guard and items of a responder, in the world as of the trigger.
pub(super) fn evaluate(stage: &Stage<'_>, responder: &CompiledResponder) -> Evaluated {
    let context = stage.context;
    let names = ResponderNames::of_trigger(context, stage.trigger, stage.world);
    let found = match look_up(responder, &names, stage.world, context.rules) {
        Ok(found) => found,
        Err(error) => return Evaluated::Failed(error.message),
    };
    let names = names.with_locals(&found);
    if let Some(when) = &responder.when {
        match when.evaluate(&names) {
            Ok(verdict) if truthy(&verdict) => {}
            Ok(_) => return Evaluated::False,
            Err(error) => return Evaluated::Failed(error.message),
        }
    }
    match items(context, responder, &names) {
        Ok(items) => Evaluated::Fired(Evaluation { found, items }),
        Err(error) => Evaluated::ItemsFailed(error.message),
    }
}

/// Returns `true` if outputs are made of each item at once, and nothing is kept for it.
fn is_emitted(work: &CompiledResponse) -> bool {
    match work {
        CompiledResponse::Emit(_) => true,
        CompiledResponse::Ask(_) | CompiledResponse::Run { .. } => false,
    }
}

/// The items that a responder goes through; `None` if it has no `for_each`. Null is an empty list.
fn items(
    context: RespondContext<'_>,
    responder: &CompiledResponder,
    names: &ResponderNames<'_>,
) -> Result<Option<Arc<Vec<Rcvar>>>, EvaluationError> {
    let list = match &responder.for_each {
        None => None,
        Some(CompiledForEach::From(from)) => Some(from.evaluate(names)?),
        Some(CompiledForEach::Items(items)) => {
            let secret = |name: &str| names.is_secret(name);
            let rendered = items.render(names, &secret, context.rules)?;
            Some(from_value(&rendered.value))
        }
    };
    let Some(list) = list.filter(|list| !list.is_null()) else {
        return Ok(responder.for_each.as_ref().map(|_| Arc::default()));
    };
    let failed = |code, message| Err(EvaluationError { code, message });
    match list.as_array() {
        Some(items) if items.len() > MAX_TASKS && !is_emitted(&responder.work) => {
            let count = items.len();
            let message =
                format!("for_each gives {count} items to ask or run, and may give {MAX_TASKS}");
            failed("expression_cost", message)
        }
        Some(items) => Ok(Some(Arc::new(items.clone()))),
        None => {
            let kind = list.get_type();
            let message = format!("for_each needs a list, and has a value of type {kind}");
            failed("expression_type", message)
        }
    }
}
