//! The frames of a run without their contents: enough to choose some of them, and to know what follows from each.

use std::collections::{BTreeSet, HashMap};

use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Cause, Frame, FrameHead, StreamId};
use ktsu_projections::lineage::item_name;

use super::frame_page::is_within;
use super::frames_ahead::each_head;
use super::trace::{FRAME_WORK, FrameSubject, TraceFilter};
use super::work_meter::{TooMuchWork, WorkMeter};
use ktsu_run_index::check_end;

/// What all frames of a run are about, from the first one on.
#[derive(Debug, Default)]
pub(crate) struct FrameIndex {
    frames: Vec<IndexedFrame>,
    effects: Vec<Vec<u64>>,
    kinds: Names,
    scopes: Names,
    actors: Names,
    tasks: Names,
}

/// A frame, by the numbers of its names.
#[derive(Debug)]
struct IndexedFrame {
    kind: usize,
    scope: usize,
    actor: usize,
    task: Option<usize>,
}

/// Each name once.
#[derive(Debug, Default)]
struct Names {
    numbers: HashMap<String, usize>,
    names: Vec<String>,
}

impl Names {
    fn number(&mut self, name: String) -> usize {
        if let Some(known) = self.numbers.get(&name) {
            return *known;
        }
        self.names.push(name.clone());
        *self.numbers.entry(name).or_insert(self.names.len() - 1)
    }

    fn name(&self, number: usize) -> &str {
        self.names.get(number).map_or("", String::as_str)
    }

    /// What is so of each name.
    fn each(&self, is_so: impl Fn(&str) -> bool) -> Vec<bool> {
        self.names.iter().map(|name| is_so(name)).collect()
    }

    /// Those that are chosen, in the order of the alphabet.
    fn those(&self, chosen: &[bool]) -> Vec<String> {
        let names = self.names.iter().zip(chosen);
        let chosen: BTreeSet<&String> = names
            .filter(|(_, chosen)| **chosen)
            .map(|(name, _)| name)
            .collect();
        chosen.into_iter().cloned().collect()
    }
}

/// Some frames of a run.
#[derive(Debug, Default)]
pub(crate) struct IndexSelection {
    /// How many there are to choose from.
    pub(crate) total: u64,
    /// The types of these, in the order of the alphabet.
    pub(crate) kinds: Vec<String>,
    /// Their authors, likewise.
    pub(crate) actors: Vec<String>,
    /// The numbers of those that are chosen, in order.
    pub(crate) numbers: Vec<u64>,
}

/// The reason why there is no window.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameWindowError {
    /// The frames cannot be read.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// There are too many.
    #[error(transparent)]
    TooLarge(#[from] TooMuchWork),
}

impl FrameIndex {
    /// That of the frames of a run, from its first one on.
    ///
    /// # Errors
    /// [`TooMuchWork`].
    pub(crate) fn of(frames: &[Frame], meter: &mut WorkMeter) -> Result<Self, TooMuchWork> {
        let mut index = Self::default();
        for frame in frames {
            meter.spend(FRAME_WORK)?;
            index.push(frame.into());
        }
        Ok(index)
    }

    /// That of a run, up to a frame that cannot be read, and the damage.
    ///
    /// # Errors
    /// [`FrameWindowError`], except for damage.
    pub(crate) fn read(
        reader: &dyn Reader,
        stream: &StreamId,
        meter: &mut WorkMeter,
    ) -> Result<(Self, Option<StoreError>), FrameWindowError> {
        let mut index = Self::default();
        let read = each_head(reader, stream, |head| {
            meter.spend(FRAME_WORK)?;
            index.push(head);
            Ok::<_, FrameWindowError>(())
        });
        match read.and_then(|()| Ok(check_end(reader, stream)?)) {
            Ok(()) => Ok((index, None)),
            Err(FrameWindowError::Store(damage @ StoreError::Damaged(_))) => {
                Ok((index, Some(damage)))
            }
            Err(error) => Err(error),
        }
    }

    /// Takes the next frame.
    fn push(&mut self, head: FrameHead) {
        for cause in head.cause {
            if let Cause::Here(seq) = cause
                && let Some(effects) = at(seq).and_then(|at| self.effects.get_mut(at))
            {
                effects.push(head.seq);
            }
        }
        let task = head.task.map(|(step, item)| item_name(&step, item));
        self.frames.push(IndexedFrame {
            kind: self.kinds.number(head.kind),
            scope: self.scopes.number(head.scope),
            actor: self.actors.number(head.actor.to_string()),
            task: task.map(|task| self.tasks.number(task)),
        });
        self.effects.push(Vec::new());
    }

    /// The frames of the run (`""`) or of an inline child that a filter lets through, of an author if one is given.
    pub(crate) fn select(&self, scope: &str, filter: &TraceFilter, author: &str) -> IndexSelection {
        let is_here: Vec<bool> = self.scopes.each(|one| is_within(one, scope));
        let is_by: Vec<bool> = self.actors.each(|one| author.is_empty() || one == author);
        let mut kinds = vec![false; self.kinds.names.len()];
        let mut actors = vec![false; self.actors.names.len()];
        let mut found = IndexSelection::default();
        for (seq, frame) in (0..).zip(&self.frames) {
            if is_here.get(frame.scope) != Some(&true) {
                continue;
            }
            found.total += 1;
            for (seen, name) in [(&mut kinds, frame.kind), (&mut actors, frame.actor)] {
                if let Some(seen) = seen.get_mut(name) {
                    *seen = true;
                }
            }
            if is_by.get(frame.actor) == Some(&true) && filter.matches(self.subject(seq, frame)) {
                found.numbers.push(seq);
            }
        }
        found.kinds = self.kinds.those(&kinds);
        found.actors = self.actors.those(&actors);
        found
    }

    fn subject(&self, seq: u64, frame: &IndexedFrame) -> FrameSubject<'_> {
        FrameSubject {
            seq,
            kind: self.kinds.name(frame.kind),
            scope: self.scopes.name(frame.scope),
            step: frame.task.map(|task| self.tasks.name(task)),
        }
    }

    /// The inline child that a frame belongs to, if there is such a frame.
    pub(crate) fn scope_of(&self, seq: u64) -> Option<&str> {
        let frame = self.frames.get(at(seq)?)?;
        Some(self.scopes.name(frame.scope))
    }

    /// The frames that follow directly from a frame.
    pub(crate) fn effects(&self, seq: u64) -> &[u64] {
        let effects = at(seq).and_then(|at| self.effects.get(at));
        effects.map_or(&[], Vec::as_slice)
    }
}

fn at(seq: u64) -> Option<usize> {
    usize::try_from(seq).ok()
}
