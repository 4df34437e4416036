//! The files of an archive beside its frames: the verifier and its guide, and tables for people.

use ktsu_ledger::Hash;

use super::super::archive::PositionedFrame;
use super::super::derived;
use super::super::export::VERIFIER;
use super::reading::EvidenceArchive;
use super::{ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, not_covered, proven};
use ktsu_workflow::admit::ENGINE;

impl EvidenceArchive {
    /// Checks that the verifier in the archive is the one that this version knows: the maker of the
    /// archive could have put any program there, and any advice.
    pub(super) fn verifier(&self) -> CheckResult {
        let digest = |name: &str| self.describe(name).map(|file| file.blake3);
        let known = |name: &str| VERIFIER.iter().find(|(known, _)| *known == name);
        let right = |name: &str| {
            let text = known(name).map(|(_, text)| Hash::of(text.as_bytes()).to_string());
            text.is_some() && digest(name) == text
        };
        let there = self.files.names().filter(|name| is_of_verifier(name));
        let mut names = there.chain(VERIFIER.iter().map(|(name, _)| *name));
        match names.find(|name| !right(name)) {
            Some(name) => {
                let words = format!(
                    "{name} in the archive is not the one that this version knows: do not run it, \
                     and do not go by it"
                );
                not_covered(words)
            }
            None => {
                let words = format!("{} of this version", counted(VERIFIER.len(), "file"));
                proven(words)
            }
        }
    }

    /// Checks that the tables for people say what the frames say: they are made again.
    pub(super) fn derived(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let weight: u64 = self.all().iter().map(|row| self.weight_of(row)).sum();
        if weight > against.run_bytes {
            let words = "the archive is larger than what is held at once; --run-size lets more of \
                         it in";
            return not_covered(words);
        }
        let frames: Vec<PositionedFrame> = self
            .each()
            .map(|placed| PositionedFrame::clone(&placed))
            .collect();
        let made = derived::files(&frames);
        let stray = self.files.names().find(|name| {
            name.starts_with("derived/") && made.iter().all(|(known, _)| known != name)
        });
        let right = |(name, text): &&(&str, String)| {
            let found = self.describe(name);
            let is = |text: &str| {
                let hash = Hash::of(text.as_bytes()).to_string();
                found.as_ref().is_some_and(|found| found.blake3 == hash)
            };
            is(text) || is(&derived::without_policy(text))
        };
        let other = made.iter().find(|one| !right(one)).map(|(name, _)| *name);
        match stray.or(other) {
            None => proven(format!(
                "{} regenerated, identical",
                counted(made.len(), "derived file")
            )),
            // Another version may have made other tables of the same frames.
            Some(name) if self.manifest.engine != ENGINE => {
                let engine = &self.manifest.engine;
                let words = format!(
                    "{name} is not what this version makes of the frames, and {engine} says that \
                     it made it: do not go by it"
                );
                not_covered(words)
            }
            Some(name) => {
                let words = format!("{name} is not what the frames say");
                Err(ClaimFailure::new(words))
            }
        }
    }
}

/// Returns `true` if a file of an archive is one that people would run, or go by.
fn is_of_verifier(name: &str) -> bool {
    name.ends_with(".py") || name.starts_with("VERIFY.")
}
