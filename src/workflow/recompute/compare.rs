//! Compares the new outputs of a recompute with the recorded ones.
//!
//! A violated schema is reported, and the values are compared all the same: a comparison has no
//! effect on the run (seed 004). An output without a counterpart is never `clean`, nor is the
//! output of a model that requested a call for which the run has no result.

use ktsu_ledger::event::plan::StepPlan;
use ktsu_ledger::event::{ComparedTask, RecomputeCompared, Sameness, ValueChange, Violation};
use ktsu_ledger::{CanonicalJson, Frame};
use ktsu_projections::lineage::item_name;
use ktsu_projections::run::FoldError;
use ktsu_projections::value_diff::diff;
use serde_json::{Value, json};

use super::questions::{ASKS, address};
use super::{RecordedAsk, RecordedRun, RecordedTask, TaskEnd};
use crate::defaults;
use crate::definition::{CompileErrors, CompiledStep};
use crate::failure_text::violations;
use crate::rules::DecisionRules;
use ktsu_schema::message_at;

/// The earlier result of a task.
#[derive(Debug, Clone)]
pub enum PriorOutput {
    /// This value.
    Value(Value),
    /// Nothing that could be compared, for this reason; perhaps a value all the same.
    NotComparable(String, Option<Value>),
}

impl PriorOutput {
    fn of(task: &RecordedTask) -> Self {
        Self::of_end(task.end.as_ref(), task.called)
    }

    fn of_end(end: Option<&TaskEnd>, called: bool) -> Self {
        let value = match end {
            Some(end @ (TaskEnd::Output(_) | TaskEnd::Skipped(_))) => {
                end.value().unwrap_or_default()
            }
            Some(TaskEnd::Failed { code, message, .. }) => {
                return Self::NotComparable(
                    format!("the run recorded no output: {code}: {message}"),
                    None,
                );
            }
            None => return Self::NotComparable("the run recorded no end".to_owned(), None),
        };
        if called {
            return Self::Value(value);
        }
        let words = "the runtime reported an output and no model call that led to it";
        Self::NotComparable(words.to_owned(), Some(value))
    }

    fn value(&self) -> Option<&Value> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotComparable(_, value) => value.as_ref(),
        }
    }
}

/// Compares the frames of a recompute with the run it is of.
///
/// # Errors
/// [`FoldError`] where the recompute's own frames do not fold.
pub fn compare(run: &RecordedRun, fresh: &[Frame]) -> Result<RecomputeCompared, FoldError> {
    let fresh = RecordedRun::from_frames(fresh)?;
    let rules = DecisionRules::from_recorded(fresh.rules).unwrap_or(DecisionRules::NEWEST);
    let params = fresh.params.to_value();
    let mut tasks = Vec::new();
    let steps = params["steps"].as_object();
    for (id, asked) in steps.into_iter().flatten() {
        let path = asked["step"].as_str().unwrap_or_default();
        let count = asked["tasks"].as_array().map_or(0, Vec::len);
        let mut results = Vec::new();
        for place in 0..count {
            let item = asked["tasks"][place]["item"].as_u64();
            let item = item.and_then(|item| u32::try_from(item).ok());
            let mut before = run.tasks.iter();
            let before = before.find(|task| task.item == item && task.path() == path);
            let mut after = fresh.tasks.iter();
            let place = u32::try_from(place).ok();
            let after = after.find(|task| task.item == place && task.step.id == *id);
            let end = after.and_then(|task| task.end.as_ref());
            // A fan-out's own schema checks its results as a whole.
            let step = before.filter(|_| item.is_none()).map(|task| &task.step);
            let missing =
                || PriorOutput::NotComparable("the run has no such task any more".to_owned(), None);
            let known = before.map_or_else(missing, PriorOutput::of);
            let output = after.and_then(|task| fresh.plan.agents.get(&task.agent.file));
            let shape = OutputSchemas {
                output: output.map(|agent| &agent.output),
                rules,
                step,
            };
            results.extend(end.and_then(TaskEnd::value));
            let mut task = compare_task(&known, end, shape);
            if let (Some(before), Some(after)) = (before, after)
                && rules.compares_commands()
            {
                task = with_commands(task, &before.commands, &after.commands);
            }
            tasks.push(with_original(task, after, path, item));
        }
        let whole = run.tasks.iter().find(|task| task.path() == path);
        let whole = whole.filter(|task| task.item.is_some() && results.len() == count);
        tasks.extend(whole.and_then(|task| compare_fan_out(task, path, results, rules)));
    }
    tasks.extend(compare_asks(run, &fresh, &params[ASKS], rules));
    let worst = tasks.iter().map(|task| task.status).max();
    Ok(RecomputeCompared {
        status: worst.unwrap_or(Sameness::NotComparable),
        tasks,
    })
}

/// Compares the replies to what responders asked. A reply is what they see, so the defaults of its
/// schema are not filled in.
fn compare_asks<'a>(
    run: &'a RecordedRun,
    fresh: &'a RecordedRun,
    asked: &'a Value,
    rules: DecisionRules,
) -> impl Iterator<Item = ComparedTask> + 'a {
    let asked = asked.as_object().into_iter().flatten();
    let asked = asked.flat_map(|(responder, asks)| {
        let asks = asks.as_array().into_iter().flatten();
        (0u32..).zip(asks).map(move |(place, ask)| {
            let path = ask["step"].as_str().unwrap_or_default();
            (path, address(responder, place))
        })
    });
    let mut asked: Vec<(&str, String)> = asked.collect();
    let order = |path: &str| run.asks.iter().position(|ask| ask.address == path);
    asked.sort_by_cached_key(|(path, _)| order(path));
    asked.into_iter().map(move |(path, address)| {
        let before = run.asks.iter().find(|ask| ask.address == path);
        let after = fresh.asks.iter().find(|ask| ask.address == address);
        let missing = || {
            PriorOutput::NotComparable("the run asks no such question any more".to_owned(), None)
        };
        let known = before.map_or_else(missing, |ask| {
            PriorOutput::of_end(ask.end.as_ref(), ask.called)
        });
        let end = after.and_then(|ask| ask.end.as_ref());
        let schemas = OutputSchemas {
            output: None,
            rules,
            step: None,
        };
        let task = compare_task(&known, end, schemas);
        let failed = task.status == Sameness::Failed;
        let retryable = after.and_then(RecordedAsk::retryable).unwrap_or(false);
        ComparedTask {
            retryable: failed.then_some(retryable),
            step: path.to_owned(),
            ..task
        }
    })
}

/// The schemas that the output of a task is checked against.
#[derive(Debug, Clone, Copy)]
pub struct OutputSchemas<'a> {
    /// The schema of the agent's output.
    pub output: Option<&'a CanonicalJson>,
    /// The decision rules of its run.
    pub rules: DecisionRules,
    /// The step, where its own schema checks the output too.
    pub step: Option<&'a StepPlan>,
}

impl OutputSchemas<'_> {
    /// A value with the defaults of both schemas filled in.
    ///
    /// # Errors
    /// Names the place whose defaults have no end, or come to too much.
    pub fn filled(&self, value: &Value) -> Result<Value, ktsu_schema::SchemaViolation> {
        let mut value = value.clone();
        let own = self.step.and_then(|step| step.schema.as_ref());
        for schema in self.output.into_iter().chain(own) {
            defaults::fill(&schema.to_value(), &mut value, self.rules)?;
        }
        Ok(value)
    }
}

/// Compares the end of one task with what came of it before. Both are compared after the defaults
/// of their schemas are filled in: an agent that leaves out what its schema has a default for says
/// the same as one that gives it.
pub fn compare_task(
    before: &PriorOutput,
    after: Option<&TaskEnd>,
    shape: OutputSchemas<'_>,
) -> ComparedTask {
    let mut task = ComparedTask {
        diff: Vec::new(),
        item: None,
        reason: None,
        retryable: None,
        status: Sameness::Clean,
        step: String::new(),
        violations: Vec::new(),
    };
    let value = match after {
        Some(TaskEnd::Output(value)) => {
            let step = shape.step;
            let found = |step| own_schema(step, value, shape.rules);
            task.violations = step.map_or_else(Vec::new, found);
            value.clone()
        }
        Some(end @ TaskEnd::Skipped(_)) => end.value().unwrap_or_default(),
        Some(TaskEnd::Failed {
            code,
            message,
            raw: Some(raw),
            violations,
        }) => {
            task.violations.clone_from(violations);
            task.reason = Some(format!("{code}: {message}"));
            match violations.is_empty() {
                // A reserved field decided, so it is what differs.
                true => raw.clone(),
                false => without_reserved(raw),
            }
        }
        Some(TaskEnd::Failed { code, message, .. }) => {
            return failed(task, format!("{code}: {message}"));
        }
        None => return failed(task, "the recompute ended before this task did".to_owned()),
    };
    let sides = before.value();
    let sides = sides.map(|before| Ok((shape.filled(before)?, shape.filled(&value)?)));
    let sides: Result<_, ktsu_schema::SchemaViolation> = sides.transpose();
    if let Ok(Some((before, after))) = &sides {
        task.diff = diff(before, after).into_iter().map(change).collect();
    }
    task.status = if !task.violations.is_empty() {
        Sameness::SchemaViolation
    } else if let Err(endless) = sides {
        task.reason = Some(message_at(&endless.message, &endless.pointer));
        Sameness::NotComparable
    } else if let PriorOutput::NotComparable(reason, _) = before {
        task.reason = Some(reason.clone());
        Sameness::NotComparable
    } else if task.diff.is_empty() {
        Sameness::Clean
    } else {
        Sameness::ValueChanged
    };
    task
}

/// Adds what is known of a task besides its output, under the name that it had in its run: a
/// recompute does every task as an item of a fan-out of its own.
pub fn with_original(
    task: ComparedTask,
    fresh: Option<&RecordedTask>,
    step: &str,
    item: Option<u32>,
) -> ComparedTask {
    let mut task = with_notes(task, fresh);
    if let (Some(reason), Some(fresh)) = (&task.reason, fresh) {
        let own = format!("step \"{}\"", item_name(&fresh.step.id, fresh.item));
        let known = format!("step \"{}\"", item_name(step, item));
        task.reason = Some(reason.replacen(&own, &known, 1));
    }
    ComparedTask {
        item,
        step: step.to_owned(),
        ..task
    }
}

/// Adds notes to a task. Where it failed: whether it may succeed another time. Where calls of it
/// had no recorded result to answer them: its model knew less than that of the run, so that the
/// same value shows nothing.
fn with_notes(mut task: ComparedTask, fresh: Option<&RecordedTask>) -> ComparedTask {
    if task.status == Sameness::Failed {
        let said = fresh.and_then(|fresh| fresh.retryable);
        task.retryable = Some(said.unwrap_or(false));
    }
    let calls = fresh.map(|fresh| &fresh.calls);
    let mut names: Vec<&str> = Vec::new();
    let unanswered = calls.map_or(&[][..], |calls| calls.unanswered.as_slice());
    for name in unanswered {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let words = match unanswered.len() {
        0 => return task,
        1 => format!(
            "1 call was not sent, and no recorded result answers it: {}",
            names.join("")
        ),
        more => format!(
            "{more} calls were not sent, and no recorded results answer them: {}",
            names.join(", ")
        ),
    };
    let reason = match task.reason {
        Some(reason) => format!("{reason}; {words}"),
        None => words,
    };
    ComparedTask {
        reason: Some(reason),
        status: task.status.max(Sameness::NotComparable),
        ..task
    }
}

/// The name under which differences of commands are given, as a member that no output has.
const COMMANDS: &str = "ktsu_commands";

/// Returns `true` if a difference is one of commands, and not of the output.
pub fn is_of_commands(change: &ValueChange) -> bool {
    let rest = change.path.strip_prefix('/');
    let rest = rest.and_then(|path| path.strip_prefix(COMMANDS));
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Adds what differs among the commands: those that were dropped, changed or added.
pub fn with_commands(mut task: ComparedTask, before: &[Value], after: &[Value]) -> ComparedTask {
    if task.status == Sameness::Failed || before == after {
        return task;
    }
    let side = |commands: &[Value]| json!({ COMMANDS: commands });
    let found = diff(&side(before), &side(after));
    task.diff.extend(found.into_iter().map(change));
    task.status = task.status.max(Sameness::ValueChanged);
    let words = "its commands differ".to_owned();
    task.reason = Some(
        task.reason
            .map_or(words.clone(), |reason| format!("{reason}; {words}")),
    );
    task
}

fn failed(task: ComparedTask, reason: String) -> ComparedTask {
    ComparedTask {
        status: Sameness::Failed,
        reason: Some(reason),
        ..task
    }
}

fn compare_fan_out(
    task: &RecordedTask,
    path: &str,
    results: Vec<Value>,
    rules: DecisionRules,
) -> Option<ComparedTask> {
    let found = own_schema(&task.step, &json!({ "results": results }), rules);
    (!found.is_empty()).then(|| ComparedTask {
        diff: Vec::new(),
        item: None,
        reason: Some("the results as a whole".to_owned()),
        retryable: None,
        status: Sameness::SchemaViolation,
        step: path.to_owned(),
        violations: found,
    })
}

/// The violations of the step's own schema (decision R5).
fn own_schema(step: &StepPlan, value: &Value, rules: DecisionRules) -> Vec<Violation> {
    let compiled = CompiledStep::compile(step, "", &mut CompileErrors::new());
    compiled.map_or_else(Vec::new, |step| violations(step.check_output(value, rules)))
}

fn without_reserved(raw: &Value) -> Value {
    let mut value = raw.clone();
    if let Some(members) = value.as_object_mut() {
        members.retain(|name, _| !ktsu_projections::life::reserved::is_reserved(name));
    }
    value
}

fn change(change: ktsu_projections::value_diff::ValueDifference) -> ValueChange {
    let json =
        |value: Option<Value>| value.and_then(|value| CanonicalJson::from_value(&value).ok());
    ValueChange {
        after: json(change.after),
        before: json(change.before),
        path: change.path,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outputs_whose_defaults_never_end_are_not_comparable() {
        let schema = json!({"properties": {"n": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"properties":
            {"l": {"$ref": "#/$defs/n", "default": {}}, "r": {"$ref": "#/$defs/n", "default": {}}}}}});
        let schema = CanonicalJson::from_value(&schema).unwrap();
        let shape = OutputSchemas {
            output: Some(&schema),
            rules: DecisionRules::NEWEST,
            step: None,
        };
        let end = |value: Value| Some(TaskEnd::Output(value));
        let before = PriorOutput::Value(json!({"n": {}}));
        let task = compare_task(&before, end(json!({"n": {}})).as_ref(), shape);
        assert_eq!(task.status, Sameness::NotComparable);
        let reason = task.reason.unwrap();
        assert_eq!(reason, "the default never ends: it holds itself at /n/l");
        let before = PriorOutput::Value(json!({}));
        let task = compare_task(&before, end(json!({})).as_ref(), shape);
        assert_eq!(task.status, Sameness::Clean, "what has none is compared");
    }
}
