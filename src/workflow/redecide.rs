//! Decides a run again from recorded inputs, for strict replay and for simulation.

use std::sync::Arc;

use ktsu_ledger::event::ReportReference;
use ktsu_ledger::{Draft, Event, Frame, Timestamp};
use ktsu_projections::run::RunState;

use crate::definition::Definition;
use crate::next::Memo;
use crate::turn::{InvariantViolation, Turn, apply_report, begin};

/// A run under decision: recorded inputs go in, turns come out.
pub(crate) struct Redecider {
    /// The definition by which the next input is decided.
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
    let length = match recorded.first().and_then(RequestKey::of) {
        None => recorded.len().min(1),
        first => recorded
            .iter()
            .take_while(|frame| RequestKey::of(frame) == first)
            .count(),
    };
    recorded.split_at(length)
}

/// The key that the frames of one request have in common.
#[derive(PartialEq)]
enum RequestKey {
    /// The task that is reported about, and the report.
    Report(String, (String, Option<u32>, u32), ReportReference),
    /// The principal that posted, the number of the post, and its digest.
    Post(String, u64, String),
}

impl RequestKey {
    fn of(frame: &Frame) -> Option<Self> {
        if let Event::Agent(event) = &frame.event {
            let report = event.report()?.clone();
            let task = (event.step().to_owned(), event.item(), event.attempt());
            return Some(Self::Report(frame.scope.clone(), task, report));
        }
        let (by, post) = frame.event.posted()?;
        Some(Self::Post(by.id, post.n, post.digest))
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
