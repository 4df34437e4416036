//! Decides a run again from recorded inputs, for strict replay and for simulation.

use std::sync::Arc;

use ktsu_ledger::event::{Posted, Report};
use ktsu_ledger::{Draft, Event, Frame, Timestamp};
use ktsu_projections::run::RunState;

use crate::definition::Definition;
use crate::next::Memo;
use crate::turn::{InvariantViolation, Turn, apply_report, begin};

/// A run under decision: recorded inputs go in, turns come out.
pub(crate) struct Redecider {
    /// What holds for the next input.
    pub(crate) definition: Arc<Definition>,
    pub(crate) memo: Memo,
    pub(crate) state: RunState,
}

impl Redecider {
    /// Begins with an invocation in the place of the recorded one.
    pub(crate) fn begin(
        definition: Arc<Definition>,
        recorded: &Frame,
        invocation: Draft,
    ) -> Result<(Self, Turn), InvariantViolation> {
        let memo = Memo::default();
        let stream = recorded.stream.clone();
        let (state, turn) = begin(&definition, stream, invocation, recorded.at, &memo)?;
        let run = Self {
            definition,
            memo,
            state,
        };
        Ok((run, turn))
    }

    /// The turn that an input leads to.
    pub(crate) fn decide(
        &mut self,
        input: Vec<Draft>,
        at: Timestamp,
    ) -> Result<Turn, InvariantViolation> {
        apply_report(&self.definition, &mut self.state, input, at, &self.memo)
    }
}

/// The first input of recorded frames, and what follows it: the frames of a report are one input, and
/// so are those of a post.
pub(crate) fn split_input(recorded: &[Frame]) -> (&[Frame], &[Frame]) {
    let length = match recorded.first().and_then(InputGroup::of) {
        None => recorded.len().min(1),
        first => recorded
            .iter()
            .take_while(|frame| InputGroup::of(frame) == first)
            .count(),
    };
    recorded.split_at(length)
}

/// What frames have in common that are one input.
#[derive(PartialEq)]
enum InputGroup<'f> {
    /// Of an attempt of a task: scope, step, item, attempt, report.
    Report(&'f str, &'f str, Option<u32>, u32, &'f Report),
    /// Its number and its digest.
    Post(u64, String),
}

impl<'f> InputGroup<'f> {
    fn of(frame: &'f Frame) -> Option<Self> {
        match &frame.event {
            Event::Agent(event) => {
                let (step, item) = (event.step(), event.item());
                let report = event.report()?;
                Some(Self::Report(
                    &frame.scope,
                    step,
                    item,
                    event.attempt(),
                    report,
                ))
            }
            Event::World(event) => {
                let post = event.post()?;
                Some(Self::Post(post.n, post.digest.clone()))
            }
            Event::Foreign { .. } => {
                let post = Posted::of(&frame.event)?.post;
                Some(Self::Post(post.n, post.digest))
            }
            Event::Run(_)
            | Event::Recompute(_)
            | Event::Step(_)
            | Event::Item(_)
            | Event::Worker(_)
            | Event::Webhook(_)
            | Event::Person(_)
            | Event::Kv(_)
            | Event::Store(_) => None,
        }
    }
}

/// A recorded input, as it was before it had a place.
pub(crate) fn to_draft(frame: &Frame) -> Draft {
    Draft {
        scope: frame.scope.clone(),
        actor: frame.actor.clone(),
        cause: frame.cause.clone(),
        event: frame.event.clone(),
    }
}
