//! Compares baselines with new outputs, and summarises the results.

use ktsu_ledger::event::plan::{AgentFile, AgentPlan, Plan, StepPlan, StepWork};
use ktsu_ledger::event::{ComparedTask, Sameness, ValueChange, Violation};
use ktsu_ledger::jcs;
use serde::Serialize;
use serde_json::Value;

use super::{Baseline, hash_of_commands};
use ktsu_workflow::recompute::{
    OutputSchemas, PriorOutput, RecordedTask, TaskEnd, compare_task, is_of_commands, with_commands,
    with_original,
};
use ktsu_workflow::rules::DecisionRules;

/// The step of a plan that a baseline is of.
#[derive(Debug, Clone, Copy)]
pub struct BaselineStep<'a> {
    /// The step.
    pub step: &'a StepPlan,
    /// The plan of its agent.
    pub agent: &'a AgentPlan,
}

/// Finds the agent step at a path: `triage`, `call/inner`.
pub fn find_step<'a>(plan: &'a Plan, path: &str) -> Option<BaselineStep<'a>> {
    let mut workflow = plan.workflows.get(&plan.root)?;
    let (scopes, last) = match path.rsplit_once('/') {
        Some((scopes, last)) => (Some(scopes), last),
        None => (None, path),
    };
    let mut ids = scopes.into_iter().flat_map(|scopes| scopes.split('/'));
    while let Some(id) = ids.next() {
        let is = |name: &str| workflow.steps.iter().find(|step| step.id == name);
        let step = is(id).or_else(|| is(numbered(id)?))?;
        let child = match &step.work {
            StepWork::Workflow(child) => child,
            StepWork::Agent(agent) => &agent.may_invoke.get(numbered(ids.next()?)?)?.child,
            StepWork::Transform(_) | StepWork::Webhook(_) => return None,
        };
        workflow = plan.workflows.get(&child.workflow)?;
    }
    let step = workflow.steps.iter().find(|step| step.id == last)?;
    match &step.work {
        StepWork::Agent(agent) => Some(BaselineStep { step, agent }),
        StepWork::Transform(_) | StepWork::Webhook(_) | StepWork::Workflow(_) => None,
    }
}

/// The name of what a command runs, `NAME.N`, or of a step with an item.
fn numbered(id: &str) -> Option<&str> {
    let (name, number) = id.rsplit_once('.')?;
    number.parse::<u32>().ok().map(|_| name)
}

/// The result of comparing a baseline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BaselineComparison {
    /// The differences in the output and among the commands.
    pub task: ComparedTask,
    /// The verdict on the output alone.
    pub output: Sameness,
    /// True if the commands are others.
    pub commands_changed: bool,
}

/// Holds a baseline against what came of its input now.
///
/// Where the file has the hash of an output alone, the same hash is the same value, and any other
/// says nothing about what differs. `agent` is the one the kit has now.
pub fn compare(
    baseline: &Baseline,
    fresh: Option<&RecordedTask>,
    step: &StepPlan,
    agent: Option<&AgentFile>,
) -> BaselineComparison {
    let end = fresh.and_then(|task| task.end.as_ref());
    let nothing = |words: &str, output| PriorOutput::NotComparable(words.to_owned(), output);
    let before = match (&baseline.snapshot.output, &baseline.snapshot.output_hash) {
        (output, None) => nothing(WITHOUT_HASH, output.clone()),
        (Some(output), Some(_)) => PriorOutput::Value(output.clone()),
        (None, Some(_)) => nothing(OTHER_HASH, None),
    };
    let shape = OutputSchemas {
        output: agent.map(|agent| &agent.output),
        rules: DecisionRules::NEWEST,
        // A fan-out's own schema checks its results as a whole.
        step: Some(step).filter(|_| baseline.metadata.item.is_none()),
    };
    let mut task = compare_task(&before, end, shape);
    let value = end.and_then(TaskEnd::value);
    let is_captured = |value: &Value| {
        let hash = baseline.snapshot.output_hash.as_deref();
        hash == Some(jcs::digest(value).as_str())
    };
    // What was captured may have had the defaults written out.
    let filled = |value: &Value| shape.filled(value).is_ok_and(|value| is_captured(&value));
    let same = value.is_some_and(|value| is_captured(&value) || filled(&value));
    if task.status == Sameness::NotComparable && same {
        task.status = Sameness::Clean;
        task.reason = None;
    }
    if matches!(end, Some(TaskEnd::Failed { code, .. }) if code == "invalid_params") {
        let reason = task.reason.unwrap_or_default();
        task.reason = Some(format!("{reason}; capture it again"));
    }
    let (path, item) = (&baseline.snapshot.step, baseline.metadata.item);
    let output = with_original(task.clone(), fresh, path, item).status;
    let commands = fresh.map_or(&[][..], |task| task.commands.as_slice());
    let (task, commands_changed) = compare_commands(task, baseline, commands);
    BaselineComparison {
        task: with_original(task, fresh, path, item),
        output,
        commands_changed,
    }
}

/// Adds what differs among the commands. Returns whether they differ.
fn compare_commands(
    mut task: ComparedTask,
    baseline: &Baseline,
    after: &[Value],
) -> (ComparedTask, bool) {
    if task.status == Sameness::Failed {
        return (task, false);
    }
    let snapshot = &baseline.snapshot;
    let (status, words) = match (&snapshot.commands, &snapshot.commands_hash) {
        (Some(before), _) => {
            let task = with_commands(task, before, after);
            let changed = task.diff.iter().any(is_of_commands);
            return (task, changed);
        }
        (None, Some(hash)) if *hash != hash_of_commands(after) => {
            (Sameness::ValueChanged, OTHER_COMMANDS)
        }
        (None, None) if !after.is_empty() => (Sameness::NotComparable, WITHOUT_COMMANDS),
        (None, _) => return (task, false),
    };
    let reason = task.reason.take();
    task.reason = Some(reason.map_or(words.to_owned(), |reason| format!("{reason}; {words}")));
    task.status = task.status.max(status);
    (task, status == Sameness::ValueChanged)
}

const WITHOUT_HASH: &str = "the baseline has no outputHash; capture it again";
const WITHOUT_COMMANDS: &str = "the baseline holds no commands; capture it again";
const OTHER_COMMANDS: &str = "other commands than those whose hash the baseline has";
const OTHER_HASH: &str = "another output than the one whose hash the baseline has";

/// One baseline in a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BaselineResult {
    /// True if the commands are others.
    #[serde(skip)]
    pub commands_changed: bool,
    /// The differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<ValueChange>,
    /// The file.
    pub file: String,
    /// The item of a fan-out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u32>,
    /// A name somebody gave it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The verdict on the output alone.
    #[serde(skip)]
    pub output: Sameness,
    /// The reason why it cannot be compared, or the failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The result of a second run on the replies of the first one, where there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated: Option<RepeatedRun>,
    /// True if a task that failed may go well another time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// The outcome.
    pub status: Sameness,
    /// The step, by its path.
    pub step: String,
    /// The places at which the fresh output breaks its schema.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub violations: Vec<Violation>,
    /// The workflow.
    pub workflow: String,
}

/// A second run of a task on the replies and the results of its first run, held against that.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct RepeatedRun {
    /// The differences.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub diff: Vec<ValueChange>,
    /// The reason why there is nothing to compare.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The outcome.
    pub status: Sameness,
}

impl RepeatedRun {
    /// The result of comparing it with the first run.
    pub fn of(compared: BaselineComparison) -> Self {
        let task = compared.task;
        Self {
            diff: task.diff,
            reason: task.reason,
            status: task.status,
        }
    }

    /// Returns `true` if it gave the same.
    pub fn is_same(&self) -> bool {
        self.status == Sameness::Clean
    }

    /// In a line.
    pub fn words(&self) -> String {
        match (&self.reason, self.status) {
            (_, Sameness::Clean) => "the same on the recorded replies".to_owned(),
            (Some(reason), _) => format!("not the same on the recorded replies: {reason}"),
            (None, _) => "not the same on the recorded replies".to_owned(),
        }
    }
}

impl BaselineResult {
    /// Returns `true` if nothing differs, neither from the baseline nor from one run to the next.
    pub fn is_as_before(&self) -> bool {
        self.status == Sameness::Clean && self.repeated.as_ref().is_none_or(RepeatedRun::is_same)
    }

    /// The comparison of the task, without where it came from.
    pub fn task(&self) -> ComparedTask {
        ComparedTask {
            diff: self.diff.clone(),
            item: self.item,
            reason: self.reason.clone(),
            retryable: self.retryable,
            status: self.status,
            step: self.step.clone(),
            violations: self.violations.clone(),
        }
    }

    /// A compared baseline, by the name of its file.
    pub fn of(file: String, baseline: &Baseline, compared: BaselineComparison) -> Self {
        let task = compared.task;
        Self {
            commands_changed: compared.commands_changed,
            output: compared.output,
            diff: task.diff,
            file,
            item: task.item,
            label: baseline.metadata.label.clone(),
            reason: task.reason,
            repeated: None,
            retryable: task.retryable,
            status: task.status,
            step: task.step,
            violations: task.violations,
            workflow: baseline.snapshot.workflow.clone(),
        }
    }
}

/// The numbers of baselines by outcome.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct BaselineCounts {
    /// All of them.
    pub total: usize,
    /// The same again.
    pub passed: usize,
    /// Another value.
    pub changed: usize,
    /// A broken schema.
    pub schema_violations: usize,
    /// No output at all.
    pub failed: usize,
    /// Other commands, whatever the output is.
    pub commands_changed: usize,
    /// Nothing to compare with.
    pub diff_unavailable: usize,
    /// Other outcomes of a second run on the same replies; absent without second runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repeated_otherwise: Option<usize>,
}

/// The verdict over all.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum BaselineVerdict {
    /// Everything is as it was.
    Pass,
    /// Something is not.
    Fail,
    /// Something could not be run.
    Error,
}

/// The differences that do not count against a kit.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ToleratedDifferences {
    /// Other values.
    pub values: bool,
    /// Other commands.
    pub commands: bool,
    /// Outputs that cannot be compared.
    pub not_comparable: bool,
}

impl ToleratedDifferences {
    /// Returns `true` if everything in a result is tolerated.
    fn cover(self, one: &BaselineResult) -> bool {
        let commands = !one.commands_changed || self.commands;
        // What is not comparable may be so for the commands alone.
        let rest = match one.commands_changed {
            true => one.output,
            false => one.status,
        };
        let repeated = one.repeated.as_ref().is_none_or(RepeatedRun::is_same);
        commands
            && repeated
            && match rest {
                Sameness::Clean => true,
                Sameness::ValueChanged => self.values,
                Sameness::NotComparable => self.not_comparable,
                Sameness::SchemaViolation | Sameness::Failed => false,
            }
    }
}

/// The report of a test of baselines.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BaselineReport {
    /// 1.
    pub version: u32,
    /// The step, if all are of one.
    pub step: Option<String>,
    /// The verdict.
    pub status: BaselineVerdict,
    /// In a line.
    pub summary: String,
    /// The numbers of baselines by outcome.
    pub counts: BaselineCounts,
    /// In the order of their files.
    pub baselines: Vec<BaselineResult>,
}

impl BaselineReport {
    /// The report of some baselines.
    pub fn of(baselines: Vec<BaselineResult>, tolerated: ToleratedDifferences) -> Self {
        let count = |wanted: Sameness| baselines.iter().filter(|one| one.status == wanted).count();
        let repeated = baselines.iter().filter_map(|one| one.repeated.as_ref());
        let repeated: Vec<&RepeatedRun> = repeated.collect();
        let counts = BaselineCounts {
            total: baselines.len(),
            passed: count(Sameness::Clean),
            changed: count(Sameness::ValueChanged),
            schema_violations: count(Sameness::SchemaViolation),
            failed: count(Sameness::Failed),
            commands_changed: baselines.iter().filter(|one| one.commands_changed).count(),
            diff_unavailable: count(Sameness::NotComparable),
            repeated_otherwise: (!repeated.is_empty())
                .then(|| repeated.iter().filter(|one| !one.is_same()).count()),
        };
        let status = if counts.failed > 0 {
            BaselineVerdict::Error
        } else if !baselines.iter().all(|one| tolerated.cover(one)) {
            BaselineVerdict::Fail
        } else {
            BaselineVerdict::Pass
        };
        let commands = match counts.commands_changed {
            0 => String::new(),
            count => format!(", {count} with other commands"),
        };
        let twice = match counts.repeated_otherwise {
            None => String::new(),
            Some(0) => format!(", {} the same twice", repeated.len()),
            Some(count) => format!(", {count} not the same twice"),
        };
        let first = baselines.first().map(|one| one.step.clone());
        let step = first.filter(|step| baselines.iter().all(|one| one.step == *step));
        Self {
            version: 1,
            step,
            status,
            summary: format!(
                "{} of {} clean, {} changed, {} broke their schema, {} not comparable, {} failed{commands}{twice}",
                counts.passed,
                counts.total,
                counts.changed,
                counts.schema_violations,
                counts.diff_unavailable,
                counts.failed
            ),
            counts,
            baselines,
        }
    }
}
