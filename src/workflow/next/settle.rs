//! The consequences of the end of an agent's task: reserved fields, then the air-lock, then the end
//! of its step or item (seed 000, invariants 9, 21 and 26; decisions R1, R4, R5, W5).

mod fan_out;
mod invoked;
mod review;
mod suspend;

use ktsu_codes::ErrorCode;
use ktsu_ledger::event::plan::AgentPlan;
use ktsu_ledger::event::{
    CommandKind, FinishReason, ItemCompleted, ItemEvent, ItemFailed, Reference, ReservedEvaluated,
    SkipReason, StepCommand, StepCompleted, StepEvent, StepNote, StepSkipped, Violation,
};
use ktsu_ledger::{CanonicalJson, Event};
use ktsu_projections::life::invoked::InvokeDue;
use ktsu_projections::life::reserved::is_reserved;
use ktsu_projections::life::review::ReviewDue;
use ktsu_projections::run::{AgentTask, TaskPhase, Tasks};
use serde_json::{Value, json};

use super::task_end::AgentEnd;
use super::{DecisionBatch, StepDecision, WorkOutcome};
use crate::commands::OutcomeCommand;
use crate::definition::CompiledStep;
use crate::failure_text::violations;
use crate::outcome::{self, OutcomeExtras, OutcomeRefusal};
use crate::reserved::{self, ReservedEnd, ReservedEvaluation};
use ktsu_schema::message_at;

/// More ends than this are not all named as causes: a frame has its bounds.
pub(super) const MAX_CAUSES: usize = 4096;

/// The verdict on a task that has ended.
enum TaskVerdict {
    Suspend,
    Output {
        stripped: Vec<String>,
    },
    Skip(String),
    Fail {
        failed: WorkOutcome,
        raw: Option<&'static str>,
    },
}

impl StepDecision<'_> {
    /// Adds whatever is not recorded yet of what follows from a task's end.
    pub(super) fn settle_task(
        &mut self,
        plan: &AgentPlan,
        item: Option<u32>,
        task: &AgentTask,
    ) -> Option<()> {
        let TaskPhase::Finished { seq, outcome } = &task.phase else {
            return None;
        };
        if task.suspension.is_some() {
            return self.advance_suspension(task, *seq, outcome);
        }
        if task
            .review_due()
            .is_some_and(|due| due != ReviewDue::CarryOut)
        {
            self.advance_review(task, *seq);
            return Some(());
        }
        let runs = task
            .invoke_due()
            .is_some_and(|due| due != InvokeDue::Request);
        if runs || task.review.is_some() {
            let extras = outcome::recorded_extras(&outcome.to_value(), self.rules());
            let carried = match runs {
                true => self.advance_invoked(plan, item, task),
                false => self.carry_out_reviewed(task, *seq, &extras),
            };
            let Some(mut cause) = carried else {
                return Some(());
            };
            if task.order.is_phased() {
                cause = self.tell(item, task, *seq, &extras, cause);
            }
            let stripped = reserved_names(outcome);
            self.conclude(item, task, *seq, TaskVerdict::Output { stripped }, cause);
            return Some(());
        }
        let outcome = outcome.to_value();
        let mut cause = task.last.max(*seq);
        let output = outcome.get("output").unwrap_or(&Value::Null);
        let judged = output
            .is_object()
            .then(|| reserved::evaluate(output, plan.confidence_threshold_millionths));
        if let Some(judged) = &judged {
            cause = self.evaluated(item, task, judged, cause);
        }
        let (end, stripped) =
            judged.map_or((None, Vec::new()), |judged| (judged.end, judged.stripped));
        // A fatal field counts whatever else is wrong; a skip hides neither errors nor commands.
        let mut extras = OutcomeExtras::default();
        let verdict = match (end, self.accept(plan, item, &outcome)) {
            (Some(ReservedEnd::Fail { code, message }), _) => TaskVerdict::Fail {
                failed: WorkOutcome::failed(code, message),
                raw: Some("/outcome/output"),
            },
            (_, Err(refused)) => refused.into(),
            // What is skipped is not reviewed.
            (Some(ReservedEnd::Skip(words)), Ok(also)) if also.blocks() => TaskVerdict::Skip(words),
            (Some(ReservedEnd::Skip(_)), Ok(also)) if !also.commands.is_empty() => {
                let words = "an outcome that is to be skipped has commands".to_owned();
                outcome::refused(&outcome, "outcome_invalid", words).into()
            }
            (Some(ReservedEnd::Skip(words)), Ok(also)) => {
                extras = also;
                TaskVerdict::Skip(words)
            }
            (None, Ok(also)) if also.suspends() => {
                extras = also;
                TaskVerdict::Suspend
            }
            (None, Ok(also)) => {
                extras = also;
                self.air_lock(plan, item, task, output, stripped, &mut cause)
            }
        };
        let counts = !matches!(verdict, TaskVerdict::Fail { .. });
        if counts {
            cause = self.request(item, task, *seq, &extras, cause);
        }
        if matches!(verdict, TaskVerdict::Suspend) {
            match self.is_recompute() {
                true => self.conclude(item, task, *seq, TaskVerdict::not_asked(), cause),
                false => self.suspend(task, *seq, &extras, cause)?,
            }
            return Some(());
        }
        let asks = matches!(verdict, TaskVerdict::Output { .. }) && extras.blocks();
        if asks && !self.is_recompute() {
            self.ask_for_review(task, cause);
            return Some(());
        }
        // What its commands run has to end before it does.
        let runs = !self.is_recompute()
            && matches!(verdict, TaskVerdict::Output { .. })
            && extras.commands.iter().any(OutcomeCommand::invokes);
        if !runs {
            if counts && task.order.is_phased() {
                cause = self.tell(item, task, *seq, &extras, cause);
            }
            self.conclude(item, task, *seq, verdict, cause);
        }
        Some(())
    }

    fn is_recompute(&self) -> bool {
        self.state.created().results.is_some()
    }

    /// The events and commands that an outcome has besides its output; or the reason why it has no
    /// output to check.
    fn accept(
        &self,
        plan: &AgentPlan,
        item: Option<u32>,
        outcome: &Value,
    ) -> Result<OutcomeExtras, OutcomeRefusal> {
        if !self.rules().carries_out_commands() {
            let refused = outcome::refusal(outcome, Value::is_object);
            return refused.map_or_else(|| Ok(OutcomeExtras::default()), Err);
        }
        if let Some(failed) = outcome::error_of(outcome) {
            return Err(failed);
        }
        let agent = self.definition.agents.get(&plan.file);
        let extras = outcome::extras(
            outcome,
            self.rules(),
            agent.and_then(|agent| agent.emits.as_ref()),
            |command| match command {
                OutcomeCommand::Review { .. } if self.rules().asks_for_reviews() => {
                    self.judge_review(plan, item, outcome)
                }
                OutcomeCommand::Suspend { resume_step, .. } if self.rules().suspends_steps() => {
                    self.judge_suspend(plan, item, outcome, resume_step.as_deref())
                }
                command if command.invokes() && self.rules().runs_workflows_of_commands() => {
                    self.judge_invoke(plan, outcome, command)
                }
                _ => Err(outcome::not_supported(outcome)),
            },
        )?;
        match outcome::output_refusal(outcome, Value::is_object) {
            Some(refused) if !extras.suspends() => Err(refused),
            Some(_) | None => Ok(extras),
        }
    }

    /// Adds the frames that an outcome has before anything runs; gives the number of the last.
    fn request(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
        mut cause: u64,
    ) -> u64 {
        let order = self.rules().order(&extras.commands);
        if !order.is_phased() {
            cause = self.note(item, task, finished, extras, cause);
        }
        let first = match self.is_recompute() {
            true if extras.suspends() => order.before_review(),
            true => order.first(),
            false => order.before_review(),
        };
        let places: Vec<u32> = order.places(task.commands, first).collect();
        self.command(item, task, finished, (extras, &places), cause)
    }

    /// Adds the frames that an outcome has once everything that it runs has ended: its notes, and
    /// what other systems are sent.
    fn tell(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
        mut cause: u64,
    ) -> u64 {
        let order = self.rules().order(&extras.commands);
        cause = self.note(item, task, finished, extras, cause);
        let from = task.commands.max(order.first());
        let places: Vec<u32> = order.places(from, u32::MAX).collect();
        self.command(item, task, finished, (extras, &places), cause)
    }

    /// Adds a note for each event that has none yet.
    fn note(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        finished: u64,
        extras: &OutcomeExtras,
        mut cause: u64,
    ) -> u64 {
        let events = (0u32..).zip(&extras.events);
        for (index, kind) in events.skip(task.notes as usize) {
            let event = StepEvent::Noted(StepNote {
                attempt: task.attempt,
                event: in_outcome(finished, "events", index),
                index,
                item,
                step: self.step.id.clone(),
                kind: kind.clone(),
            });
            cause = self.unit.push(Event::Step(event), vec![cause]);
        }
        cause
    }

    /// Adds a frame for each of the commands at these places.
    fn command(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        finished: u64,
        (extras, places): (&OutcomeExtras, &[u32]),
        mut cause: u64,
    ) -> u64 {
        let sends = self.sends_effects() && !self.is_recompute();
        for index in places {
            let (kind, topic, target) = match extras.commands.get(*index as usize) {
                Some(OutcomeCommand::Emit { topic, .. }) => (CommandKind::Emit, Some(topic), None),
                Some(OutcomeCommand::Invoke { step, .. }) => {
                    (CommandKind::Invoke, None, Some(step))
                }
                Some(OutcomeCommand::Fanout { step, .. }) => {
                    (CommandKind::Fanout, None, Some(step))
                }
                Some(OutcomeCommand::Review { .. }) => (CommandKind::Review, None, None),
                Some(OutcomeCommand::Suspend { .. }) => (CommandKind::Suspend, None, None),
                None => continue,
            };
            let event = StepEvent::Commanded(StepCommand {
                attempt: task.attempt,
                command: in_outcome(finished, "commands", *index),
                index: *index,
                item,
                step: self.step.id.clone(),
                suppressed: match kind {
                    CommandKind::Emit => !sends,
                    CommandKind::Fanout
                    | CommandKind::Invoke
                    | CommandKind::Review
                    | CommandKind::Suspend => self.is_recompute(),
                },
                target: target.cloned(),
                topic: topic.cloned(),
                kind,
            });
            cause = self.unit.push(Event::Step(event), vec![cause]);
        }
        cause
    }

    /// Ends the step, or the item, as the verdict says; `finished` is the frame with the outcome.
    fn conclude(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        finished: u64,
        verdict: TaskVerdict,
        cause: u64,
    ) {
        let place = |path: &str| Reference {
            frame: finished,
            path: path.to_owned(),
        };
        match (verdict, item) {
            (TaskVerdict::Output { stripped }, None) => {
                let event = StepEvent::Completed(StepCompleted {
                    attempt: task.attempt,
                    output: None,
                    output_from: Some(place("/outcome/output")),
                    step: self.step.id.clone(),
                    stripped,
                });
                self.unit.push(Event::Step(event), vec![cause]);
            }
            (TaskVerdict::Output { stripped }, Some(item)) => {
                let event = ItemEvent::Completed(ItemCompleted {
                    attempt: task.attempt,
                    item,
                    output_from: Some(place("/outcome/output")),
                    skipped: None,
                    step: self.step.id.clone(),
                    stripped,
                });
                self.unit.push(Event::Item(event), vec![cause]);
            }
            (TaskVerdict::Suspend, _) => {}
            (TaskVerdict::Skip(words), None) => {
                let event = StepEvent::Skipped(StepSkipped {
                    detail: Some(words),
                    reason: SkipReason::AgentSkipped,
                    step: self.step.id.clone(),
                });
                self.unit.push(Event::Step(event), vec![cause]);
            }
            (TaskVerdict::Skip(words), Some(item)) => {
                let event = ItemEvent::Completed(ItemCompleted {
                    attempt: task.attempt,
                    item,
                    output_from: None,
                    skipped: Some(words),
                    step: self.step.id.clone(),
                    stripped: Vec::new(),
                });
                self.unit.push(Event::Item(event), vec![cause]);
            }
            (TaskVerdict::Fail { failed, raw }, None) => {
                self.fail_step(task.attempt, failed, raw.map(place), vec![cause]);
            }
            (TaskVerdict::Fail { failed, raw }, Some(item)) => {
                let raw = raw.map(place);
                self.fail_item(item, task.attempt, failed, raw, cause);
            }
        }
    }

    /// Adds a frame for each reserved field that has none yet; tells the number of the last.
    fn evaluated(
        &mut self,
        item: Option<u32>,
        task: &AgentTask,
        judged: &ReservedEvaluation,
        mut cause: u64,
    ) -> u64 {
        for field in judged.fields.iter().skip(task.evaluated) {
            let event = StepEvent::ReservedEvaluated(ReservedEvaluated {
                attempt: task.attempt,
                field: field.name.to_owned(),
                item,
                step: self.step.id.clone(),
                value: field.value.clone(),
                verdict: field.verdict,
            });
            cause = self.unit.push(Event::Step(event), vec![cause]);
        }
        cause
    }

    /// The agent's schema, then the step's; of a fan-out's items the agent's alone, since the
    /// step's checks the results as a whole (decision R5).
    fn air_lock(
        &mut self,
        plan: &AgentPlan,
        item: Option<u32>,
        task: &AgentTask,
        output: &Value,
        stripped: Vec<String>,
        cause: &mut u64,
    ) -> TaskVerdict {
        let mut clean = output.clone();
        if let Some(members) = clean.as_object_mut() {
            members.retain(|name, _| !is_reserved(name));
        }
        let agent = self.definition.agents.get(&plan.file);
        let rules = self.rules();
        let mut errors = agent.map_or_else(Vec::new, |agent| {
            violations(crate::airlock::check_output(&agent.output, &clean, rules))
        });
        if errors.is_empty() && rules.requires_first_party_reserved_fields() {
            errors = agent.map_or_else(Vec::new, |agent| {
                violations(agent.missing_reserved(output, rules))
            });
        }
        if errors.is_empty() && item.is_none() {
            errors = violations(self.step.check_output(&clean, rules));
        }
        // An item has to fit into the list of results.
        let fits = || CanonicalJson::from_value(&json!({"results": [clean]})).is_ok();
        if errors.is_empty() && item.is_some() && !fits() {
            errors.push(Violation {
                message: "nested too deeply".to_owned(),
                path: String::new(),
                rule: "depth".to_owned(),
            });
        }
        if task.checked.is_none() {
            *cause = self.checked(item, task.attempt, &errors, vec![*cause]);
        }
        match errors.first() {
            Some(first) => TaskVerdict::Fail {
                failed: WorkOutcome::failed(
                    crate::airlock::code_of(&first.rule, "schema_violation"),
                    air_lock_message(self.step, item, first),
                ),
                raw: Some("/outcome/output"),
            },
            None => TaskVerdict::Output { stripped },
        }
    }

    pub(super) fn fail_item(
        &mut self,
        item: u32,
        attempt: u32,
        failed: WorkOutcome,
        raw_from: Option<Reference>,
        cause: u64,
    ) {
        let WorkOutcome::Failed { code, message, raw } = failed else {
            return;
        };
        let event = ItemEvent::Failed(ItemFailed {
            attempt,
            code,
            item,
            message,
            raw,
            raw_from,
            step: self.step.id.clone(),
        });
        self.unit.push(Event::Item(event), vec![cause]);
    }
}

impl TaskVerdict {
    /// The end of a task in a recompute whose outcome asks for data: it has no output, and no one is
    /// asked.
    fn not_asked() -> Self {
        let code = ErrorCode::StepSuspended.as_str();
        Self::Fail {
            failed: WorkOutcome::failed(code, outcome::WAITS_FOR_DATA),
            raw: None,
        }
    }
}

impl From<OutcomeRefusal> for TaskVerdict {
    fn from(refused: OutcomeRefusal) -> Self {
        Self::Fail {
            failed: WorkOutcome::failed(&refused.code, refused.message),
            raw: refused.raw,
        }
    }
}

/// The message of the air-lock about the first place that breaks a schema.
pub(super) fn air_lock_message(
    step: &CompiledStep,
    item: Option<u32>,
    first: &Violation,
) -> String {
    let name = ktsu_projections::lineage::item_name(&step.id, item);
    let what = message_at(&first.message, &first.path);
    format!("air-lock validation failed on step \"{name}\": {what}")
}

/// The place of an event or a command in an outcome.
fn in_outcome(finished: u64, member: &str, index: u32) -> Reference {
    Reference {
        frame: finished,
        path: format!("/outcome/{member}/{index}"),
    }
}

/// The reserved fields of an output, which are not part of it, in their order.
fn reserved_names(outcome: &CanonicalJson) -> Vec<String> {
    let output = outcome.pointer("/output").unwrap_or_default();
    reserved::evaluate(&output, None).stripped
}

/// The message for a step that is stopped because of a failure elsewhere.
pub(super) const STOPPED_ELSEWHERE: &str = "stopped because the run failed elsewhere";

/// Stops whatever is under way in a step: each task gets its end, each item that was started, too;
/// `why` unless the run's time was over. `failed` is the item that holds the failure, and its end.
pub(super) fn stop_items(
    unit: &mut DecisionBatch,
    scope: &str,
    step: &str,
    tasks: &Tasks,
    (reason, why): (FinishReason, &str),
    failed: Option<(u32, &WorkOutcome)>,
) {
    for (index, task) in (0u32..).zip(&tasks.list) {
        let item = tasks.item(index);
        let mut cause = task.last;
        let (code, message) = match reason {
            FinishReason::Timeout => ("timeout", "the run's time was over"),
            _ => ("stopped", why),
        };
        if task.is_unfinished() {
            let end = AgentEnd {
                code,
                message,
                reason,
            };
            cause = end.push_in(unit, scope.to_owned(), step, item, task);
        }
        if let (Some(item), false) = (item, task.phase == TaskPhase::Settled) {
            let (code, message) = match failed {
                Some((of, WorkOutcome::Failed { code, message, .. })) if of == item => {
                    (code.as_str(), message.as_str())
                }
                Some(_) | None => ("stopped", message),
            };
            let event = ItemEvent::Failed(ItemFailed {
                attempt: task.attempt,
                code: code.to_owned(),
                item,
                message: message.to_owned(),
                raw: None,
                raw_from: None,
                step: step.to_owned(),
            });
            unit.push_in(scope.to_owned(), Event::Item(event), vec![cause]);
        }
    }
}
