//! Deduplication of calls: which calls a namespace has executed, so that a repeated key has no
//! second effect.
//!
//! A call can be repeated until its run knows the result, possibly a week later after an approval,
//! so no time limit applies. The latest calls are remembered; for earlier ones it is known that
//! they were forgotten, and the stream is searched once per run.

use std::collections::{BTreeMap, HashSet, VecDeque};

use ktsu_ledger::{Hash, StreamId};

/// The most calls that are remembered: more than a run makes, in some hundred bytes each.
const MAX_REMEMBERED_CALLS: usize = 4096;
/// The approximate number of bytes that one takes in memory.
const CALL_BYTES: usize = 256;

/// See the module documentation.
#[derive(Debug)]
pub(super) struct RecentCalls {
    /// In the order they were made.
    calls: VecDeque<(StreamId, Hash)>,
    keys: HashSet<Hash>,
    /// The runs of these calls.
    runs: BTreeMap<StreamId, RunCalls>,
    /// True if any call was forgotten.
    is_cut: bool,
    most: usize,
}

#[derive(Debug, Clone, Copy)]
struct RunCalls {
    calls: usize,
    /// True if it may have made others, which are forgotten.
    is_cut: bool,
}

/// The known status of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CallStatus {
    /// It was made.
    Made,
    /// It was not.
    New,
    /// It may have been executed: the stream must be searched.
    Forgotten,
}

impl Default for RecentCalls {
    fn default() -> Self {
        Self::with_capacity(MAX_REMEMBERED_CALLS)
    }
}

/// The hash of an idempotency key, which in imported ledgers may have any length.
pub(super) fn digest(key: &str) -> Hash {
    Hash::of(key.as_bytes())
}

impl RecentCalls {
    pub(super) fn with_capacity(most: usize) -> Self {
        Self {
            calls: VecDeque::new(),
            keys: HashSet::new(),
            runs: BTreeMap::new(),
            is_cut: false,
            most,
        }
    }

    /// The approximate number of bytes that it takes in memory.
    pub(super) fn bytes(&self) -> usize {
        self.calls.len() * CALL_BYTES
    }

    /// The status of a call of a run.
    pub(super) fn status(&self, run: &StreamId, key: &str) -> CallStatus {
        let is_cut = self.runs.get(run).map_or(self.is_cut, |run| run.is_cut);
        match self.keys.contains(&digest(key)) {
            true => CallStatus::Made,
            false if is_cut => CallStatus::Forgotten,
            false => CallStatus::New,
        }
    }

    /// A call was made.
    pub(super) fn put(&mut self, run: &StreamId, key: &str) {
        self.add(run, digest(key));
    }

    /// These are all the calls that a run has made.
    pub(super) fn remember(&mut self, run: &StreamId, keys: Vec<Hash>) {
        let whole = RunCalls {
            calls: 0,
            is_cut: false,
        };
        self.runs.entry(run.clone()).or_insert(whole).is_cut = false;
        for key in keys {
            self.add(run, key);
        }
    }

    fn add(&mut self, run: &StreamId, key: Hash) {
        if !self.keys.insert(key) {
            return;
        }
        let begun = RunCalls {
            calls: 0,
            is_cut: self.is_cut,
        };
        self.runs.entry(run.clone()).or_insert(begun).calls += 1;
        self.calls.push_back((run.clone(), key));
        while self.calls.len() > self.most {
            self.forget();
        }
    }

    fn forget(&mut self) {
        let Some((run, key)) = self.calls.pop_front() else {
            return;
        };
        self.keys.remove(&key);
        self.is_cut = true;
        if let Some(left) = self.runs.get_mut(&run) {
            left.calls -= 1;
            left.is_cut = true;
            if left.calls == 0 {
                self.runs.remove(&run);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(name: &str) -> StreamId {
        format!("run:run_{name}").parse().unwrap()
    }

    #[test]
    fn what_was_forgotten_is_not_taken_for_new() {
        let mut seen = RecentCalls::with_capacity(3);
        assert_eq!(seen.status(&run("a"), "1"), CallStatus::New);
        for (name, key) in [("a", "1"), ("a", "2"), ("b", "3")] {
            seen.put(&run(name), key);
        }
        assert_eq!(seen.status(&run("a"), "1"), CallStatus::Made);
        assert_eq!(
            seen.status(&run("c"), "9"),
            CallStatus::New,
            "nothing is forgotten"
        );
        seen.put(&run("b"), "4");
        assert_eq!(seen.status(&run("a"), "1"), CallStatus::Forgotten);
        assert_eq!(seen.status(&run("a"), "2"), CallStatus::Made);
        assert_eq!(
            seen.status(&run("b"), "9"),
            CallStatus::New,
            "all of b is there"
        );
        assert_eq!(seen.status(&run("c"), "9"), CallStatus::Forgotten);
        seen.remember(&run("c"), Vec::new());
        assert_eq!(seen.status(&run("c"), "9"), CallStatus::New);
        seen.remember(&run("a"), vec![digest("1"), digest("2")]);
        assert_eq!(seen.status(&run("a"), "1"), CallStatus::Made);
        assert_eq!((seen.calls.len(), seen.keys.len()), (3, 3));
        assert_eq!(
            seen.status(&run("b"), "3"),
            CallStatus::Forgotten,
            "b made room"
        );
    }

    proptest::proptest! {
        #![proptest_config(ktsu_campaign::config(256))]

        #[test]
        fn a_call_that_was_made_is_never_new(
            calls in proptest::collection::vec((0..6u8, 0..40u8, proptest::bool::ANY), 1..200),
        ) {
            let mut seen = RecentCalls::with_capacity(7);
            let mut made: Vec<(u8, u8)> = Vec::new();
            for (by, key, asks) in calls {
                let (name, text) = (run(&by.to_string()), format!("{by} {key}"));
                let was = made.contains(&(by, key));
                match seen.status(&name, &text) {
                    CallStatus::Made => proptest::prop_assert!(was),
                    CallStatus::New => proptest::prop_assert!(!was),
                    CallStatus::Forgotten if asks => {
                        let own = made.iter().filter(|(run, _)| *run == by);
                        let own = own.map(|(run, key)| digest(&format!("{run} {key}")));
                        seen.remember(&name, own.collect());
                    }
                    CallStatus::Forgotten => {}
                }
                if !was {
                    made.push((by, key));
                    seen.put(&name, &text);
                }
                proptest::prop_assert!(seen.calls.len() <= 7 && seen.runs.len() <= 14);
                proptest::prop_assert_eq!(seen.calls.len(), seen.keys.len());
            }
        }
    }
}
