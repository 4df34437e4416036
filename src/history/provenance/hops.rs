//! The path from a value back to its origins: the steps it passed through, and how each computed
//! it.

use std::collections::{BTreeSet, HashSet};

use ktsu_projections::run::{StepKey, StepStatus};
use serde_json::Value;

use super::answer::Hop;
use super::derived::{Derivations, Derived, walk};
use super::facts::StepFacts;
use super::story::TracedRun;
use super::story::path::FieldPath;
use ktsu_workflow::definition::CompiledWork;
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked};
use ktsu_workflow::expression::{EvaluatedValue, Root};
use ktsu_workflow::template::Template;

/// The way back from a field to its origins.
pub(super) fn chain(story: &TracedRun<'_>, asked: &FieldPath, origins: &Provenance) -> Vec<Hop> {
    let mut made = Workflows {
        story,
        origins: origins.iter().cloned().collect(),
        seen: HashSet::new(),
        rule: Vec::new(),
    };
    let first = beginning(story, asked).into_iter().collect();
    walk(story, &mut made, first)
}

/// The first value of the walk back; nothing for what no step made.
fn beginning(story: &TracedRun<'_>, asked: &FieldPath) -> Option<Visit> {
    let scope = story.state().scope_at(&asked.scope)?;
    let mut segments = asked.pointer.splitn(4, '/').skip(1);
    match (segments.next(), segments.next()) {
        (Some("output"), _) => {
            let below = asked.pointer.strip_prefix("/output").unwrap_or_default();
            Some(Visit::Output(scope, below.to_owned()))
        }
        (Some("steps"), Some(position)) => {
            let position = position.parse().ok()?;
            let rest = segments.next().unwrap_or_default();
            let below = rest.strip_prefix("output").unwrap_or("");
            Some(Visit::Step(scope, position, below.to_owned()))
        }
        (Some("params"), _) => {
            let below = asked.pointer.strip_prefix("/params").unwrap_or_default();
            Some(Visit::Params(scope, below.to_owned()))
        }
        (_, _) => None,
    }
}

/// Something on the way back: a scope, perhaps a step of it, and the part that is asked about.
enum Visit {
    /// The output of a scope.
    Output(u32, String),
    /// The value of a step.
    Step(u32, u32, String),
    /// The params of a scope.
    Params(u32, String),
}

/// The derivations of the values of workflows.
struct Workflows<'s, 'f> {
    story: &'s TracedRun<'f>,
    origins: BTreeSet<FramePointer>,
    seen: HashSet<(u32, Option<u32>)>,
    /// That of the value that is looked at.
    rule: Vec<Hop>,
}

impl Derivations for Workflows<'_, '_> {
    type Value = Visit;
    const DEPTH_FIRST: bool = true;
    const WALKS_WHEN_FULL: bool = false;

    fn derive(&mut self, visit: Visit) -> Derived<Visit> {
        let inputs = match &visit {
            Visit::Output(scope, below) => self.output(*scope, below),
            Visit::Step(scope, position, below) => self.step(*scope, *position, below),
            Visit::Params(scope, below) => self.params(*scope, below),
        };
        Derived {
            rule: std::mem::take(&mut self.rule),
            inputs: inputs.unwrap_or_default(),
        }
    }
}

impl Workflows<'_, '_> {
    fn hop(&mut self, frame: Option<u64>, step: String, how: &'static str, text: String) {
        self.rule.push(Hop {
            frame,
            step,
            how,
            text,
            ..Hop::default()
        });
    }

    /// Returns `true` if a value has a part in what is asked about.
    fn counts(&self, value: &Tracked) -> bool {
        let sources = value.sources();
        sources.iter().any(|source| {
            let within = format!("{}/", source.path);
            let first = FramePointer::new(source.frame, within.as_str());
            let next = self.origins.range(&first..).next();
            self.origins.contains(source)
                || next.is_some_and(|origin| {
                    origin.frame == source.frame && origin.path.starts_with(&within)
                })
        })
    }

    fn output(&mut self, scope: u32, below: &str) -> Option<Vec<Visit>> {
        let story = self.story;
        let held = story.state().scope(scope)?;
        let ended = held.ended.as_ref().map(|end| end.seq);
        let map = story
            .ended_as(scope)
            .and_then(|workflow| workflow.output.as_ref()?.0.as_ref());
        if let Some(map) = map {
            let text = map.source_at(below).unwrap_or_else(|| "output".to_owned());
            self.hop(ended, held.path.clone(), "template", text);
            return Some(self.template(scope, map, below));
        }
        let done = (0u32..).zip(&held.steps);
        let done = done.filter(|(_, step)| step.status == StepStatus::Complete);
        let (position, _) = done.last()?;
        let text = "the output of the last step that completed".to_owned();
        self.hop(ended, held.path.clone(), "reference", text);
        Some(vec![Visit::Step(scope, position, below.to_owned())])
    }

    fn step(&mut self, scope: u32, position: u32, below: &str) -> Option<Vec<Visit>> {
        let story = self.story;
        if !self.seen.insert((scope, Some(position))) {
            return None;
        }
        let held = story.state().scope(scope)?;
        let (compiled, _) = story.compiled(scope, position)?;
        let track = story.step(StepKey::of(scope, position))?;
        let path = held.path_of(position);
        let facts = story.facts.get(&held.path, &compiled.id, None);
        let state = held.steps.get(position as usize);
        if state.is_some_and(|step| step.status == StepStatus::Skipped) {
            let reason = state.and_then(|step| step.skipped);
            let words = reason.map_or("", |reason| reason.as_str());
            self.hop(track.ended, path, "skipped", words.to_owned());
            return None;
        }
        if self.overlaid(scope, position, &path) {
            return None;
        }
        match &compiled.work {
            CompiledWork::Transform(transform) => {
                self.hop(track.ended, path, "transform", transform.in_words());
                return Some(self.roots(scope, &transform.roots()));
            }
            CompiledWork::Webhook { .. } => {
                let text = "the status it was answered with".to_owned();
                self.hop(facts.answers.last().copied(), path, "answer", text);
            }
            CompiledWork::Workflow { .. } => {
                let text = "the output of the child".to_owned();
                self.hop(track.ended, path.clone(), "child", text);
                let child = story.state().scope_at(&path)?;
                return Some(vec![Visit::Output(child, below.to_owned())]);
            }
            CompiledWork::Agent { from: None, .. } => {
                if let Some(acting) = story.state().resume_step(StepKey::of(scope, position)) {
                    let text = format!("resumed to step {}", held.path_of(acting));
                    self.hop(facts.first, path.clone(), "resumed", text);
                }
                self.replied(&facts, &path);
            }
            CompiledWork::Agent {
                from: Some(from), ..
            } => {
                let text = format!("for each of {}", from.source());
                self.hop(track.ended, path.clone(), "items", text);
                self.items(scope, position, &compiled.id, &path);
            }
        }
        None
    }

    /// Tells what an agent gave, and what that rests on besides its params.
    fn replied(&mut self, facts: &StepFacts, path: &str) {
        let last = facts.replies.last();
        let text = last.map_or_else(
            || "what its agent gave".to_owned(),
            |seq| format!("the model's reply in frame {seq}"),
        );
        self.hop(facts.finished, path.to_owned(), "reply", text);
        self.tools(facts, path);
    }

    /// Tells what people laid over a step's output that counts here; whether nothing else does.
    fn overlaid(&mut self, scope: u32, position: u32, path: &str) -> bool {
        let Some(track) = self.story.step(StepKey::of(scope, position)) else {
            return false;
        };
        let mut told = false;
        for one in &track.overlays {
            if self.counts(&one.value) {
                let text = format!("{} as a person set it", one.field);
                self.hop(Some(one.seq), path.to_owned(), "overlay", text);
                told = true;
            }
        }
        told && !track
            .computed
            .as_ref()
            .is_some_and(|value| self.counts(value))
    }

    fn items(&mut self, scope: u32, position: u32, id: &str, path: &str) {
        let story = self.story;
        let items = story
            .step(StepKey::of(scope, position))
            .map(|track| track.items.as_slice());
        let held = story
            .state()
            .scope(scope)
            .map_or("", |scope| scope.path.as_str());
        for (index, item) in (0u32..).zip(items.unwrap_or_default()) {
            if !item.as_ref().is_some_and(|item| self.counts(item)) {
                continue;
            }
            let facts = story.facts.get(held, id, Some(index));
            self.replied(&facts, &format!("{path}.{index}"));
        }
    }

    /// Adds what an agent's replies rest on besides its params: the results of its calls, each with
    /// the reply that made the arguments up, and what people said about them.
    fn tools(&mut self, facts: &StepFacts, path: &str) {
        for seq in &facts.results {
            if let Some(text) = self.called(*seq) {
                self.hop(Some(*seq), path.to_owned(), "tool", text);
            }
        }
        for seq in &facts.words {
            let frame = self.story.frame(*seq);
            let text = match frame.and_then(|frame| frame.event.approval_decided()) {
                Some(said) => format!("{} by {}", said.decision.as_str(), said.by.id),
                None => "no decision in time".to_owned(),
            };
            self.hop(Some(*seq), path.to_owned(), "approval", text);
        }
    }

    /// A call of a tool, in words.
    fn called(&self, seq: u64) -> Option<String> {
        let result = self.story.frame(seq)?.event.tool_result()?;
        let reply = result.response;
        let calls = self.story.frame(reply).and_then(|frame| {
            let calls = frame.event.response()?.tool_calls.as_ref()?;
            calls.pointer(&format!("/{}/name", result.call))
        });
        let name = calls.as_ref().and_then(Value::as_str).unwrap_or("a tool");
        Some(match (&result.recorded, result.not_sent) {
            (Some(recorded), _) => format!(
                "{name}, answered by the recorded result {}#{}; asked for in frame {reply}",
                recorded.stream, recorded.seq
            ),
            (None, Some(why)) => {
                let why = why.as_str();
                format!("{name}, not called: {why}; asked for in frame {reply}")
            }
            (None, None) => format!("{name}, with the arguments in frame {reply}"),
        })
    }

    fn params(&mut self, scope: u32, below: &str) -> Option<Vec<Visit>> {
        let story = self.story;
        let holder = story.state().scope(scope)?.parent?;
        let (parent, position) = (holder.scope(), holder.position()?);
        if !self.seen.insert((scope, None)) {
            return None;
        }
        if let Some((parent, position, invoked)) = story.invoked_as(scope) {
            let step = story.state().scope(parent)?.path_of(position);
            let begun = story.state().scope(scope)?.started;
            let text = format!("what a command of {step} gave {}", invoked.name);
            self.hop(
                begun,
                story.state().scope(scope)?.path.clone(),
                "command",
                text,
            );
            return Some(vec![Visit::Step(parent, position, String::new())]);
        }
        let held = story.state().scope(parent)?;
        let (compiled, _) = story.compiled(parent, position)?;
        let CompiledWork::Workflow {
            params: Some(template),
        } = &compiled.work
        else {
            return None;
        };
        let started = story.state().step(StepKey::of(parent, position));
        let started = started.and_then(|step| step.started);
        let text = template
            .source_at(below)
            .unwrap_or_else(|| "params".to_owned());
        self.hop(started, held.path_of(position), "template", text);
        Some(self.template(parent, template, below))
    }

    /// The names of a template, or of the part of it that is asked about.
    fn template(&self, scope: u32, template: &Template, below: &str) -> Vec<Visit> {
        let part = template
            .source_at(below)
            .and_then(|text| Template::text(&text).ok());
        let roots = part.as_ref().unwrap_or(template).roots().to_vec();
        self.roots(scope, &roots)
    }

    /// Those of some names whose values have a part in what is asked about.
    fn roots<'r>(&self, scope: u32, roots: impl IntoIterator<Item = &'r Root>) -> Vec<Visit> {
        roots
            .into_iter()
            .flat_map(|root| {
                let children = self.invoked(scope, root);
                self.root(scope, root).into_iter().chain(children)
            })
            .collect()
    }

    /// The children of a step that is named, as far as they have a part in what is asked about.
    fn invoked(&self, scope: u32, root: &Root) -> Vec<Visit> {
        let Root::Step(id) = root else {
            return Vec::new();
        };
        let state = self.story.state();
        let step = state
            .scope(scope)
            .and_then(|scope| scope.shape.position(id));
        let children = step.map(|step| state.invoked_scopes(StepKey::of(scope, step)));
        let counts = |child: &u32| {
            let output = self.story.output(*child);
            output.is_some_and(|output| self.counts(output))
        };
        let children = children.into_iter().flatten().filter(counts);
        let output = |child| Visit::Output(child, String::new());
        children.map(output).collect()
    }

    fn root(&self, scope: u32, root: &Root) -> Option<Visit> {
        let story = self.story;
        match root {
            Root::Step(id) => {
                let position = story.state().scope(scope)?.shape.position(id)?;
                let value = story.step(StepKey::of(scope, position))?.value.as_ref()?;
                let visit = || Visit::Step(scope, position, String::new());
                self.counts(value).then(visit)
            }
            Root::Params => {
                let params = story.params(scope)?;
                let visit = || Visit::Params(scope, String::new());
                self.counts(params).then(visit)
            }
            Root::Env(_) | Root::Item | Root::ItemIndex | Root::Resume | Root::Name(_) => None,
        }
    }
}
