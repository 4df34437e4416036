//! The content of the frames of an archive: extracts, definitions, and replayed decisions.

use std::collections::BTreeSet;

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::{Event, Frame};

use super::super::archive::{Extract, describe, extracts};
use super::reading::EvidenceArchive;
use super::{Claim, ClaimFailure, VerifyOptions};
use ktsu_workflow::replay::{Definitions, ReplayError, replay};

impl EvidenceArchive {
    /// Whether the files beside the frames say what the frames say.
    pub(super) fn extracts(&self) -> Claim {
        let mut expected = BTreeSet::new();
        let mut wrong = BTreeSet::new();
        for placed in self.each() {
            for (name, extract) in extracts(&self.manifest.origin, &placed) {
                let there = self.describe(&name);
                let meant = match extract {
                    Extract::Text(text) => Some(describe(&name, &text)),
                    Extract::Blob(hash) => self.describe(&Self::blob_name(&hash)),
                };
                // A blob that is missing is for another claim to say.
                if meant.is_none() {
                    continue;
                }
                match there == meant {
                    true => wrong.remove(&name),
                    false => wrong.insert(name.clone()),
                };
                expected.insert(name);
            }
        }
        let folders = ["checkpoints/", "keys/", "config/"];
        let of_frames = |name: &&str| folders.iter().any(|folder| name.starts_with(folder));
        let stray = self.files.names().filter(of_frames);
        let stray = stray.filter(|name| !expected.contains(*name));
        wrong.extend(stray.map(str::to_owned));
        match wrong.first() {
            Some(name) => {
                let words = format!("{name} is not what the frames say");
                Claim::failed("extracts", ClaimFailure::new(words))
            }
            None => Claim::proven("extracts", format!("{} files", expected.len())),
        }
    }

    /// Whether runs name the digest of the definition they record.
    pub(super) fn definitions(&self) -> Claim {
        let mut count = 0;
        for placed in self.each() {
            let frame = &placed.frame;
            let digest = match &frame.event {
                Event::Run(RunEvent::Created(created)) => Some(&created.digest),
                Event::Run(RunEvent::Branched(branch)) => branch.digest.as_ref(),
                _ => None,
            };
            let Some(digest) = digest else { continue };
            count += 1;
            let external = frame
                .ext
                .iter()
                .find(|external| external.path == "/definition");
            if external.is_none_or(|external| external.hash.to_string() != *digest) {
                let words = "its definition is not the one it names";
                return Claim::failed("definitions", ClaimFailure::at(frame.id(), words));
            }
        }
        Claim::proven(
            "definitions",
            format!("{count} definitions are those that runs name"),
        )
    }

    /// Whether every decision follows from the recorded inputs.
    pub(super) fn replay(&self, against: &VerifyOptions) -> Claim {
        let mut definitions = Definitions::default();
        let (mut count, mut large) = (0, None);
        for (stream, frames) in self.by_stream() {
            if !matches!(stream.split(':').next(), Some("run" | "branch")) {
                continue;
            }
            let last = frames.last().copied().unwrap_or(0);
            if self
                .weight(stream, last)
                .is_some_and(|weight| weight > against.run_bytes)
            {
                large.get_or_insert(stream);
                continue;
            }
            let Some(whole) = self.effective(last, stream) else {
                let words = format!("the frames of {stream} cannot be read");
                return Claim::failed("replay", ClaimFailure::new(words));
            };
            match replay(&whole, &mut definitions) {
                Ok(_) => count += 1,
                Err(stopped @ (ReplayError::Rules { .. } | ReplayError::Unknown { .. })) => {
                    return Claim::not_covered("replay", format!("{stream}: {stopped}"));
                }
                Err(stopped) => {
                    return Claim::failed(
                        "replay",
                        ClaimFailure::new(format!("{stream}: {stopped}")),
                    );
                }
            }
        }
        match large {
            Some(stream) => Claim::not_covered("replay", too_large(stream)),
            None => Claim::proven(
                "replay",
                format!("{count} runs were decided again from their inputs"),
            ),
        }
    }

    /// The frames of a run or branch with all it shares, blobs put back.
    fn effective(&self, last: u64, stream: &str) -> Option<Vec<Frame>> {
        (0..=last).map(|seq| self.whole(stream, seq)).collect()
    }
}

/// Why a run was not checked as one.
pub(super) fn too_large(stream: &str) -> String {
    format!("{stream} is larger than what is held at once; --run-size lets more of it in")
}
