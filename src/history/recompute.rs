//! The result of a recompute.

use ktsu_ledger::event::{ComparedTask, RecomputeEvent, Sameness};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Event, StreamId};
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
    /// One for each task of an agent; empty as long as it is under way.
    pub tasks: Vec<ComparedTask>,
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
    let status = compared.map_or("running", |compared| Sameness::as_str(compared.status));
    Ok(Some(RecomputeReport {
        recompute_id: stream.name().to_owned(),
        run_id: of.and_then(|of| Some(of.stream.split_once(':')?.1.to_owned())),
        status: status.to_owned(),
        step: of.and_then(|of| of.step.clone()),
        tasks: compared.map_or_else(Vec::new, |compared| compared.tasks.clone()),
    }))
}
