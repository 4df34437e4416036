//! What the frames of an archive say: extracts, definitions, and decisions made again.

use ktsu_ledger::event::RunEvent;
use ktsu_ledger::{Event, Frame, Hash, Json};

use super::super::archive::{Placed, extracts};
use super::{Claim, Evidence, Wrong};
use crate::workflow::replay::{Definitions, Stopped, replay};

impl Evidence {
    /// Whether the files beside the frames say what the frames say.
    pub(super) fn extracts(&self) -> Claim {
        let origin = &self.manifest.origin;
        let expected = extracts(origin, &self.frames, &|hash| self.blob(hash).cloned());
        let of_frames = |name: &String| {
            ["checkpoints/", "keys/", "config/"]
                .iter()
                .any(|folder| name.starts_with(folder))
        };
        let found = self.files.keys().filter(|name| of_frames(name));
        let mut names = found.chain(expected.keys());
        match names.find(|name| self.files.get(*name) != expected.get(*name)) {
            Some(name) => {
                let words = format!("{name} is not what the frames say");
                Claim::failed("extracts", Wrong::new(words))
            }
            None => Claim::proven("extracts", format!("{} files", expected.len())),
        }
    }

    /// Whether runs name the digest of the definition they record.
    pub(super) fn definitions(&self) -> Claim {
        let mut count = 0;
        for Placed { frame, .. } in &self.frames {
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
                return Claim::failed("definitions", Wrong::at(frame.id(), words));
            }
        }
        Claim::proven(
            "definitions",
            format!("{count} definitions are those that runs name"),
        )
    }

    /// Whether every decision follows from the recorded inputs.
    pub(super) fn replay(&self) -> Claim {
        let mut definitions = Definitions::default();
        let mut count = 0;
        for (stream, frames) in self.by_stream() {
            if !matches!(stream.split(':').next(), Some("run" | "branch")) {
                continue;
            }
            let Some(whole) = self.effective(frames.last().map_or(0, |it| it.frame.seq), stream)
            else {
                let words = format!("the frames of {stream} cannot be read");
                return Claim::failed("replay", Wrong::new(words));
            };
            match replay(&whole, &mut definitions) {
                Ok(_) => count += 1,
                Err(stopped @ (Stopped::Rules { .. } | Stopped::Unknown { .. })) => {
                    return Claim::not_covered("replay", format!("{stream}: {stopped}"));
                }
                Err(stopped) => {
                    return Claim::failed("replay", Wrong::new(format!("{stream}: {stopped}")));
                }
            }
        }
        Claim::proven(
            "replay",
            format!("{count} runs were decided again from their inputs"),
        )
    }

    /// The frames of a run or branch with all it shares, blobs put back.
    fn effective(&self, last: u64, stream: &str) -> Option<Vec<Frame>> {
        (0..=last).map(|seq| self.whole(stream, seq)).collect()
    }

    pub(super) fn whole(&self, stream: &str, seq: u64) -> Option<Frame> {
        let placed = self.shared(stream, seq)?;
        let place = self.places.get(&(placed.frame.stream.to_string(), seq))?;
        let record = ktsu_ledger::Record {
            seq,
            hash: placed.frame.hash,
            body: self.bodies.get(*place)?.clone(),
        };
        let decoded = record.decode::<ktsu_ledger::FrameError>(&mut |hash| {
            let text = self.blob(hash).filter(|text| Hash::of(text) == *hash);
            Ok(text.and_then(|text| Json::parse(text).ok()))
        });
        decoded.ok()
    }
}
