//! The counters: runs, steps, calls, tokens, cost, durations.
//!
//! Every label is bounded: workflows and model groups by [`MAX_WORKFLOWS`] and [`MAX_GROUPS`], all
//! others by the values in the code.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use ktsu_ledger::appender::OnWritten;
use ktsu_ledger::store::LedgerStatus;
use ktsu_projections::run::RunStatus;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};

use super::labels::PerLabel;
use super::ledger::LedgerMetrics;
use super::milestone::{Milestone, MilestoneCount, RunEnd, StepKind, StepOutcome, name};
use super::person_waits::PersonWaitMetrics;

/// The most workflows that are told apart.
const MAX_WORKFLOWS: usize = 1000;
/// The most model groups that are told apart.
const MAX_GROUPS: usize = 256;

/// Bounds of a run's time, in seconds: a transform takes milliseconds, a person's approval hours.
const RUN_SECONDS: [f64; 10] = [
    0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0, 300.0, 1800.0, 7200.0,
];
/// Bounds of the time of a step or a call, in seconds.
const STEP_SECONDS: [f64; 10] = [0.005, 0.02, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0, 30.0, 120.0];
/// Bounds of the time of a commit, in seconds: a sync takes parts of a millisecond.
const COMMIT_SECONDS: [f64; 10] = [
    0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.1, 0.5, 2.0,
];

type OneLabel = [(&'static str, String); 1];
type TwoLabels = [(&'static str, String); 2];
type Seconds = Counter<f64, AtomicU64>;

/// Counters of everything that happens to runs. A clone counts the same.
#[derive(Debug, Clone)]
pub struct Metrics {
    families: Arc<Families>,
}

#[derive(Debug)]
struct Families {
    workflows: PerLabel<WorkflowMetrics>,
    groups: PerLabel<GroupMetrics>,
    accepted: Family<OneLabel, Counter>,
    ended: Family<TwoLabels, Counter>,
    unfinished: Family<TwoLabels, Gauge>,
    run_seconds: Family<OneLabel, Histogram, fn() -> Histogram>,
    steps: Family<TwoLabels, Counter>,
    /// Those of `steps` that are transforms, by outcome: most steps are.
    transforms: [Counter; 3],
    step_seconds: Family<OneLabel, Histogram, fn() -> Histogram>,
    calls: Family<TwoLabels, Counter>,
    call_seconds: Family<OneLabel, Histogram, fn() -> Histogram>,
    tokens: Family<TwoLabels, Counter>,
    cost: Family<OneLabel, Seconds>,
    person_waits: PersonWaitMetrics,
    commit_seconds: Histogram,
    ledger: LedgerMetrics,
}

/// The metrics of one workflow.
#[derive(Debug)]
pub(super) struct WorkflowMetrics {
    accepted: Counter,
    ended: [Counter; 3],
    unfinished: [Gauge; 3],
    seconds: Histogram,
}

/// The metrics of one model group.
#[derive(Debug)]
struct GroupMetrics {
    input: Counter,
    output: Counter,
    cached: Counter,
    reasoning: Counter,
    cost: Seconds,
}

const ENDED: [RunStatus; 3] = [RunStatus::Complete, RunStatus::Failed, RunStatus::Cancelled];
const UNFINISHED: [RunStatus; 3] = [RunStatus::Pending, RunStatus::Running, RunStatus::Waiting];

fn run_seconds() -> Histogram {
    Histogram::new(RUN_SECONDS)
}

fn step_seconds() -> Histogram {
    Histogram::new(STEP_SECONDS)
}

fn one_label(name: &'static str, value: &str) -> OneLabel {
    [(name, value.to_owned())]
}

fn two_labels(first: (&'static str, &str), second: (&'static str, &str)) -> TwoLabels {
    [
        (first.0, first.1.to_owned()),
        (second.0, second.1.to_owned()),
    ]
}

impl Default for Metrics {
    fn default() -> Self {
        let steps = Family::<TwoLabels, Counter>::default();
        let of = |kind: StepKind, outcome: StepOutcome| {
            let labels = two_labels(("kind", kind.as_str()), ("outcome", outcome.as_str()));
            steps.get_or_create(&labels).clone()
        };
        // Every kind is shown before its first step.
        for kind in StepKind::ALL {
            let _shown = StepOutcome::ALL.map(|outcome| of(kind, outcome));
        }
        let transforms = StepOutcome::ALL.map(|outcome| of(StepKind::Transform, outcome));
        let families = Families {
            workflows: PerLabel::new(MAX_WORKFLOWS),
            groups: PerLabel::new(MAX_GROUPS),
            accepted: Family::default(),
            ended: Family::default(),
            unfinished: Family::default(),
            run_seconds: Family::new_with_constructor(run_seconds),
            steps,
            transforms,
            step_seconds: Family::new_with_constructor(step_seconds),
            calls: Family::default(),
            call_seconds: Family::new_with_constructor(step_seconds),
            tokens: Family::default(),
            cost: Family::default(),
            person_waits: PersonWaitMetrics::default(),
            commit_seconds: Histogram::new(COMMIT_SECONDS),
            ledger: LedgerMetrics::default(),
        };
        Self {
            families: Arc::new(families),
        }
    }
}

impl Metrics {
    /// Shows a workflow before its first run.
    pub fn declare_workflow(&self, name: &str) {
        drop(self.workflow(name));
    }

    /// Unfinished runs that were there before the engine started.
    pub fn add_unfinished(&self, workflow: &str, status: RunStatus) {
        self.workflow(&name(workflow))
            .change_status(None, Some(status));
    }

    /// Takes the duration of each transaction from the appender.
    pub fn on_written(&self) -> OnWritten {
        let seconds = self.families.commit_seconds.clone();
        Box::new(move |took| seconds.observe(took.as_secs_f64()))
    }

    /// A branch was accepted that has no task, and where it stands.
    pub fn add_branch(&self, workflow: &str, status: RunStatus) {
        let workflow = self.workflow(&name(workflow));
        workflow.accept();
        workflow.change_status(None, Some(status));
        workflow.count_end(status);
    }

    pub(super) fn workflow(&self, name: &str) -> Arc<WorkflowMetrics> {
        let families = &self.families;
        families.workflows.get(name, |name| {
            let with =
                |status: RunStatus| two_labels(("workflow", name), ("status", status.as_str()));
            let ended = |status| families.ended.get_or_create(&with(status)).clone();
            let unfinished = |status| families.unfinished.get_or_create(&with(status)).clone();
            let labels = one_label("workflow", name);
            WorkflowMetrics {
                accepted: families.accepted.get_or_create(&labels).clone(),
                ended: ENDED.map(ended),
                unfinished: UNFINISHED.map(unfinished),
                seconds: families.run_seconds.get_or_create(&labels).clone(),
            }
        })
    }

    /// The counters of reviews and suspensions.
    /// The state of a ledger on a server.
    pub fn note_ledger(&self, status: &LedgerStatus) {
        self.families.ledger.note(status);
    }

    pub(super) fn person_waits(&self) -> &PersonWaitMetrics {
        &self.families.person_waits
    }

    /// Transforms that a turn ended, by outcome.
    pub(super) fn transforms(&self, ended: [u32; 3]) {
        for (counter, count) in self.families.transforms.iter().zip(ended) {
            if count > 0 {
                counter.inc_by(u64::from(count));
            }
        }
    }

    /// Counts a milestone; `group` is that of the model that was asked.
    pub(super) fn count(&self, milestone: &Milestone, group: Option<&str>) {
        let (families, fields) = (&self.families, &milestone.fields);
        let (counts, seconds, kind, outcome) = match milestone.count {
            None => return,
            Some(MilestoneCount::Step) => {
                let (kind, outcome) = (fields.kind.unwrap_or(""), fields.status.unwrap_or(""));
                (&families.steps, &families.step_seconds, kind, outcome)
            }
            Some(MilestoneCount::Call(kind, outcome)) => {
                (&families.calls, &families.call_seconds, kind, outcome)
            }
            Some(MilestoneCount::Model {
                tokens_cached,
                tokens_reasoning,
            }) => {
                let group = self.group(group.unwrap_or("unknown"));
                group.input.inc_by(fields.tokens_in.unwrap_or(0));
                group.output.inc_by(fields.tokens_out.unwrap_or(0));
                group.cached.inc_by(tokens_cached);
                group.reasoning.inc_by(tokens_reasoning);
                group.cost.inc_by(usd(fields.cost_micro_usd.unwrap_or(0)));
                let outcome = match fields.code {
                    Some(_) => "failed",
                    None => "ok",
                };
                (&families.calls, &families.call_seconds, "model", outcome)
            }
        };
        let labels = two_labels(("kind", kind), ("outcome", outcome));
        counts.get_or_create(&labels).inc();
        if let Some(took) = fields.duration_ms {
            let seconds = seconds.get_or_create(&one_label("kind", kind));
            seconds.observe(seconds_of(took));
        }
    }

    fn group(&self, group: &str) -> Arc<GroupMetrics> {
        let families = &self.families;
        families.groups.get(group, |name| {
            let tokens = |kind: &str| {
                let labels = two_labels(("group", name), ("kind", kind));
                families.tokens.get_or_create(&labels).clone()
            };
            let labels = one_label("group", name);
            GroupMetrics {
                input: tokens("input"),
                output: tokens("output"),
                cached: tokens("cached"),
                reasoning: tokens("reasoning"),
                cost: families.cost.get_or_create(&labels).clone(),
            }
        })
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        let of = &self.families;
        let mut counter = |name: &str, help: &str, family: &Family<TwoLabels, Counter>| {
            registry.register(name, help, family.clone());
        };
        counter(
            "runs_ended",
            "Runs that ended since the start, by workflow and status",
            &of.ended,
        );
        counter(
            "steps",
            "Steps that ended since the start, by kind and outcome",
            &of.steps,
        );
        counter(
            "calls",
            "Calls that ended since the start, by kind and outcome",
            &of.calls,
        );
        counter(
            "model_tokens",
            "Tokens of model calls since the start, by model group; cached and reasoning tokens are part of input and output",
            &of.tokens,
        );
        registry.register(
            "runs_accepted",
            "Runs and branches accepted since the start",
            of.accepted.clone(),
        );
        registry.register(
            "runs_unfinished",
            "Runs that have not ended, by workflow and status",
            of.unfinished.clone(),
        );
        registry.register(
            "model_cost_usd",
            "Cost of model calls since the start in US dollars, by model group",
            of.cost.clone(),
        );
        of.person_waits.register(registry);
        of.ledger.register(registry);
        let mut seconds =
            |name: &str, help: &str, family: &Family<OneLabel, Histogram, fn() -> Histogram>| {
                registry.register_with_unit(name, help, Unit::Seconds, family.clone());
            };
        seconds(
            "run_duration",
            "From the acceptance of a run to its end, waiting included",
            &of.run_seconds,
        );
        seconds(
            "step_duration",
            "From the start of a step to its end, by kind; transforms take none",
            &of.step_seconds,
        );
        seconds(
            "call_duration",
            "From sending to answer, by kind",
            &of.call_seconds,
        );
        registry.register_with_unit(
            "ledger_commit_duration",
            "How long a transaction of the ledger took to be durable",
            Unit::Seconds,
            of.commit_seconds.clone(),
        );
    }
}

impl WorkflowMetrics {
    /// A run was accepted.
    pub(super) fn accept(&self) {
        self.accepted.inc();
    }

    /// A run has another status. What has ended is no longer unfinished.
    pub(super) fn change_status(&self, from: Option<RunStatus>, to: Option<RunStatus>) {
        let gauge = |status: Option<RunStatus>| {
            let at = UNFINISHED.iter().position(|one| Some(*one) == status)?;
            self.unfinished.get(at)
        };
        if let Some(before) = gauge(from) {
            before.dec();
        }
        if let Some(now) = gauge(to) {
            now.inc();
        }
    }

    /// Counts a status that is an end.
    fn count_end(&self, status: RunStatus) {
        let at = ENDED.iter().position(|one| *one == status);
        if let Some(counter) = at.and_then(|at| self.ended.get(at)) {
            counter.inc();
        }
    }

    /// A run ended.
    pub(super) fn end(&self, end: &RunEnd) {
        self.count_end(end.status);
        self.seconds.observe(seconds_of(end.duration_ms));
    }
}

fn seconds_of(millis: u64) -> f64 {
    Duration::from_millis(millis).as_secs_f64()
}

/// Millionths as dollars.
#[allow(clippy::cast_precision_loss)]
pub(super) fn usd(micro: u64) -> f64 {
    micro as f64 / 1e6
}
