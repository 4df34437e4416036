//! What was made of the large runs that were looked at last, so that their next pages do not begin again.

use std::sync::Arc;

use ktsu_ledger::store::{Reader, StoreError, Tail};
use ktsu_ledger::{Frame, StreamId};
use ktsu_projections::envelope::EnvelopeFold;
use ktsu_projections::index::RunRow;
use parking_lot::Mutex;

use super::frame_index::FrameIndex;
use super::skeleton::{RunSkeleton, skeleton};
use super::{RunReadError, envelope_and_frames};

/// A run with fewer frames is read again for each page.
const MIN_FRAMES: u64 = 5_000;
/// A run with so many frames takes a while to read: the twentieth part of a second and more.
const MANY_FRAMES: u64 = 10_000;
/// A run with more frames is too large to be kept.
const MAX_FRAMES: u64 = 150_000;
/// A run with more bytes in the values that are stored beside its frames is too large, too.
const MAX_BLOB_BYTES: u64 = 128 * 1024 * 1024;

/// A recorded run, folded.
#[derive(Debug)]
pub struct FoldedFrames {
    /// The fold of the frames.
    pub fold: EnvelopeFold,
    /// The frames, blobs put back.
    pub frames: Vec<Frame>,
    /// The skeleton that was made last, with its scope and its number of items.
    skeleton: Mutex<Option<(String, usize, Arc<RunSkeleton>)>>,
}

impl FoldedFrames {
    /// Reads a run; none if there is no such run.
    ///
    /// # Errors
    /// [`RunReadError`].
    fn read(reader: &dyn Reader, stream: &StreamId) -> Result<Option<Self>, RunReadError> {
        let read = envelope_and_frames(reader, stream)?;
        Ok(read.map(|(fold, frames)| Self {
            fold,
            frames,
            skeleton: Mutex::default(),
        }))
    }

    /// The skeleton of the run (`""`) or an inline child, with at most so many items of each step; none if
    /// there is no such child.
    pub fn skeleton(&self, scope: &str, most_items: usize) -> Option<Arc<RunSkeleton>> {
        let mut last = self.skeleton.lock();
        if let Some((of, items, made)) = last.as_ref()
            && (of.as_str(), *items) == (scope, most_items)
        {
            return Some(Arc::clone(made));
        }
        let made = Arc::new(skeleton(&self.fold, &self.frames, scope, most_items)?);
        *last = Some((scope.to_owned(), most_items, Arc::clone(&made)));
        Some(made)
    }
}

/// What was made of one large run each; clones share it. A run that has grown since is read again.
#[derive(Debug, Clone, Default)]
pub struct RunCache(Arc<Mutex<CacheSlots>>);

#[derive(Debug, Default)]
struct CacheSlots {
    folded: Option<CachedRun<FoldedFrames>>,
    index: Option<CachedRun<FrameIndex>>,
    is_watched: bool,
}

/// What was made of a run when it ended with this frame.
#[derive(Debug)]
struct CachedRun<T> {
    stream: StreamId,
    tail: Tail,
    /// True if a page used it since it was last looked whether one did.
    is_used: bool,
    made: Arc<T>,
}

impl RunCache {
    /// A run and its frames, folded; none if there is no such run.
    ///
    /// # Errors
    /// [`RunReadError`].
    pub fn folded(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Result<Option<Arc<FoldedFrames>>, RunReadError> {
        let read = || FoldedFrames::read(reader, stream);
        let fits = |made: &FoldedFrames| blob_bytes(&made.frames) <= MAX_BLOB_BYTES;
        self.made_of(reader, stream, |slots| &mut slots.folded, (read, fits))
    }

    /// A run that was folded for another page, if nothing was appended since.
    ///
    /// # Errors
    /// [`StoreError`].
    pub(crate) fn kept(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Result<Option<Arc<FoldedFrames>>, StoreError> {
        let Some(tail) = reader.tail(stream)? else {
            return Ok(None);
        };
        let slots = self.0.lock();
        let kept = slots.folded.as_ref();
        let kept = kept.filter(|kept| kept.is_of(stream, tail));
        Ok(kept.map(|kept| Arc::clone(&kept.made)))
    }

    /// What is known of a run at once, if it takes long to read it: its row in the list of runs, and the number of its
    /// frames.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn first_look(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Result<Option<(RunRow, u64)>, StoreError> {
        let Some(frames) = self.many_frames(reader, stream, |_, _| false)? else {
            return Ok(None);
        };
        let row = reader.row(stream)?;
        let row = row.and_then(|row| serde_json::from_str(row.row.as_str()).ok());
        Ok(row.map(|row| (row, frames)))
    }

    /// The number of the frames of a run, if it takes long to read what they are about.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn frames_to_index(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
    ) -> Result<Option<u64>, StoreError> {
        self.many_frames(reader, stream, |slots, tail| {
            slots
                .index
                .as_ref()
                .is_some_and(|kept| kept.is_of(stream, tail))
        })
    }

    /// The number of the frames of a run, if there are many, and neither the folded run is kept nor what `is_kept`
    /// looks for.
    fn many_frames(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
        is_kept: impl Fn(&CacheSlots, Tail) -> bool,
    ) -> Result<Option<u64>, StoreError> {
        let Some(tail) = reader.tail(stream)? else {
            return Ok(None);
        };
        let frames = tail.seq.saturating_add(1);
        let slots = self.0.lock();
        let is_folded = |kept: &CachedRun<_>| kept.is_of(stream, tail);
        let is_soon_read = frames < MANY_FRAMES
            || slots.folded.as_ref().is_some_and(is_folded)
            || is_kept(&slots, tail);
        Ok((!is_soon_read).then_some(frames))
    }

    /// What the frames of a run are about, if `read` gives it.
    pub(crate) fn index<E: From<StoreError>>(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
        read: impl FnOnce() -> Result<Option<FrameIndex>, E>,
    ) -> Result<Option<Arc<FrameIndex>>, E> {
        self.made_of(reader, stream, |slots| &mut slots.index, (read, |_| true))
    }

    fn made_of<T, E: From<StoreError>>(
        &self,
        reader: &dyn Reader,
        stream: &StreamId,
        slot: fn(&mut CacheSlots) -> &mut Option<CachedRun<T>>,
        (read, fits): (impl FnOnce() -> Result<Option<T>, E>, fn(&T) -> bool),
    ) -> Result<Option<Arc<T>>, E> {
        // If frames are appended after this, the next page finds another tail.
        let tail = reader.tail(stream)?;
        let tail = tail.filter(|tail| (MIN_FRAMES..MAX_FRAMES).contains(&tail.seq));
        let Some(tail) = tail else {
            return Ok(read()?.map(Arc::new));
        };
        if let Some(kept) = slot(&mut self.0.lock())
            && kept.is_of(stream, tail)
        {
            kept.is_used = true;
            return Ok(Some(Arc::clone(&kept.made)));
        }
        let made = read()?.map(Arc::new);
        if let Some(made) = made.as_ref().filter(|made| fits(made)) {
            *slot(&mut self.0.lock()) = Some(CachedRun {
                stream: stream.clone(),
                tail,
                is_used: true,
                made: Arc::clone(made),
            });
        }
        Ok(made)
    }

    /// Returns `true` if the caller has to call [`RunCache::let_go_unused`] from time to time, until that
    /// finds nothing; `false` if another one does.
    pub fn begin_watch(&self) -> bool {
        let slots = &mut self.0.lock();
        !std::mem::replace(&mut slots.is_watched, true)
    }

    /// Lets go of what no page has used since the last call. Returns `true` if something is still kept.
    pub fn let_go_unused(&self) -> bool {
        let mut slots = self.0.lock();
        if slots.folded.as_mut().is_some_and(|kept| !kept.take_use()) {
            slots.folded = None;
        }
        if slots.index.as_mut().is_some_and(|kept| !kept.take_use()) {
            slots.index = None;
        }
        slots.is_watched = slots.folded.is_some() || slots.index.is_some();
        slots.is_watched
    }
}

/// The bytes of the values that are stored beside frames.
fn blob_bytes(frames: &[Frame]) -> u64 {
    let blobs = frames.iter().flat_map(|frame| &frame.ext);
    blobs.fold(0, |sum, blob| sum.saturating_add(blob.bytes))
}

impl<T> CachedRun<T> {
    /// Returns `true` if it was made of this run, and nothing was appended since.
    fn is_of(&self, stream: &StreamId, tail: Tail) -> bool {
        (&self.stream, self.tail) == (stream, tail)
    }

    fn take_use(&mut self) -> bool {
        std::mem::take(&mut self.is_used)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::cell::Cell;

    use ktsu_ledger::event::{KvDeleted, KvEvent};
    use ktsu_ledger::frame::External;
    use ktsu_ledger::store::{IndexRow, MemoryStore};
    use ktsu_ledger::{
        Actor, CanonicalJson, Draft, Entry, Event, Hash, Link, Store as _, Timestamp,
    };

    use super::*;

    pub(crate) fn stream(name: &str) -> StreamId {
        format!("kv:{name}").parse().unwrap()
    }

    /// A store with a stream of so many frames.
    pub(crate) fn run_of(frames: u64) -> MemoryStore {
        let mut store = MemoryStore::new();
        append(&mut store, &stream("a"), frames);
        store
    }

    fn append(store: &mut MemoryStore, stream: &StreamId, frames: u64) {
        append_with(store, stream, frames, None);
    }

    /// Appends so many frames, and puts a row into the list of runs if one is given.
    fn append_with(store: &mut MemoryStore, stream: &StreamId, frames: u64, row: Option<&str>) {
        let tail = store.tail(stream).unwrap();
        let mut prev = tail.map_or(Hash::ZERO, |tail| tail.hash);
        let first = tail.map_or(0, |tail| tail.seq + 1);
        let sealed = (first..first + frames).map(|seq| {
            let deleted = KvDeleted {
                idempotency_key: seq.to_string(),
                key: "k".to_owned(),
            };
            let draft = Draft {
                scope: String::new(),
                actor: Actor::Orchestrator,
                cause: Vec::new(),
                event: Event::Kv(KvEvent::Deleted(deleted)),
            };
            let link = Link {
                stream: stream.clone(),
                seq,
                prev,
            };
            let one = draft.seal(link, Timestamp::from_micros(1)).unwrap();
            prev = one.record.hash;
            one
        });
        let (mut entry, _) = Entry::from_sealed(sealed.collect()).unwrap();
        if let Some(row) = row {
            let listed = IndexRow {
                stream: stream.clone(),
                workflow: "w".to_owned(),
                status: "running".to_owned(),
                open: true,
                created_us: 1,
                key: None,
                row: CanonicalJson::parse(row.as_bytes()).unwrap(),
            };
            entry = entry.with_index(listed).unwrap();
        }
        let epoch = store.acquire().unwrap();
        assert!(store.append(epoch, &[entry]).unwrap()[0].is_ok());
    }

    /// A page of a stream, which counts how often it is read.
    fn page(cache: &RunCache, store: &MemoryStore, name: &str, reads: &Cell<u32>) {
        let read = cache.index(store, &stream(name), || {
            reads.set(reads.get() + 1);
            let exists = store.tail(&stream(name))?.is_some();
            Ok::<_, StoreError>(exists.then(FrameIndex::default))
        });
        assert_eq!(
            read.unwrap().is_some(),
            store.tail(&stream(name)).unwrap().is_some()
        );
    }

    #[test]
    fn a_large_run_is_read_again_only_once_it_has_grown() {
        let (cache, reads) = (RunCache::default(), Cell::new(0));
        let mut store = run_of(MIN_FRAMES + 1);
        let read_by = |store: &MemoryStore, name: &str| {
            let before = reads.get();
            page(&cache, store, name, &reads);
            reads.get() - before
        };
        assert_eq!(read_by(&store, "a"), 1);
        assert_eq!(read_by(&store, "a"), 0);
        append(&mut store, &stream("a"), 1);
        assert_eq!((read_by(&store, "a"), read_by(&store, "a")), (1, 0));
        // One run is kept: another one takes its place.
        append(&mut store, &stream("b"), MIN_FRAMES + 1);
        assert_eq!((read_by(&store, "b"), read_by(&store, "b")), (1, 0));
        assert_eq!(read_by(&store, "a"), 1);
        // One that is gone, and a small one, are not kept.
        assert_eq!((read_by(&store, "c"), read_by(&store, "c")), (1, 1));
        append(&mut store, &stream("c"), MIN_FRAMES);
        assert_eq!((read_by(&store, "c"), read_by(&store, "c")), (1, 1));
        assert_eq!(read_by(&MemoryStore::new(), "a"), 1);
    }

    #[test]
    fn a_run_whose_values_take_too_much_room_is_not_kept() {
        let (cache, store) = (RunCache::default(), run_of(MIN_FRAMES + 1));
        let reads = Cell::new(0);
        let page = |fits: fn(&FrameIndex) -> bool| {
            let read = || {
                reads.set(reads.get() + 1);
                Ok::<_, StoreError>(Some(FrameIndex::default()))
            };
            let slot: fn(&mut CacheSlots) -> &mut Option<_> = |slots| &mut slots.index;
            cache
                .made_of(&store, &stream("a"), slot, (read, fits))
                .unwrap();
        };
        page(|_| false);
        page(|_| true);
        page(|_| true);
        assert_eq!(reads.get(), 2);
        let mut frames = ktsu_ledger::branch::frames(&store, &stream("a")).unwrap();
        let blob = |bytes| External {
            bytes,
            hash: Hash::ZERO,
            path: "/value".to_owned(),
        };
        assert_eq!(blob_bytes(&frames), 0);
        frames[0].ext = vec![blob(7), blob(u64::MAX)];
        frames[1].ext = vec![blob(1)];
        assert_eq!(blob_bytes(&frames), u64::MAX);
    }

    #[test]
    fn of_a_large_run_that_is_listed_and_not_kept_the_first_look_is_its_row() {
        let cache = RunCache::default();
        let looked = |store: &MemoryStore, name: &str| {
            let seen = cache.first_look(store, &stream(name)).unwrap();
            seen.map(|(row, frames)| (row.run_id, frames))
        };
        assert_eq!(looked(&MemoryStore::new(), "a"), None);
        let row = r#"{"created_at":"2026-11-02T09:14:02.123456Z","run_id":"r","status":"running",
            "version":"1","workflow":"w"}"#;
        let mut store = MemoryStore::new();
        append_with(&mut store, &stream("a"), MANY_FRAMES - 1, Some(row));
        assert_eq!(looked(&store, "a"), None, "it is soon read");
        append(&mut store, &stream("a"), 1);
        assert_eq!(looked(&store, "a"), Some(("r".to_owned(), MANY_FRAMES)));
        append_with(&mut store, &stream("a"), 1, Some("{}"));
        assert_eq!(looked(&store, "a"), None, "its row cannot be read");
        append(&mut store, &stream("b"), MANY_FRAMES);
        assert_eq!(looked(&store, "b"), None, "it is not listed");
    }

    #[test]
    fn the_frames_of_a_large_run_are_counted_until_what_they_are_about_is_kept() {
        let (cache, reads) = (RunCache::default(), Cell::new(0));
        let mut store = run_of(MANY_FRAMES);
        let counted = |store: &MemoryStore| cache.frames_to_index(store, &stream("a")).unwrap();
        assert_eq!(counted(&MemoryStore::new()), None);
        assert_eq!(counted(&store), Some(MANY_FRAMES));
        page(&cache, &store, "a", &reads);
        assert_eq!(counted(&store), None);
        append(&mut store, &stream("a"), 1);
        assert_eq!(counted(&store), Some(MANY_FRAMES + 1), "it has grown");
    }

    #[test]
    fn what_no_page_uses_is_let_go() {
        let (cache, reads) = (RunCache::default(), Cell::new(0));
        let store = run_of(MIN_FRAMES + 1);
        assert!(cache.begin_watch());
        assert!(!cache.begin_watch(), "one watches");
        page(&cache, &store, "a", &reads);
        assert!(cache.let_go_unused());
        page(&cache, &store, "a", &reads);
        assert!(cache.let_go_unused(), "it was used");
        assert!(!cache.let_go_unused(), "it was not");
        page(&cache, &store, "a", &reads);
        assert_eq!(reads.get(), 2);
        assert!(cache.begin_watch(), "the watch had ended");
    }
}
