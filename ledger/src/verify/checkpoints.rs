//! Verifies the tree over all frames against every signed checkpoint.
//!
//! A checkpoint comes after the frames it covers. The leaves since the last one are therefore kept,
//! 32 bytes each, until the next one says how many of them it covers.

use super::report::ProblemKind;
use super::{Findings, TrustedCheckpoint};
use crate::event::StoreEvent;
use crate::hash::Hash;
use crate::keys::{Keys, origin_of};
use crate::merkle::{Frontier, Node};

/// The most leaves kept for a checkpoint to come: 128 MiB. A ledger is signed every thousand
/// frames, so one that has more since its last checkpoint is older than checkpoints.
const MAX_LEAVES: usize = 4 * 1024 * 1024;

/// The tree as far as it was read.
#[derive(Default)]
pub(super) struct Checkpoints {
    /// Up to the last checkpoint.
    base: Frontier,
    /// The leaves since then.
    leaves: Vec<Node>,
    keys: Option<Keys>,
    /// The keys that no key vouches for, and the positions from which they are in force.
    pub(super) strangers: Vec<(String, u64)>,
    /// The number of checkpoints found good.
    pub(super) signed: u64,
    /// The number of frames that the last good checkpoint is over.
    pub(super) covered: u64,
}

impl Checkpoints {
    /// The number of frames that were read.
    fn size(&self) -> u64 {
        self.base.size() + self.leaves.len() as u64
    }

    /// Adds the bytes of the next frame, whatever they are.
    pub(super) fn add(&mut self, body: &[u8], hash: &[u8], held: &mut [(TrustedCheckpoint, bool)]) {
        if self.keys.is_none() {
            let first = Hash::from_bytes(hash).unwrap_or_default();
            self.keys = Some(Keys::new(&origin_of(&first)));
        }
        self.add_leaf(Node::leaf(body), held);
    }

    /// Adds the leaf of the next frame.
    pub(super) fn add_leaf(&mut self, leaf: Node, held: &mut [(TrustedCheckpoint, bool)]) {
        self.leaves.push(leaf);
        if self.leaves.len() > MAX_LEAVES {
            self.advance(self.size());
        }
        let size = self.size();
        for (held, found) in held.iter_mut().filter(|(held, _)| held.size == size) {
            let mut tree = self.base.clone();
            self.leaves.iter().for_each(|leaf| tree.push(*leaf));
            let origin = self.keys.as_ref().map(Keys::origin);
            *found = tree.root() == held.root && origin == Some(held.origin.as_str());
        }
    }

    /// Holds a fact about keys or checkpoints against the tree.
    pub(super) fn take(&mut self, event: &StoreEvent) -> Result<(), Findings> {
        let wrong = |message: String| (ProblemKind::Checkpoint, message);
        let Some(keys) = &mut self.keys else {
            return Ok(());
        };
        let taken = keys.take(event).map_err(wrong)?;
        if let (StoreEvent::KeyAdded(added), Some(known)) = (event, keys.all().last())
            && !known.vouched
        {
            let position = self.base.size() + self.leaves.len() as u64;
            self.strangers.push((added.id.clone(), position));
        }
        let Some(checkpoint) = taken else {
            return Ok(());
        };
        let size = checkpoint.size;
        if size < self.base.size() || size >= self.size() {
            let message = format!("the checkpoint over {size} frames does not come after them");
            return Err(wrong(message));
        }
        self.advance(size);
        if self.base.root() != checkpoint.root {
            let message = format!("the first {size} frames are not those that were signed");
            return Err(wrong(message));
        }
        self.signed += 1;
        self.covered = size;
        Ok(())
    }

    fn advance(&mut self, size: u64) {
        let more = usize::try_from(size.saturating_sub(self.base.size())).unwrap_or(usize::MAX);
        let more = more.min(self.leaves.len());
        for leaf in self.leaves.drain(..more) {
            self.base.push(leaf);
        }
    }
}
