//! The skeleton of a run: its steps, items and calls with their times, statuses and costs, and nothing
//! that was said in it.
//!
//! It is what a drawing of the run needs, small whatever the run was given and answered. Times are
//! milliseconds since the run was created.

mod attempts;
mod calls;

use std::collections::HashMap;

use ktsu_ledger::{Frame, Timestamp};
use ktsu_projections::Lineage;
use ktsu_projections::attempts::AttemptHistory;
use ktsu_projections::envelope::{
    BranchView, EnvelopeFold, ErrorView, ItemCountsView, ItemView, ShownStatus, StepView, UsageView,
};
use ktsu_projections::life::{Change, changes};
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::{RunStatus, StepStatus};
use ktsu_projections::step_name::path_in;
use serde::Serialize;
use utoipa::ToSchema;

pub use self::attempts::AttemptSpan;
use self::calls::SpanMap;
pub use self::calls::{CallSpan, CallSpanKind, CallSpanStatus};
use super::steering::{SteeringState, SteeringView};

/// The most items of a step that are shown one by one unless more are asked for.
pub const USUAL_ITEMS: usize = 100;
/// The most characters of a reason to skip a step.
const MAX_REASON: usize = 200;

/// A run, or an inline child, without what was said in it.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSkeleton {
    /// `run_…`, or `run_…/call`.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// The status.
    #[schema(value_type = String)]
    pub status: RunStatus,
    /// The code of the error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The principal that started the run, or the branch.
    pub principal: String,
    /// For a branch: what it was forked from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub branch: Option<BranchView>,
    /// The time at which the run was created, from which times count.
    #[schema(value_type = String)]
    pub created_at: Timestamp,
    /// The time at which it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>)]
    pub ended_at: Option<Timestamp>,
    /// The time of the last frame that was read, in milliseconds.
    pub last_ms: u64,
    /// The number of frames of the run.
    pub frames: u64,
    /// The number of questions that wait for people.
    pub waiting: usize,
    /// The command that paused it, while it is paused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paused: Option<SteeringView>,
    /// The command that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cancelled: Option<SteeringView>,
    /// The times in which it was paused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pauses: Vec<PauseSpan>,
    /// True if it has a world: it is no inline child, and loads worlds.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub loads_worlds: bool,
    /// The usage of all of it.
    pub totals: UsageView,
    /// Its steps, in file order.
    pub steps: Vec<StepSpan>,
}

/// A time in which a run was paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct PauseSpan {
    /// The frame that pauses it.
    pub frame: u64,
    /// Its beginning.
    pub from_ms: u64,
    /// Its end, if it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
}

/// A step, or an item of a fan-out.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepSpan {
    /// Its path from the run: `step`, `call/inner`, `classify.8`.
    pub path: String,
    /// `agent`, `transform`, `webhook`, `workflow` or `item`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The status.
    #[schema(value_type = String)]
    pub status: ShownStatus,
    /// The number of the attempt, once there is one.
    pub attempt: u32,
    /// The steps beside it that it followed from, by id.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub after: Vec<String>,
    /// The steps beside it that it waits for by its plan, by id: those that it depends on, and those that
    /// its condition and its values mention.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
    /// The first frame about it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frame: Option<u64>,
    /// The beginning from which its duration counts, once it began: that of its latest attempt, or of an
    /// earlier one if its worker was lost since then, or it waited for data.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub from_ms: Option<u64>,
    /// The beginning of its latest attempt, if that is later.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub attempt_from_ms: Option<u64>,
    /// Its end, once it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// The reason why it was skipped, at most 200 characters of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub skip_reason: Option<String>,
    /// The code of the error with which it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its usage.
    pub metrics: UsageView,
    /// The attempts before the latest one, in order; all of them if it is to begin again.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub attempts: Vec<AttemptSpan>,
    /// The number of attempts before those, of which at most 20 are shown.
    #[serde(skip_serializing_if = "calls::is_zero")]
    pub earlier_attempts: u64,
    /// The calls that left the process on behalf of its latest attempt, and what that asked people.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub calls: Vec<CallSpan>,
    /// The number of calls before those, of which at most 500 are shown.
    #[serde(skip_serializing_if = "calls::is_zero")]
    pub earlier_calls: usize,
    /// The counts of how its items ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub counts: Option<ItemCountsView>,
    /// Its items, by index: of many, those that did not just complete.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(no_recursion)]
    pub items: Vec<StepSpan>,
    /// The items that are left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub folded: Option<FoldedItems>,
    /// The workflow that it runs, and those that its commands ran.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<ChildSpan>,
}

impl StepSpan {
    /// The beginning of its latest attempt, in milliseconds, once it began.
    pub fn latest_from_ms(&self) -> Option<u64> {
        self.attempt_from_ms.or(self.from_ms)
    }

    /// Its earlier attempts that are kept, counted from 1: attempts of an inline child have numbers that
    /// begin again.
    pub fn numbered_attempts(&self) -> impl Iterator<Item = (u64, &AttemptSpan)> {
        (self.earlier_attempts + 1..).zip(&self.attempts)
    }

    /// How long its latest attempt took up to its end, or to a moment if it has not ended.
    pub fn took_until(&self, now_ms: u64) -> Option<u64> {
        let until_ms = self.until_ms.unwrap_or(now_ms);
        Some(until_ms.saturating_sub(self.latest_from_ms()?))
    }

    /// How long its latest attempt took, if it has ended.
    pub fn took_ms(&self) -> Option<u64> {
        self.took_until(self.until_ms?)
    }
}

/// Items of a step that are not shown one by one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FoldedItems {
    /// How many there are.
    pub count: u64,
    /// How many of them are complete.
    pub complete: u64,
    /// The beginning of the first one.
    pub from_ms: u64,
    /// The end of the last one, if all of them ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Their cost, in millionths of a US dollar.
    pub cost_micro_usd: u64,
}

/// A workflow that a step runs.
#[derive(Debug, Clone, PartialEq, Serialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ChildSpan {
    /// `run_…/call`.
    pub run_id: String,
    /// The workflow.
    pub workflow: String,
    /// Its version.
    pub version: String,
    /// The status.
    #[schema(value_type = String)]
    pub status: RunStatus,
    /// Its steps, in file order.
    #[schema(no_recursion)]
    pub steps: Vec<StepSpan>,
}

/// The skeleton of a recorded run (`""`) or an inline child, with at most so many items of each step;
/// none if there is no such child. `fold` is that of the frames.
pub fn skeleton(
    fold: &EnvelopeFold,
    frames: &[Frame],
    scope: &str,
    most_items: usize,
) -> Option<RunSkeleton> {
    let first = frames.first()?;
    let envelope = fold.envelope(scope)?;
    let lineage = Lineage::from_frames(frames);
    let mut begins = HashMap::new();
    for node in lineage.nodes() {
        if let Some(step) = &node.step {
            let key = (node.scope.as_str(), step.as_str());
            begins.entry(key).or_insert(node.seq);
        }
    }
    let builder = SkeletonBuilder {
        fold,
        lineage: &lineage,
        begins,
        attempts: AttemptHistory::fold(frames),
        spans: SpanMap::of(frames, &lineage),
        start: first.at,
        most_items,
    };
    let steps = builder.steps(scope, envelope.steps);
    let steered = SteeringState::of(fold.state());
    let is_within = |path: &str| super::frame_page::is_within(path, scope);
    Some(RunSkeleton {
        principal: principal(frames),
        created_at: first.at,
        ended_at: envelope.ended_at,
        last_ms: frames.last().map_or(0, |last| builder.since(last.at)),
        frames: frames.len() as u64,
        waiting: builder.spans.waiting(is_within),
        paused: steered.paused,
        cancelled: steered.cancelled,
        pauses: pauses(frames, first.at),
        error: envelope.error.as_ref().map(|error| error.code.clone()),
        loads_worlds: scope.is_empty() && fold.state().responding().is_some(),
        totals: envelope.totals,
        branch: envelope.branch,
        run_id: envelope.run_id,
        workflow: envelope.workflow,
        version: envelope.version,
        status: envelope.status,
        steps,
    })
}

/// In whose name the run goes.
fn principal(frames: &[Frame]) -> String {
    let all = frames.iter().flat_map(changes);
    let last = all.filter_map(|change| change.proposer()).last();
    last.map(|by| by.id.clone()).unwrap_or_default()
}

fn pauses(frames: &[Frame], start: Timestamp) -> Vec<PauseSpan> {
    let mut pauses: Vec<PauseSpan> = Vec::new();
    for frame in frames {
        for change in changes(frame) {
            let at = frame.at.millis_since(start);
            let open = pauses.last_mut().filter(|pause| pause.until_ms.is_none());
            match (change, open) {
                (Change::Paused(_), None) => pauses.push(PauseSpan {
                    frame: frame.seq,
                    from_ms: at,
                    until_ms: None,
                }),
                (Change::Resumed(_) | Change::Stopped(..) | Change::Forked(_), Some(open)) => {
                    open.until_ms = Some(at);
                }
                _ => {}
            }
        }
    }
    pauses
}

struct SkeletonBuilder<'a> {
    fold: &'a EnvelopeFold,
    lineage: &'a Lineage,
    /// The first frame about a step or an item, by scope and name.
    begins: HashMap<(&'a str, &'a str), u64>,
    attempts: AttemptHistory,
    spans: SpanMap,
    start: Timestamp,
    most_items: usize,
}

impl SkeletonBuilder<'_> {
    /// Children are as deep as their workflows are nested, which the kit bounds.
    fn steps(&self, scope: &str, views: Vec<StepView>) -> Vec<StepSpan> {
        let steps = views.into_iter();
        steps.map(|step| self.step(scope, step)).collect()
    }

    fn step(&self, scope: &str, view: StepView) -> StepSpan {
        let begin = self.begin(scope, &view.id);
        let mut children = Vec::new();
        if view.kind == "workflow" && begin.is_some() {
            children.extend(self.child(&path_in(scope, &view.id)));
        }
        children.extend(view.invoked.iter().filter_map(|one| self.child(&one.run)));
        let (items, folded) = self.items(scope, &view.id, view.items.unwrap_or_default());
        let (from_ms, until_ms) = self.times(view.started_at, view.ended_at);
        let attempts = self.attempts(scope, &view.id, view.status, until_ms);
        StepSpan {
            path: path_in(scope, &view.id),
            after: self.predecessors(scope, &view.id, begin),
            needs: self.needs(scope, &view.id),
            frame: begin,
            from_ms,
            attempt_from_ms: attempts.from_ms.filter(|at| Some(*at) > from_ms),
            until_ms,
            attempts: attempts.earlier,
            earlier_attempts: attempts.before,
            calls: attempts.calls,
            earlier_calls: attempts.earlier_calls,
            kind: view.kind,
            status: view.status,
            attempt: view.attempt,
            skip_reason: view.skip_reason.map(short),
            error: code(view.error),
            metrics: view.metrics,
            counts: view.counts,
            items,
            folded,
            children,
        }
    }

    fn child(&self, path: &str) -> Option<ChildSpan> {
        let envelope = self.fold.envelope(path)?;
        Some(ChildSpan {
            run_id: envelope.run_id,
            workflow: envelope.workflow,
            version: envelope.version,
            status: envelope.status,
            steps: self.steps(path, envelope.steps),
        })
    }

    /// The items that are shown, and the others in sum.
    fn items(
        &self,
        scope: &str,
        step: &str,
        views: Vec<ItemView>,
    ) -> (Vec<StepSpan>, Option<FoldedItems>) {
        let complete = |view: &ItemView| view.status == ShownStatus::Own(StepStatus::Complete);
        let all = views.len() <= self.most_items;
        let mut room = self.most_items;
        let (mut shown, mut folded) = (Vec::new(), None);
        for view in views {
            if room > 0 && (all || !complete(&view)) {
                room -= 1;
                shown.push(self.item(scope, step, view));
            } else {
                self.fold_item(&mut folded, &view);
            }
        }
        (shown, folded)
    }

    fn fold_item(&self, folded: &mut Option<FoldedItems>, view: &ItemView) {
        let (from_ms, until_ms) = self.times(view.started_at, view.ended_at);
        let from_ms = from_ms.unwrap_or_default();
        let sum = folded.get_or_insert(FoldedItems {
            count: 0,
            complete: 0,
            from_ms,
            until_ms: Some(0),
            cost_micro_usd: 0,
        });
        sum.count += 1;
        sum.complete += u64::from(view.status == ShownStatus::Own(StepStatus::Complete));
        sum.from_ms = sum.from_ms.min(from_ms);
        sum.until_ms = sum
            .until_ms
            .zip(until_ms)
            .map(|(one, other)| one.max(other));
        let cost = view.metrics.cost_micro_usd;
        sum.cost_micro_usd = sum.cost_micro_usd.saturating_add(cost);
    }

    fn item(&self, scope: &str, step: &str, view: ItemView) -> StepSpan {
        let name = item_name(step, Some(view.item));
        let begin = self.begin(scope, &name);
        let (from_ms, until_ms) = self.times(view.started_at, view.ended_at);
        let attempts = self.attempts(scope, &name, view.status, until_ms);
        StepSpan {
            path: path_in(scope, &name),
            kind: "item".to_owned(),
            status: view.status,
            attempt: view.attempt,
            after: Vec::new(),
            needs: Vec::new(),
            frame: begin,
            from_ms,
            attempt_from_ms: attempts.from_ms.filter(|at| Some(*at) > from_ms),
            until_ms,
            skip_reason: view.skip_reason.map(short),
            error: code(view.error),
            metrics: view.metrics,
            attempts: attempts.earlier,
            earlier_attempts: attempts.before,
            calls: attempts.calls,
            earlier_calls: attempts.earlier_calls,
            counts: None,
            items: Vec::new(),
            folded: None,
            children: Vec::new(),
        }
    }

    /// The first frame about a step or an item.
    fn begin(&self, scope: &str, name: &str) -> Option<u64> {
        self.begins.get(&(scope, name)).copied()
    }

    /// The beginning and the end; what was skipped or stopped before it began took no time.
    fn times(
        &self,
        began: Option<Timestamp>,
        ended: Option<Timestamp>,
    ) -> (Option<u64>, Option<u64>) {
        let since = |at| self.since(at);
        (began.or(ended).map(since), ended.map(since))
    }

    /// The steps that a step waits for, in file order.
    fn needs(&self, scope: &str, id: &str) -> Vec<String> {
        let state = self.fold.state();
        let scope = state.scope_at(scope).and_then(|at| state.scope(at));
        let Some(shape) = scope.map(|scope| &scope.shape) else {
            return Vec::new();
        };
        let step = shape.position(id).and_then(|at| shape.step(at));
        let needs = step.map_or(&[][..], |step| &step.needs);
        let needs = needs.iter().filter_map(|at| shape.step(*at));
        needs.map(|step| step.id.clone()).collect()
    }

    /// The steps whose frames caused the first frame of this one.
    fn predecessors(&self, scope: &str, id: &str, begin: Option<u64>) -> Vec<String> {
        let node = begin.and_then(|seq| self.lineage.node(seq));
        node.map_or_else(Vec::new, |node| {
            super::steps::steps_before(self.lineage, node, scope, id)
        })
    }

    fn since(&self, at: Timestamp) -> u64 {
        at.millis_since(self.start)
    }
}

fn code(error: Option<ErrorView>) -> Option<String> {
    error.map(|error| error.code)
}

fn short(reason: String) -> String {
    match reason.char_indices().nth(MAX_REASON) {
        Some((end, _)) => format!("{}…", reason.get(..end).unwrap_or_default()),
        None => reason,
    }
}
