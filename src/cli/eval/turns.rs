//! A queue of results that come in any order, and are taken in the order in which their work began.

use std::collections::BTreeMap;

/// The most that is held until it is its turn.
const MAX_HELD: usize = 100;

/// While more bytes than these are held, nothing begins but what everything else waits for.
const MAX_HELD_BYTES: usize = 32 << 20;

/// The results that came before their turn, by their numbers from 0, each with its bytes.
#[derive(Debug)]
pub(super) struct Turns<T> {
    held: BTreeMap<usize, (T, usize)>,
    bytes: usize,
    next: usize,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            bytes: 0,
            next: 0,
        }
    }

    /// Returns `true` if what has this number may begin. The one whose turn is next always may: all
    /// others wait for it.
    pub(super) fn may_begin(&self, number: usize) -> bool {
        let is_within = number < self.next.saturating_add(MAX_HELD);
        number == self.next || (is_within && self.bytes <= MAX_HELD_BYTES)
    }

    pub(super) fn hold(&mut self, number: usize, ended: T, bytes: usize) {
        self.bytes = self.bytes.saturating_add(bytes);
        self.held.insert(number, (ended, bytes));
    }

    /// The next one, if it has ended.
    pub(super) fn take(&mut self) -> Option<T> {
        let (taken, bytes) = self.held.remove(&self.next)?;
        self.bytes = self.bytes.saturating_sub(bytes);
        self.next += 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HELD, MAX_HELD_BYTES, Turns};

    #[test]
    fn each_is_taken_in_its_turn_and_as_much_begins_as_may_be_held() {
        let mut turns = Turns::new();
        turns.hold(2, "third", 0);
        turns.hold(1, "second", 0);
        assert_eq!(turns.take(), None);
        assert!(turns.may_begin(MAX_HELD - 1) && !turns.may_begin(MAX_HELD));
        turns.hold(0, "first", 0);
        let taken: Vec<&str> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(taken, ["first", "second", "third"]);
        assert!(turns.may_begin(MAX_HELD + 2) && !turns.may_begin(MAX_HELD + 3));
    }

    #[test]
    fn while_too_much_is_held_only_the_one_that_all_wait_for_begins() {
        let mut turns = Turns::new();
        turns.hold(2, "third", MAX_HELD_BYTES);
        assert!(turns.may_begin(3));
        turns.hold(1, "second", 1);
        assert!(turns.may_begin(0) && !turns.may_begin(3));
        turns.hold(0, "first", MAX_HELD_BYTES);
        assert_eq!(turns.take(), Some("first"));
        assert!(!turns.may_begin(3));
        assert_eq!(
            [turns.take(), turns.take()],
            [Some("second"), Some("third")]
        );
        assert!(turns.may_begin(3) && turns.may_begin(4));
    }
}
