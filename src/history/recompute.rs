//! The result of a recompute.

use ktsu_ledger::event::{ComparedTask, RecomputeCompared, RecomputeEvent, RecomputeOf, Sameness};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, Frame, StreamId};
use ktsu_workflow::recompute::{RecomputedWorld, recomputed_world, until};
use serde::{Deserialize, Serialize};

use super::frames;

/// A recompute and its verdict.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecomputeReport {
    /// `recompute_…`.
    pub recompute_id: String,
    /// The run it is of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    /// See [`Sameness`]; `running` as long as it is under way.
    pub status: String,
    /// The step that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step: Option<String>,
    /// One for each task of an agent, and each question of a responder; empty as long as it is under
    /// way.
    pub tasks: Vec<ComparedTask>,
    /// The objects that would differ; absent unless the run loads worlds and the recompute is
    /// compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world: Option<RecomputedWorld>,
}

/// Reads a recompute; none if the stream is none.
///
/// # Errors
/// [`StoreError`].
pub fn recomputed(
    reader: &dyn Reader,
    stream: &StreamId,
) -> Result<Option<RecomputeReport>, StoreError> {
    let frames = frames(reader, stream)?;
    let first = frames.first().map(|frame| &frame.event);
    let Some(Event::Recompute(RecomputeEvent::Created(created))) = first else {
        return Ok(None);
    };
    let compared = frames.iter().find_map(|frame| match &frame.event {
        Event::Recompute(RecomputeEvent::Compared(compared)) => Some(compared),
        _ => None,
    });
    let of = created.of.as_ref();
    let world = match (of, compared) {
        (Some(of), Some(compared)) => world(reader, of, &frames, compared)?,
        _ => None,
    };
    let status = compared.map_or("running", |compared| Sameness::as_str(compared.status));
    Ok(Some(RecomputeReport {
        recompute_id: stream.name().to_owned(),
        run_id: of.and_then(|of| Some(of.stream.split_once(':')?.1.to_owned())),
        status: status.to_owned(),
        step: of.and_then(|of| of.step.clone()),
        tasks: compared.map_or_else(Vec::new, |compared| compared.tasks.clone()),
        world,
    }))
}

/// The world of the run as the new replies would make it. It is decided whenever it is asked for,
/// and recorded nowhere.
fn world(
    reader: &dyn Reader,
    of: &RecomputeOf,
    fresh: &[Frame],
    compared: &RecomputeCompared,
) -> Result<Option<RecomputedWorld>, StoreError> {
    let unknown = |reason: String| {
        let asks = fresh.first().and_then(|first| first.event.definition());
        let asks = asks.is_some_and(|(plan, _)| plan.pointer("/worlds").is_some());
        asks.then(|| RecomputedWorld {
            reason: Some(reason),
            ..RecomputedWorld::default()
        })
    };
    let Ok(run) = of.stream.parse::<StreamId>() else {
        return Ok(unknown(format!("{} is not the name of a run", of.stream)));
    };
    let Some(history) = until(super::frames(reader, &run)?, &of.head) else {
        return Ok(unknown(format!("this ledger does not have {run}")));
    };
    match recomputed_world(&history, fresh, compared) {
        Ok(world) => Ok(world),
        Err(error) => Ok(unknown(format!("the run cannot be read: {error}"))),
    }
}
