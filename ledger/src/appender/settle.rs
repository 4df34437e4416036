//! Settles an append of unknown outcome: reads back what is stored and appends the rest again.
//!
//! ```text
//! append ──Unknown──▶ read back, compare hashes ──all there──▶ durable
//!            ▲               │ some are absent
//!            └─── Unknown ── append those again ──refused──▶ read back once more ──▶ refused
//! ```
//!
//! Appending again is safe, because an entry names the frame it follows, so the store accepts it
//! only once. An error in between is final, as always.

use std::time::{Duration, Instant};

use crate::store::{AppendRefusal, Entry, Epoch, Store, StoreError};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest one.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// The entries to settle.
pub(super) struct Unsettled<'a> {
    pub(super) epoch: Epoch,
    pub(super) entries: &'a [Entry],
    /// After this time an outcome that is still not known is an error.
    pub(super) timeout: Duration,
    /// A function that returns `true` once nothing more may be written.
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

type AppendResult = Result<u64, AppendRefusal>;

/// The known status of an entry.
#[derive(Clone)]
enum AppendStatus {
    /// Nothing.
    Open,
    /// It was not there when the store was read, and was not sent again since.
    Absent,
    /// Its outcome.
    Settled(AppendResult),
}

impl Unsettled<'_> {
    /// Finds out what became of every entry.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if that cannot be found out in time; any other error of the store at
    /// once.
    pub(super) fn settle(&self, store: &mut dyn Store) -> Result<Vec<AppendResult>, StoreError> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut known = vec![AppendStatus::Open; self.entries.len()];
        let mut open = self.entries.len();
        loop {
            match self.attempt(store, &mut known) {
                Ok(()) => {
                    return Ok(known
                        .into_iter()
                        .filter_map(AppendStatus::outcome)
                        .collect());
                }
                Err(StoreError::Unknown(_))
                    if started.elapsed() < self.timeout && !(self.is_stopped)() =>
                {
                    let is_open = |known: &&AppendStatus| matches!(known, AppendStatus::Open);
                    let left = known.iter().filter(is_open).count();
                    pause = match left < open {
                        true => FIRST_PAUSE,
                        false => (pause * 2).min(MAX_PAUSE),
                    };
                    open = left;
                    std::thread::sleep(pause);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads back the undecided entries and appends the missing ones. Progress is kept if this
    /// fails halfway.
    fn attempt(&self, store: &mut dyn Store, known: &mut [AppendStatus]) -> Result<(), StoreError> {
        for (at, entry) in self.entries.iter().enumerate() {
            if let Some(AppendStatus::Open) = known.get(at) {
                let found = match self.is_stored(store, at, known)? {
                    true => AppendStatus::Settled(Ok(entry.tail().seq)),
                    false => AppendStatus::Absent,
                };
                fill(known, at, found);
            }
        }
        let absent = known.iter().enumerate();
        let absent = absent.filter(|(_, known)| matches!(known, AppendStatus::Absent));
        let absent: Vec<usize> = absent.map(|(at, _)| at).collect();
        if absent.is_empty() {
            return Ok(());
        }
        if (self.is_stopped)() {
            return Err(StoreError::Unknown("the appender was stopped".to_owned()));
        }
        let entries = absent.iter().filter_map(|at| self.entries.get(*at));
        let again: Vec<Entry> = entries.cloned().collect();
        // From here on they may be there.
        absent
            .iter()
            .for_each(|at| fill(known, *at, AppendStatus::Open));
        let answers = answer_each(&again, store.append(self.epoch, &again))?;
        for ((at, entry), answer) in absent.into_iter().zip(&again).zip(answers) {
            // What was sent before may have arrived meanwhile.
            let answer = match answer {
                Err(_) if self.is_stored(store, at, known)? => Ok(entry.tail().seq),
                answer => answer,
            };
            fill(known, at, AppendStatus::Settled(answer));
        }
        Ok(())
    }

    /// Returns `true` if the store has the frames of an entry; the hash of the last one covers all
    /// before it. If the same frames were submitted twice, they count for the first entry, unless
    /// that was refused.
    fn is_stored(
        &self,
        store: &dyn Store,
        at: usize,
        known: &[AppendStatus],
    ) -> Result<bool, StoreError> {
        let Some(entry) = self.entries.get(at) else {
            return Ok(false);
        };
        let tail = entry.tail();
        let mut earlier = self.entries.iter().zip(known).take(at);
        let is_same = |other: &Entry| other.stream() == entry.stream() && other.tail() == tail;
        let is_refused = |known: &AppendStatus| matches!(known, AppendStatus::Settled(Err(_)));
        if earlier.any(|(other, known)| is_same(other) && !is_refused(known)) {
            return Ok(false);
        }
        let found = store.read(entry.stream(), tail.seq, 1)?;
        let mut found = found.iter();
        Ok(found.any(|record| record.seq == tail.seq && record.hash == tail.hash))
    }
}

impl AppendStatus {
    fn outcome(self) -> Option<AppendResult> {
        match self {
            Self::Settled(outcome) => Some(outcome),
            Self::Open | Self::Absent => None,
        }
    }
}

fn fill(known: &mut [AppendStatus], at: usize, found: AppendStatus) {
    if let Some(place) = known.get_mut(at) {
        *place = found;
    }
}

/// Refuses an answer that does not answer for every entry.
pub(super) fn answer_each(
    entries: &[Entry],
    answers: Result<Vec<AppendResult>, StoreError>,
) -> Result<Vec<AppendResult>, StoreError> {
    let answers = answers?;
    if answers.len() == entries.len() {
        return Ok(answers);
    }
    let broken = "it did not answer for every entry";
    Err(StoreError::failed("use the store", broken))
}
