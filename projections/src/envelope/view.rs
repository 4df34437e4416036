//! Envelopes as they are shown, from the state of a run and the details beside it.

use std::collections::BTreeMap;

use ktsu_ledger::CanonicalJson;
use ktsu_ledger::event::EnvValue;
use ktsu_ledger::event::plan::StepWork;
use serde_json::json;

use super::details::{EnvelopeDetails, StepDetail};
use super::{
    BranchView, Envelope, EnvelopeWarning, InvokedView, ItemCountsView, ItemView, REDACTED,
    ShownStatus, StepView, UsageView, WorldSummary, skip_marker, step_kind, world,
};
use crate::lineage::item_name;
use crate::run::{
    AgentTask, Effective, ItemEnd, RunState, Scope, Step, StepKey, StepStatus, TaskPhase, Tasks,
};
use crate::step_name::scoped_run;

impl EnvelopeDetails {
    /// The envelope of the run as it stands. Of a run whose steps a person changed after its end,
    /// the output is the recorded one.
    pub fn envelope(&self, state: &RunState) -> Option<Envelope> {
        let shown = Shown {
            state,
            details: self,
            outputs: &BTreeMap::new(),
        };
        shown.envelope("")
    }
}

/// The parts that an envelope is made of.
pub(super) struct Shown<'a> {
    pub(super) state: &'a RunState,
    pub(super) details: &'a EnvelopeDetails,
    /// Outputs in place of the recorded ones.
    pub(super) outputs: &'a BTreeMap<u32, CanonicalJson>,
}

impl Shown<'_> {
    pub(super) fn envelope(&self, path: &str) -> Option<Envelope> {
        let at = self.state.scope_at(path)?;
        let scope = self.state.scope(at)?;
        let detail = self.details.scopes.get(&at).cloned().unwrap_or_default();
        // Inline children have no world of their own.
        let responding = self.state.responding().filter(|_| path.is_empty());
        let is_open = !self.state.status().is_terminal();
        let hash = detail.world_hash.filter(|_| detail.ended.is_some());
        Some(Envelope {
            run_id: scoped_run(self.state.stream().name(), path),
            workflow: scope.shape.plan.name.clone(),
            version: scope.shape.plan.version.clone(),
            status: match path {
                "" => self.state.status(),
                _ => scope.status,
            },
            branch: self.branch().filter(|_| path.is_empty()),
            effects: match path.is_empty() && self.state.is_created_suppressed() {
                true => Some("suppress".to_owned()),
                false => None,
            },
            error: detail.error,
            warnings: self.warnings(path),
            params: self.state.params(at),
            env: match scope.parent {
                None => self.env(),
                Some(_) => BTreeMap::new(),
            },
            steps: self.step_views(at, scope),
            output: self.output(at, scope),
            world: responding.map(|all| WorldSummary::of(all, hash, is_open)),
            totals: UsageView::of(&detail.usage),
            created_at: detail.began,
            ended_at: detail.ended,
        })
    }

    /// Inline children have none of their own.
    fn warnings(&self, path: &str) -> Vec<EnvelopeWarning> {
        if !path.is_empty() {
            return Vec::new();
        }
        let mut all: Vec<_> = self.details.offers.warnings().collect();
        all.extend(
            self.state
                .responding()
                .into_iter()
                .flat_map(world::warnings),
        );
        all
    }

    fn resume_step(&self, at: StepKey) -> Option<String> {
        let other = self.state.resume_step(at)?;
        Some(self.state.scope_of(at)?.shape.step(other)?.id.clone())
    }

    fn invoked(&self, at: StepKey) -> Vec<InvokedView> {
        let children = self.state.invoked_children(at);
        let view = |child: &Scope| {
            let invoked = child.invoked.as_ref()?;
            let ended = child.ended.as_ref();
            let output = ended.and_then(|ended| ended.output.as_ref());
            Some(InvokedView {
                step: invoked.name.clone(),
                index: invoked.index,
                item: invoked.item,
                run: child.path.clone(),
                status: child.status,
                output: output.map(|held| held.json.clone()),
            })
        };
        children.filter_map(view).collect()
    }

    fn output(&self, at: u32, scope: &Scope) -> Option<CanonicalJson> {
        let recorded = scope.ended.as_ref()?.output.as_ref()?;
        let shown = self.outputs.get(&at);
        Some(shown.unwrap_or(&recorded.json).clone())
    }

    fn branch(&self) -> Option<BranchView> {
        let fork = self.state.fork()?;
        Some(BranchView {
            parent_run_id: fork.parent.clone(),
            fork_position: fork.position,
            inherited_cost_micro_usd: self.details.prefix.unwrap_or_default(),
        })
    }

    fn env(&self) -> BTreeMap<String, String> {
        let shown = |value: &EnvValue| match value {
            EnvValue::Value(value) => value.clone(),
            EnvValue::Secret => REDACTED.to_owned(),
        };
        let env = &self.state.created().env;
        env.iter()
            .map(|(name, value)| (name.clone(), shown(value)))
            .collect()
    }

    fn step_views(&self, at: u32, scope: &Scope) -> Vec<StepView> {
        let steps = scope.shape.plan.steps.iter().zip(&scope.steps);
        (0u32..)
            .zip(steps)
            .map(|(position, (plan, step))| {
                let at = StepKey::of(at, position);
                let detail = self.details.steps.get(&at);
                let detail: StepDetail =
                    detail.map_or_else(Default::default, |held| StepDetail::clone(held));
                let metrics = detail.metrics();
                let reflected = detail.reflected();
                let fan_out = is_fan_out(&plan.work) && step.started.is_some();
                let tasks = step.tasks.as_deref();
                StepView {
                    id: plan.id.clone(),
                    kind: step_kind(&plan.work).to_owned(),
                    status: ShownStatus::of(step.status, self.state.awaits_people(step)),
                    attempt: step.attempt,
                    started_at: detail.started,
                    ended_at: detail.ended,
                    output: output_view(self.state.effective(at)),
                    computed: step
                        .effective
                        .as_ref()
                        .and(step.output.as_ref())
                        .map(|held| held.json.clone()),
                    overlay: step
                        .overlay
                        .iter()
                        .map(|(field, over)| (field.clone(), over.value.clone()))
                        .collect(),
                    raw_output: detail.raw,
                    resume_step: self.resume_step(at),
                    skip_reason: skip_reason(step),
                    error: detail.error,
                    reflected: matches!(plan.work, StepWork::Agent(_)).then_some(reflected),
                    said: detail.said,
                    counts: fan_out.then(|| counts(step.status, tasks)),
                    items: fan_out.then(|| item_views(&plan.id, tasks, detail.items)),
                    invoked: self.invoked(at),
                    metrics,
                }
            })
            .collect()
    }
}

fn is_fan_out(work: &StepWork) -> bool {
    match work {
        StepWork::Agent(plan) => plan.for_each.is_some(),
        StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => false,
    }
}

fn counts(status: StepStatus, tasks: Option<&Tasks>) -> ItemCountsView {
    let Some(tasks) = tasks else {
        return ItemCountsView::default();
    };
    let has_ended = !matches!(status, StepStatus::Pending | StepStatus::Running);
    let started = u32::try_from(tasks.list.len()).unwrap_or(u32::MAX);
    let never = tasks.items.unwrap_or_default().saturating_sub(started);
    ItemCountsView {
        succeeded: tasks.succeeded,
        failed: tasks.failed,
        skipped: tasks.skipped + if has_ended { never } else { 0 },
    }
}

fn item_views(
    step: &str,
    tasks: Option<&Tasks>,
    mut details: BTreeMap<u32, StepDetail>,
) -> Vec<ItemView> {
    let tasks = tasks.filter(|tasks| tasks.items.is_some());
    let list = tasks.map_or(&[][..], |tasks| tasks.list.as_slice());
    (0u32..)
        .zip(list)
        .map(|(item, task)| {
            let detail = details.remove(&item).unwrap_or_default();
            item_view(step, item, task, detail)
        })
        .collect()
}

fn item_view(step: &str, item: u32, task: &AgentTask, detail: StepDetail) -> ItemView {
    let (status, output, skip_reason) = match &task.ended {
        None => (StepStatus::Running, None, None),
        Some(ItemEnd::Output(output)) => (StepStatus::Complete, Some(output.clone()), None),
        Some(ItemEnd::Failed(_)) => (StepStatus::Failed, None, None),
        Some(ItemEnd::Skipped(reason)) => {
            let marker = json!({"skipped": true, "reason": reason, "item_index": item});
            let marker = CanonicalJson::from_value(&marker).ok();
            (StepStatus::Skipped, marker, Some(reason.clone()))
        }
    };
    ItemView {
        item,
        id: item_name(step, Some(item)),
        status: ShownStatus::of(status, task.phase == TaskPhase::Suspended),
        attempt: task.attempt,
        started_at: detail.started,
        ended_at: detail.ended,
        output,
        skip_reason,
        reflected: detail.reflected(),
        metrics: detail.metrics(),
        raw_output: detail.raw,
        error: detail.error,
        said: detail.said,
    }
}

/// The agent's words, where it was the agent who wanted the step skipped.
fn skip_reason(step: &Step) -> Option<String> {
    let reason = step.skipped?;
    let words = step.skip_detail.as_deref();
    Some(words.unwrap_or(reason.as_str()).to_owned())
}

fn output_view(value: Effective<'_>) -> Option<CanonicalJson> {
    match value {
        Effective::Output(held) => Some(held.json.clone()),
        Effective::Skipped(_) | Effective::Suppressed(_) => {
            skip_marker(&value).and_then(|marker| CanonicalJson::from_value(&marker).ok())
        }
        Effective::Absent => None,
    }
}
