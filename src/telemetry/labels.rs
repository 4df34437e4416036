//! Labels, bounded: however many workflows a ledger has, the size of the metrics is limited.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

/// The value in place of every value beyond the bound.
const OTHER: &str = "other";

/// The metrics of each value of a label, made at its first use.
#[derive(Debug)]
pub(super) struct PerLabel<T> {
    most: usize,
    known: Mutex<HashMap<String, Arc<T>>>,
}

impl<T> PerLabel<T> {
    /// At most so many values; all further ones count as `other`.
    pub(super) fn new(most: usize) -> Self {
        Self {
            most,
            known: Mutex::default(),
        }
    }

    /// The metrics of a value.
    pub(super) fn get(&self, value: &str, make: impl FnOnce(&str) -> T) -> Arc<T> {
        // No caller's code runs under the lock but `make`, which only registers counters.
        let mut known = self.known.lock();
        let value = match known.contains_key(value) || known.len() < self.most {
            true => value,
            false => OTHER,
        };
        if let Some(found) = known.get(value) {
            return Arc::clone(found);
        }
        let made = Arc::new(make(value));
        known.insert(value.to_owned(), Arc::clone(&made));
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_bound_are_counted_together() {
        let labels = PerLabel::new(2);
        let names = ["a", "b", "c", "a", "d"].map(|name| labels.get(name, str::to_owned));
        assert_eq!(
            names.map(|name| (*name).clone()),
            ["a", "b", "other", "a", "other"]
        );
        assert_eq!(labels.known.lock().len(), 3);
    }
}
