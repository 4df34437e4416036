//! An archive as a ledger that is only read: its frames and blobs are read where they are in the file, so
//! nothing is copied, and nothing is written.
//!
//! What is read was verified before, and is held against its hash again: the file may change meanwhile.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Bound;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use ktsu_ledger::store::{
    Audit, Cursor, Filter, IndexRow, Inspection, MAX_PAGE, MemoryStore, PAGE_BYTES, Page, RawBlob,
    RawFrame, Reader, Store, StoreError, Tail,
};
use ktsu_ledger::{Backend, CanonicalJson, Hash, Record, StreamId};
use ktsu_run_index as rows;

use super::archive::MAX_BLOB_BYTES;
use super::tar::FileSpan;

/// Where a frame is in an archive.
#[derive(Debug, Clone)]
pub struct ArchivedFrame {
    /// Its place in the order of appending.
    pub position: u64,
    /// Its stream.
    pub stream: StreamId,
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
    /// Its bytes.
    pub body: FileSpan,
}

/// Where everything is in an archive that was verified.
#[derive(Debug, Default)]
pub struct ArchiveIndex {
    /// The frames, in the order of appending.
    pub frames: Vec<ArchivedFrame>,
    /// The blobs.
    pub blobs: HashMap<Hash, FileSpan>,
}

/// An archive as a ledger.
#[derive(Debug)]
pub struct ArchiveLedger {
    name: String,
    reader: ArchiveReader,
}

impl ArchiveLedger {
    /// The ledger of an archive; `name` is what it is called in messages.
    ///
    /// # Errors
    /// [`StoreError`], if it cannot be read any more.
    pub fn open(name: &str, file: File, index: ArchiveIndex) -> Result<Self, StoreError> {
        let mut streams: BTreeMap<StreamId, Vec<usize>> = BTreeMap::new();
        for (at, frame) in index.frames.iter().enumerate() {
            streams.entry(frame.stream.clone()).or_default().push(at);
        }
        let mut reader = ArchiveReader {
            archive: Arc::new(Contents {
                file,
                frames: index.frames,
                streams,
                blobs: index.blobs,
            }),
            rows: MemoryStore::new(),
        };
        reader.rows = reader.index()?;
        Ok(Self {
            name: name.to_owned(),
            reader,
        })
    }
}

impl Backend for ArchiveLedger {
    fn reader(&self) -> Result<Box<dyn Reader>, StoreError> {
        Ok(Box::new(self.reader.clone()))
    }

    fn name(&self) -> String {
        self.name.clone()
    }

    fn store(&self) -> Result<Box<dyn Store>, StoreError> {
        Err(StoreError::failed("append", "an archive is only read"))
    }
}

/// The parts of an archive that all its readers share.
#[derive(Debug)]
struct Contents {
    file: File,
    frames: Vec<ArchivedFrame>,
    /// The frames of each stream, in order, as places in `frames`.
    streams: BTreeMap<StreamId, Vec<usize>>,
    blobs: HashMap<Hash, FileSpan>,
}

impl Contents {
    fn bytes(&self, span: FileSpan) -> Result<Vec<u8>, StoreError> {
        let length = usize::try_from(span.size).ok();
        let length = length.filter(|length| *length <= MAX_BLOB_BYTES);
        let length = length.ok_or_else(|| {
            StoreError::failed("read the archive", "a frame or a blob is too large")
        })?;
        let mut bytes = vec![0; length];
        let read = self.file.read_exact_at(&mut bytes, span.begin);
        read.map_err(|error| StoreError::failed("read the archive", error))?;
        Ok(bytes)
    }

    /// The frames of a stream from a number on.
    fn from(&self, stream: &StreamId, seq: u64) -> impl Iterator<Item = &ArchivedFrame> {
        let places = self.streams.get(stream).map_or(&[][..], Vec::as_slice);
        let is_before = |at: &usize| self.frames.get(*at).is_some_and(|one| one.seq < seq);
        let begin = places.partition_point(is_before);
        let places = places.iter().skip(begin);
        places.filter_map(|at| self.frames.get(*at))
    }

    fn record(&self, frame: &ArchivedFrame) -> Result<Record, StoreError> {
        let bytes = self.bytes(frame.body)?;
        let body = String::from_utf8(bytes).ok();
        let body = body.filter(|body| Hash::of(body.as_bytes()) == frame.hash);
        let changed = || {
            let (stream, seq) = (&frame.stream, frame.seq);
            StoreError::Damaged(format!(
                "{stream}#{seq} is not what it was when it was verified"
            ))
        };
        Ok(Record {
            seq: frame.seq,
            hash: frame.hash,
            body: body.ok_or_else(changed)?,
        })
    }
}

/// A view of an archive, for one thread.
#[derive(Debug, Clone)]
struct ArchiveReader {
    archive: Arc<Contents>,
    /// The rows of its runs, made of their frames.
    rows: MemoryStore,
}

impl ArchiveReader {
    fn index(&self) -> Result<MemoryStore, StoreError> {
        let mut made = MemoryStore::new();
        let epoch = made.acquire()?;
        let mut after = None;
        loop {
            let (runs, last) = rows::runs_after(self, after.as_ref())?;
            for run in &runs {
                rows::put_rows(&mut made, epoch, &[rows::derive_row(self, run)?.row])?;
            }
            if last.is_none() {
                return Ok(made);
            }
            after = last;
        }
    }
}

impl Reader for ArchiveReader {
    fn read(&self, stream: &StreamId, from: u64, limit: usize) -> Result<Vec<Record>, StoreError> {
        let (mut records, mut bytes) = (Vec::new(), 0);
        let frames = self.archive.from(stream, from);
        for frame in frames.take(limit.min(MAX_PAGE)) {
            if bytes >= PAGE_BYTES {
                break;
            }
            let record = self.archive.record(frame)?;
            bytes += record.body.len();
            records.push(record);
        }
        Ok(records)
    }

    fn tail(&self, stream: &StreamId) -> Result<Option<Tail>, StoreError> {
        let last = self.archive.streams.get(stream).and_then(|all| all.last());
        let last = last.and_then(|at| self.archive.frames.get(*at));
        Ok(last.map(|last| Tail {
            seq: last.seq,
            hash: last.hash,
        }))
    }

    fn streams(&self, after: Option<&StreamId>, limit: usize) -> Result<Vec<StreamId>, StoreError> {
        let begin = after.map_or(Bound::Unbounded, Bound::Excluded);
        let names = self.archive.streams.range((begin, Bound::Unbounded));
        let names = names.map(|(name, _)| name.clone());
        Ok(names.take(limit.min(MAX_PAGE)).collect())
    }

    fn blob_get(&self, hash: &Hash) -> Result<Option<CanonicalJson>, StoreError> {
        let Some(span) = self.archive.blobs.get(hash) else {
            return Ok(None);
        };
        let bytes = self.archive.bytes(*span)?;
        let text = CanonicalJson::parse(&bytes).ok();
        let text =
            text.filter(|text| text.as_str().as_bytes() == bytes && Hash::of(&bytes) == *hash);
        let changed = || StoreError::Damaged(format!("the blob {hash} is not what its hash says"));
        text.ok_or_else(changed).map(Some)
    }

    fn list(
        &self,
        filter: &Filter,
        cursor: Option<&Cursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.rows.list(filter, cursor, limit)
    }

    fn row(&self, stream: &StreamId) -> Result<Option<IndexRow>, StoreError> {
        self.rows.row(stream)
    }

    fn by_key(&self, key: &str) -> Result<Option<IndexRow>, StoreError> {
        self.rows.by_key(key)
    }

    fn audit(&self) -> Option<&dyn Audit> {
        Some(self)
    }
}

/// Positions are those of the ledger that the archive is of, so there are gaps where frames are not in it.
impl Audit for ArchiveReader {
    fn scan_frames(&self, from: u64, limit: usize) -> Result<Vec<RawFrame>, StoreError> {
        let frames = &self.archive.frames;
        let start = frames.partition_point(|frame| frame.position < from);
        let page = frames.iter().skip(start).take(limit.min(MAX_PAGE));
        let raw = |frame: &ArchivedFrame| {
            Ok(RawFrame {
                position: frame.position,
                misplaced: None,
                stream: Some(frame.stream.to_string()),
                seq: Some(frame.seq),
                hash: frame.hash.as_bytes().to_vec(),
                body: self.archive.bytes(frame.body)?,
                is_found: true,
            })
        };
        page.map(raw).collect()
    }

    fn scan_blobs(&self, _from: u64, _limit: usize) -> Result<Vec<RawBlob>, StoreError> {
        Err(StoreError::failed(
            "scan blobs",
            "an archive has them in no order",
        ))
    }

    fn inspect(&self) -> Inspection {
        Inspection::default()
    }

    fn positions(
        &self,
        stream: &StreamId,
        from: u64,
        limit: usize,
    ) -> Result<Vec<(u64, u64)>, StoreError> {
        let frames = self.archive.from(stream, from);
        let places = frames.map(|frame| (frame.seq, frame.position));
        Ok(places.take(limit.min(MAX_PAGE)).collect())
    }

    fn removals(&self, _from: u64, _limit: usize) -> Result<Vec<Record>, StoreError> {
        Ok(Vec::new())
    }

    fn removal(&self, _stream: &StreamId) -> Result<Option<Record>, StoreError> {
        Ok(None)
    }
}
