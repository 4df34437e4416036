//! The tree around the frames: inclusion, signatures, keys, and checkpoints kept elsewhere.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::Event;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::keys::{Keys, origin_of};
use ktsu_ledger::merkle::{Node, multiproof};

use super::super::archive::PositionedFrame;
use super::reading::EvidenceArchive;
use super::{
    ArchiveVerifyOptions, CheckResult, ClaimFailure, counted, not_covered, not_covered_at, proven,
};

const UNSIGNED: &str = "the ledger has no signed checkpoint";

/// The result of reading the tree and the keys of an archive.
pub(super) struct Signed {
    keys: Keys,
    /// The root of each checkpoint, as the frames give it.
    roots: Result<BTreeMap<u64, Node>, ClaimFailure>,
    /// The fault in a key or its note, if there is one.
    key_wrong: Option<ClaimFailure>,
    /// The fault in a checkpoint, if there is one.
    wrong: Option<ClaimFailure>,
    /// The index of the key that signed the last checkpoint.
    signer: Option<usize>,
    /// The position of the last checkpoint: it alone may be behind the tree.
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
                    let words = "the checkpoint comes before some of its frames".to_owned();
                    self.wrong.get_or_insert(wrong(words));
                }
            }
        }
    }

    /// Checks that the frames are in the tree of the last checkpoint.
    pub(super) fn inclusion(&self, evidence: &EvidenceArchive) -> CheckResult {
        let size = evidence.tree.size;
        self.roots.as_ref().map_err(Clone::clone)?;
        self.wrong.clone().map_or(Ok(()), Err)?;
        if size == 0 {
            return not_covered(UNSIGNED);
        }
        let mut rows = evidence.all().iter();
        match rows.find(|row| row.position > size && row.position != self.last) {
            Some(row) => {
                let frame = format!("{}#{}", evidence.name(row), row.seq);
                not_covered_at(frame, "it came after the last checkpoint")
            }
            None => proven(format!(
                "in the tree of {}; the time of the last checkpoint is not proven",
                counted(size, "frame")
            )),
        }
    }

    /// Checks that every checkpoint is signed by the key in force, over the frames before it.
    pub(super) fn signatures(&self) -> CheckResult {
        self.wrong.clone().map_or(Ok(()), Err)?;
        match self.checkpoints {
            0 => not_covered(UNSIGNED),
            some => proven(counted(some, "checkpoint")),
        }
    }

    /// Checks that each key is vouched for by the one before.
    pub(super) fn rotation(&self) -> CheckResult {
        self.key_wrong.clone().map_or(Ok(()), Err)?;
        let known = self.keys.all();
        match known.iter().find(|known| !known.vouched) {
            Some(known) => {
                let words = format!("no earlier key vouches for the key {}", known.key.id_text());
                not_covered(words)
            }
            None => match known.len() {
                1 => proven("1 key"),
                many => proven(format!("{many} keys, each vouched for by the one before")),
            },
        }
    }

    /// Checks that the auditor's key signed last, or vouches for the one that did. A key that
    /// others vouch for shows nothing: anyone can vouch for a key that everyone knows.
    pub(super) fn key(&self, against: &ArchiveVerifyOptions) -> CheckResult {
        let Some(wanted) = &against.key else {
            let words = "operator-asserted only: no key was given with --key";
            return not_covered(words);
        };
        let wrong = |words: &str| Err(ClaimFailure::new(words));
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
            true => proven("the key that was given, or one it vouches for, signed"),
            false => wrong("the key that was given does not vouch for the one that signed"),
        }
    }

    /// Checks that the checkpoints that the auditor has kept are of this ledger.
    pub(super) fn held(
        &self,
        evidence: &EvidenceArchive,
        against: &ArchiveVerifyOptions,
    ) -> CheckResult {
        if against.held.is_empty() {
            let words = "no checkpoint kept elsewhere was given with --checkpoint";
            return not_covered(words);
        }
        for held in &against.held {
            let size = held.size;
            let root = self.roots.as_ref().ok().and_then(|roots| roots.get(&size));
            if held.origin != evidence.manifest.origin || root != Some(&held.root) {
                let origin = &held.origin;
                let words =
                    format!("the checkpoint over {size} frames of {origin} is not of this ledger");
                return Err(ClaimFailure::new(words));
            }
        }
        let held = counted(against.held.len(), "given checkpoint");
        proven(format!("the ledger continues from {held}"))
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
