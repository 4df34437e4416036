//! A world at a frame of its run: what the frame changed, which responders reacted to it, and the frames
//! before and after it that changed the world.

use std::collections::{BTreeMap, BTreeSet};

use ktsu_ledger::branch::Ancestry;
use ktsu_ledger::event::{Candidate, FiringVerdict, TaskKind};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Cause, Frame, StreamId, Timestamp};
use ktsu_projections::run::{FoldError, RunState};
use ktsu_projections::world::object::members;
use ktsu_projections::world::{Responding, World, WorldDiff};
use serde_json::value::RawValue;

use super::world::{WorldPages, WorldReadError};
use super::world_labels::WorldLabels;
use super::world_timeline::{candidates_of, is_load, maker_of};

/// The frames of the beginning of a run among which is the one that loads its worlds.
const FIRST_FRAMES: usize = 8;

/// A world at a frame.
#[derive(Debug, Clone)]
pub struct WorldMoment {
    /// The world after the frame.
    pub pages: WorldPages,
    /// The type of the frame.
    pub kind: String,
    /// Its time.
    pub at: Timestamp,
    /// Its maker: a responder, `goal`, `by NAME`, or the actor of a frame that is not about the world.
    pub maker: String,
    /// The frames of the run that it follows from.
    pub causes: Vec<u64>,
    /// The last frame of the run.
    pub last: u64,
    /// The frames of the run that changed its world, ascending.
    pub changes: Vec<u64>,
    /// What this one changed.
    pub changed: Vec<WorldEdit>,
    /// The responders that were asked about the frame, in the order in which they act.
    pub reactions: Vec<ResponderReaction>,
}

/// A change of an object or a relation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WorldEdit {
    /// What became of it.
    pub kind: WorldEditKind,
    /// Its id.
    pub id: String,
    /// Its type.
    pub type_name: String,
    /// The name of an object.
    pub name: Option<String>,
    /// The ends of a relation; none of an object.
    pub ends: Option<(String, String)>,
    /// The members of the data of an object of before and after that differ, each as JSON.
    pub members: Vec<MemberEdit>,
}

/// What became of an object or a relation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WorldEditKind {
    /// It is new.
    Added,
    /// It was there, and is different.
    Changed,
    /// It is not there any more.
    Removed,
}

/// A member of the data of an object that differs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberEdit {
    /// Its name.
    pub name: String,
    /// Its value before; none if it is new.
    pub before: Option<String>,
    /// Its value after; none if it is gone.
    pub after: Option<String>,
}

/// A responder, and what a frame was to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResponderReaction {
    /// Its name.
    pub responder: String,
    /// The frame that says so.
    pub frame: u64,
    /// True if it reacted.
    pub has_fired: bool,
    /// In words.
    pub words: String,
}

impl WorldMoment {
    /// The world of a run as one of its frames left it; without `at`, as the last one did.
    ///
    /// # Errors
    /// [`WorldReadError`].
    pub fn of(frames: &[Frame], at: Option<u64>) -> Result<Self, WorldReadError> {
        let last = frames.last().ok_or(FoldError::Empty)?.seq;
        let at = at.unwrap_or(last);
        let mut changes = Vec::new();
        let mut found = None;
        let mut state: Option<RunState> = None;
        for frame in frames {
            let before = state.as_ref().and_then(RunState::responding);
            let before = before.map(Responding::head);
            let made_before = before.map_or(0, World::change_count);
            let before = before.filter(|_| frame.seq == at).cloned();
            let after = match state.take() {
                None => RunState::fold([frame])?,
                Some(mut state) => {
                    let refused = |refusal| FoldError::Refused(frame.seq, refusal);
                    state.apply(frame).map_err(refused)?;
                    state
                }
            };
            let made = after.responding().map_or(0, |it| it.head().change_count());
            if made != made_before {
                changes.push(frame.seq);
            }
            if frame.seq == at {
                found = Some((
                    frame,
                    WorldPages::of(&after, None)?,
                    before.unwrap_or_default(),
                ));
            }
            state = Some(after);
        }
        let (frame, pages, before) = found.ok_or(WorldReadError::NoFrame { at, last })?;
        let causes = frame.cause.iter().filter_map(here);
        Ok(Self {
            kind: frame.event.kind().to_owned(),
            at: frame.at,
            maker: maker_of(frame),
            causes: causes.collect(),
            last,
            changes,
            changed: edits(&before, pages.labels()),
            reactions: reactions(frames, at),
            pages,
        })
    }

    /// The last frame before this one that changed the world.
    pub fn earlier(&self) -> Option<u64> {
        let before = self.changes.partition_point(|seq| *seq < self.pages.at());
        self.changes.get(before.checked_sub(1)?).copied()
    }

    /// The first frame after this one that changed the world.
    pub fn later(&self) -> Option<u64> {
        let until = self.changes.partition_point(|seq| *seq <= self.pages.at());
        self.changes.get(until).copied()
    }
}

fn here(cause: &Cause) -> Option<u64> {
    match cause {
        Cause::Here(seq) => Some(*seq),
        Cause::There(..) => None,
    }
}

/// What differs between a world and the one that labels are of.
fn edits(before: &World, labels: &WorldLabels) -> Vec<WorldEdit> {
    let after = labels.world();
    let diff = WorldDiff::between(before, after);
    let mut edits = Vec::new();
    for (kind, ids) in [
        (WorldEditKind::Added, &diff.added_objects),
        (WorldEditKind::Changed, &diff.patched_objects),
        (WorldEditKind::Removed, &diff.removed_objects),
    ] {
        for id in ids {
            let (old, new) = (before.object(id), after.object(id));
            edits.extend(new.or(old).map(|object| WorldEdit {
                kind,
                id: id.clone(),
                type_name: object.kind.to_string(),
                name: labels.of_object(&object.kind, &object.data),
                ends: None,
                members: old.zip(new).map_or_else(Vec::new, |(old, new)| {
                    member_edits(&members(&old.data), &members(&new.data))
                }),
            }));
        }
    }
    for (kind, ids) in [
        (WorldEditKind::Added, &diff.added_relations),
        (WorldEditKind::Changed, &diff.patched_relations),
        (WorldEditKind::Removed, &diff.removed_relations),
    ] {
        for id in ids {
            let relation = after.relation(id).or_else(|| before.relation(id));
            edits.extend(relation.map(|relation| WorldEdit {
                kind,
                id: id.clone(),
                type_name: relation.kind.to_string(),
                name: None,
                ends: Some((
                    relation.source_id.to_string(),
                    relation.target_id.to_string(),
                )),
                members: Vec::new(),
            }));
        }
    }
    edits
}

fn member_edits(
    before: &BTreeMap<String, &RawValue>,
    after: &BTreeMap<String, &RawValue>,
) -> Vec<MemberEdit> {
    let names: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let text = |from: &BTreeMap<String, &RawValue>, name: &str| {
        from.get(name).map(|json| json.get().to_owned())
    };
    let all = names.into_iter().map(|name| MemberEdit {
        name: name.clone(),
        before: text(before, name),
        after: text(after, name),
    });
    all.filter(|edit| edit.before != edit.after).collect()
}

/// The candidates of a frame: those that it names, and those that frames name which follow from it.
fn reactions(frames: &[Frame], at: u64) -> Vec<ResponderReaction> {
    let about = |frame: &&Frame| {
        frame.seq == at || frame.cause.iter().filter_map(here).any(|seq| seq == at)
    };
    let mut all = Vec::new();
    for frame in frames.iter().filter(about) {
        let candidates = candidates_of(frame).iter();
        all.extend(candidates.map(|one| ResponderReaction {
            responder: one.responder.clone(),
            frame: frame.seq,
            has_fired: one.verdict == FiringVerdict::Fired,
            words: in_words(one),
        }));
    }
    all
}

fn in_words(candidate: &Candidate) -> String {
    let reason = candidate.reason.as_deref();
    match candidate.verdict {
        FiringVerdict::Failed => match reason {
            Some(reason) => format!("could not be evaluated: {reason}"),
            None => "could not be evaluated".to_owned(),
        },
        FiringVerdict::False => "did not react: its guard is false".to_owned(),
        FiringVerdict::Postponed => {
            let after = candidate.after_ms.unwrap_or_default();
            format!("waits for {after} ms")
        }
        FiringVerdict::Fired if candidate.fails => match reason {
            Some(reason) => format!("failed: {reason}"),
            None => "failed".to_owned(),
        },
        FiringVerdict::Fired => {
            let does = match candidate.task {
                Some(TaskKind::Ask) => "asks a model",
                Some(TaskKind::Run) => "runs a workflow",
                None => "reacted",
            };
            match candidate.items {
                Some(items) => format!("{does}, items: {items}"),
                None => does.to_owned(),
            }
        }
    }
}

/// Returns `true` if the beginning of a run loads worlds.
///
/// # Errors
/// [`StoreError`].
pub fn loads_worlds(reader: &dyn Reader, stream: &StreamId) -> Result<bool, StoreError> {
    if reader.tail(stream)?.is_none() {
        return Ok(false);
    }
    let first = Ancestry::of(reader, stream)?.read(reader, 0, FIRST_FRAMES)?;
    let mut frames = first.iter().filter_map(|one| one.decode_bare().ok());
    Ok(frames.any(|frame| is_load(&frame)))
}
