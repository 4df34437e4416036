//! The divergences between a run and its simulation: the run or the step, the kind of difference,
//! and both sides.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ktsu_ledger::event::{RunEvent, TimerKind};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::normalize::{self, FrameKey, NormalizedFrame};
use ktsu_projections::run::{FoldError, RunState};
use ktsu_projections::step_name::path_in;
use ktsu_projections::value_diff::{self, ValueDifference};
use serde::Serialize;
use serde_json::{Value, json};

mod made;
mod records;
mod worlds;

use records::{
    StepPlans, come_to, conditions, given, is_budget, open_effects, path_of, pause, plans, sendings,
};

use super::DivergenceKind::{
    Condition, Failure, Group, Items, Limit, NoRecord, Order, Output, Param, Policy, Prompt,
    Reserved, Retry, RunOutput, Schema, Status, StepAdded, StepRemoved, Template, Unused, Webhook,
};
use super::locate;
use super::policies::policies;
use super::{Divergence, DivergenceKind, Simulation, TaskAttemptKey};
use crate::next::TaskSpec;

/// Compares a recorded run, what was told to its runtimes, and the run as it would have gone.
/// What concerns a step stands together, in the order in which history came to the steps.
///
/// # Errors
/// [`FoldError`] if one of them does not fold.
pub fn compare(
    recorded: &[Frame],
    as_recorded: &Simulation,
    new: &Simulation,
) -> Result<Vec<Divergence>, FoldError> {
    let before = EnvelopeFold::of(recorded)?;
    let after = EnvelopeFold::of(&new.frames)?;
    let mut found = DivergenceCollector {
        old: plans(before.state()),
        new: plans(after.state()),
        divergences: Vec::new(),
    };
    found.params(&before, &after);
    found.steps(recorded, &new.frames);
    found.order(recorded, &new.frames);
    found.task_specs(&as_recorded.task_specs, &new.task_specs);
    found.policies(policies(recorded, before.state(), after.state()));
    found.views(&before, &after, new);
    found.no_record(before.state(), new);
    found.unused(as_recorded, new);
    let decided = (new.frames.as_slice(), after.state());
    found.worlds((recorded, before.state()), &as_recorded.frames, decided);
    found.run(&before, &after);
    let mut divergences = found.sorted(recorded);
    locate::locate_frames(&mut divergences, recorded);
    Ok(divergences)
}

struct DivergenceCollector {
    old: StepPlans,
    new: StepPlans,
    divergences: Vec<Divergence>,
}

impl DivergenceCollector {
    fn add(
        &mut self,
        what: DivergenceKind,
        step: &str,
        field: &str,
        sides: (Option<Value>, Option<Value>),
    ) {
        self.add_item(what, step, None, field, sides);
    }

    /// Adds a divergence; the same step, item, respect and place is named once.
    fn add_item(
        &mut self,
        what: DivergenceKind,
        step: &str,
        item: Option<u32>,
        field: &str,
        (history, decided): (Option<Value>, Option<Value>),
    ) {
        let same = |one: &Divergence| {
            one.what == what && one.step == step && one.item == item && one.field == field
        };
        if self.divergences.iter().any(same) {
            return;
        }
        self.divergences.push(Divergence {
            what,
            step: step.to_owned(),
            item,
            server: None,
            tool: None,
            field: field.to_owned(),
            frame: None,
            history,
            decided,
        });
    }

    fn has(&self, what: DivergenceKind, step: &str) -> bool {
        let mut all = self.divergences.iter();
        all.any(|one| one.what == what && one.step == step)
    }

    /// Returns `true` if a step, or the step whose child it is in, is on one side only or was not
    /// reached on one: then nothing more is said about it.
    fn is_settled(&self, path: &str) -> bool {
        let over = [StepAdded, StepRemoved, Condition];
        let mut all = self.divergences.iter();
        all.any(|one| {
            over.contains(&one.what)
                && path
                    .strip_prefix(one.step.as_str())
                    .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    }

    fn params(&mut self, before: &EnvelopeFold, after: &EnvelopeFold) {
        let (old, new) = (before.state().params(0), after.state().params(0));
        for change in value_diff::diff(&old, &new) {
            let sides = (change.before, change.after);
            self.add(Param, "", &change.path, sides);
        }
    }

    /// Decisions about steps, matched by what they are about.
    fn steps(&mut self, recorded: &[Frame], new: &[Frame]) {
        let (old, new) = (normalize::frames(recorded, ""), normalize::frames(new, ""));
        self.one_sided(&old, &new);
        let decided: HashMap<&FrameKey, &NormalizedFrame<'_>> =
            new.iter().map(|kept| (&kept.key, kept)).collect();
        let recorded: BTreeSet<&FrameKey> = old.iter().map(|kept| &kept.key).collect();
        for kept in &old {
            if kept.key.step.is_none() || self.is_settled(&path_of(&kept.key)) {
                continue;
            }
            match decided.get(&kept.key) {
                Some(other) => self.changed(kept, other),
                None => self.missing(kept, true),
            }
        }
        for kept in new.iter().filter(|kept| kept.key.step.is_some()) {
            if !recorded.contains(&kept.key) && !self.is_settled(&path_of(&kept.key)) {
                self.missing(kept, false);
            }
        }
        self.retries(&old, &new);
    }

    /// Steps that only one side has, and those that one side skipped by a condition.
    fn one_sided(&mut self, old: &[NormalizedFrame<'_>], new: &[NormalizedFrame<'_>]) {
        let gone: Vec<String> = top(&self.old, &self.new);
        let come: Vec<String> = top(&self.new, &self.old);
        for path in gone {
            self.add(StepRemoved, &path, "", (Some(json!(path)), None));
        }
        for path in come {
            self.add(StepAdded, &path, "", (None, Some(json!(path))));
        }
        self.by_path(Condition, "", &conditions(old), &conditions(new));
    }

    /// Adds the differences in what both sides have for a step.
    fn by_path<T: PartialEq + Serialize>(
        &mut self,
        kind: DivergenceKind,
        field: &str,
        old: &BTreeMap<String, T>,
        new: &BTreeMap<String, T>,
    ) {
        for (path, was) in old {
            let Some(is) = new.get(path) else { continue };
            if was != is && !self.is_settled(path) {
                let sides = (Some(json!(was)), Some(json!(is)));
                self.add(kind, path, field, sides);
            }
        }
    }

    /// A decision that both sides have.
    fn changed(&mut self, old: &NormalizedFrame<'_>, new: &NormalizedFrame<'_>) {
        let path = path_of(&old.key);
        let item = old.key.item.and_then(|item| u32::try_from(item).ok());
        for change in value_diff::diff(&old.data, &new.data) {
            let mut parts = change.path.split('/').skip(1);
            match (old.key.kind.as_str(), parts.next().unwrap_or_default()) {
                ("step.started" | "item.started", "input") => {
                    let place = parts.next().unwrap_or_default();
                    let place = place.replace("~1", "/").replace("~0", "~");
                    let sides = (given(&old.data, &place), given(&new.data, &place));
                    // The same value from elsewhere is the same value.
                    if sides.0 != sides.1 {
                        self.add_item(Template, &path, item, &place, sides);
                    }
                }
                ("step.started", "items") => {
                    self.add(Items, &path, "", (change.before, change.after));
                }
                ("step.output_checked", _) => {
                    let sides = (change.before, change.after);
                    self.add_item(Schema, &path, item, &change.path, sides);
                }
                ("reserved.evaluated", _) => {
                    let sides = (change.before, change.after);
                    self.add_item(Reserved, &path, item, &change.path, sides);
                }
                // What it is made of stands in the templates.
                ("webhook.sent", "body_hash") => {}
                ("webhook.sent", "target") if self.has(Template, &path) => {}
                ("webhook.sent", _) => {
                    let sides = (change.before, change.after);
                    self.add(Webhook, &path, &change.path, sides);
                }
                // Outputs, ends and inputs are told by what they lead to.
                _ => {}
            }
        }
    }

    /// A decision that only one side has.
    fn missing(&mut self, kept: &NormalizedFrame<'_>, in_history: bool) {
        let path = path_of(&kept.key);
        let item = kept.key.item.and_then(|item| u32::try_from(item).ok());
        let side = |value: Value| match in_history {
            true => (Some(value), None),
            false => (None, Some(value)),
        };
        match kept.key.kind.as_str() {
            "step.output_checked" => {
                let verdict = kept.data.get("verdict").cloned().unwrap_or_default();
                self.add_item(Schema, &path, item, "/verdict", side(verdict));
            }
            "reserved.evaluated" => {
                let field = kept.data.get("field").cloned().unwrap_or_default();
                self.add_item(Reserved, &path, item, "", side(field));
            }
            _ => {}
        }
    }

    /// Adds the differences in how often webhooks were sent, and after which pauses.
    fn retries(&mut self, old: &[NormalizedFrame<'_>], new: &[NormalizedFrame<'_>]) {
        self.by_path(Retry, "/sendings", &sendings(old), &sendings(new));
        let waited = old.iter().filter_map(|kept| match &kept.frame.event {
            Event::Run(RunEvent::TimerFired(fired)) if fired.timer == TimerKind::Retry => fired
                .step
                .as_ref()
                .map(|step| path_in(&kept.frame.scope, step)),
            _ => None,
        });
        for path in waited.collect::<BTreeSet<String>>() {
            let (Some(was), Some(is)) = (pause(&self.old, &path), pause(&self.new, &path)) else {
                continue;
            };
            if was != is {
                let sides = (Some(json!(was)), Some(json!(is)));
                self.add(Retry, &path, "/backoff_ms", sides);
            }
        }
    }

    /// Steps that both have, in the order in which they were come to.
    fn order(&mut self, recorded: &[Frame], new: &[Frame]) {
        let (old, new) = (come_to(recorded), come_to(new));
        for (scope, was) in &old {
            let Some(is) = new.get(scope) else { continue };
            let was: Vec<&String> = was.iter().filter(|step| is.contains(step)).collect();
            let is: Vec<&String> = is.iter().filter(|step| was.contains(step)).collect();
            if was != is {
                let sides = (Some(json!(was)), Some(json!(is)));
                self.add(Order, scope, "", sides);
            }
        }
    }

    /// Adds the differences in the specifications that runtimes got, task by task.
    fn task_specs(
        &mut self,
        old: &BTreeMap<TaskAttemptKey, TaskSpec>,
        new: &BTreeMap<TaskAttemptKey, TaskSpec>,
    ) {
        for (name, was) in old {
            let Some(is) = new.get(name) else { continue };
            let path = path_in(&name.0, &name.1);
            for ((kind, field, was), (_, _, is)) in fields(was).into_iter().zip(fields(is)) {
                if was != is {
                    self.add_item(kind, &path, name.2, field, (Some(was), Some(is)));
                }
            }
        }
    }

    /// Adds the differences that the new definition makes to recorded calls of tools.
    fn policies(&mut self, changed: Vec<Divergence>) {
        for one in changed {
            if !self.is_settled(&one.step) {
                self.divergences.push(one);
            }
        }
    }

    /// Adds the differences in how steps ended: their status, their output, their failure.
    fn views(&mut self, before: &EnvelopeFold, after: &EnvelopeFold, new: &Simulation) {
        let waits = !new.state.status().is_terminal();
        for scope in before.state().scopes() {
            let (Some(was), Some(is)) = (before.envelope(&scope.path), after.envelope(&scope.path))
            else {
                continue;
            };
            let (was, is) = (normalize::envelope(&was), normalize::envelope(&is));
            let (was, is) = (was["steps"].clone(), is["steps"].clone());
            for change in value_diff::diff(&was, &is) {
                let mut parts = change.path.splitn(4, '/').skip(1);
                let step = parts.next().unwrap_or_default().to_owned();
                let path = path_in(&scope.path, &step);
                let pending = waits && is[&step]["status"] == "pending";
                if self.is_settled(&path) || pending || !self.new.contains_key(&path) {
                    continue;
                }
                let member = parts.next().unwrap_or_default().to_owned();
                let ended_otherwise = was[&step]["status"] != is[&step]["status"];
                if member == "output" && ended_otherwise {
                    continue;
                }
                let below = parts.next().map(|rest| format!("/{rest}"));
                self.view(&path, &member, &below.unwrap_or_default(), change);
            }
        }
    }

    fn view(&mut self, path: &str, member: &str, below: &str, change: ValueDifference) {
        let sides = (change.before, change.after);
        match member {
            "status" => self.add(Status, path, "", sides),
            "output" => self.add(Output, path, below, sides),
            "error" => self.add(Failure, path, below, sides),
            "skip_reason" => self.add(Status, path, "/skip_reason", sides),
            // Told otherwise: attempts, items, amounts, what agents said beside their output.
            _ => {}
        }
    }

    /// Adds the steps that wait for an answer in the new run, and did not when the recorded one
    /// ended.
    fn no_record(&mut self, before: &RunState, new: &Simulation) {
        let was = open_effects(before);
        for (path, item) in open_effects(&new.state) {
            if !was.contains(&(path.clone(), item)) {
                let waits = Some(json!("waits for an answer that is not recorded"));
                self.add_item(NoRecord, &path, item, "", (None, waits));
            }
        }
    }

    /// Recorded answers that found no place, where nothing else says why.
    fn unused(&mut self, old: &Simulation, new: &Simulation) {
        for frame in &new.unused_inputs {
            if old.unused_inputs.iter().any(|one| one.seq == frame.seq) {
                continue;
            }
            let data = frame.event.data();
            let step = data.get("step").or_else(|| data.get("responder"));
            let step = step.and_then(Value::as_str);
            let path = step.map(|step| path_in(&frame.scope, step));
            let kind = Some(json!(frame.event.kind()));
            let budget = old.state.budget() != new.state.budget();
            match path {
                None => self.add(Policy, "", "", (kind, None)),
                Some(_) if budget && is_budget(frame) => {
                    let sides = (json!(old.state.budget()), json!(new.state.budget()));
                    let sides = (Some(sides.0), Some(sides.1));
                    self.add(Policy, "", "/cost_budget_micro_usd", sides);
                }
                Some(path) => {
                    let told = self
                        .divergences
                        .iter()
                        .any(|one| path == one.step || (one.what == Policy && one.step.is_empty()));
                    if !told && !self.is_settled(&path) {
                        self.add(Unused, &path, "", (kind, None));
                    }
                }
            }
        }
    }

    /// The run as a whole.
    fn run(&mut self, before: &EnvelopeFold, after: &EnvelopeFold) {
        let (Some(was), Some(is)) = (before.envelope(""), after.envelope("")) else {
            return;
        };
        let (was, is) = (normalize::envelope(&was), normalize::envelope(&is));
        for (member, what) in [
            ("status", Status),
            ("error", Failure),
            ("output", RunOutput),
        ] {
            let pick = |value: &Value| {
                let member = value
                    .get(member)
                    .map(|one| (member.to_owned(), one.clone()));
                Value::Object(member.into_iter().collect())
            };
            for change in value_diff::diff(&pick(&was), &pick(&is)) {
                let field = change.path.strip_prefix(&format!("/{member}"));
                let field = field.unwrap_or_default().to_owned();
                self.add(what, "", &field, (change.before, change.after));
            }
        }
    }

    /// In the order of history: the run's params first, then step by step, then how it ended.
    fn sorted(mut self, recorded: &[Frame]) -> Vec<Divergence> {
        let mut places: HashMap<String, usize> = HashMap::new();
        for (at, frame) in recorded.iter().enumerate() {
            if let Event::Step(event) = &frame.event {
                places
                    .entry(path_in(&frame.scope, event.step()))
                    .or_insert(at);
            }
        }
        self.divergences.sort_by_key(|one| {
            let end = matches!(one.what, Status | Failure | RunOutput);
            match one.step.as_str() {
                "" if end => (2, 0),
                "" => (0, 0),
                step => (1, places.get(step).copied().unwrap_or(usize::MAX)),
            }
        });
        self.divergences
    }
}

/// The parts of a task's specification, and the kind of a difference in each.
fn fields(spec: &TaskSpec) -> [(DivergenceKind, &'static str, Value); 11] {
    [
        (Prompt, "/agent", json!(spec.agent)),
        (Prompt, "/system", json!(spec.system)),
        (Prompt, "/user", json!(spec.user)),
        (Prompt, "/messages", json!(spec.messages)),
        (Prompt, "/reflect", json!(spec.reflect)),
        // The schema is part of the system prompt, so the model would see it.
        (
            Prompt,
            "/schema",
            json!(spec.schema.as_ref().map(CanonicalJson::to_value)),
        ),
        (Group, "/group", json!(spec.group)),
        (Limit, "/temperature", json!(spec.temperature_millionths)),
        (Limit, "/max_tokens", json!(spec.max_tokens)),
        (Limit, "/max_turns", json!(spec.max_turns)),
        (Limit, "/threshold", json!(spec.threshold)),
    ]
}

/// Steps one side has and the other has not, without those inside of another such step. A child
/// that did not begin on the other side says nothing about its steps.
fn top(have: &StepPlans, lack: &StepPlans) -> Vec<String> {
    let only = have.keys().filter(|path| {
        let holder = path
            .rsplit_once('/')
            .map(|(holder, _)| format!("{holder}/"));
        let begun = holder.is_none_or(|holder| lack.keys().any(|one| one.starts_with(&holder)));
        begun && !lack.contains_key(*path)
    });
    only.cloned().collect()
}
