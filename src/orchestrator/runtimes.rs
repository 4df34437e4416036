//! The runtimes of an engine: which instance each URL has, how many places it offers, and the
//! choice of the one that gets a task.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

/// Number of ticks that an instance, or a task, may be silent.
pub(super) const MAX_SILENT_TICKS: u64 = 15;

/// The places of a runtime that names no number.
const DEFAULT_PLACES: u32 = 1_024;

/// The time for which a runtime counts as full after it answered that it is; doubles up to
/// [`MAX_LOOK`].
const MIN_BUSY: Duration = Duration::from_millis(50);

/// The longest time between two looks for a free place.
const MAX_LOOK: Duration = Duration::from_secs(2);

/// What is known of a runtime when a task looks for one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Candidate {
    standing: Standing,
    free: u32,
    /// The task was offered to it in this round.
    tried: bool,
}

/// How a runtime is regarded, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Standing {
    /// Its instance was heard of lately.
    Alive,
    /// Nothing is known of it.
    Unknown,
    /// It is silent, or its last answer was a failure.
    Failing,
}

/// The runtime for a task.
#[derive(Debug, PartialEq, Eq)]
enum RuntimeChoice {
    /// This one.
    Take(usize),
    /// All that are alive are full: the task waits for a place.
    Full,
    /// All were tried in this round.
    Exhausted,
}

/// The runtime with the most free places among those that are alive, then of those of which
/// nothing is known. The others are the last resort, where none that is alive is full.
fn choose(candidates: &[Candidate]) -> RuntimeChoice {
    let best = |standing: Standing| {
        let open = candidates.iter().enumerate().filter(|(_, one)| {
            let has_place = one.free > 0 || standing == Standing::Failing;
            one.standing == standing && !one.tried && has_place
        });
        open.max_by_key(|(at, one)| (one.free, Reverse(*at)))
            .map(|(at, _)| RuntimeChoice::Take(at))
    };
    let is_full = |one: &Candidate| one.standing == Standing::Alive && one.free == 0;
    best(Standing::Alive)
        .or_else(|| best(Standing::Unknown))
        .or_else(|| {
            candidates
                .iter()
                .any(is_full)
                .then_some(RuntimeChoice::Full)
        })
        .or_else(|| best(Standing::Failing))
        .unwrap_or(RuntimeChoice::Exhausted)
}

/// The instances that were heard of. A task holds the name of its instance, so that the holders of
/// a name are the tasks that the instance works on.
#[derive(Default)]
pub(super) struct Instances(HashMap<String, Instance>);

struct Instance {
    name: Arc<str>,
    heard: u64,
    places: Option<u32>,
}

impl Instances {
    /// An instance was heard of. Gives its name, for a task to hold.
    pub(super) fn heard(&mut self, id: &str, places: Option<u32>, now: u64) -> Arc<str> {
        let known = self.0.entry(id.to_owned()).or_insert_with(|| Instance {
            name: id.into(),
            heard: now,
            places: None,
        });
        known.heard = now;
        known.places = places.or(known.places);
        Arc::clone(&known.name)
    }

    /// Returns `true` if an instance was heard of lately.
    pub(super) fn is_alive(&self, id: &str, now: u64) -> bool {
        self.0.get(id).is_some_and(|known| known.is_alive(now))
    }

    /// Forgets those that are silent and have no tasks. Returns `true` if any is alive.
    pub(super) fn prune(&mut self, now: u64) -> bool {
        self.0
            .retain(|_, known| known.is_alive(now) || known.in_use() > 0);
        self.0.values().any(|known| known.is_alive(now))
    }
}

impl Instance {
    fn is_alive(&self, now: u64) -> bool {
        self.heard + MAX_SILENT_TICKS >= now
    }

    /// Number of tasks that it works on.
    fn in_use(&self) -> u32 {
        let holders = Arc::strong_count(&self.name).saturating_sub(1);
        u32::try_from(holders).unwrap_or(u32::MAX)
    }
}

/// The runtimes, in the order in which they are configured.
#[derive(Default)]
pub(super) struct Fleet(Vec<RuntimeRecord>);

#[derive(Default)]
struct RuntimeRecord {
    /// It is in this process: it takes everything, and ends with it.
    is_local: bool,
    /// The instance that its last answer named.
    instance: Option<String>,
    /// The instances before that one.
    earlier: HashSet<String>,
    /// Held by every dispatch under way to it.
    offers: Arc<()>,
    failing: bool,
    busy: Option<BusyMark>,
    /// Its health was asked for before the first dispatch.
    asked: bool,
}

/// A runtime answered that it is full, although places seemed free.
#[derive(Clone, Copy)]
struct BusyMark {
    until: Instant,
    pause: Duration,
}

/// The place for a task.
pub(super) enum TaskPlacement {
    /// At the runtime of this index. Until it is dropped, the place is taken.
    Offer(usize, Arc<()>),
    /// None is free: look again after this time, or when a task ends.
    Full(Duration),
    /// Every runtime was tried in this round.
    Exhausted,
}

/// The reason why a runtime does not have a task that it was offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unavailability {
    /// It is full.
    Busy,
    /// It does not respond, or fails.
    Failing,
}

impl Fleet {
    /// So many runtimes; in this process or elsewhere.
    pub(super) fn of(local: impl IntoIterator<Item = bool>) -> Self {
        let record = |is_local| RuntimeRecord {
            is_local,
            ..RuntimeRecord::default()
        };
        Self(local.into_iter().map(record).collect())
    }

    /// Returns `true` if there is more than one.
    pub(super) fn is_several(&self) -> bool {
        self.0.len() > 1
    }

    /// A place for a task that was offered to some of them.
    pub(super) fn place(&self, instances: &Instances, tried: &[bool], now: u64) -> TaskPlacement {
        let at = Instant::now();
        let known = self.0.iter().enumerate();
        let candidates: Vec<Candidate> = known
            .map(|(index, record)| Candidate {
                tried: tried.get(index).copied().unwrap_or_default(),
                ..record.candidate(instances, (now, at))
            })
            .collect();
        match choose(&candidates) {
            RuntimeChoice::Exhausted => TaskPlacement::Exhausted,
            RuntimeChoice::Full => TaskPlacement::Full(self.next_look(at)),
            RuntimeChoice::Take(index) => match self.0.get(index) {
                Some(record) => TaskPlacement::Offer(index, Arc::clone(&record.offers)),
                None => TaskPlacement::Exhausted,
            },
        }
    }

    /// The time until the next runtime may have a place that only it knows of.
    fn next_look(&self, at: Instant) -> Duration {
        let marks = self.0.iter().filter_map(|record| record.busy);
        let left = marks.map(|mark| mark.until.saturating_duration_since(at));
        let left = left.filter(|left| !left.is_zero());
        left.min().unwrap_or(MAX_LOOK)
    }

    /// A runtime answered, and named its instance.
    pub(super) fn is_instance(&mut self, index: usize, id: &str) {
        let Some(record) = self.0.get_mut(index) else {
            return;
        };
        record.failing = false;
        if record.instance.as_deref() != Some(id) {
            record.earlier.remove(id);
            let before = record.instance.replace(id.to_owned());
            record.earlier.extend(before);
        }
    }

    /// A runtime took a task.
    pub(super) fn accepted(&mut self, index: usize, instance: Option<&str>) {
        if let Some(record) = self.0.get_mut(index) {
            record.failing = false;
            record.busy = None;
        }
        if let Some(id) = instance {
            self.is_instance(index, id);
        }
    }

    /// A runtime did not take a task.
    pub(super) fn unavailable(&mut self, index: usize, why: Unavailability) {
        let Some(record) = self.0.get_mut(index) else {
            return;
        };
        match why {
            Unavailability::Failing => record.failing = true,
            Unavailability::Busy => {
                let before = record.busy.map(|mark| mark.pause * 2);
                let pause = before.unwrap_or(MIN_BUSY).min(MAX_LOOK);
                let until = Instant::now() + pause;
                record.busy = Some(BusyMark { until, pause });
            }
        }
    }

    /// An instance says that it is alive. Returns `true` if it is known to be the one of a URL.
    pub(super) fn beats(&mut self, id: &str) -> bool {
        let mut known = self.0.is_empty();
        for record in &mut self.0 {
            if record.instance.as_deref() == Some(id) {
                record.failing = false;
                known = true;
            }
        }
        known
    }

    /// The runtimes whose health is to be asked for before a task chooses one; each once.
    pub(super) fn take_unasked(&mut self) -> Vec<usize> {
        if !self.is_several() {
            return Vec::new();
        }
        let mut unknown = Vec::new();
        for (index, record) in self.0.iter_mut().enumerate() {
            if record.instance.is_none() && !record.asked {
                unknown.push(index);
            }
            record.asked = true;
        }
        unknown
    }

    /// Returns `true` if an instance has taken the place of an earlier one: both of the same URL. The
    /// only runtime has taken the place of every other instance.
    pub(super) fn has_replaced(&self, id: &str, earlier: &str) -> bool {
        let of_url = |record: &RuntimeRecord| {
            record.instance.as_deref() == Some(id) && record.earlier.contains(earlier)
        };
        !self.is_several() || self.0.iter().any(of_url)
    }

    /// Returns `true` if both instances are known to be those of two different URLs.
    pub(super) fn are_beside_each_other(&self, id: &str, other: &str) -> bool {
        let index_of = |id: &str| {
            let mut records = self.0.iter();
            records.position(|record| record.instance.as_deref() == Some(id))
        };
        match (index_of(id), index_of(other)) {
            (Some(one), Some(other)) => one != other,
            _ => false,
        }
    }

    /// Forgets earlier instances that have no tasks.
    pub(super) fn prune(&mut self, instances: &Instances) {
        for record in &mut self.0 {
            record.earlier.retain(|id| instances.0.contains_key(id));
        }
    }
}

impl RuntimeRecord {
    fn candidate(&self, instances: &Instances, (now, at): (u64, Instant)) -> Candidate {
        let known = self.instance.as_ref().and_then(|id| instances.0.get(id));
        let is_busy = self.busy.is_some_and(|mark| at < mark.until);
        let standing = match known {
            _ if self.failing => Standing::Failing,
            // Only a runtime that works answers that it is full.
            _ if is_busy => Standing::Alive,
            Some(known) if known.is_alive(now) => Standing::Alive,
            None if self.instance.is_none() => Standing::Unknown,
            Some(_) | None => Standing::Failing,
        };
        let places = known.and_then(|known| known.places);
        let offered = Arc::strong_count(&self.offers).saturating_sub(1);
        let taken = known.map_or(0, Instance::in_use);
        let taken = taken.saturating_add(u32::try_from(offered).unwrap_or(u32::MAX));
        let free = match is_busy {
            true => 0,
            false if self.is_local => u32::MAX,
            false => places.unwrap_or(DEFAULT_PLACES).saturating_sub(taken),
        };
        Candidate {
            standing,
            free,
            tried: false,
        }
    }
}

#[cfg(test)]
mod tests;
