//! The tree around the frames: inclusion, signatures, keys, and checkpoints kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::Event;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::keys::{Keys, origin_of};
use ktsu_ledger::merkle::{Node, multiproof};

use super::super::archive::PositionedFrame;
use super::reading::EvidenceArchive;
use super::{Claim, ClaimFailure, VerifyOptions};

/// What the tree and the keys of an archive come to.
pub(super) struct Signed {
    keys: Keys,
    /// The root of each checkpoint, as the frames give it.
    roots: Result<BTreeMap<u64, Node>, ClaimFailure>,
    /// What is wrong with a key or its note.
    key_wrong: Option<ClaimFailure>,
    /// What is wrong with a checkpoint.
    wrong: Option<ClaimFailure>,
    /// Which of the keys signed the last checkpoint.
    signer: Option<usize>,
    /// Where the last checkpoint stands: it alone may stand behind the tree.
    last: u64,
    checkpoints: u64,
}

impl Signed {
    pub(super) fn of(evidence: &EvidenceArchive) -> Self {
        let mut signed = Self {
            keys: Keys::new(&evidence.manifest.origin),
            roots: roots(evidence),
            key_wrong: None,
            wrong: None,
            signer: None,
            last: 0,
            checkpoints: 0,
        };
        for placed in evidence.each() {
            if let Event::Store(event) = &placed.frame.event {
                signed.take(&placed, event);
            }
        }
        signed
    }

    fn take(&mut self, placed: &PositionedFrame, event: &StoreEvent) {
        let wrong = |reason: String| ClaimFailure::at(placed.frame.id(), reason);
        let taken = self.keys.take(event).map_err(wrong);
        match (event, taken) {
            (StoreEvent::CheckpointSigned(_), Err(error)) => drop(self.wrong.get_or_insert(error)),
            (_, Err(error)) => drop(self.key_wrong.get_or_insert(error)),
            (_, Ok(None)) => {}
            (_, Ok(Some(checkpoint))) => {
                self.checkpoints += 1;
                // A checkpoint is of the key in force, which is the one that was added last.
                self.signer = self.keys.all().len().checked_sub(1);
                self.last = placed.position;
                let size = checkpoint.size;
                let root = self.roots.as_ref().ok().and_then(|roots| roots.get(&size));
                if root.is_some_and(|root| *root != checkpoint.root) {
                    let words = format!("the first {size} frames are not those that were signed");
                    self.wrong.get_or_insert(wrong(words));
                }
                if size >= placed.position {
                    let words = "the checkpoint does not stand behind its frames".to_owned();
                    self.wrong.get_or_insert(wrong(words));
                }
            }
        }
    }

    /// The claims, in order.
    pub(super) fn claims(&self, evidence: &EvidenceArchive, against: &VerifyOptions) -> Vec<Claim> {
        vec![
            self.inclusion(evidence),
            self.signatures(),
            self.rotation(),
            self.key(against),
            self.held(evidence, against),
        ]
    }

    fn inclusion(&self, evidence: &EvidenceArchive) -> Claim {
        let none = "the ledger has no signed checkpoint";
        let size = evidence.tree.size;
        match (&self.roots, &self.wrong) {
            (Err(wrong), _) => Claim::failed("inclusion", wrong.clone()),
            (_, Some(wrong)) => Claim::failed("inclusion", wrong.clone()),
            (Ok(_), None) if size == 0 => Claim::not_covered("inclusion", none),
            (Ok(_), None) => {
                let outside = evidence
                    .all()
                    .iter()
                    .find(|row| row.position > size && row.position != self.last);
                match outside {
                    Some(row) => Claim {
                        frame: Some(format!("{}#{}", evidence.name(row), row.seq)),
                        ..Claim::not_covered("inclusion", "it came after the last checkpoint")
                    },
                    None => Claim::proven(
                        "inclusion",
                        format!(
                            "in the tree of {size} frames; nothing shows when the last checkpoint \
                             was written down"
                        ),
                    ),
                }
            }
        }
    }

    fn signatures(&self) -> Claim {
        match (&self.wrong, self.checkpoints) {
            (Some(wrong), _) => Claim::failed("signatures", wrong.clone()),
            (None, 0) => Claim::not_covered("signatures", "the ledger has no signed checkpoint"),
            (None, some) => Claim::proven("signatures", format!("{some} checkpoints")),
        }
    }

    fn rotation(&self) -> Claim {
        if let Some(wrong) = &self.key_wrong {
            return Claim::failed("rotation", wrong.clone());
        }
        let known = self.keys.all();
        match known.iter().find(|known| !known.vouched) {
            Some(known) => {
                let words = format!("nobody vouches for the key {}", known.key.id_text());
                Claim::not_covered("rotation", words)
            }
            None => Claim::proven(
                "rotation",
                format!("{} keys, each by the one before", known.len()),
            ),
        }
    }

    /// Whether the auditor's key signed last, or vouches for the one that did. A key that others
    /// vouch for shows nothing: anybody can vouch for a key that everybody knows.
    fn key(&self, against: &VerifyOptions) -> Claim {
        let Some(wanted) = &against.key else {
            let words = "operator-asserted only: no key was given with --key";
            return Claim::not_covered("key", words);
        };
        let wrong = |words: &str| Claim::failed("key", ClaimFailure::new(words));
        let Some(signer) = self.signer else {
            return wrong("nothing is signed");
        };
        let known = self.keys.all().get(..=signer).unwrap_or_default();
        let Some(first) = known.iter().rposition(|known| known.key == *wanted) else {
            return wrong("no key up to the one that signed last is the one that was given");
        };
        let line = known.get(first..).unwrap_or_default();
        if let Some(revoked) = line.iter().find(|known| known.revoked.is_some()) {
            let id = revoked.key.id_text();
            return wrong(&format!("the key {id} is revoked: it vouches for nothing"));
        }
        match line.iter().skip(1).all(|known| known.vouched) {
            true => Claim::proven(
                "key",
                "the key that was given, or one it vouches for, signed",
            ),
            false => wrong("the key that was given does not vouch for the one that signed"),
        }
    }

    fn held(&self, evidence: &EvidenceArchive, against: &VerifyOptions) -> Claim {
        if against.held.is_empty() {
            let words = "no checkpoint kept elsewhere was given with --checkpoint";
            return Claim::not_covered("held", words);
        }
        for held in &against.held {
            let size = held.size;
            let root = self.roots.as_ref().ok().and_then(|roots| roots.get(&size));
            if held.origin != evidence.manifest.origin || root != Some(&held.root) {
                let origin = &held.origin;
                let words =
                    format!("the checkpoint over {size} frames of {origin} is not of this ledger");
                return Claim::failed("held", ClaimFailure::new(words));
            }
        }
        let words = format!("the ledger goes on from {} of them", against.held.len());
        Claim::proven("held", words)
    }
}

/// The roots that the frames and the proof give.
fn roots(evidence: &EvidenceArchive) -> Result<BTreeMap<u64, Node>, ClaimFailure> {
    let size = evidence.tree.size;
    let first = evidence.all().first().filter(|first| first.position == 1);
    if first.is_some_and(|first| origin_of(&first.hash) != evidence.manifest.origin) {
        let words = "the origin is not made from the first frame";
        return Err(ClaimFailure::at("position 1", words));
    }
    let mut sizes = BTreeSet::new();
    let mut last = 0;
    for placed in evidence.each() {
        if let Event::Store(StoreEvent::CheckpointSigned(signed)) = &placed.frame.event {
            sizes.insert(signed.size);
            last = signed.size;
        }
    }
    if size != last {
        return Err(ClaimFailure::new(
            "the proof is not about the last checkpoint",
        ));
    }
    if size == 0 {
        return Ok(BTreeMap::new());
    }
    let mut leaves = BTreeMap::new();
    for row in evidence.all().iter().filter(|row| row.position <= size) {
        if let Some(body) = evidence.bytes(row) {
            leaves.insert(row.position - 1, Node::leaf(&body));
        }
    }
    let found = multiproof::roots(size, &leaves, &sizes, &evidence.tree.hashes);
    found.map_err(|error| ClaimFailure::new(error.to_string()))
}
