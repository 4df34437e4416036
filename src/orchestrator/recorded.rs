//! Frames as runtimes see them.

use ktsu_contract::runtime::RecordedFrame;
use ktsu_ledger::branch::{Ancestry, Blobs};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, StreamId};
use serde_json::Value;

/// A frame as runtimes see it.
pub(crate) fn recorded(frame: &Frame) -> RecordedFrame {
    RecordedFrame {
        seq: frame.seq,
        kind: frame.event.kind().to_owned(),
        data: frame.event.data(),
    }
}

/// The frame of the reply that a response repeats, whose text is recorded there alone.
pub(crate) fn repeated_frame(response: &RecordedFrame) -> Option<u64> {
    let repeats = response.data.get("repeats").and_then(Value::as_u64);
    repeats.filter(|_| response.kind == "llm.response")
}

/// A frame as runtimes see it: a repeated reply with the text of the reply it repeats, which is one of
/// `frames`.
pub(crate) fn with_repeated_text(mut response: RecordedFrame, frames: &[Frame]) -> RecordedFrame {
    let frame = repeated_frame(&response).and_then(|seq| usize::try_from(seq).ok());
    if let Some(frame) = frame.and_then(|at| frames.get(at)) {
        put_text(&mut response, frame);
    }
    response
}

/// Gives a repeated reply the text of the frame it repeats.
pub(crate) fn put_text(response: &mut RecordedFrame, repeated: &Frame) {
    if let Some(answer) = repeated.event.response()
        && let Some(content) = &answer.content
    {
        response.data["content"] = content.to_value();
    }
}

/// One frame of a run, those that a branch shares included.
///
/// # Errors
/// [`StoreError`].
pub(crate) fn read_frame(
    reader: &dyn Reader,
    stream: &StreamId,
    seq: u64,
) -> Result<Option<Frame>, StoreError> {
    let path = Ancestry::of(reader, stream)?;
    let records = path.read(reader, seq, 1)?;
    let record = records.first().filter(|record| record.seq == seq);
    let (Some(record), Some(owner)) = (record, path.owner(seq)) else {
        return Ok(None);
    };
    Blobs::new(reader).decode(owner, record).map(Some)
}
