//! The values that an answer evaluates once and shares with everything that needs them, and how
//! much work it was.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use ktsu_projections::world::{Condition, WorldObject};
use ktsu_workflow::expression::provenance::{FramePointer, Provenance, Tracked, union};

use super::TracedRun;
use super::path::FieldNotFoundError;

/// The reason why a trace has no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TraceError {
    /// A path leads nowhere.
    #[error(transparent)]
    NotFound(#[from] FieldNotFoundError),
    /// It takes more work than the bound allows.
    #[error("the answer takes more work than is allowed here")]
    TooLarge,
}

/// So many names of an index are read in the time of one unit.
const NAMES_A_UNIT: usize = 64;
/// So many bytes of a value are copied in the time of one unit.
const BYTES_A_UNIT: usize = 64;

/// Values that are shared, and a count of the work. A unit is about a microsecond.
#[derive(Default)]
pub(in crate::provenance) struct TraceMemo {
    done: Cell<u64>,
    limit: Option<u64>,
    /// By the frame that holds them.
    params: RefCell<BTreeMap<u64, Tracked>>,
    /// Objects that look-ups found, by id and by the frame that left them so.
    objects: RefCell<HashMap<(Arc<str>, u64), Tracked>>,
    /// The objects that look-ups counted, by type and conditions.
    counted: RefCell<HashMap<CountQuery, Vec<CountedObject>>>,
}

/// A type and conditions.
type CountQuery = (String, Vec<Condition>);

/// An object among those that a look-up counted.
struct CountedObject {
    id: Arc<str>,
    /// The place where it began.
    place: Option<FramePointer>,
    /// The places where it and all before it began.
    all: Provenance,
}

impl TraceMemo {
    pub(in crate::provenance) fn spend(&self, units: usize) {
        let units = u64::try_from(units).unwrap_or(u64::MAX);
        self.done.set(self.done.get().saturating_add(units));
    }

    /// Of copying a value of so many bytes into the answer.
    pub(in crate::provenance) fn spend_value(&self, bytes: usize) {
        self.spend(1 + bytes / BYTES_A_UNIT);
    }

    pub(in crate::provenance) fn is_over(&self) -> bool {
        self.limit.is_some_and(|limit| self.done.get() > limit)
    }

    /// The params that a frame holds.
    pub(in crate::provenance) fn params(
        &self,
        frame: u64,
        read: impl FnOnce() -> Tracked,
    ) -> Tracked {
        let mut known = self.params.borrow_mut();
        known.entry(frame).or_insert_with(read).clone()
    }

    /// An object that a look-up found.
    pub(in crate::provenance) fn object(
        &self,
        object: &WorldObject,
        read: impl FnOnce() -> Tracked,
    ) -> Tracked {
        let key = (Arc::clone(&object.id), object.changed);
        if let Some(known) = self.objects.borrow().get(&key) {
            return known.clone();
        }
        self.spend(1);
        let value = read();
        self.objects.borrow_mut().insert(key, value.clone());
        value
    }

    /// The places where the objects that a look-up counted began, in order. Counts of a growing
    /// world share the places of those that they have in common. `is_fixed` says that an object was
    /// created once.
    pub(in crate::provenance) fn counted<'i>(
        &self,
        query: CountQuery,
        ids: impl Iterator<Item = &'i Arc<str>>,
        is_fixed: impl Fn(&str) -> bool,
        place: impl Fn(&str) -> Option<FramePointer>,
    ) -> Provenance {
        let mut all = self.counted.borrow_mut();
        let known = all.entry(query).or_default();
        let mut count = 0;
        for id in ids {
            count += 1;
            let at = count - 1;
            let same = known.get(at).is_some_and(|one| {
                Arc::ptr_eq(&one.id, id) && (is_fixed(id) || one.place == place(id))
            });
            if same {
                continue;
            }
            self.spend(1);
            known.truncate(at);
            let place = place(id);
            let own = place.clone().map(Provenance::at).unwrap_or_default();
            let before = known.last().map(|one| one.all.clone()).unwrap_or_default();
            known.push(CountedObject {
                id: Arc::clone(id),
                place,
                all: union([&before, &own]),
            });
        }
        self.spend(count / NAMES_A_UNIT);
        let last = count.checked_sub(1).and_then(|at| known.get(at));
        last.map(|one| one.all.clone()).unwrap_or_default()
    }
}

impl TracedRun<'_> {
    /// With a bound on the work of an answer, in units of about a microsecond.
    #[must_use]
    pub fn limited_to(mut self, work: u64) -> Self {
        self.memo.limit = Some(work);
        self
    }

    /// The work that was done for answers, in the same units. It depends on the frames and on what was
    /// asked, and on nothing else.
    pub fn work(&self) -> u64 {
        self.memo.done.get()
    }

    /// The number of values and places that are kept for later questions.
    #[cfg(test)]
    pub(crate) fn kept(&self) -> usize {
        let counted = self.memo.counted.borrow();
        let counted: usize = counted.values().map(Vec::len).sum();
        counted + self.memo.objects.borrow().len() + self.memo.params.borrow().len()
    }

    /// Returns `true` if an answer took more work than the bound allows.
    pub(crate) fn is_over_bound(&self) -> bool {
        self.memo.is_over()
    }

    /// An answer, or the refusal of one that took more work than the bound allows.
    pub(crate) fn within_bound<T>(
        &self,
        answer: Result<T, FieldNotFoundError>,
    ) -> Result<T, TraceError> {
        match self.memo.is_over() {
            true => Err(TraceError::TooLarge),
            false => Ok(answer?),
        }
    }
}
