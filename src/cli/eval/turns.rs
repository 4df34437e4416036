//! What ends in any order, and is taken in the order in which it began.

use std::collections::BTreeMap;

/// The most that is held until it is its turn.
const MAX_HELD: usize = 100;

/// What has ended before its turn, by its number from 0.
#[derive(Debug)]
pub(super) struct Turns<T> {
    held: BTreeMap<usize, T>,
    next: usize,
}

impl<T> Turns<T> {
    pub(super) fn new() -> Self {
        Self {
            held: BTreeMap::new(),
            next: 0,
        }
    }

    /// Whether what has this number may begin: if all before it were held, that would not be too much.
    pub(super) fn may_begin(&self, number: usize) -> bool {
        number < self.next.saturating_add(MAX_HELD)
    }

    pub(super) fn hold(&mut self, number: usize, ended: T) {
        self.held.insert(number, ended);
    }

    /// The next one, if it has ended.
    pub(super) fn take(&mut self) -> Option<T> {
        let taken = self.held.remove(&self.next)?;
        self.next += 1;
        Some(taken)
    }
}

#[cfg(test)]
mod tests {
    use super::{MAX_HELD, Turns};

    #[test]
    fn each_is_taken_in_its_turn_and_as_much_begins_as_may_be_held() {
        let mut turns = Turns::new();
        turns.hold(2, "third");
        turns.hold(1, "second");
        assert_eq!(turns.take(), None);
        assert!(turns.may_begin(MAX_HELD - 1) && !turns.may_begin(MAX_HELD));
        turns.hold(0, "first");
        let taken: Vec<&str> = std::iter::from_fn(|| turns.take()).collect();
        assert_eq!(taken, ["first", "second", "third"]);
        assert!(turns.may_begin(MAX_HELD + 2) && !turns.may_begin(MAX_HELD + 3));
    }
}
