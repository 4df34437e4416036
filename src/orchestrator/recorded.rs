//! Frames as runtimes see them.

use ktsu_contract::runtime::RecordedFrame;
use ktsu_ledger::Frame;

/// A frame as runtimes see it.
pub(crate) fn recorded(frame: &Frame) -> RecordedFrame {
    RecordedFrame {
        seq: frame.seq,
        kind: frame.event.kind().to_owned(),
        data: frame.event.data(),
    }
}
