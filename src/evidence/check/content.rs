//! The content of the frames of an archive: extracts, definitions, and replayed decisions.

use std::collections::BTreeSet;

use ktsu_ledger::Frame;

use super::super::archive::{Extract, describe, extracts};
use super::reading::EvidenceArchive;
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, for_one, not_covered, proven,
};
use ktsu_workflow::replay::{Definitions, ReplayError, replay};

impl EvidenceArchive {
    /// Checks that the files beside the frames say what the frames say.
    pub(super) fn extracts(&self) -> CheckResult {
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
                Err(ClaimFailure::new(words))
            }
            None => proven(counted(expected.len(), "file")),
        }
    }

    /// Checks that runs name the digest of the definition they record.
    pub(super) fn definitions(&self) -> CheckResult {
        let mut count = 0;
        for placed in self.each() {
            let frame = &placed.frame;
            // What a recompute names is made for it alone.
            let of_run = frame.event.kind() == "run.created";
            let created = frame.event.created().filter(|_| of_run);
            let forked = || frame.event.branched()?.digest.as_ref();
            let Some(digest) = created.map(|one| &one.digest).or_else(forked) else {
                continue;
            };
            count += 1;
            let mut external = frame.ext.iter();
            let external = external.find(|external| external.path == "/definition");
            if external.is_none_or(|external| external.hash.to_string() != *digest) {
                let words = "its definition is not the one it names";
                return Err(ClaimFailure::at(frame.id(), words));
            }
        }
        let matches = for_one(&count, "matches its run", "match their runs");
        proven(format!("{} {matches}", counted(count, "definition")))
    }

    /// Checks that every decision follows from the recorded inputs.
    pub(super) fn replay(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let mut definitions = Definitions::default();
        let (mut count, mut large) = (0, None);
        for (stream, (_, last)) in self.by_stream() {
            if !matches!(stream.split(':').next(), Some("run" | "branch")) {
                continue;
            }
            if self.is_too_large(stream, last, against) {
                large.get_or_insert(stream);
                continue;
            }
            let whole = self.effective(last, stream);
            let unread = || ClaimFailure::new(format!("the frames of {stream} cannot be read"));
            let whole = whole.ok_or_else(unread)?;
            match replay(&whole, &mut definitions) {
                Ok(_) => count += 1,
                Err(stopped @ (ReplayError::Rules { .. } | ReplayError::Unknown { .. })) => {
                    return not_covered(format!("{stream}: {stopped}"));
                }
                Err(stopped) => return Err(ClaimFailure::new(format!("{stream}: {stopped}"))),
            }
        }
        match large {
            Some(stream) => not_covered(too_large(stream)),
            None => {
                let from = for_one(&count, "was replayed from its", "were replayed from their");
                proven(format!("{} {from} inputs", counted(count, "run")))
            }
        }
    }

    /// The frames of a run or branch with all it shares, blobs put back.
    fn effective(&self, last: u64, stream: &str) -> Option<Vec<Frame>> {
        (0..=last).map(|seq| self.whole(stream, seq)).collect()
    }
}

/// The reason why a run was not checked as one.
pub(super) fn too_large(stream: &str) -> String {
    format!("{stream} is larger than what is held at once; --run-size lets more of it in")
}
