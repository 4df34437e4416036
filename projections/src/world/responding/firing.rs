//! A trigger under way: which of its outputs is next.

use ktsu_ledger::event::{Candidate, FiringVerdict};

/// The outputs that are left to make of a trigger, in the order of candidates, items and entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Firing {
    candidates: Vec<FiredCandidate>,
    next: Option<OutputPlace>,
}

/// A candidate that may make something.
#[derive(Debug, Clone, PartialEq, Eq)]
struct FiredCandidate {
    /// Position among all candidates of the trigger.
    at: u32,
    responder: String,
    entries: u32,
    items: Option<u32>,
    /// The reason why it fails in place of its only output, if it does.
    failure: Option<String>,
}

/// The place of an output.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct OutputPlace {
    /// Position of the responder among the candidates of the trigger.
    pub candidate: u32,
    /// The item, counted from 0; 0 without `for_each`.
    pub item: u32,
    /// The entry.
    pub entry: u32,
}

impl Firing {
    /// Of what `responder.fired` says.
    pub(super) fn of(candidates: &[Candidate]) -> Self {
        let fired = (0u32..).zip(candidates).filter(|(_, candidate)| {
            let makes = candidate.verdict == FiringVerdict::Fired && candidate.outputs() > 0;
            makes || candidate.fails
        });
        let candidates = fired.map(|(at, candidate)| FiredCandidate {
            at,
            responder: candidate.responder.clone(),
            // What fails has its failure in the place of outputs.
            entries: if candidate.fails {
                1
            } else {
                candidate.entries
            },
            items: candidate.items.filter(|_| !candidate.fails),
            failure: candidate
                .fails
                .then(|| candidate.reason.clone().unwrap_or_default()),
        });
        let mut firing = Self {
            candidates: candidates.collect(),
            next: None,
        };
        firing.next = firing.first_of(0);
        firing
    }

    /// Of a reply: whoever asked reacts to it, until `responder.completed` or `responder.failed`.
    pub(super) fn reply(responder: &str) -> Self {
        let candidates = vec![FiredCandidate {
            at: 0,
            responder: responder.to_owned(),
            entries: u32::MAX,
            items: None,
            failure: None,
        }];
        let mut firing = Self {
            candidates,
            next: None,
        };
        firing.next = firing.first_of(0);
        firing
    }

    /// The next output. Nothing: all are made.
    pub fn next(&self) -> Option<OutputPlace> {
        self.next
    }

    /// Number of outputs that are left, at the most. `of_reply`: how many a reaction to a reply
    /// has, which its responder knows and the fold does not.
    pub fn left(&self, of_reply: u32) -> u64 {
        let Some(next) = self.next else {
            return 0;
        };
        let entries = |one: &FiredCandidate| match one.failure {
            Some(_) => 0,
            None if one.entries == u32::MAX => u64::from(of_reply),
            None => u64::from(one.entries),
        };
        let left = self
            .candidates
            .iter()
            .filter(|one| one.at >= next.candidate);
        let all: u64 = left
            .map(|one| entries(one) * u64::from(one.items.unwrap_or(1)))
            .sum();
        let current = self.candidates.iter().find(|one| one.at == next.candidate);
        let entries = current.map_or(0, entries);
        all.saturating_sub(u64::from(next.item) * entries + u64::from(next.entry))
    }

    /// The reason why the responder at a place fails there and makes nothing. Nothing: it does not.
    pub fn failure(&self, place: OutputPlace) -> Option<&str> {
        let mut candidates = self.candidates.iter();
        let candidate = candidates.find(|one| one.at == place.candidate)?;
        candidate.failure.as_deref()
    }

    /// The output behind another. Nothing: there is none.
    pub fn after(&self, place: OutputPlace) -> Option<OutputPlace> {
        let candidate = self
            .candidates
            .iter()
            .find(|one| one.at == place.candidate)?;
        if place.entry.saturating_add(1) < candidate.entries {
            let entry = place.entry + 1;
            return Some(OutputPlace { entry, ..place });
        }
        if place.item.saturating_add(1) < candidate.items.unwrap_or(1) {
            let item = place.item + 1;
            return Some(OutputPlace {
                item,
                entry: 0,
                ..place
            });
        }
        self.first_of(place.candidate.saturating_add(1))
    }

    /// The first output of a candidate, or of the next one that has any.
    pub fn first_of(&self, candidate: u32) -> Option<OutputPlace> {
        let next = self.candidates.iter().find(|one| one.at >= candidate)?;
        Some(OutputPlace {
            candidate: next.at,
            item: 0,
            entry: 0,
        })
    }

    /// The place of an output that a frame names, if it is one that is left.
    pub(super) fn place(
        &self,
        responder: &str,
        item: Option<u32>,
        entry: u32,
    ) -> Option<OutputPlace> {
        let candidate = self
            .candidates
            .iter()
            .find(|one| one.responder == responder)?;
        let fits = candidate.failure.is_none()
            && entry < candidate.entries
            && item.is_some() == candidate.items.is_some()
            && item.unwrap_or(0) < candidate.items.unwrap_or(1);
        let place = OutputPlace {
            candidate: candidate.at,
            item: item.unwrap_or(0),
            entry,
        };
        (fits && self.next.is_some_and(|next| place >= next)).then_some(place)
    }

    /// Returns `true` if a responder has outputs left, or may have had.
    pub(super) fn is_under_way(&self, responder: &str) -> bool {
        let found = self
            .candidates
            .iter()
            .find(|one| one.responder == responder);
        found.is_some_and(|one| self.next.is_some_and(|next| next.candidate <= one.at))
    }

    /// An output was made; those before it make nothing any more.
    pub(super) fn pass(&mut self, responder: &str, item: Option<u32>, entry: u32) {
        if let Some(place) = self.place(responder, item, entry) {
            self.next = self.after(place);
        }
    }

    /// A responder failed: it makes nothing more. Whether nothing is left then.
    pub(super) fn abandon(&mut self, responder: &str) -> bool {
        if self.is_under_way(responder)
            && let Some(one) = self
                .candidates
                .iter()
                .find(|one| one.responder == responder)
        {
            self.next = self.first_of(one.at.saturating_add(1));
        }
        self.next.is_none()
    }
}
