//! The ends of tasks that the engine decides on.

use ktsu_ledger::event::{AgentEvent, AgentFinished, DoubtReason, FinishReason, ToolInDoubt};
use ktsu_ledger::{CanonicalJson, Event};
use ktsu_projections::life::call::SentCall;
use ktsu_projections::run::AgentTask;
use serde_json::{Value, json};

use super::DecisionBatch;
use crate::definition::CompiledStep;

/// The end of a task that the engine decides on.
pub(super) struct AgentEnd<'a> {
    pub(super) code: &'a str,
    pub(super) message: &'a str,
    pub(super) reason: FinishReason,
}

impl AgentEnd<'_> {
    /// Adds the `agent.finished`.
    pub(super) fn push(
        &self,
        unit: &mut DecisionBatch,
        step: &CompiledStep,
        item: Option<u32>,
        task: &AgentTask,
    ) -> u64 {
        let scope = unit.scope.clone();
        self.push_in(unit, scope, &step.id, item, task)
    }

    pub(super) fn push_in(
        &self,
        unit: &mut DecisionBatch,
        scope: String,
        step: &str,
        item: Option<u32>,
        task: &AgentTask,
    ) -> u64 {
        let mut cause = task.last;
        for sending in open_calls(task) {
            let why = DoubtReason::TaskEnded;
            cause = in_doubt(unit, scope.clone(), step, item, task, sending, why);
        }
        let outcome: Value = json!({
            "error": {"code": self.code, "message": self.message, "retryable": false}
        });
        let event = AgentEvent::Finished(Box::new(AgentFinished {
            attempt: task.attempt,
            item,
            metrics: None,
            outcome: CanonicalJson::from_value(&outcome).unwrap_or_default(),
            reason: self.reason,
            report: None,
            step: step.to_owned(),
        }));
        unit.push_in(scope, Event::Agent(event), vec![cause])
    }
}

/// Calls on their way: whether they happened will not be known from the task that sent them.
pub(super) fn open_calls(task: &AgentTask) -> impl Iterator<Item = &SentCall> {
    task.calls.iter().flat_map(|calls| calls.sent_calls())
}

pub(super) fn in_doubt(
    unit: &mut DecisionBatch,
    scope: String,
    step: &str,
    item: Option<u32>,
    task: &AgentTask,
    sending: &SentCall,
    reason: DoubtReason,
) -> u64 {
    let event = AgentEvent::ToolInDoubt(ToolInDoubt {
        attempt: task.attempt,
        called: sending.called,
        item,
        reason,
        report: None,
        step: step.to_owned(),
    });
    unit.push_in(scope, Event::Agent(event), vec![sending.called])
}
