//! Whose frames no subscriber gets: those of runs that were created with their effects suppressed, and
//! of what was made of such runs.

use ktsu_ledger::event::{Effects, RunEvent};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, StreamId};

/// The most streams between one and the run that it comes from; more are damage.
const MAX_ORIGINS: usize = 10_000;

/// Returns `true` if the frames of a stream are held back. Those of a branch are if those of its
/// parent are, unless it was forked to execute effects; those of a recompute are if those of its
/// run are, and if that run is in this ledger. Where a beginning is gone or cannot be read, they
/// are.
///
/// # Errors
/// [`StoreError`].
pub fn is_held_back(reader: &dyn Reader, stream: &StreamId) -> Result<bool, StoreError> {
    let mut stream = stream.clone();
    for _ in 0..MAX_ORIGINS {
        if stream.is_eval() {
            return Ok(false);
        }
        let first = reader.read(&stream, 0, 1)?;
        let frame = first.first().and_then(|first| first.decode_bare().ok());
        let event = frame.map(|frame| frame.event);
        let branch = event.as_ref().and_then(Event::branched);
        if branch.is_some_and(|branch| branch.effects == Effects::Execute) {
            return Ok(false);
        }
        let parent = branch.and_then(|branch| branch.parent().ok());
        let origin = match &event {
            Some(_) if branch.is_some() => parent,
            Some(event @ Event::Recompute(_)) => {
                let of = event.created().and_then(|created| created.of.as_ref());
                let of = of.and_then(|of| of.stream.parse::<StreamId>().ok());
                // What it repeats may be in another ledger.
                match of {
                    Some(of) if reader.tail(&of)?.is_some() => Some(of),
                    Some(_) | None => return Ok(false),
                }
            }
            Some(Event::Run(RunEvent::Created(created))) => {
                return Ok(created.effects() == Effects::Suppress);
            }
            Some(_) | None => None,
        };
        match origin {
            Some(origin) => stream = origin,
            None => return Ok(true),
        }
    }
    Ok(true)
}
