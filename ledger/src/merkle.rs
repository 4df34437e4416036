//! The tree over all frames of a ledger: RFC 6962, SHA-256 over stored bodies in the order of appending.
//!
//! A leaf is hashed with 0x00 before its bytes, an inner node with 0x01 before its two children, so
//! that neither passes for the other. A [`Frontier`] holds the roots of the complete subtrees, a
//! few hashes, and grows by one leaf at a time; [`multiproof`] proves many leaves and many earlier
//! roots at once. It knows nothing of frames.

pub mod multiproof;

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::hash::{Hash, ParseHashError};

/// A SHA-256 digest in the tree; written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Node([u8; 32]);

impl Node {
    /// A leaf: one frame's stored bytes.
    pub fn leaf(bytes: &[u8]) -> Self {
        let hash = Sha256::new().chain_update([0]).chain_update(bytes);
        Self(hash.finalize().into())
    }

    /// The parent of two nodes.
    pub fn above(left: &Self, right: &Self) -> Self {
        let hash = Sha256::new().chain_update([1]);
        Self(
            hash.chain_update(left.0)
                .chain_update(right.0)
                .finalize()
                .into(),
        )
    }

    /// The root of a tree without leaves.
    pub fn empty() -> Self {
        Self(Sha256::digest([]).into())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Takes 32 bytes; `None` for any other number of them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hash::from_bytes(&self.0).unwrap_or_default().fmt(f)
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Node {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        text.parse::<Hash>().map(|hash| Self(*hash.as_bytes()))
    }
}

impl Serialize for Node {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

/// A tree that only grows, as the roots of its complete subtrees, the largest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Frontier {
    size: u64,
    peaks: Vec<Node>,
}

impl Frontier {
    /// Continues from a frontier; `None` if a tree of that size has a different number of peaks.
    pub fn resume(size: u64, peaks: Vec<Node>) -> Option<Self> {
        (u64::from(size.count_ones()) == peaks.len() as u64).then_some(Self { size, peaks })
    }

    /// Adds a leaf: as many joins as the size ends in ones.
    pub fn push(&mut self, leaf: Node) {
        let mut node = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                node = Node::above(&left, &node);
            }
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The number of leaves.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The roots of the complete subtrees.
    pub fn peaks(&self) -> &[Node] {
        &self.peaks
    }

    /// The root of the whole.
    pub fn root(&self) -> Node {
        let joined = self.peaks.iter().rev().copied();
        let joined = joined.reduce(|right, left| Node::above(&left, &right));
        joined.unwrap_or_else(Node::empty)
    }
}

/// The root over some leaves.
pub fn root(leaves: &[Node]) -> Node {
    match leaves {
        [] => Node::empty(),
        [one] => *one,
        more => {
            let (left, right) = more.split_at(split(more.len() as u64) as usize);
            Node::above(&root(left), &root(right))
        }
    }
}

/// The largest power of two below a number of at least two: where a tree divides.
pub(crate) fn split(size: u64) -> u64 {
    size.div_ceil(2).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The leaves that implementations of RFC 6962 have in common.
    fn leaves() -> Vec<Node> {
        let inputs: [&[u8]; 8] = [
            &[],
            &[0x00],
            &[0x10],
            &[0x20, 0x21],
            &[0x30, 0x31],
            &[0x40, 0x41, 0x42, 0x43],
            &[0x50, 0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57],
            &[
                0x60, 0x61, 0x62, 0x63, 0x64, 0x65, 0x66, 0x67, 0x68, 0x69, 0x6a, 0x6b, 0x6c, 0x6d,
                0x6e, 0x6f,
            ],
        ];
        inputs.iter().map(|input| Node::leaf(input)).collect()
    }

    #[test]
    fn roots_are_those_of_the_known_vectors() {
        let roots = [
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
            "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
            "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
            "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
            "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
            "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
            "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
        ];
        let leaves = leaves();
        let mut frontier = Frontier::default();
        for (size, expected) in roots.iter().enumerate() {
            assert_eq!(root(&leaves[..size]).to_string(), *expected);
            assert_eq!(frontier.root().to_string(), *expected);
            let again = Frontier::resume(frontier.size(), frontier.peaks().to_vec());
            assert_eq!(again.as_ref(), Some(&frontier));
            if let Some(leaf) = leaves.get(size) {
                frontier.push(*leaf);
            }
        }
        assert_eq!(Frontier::resume(3, leaves), None);
    }
}
