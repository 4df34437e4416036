//! Recorded runs, apart from the engine that made them.

use std::path::Path;

use ktsu_history as history;
use ktsu_ledger::store::{Reader, Store, read_all};
use ktsu_ledger::{Blob, CanonicalJson, Entry, Frame, Hash, IndexRow, Record, StreamId};
use ktsu_projections::RunState;
use ktsu_projections::index::RunRow;

/// A run as its ledger has it.
#[derive(Debug, Clone)]
pub(crate) struct Recorded {
    pub(crate) stream: StreamId,
    pub(crate) records: Vec<Record>,
    pub(crate) blobs: Vec<Blob>,
}

impl Recorded {
    /// Reads a run and the blobs it names.
    pub(crate) fn read(reader: &dyn Reader, run: &str) -> Self {
        let stream = StreamId::run(run).unwrap();
        let records = read_all(reader, &stream, 0).unwrap();
        let mut blobs: Vec<Blob> = Vec::new();
        for record in &records {
            for external in record.decode_bare().unwrap().ext {
                if blobs.iter().all(|blob| blob.hash != external.hash) {
                    let text = reader.blob_get(&external.hash).unwrap().unwrap();
                    let hash = external.hash;
                    blobs.push(Blob { hash, text });
                }
            }
        }
        Self {
            stream,
            records,
            blobs,
        }
    }

    /// The frames, blobs put back.
    pub(crate) fn frames(&self) -> Vec<Frame> {
        let decode = |record: &Record| {
            record
                .decode::<ktsu_ledger::FrameError>(&mut |hash| {
                    let found = self.blobs.iter().find(|blob| blob.hash == *hash);
                    Ok(found.map(|blob| blob.text.clone()))
                })
                .unwrap()
        };
        self.records.iter().map(decode).collect()
    }

    /// The first frames only.
    pub(crate) fn cut(&self, frames: usize) -> Self {
        let mut cut = self.clone();
        cut.records.truncate(frames);
        cut
    }

    /// The hash of the last frame.
    pub(crate) fn head(&self) -> Hash {
        self.records.last().unwrap().hash
    }

    /// Writes it to a store, with the index row its frames lead to.
    pub(crate) fn put(&self, store: &mut dyn Store) {
        let entry =
            Entry::from_records(&self.stream, self.records.clone(), self.blobs.clone()).unwrap();
        let state = RunState::fold(&self.frames()).unwrap();
        let entry = entry.with_index(row(&state)).unwrap();
        let epoch = store.acquire().unwrap();
        for outcome in store.append(epoch, &[entry]).unwrap() {
            outcome.unwrap();
        }
    }

    /// As files: the stored bytes of a frame a line, a blob a line.
    pub(crate) fn save(&self, folder: &Path) {
        std::fs::create_dir_all(folder).unwrap();
        let lines = self.records.iter().map(|one| one.to_json() + "\n");
        std::fs::write(folder.join("frames.jsonl"), lines.collect::<String>()).unwrap();
        let lines = self.blobs.iter().map(|one| format!("{}\n", one.text));
        std::fs::write(folder.join("blobs.jsonl"), lines.collect::<String>()).unwrap();
    }

    /// From files. The hash of a frame is the one that is written there, not one made of the bytes.
    pub(crate) fn load(folder: &Path) -> Self {
        let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
        let records: Vec<Record> = read("frames.jsonl").lines().map(record).collect();
        let blob = |line: &str| Blob {
            hash: Hash::of(line.as_bytes()),
            text: CanonicalJson::parse(line.as_bytes()).unwrap(),
        };
        Self {
            stream: records[0].decode_bare().unwrap().stream,
            blobs: read("blobs.jsonl").lines().map(blob).collect(),
            records,
        }
    }
}

/// Takes a line apart into the stored bytes and the hash behind them.
fn record(line: &str) -> Record {
    let (open, hash) = line.rsplit_once(r#","hash":""#).unwrap();
    let hash = hash.strip_suffix("\"}").unwrap();
    let body = format!("{open}}}");
    let seq = serde_json::from_str::<serde_json::Value>(&body).unwrap()["seq"].clone();
    Record {
        seq: seq.as_u64().unwrap(),
        hash: hash.parse().unwrap(),
        body,
    }
}

/// The index row of a run as it stands.
pub(crate) fn row(state: &RunState) -> IndexRow {
    let row = RunRow::from_state(state);
    IndexRow {
        stream: state.stream().clone(),
        workflow: row.workflow.clone(),
        status: row.status.clone(),
        open: !state.is_over(),
        created_us: state.created().at.as_micros(),
        key: RunRow::idempotency_key(state),
        row: row.to_json(),
    }
}

/// The envelope of recorded frames, without what depends on the time and the machine.
pub(crate) fn timeless(mut value: serde_json::Value) -> serde_json::Value {
    fn strip(value: &mut serde_json::Value) {
        match value {
            serde_json::Value::Object(members) => {
                members.retain(|name, _| {
                    !name.ends_with("_at") && name != "duration_ms" && name != "waited_ms"
                });
                members.values_mut().for_each(strip);
            }
            serde_json::Value::Array(items) => items.iter_mut().for_each(strip),
            _ => {}
        }
    }
    strip(&mut value);
    value
}

/// All frames of a run in a ledger somebody else owns.
pub(crate) fn frames(reader: &dyn Reader, run: &str) -> Vec<Frame> {
    history::frames(reader, &StreamId::run(run).unwrap()).unwrap()
}
