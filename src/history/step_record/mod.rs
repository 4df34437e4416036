//! What is recorded of a step or an item: what it was given, what its agent and the models said to each
//! other, and what was checked of its output.
//!
//! A record keeps the values at their places ([`PlacedValue`]), so that each can be looked at alone. Those
//! who may not read frames see it [`StepRecord::without_payloads`].

mod conversation;
mod inputs;
mod placed;

use ktsu_ledger::event::{ItemEvent, StepEvent, Verdict};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::Lineage;
use ktsu_projections::calls::CallHistory;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::life::reserved::CONFIDENCE;
use ktsu_projections::lineage::item_name;
use ktsu_projections::person_requests::{self, PersonRequest};

pub use self::conversation::{
    AskedTool, ConversationEntry, ModelExchange, ResultBlock, TaskConversation, ToolOutput,
};
pub use self::inputs::{InputSource, StepInputView};
pub use self::placed::PlacedValue;

/// The step or the item that a record is about.
#[derive(Debug, Clone, Copy)]
pub struct StepPlace<'a> {
    /// The inline child; empty for the run itself.
    pub scope: &'a str,
    /// The step.
    pub step: &'a str,
    /// The item of a fan-out.
    pub item: Option<u32>,
}

impl StepPlace<'_> {
    fn has(&self, frame: &Frame) -> bool {
        frame.scope == self.scope && frame.event.task() == Some((self.step, self.item))
    }

    fn name(&self) -> String {
        item_name(self.step, self.item)
    }
}

/// What is recorded of a step or an item.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StepRecord {
    /// What it was given when it began last.
    pub inputs: Vec<StepInputView>,
    /// The tasks of its agent, one for each attempt, in order.
    pub tasks: Vec<TaskConversation>,
    /// The checks of its output against its schema, in order.
    pub checks: Vec<AirLockCheck>,
    /// The reserved fields of the last output, in order.
    pub reserved: Vec<ReservedVerdict>,
    /// The confidence that it has to reach, in millionths.
    pub threshold_millionths: Option<u32>,
    /// The last output of its agent, with reserved fields.
    pub raw: Option<PlacedValue>,
    /// The reserved fields that are not part of its output.
    pub stripped: Vec<String>,
    /// What people were asked about it, in order.
    pub requests: Vec<PersonRequest>,
}

/// A check of an output against its schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AirLockCheck {
    /// The frame.
    pub frame: u64,
    /// The attempt.
    pub attempt: u32,
    /// True if the output fits.
    pub is_valid: bool,
    /// Where it does not, and why.
    pub violations: Vec<(String, String)>,
    /// The number of times that its agent was asked to repair it before.
    pub repairs: usize,
}

/// A reserved field of an output, and its consequence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReservedVerdict {
    /// The frame.
    pub frame: u64,
    /// `ktsu_…`.
    pub field: String,
    /// Its value, as JSON.
    pub value: String,
    /// The consequence.
    pub verdict: Verdict,
}

impl ReservedVerdict {
    /// Returns `true` if a threshold decides on it.
    pub fn is_confidence(&self) -> bool {
        self.field == CONFIDENCE
    }
}

impl StepRecord {
    /// The record of a step or an item.
    pub fn of(fold: &EnvelopeFold, frames: &[Frame], place: StepPlace<'_>) -> Self {
        let lineage = Lineage::from_frames(frames);
        let calls = CallHistory::fold(frames);
        let own: Vec<&Frame> = frames.iter().filter(|frame| place.has(frame)).collect();
        let mut record = Self {
            inputs: inputs::of(fold, frames, &own),
            tasks: conversation::of(frames, &own, &calls, &lineage),
            requests: person_requests::requests(frames)
                .into_iter()
                .filter(|one| one.scope() == place.scope && one.step_id() == place.name())
                .collect(),
            threshold_millionths: threshold(fold, place),
            ..Self::default()
        };
        for frame in own {
            record.take(frame);
        }
        record
    }

    fn take(&mut self, frame: &Frame) {
        if let Some(finished) = frame.event.finished() {
            self.reserved.clear();
            let at = |member: &'static str| {
                let value = finished.outcome.pointer(&format!("/{member}"))?;
                let value = CanonicalJson::from_value(&value).ok()?;
                let at = format!("/data/outcome/{member}");
                Some(PlacedValue::new(frame.seq, at, &value))
            };
            self.raw = at("output").or_else(|| at("raw_output"));
        }
        match &frame.event {
            Event::Step(StepEvent::ReservedEvaluated(one)) => self.reserved.push(ReservedVerdict {
                frame: frame.seq,
                field: one.field.clone(),
                value: one.value.as_str().to_owned(),
                verdict: one.verdict,
            }),
            Event::Step(StepEvent::OutputChecked(checked)) => {
                let repairs = self
                    .tasks
                    .iter()
                    .rfind(|task| task.attempt == checked.attempt);
                let errors = checked.errors.iter();
                self.checks.push(AirLockCheck {
                    frame: frame.seq,
                    attempt: checked.attempt,
                    is_valid: checked.valid,
                    violations: errors
                        .map(|one| (one.path.clone(), one.message.clone()))
                        .collect(),
                    repairs: repairs.map_or(0, TaskConversation::repairs),
                });
            }
            Event::Step(StepEvent::Completed(completed)) => {
                self.stripped.clone_from(&completed.stripped);
            }
            Event::Item(ItemEvent::Completed(completed)) => {
                self.stripped.clone_from(&completed.stripped);
            }
            _ => {}
        }
    }

    /// The same without the values of frames: where they are, and how long.
    #[must_use]
    pub fn without_payloads(mut self) -> Self {
        for input in &mut self.inputs {
            input.close();
        }
        for task in &mut self.tasks {
            task.close();
        }
        if let Some(raw) = &mut self.raw {
            raw.json = None;
        }
        self
    }
}

fn threshold(fold: &EnvelopeFold, place: StepPlace<'_>) -> Option<u32> {
    let at = fold.state().step_at(place.scope, place.step)?;
    fold.state().agent_plan(at)?.confidence_threshold_millionths
}
