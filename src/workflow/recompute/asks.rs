//! The recorded questions of a run's responders: what each asked a model, and what it came to.

use std::sync::Arc;

use ktsu_ledger::event::plan::world::{AskPlan, ResponderPlan, ResponderWork};
use ktsu_ledger::event::{AgentFinished, WorkerDispatched, WorkerEvent, is_address};
use ktsu_ledger::{Event, Frame};
use ktsu_projections::run::{FoldError, PlanError, RunState, TaskId};
use ktsu_projections::world::ResponderTaskPhase;

use super::task_end::TaskEnd;
use crate::definition::{CompiledAsk, CompiledResponse, Definition};
use crate::next::{Memo, task_spec};
use crate::replay::Definitions;
use crate::respond::{ReplyEnd, evaluate_reply};
use crate::rules::DecisionRules;

/// A question of a responder.
#[derive(Debug, Clone)]
pub struct RecordedAsk {
    /// `@NAME.KEY`.
    pub address: String,
    /// The responder that asked.
    pub responder: ResponderPlan,
    /// The plan of the question.
    pub ask: AskPlan,
    /// The messages, in the order of the plan.
    pub messages: Vec<String>,
    /// True if a model's reply is recorded.
    pub called: bool,
    /// The end of the question, if it has one.
    pub end: Option<TaskEnd>,
    /// The frame that says so.
    pub finished: Option<AgentFinished>,
}

impl RecordedAsk {
    /// The `retryable` of its error, if it has one: true if it may succeed another time.
    pub(super) fn retryable(&self) -> Option<bool> {
        let said = self.finished.as_ref()?.outcome.pointer("/error/retryable");
        said?.as_bool()
    }
}

/// The last time that each question of a run was asked, in the order in which they were asked first.
///
/// # Errors
/// [`FoldError`].
pub(super) fn recorded_asks(frames: &[Frame]) -> Result<Vec<RecordedAsk>, FoldError> {
    let first = frames.first().ok_or(FoldError::Empty)?;
    let refused = |frame: &Frame| {
        let seq = frame.seq;
        move |refusal| FoldError::Refused(seq, refusal)
    };
    let mut definitions = Definitions::default();
    let definition = introduced(&mut definitions, first)?.ok_or(FoldError::Empty)?;
    let outline = Arc::clone(&definition.outline);
    let mut fold = AskFold {
        state: RunState::begin(first, outline).map_err(refused(first))?,
        definition,
        memo: Memo::default(),
        asks: Vec::new(),
    };
    for frame in frames.iter().skip(1) {
        fold.state.apply(frame).map_err(refused(frame))?;
        if let Some(definition) = introduced(&mut definitions, frame)? {
            fold.definition = definition;
            fold.memo = Memo::default();
        }
        fold.take(frame);
    }
    Ok(fold.asks)
}

fn introduced(
    definitions: &mut Definitions,
    frame: &Frame,
) -> Result<Option<Arc<Definition>>, FoldError> {
    let found = definitions.introduced_by(frame);
    found.map_err(|error| FoldError::Plan(PlanError::Unreadable(error.to_string())))
}

struct AskFold {
    state: RunState,
    definition: Arc<Definition>,
    memo: Memo,
    asks: Vec<RecordedAsk>,
}

impl AskFold {
    /// Takes a frame that the state has taken.
    fn take(&mut self, frame: &Frame) {
        if let Event::Worker(WorkerEvent::Dispatched(sent)) = &frame.event
            && is_address(&sent.step)
            && let Some(begun) = self.begun(sent)
        {
            match self.find(&sent.step) {
                Some(known) => *known = begun,
                None => self.asks.push(begun),
            }
        } else if let Some(reply) = frame.event.response()
            && let Some(ask) = self.find(&reply.step)
        {
            ask.called = true;
        } else if let Some(finished) = frame.event.finished()
            && is_address(&finished.step)
        {
            let end = self.end(finished);
            if let Some(ask) = self.find(&finished.step) {
                ask.end = end;
                ask.finished = Some(finished.clone());
            }
        }
    }

    fn find(&mut self, address: &str) -> Option<&mut RecordedAsk> {
        let mut asks = self.asks.iter_mut().rev();
        asks.find(|ask| ask.address == address)
    }

    /// A question that is sent out: with what the runtime is told.
    fn begun(&self, sent: &WorkerDispatched) -> Option<RecordedAsk> {
        let at = self.state.step_at("", &sent.step)?;
        let (state, memo) = (&self.state, &self.memo);
        let spec = task_spec(&self.definition, state, memo, TaskId::step(at))?;
        let (responder, _) = self.responder(&sent.step)?;
        let ResponderWork::Ask(ask) = &responder.work else {
            return None;
        };
        Some(RecordedAsk {
            address: sent.step.clone(),
            responder: responder.clone(),
            ask: ask.clone(),
            messages: spec.messages.into_iter().map(|(_, text)| text).collect(),
            called: false,
            end: None,
            finished: None,
        })
    }

    /// The responder that asks at an address, for as long as the question is not answered and
    /// reacted to.
    fn responder(&self, address: &str) -> Option<(&ResponderPlan, &CompiledAsk)> {
        let task = self.state.responding()?.task(address)?;
        let (_, responder) = self
            .definition
            .worlds()?
            .responder(&task.context.responder)?;
        match &responder.work {
            CompiledResponse::Ask(ask) => Some((&responder.plan, ask)),
            CompiledResponse::Emit(_) | CompiledResponse::Run { .. } => None,
        }
    }

    /// The end of a question; `None` if it was not asked in the end.
    fn end(&self, finished: &AgentFinished) -> Option<TaskEnd> {
        let task = self.state.responding()?.task(&finished.step)?;
        if !matches!(task.phase, ResponderTaskPhase::Ended { .. }) {
            return None;
        }
        let (_, ask) = self.responder(&finished.step)?;
        let outcome = finished.outcome.to_value();
        let verdict = evaluate_reply(ask, &outcome, DecisionRules::of(&self.state));
        Some(match verdict.end {
            ReplyEnd::Output(output) => TaskEnd::Output(output),
            ReplyEnd::Skipped(words) => TaskEnd::Skipped(words),
            ReplyEnd::Failed { code, message } => TaskEnd::Failed {
                code,
                message,
                raw: ["raw_output", "output"]
                    .into_iter()
                    .find_map(|name| outcome.get(name).cloned()),
                violations: verdict.errors.unwrap_or_default(),
            },
        })
    }
}
