//! The end of a fan-out as a whole (decision R4).

use ktsu_ledger::event::FinishReason;
use ktsu_ledger::event::plan::AgentPlan;
use ktsu_projections::run::{Step as StepState, Tasks};

use super::super::{StepDecision, WorkOutcome};
use super::{MAX_CAUSES, STOPPED_ELSEWHERE, stop_items};
use crate::failure_text::violations;

impl StepDecision<'_> {
    /// Ends a fan-out that bore too much: what is under way is stopped, then the step fails.
    pub(in super::super) fn fail_fan_out(
        &mut self,
        plan: &AgentPlan,
        held: &StepState,
    ) -> Option<()> {
        let tasks = held.tasks.as_deref()?;
        let (code, message) = fan_out_failure(tasks, plan);
        let cause = match tasks.fatal {
            Some(item) => tasks.list.get(item as usize)?.last,
            None => tasks.list.iter().map(|task| task.last).max()?,
        };
        stop_items(
            &mut self.unit,
            &self.at.scope.path,
            &self.step.id,
            tasks,
            (FinishReason::Stopped, STOPPED_ELSEWHERE),
            None,
        );
        let failed = WorkOutcome::Failed {
            code,
            message,
            raw: None,
        };
        self.settle(held.attempt, failed, vec![cause]);
        Some(())
    }

    /// Ends a fan-out all of whose items are settled.
    pub(in super::super) fn end_fan_out(&mut self, held: &StepState) -> Option<()> {
        let tasks = held.tasks.as_deref()?;
        let mut cause: Vec<u64> = tasks.list.iter().map(|task| task.last).collect();
        cause.sort_unstable();
        cause.drain(..cause.len().saturating_sub(MAX_CAUSES));
        if cause.is_empty() {
            cause.push(held.started?);
        }
        let errors = self.step.schema.as_ref().map(|_| {
            let results = tasks.results().to_value();
            violations(self.step.check_output(&results, self.rules()))
        });
        self.complete(held.attempt, errors, (None, None), cause);
        Some(())
    }
}

/// The code and the words of a fan-out that failed.
fn fan_out_failure(tasks: &Tasks, plan: &AgentPlan) -> (String, String) {
    let of = |item: u32| {
        let ended = tasks
            .list
            .get(item as usize)
            .and_then(|task| task.ended.as_ref());
        match ended {
            Some(ktsu_projections::run::ItemEnd::Failed(message)) => message.clone(),
            _ => String::new(),
        }
    };
    if let Some((item, code)) = tasks.fatal.zip(tasks.fatal_code.clone()) {
        return (code, format!("item {item}: {}", of(item)));
    }
    let most = plan.for_each.as_ref().map_or(0, |each| each.max_failures);
    let first = tasks.first_failed.unwrap_or_default();
    let message = format!(
        "fanout: {} items failed (max_failures: {most}); item {first}: {}",
        tasks.failures(),
        of(first)
    );
    ("max_failures_exceeded".to_owned(), message)
}
