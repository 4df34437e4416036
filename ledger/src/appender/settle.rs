//! After an append whose outcome is not known: what is stored is found out, what is not is appended
//! again.
//!
//! ```text
//! append ──Unknown──▶ read back, compare hashes ──all there──▶ durable
//!            ▲               │ some are absent
//!            └─── Unknown ── append those again ──refused──▶ read back once more ──▶ refused
//! ```
//!
//! An append may be repeated, since an entry names the frame it follows: the store takes it once,
//! however often it is sent. An error in between is final, as it is everywhere else.

use std::time::{Duration, Instant};

use crate::store::{Entry, Epoch, Refused, Store, StoreError};

/// The first pause between two attempts.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
/// The longest one.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// What is to be settled.
pub(super) struct Unsettled<'a> {
    pub(super) epoch: Epoch,
    pub(super) entries: &'a [Entry],
    /// After this time an outcome that is still not known is an error.
    pub(super) timeout: Duration,
    /// Whether nothing more may be written.
    pub(super) is_stopped: &'a dyn Fn() -> bool,
}

type Outcome = Result<u64, Refused>;

impl Unsettled<'_> {
    /// Finds out what became of every entry.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] if that cannot be found out in time; any other error of the store at
    /// once.
    pub(super) fn settle(&self, store: &mut dyn Store) -> Result<Vec<Outcome>, StoreError> {
        let (started, mut pause) = (Instant::now(), FIRST_PAUSE);
        let mut outcomes: Vec<Option<Outcome>> = vec![None; self.entries.len()];
        loop {
            match self.attempt(store, &mut outcomes) {
                Ok(()) => return Ok(outcomes.into_iter().flatten().collect()),
                Err(StoreError::Unknown(_))
                    if started.elapsed() < self.timeout && !(self.is_stopped)() =>
                {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(MAX_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads back what is pending and appends what is absent; fills in what becomes known.
    fn attempt(
        &self,
        store: &mut dyn Store,
        outcomes: &mut [Option<Outcome>],
    ) -> Result<(), StoreError> {
        let mut absent = Vec::new();
        for (at, entry) in self.entries.iter().enumerate() {
            let Some(None) = outcomes.get(at) else {
                continue;
            };
            if self.is_stored(store, at, outcomes)? {
                fill(outcomes, at, Ok(entry.tail().seq));
            } else {
                absent.push(at);
            }
        }
        if absent.is_empty() {
            return Ok(());
        }
        if (self.is_stopped)() {
            return Err(StoreError::Unknown("the appender was stopped".to_owned()));
        }
        let entries = absent.iter().filter_map(|at| self.entries.get(*at));
        let again: Vec<Entry> = entries.cloned().collect();
        let answers = answer_each(&again, store.append(self.epoch, &again))?;
        for ((at, entry), answer) in absent.into_iter().zip(&again).zip(answers) {
            // What was sent before may have arrived in the meantime.
            let answer = match answer {
                Err(_) if self.is_stored(store, at, outcomes)? => Ok(entry.tail().seq),
                answer => answer,
            };
            fill(outcomes, at, answer);
        }
        Ok(())
    }

    /// Whether the store has the frames of an entry: the hash of the last one stands for all before
    /// it. Where the same frames were given twice, they are those of the first, unless it was refused.
    fn is_stored(
        &self,
        store: &dyn Store,
        at: usize,
        outcomes: &[Option<Outcome>],
    ) -> Result<bool, StoreError> {
        let Some(entry) = self.entries.get(at) else {
            return Ok(false);
        };
        let tail = entry.tail();
        let mut earlier = self.entries.iter().zip(outcomes).take(at);
        let is_same = |other: &Entry| other.stream() == entry.stream() && other.tail() == tail;
        if earlier.any(|(other, outcome)| is_same(other) && !matches!(outcome, Some(Err(_)))) {
            return Ok(false);
        }
        let found = store.read(entry.stream(), tail.seq, 1)?;
        let mut found = found.iter();
        Ok(found.any(|record| record.seq == tail.seq && record.hash == tail.hash))
    }
}

fn fill(outcomes: &mut [Option<Outcome>], at: usize, outcome: Outcome) {
    if let Some(place) = outcomes.get_mut(at) {
        *place = Some(outcome);
    }
}

/// Refuses an answer that does not answer for every entry.
pub(super) fn answer_each(
    entries: &[Entry],
    answers: Result<Vec<Outcome>, StoreError>,
) -> Result<Vec<Outcome>, StoreError> {
    let answers = answers?;
    if answers.len() == entries.len() {
        return Ok(answers);
    }
    let broken = "it did not answer for every entry";
    Err(StoreError::failed("use the store", broken))
}
