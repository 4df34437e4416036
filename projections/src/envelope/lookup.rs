//! One step of an envelope, or one item of a fan-out.

use super::{EnvelopeFold, ItemView, ShownStatus, StepView, UsageView};
use crate::lineage::item_name;
use crate::run::StepStatus;
use crate::usage::Usage;

/// The reason for which an item is shown as skipped that was never started.
const NEVER_STARTED: &str = "never_started";

impl EnvelopeFold {
    /// A step of the run (`""`) or of an inline child, as its envelope shows it.
    pub fn step(&self, path: &str, step: &str) -> Option<StepView> {
        let steps = self.envelope(path)?.steps;
        steps.into_iter().find(|view| view.id == step)
    }

    /// An item of a fan-out that has begun. One that was not started is `pending` and, once the step
    /// has ended, `skipped`, as its counts have it.
    pub fn item(&self, path: &str, step: &str, item: u32) -> Option<ItemView> {
        let held = self.state().step(self.state().step_at(path, step)?)?;
        let items = held.tasks.as_deref()?.items?;
        if item >= items {
            return None;
        }
        let started = self.step(path, step)?.items.unwrap_or_default();
        let found = started.into_iter().find(|view| view.item == item);
        Some(found.unwrap_or_else(|| never_started(step, item, held.status)))
    }
}

fn never_started(step: &str, item: u32, of_step: StepStatus) -> ItemView {
    let waits = matches!(of_step, StepStatus::Pending | StepStatus::Running);
    let status = match waits {
        true => StepStatus::Pending,
        false => StepStatus::Skipped,
    };
    ItemView {
        item,
        id: item_name(step, Some(item)),
        status: ShownStatus::Own(status),
        skip_reason: (!waits).then(|| NEVER_STARTED.to_owned()),
        metrics: UsageView::of(&Usage::default()),
        ..ItemView::default()
    }
}
