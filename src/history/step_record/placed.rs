//! Values at their places in frames.

use ktsu_ledger::{CanonicalJson, Frame};

/// A value in a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedValue {
    /// The frame.
    pub frame: u64,
    /// JSON pointer to it in the frame.
    pub at: String,
    /// The length of its JSON text.
    pub bytes: usize,
    /// Its JSON text; none for those who may not read it.
    pub json: Option<String>,
}

impl PlacedValue {
    pub(super) fn new(frame: u64, at: impl Into<String>, value: &CanonicalJson) -> Self {
        Self {
            frame,
            at: at.into(),
            bytes: value.as_str().len(),
            json: Some(value.as_str().to_owned()),
        }
    }
}

/// The frame of a number.
pub(super) fn frame_at(frames: &[Frame], seq: u64) -> Option<&Frame> {
    frames.get(usize::try_from(seq).ok()?)
}
