//! The status of one item of a fan-out, derived from the frames about it.

use ktsu_ledger::event::{ItemEvent, StepEvent};
use ktsu_ledger::{Event, Frame};

/// What is known of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ItemStatus {
    /// Where it stands.
    pub(super) state: ItemState,
    /// The latest frame that moved it.
    pub(super) frame: Option<u64>,
}

/// Where an item stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ItemState {
    /// The fan-out has no such item, or the step is none; how many it has, if that is known.
    Unknown {
        /// How many.
        items: Option<u32>,
    },
    /// Its fan-out ended, or was stopped, before its turn came.
    NotBegun,
    /// Its agent is at work.
    Running,
    /// It has an output.
    Complete,
    /// Its agent skipped it, with these words.
    Skipped(String),
    /// It failed.
    Failed {
        /// A stable error code.
        code: String,
        /// For people.
        message: String,
    },
}

/// What became of an item of a step. `items`: how many the fan-out has.
pub(super) fn item_status(
    frames: &[Frame],
    scope: &str,
    step: &str,
    item: u32,
    items: Option<u32>,
) -> ItemStatus {
    let mut told = ItemStatus {
        state: match items {
            Some(items) if item < items => ItemState::NotBegun,
            Some(_) | None => ItemState::Unknown { items },
        },
        frame: None,
    };
    let begins = told.state.clone();
    for frame in frames.iter().filter(|frame| frame.scope == scope) {
        // Another attempt of the step begins with none of what the one before it came to.
        if let Event::Step(event @ (StepEvent::Started(_) | StepEvent::Reset(_))) = &frame.event
            && event.step() == step
        {
            told = ItemStatus {
                state: begins.clone(),
                frame: None,
            };
        }
        if let Event::Item(event) = &frame.event
            && event.step() == step
            && event.item() == item
        {
            told = ItemStatus {
                state: state_of(event),
                frame: Some(frame.seq),
            };
        }
    }
    told
}

fn state_of(event: &ItemEvent) -> ItemState {
    match event {
        ItemEvent::Started(_) => ItemState::Running,
        ItemEvent::Completed(done) => match &done.skipped {
            Some(why) => ItemState::Skipped(why.clone()),
            None => ItemState::Complete,
        },
        ItemEvent::Failed(failed) => ItemState::Failed {
            code: failed.code.clone(),
            message: failed.message.clone(),
        },
    }
}
