//! Lists of evals, newest first, without the results of their checks.

use ktsu_eval::Held;
use ktsu_ledger::event::EvalEvent;
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, Frame, StreamId};

use super::eval_record::{EvalReadError, record};
use super::evals::{EvalReport, RunVerdict, ScenarioReport};

/// The most evals that are looked at for one page of a list.
pub const MAX_LOOKED_AT: usize = 1_000;
/// The number of frames after which a page of a list ends with the eval that was read last.
pub const MAX_FRAMES: u64 = 500_000;

/// The evals that are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EvalsWanted {
    /// Those that judged this run.
    pub run: Option<StreamId>,
    /// Those whose spec has this file name.
    pub file: Option<String>,
    /// Those that began before this one.
    pub before: Option<StreamId>,
}

/// A page of a list of evals.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EvalList {
    /// The evals; of one that cannot be read, its stream.
    pub evals: Vec<Result<EvalReport, StreamId>>,
    /// The eval before which the next page begins, if there may be more.
    pub next: Option<StreamId>,
}

/// The newest evals that are wanted, at most `limit`. At most [`MAX_LOOKED_AT`] are looked at, and about
/// [`MAX_FRAMES`] frames are read.
///
/// # Errors
/// [`StoreError`].
pub fn page(
    reader: &dyn Reader,
    wanted: &EvalsWanted,
    limit: usize,
) -> Result<EvalList, StoreError> {
    page_within(reader, wanted, limit, MAX_FRAMES)
}

/// A page that ends with the eval after which so many frames are read.
pub(crate) fn page_within(
    reader: &dyn Reader,
    wanted: &EvalsWanted,
    limit: usize,
    frames: u64,
) -> Result<EvalList, StoreError> {
    let all = ktsu_run_index::evals(reader)?;
    let older = match &wanted.before {
        Some(before) => began_before(&all, before),
        None => &all,
    };
    let mut list = EvalList::default();
    let mut read = 0;
    for (looked_at, stream) in older.iter().rev().enumerate() {
        if list.evals.len() >= limit || looked_at >= MAX_LOOKED_AT || read >= frames {
            return Ok(list);
        }
        list.next = Some(stream.clone());
        list.evals
            .extend(listed(reader, stream, wanted, &mut read)?);
    }
    list.next = None;
    Ok(list)
}

/// The newest eval that began before another one and whose spec has this file name, among the
/// [`MAX_LOOKED_AT`] before it.
///
/// # Errors
/// [`StoreError`].
pub fn earlier_of_spec(
    reader: &dyn Reader,
    eval: &StreamId,
    file: &str,
) -> Result<Option<StreamId>, StoreError> {
    let all = ktsu_run_index::evals(reader)?;
    for stream in began_before(&all, eval).iter().rev().take(MAX_LOOKED_AT) {
        if is_of_spec(reader, stream, file)? {
            return Ok(Some(stream.clone()));
        }
    }
    Ok(None)
}

/// Of evals in the order of their names, which is that of their beginnings, those before another one.
fn began_before<'a>(all: &'a [StreamId], eval: &StreamId) -> &'a [StreamId] {
    let count = all.partition_point(|stream| stream.name() < eval.name());
    all.get(..count).unwrap_or_default()
}

/// The newest evals, of one run or of all, at most `limit`. One that cannot be read has its name alone.
///
/// # Errors
/// [`StoreError`].
pub fn list(
    reader: &dyn Reader,
    run: Option<&StreamId>,
    limit: usize,
) -> Result<Vec<Result<EvalReport, StreamId>>, StoreError> {
    let wanted = EvalsWanted {
        run: run.cloned(),
        ..EvalsWanted::default()
    };
    let mut found = Vec::new();
    for stream in ktsu_run_index::evals(reader)?.iter().rev() {
        if found.len() >= limit {
            break;
        }
        found.extend(listed(reader, stream, &wanted, &mut 0)?);
    }
    Ok(found)
}

/// An eval, if it is wanted. What cannot be read is of no run and has no spec. The number of frames
/// that were read is added to `frames`.
fn listed(
    reader: &dyn Reader,
    stream: &StreamId,
    wanted: &EvalsWanted,
    frames: &mut u64,
) -> Result<Option<Result<EvalReport, StreamId>>, StoreError> {
    if let Some(file) = &wanted.file
        && !is_of_spec(reader, stream, file)?
    {
        return Ok(None);
    }
    let report = match summary(reader, stream, frames) {
        Ok(None) => return Ok(None),
        Ok(Some(report)) => report,
        Err(EvalReadError::Record(_) | EvalReadError::Store(StoreError::Damaged(_))) => {
            let is_wanted = wanted.run.is_none() && wanted.file.is_none();
            return Ok(is_wanted.then(|| Err(stream.clone())));
        }
        Err(EvalReadError::Store(error)) => return Err(error),
    };
    let is_of = |run: &StreamId| {
        let mut runs = report.scenarios.iter().flat_map(ScenarioReport::runs);
        runs.any(|judged| judged.run_id == run.name())
    };
    let is_wanted = wanted.run.as_ref().is_none_or(is_of);
    Ok(is_wanted.then_some(Ok(report)))
}

/// Returns `true` if the spec of an eval has this file name.
fn is_of_spec(reader: &dyn Reader, stream: &StreamId, file: &str) -> Result<bool, StoreError> {
    let first = reader.read(stream, 0, 1)?;
    let first = first.first().and_then(|record| record.decode_bare().ok());
    Ok(first.is_some_and(|frame| match frame.event {
        Event::Eval(EvalEvent::Started(started)) => started.file == file,
        _ => false,
    }))
}

/// An eval without the results of its checks. Of an eval of one run only its first and last two frames
/// are read, and not checked against the others.
fn summary(
    reader: &dyn Reader,
    stream: &StreamId,
    frames: &mut u64,
) -> Result<Option<EvalReport>, EvalReadError> {
    if let Some(report) = ends(reader, stream)? {
        return Ok(Some(report));
    }
    let Some(tail) = reader.tail(stream)? else {
        return Ok(None);
    };
    *frames = frames.saturating_add(tail.seq);
    let mut report = EvalReport::of(stream, record(reader, stream, Held::Verdicts)?);
    let scenarios = report.scenarios.iter_mut();
    // One that is under way has results.
    scenarios.for_each(ScenarioReport::without_results);
    Ok(Some(report))
}

/// The report on an eval of one run, by its first and last two frames; none if they say something
/// else.
fn ends(reader: &dyn Reader, stream: &StreamId) -> Result<Option<EvalReport>, StoreError> {
    let Some(tail) = reader.tail(stream)? else {
        return Ok(None);
    };
    let first = reader.read(stream, 0, 2)?;
    let last = reader.read(stream, tail.seq.saturating_sub(1).max(2), 2)?;
    let frames = first.iter().chain(&last);
    let frames: Vec<Frame> = frames.filter_map(|one| one.decode_bare().ok()).collect();
    let events: Vec<&Event> = frames.iter().map(|frame| &frame.event).collect();
    Ok(match events.as_slice() {
        [
            Event::Eval(EvalEvent::Started(started)),
            Event::Eval(EvalEvent::ScenarioStarted(scenario)),
            Event::Eval(EvalEvent::ScenarioFinished(verdict)),
            Event::Eval(EvalEvent::Finished(finished)),
        ] if finished.scenarios == 1 => {
            let (started, at) = (
                started.as_ref().clone(),
                frames.first().map(|first| first.at),
            );
            let mut report =
                EvalReport::empty(stream, started, at.unwrap_or_default(), (*finished, true));
            let run = RunVerdict::with(scenario.clone(), Some(verdict.clone()), Vec::new());
            report.scenarios.push(ScenarioReport::Run(run));
            Some(report)
        }
        _ => None,
    })
}
