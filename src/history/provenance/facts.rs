//! The frames of each step and item that can contain a value.
//!
//! What begins again, what has ended and what people laid over an output is known to the state of the
//! run: it is asked after each frame about a step.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{AgentEvent, StepEvent, WebhookEvent, is_address};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::run::{RunState, Step};
use ktsu_projections::step_name::path_in;

/// A step or an item: scope, id, item.
pub(super) type FactKey = (String, String, Option<u32>);

/// The frames about one of them.
#[derive(Debug, Clone, Default)]
pub(super) struct StepFacts {
    /// The first about it: its start, or that it was skipped.
    pub(super) first: Option<u64>,
    /// Its end.
    pub(super) ended: Option<u64>,
    /// The outcome of its agent.
    pub(super) finished: Option<u64>,
    /// The draft of its agent.
    pub(super) decided: Option<u64>,
    /// The models' answers.
    pub(super) replies: Vec<u64>,
    /// The results of its tools, and what kept them from being called.
    pub(super) results: Vec<u64>,
    /// Decisions of people about its calls, and expired approvals.
    pub(super) words: Vec<u64>,
    /// The answers to its webhook, one a sending.
    pub(super) answers: Vec<u64>,
}

/// Everything that is known of a run, by step and item.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    /// Sorted, so that the items of a step and the steps of a scope are adjacent.
    about: BTreeMap<FactKey, StepFacts>,
    /// Overlays, by scope and step.
    overlays: HashMap<(String, String), Vec<SetField>>,
    /// The last frame that took a step back, by scope and step.
    resets: HashMap<(String, String), u64>,
}

/// A field that a person laid over an output.
#[derive(Debug, Clone)]
pub(super) struct SetField {
    /// The frame with the person's word.
    pub(super) seq: u64,
    /// The path of the value in it.
    pub(super) path: String,
    /// The field.
    pub(super) field: String,
    /// Its value.
    pub(super) value: CanonicalJson,
}

impl StepFacts {
    /// Takes a frame that is about it.
    fn take(&mut self, frame: &Frame) {
        let list = match &frame.event {
            Event::Agent(AgentEvent::Response(_)) => &mut self.replies,
            Event::Agent(AgentEvent::ToolReturned(_)) => &mut self.results,
            Event::Agent(AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_)) => {
                &mut self.words
            }
            Event::Webhook(WebhookEvent::Delivered(_) | WebhookEvent::Failed(_)) => {
                &mut self.answers
            }
            Event::Agent(AgentEvent::Decided(decided)) if decided.draft.is_some() => {
                self.decided = Some(frame.seq);
                return;
            }
            event => {
                self.finished = event.finished().map(|_| frame.seq).or(self.finished);
                return;
            }
        };
        list.push(frame.seq);
    }
}

impl RunFacts {
    /// Takes a frame that was folded; `state` is what it led to.
    pub(super) fn take(&mut self, state: &RunState, frame: &Frame) {
        if frame.event.branched().is_some() {
            let steps = self.about.keys().filter(|key| key.2.is_none());
            for (scope, step, _) in steps.cloned().collect::<Vec<_>>() {
                match self.is_dropped(state, &scope, &step) {
                    true => self.forget(&scope, &step),
                    false => self.follow(state, &scope, &step),
                }
            }
        }
        let Some((step, item)) = frame.event.task() else {
            return;
        };
        let scope = frame.scope.as_str();
        let key = (scope.to_owned(), step.to_owned(), item);
        self.about.entry(key).or_default().take(frame);
        if let Event::Step(StepEvent::Reset(_)) = &frame.event {
            let key = (scope.to_owned(), step.to_owned());
            self.resets.insert(key, frame.seq);
        }
        self.follow(state, scope, step);
    }

    /// Returns `true` if the definition of a branch no longer has a step that was in progress.
    fn is_dropped(&self, state: &RunState, scope: &str, step: &str) -> bool {
        let shape = state.scope_at(scope).and_then(|at| state.scope(at));
        let missing = shape.is_some_and(|held| held.shape.position(step).is_none());
        let key = (scope.to_owned(), step.to_owned(), None);
        let ended = self.about.get(&key).and_then(|facts| facts.ended);
        missing && !is_address(step) && ended.is_none()
    }

    /// Follows where a step of a workflow is: what it did in an earlier beginning is of no consequence.
    fn follow(&mut self, state: &RunState, scope: &str, step: &str) {
        let held = state.scope_at(scope).and_then(|at| {
            let scope = state.scope(at)?;
            scope.steps.get(scope.shape.position(step)? as usize)
        });
        let Some(held) = held else { return };
        let key = (scope.to_owned(), step.to_owned(), None);
        let facts = self.about.entry(key).or_default();
        let begun = held.started.or(held.ended);
        if facts.first.is_some() && begun.is_none() {
            self.forget(scope, step);
        } else {
            facts.first = facts.first.or(begun);
            facts.ended = held.ended.or(facts.ended);
        }
        self.follow_overlays(scope, step, held);
    }

    /// The fields that people set for a step, in the order in which they were set.
    fn follow_overlays(&mut self, scope: &str, step: &str, held: &Step) {
        let key = (scope.to_owned(), step.to_owned());
        if held.overlay.is_empty() && !self.overlays.contains_key(&key) {
            return;
        }
        let known = self.overlays.entry(key).or_default();
        known.retain(|one| held.overlay.contains_key(&one.field));
        for (field, set) in &held.overlay {
            let place = (set.place.frame, set.place.path.as_str());
            if known
                .iter()
                .all(|one| (one.seq, one.path.as_str()) != place)
            {
                known.push(SetField {
                    seq: set.place.frame,
                    path: set.place.path.clone(),
                    field: field.clone(),
                    value: set.value.clone(),
                });
            }
        }
        known.sort_by_key(|one| one.seq);
    }

    pub(super) fn get(&self, scope: &str, step: &str, item: Option<u32>) -> StepFacts {
        let key = (scope.to_owned(), step.to_owned(), item);
        self.about.get(&key).cloned().unwrap_or_default()
    }

    /// The overlays of a step, in the order in which they were set.
    pub(super) fn overlays(&self, scope: &str, step: &str) -> &[SetField] {
        let key = (scope.to_owned(), step.to_owned());
        self.overlays.get(&key).map_or(&[], Vec::as_slice)
    }

    /// The last frame with which a step was taken back.
    pub(super) fn reset(&self, scope: &str, step: &str) -> Option<u64> {
        let key = (scope.to_owned(), step.to_owned());
        self.resets.get(&key).copied()
    }

    /// The models' answers within a scope and the scopes inside it, of one step or of all.
    pub(super) fn replies(&self, scope: &str, step: Option<&str>) -> Vec<u64> {
        let mut replies: Vec<u64> = match step {
            None if scope.is_empty() => spoken(&self.about),
            None => self.within(scope),
            Some(step) => {
                let from = (scope.to_owned(), step.to_owned(), None);
                let own = self.about.range(from..);
                let own = own.take_while(|(key, _)| key.0 == scope && key.1 == step);
                let mut replies = spoken(own);
                replies.extend(self.within(&path_in(scope, step)));
                replies
            }
        };
        replies.sort_unstable();
        replies
    }

    /// The answers in an inline child and in those inside it.
    fn within(&self, scope: &str) -> Vec<u64> {
        let from = |scope: &str| (scope.to_owned(), String::new(), None);
        let own = self.about.range(from(scope)..);
        let own = own.take_while(|(key, _)| key.0 == scope);
        let inner = format!("{scope}/");
        let inside = self.about.range(from(&inner)..);
        let inside = inside.take_while(|(key, _)| key.0.starts_with(&inner));
        spoken(own.chain(inside))
    }

    /// A step begins again: what it did, and the child it held, is of no consequence.
    fn forget(&mut self, scope: &str, step: &str) {
        let child = path_in(scope, step);
        let inside = |scope: &str| crate::frame_page::is_within(scope, &child);
        self.about.retain(|key, _| {
            let own = key.0 == scope && key.1 == step;
            !own && !inside(&key.0)
        });
        self.overlays.retain(|(scope, _), _| !inside(scope));
    }
}

fn spoken<'a>(facts: impl IntoIterator<Item = (&'a FactKey, &'a StepFacts)>) -> Vec<u64> {
    let replies = facts.into_iter().flat_map(|(_, facts)| &facts.replies);
    replies.copied().collect()
}
