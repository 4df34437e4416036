//! One history for every store, held against a plain model. Shared by the tests of several crates.

#![allow(dead_code, clippy::unwrap_used)]

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use ktsu_ledger::store::{
    AppendRefusal, Cursor, Entry, Filter, IndexRow, Maintenance, MemoryStore, SqliteReader,
    SqliteStore, WalCheckpoint, read_all,
};
use ktsu_ledger::{Backend, Blob, Cause, Epoch, Hash, Reader, Record, Store, StoreError, StreamId};
use proptest::prelude::*;

use crate::support::{caused, completed, ended, entry, payload, row, run, seal};

pub(crate) const STREAMS: [&str; 4] = ["a", "b", "c", "d"];
const WORKFLOWS: [&str; 2] = ["triage", "report"];
const STATUSES: [&str; 3] = ["running", "waiting", "complete"];

/// One thing that happens to a ledger.
#[derive(Debug, Clone)]
pub(crate) enum Deed {
    Append(Vec<Wish>),
    ClearIndex,
    PutRows(Vec<(usize, usize, u64)>),
    Checkpoint(bool),
    Reopen,
}

/// An entry that is to be appended.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    pub(crate) stream: usize,
    frames: usize,
    bytes: usize,
    /// Added to the expected number: 0 is right.
    off: i64,
    wrong_prev: bool,
    cause: Option<(usize, u64)>,
    index: Option<(usize, usize, u64, Option<u8>)>,
}

pub(crate) fn wishes() -> impl Strategy<Value = Wish> {
    let index = (0..2usize, 0..3usize, 0..6u64, proptest::option::of(0..3u8));
    (
        0..STREAMS.len(),
        1..4usize,
        prop_oneof![4 => Just(20usize), 1 => Just(70_000)],
        prop_oneof![6 => Just(0i64), 1 => -2..3i64],
        prop::bool::weighted(0.05),
        proptest::option::weighted(0.3, (0..STREAMS.len(), 0..6u64)),
        proptest::option::weighted(0.5, index),
    )
        .prop_map(
            |(stream, frames, bytes, off, wrong_prev, cause, index)| Wish {
                stream,
                frames,
                bytes,
                off,
                wrong_prev,
                cause,
                index,
            },
        )
}

pub(crate) fn deeds() -> impl Strategy<Value = Deed> {
    prop_oneof![
        8 => prop::collection::vec(wishes(), 1..5).prop_map(Deed::Append),
        1 => Just(Deed::ClearIndex),
        1 => prop::collection::vec((0..4usize, 0..3usize, 0..6u64), 1..4).prop_map(Deed::PutRows),
        1 => any::<bool>().prop_map(Deed::Checkpoint),
        1 => Just(Deed::Reopen),
    ]
}

/// What a ledger is, with nothing clever about it.
#[derive(Default)]
pub(crate) struct Model {
    streams: BTreeMap<StreamId, Vec<Record>>,
    blobs: HashMap<Hash, Blob>,
    rows: BTreeMap<StreamId, IndexRow>,
}

impl Model {
    pub(crate) fn tail(&self, stream: &StreamId) -> Option<(u64, Hash)> {
        let last = self.streams.get(stream)?.last()?;
        Some((last.seq, last.hash))
    }

    /// Makes the entry of a wish, of an appender that believes the ledger ends `off` further.
    pub(crate) fn entry(&self, wish: &Wish, salt: u64, believed: Option<(u64, Hash)>) -> Entry {
        let stream = run(STREAMS[wish.stream]);
        let drafts = (0..wish.frames)
            .map(|place| {
                let draft = match place {
                    0 => completed("a", payload(wish.bytes, salt)),
                    _ => ended(),
                };
                match wish.cause {
                    Some((other, seq)) if place == 0 && other != wish.stream => {
                        caused(draft, vec![Cause::There(run(STREAMS[other]), seq)])
                    }
                    _ => draft,
                }
            })
            .collect();
        let after = match believed {
            None if wish.off > 0 => Some((wish.off as u64, Hash::of(b"nothing"))),
            None => None,
            Some((seq, hash)) => {
                let seq = seq as i64 + wish.off;
                let hash = if wish.wrong_prev {
                    Hash::of(b"x")
                } else {
                    hash
                };
                (seq >= 0).then_some((seq as u64, hash))
            }
        };
        let made = entry(&stream, after, drafts);
        match wish.index {
            Some((workflow, status, created, key)) => {
                let mut row = row(&stream, WORKFLOWS[workflow], STATUSES[status], created);
                row.key = key.map(|key| format!("key-{key}"));
                made.with_index(row).unwrap()
            }
            None => made,
        }
    }

    pub(crate) fn append(&mut self, entries: &[Entry]) -> Vec<Result<u64, AppendRefusal>> {
        let durable: BTreeMap<StreamId, u64> = self
            .streams
            .iter()
            .map(|(name, records)| (name.clone(), records.last().unwrap().seq))
            .collect();
        entries
            .iter()
            .map(|entry| self.append_one(entry, &durable))
            .collect()
    }

    fn append_one(
        &mut self,
        entry: &Entry,
        durable: &BTreeMap<StreamId, u64>,
    ) -> Result<u64, AppendRefusal> {
        let stream = entry.stream().clone();
        let tail = self.tail(&stream);
        let actual = tail.map(|tail| tail.0);
        if actual != entry.expected() {
            let expected = entry.expected();
            return Err(AppendRefusal::Conflict {
                stream,
                expected,
                actual,
            });
        }
        let first = entry.records()[0].decode_bare().unwrap();
        if first.prev != tail.map_or(Hash::ZERO, |tail| tail.1) {
            let seq = first.seq;
            return Err(AppendRefusal::Unchained { stream, seq });
        }
        for cause in &first.cause {
            if let Cause::There(other, seq) = cause
                && durable.get(other).is_none_or(|last| last < seq)
            {
                let cause = cause.clone();
                return Err(AppendRefusal::NoSuchCause { stream, cause });
            }
        }
        if let Some(row) = entry.index() {
            let owner = self.rows.values().find(|other| {
                row.key.is_some() && other.key == row.key && other.stream != row.stream
            });
            if let Some(owner) = owner {
                let owner = owner.stream.clone();
                return Err(AppendRefusal::KeyTaken { owner });
            }
            self.rows.insert(stream.clone(), row.clone());
        }
        for blob in entry.blobs() {
            self.blobs.insert(blob.hash, blob.clone());
        }
        let records = self.streams.entry(stream).or_default();
        records.extend(entry.records().iter().cloned());
        Ok(entry.tail().seq)
    }

    fn list(&self, filter: &Filter) -> Vec<IndexRow> {
        let mut rows: Vec<IndexRow> = self
            .rows
            .values()
            .filter(|row| filter.admits(row))
            .cloned()
            .collect();
        rows.sort_by_key(|row| std::cmp::Reverse(row.cursor()));
        rows
    }

    /// Asks a reader everything there is to ask.
    pub(crate) fn agrees_with(&self, reader: &dyn Reader) {
        for name in STREAMS.map(run) {
            let records = self.streams.get(&name).cloned().unwrap_or_default();
            assert_eq!(read_all(reader, &name, 0).unwrap(), records);
            let from_one: Vec<Record> = records.iter().skip(1).take(2).cloned().collect();
            assert_eq!(reader.read(&name, 1, 2).unwrap(), from_one);
            let tail = reader
                .tail(&name)
                .unwrap()
                .map(|tail| (tail.seq, tail.hash));
            assert_eq!(tail, self.tail(&name));
            assert_eq!(reader.row(&name).unwrap(), self.rows.get(&name).cloned());
        }
        let names: Vec<StreamId> = self.streams.keys().cloned().collect();
        assert_eq!(reader.streams(None, 100).unwrap(), names);
        if let Some(first) = names.first() {
            let rest = reader.streams(Some(first), 1).unwrap();
            assert_eq!(
                rest,
                names.iter().skip(1).take(1).cloned().collect::<Vec<_>>()
            );
        }
        for (hash, blob) in &self.blobs {
            assert_eq!(reader.blob_get(hash).unwrap().as_ref(), Some(&blob.text));
        }
        assert_eq!(reader.blob_get(&Hash::ZERO).unwrap(), None);
        for key in 0..3 {
            let key = format!("key-{key}");
            let wanted = self
                .rows
                .values()
                .find(|row| row.key.as_ref() == Some(&key));
            assert_eq!(reader.by_key(&key).unwrap().as_ref(), wanted);
        }
        for filter in filters() {
            let (mut rows, mut cursor) = (Vec::new(), None::<Cursor>);
            loop {
                let page = reader.list(&filter, cursor.as_ref(), 2).unwrap();
                assert!(page.rows.len() <= 2);
                rows.extend(page.rows);
                cursor = page.next.map(|next| next.to_string().parse().unwrap());
                if cursor.is_none() {
                    break;
                }
            }
            assert_eq!(rows, self.list(&filter), "{filter:?}");
        }
    }
}

fn filters() -> Vec<Filter> {
    let mut filters = Vec::new();
    let kinds = [
        vec![],
        vec!["run".to_owned()],
        vec!["branch".to_owned(), "run".to_owned()],
    ];
    for (kinds, workflow) in kinds
        .iter()
        .flat_map(|kinds| [(kinds, None), (kinds, Some("triage"))])
    {
        for status in [None, Some("waiting")] {
            for open in [None, Some(true), Some(false)] {
                filters.push(Filter {
                    kinds: kinds.clone(),
                    workflow: workflow.map(str::to_owned),
                    status: status.map(str::to_owned),
                    open,
                });
            }
        }
    }
    filters
}

/// A store with what is known of it.
pub(crate) struct Tried {
    store: Box<dyn Store>,
    epoch: Epoch,
    /// Where to open it again; `None` for the one in memory.
    path: Option<std::path::PathBuf>,
    /// The server that keeps it, where one does.
    backend: Option<Arc<dyn Backend>>,
    /// What is stored, for upkeep, where the store has none of its own.
    pub(crate) kept: MemoryStore,
}

impl Tried {
    pub(crate) fn new(mut store: Box<dyn Store>, path: Option<&Path>) -> Self {
        let epoch = store.acquire().unwrap();
        let path = path.map(Path::to_owned);
        let kept = MemoryStore::new();
        Self {
            store,
            epoch,
            path,
            backend: None,
            kept,
        }
    }

    /// One that a backend keeps.
    pub(crate) fn kept_by(backend: Arc<dyn Backend>) -> Self {
        let mut tried = Self::new(backend.store().unwrap(), None);
        tried.backend = Some(backend);
        tried
    }

    fn maintenance(&mut self) -> &mut dyn Maintenance {
        self.store.maintenance().unwrap_or(&mut self.kept)
    }

    fn reopen(&mut self) {
        if let Some(path) = &self.path {
            self.store = Box::new(MemoryStore::new());
            self.store = Box::new(SqliteStore::open(path).unwrap());
        }
        if let Some(backend) = &self.backend {
            self.store = backend.store().unwrap();
        }
        let epoch = self.store.acquire().unwrap();
        assert!(epoch > self.epoch);
        let stale = self.store.append(self.epoch, &[]).unwrap_err();
        assert!(matches!(stale, StoreError::Fenced { .. }), "{stale}");
        self.epoch = epoch;
    }

    fn check(&self, model: &Model) {
        if self.backend.is_none() {
            model.agrees_with(self.store.as_ref());
        }
        model.agrees_with(self.store.reader().unwrap().as_ref());
        if let Some(path) = &self.path {
            model.agrees_with(&SqliteReader::open(path).unwrap());
        }
    }
}

/// Plays a history on stores, and holds each against the model.
pub(crate) fn play(mut stores: Vec<Tried>, history: Vec<Deed>) {
    let mut model = Model::default();
    for (salt, deed) in history.into_iter().enumerate() {
        match deed {
            Deed::Append(wishes) => {
                // Wishes for the same stream follow each other, as one owner's would.
                let mut believed: HashMap<usize, Option<(u64, Hash)>> = HashMap::new();
                let mut entries = Vec::new();
                for wish in &wishes {
                    let name = run(STREAMS[wish.stream]);
                    let tail = believed.entry(wish.stream).or_insert(model.tail(&name));
                    let entry = model.entry(wish, salt as u64, *tail);
                    *tail = Some((entry.tail().seq, entry.tail().hash));
                    entries.push(entry);
                }
                let expected = model.append(&entries);
                for tried in &mut stores {
                    let answered = tried.store.append(tried.epoch, &entries).unwrap();
                    assert_eq!(answered, expected);
                }
            }
            Deed::ClearIndex => {
                model.rows.clear();
                for tried in &mut stores {
                    let epoch = tried.epoch;
                    tried.maintenance().clear_index(epoch).unwrap();
                }
            }
            Deed::PutRows(wanted) => {
                let rows: Vec<IndexRow> = wanted
                    .iter()
                    .map(|(name, status, at)| {
                        row(&run(STREAMS[*name]), "triage", STATUSES[*status], *at)
                    })
                    .collect();
                for row in &rows {
                    model.rows.insert(row.stream.clone(), row.clone());
                }
                for tried in &mut stores {
                    let epoch = tried.epoch;
                    tried.maintenance().put_rows(epoch, &rows).unwrap();
                }
            }
            Deed::Checkpoint(all) => {
                let kind = if all {
                    WalCheckpoint::Full
                } else {
                    WalCheckpoint::Incremental
                };
                for tried in &mut stores {
                    let maintenance = tried.maintenance();
                    maintenance.checkpoint(kind).unwrap();
                    assert_eq!(maintenance.backlog(), 0);
                }
            }
            Deed::Reopen => stores.iter_mut().for_each(Tried::reopen),
        }
    }
    for tried in &stores {
        tried.check(&model);
    }
}

/// A frame whose blob is neither there nor beside it is refused.
pub(crate) fn refuses_a_frame_without_its_blob(stores: impl IntoIterator<Item = Box<dyn Store>>) {
    let stream = run("a");
    let sealed = seal(&stream, None, vec![completed("a", payload(70_000, 1))]);
    let blob = sealed[0].blobs[0].clone();
    let records = vec![sealed[0].record.clone()];
    let bare = Entry::from_records(&stream, records.clone(), Vec::new()).unwrap();
    let whole = Entry::from_records(&stream, records, vec![blob.clone()]).unwrap();
    for mut store in stores {
        let epoch = store.acquire().unwrap();
        let answers = store.append(epoch, &[bare.clone(), whole.clone()]).unwrap();
        let refused = AppendRefusal::NoSuchBlob {
            stream: stream.clone(),
            hash: blob.hash,
        };
        assert_eq!(answers, vec![Err(refused), Ok(0)]);
    }
}

/// A key is of one stream, and may be handed on.
pub(crate) fn keeps_a_key_for_one_stream(stores: impl IntoIterator<Item = Box<dyn Store>>) {
    let keyed = |name: &str, key: Option<&str>| IndexRow {
        key: key.map(str::to_owned),
        ..row(&run(name), "triage", "running", 1)
    };
    for mut store in stores {
        let epoch = store.acquire().unwrap();
        let maintenance = store.maintenance().unwrap();
        let twice = [keyed("a", Some("k")), keyed("b", Some("k"))];
        let refused = maintenance.put_rows(epoch, &twice).unwrap_err();
        assert_eq!(refused, StoreError::KeyTwice(run("b")));
        maintenance.put_rows(epoch, &twice[..1]).unwrap();
        let refused = maintenance.put_rows(epoch, &twice[1..]).unwrap_err();
        assert_eq!(refused, StoreError::KeyTwice(run("b")));
        let moved = [keyed("a", None), keyed("b", Some("k"))];
        maintenance.put_rows(epoch, &moved).unwrap();
        assert_eq!(store.by_key("k").unwrap().unwrap().stream, run("b"));
    }
}
