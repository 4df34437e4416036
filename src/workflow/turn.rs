//! A turn: one input and every decision that follows from it, as frames ready to be appended.
//!
//! Pure: the same state, input and moment give the same bytes, which is what strict [`replay`]
//! checks.
//!
//! [`replay`]: super::replay
//!
//! ```text
//! input ──seal, check, apply──▶ (next ──seal, check, apply──▶)* fixpoint | bound
//! ```

use std::sync::Arc;

use ktsu_ledger::event::{ContinueReason, Continued, Limits, RunEvent, StepEvent, WorldEvent};
use ktsu_ledger::frame::Link;
use ktsu_ledger::{Actor, Draft, Event, FrameError, Hash, Sealed, StreamId, Timestamp};
use ktsu_projections::envelope::{DetailedRun, EnvelopeDetails};
use ktsu_projections::run::{RunFold, RunState, TransitionError};

use super::definition::Definition;
use super::next::{Memo, next};

/// The frames that a turn appends.
#[derive(Debug, Default)]
pub struct Turn {
    /// In order, gap-free: one atomic append.
    pub sealed: Vec<Sealed>,
    /// True if a bound ended it: `run.continued` is due.
    pub more: bool,
}

/// A promise of ours that did not hold. The run's task ends and writes nothing.
#[derive(Debug, thiserror::Error)]
pub enum InvariantViolation {
    /// A frame we decided on cannot be written.
    #[error("a decided frame cannot be written: {0}")]
    Frame(#[from] FrameError),
    /// A frame we decided on does not follow from the state.
    #[error("a decided frame does not follow from the state: {0}")]
    Refused(#[from] TransitionError),
}

/// The first turn of a run.
///
/// # Errors
/// [`InvariantViolation`].
pub fn begin(
    definition: &Definition,
    stream: StreamId,
    created: Draft,
    at: Timestamp,
    memo: &Memo,
) -> Result<(RunState, Turn), InvariantViolation> {
    let (first, mut state) = create(definition, stream, created, at)?;
    let limits = state.created().limits;
    let turn = first_turn(definition, &mut state, memo, first, limits)?;
    Ok((state, turn))
}

/// The most bytes of the first turn of an accepted run. The caller waits for it, so it is small.
const ACCEPTED_BYTES: u64 = 8 * 1024;

/// The first turn of a run that was just accepted, and the details of its envelope so far. It ends
/// early, as any turn may where `run.continued` follows.
///
/// # Errors
/// [`InvariantViolation`].
pub fn accept(
    definition: &Definition,
    stream: StreamId,
    created: Draft,
    at: Timestamp,
    memo: &Memo,
) -> Result<(RunState, EnvelopeDetails, Turn), InvariantViolation> {
    let (first, mut state) = create(definition, stream, created, at)?;
    let mut details = EnvelopeDetails::begin(&state, &first.frame);
    let mut limits = state.created().limits;
    limits.turn_bytes = limits.turn_bytes.min(ACCEPTED_BYTES);
    let mut run = DetailedRun {
        state: &mut state,
        details: &mut details,
    };
    let turn = first_turn(definition, &mut run, memo, first, limits)?;
    Ok((state, details, turn))
}

fn create(
    definition: &Definition,
    stream: StreamId,
    created: Draft,
    at: Timestamp,
) -> Result<(Sealed, RunState), InvariantViolation> {
    let link = Link {
        stream,
        seq: 0,
        prev: Hash::ZERO,
    };
    let sealed = created.seal(link, at)?;
    let state = RunState::begin(&sealed.frame, Arc::clone(&definition.outline))?;
    Ok((sealed, state))
}

fn first_turn(
    definition: &Definition,
    run: &mut impl RunFold,
    memo: &Memo,
    first: Sealed,
    limits: Limits,
) -> Result<Turn, InvariantViolation> {
    let at = first.frame.at;
    let mut turn = Turn {
        sealed: vec![first],
        more: false,
    };
    decide(definition, run, memo, (at, limits), &mut turn)?;
    Ok(turn)
}

/// A later turn.
///
/// # Errors
/// [`InvariantViolation`]. The state must then not be used further.
pub fn apply_input(
    definition: &Definition,
    state: &mut RunState,
    input: Draft,
    at: Timestamp,
    memo: &Memo,
) -> Result<Turn, InvariantViolation> {
    apply_report(definition, state, vec![input], at, memo)
}

/// A later turn whose input is a report: one input, whatever its frames (DESIGN 1).
///
/// # Errors
/// [`InvariantViolation`]. The state must then not be used further.
pub fn apply_report(
    definition: &Definition,
    run: &mut impl RunFold,
    input: Vec<Draft>,
    at: Timestamp,
    memo: &Memo,
) -> Result<Turn, InvariantViolation> {
    let mut turn = record_input(run, input, at, memo)?;
    let limits = run.state().created().limits;
    decide(definition, run, memo, (at, limits), &mut turn)?;
    Ok(turn)
}

/// An input without what follows from it, while nothing is to start. That is decided once the run
/// continues, from what the state is then.
///
/// # Errors
/// [`InvariantViolation`]. The state must then not be used further.
pub fn record_input(
    run: &mut impl RunFold,
    input: Vec<Draft>,
    at: Timestamp,
    memo: &Memo,
) -> Result<Turn, InvariantViolation> {
    let mut turn = Turn::default();
    for draft in input {
        if changes_values(&draft.event) {
            memo.invalidate();
        }
        let place = link_for(run.state(), &draft);
        let sealed = draft.seal(place, at)?;
        run.apply(&sealed.frame)?;
        turn.sealed.push(sealed);
    }
    Ok(turn)
}

/// Returns `true` if values that were read before an input are others after it.
fn changes_values(input: &Event) -> bool {
    let changes = matches!(
        input,
        Event::Person(_)
            | Event::Run(RunEvent::Resumed(_))
            | Event::World(WorldEvent::BudgetRaised(_))
    );
    changes || input.branched().is_some()
}

/// The place of an input: behind the last frame, in the stream of the run itself unless a branch
/// begins with it.
pub(crate) fn link_for(state: &RunState, input: &Draft) -> Link {
    let link = state.link();
    let branch = input.event.branched();
    let branch = branch.and_then(|branch| StreamId::run(&branch.branch_id).ok());
    match branch {
        Some(stream) => Link { stream, ..link },
        None => link,
    }
}

/// The input a run posts itself when a bound ended its turn, or when it is resumed.
pub fn continuation(state: &RunState, why: ContinueReason) -> Draft {
    Draft {
        scope: String::new(),
        actor: Actor::Orchestrator,
        cause: vec![ktsu_ledger::Cause::Here(state.next_seq().saturating_sub(1))],
        event: Event::Run(RunEvent::Continued(Continued { why })),
    }
}

/// Takes units until nothing is left to decide or the next one would pass a bound. The closing of
/// a failing run passes every bound: a failure is never divided (decision S4).
fn decide(
    definition: &Definition,
    run: &mut impl RunFold,
    memo: &Memo,
    (at, limits): (Timestamp, Limits),
    turn: &mut Turn,
) -> Result<(), InvariantViolation> {
    let mut bytes: usize = turn
        .sealed
        .iter()
        .map(|sealed| sealed.record.body.len())
        .sum();
    let inputs = turn.sealed.len();
    while let Some(unit) = next(definition, run.state(), memo) {
        let unit = seal(run.state(), unit, at)?;
        let unit_bytes: usize = unit.iter().map(|sealed| sealed.record.body.len()).sum();
        let full = (turn.sealed.len() + unit.len()) as u64 > limits.turn_frames
            || (bytes + unit_bytes) as u64 > limits.turn_bytes;
        let state = run.state();
        let whole = state.failing().is_some() || unit.iter().any(|one| fails_agent(state, one));
        if full && turn.sealed.len() > inputs && !whole {
            turn.more = true;
            return Ok(());
        }
        bytes += unit_bytes;
        for sealed in unit {
            run.apply(&sealed.frame)?;
            turn.sealed.push(sealed);
        }
    }
    Ok(())
}

/// Returns `true` if a frame fails an agent step that is under way. A fan-out fails in the unit
/// after the one that ended its last item, and the two are one failure.
fn fails_agent(state: &RunState, sealed: &Sealed) -> bool {
    let Event::Step(StepEvent::Failed(failed)) = &sealed.frame.event else {
        return false;
    };
    let scope = state.scope_at(&sealed.frame.scope);
    let step = scope.and_then(|scope| {
        let scope = state.scope(scope)?;
        scope
            .steps
            .get(scope.shape.position(&failed.step)? as usize)
    });
    step.is_some_and(|step| step.tasks.is_some())
}

/// Links a unit to the state's head, one frame after another.
fn seal(state: &RunState, unit: Vec<Draft>, at: Timestamp) -> Result<Vec<Sealed>, FrameError> {
    let mut link = state.link();
    let mut sealed = Vec::with_capacity(unit.len());
    for draft in unit {
        let one = draft.seal(link.clone(), at)?;
        link = Link {
            seq: link.seq + 1,
            prev: one.record.hash,
            stream: link.stream,
        };
        sealed.push(one);
    }
    Ok(sealed)
}

#[cfg(test)]
#[path = "turn_tests.rs"]
mod tests;
