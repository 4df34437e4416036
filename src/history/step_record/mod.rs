//! What is recorded of a step or an item: what it was given, what its agent and the models said to each
//! other, and what was checked of its output.
//!
//! A record keeps the values at their places ([`PlacedValue`]), so that each can be looked at alone. Those
//! who may not read frames see it [`StepRecord::without_payloads`].

mod conversation;
mod inputs;
mod placed;
mod sending;

use std::cell::OnceCell;
use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{ItemEvent, StepEvent, Verdict};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::calls::CallHistory;
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::life::reserved::CONFIDENCE;
use ktsu_projections::lineage::item_name;
use ktsu_projections::person_requests::{self, PersonRequest};
use ktsu_projections::step_name::path_in;

use crate::frame_page::MAX_BYTES;
use crate::webhooks::{self, WebhookRequest};

pub use self::conversation::{
    AskedTool, ConversationEntry, ModelExchange, ResultBlock, TaskConversation, ToolOutput,
};
pub use self::inputs::{InputSource, StepInputView};
pub use self::placed::PlacedValue;
pub use self::sending::WebhookSending;

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
    fn name(&self) -> String {
        item_name(self.step, self.item)
    }

    /// Its path from the run: `call/inner`, `classify.8`.
    pub fn path(&self) -> String {
        path_in(self.scope, &self.name())
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
    /// The requests that it sent to an endpoint, in order.
    pub sendings: Vec<WebhookSending>,
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

/// The records of the steps of a run: what all of them need is made once.
pub struct StepRecords<'f> {
    fold: &'f EnvelopeFold,
    frames: &'f [Frame],
    calls: CallHistory,
    requests: Vec<PersonRequest>,
    /// The frames about each step or item, by scope, step and item.
    own: HashMap<(&'f str, &'f str, Option<u32>), Vec<&'f Frame>>,
    webhooks: OnceCell<BTreeMap<u64, WebhookRequest>>,
    values: inputs::ReadValues,
}

impl<'f> StepRecords<'f> {
    /// Those of a run; `fold` is that of its frames.
    pub fn new(fold: &'f EnvelopeFold, frames: &'f [Frame]) -> Self {
        let mut own: HashMap<_, Vec<&Frame>> = HashMap::new();
        for frame in frames {
            if let Some((step, item)) = frame.event.task() {
                let key = (frame.scope.as_str(), step, item);
                own.entry(key).or_default().push(frame);
            }
        }
        Self {
            fold,
            frames,
            calls: CallHistory::fold(frames),
            requests: person_requests::requests(frames),
            own,
            webhooks: OnceCell::new(),
            values: inputs::ReadValues::default(),
        }
    }

    /// The record of a step or an item.
    pub fn record(&self, place: StepPlace<'_>) -> StepRecord {
        let own = self.own.get(&(place.scope, place.step, place.item));
        let own = own.map_or(&[][..], Vec::as_slice);
        let requests = self.requests.iter();
        let name = place.name();
        let mut record = StepRecord {
            inputs: inputs::of(self.fold, self.frames, own, &self.values),
            tasks: conversation::of(self.frames, own, &self.calls),
            requests: requests
                .filter(|one| one.scope() == place.scope && one.step_id() == name)
                .cloned()
                .collect(),
            threshold_millionths: threshold(self.fold, place),
            sendings: sending::of(own, || self.webhooks()),
            ..StepRecord::default()
        };
        for frame in own {
            record.take(frame);
        }
        record
    }

    /// The steps and items that frames are about, in the order of their first frames.
    pub fn places(&self) -> Vec<StepPlace<'f>> {
        let mut places: Vec<_> = self.own.iter().collect();
        places.sort_by_key(|(_, own)| own.first().map(|frame| frame.seq));
        let places = places.into_iter().map(|(key, _)| *key);
        let places = places.map(|(scope, step, item)| StepPlace { scope, step, item });
        places.collect()
    }

    fn webhooks(&self) -> &BTreeMap<u64, WebhookRequest> {
        let requests = || webhooks::requests(self.frames, |_| true, MAX_BYTES);
        self.webhooks.get_or_init(requests)
    }
}

impl StepRecord {
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
        for sending in &mut self.sendings {
            sending.close();
        }
        self
    }
}

fn threshold(fold: &EnvelopeFold, place: StepPlace<'_>) -> Option<u32> {
    let at = fold.state().step_at(place.scope, place.step)?;
    fold.state().agent_plan(at)?.confidence_threshold_millionths
}
