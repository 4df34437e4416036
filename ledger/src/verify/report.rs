//! The results of a verification.

use std::collections::BTreeMap;

use serde::Serialize;

use super::VerifyOptions;
use crate::store::StoreError;

/// The outcome of a verification.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct VerifyReport {
    /// Blobs looked at.
    pub blobs: u64,
    /// Checkpoints whose signature and root are right.
    pub checkpoints: u64,
    /// Frames looked at.
    pub frames: u64,
    /// The first refusal of the system to read or write. What could not be read for it is among the
    /// problems, and may be sound.
    #[serde(skip)]
    pub failed: Option<StoreError>,
    /// The parts that could not be checked.
    pub not_covered: Vec<String>,
    /// The problems; of each stream only the first bad frame, since what follows it is suspicious
    /// anyway.
    pub problems: Vec<VerifyProblem>,
    /// Frames that the last of those checkpoints is over.
    pub signed_frames: u64,
    /// Streams that have frames.
    pub streams: u64,
    /// Blobs that no frame references: harmless, but they take space.
    pub unreferenced_blobs: u64,
}

/// One finding.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VerifyProblem {
    /// The kind of the finding.
    pub kind: ProblemKind,
    /// For people.
    pub message: String,
    /// The frame, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The stream, if it is about one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<String>,
}

/// The kind of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// A frame names a blob that is missing or changed, or a blob is.
    Blob,
    /// A frame names a cause that does not exist.
    Cause,
    /// A checkpoint is not what it should be, or the frames are not those it was signed over.
    Checkpoint,
    /// The body and its columns disagree.
    Column,
    /// The container around the frames is damaged.
    Container,
    /// A number is missing, or comes twice.
    Gap,
    /// The hash is not that of the bytes.
    Hash,
    /// A head recorded elsewhere is not there.
    Head,
    /// An index row is damaged; all of them can be made again.
    Index,
    /// A frame does not name the hash of the one before it.
    Prev,
    /// The bytes are not a frame, or not one that every reader reads the same way.
    Unreadable,
}

impl VerifyReport {
    /// Returns `true` if nothing is wrong.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// Returns `true` if something is wrong with a stream.
    pub(super) fn names(&self, stream: &str) -> bool {
        let mut problems = self.problems.iter();
        problems.any(|problem| problem.stream.as_deref() == Some(stream))
    }

    pub(crate) fn find(
        &mut self,
        stream: Option<&str>,
        seq: Option<u64>,
        kind: ProblemKind,
        message: String,
    ) {
        self.problems.push(VerifyProblem {
            kind,
            message,
            seq,
            stream: stream.map(str::to_owned),
        });
    }

    /// Keeps the first refusal of the system.
    pub(super) fn note_failure(&mut self, error: &StoreError) {
        if error.is_failed() && self.failed.is_none() {
            self.failed = Some(error.clone());
        }
    }

    pub(super) fn note_not_covered(
        &mut self,
        options: &VerifyOptions,
        unknown: &BTreeMap<String, u64>,
    ) {
        for (kind, count) in unknown {
            self.not_covered.push(format!(
                "the meaning of frames of the unknown type {kind:?} ({count} found)"
            ));
        }
        if self.checkpoints > 0 && self.signed_frames < self.frames {
            let more = self.frames - self.signed_frames;
            let what = format!("frames after the last signed checkpoint: {more}");
            self.not_covered.push(what);
        }
        let cut = if !options.checkpoints.is_empty() {
            "frames after the given checkpoints, unless recorded elsewhere"
        } else if options.heads.is_empty() {
            "frames cut off the end of a stream, and whole streams cut off the end of the ledger: \
             only a head recorded elsewhere can show that, and none was given"
        } else {
            "frames after the given heads, and streams without one"
        };
        self.not_covered.push(cut.to_owned());
    }
}
