//! Runs that were read lately, folded: the next request for one of them reads only the frames that were
//! appended since. Everything here follows from frames and may be thrown away at any moment.
//!
//! ```text
//! find ─▶ the stream's tail: the same ─▶ what is kept
//!                            further  ─▶ the frames since, each of which has to follow ─▶ kept anew
//!                            another  ─▶ nothing: the run is read from its first frame
//! ```

use std::collections::HashMap;
use std::fmt::Write;
use std::sync::{Arc, OnceLock};

use ktsu_ledger::branch::Blobs;
use ktsu_ledger::event::PersonEvent;
use ktsu_ledger::store::{MAX_PAGE, Reader, StoreError, Tail};
use ktsu_ledger::{Event, Frame, StreamId};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::run::RunState;
use ktsu_projections::world::World;
use parking_lot::Mutex;

use ktsu_run_index::ListedRun;
use ktsu_workflow::definition::Definition;

/// Runs with fewer frames are folded as fast as they are looked up.
const MIN_FRAMES: u64 = 1_000;
/// The most bytes of all runs that are kept, as far as they can be estimated.
const MAX_BYTES: usize = 128 * 1024 * 1024;
/// About so many bytes of a state belong to a frame, whatever it says.
const BYTES_A_FRAME: usize = 128;
/// About so many bytes belong to an object or a relation, beside its id and its data.
const BYTES_AN_OBJECT: usize = 600;

/// A run as its last frame left it.
#[derive(Debug, Clone)]
pub struct RecentRun {
    fold: EnvelopeFold,
    world_hash: OnceLock<String>,
    /// The run's definition, once it was needed.
    definition: OnceLock<Arc<Definition>>,
    /// The length of what its frames say, without those of its world: outputs, replies, definitions.
    text: usize,
    /// About how much memory it takes; rather too much than too little.
    bytes: usize,
}

/// Runs that were read lately. A clone is the same set of them.
#[derive(Debug, Clone, Default)]
pub struct RecentRuns(Arc<Mutex<Kept<RecentRun>>>);

/// Values by stream, as many as a number of bytes takes: those that were used last.
#[derive(Debug)]
struct Kept<T> {
    values: HashMap<StreamId, KeptValue<T>>,
    bytes: usize,
    max_bytes: usize,
    /// Number of uses so far.
    uses: u64,
}

#[derive(Debug)]
struct KeptValue<T> {
    value: Arc<T>,
    bytes: usize,
    /// The number of its last use.
    used: u64,
}

impl RecentRun {
    fn new(fold: EnvelopeFold, text: usize) -> Self {
        Self {
            bytes: estimate(fold.state()).saturating_add(text),
            text,
            fold,
            world_hash: OnceLock::new(),
            definition: OnceLock::new(),
        }
    }

    /// Its state, and what its envelopes need.
    pub fn fold(&self) -> &EnvelopeFold {
        &self.fold
    }

    /// The hash of its world, which is computed once; nothing if it loads none.
    pub fn world_hash(&self) -> Option<String> {
        let world = self.fold.state().responding()?.head();
        Some(self.world_hash.get_or_init(|| world.hash()).clone())
    }

    /// The run's definition, if it was needed before.
    pub(super) fn definition(&self) -> Option<&Arc<Definition>> {
        self.definition.get()
    }

    /// Notes what it does.
    pub(super) fn set_definition(&self, definition: Arc<Definition>) {
        let _ = self.definition.set(definition);
    }

    /// With the frames since, if each follows from those before it.
    fn with(&self, frames: &[Frame]) -> Option<Self> {
        let mut fold = self.fold.clone();
        let (mut bytes, mut text) = (self.bytes, self.text);
        for frame in frames {
            // What changes the definition, or an output that is complete, is read from the beginning.
            let replaces = frame.event.definition().is_some()
                || matches!(frame.event, Event::Person(PersonEvent::OverlaySet(_)));
            let link = fold.state().link();
            if replaces || frame.seq != link.seq || frame.prev != link.prev {
                return None;
            }
            fold.apply(frame).ok()?;
            let length = text_length(frame);
            let added = match frame.event {
                Event::World(_) => length.saturating_add(BYTES_AN_OBJECT).saturating_mul(2),
                _ => {
                    text = text.saturating_add(length);
                    length
                }
            };
            bytes = bytes.saturating_add(added).saturating_add(BYTES_A_FRAME);
        }
        // Objects that were replaced were counted for each of their frames.
        if bytes > MAX_BYTES {
            bytes = estimate(fold.state()).saturating_add(text);
        }
        Some(Self {
            fold,
            text,
            bytes,
            world_hash: OnceLock::new(),
            definition: self.definition.clone(),
        })
    }
}

impl RecentRuns {
    /// A run that was read lately, as it is now.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn find(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Result<Option<Arc<RecentRun>>, StoreError> {
        let Some(run) = self.0.lock().get(stream) else {
            return Ok(None);
        };
        let listed = ListedRun::read(reader, stream)?;
        let Some(tail) = reader.tail(stream)? else {
            // It was removed.
            self.0.lock().forget(stream);
            return Ok(None);
        };
        let link = run.fold.state().link();
        // If the list of runs says that there were more frames, all are read to say so.
        let is_now = |run: &RecentRun| {
            let state = run.fold.state();
            let is_cut = |listed: ListedRun| listed.is_cut(reader, state.status().as_str());
            is_tail(&tail, state) && !listed.clone().is_some_and(is_cut)
        };
        if is_now(&run) {
            return Ok(Some(run));
        }
        let since = match tail.seq >= link.seq {
            true => frames_between(reader, stream, link.seq, tail.seq)?,
            false => Vec::new(),
        };
        let caught_up = run.with(&since).filter(|run| is_now(run));
        match caught_up {
            Some(run) => Ok(Some(self.insert(stream, run))),
            None => {
                self.0.lock().forget(stream);
                Ok(None)
            }
        }
    }

    /// Keeps a run that was read from its first frame, if it is long.
    pub fn keep(&self, stream: &StreamId, fold: EnvelopeFold, frames: &[Frame]) -> Arc<RecentRun> {
        let scopes = (0u32..).zip(fold.state().scopes()).map(|(at, _)| at);
        let is_long = fold.state().next_seq() >= MIN_FRAMES;
        // Their outputs are made anew whenever they are shown.
        let changed = || scopes.into_iter().any(|at| fold.has_overlay_after_end(at));
        match is_long && !changed() {
            true => self.insert(stream, RecentRun::new(fold, text_of(frames))),
            false => Arc::new(RecentRun::new(fold, 0)),
        }
    }

    /// Returns `true` if a run of so many frames is kept.
    pub(super) fn is_long(frames: usize) -> bool {
        u64::try_from(frames).is_ok_and(|frames| frames >= MIN_FRAMES)
    }

    /// Number of kept runs.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.lock().values.len()
    }

    /// Returns `true` if none is kept.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn insert(&self, stream: &StreamId, run: RecentRun) -> Arc<RecentRun> {
        let bytes = run.bytes;
        let run = Arc::new(run);
        self.0.lock().insert(stream, Arc::clone(&run), bytes);
        run
    }

    /// A run was removed.
    pub(super) fn forget(&self, stream: &StreamId) {
        self.0.lock().forget(stream);
    }
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self {
            values: HashMap::new(),
            bytes: 0,
            max_bytes: MAX_BYTES,
            uses: 0,
        }
    }
}

impl<T> Kept<T> {
    fn get(&mut self, stream: &StreamId) -> Option<Arc<T>> {
        self.uses += 1;
        let kept = self.values.get_mut(stream)?;
        kept.used = self.uses;
        Some(Arc::clone(&kept.value))
    }

    fn insert(&mut self, stream: &StreamId, value: Arc<T>, bytes: usize) {
        self.forget(stream);
        if bytes > self.max_bytes {
            return;
        }
        self.uses += 1;
        self.bytes += bytes;
        let kept = KeptValue {
            value,
            bytes,
            used: self.uses,
        };
        self.values.insert(stream.clone(), kept);
        while self.bytes > self.max_bytes {
            let oldest = self.values.iter().min_by_key(|(_, kept)| kept.used);
            let Some(oldest) = oldest.map(|(stream, _)| stream.clone()) else {
                return;
            };
            self.forget(&oldest);
        }
    }

    fn forget(&mut self, stream: &StreamId) {
        if let Some(gone) = self.values.remove(stream) {
            self.bytes -= gone.bytes;
        }
    }
}

/// Returns `true` if a state is that of a stream's last frame.
fn is_tail(tail: &Tail, state: &RunState) -> bool {
    let link = state.link();
    tail.seq + 1 == link.seq && tail.hash == link.prev
}

/// The frames from one number to another, both included; a run that is going on has more by now.
fn frames_between(
    reader: &dyn Reader,
    stream: &StreamId,
    mut from: u64,
    last: u64,
) -> Result<Vec<Frame>, StoreError> {
    let mut blobs = Blobs::new(reader);
    let mut frames = Vec::new();
    while from <= last {
        let left = usize::try_from(last - from).map_or(MAX_PAGE, |left| left.saturating_add(1));
        let page = reader.read(stream, from, left.min(MAX_PAGE))?;
        let Some(end) = page.last() else {
            break;
        };
        from = end.seq + 1;
        for record in &page {
            frames.push(blobs.decode(stream, record)?);
        }
    }
    Ok(frames)
}

/// The length of what frames say, without those of a world: objects are counted as they are now.
fn text_of(frames: &[Frame]) -> usize {
    let others = frames
        .iter()
        .filter(|frame| !matches!(frame.event, Event::World(_)));
    others.map(text_length).fold(0, usize::saturating_add)
}

/// Texts are written as they are, with marks around them: rather too long than too short.
fn text_length(frame: &Frame) -> usize {
    let mut length = TextLength(0);
    match write!(length, "{:?}", frame.event) {
        Ok(()) => length.0,
        // It counts as more than may be kept.
        Err(_) => usize::MAX,
    }
}

/// Counts what is written.
struct TextLength(usize);

impl Write for TextLength {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        self.0 = self.0.saturating_add(text.len());
        Ok(())
    }
}

/// About how many bytes a state takes, without its texts.
fn estimate(state: &RunState) -> usize {
    let frames = usize::try_from(state.next_seq()).unwrap_or(usize::MAX);
    let world = state.responding().map_or(0, |responding| {
        size_of_world(responding.head()).saturating_mul(2)
    });
    frames.saturating_mul(BYTES_A_FRAME).saturating_add(world)
}

fn size_of_world(world: &World) -> usize {
    let objects = world.objects().into_iter();
    let objects = objects.map(|one| BYTES_AN_OBJECT + one.id.len() + one.data.as_str().len());
    let relations = world.relations().into_iter();
    let relations = relations.map(|one| BYTES_AN_OBJECT + one.id.len() + one.data.as_str().len());
    objects.chain(relations).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_used_for_the_longest_time_makes_room_within_the_bound() {
        let mut kept = Kept {
            max_bytes: 100,
            ..Kept::default()
        };
        let streams = ["run_a", "run_b", "run_c", "run_d"].map(|run| StreamId::run(run).unwrap());
        let [a, b, c, d] = &streams;
        for stream in [a, b] {
            kept.insert(stream, Arc::new(stream.clone()), 40);
        }
        assert_eq!(kept.get(a).as_deref(), Some(a));
        kept.insert(c, Arc::new(c.clone()), 40);
        assert_eq!(kept.get(b), None);
        assert_eq!(kept.get(a).as_deref(), Some(a));
        // What is larger than the bound is not kept, and makes nothing else go.
        kept.insert(d, Arc::new(d.clone()), 101);
        assert_eq!((kept.get(d), kept.bytes), (None, 80));
        kept.insert(c, Arc::new(c.clone()), 10);
        assert_eq!(kept.bytes, 50);
        kept.forget(a);
        kept.forget(a);
        assert_eq!((kept.bytes, kept.values.len()), (10, 1));
    }

    #[test]
    fn outputs_and_replies_count_with_their_whole_text() {
        let none = "0".repeat(64);
        let output = "x".repeat(100_000);
        let frame = |kind: &str, data: String| {
            let text = format!(
                r#"{{"v":1,"stream":"run:run_r","seq":1,"type":"{kind}","scope":"","actor":"orchestrator","cause":[],"at":"2024-01-01T00:00:00.000000Z","data":{data},"ext":[],"prev":"{none}","hash":"{none}"}}"#
            );
            Frame::from_json(&text).unwrap()
        };
        let done = format!(r#"{{"attempt":1,"output":"{output}","step":"s"}}"#);
        let done = frame("step.completed", done);
        let length = text_of(&[done.clone(), done]);
        assert!((200_000..210_000).contains(&length), "{length}");
        // An object is counted as it is in the world, however many frames are about it.
        let object = format!(r#"{{"data":{{"text":"{output}"}},"id":"o","type":"T"}}"#);
        let object = frame("object.created", object);
        assert_eq!(text_of(std::slice::from_ref(&object)), 0);
        let length = text_length(&object);
        assert!((100_000..105_000).contains(&length), "{length}");
    }
}
