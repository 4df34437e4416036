//! The frames of each step and item that can contain a value.

use std::collections::{BTreeMap, HashMap};

use ktsu_ledger::event::{
    AgentEvent, BranchCreated, ItemEvent, PersonEvent, ReviewDecided, RunEvent, StepEvent,
    WebhookEvent,
};
use ktsu_ledger::{CanonicalJson, Event, Frame};
use ktsu_projections::step_name::path_in;

/// A step or an item: scope, id, item.
pub(super) type StepKey = (String, String, Option<u32>);

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
    /// What its tools gave, and what kept them from being called.
    pub(super) results: Vec<u64>,
    /// Decisions of people about its calls, and expired approvals.
    pub(super) words: Vec<u64>,
    /// Whether it sent a webhook.
    sent: bool,
    /// The answers to its webhook, one a sending.
    pub(super) answers: Vec<u64>,
}

/// Everything that is known of a run, by step and item.
#[derive(Debug, Default)]
pub(super) struct RunFacts {
    /// Sorted, so that the items of a step and the steps of a scope are adjacent.
    about: BTreeMap<StepKey, StepFacts>,
    /// The end of each scope.
    pub(super) scopes: HashMap<String, u64>,
    /// Overlays, by scope and step.
    overlays: HashMap<(String, String), Vec<SetField>>,
    /// Those of reviews, until their step completes.
    reviewed: HashMap<(String, String), Vec<SetField>>,
}

/// A field that a person laid over an output.
#[derive(Debug, Clone)]
pub(super) struct SetField {
    /// The frame with the person's word.
    pub(super) seq: u64,
    /// Where the value is in it.
    pub(super) path: String,
    /// The field.
    pub(super) field: String,
    /// Its value.
    pub(super) value: CanonicalJson,
    /// Whether it was replaced in a review.
    reviewed: bool,
}

impl RunFacts {
    pub(super) fn of(frames: &[Frame]) -> Self {
        let mut facts = Self::default();
        for frame in frames {
            facts.take(frame);
        }
        facts
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

    fn about(&mut self, frame: &Frame, step: &str, item: Option<u32>) -> &mut StepFacts {
        let key = (frame.scope.clone(), step.to_owned(), item);
        self.about.entry(key).or_default()
    }

    fn take(&mut self, frame: &Frame) {
        match &frame.event {
            Event::Run(RunEvent::Completed(_) | RunEvent::Failed(_)) => {
                self.scopes.insert(frame.scope.clone(), frame.seq);
            }
            Event::Step(event) => match event {
                StepEvent::Started(_) => self.begin(frame, event.step(), None),
                StepEvent::Completed(_) => {
                    let key = (frame.scope.clone(), event.step().to_owned());
                    let reviewed = self.reviewed.remove(&key).unwrap_or_default();
                    self.overlays.entry(key).or_default().extend(reviewed);
                    self.end(frame, event.step(), None);
                }
                StepEvent::Failed(_) | StepEvent::Skipped(_) => {
                    let key = (frame.scope.clone(), event.step().to_owned());
                    self.reviewed.remove(&key);
                    self.end(frame, event.step(), None);
                }
                StepEvent::Reset(_) => self.forget(&frame.scope, event.step()),
                StepEvent::ReviewRequested(_) => {
                    // In a branch from before the decision, people are asked again.
                    let key = (frame.scope.clone(), event.step().to_owned());
                    self.reviewed.remove(&key);
                }
                StepEvent::ReservedEvaluated(_)
                | StepEvent::OutputChecked(_)
                | StepEvent::Noted(_)
                | StepEvent::Commanded(_)
                | StepEvent::CommandCompleted(_)
                | StepEvent::CommandsDeferred(_)
                | StepEvent::CommandsDiscarded(_)
                | StepEvent::SuspendRequested(_) => {}
            },
            Event::Item(event) => match event {
                ItemEvent::Started(_) => self.begin(frame, event.step(), Some(event.item())),
                ItemEvent::Completed(_) | ItemEvent::Failed(_) => {
                    self.end(frame, event.step(), Some(event.item()));
                }
            },
            Event::Agent(event) => {
                let facts = self.about(frame, event.step(), event.item());
                match event {
                    AgentEvent::Response(_) => facts.replies.push(frame.seq),
                    AgentEvent::Decided(decided) if decided.draft.is_some() => {
                        facts.decided = Some(frame.seq);
                    }
                    AgentEvent::Decided(_) => {}
                    AgentEvent::Finished(_) => facts.finished = Some(frame.seq),
                    AgentEvent::ToolReturned(_) => facts.results.push(frame.seq),
                    AgentEvent::ApprovalDecided(_) | AgentEvent::ApprovalExpired(_) => {
                        facts.words.push(frame.seq);
                    }
                    AgentEvent::Request(_)
                    | AgentEvent::ReflectStarted(_)
                    | AgentEvent::BudgetExhausted(_)
                    | AgentEvent::ToolCalled(_)
                    | AgentEvent::ToolInDoubt(_)
                    | AgentEvent::ApprovalRequested(_) => {}
                }
            }
            Event::Webhook(WebhookEvent::Delivered(answer) | WebhookEvent::Failed(answer)) => {
                let facts = self.about(frame, &answer.step, None);
                facts.answers.push(frame.seq);
            }
            Event::Webhook(WebhookEvent::Sent(sent)) => {
                self.about(frame, &sent.step, None).sent = true;
            }
            Event::Person(PersonEvent::OverlaySet(set)) => {
                let key = (frame.scope.clone(), set.step.clone());
                self.overlays.entry(key).or_default().push(SetField {
                    seq: frame.seq,
                    path: "/value".to_owned(),
                    field: set.field.clone(),
                    value: set.value.clone(),
                    reviewed: false,
                });
            }
            Event::Person(PersonEvent::ReviewDecided(decided)) => self.review(frame, decided),
            // Its step begins again, with the data in its params.
            Event::Person(PersonEvent::SuspendResumed(_)) => {}
            Event::Run(RunEvent::Branched(branch)) => self.branch(branch),
            // It has not ended after all.
            Event::Run(RunEvent::Resumed(resumed)) if resumed.from.is_some() => {
                self.scopes.remove("");
            }
            event if event.is_world_input() => drop(self.scopes.remove("")),
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Webhook(WebhookEvent::Dead(_))
            | Event::Worker(_)
            | Event::World(_)
            | Event::Kv(_)
            | Event::Delivery(_)
            | Event::Eval(_)
            | Event::Store(_)
            | Event::Foreign { .. } => {}
        }
    }

    /// A branch begins again with whatever was under way, where something changes for it, else with
    /// the webhooks that were not answered.
    fn branch(&mut self, branch: &BranchCreated) {
        let all = branch.restarts || branch.definition.is_some();
        let begins = |(key, facts): &(&StepKey, &StepFacts)| {
            let open = facts.first.is_some() && facts.ended.is_none() && key.2.is_none();
            open && ((all && key.0.is_empty()) || (!all && facts.sent))
        };
        let begun = self.about.iter().filter(begins).map(|(key, _)| key.clone());
        for (scope, step, _) in begun.collect::<Vec<_>>() {
            self.forget(&scope, &step);
        }
    }

    /// What a person replaces in a review counts once the step completes.
    fn review(&mut self, frame: &Frame, decided: &ReviewDecided) {
        let key = (frame.scope.clone(), decided.step.clone());
        let set = decided.overlay.iter().map(|(field, value)| SetField {
            seq: frame.seq,
            path: format!("/overlay/{}", ktsu_projections::run::escape(field)),
            field: field.clone(),
            value: value.clone(),
            reviewed: true,
        });
        self.reviewed.entry(key).or_default().extend(set);
    }

    /// A step begins again: what it did, and the child it held, is of no consequence. What a person
    /// set stays, and what people replaced in a review does not.
    fn forget(&mut self, scope: &str, step: &str) {
        let child = path_in(scope, step);
        let inside = |scope: &str| crate::frame_page::is_within(scope, &child);
        self.about.retain(|key, _| {
            let own = key.0 == scope && key.1 == step;
            !own && !inside(&key.0)
        });
        self.scopes.retain(|scope, _| !inside(scope));
        self.overlays.retain(|(scope, _), _| !inside(scope));
        if let Some(fields) = self.overlays.get_mut(&(scope.to_owned(), step.to_owned())) {
            let last = fields.iter().map(|one| (one.field.clone(), one.reviewed));
            let last: HashMap<String, bool> = last.collect();
            fields.retain(|one| last.get(&one.field) == Some(&false));
        }
        self.reviewed
            .retain(|(at, of), _| !(inside(at) || (at == scope && of == step)));
    }

    fn begin(&mut self, frame: &Frame, step: &str, item: Option<u32>) {
        let facts = self.about(frame, step, item);
        facts.first.get_or_insert(frame.seq);
    }

    fn end(&mut self, frame: &Frame, step: &str, item: Option<u32>) {
        let facts = self.about(frame, step, item);
        facts.first.get_or_insert(frame.seq);
        facts.ended = Some(frame.seq);
    }
}

fn spoken<'a>(facts: impl IntoIterator<Item = (&'a StepKey, &'a StepFacts)>) -> Vec<u64> {
    let replies = facts.into_iter().flat_map(|(_, facts)| &facts.replies);
    replies.copied().collect()
}
