//! One proof for many leaves and many earlier roots: the hashes of the omitted parts.
//!
//! The tree is walked from its root, left before right. A part that contains neither a leaf to show
//! nor the end of an earlier tree is one hash of the proof; any other part is divided as in RFC
//! 6962. A verifier with the leaves and the proof computes every root from the same nodes, so
//! matching roots show inclusion and consistency at once.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{Node, split};

/// The reason why hashes do not make a tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum MultiproofError {
    /// There are fewer hashes than the walk needs.
    #[error("the proof is too short")]
    Short,
    /// There are more.
    #[error("the proof is too long")]
    Long,
    /// A leaf or an earlier size lies outside the tree.
    #[error("it is about more than the tree holds")]
    Outside,
}

/// The hashes of the omitted parts, in the order of the walk.
pub fn prove(leaves: &[Node], shown: &BTreeSet<u64>, sizes: &BTreeSet<u64>) -> Vec<Node> {
    let mut hashes = Vec::new();
    if !leaves.is_empty() {
        missing_leaves(leaves, 0, shown, sizes, &mut hashes);
    }
    hashes
}

fn missing_leaves(
    leaves: &[Node],
    from: u64,
    shown: &BTreeSet<u64>,
    sizes: &BTreeSet<u64>,
    hashes: &mut Vec<Node>,
) {
    let to = from + leaves.len() as u64;
    let holds = shown.range(from..to).next().is_some();
    let ends = to - from > 1 && sizes.range(from + 1..to).next().is_some();
    if !holds && !ends {
        hashes.push(super::root(leaves));
    } else if leaves.len() > 1 {
        let at = split(leaves.len() as u64);
        let (left, right) = leaves.split_at(at as usize);
        missing_leaves(left, from, shown, sizes, hashes);
        missing_leaves(right, from + at, shown, sizes, hashes);
    }
}

/// The roots of the tree and of the earlier ones, by their sizes, as leaves and proof give them.
///
/// # Errors
/// [`MultiproofError`].
pub fn roots(
    size: u64,
    shown: &BTreeMap<u64, Node>,
    sizes: &BTreeSet<u64>,
    hashes: &[Node],
) -> Result<BTreeMap<u64, Node>, MultiproofError> {
    let outside = |number: Option<&u64>, limit: u64| number.is_some_and(|last| *last > limit);
    let beyond = shown
        .last_key_value()
        .is_some_and(|(last, _)| *last >= size);
    if size == 0 || beyond || outside(sizes.last(), size) || sizes.contains(&0) {
        return Err(MultiproofError::Outside);
    }
    let mut walk = Walk {
        shown,
        sizes,
        hashes: hashes.iter(),
        known: HashMap::new(),
    };
    let whole = walk.part(0, size)?;
    if walk.hashes.next().is_some() {
        return Err(MultiproofError::Long);
    }
    let mut roots = BTreeMap::from([(size, whole)]);
    for earlier in sizes.iter().filter(|earlier| **earlier < size) {
        roots.insert(*earlier, walk.again(0, *earlier)?);
    }
    Ok(roots)
}

struct Walk<'a> {
    shown: &'a BTreeMap<u64, Node>,
    sizes: &'a BTreeSet<u64>,
    hashes: std::slice::Iter<'a, Node>,
    known: HashMap<(u64, u64), Node>,
}

impl Walk<'_> {
    fn part(&mut self, from: u64, to: u64) -> Result<Node, MultiproofError> {
        let holds = self.shown.range(from..to).next().is_some();
        let ends = to - from > 1 && self.sizes.range(from + 1..to).next().is_some();
        let node = if !holds && !ends {
            *self.hashes.next().ok_or(MultiproofError::Short)?
        } else if to - from == 1 {
            *self.shown.get(&from).ok_or(MultiproofError::Short)?
        } else {
            let at = from + split(to - from);
            let left = self.part(from, at)?;
            Node::above(&left, &self.part(at, to)?)
        };
        self.known.insert((from, to), node);
        Ok(node)
    }

    /// A part of an earlier tree, from nodes met on the walk.
    fn again(&self, from: u64, to: u64) -> Result<Node, MultiproofError> {
        if let Some(node) = self.known.get(&(from, to)) {
            return Ok(*node);
        }
        if to - from < 2 {
            return Err(MultiproofError::Short);
        }
        let at = from + split(to - from);
        Ok(Node::above(&self.again(from, at)?, &self.again(at, to)?))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::merkle::root;

    proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn the_roots_that_leaves_and_proof_give_are_those_of_the_trees(
            size in 1u64..200,
            shown in prop::collection::btree_set(0u64..200, 0..20),
            sizes in prop::collection::btree_set(1u64..200, 0..10),
        ) {
            let leaves: Vec<Node> = (0..size).map(|at| Node::leaf(&at.to_le_bytes())).collect();
            let shown: BTreeSet<u64> = shown.into_iter().filter(|at| *at < size).collect();
            let sizes: BTreeSet<u64> = sizes.into_iter().filter(|at| *at <= size).collect();
            let hashes = prove(&leaves, &shown, &sizes);
            let given: BTreeMap<u64, Node> =
                shown.iter().map(|at| (*at, leaves[*at as usize])).collect();
            let found = roots(size, &given, &sizes, &hashes);
            let mut expected: BTreeMap<u64, Node> = sizes
                .iter()
                .map(|at| (*at, root(&leaves[..*at as usize])))
                .collect();
            expected.insert(size, root(&leaves));
            prop_assert_eq!(found, Ok(expected));
            if let Some((at, _)) = given.first_key_value() {
                let mut forged = given.clone();
                forged.insert(*at, Node::leaf(b"forged"));
                let found = roots(size, &forged, &sizes, &hashes).unwrap_or_default();
                prop_assert_ne!(found.get(&size), Some(&root(&leaves)));
            }
        }
    }

    #[test]
    fn a_proof_of_another_length_or_about_more_is_refused() {
        let leaves: Vec<Node> = (0..7u8).map(|at| Node::leaf(&[at])).collect();
        let shown = BTreeMap::from([(3, leaves[3])]);
        let mut hashes = prove(&leaves, &BTreeSet::from([3]), &BTreeSet::new());
        let none = BTreeSet::new();
        hashes.push(Node::empty());
        assert_eq!(roots(7, &shown, &none, &hashes), Err(MultiproofError::Long));
        assert_eq!(roots(7, &shown, &none, &[]), Err(MultiproofError::Short));
        assert_eq!(
            roots(3, &shown, &none, &hashes),
            Err(MultiproofError::Outside)
        );
        let later = BTreeSet::from([8]);
        assert_eq!(
            roots(7, &shown, &later, &hashes),
            Err(MultiproofError::Outside)
        );
        assert_eq!(
            roots(0, &BTreeMap::new(), &none, &[]),
            Err(MultiproofError::Outside)
        );
    }
}
