//! Reads an archive piece by piece: an index is kept in memory, and as many frames as fit into a
//! limit.
//!
//! A pass over all frames reads the others again. So however large the files of an archive are, the
//! memory for verifying it grows with the number of its frames alone.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use ktsu_ledger::frame::{External, MAX_BODY};
use ktsu_ledger::{CanonicalJson, Event, Frame, FrameError, Hash, Record, StreamId, strict};

use super::super::archive::{
    COLUMNS, FORMAT, FRAMES, FileDigester, FileEntry, MANIFEST, MAX_BLOB_BYTES, MAX_JSON, Manifest,
    PLACES, PositionedFrame, TREE, Tree,
};
use super::super::archive_ledger::{ArchiveIndex, ArchivedFrame};
use super::super::tar::{Archive, ArchiveSource, FileSpan};
use super::{ArchiveVerifyOptions, ClaimFailure};

/// The most bytes of frames that are held.
const MAX_CACHED_BYTES: usize = 8 * 1024 * 1024;
/// The largest definition or lock that is read.
const MAX_TEXT: u64 = 8 * 1024 * 1024;
/// The most forks between a branch and its run, as in a ledger.
const MAX_FORKS: usize = 10_000;
/// The approximate number of bytes that a frame takes beside its text.
pub(super) const FRAME_BYTES: u64 = 512;
/// The longest line of the table of places.
const MAX_LINE: usize = 1024;

/// The place of a frame.
#[derive(Debug, Clone, Copy)]
pub(super) struct FrameRow {
    pub(super) position: u64,
    /// Its stream, as [`EvidenceArchive::name`] has it.
    stream: u32,
    pub(super) seq: u64,
    pub(super) hash: Hash,
    begin: u64,
    length: u32,
    /// The bytes of its blobs.
    apart: u64,
}

/// An archive, taken apart.
pub(super) struct EvidenceArchive {
    pub(super) files: Rc<Archive<'static>>,
    pub(super) manifest: Manifest,
    pub(super) tree: Tree,
    rows: Vec<FrameRow>,
    names: Vec<String>,
    streams: HashMap<String, u32>,
    /// The place of a frame among the rows, by stream and number.
    places: HashMap<(u32, u64), u32>,
    /// The fault in the frames themselves, if there is one.
    pub(super) chain: Option<ClaimFailure>,
    held: RefCell<DecodedFrames>,
    /// The way that was asked for last.
    path: RefCell<StreamPath>,
    digests: RefCell<HashMap<String, FileEntry>>,
    /// True if something could not be read a second time.
    changed: Cell<bool>,
}

/// The streams that hold the frames of an effective stream.
#[derive(Default)]
struct StreamPath {
    of: String,
    parts: Vec<(u64, String)>,
}

#[derive(Default)]
struct DecodedFrames {
    frames: HashMap<u32, Rc<PositionedFrame>>,
    bytes: usize,
}

impl EvidenceArchive {
    /// Reads the tables of an archive that has at most so many frames.
    pub(super) fn read(source: impl ArchiveSource + 'static, most: u64) -> Result<Self, String> {
        let files = Archive::open(source).map_err(|error| error.to_string())?;
        let manifest: Manifest = json(&files, MANIFEST)?;
        if manifest.format != FORMAT {
            let format = manifest.format;
            return Err(format!(
                "the archive is in format {format}, which this version does not know"
            ));
        }
        let tree: Tree = json(&files, TREE)?;
        let mut evidence = Self {
            files: Rc::new(files),
            manifest,
            tree,
            rows: Vec::new(),
            names: Vec::new(),
            streams: HashMap::new(),
            places: HashMap::new(),
            chain: None,
            held: RefCell::default(),
            path: RefCell::default(),
            digests: RefCell::default(),
            changed: Cell::new(false),
        };
        let damage = evidence.rows(most)?.map(ClaimFailure::new);
        let chain = evidence.chain.take().or(damage);
        evidence.chain = chain.or_else(|| evidence.follow().err());
        Ok(evidence)
    }

    /// The lines of both tables, side by side, as far as the tables are whole; answers with what is
    /// wrong with them. A damaged table is no reason to check nothing: it is what to report.
    fn rows(&mut self, most: u64) -> Result<Option<String>, String> {
        let files = Rc::clone(&self.files);
        let (Some(bodies), Some(places)) = (files.place(FRAMES), files.place(PLACES)) else {
            return Ok(Some(format!("{FRAMES} or {PLACES} is missing")));
        };
        let (mut bodies, mut places) = (files.lines(bodies), files.lines(places));
        let failed = |error: std::io::Error| format!("the archive cannot be read: {error}");
        let columns = places.next().transpose().map_err(failed)?;
        let columns = columns.and_then(|line| self.line(line));
        if columns.as_deref() != Some(COLUMNS) {
            return Ok(Some(format!("{PLACES} does not begin with {COLUMNS}")));
        }
        for number in 2u64.. {
            let line = places.next().transpose().map_err(failed)?;
            let body = bodies.next().transpose().map_err(failed)?;
            let (line, body) = match (line, body) {
                (None, None) => break,
                (Some(line), Some(body)) => (line, body),
                (Some(_), None) => {
                    return Ok(Some(format!("{FRAMES} has fewer lines than {PLACES}")));
                }
                (None, Some(_)) => {
                    return Ok(Some(format!("{FRAMES} has more lines than {PLACES}")));
                }
            };
            if number - 2 >= most {
                return Err(format!("it has more than {most} frames"));
            }
            let line = self.line(line);
            let Some(cells) = line.as_deref().and_then(Cells::of) else {
                return Ok(Some(format!("{PLACES}: line {number} is damaged")));
            };
            self.take(&cells, body);
        }
        let cut = [(FRAMES, bodies.is_cut()), (PLACES, places.is_cut())];
        let cut = cut.into_iter().find(|(_, cut)| *cut);
        Ok(cut.map(|(name, _)| format!("the last line of {name} is cut")))
    }

    /// A short line.
    fn line(&self, place: FileSpan) -> Option<String> {
        let length = usize::try_from(place.size).ok();
        let length = length.filter(|length| *length <= MAX_LINE)?;
        let bytes = self.files.part(place.begin, length).ok()?;
        String::from_utf8(bytes).ok()
    }

    /// Takes one frame; one that does not read is told once, and left out.
    fn take(&mut self, cells: &Cells<'_>, place: FileSpan) {
        let id = format!("{}#{}", cells.stream, cells.seq);
        let wrong = |reason: &str| ClaimFailure::at(&id, reason);
        let read = self.taken(cells, place).map_err(|reason| wrong(&reason));
        let last = self.rows.last().map_or(0, |last| last.position);
        let read = read.and_then(|frame| match cells.position > last {
            true => Ok(frame),
            false => Err(wrong("its position is not above the one before")),
        });
        match read {
            Ok(frame) => {
                let stream = self.stream(cells.stream);
                let at = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
                if self.places.insert((stream, cells.seq), at).is_some() {
                    self.chain.get_or_insert(wrong("it is there twice"));
                }
                self.rows.push(FrameRow {
                    position: cells.position,
                    stream,
                    seq: cells.seq,
                    hash: cells.hash,
                    begin: place.begin,
                    length: u32::try_from(place.size).unwrap_or(u32::MAX),
                    apart: frame.ext.iter().map(|one| one.bytes).sum(),
                });
                let position = cells.position;
                self.hold(at, place, Rc::new(PositionedFrame { position, frame }));
            }
            Err(wrong) => drop(self.chain.get_or_insert(wrong)),
        }
    }

    fn taken(&self, cells: &Cells<'_>, place: FileSpan) -> Result<Frame, String> {
        let length = usize::try_from(place.size).ok();
        let length = length.filter(|length| *length <= MAX_BODY);
        let length = length.ok_or("it is larger than a frame may be")?;
        let bytes = self.files.part(place.begin, length);
        let bytes = bytes.map_err(|error| error.to_string())?;
        let body = String::from_utf8(bytes).map_err(|_| "its bytes are not UTF-8")?;
        let record = Record {
            seq: cells.seq,
            hash: cells.hash,
            body,
        };
        read_strictly(&record, cells.stream)
    }

    fn stream(&mut self, name: &str) -> u32 {
        if let Some(known) = self.streams.get(name) {
            return *known;
        }
        let at = u32::try_from(self.names.len()).unwrap_or(u32::MAX);
        self.names.push(name.to_owned());
        self.streams.insert(name.to_owned(), at);
        at
    }

    fn hold(&self, at: u32, place: FileSpan, placed: Rc<PositionedFrame>) {
        let size = usize::try_from(place.size).unwrap_or(usize::MAX);
        let mut held = self.held.borrow_mut();
        // The first that fit stay: passes go from the beginning to the end.
        let bytes = held.bytes.saturating_add(size);
        if bytes <= MAX_CACHED_BYTES {
            held.bytes = bytes;
            held.frames.insert(at, placed);
        }
    }

    /// Returns `true` if the archive changed while it was checked.
    pub(super) fn has_changed(&self) -> bool {
        self.changed.get()
    }

    /// The number of frames.
    pub(super) fn count(&self) -> usize {
        self.rows.len()
    }

    /// The places of all frames, in the order of appending.
    pub(super) fn all(&self) -> &[FrameRow] {
        &self.rows
    }

    /// All frames, in the order of appending.
    pub(super) fn each(&self) -> impl Iterator<Item = Rc<PositionedFrame>> + '_ {
        let count = u32::try_from(self.rows.len()).unwrap_or(u32::MAX);
        (0..count).filter_map(|at| self.at(at))
    }

    fn at(&self, at: u32) -> Option<Rc<PositionedFrame>> {
        if let Some(held) = self.held.borrow().frames.get(&at) {
            return Some(Rc::clone(held));
        }
        let row = self.rows.get(at as usize)?;
        let frame = self
            .record(row)
            .and_then(|record| record.decode_bare().ok());
        if frame.is_none() {
            self.changed.set(true);
        }
        let position = row.position;
        frame.map(|frame| Rc::new(PositionedFrame { position, frame }))
    }

    fn record(&self, row: &FrameRow) -> Option<Record> {
        Some(Record {
            seq: row.seq,
            hash: row.hash,
            body: String::from_utf8(self.bytes(row)?).ok()?,
        })
    }

    /// The bytes of a frame.
    pub(super) fn bytes(&self, row: &FrameRow) -> Option<Vec<u8>> {
        let bytes = self.files.part(row.begin, row.length as usize).ok();
        if bytes.is_none() {
            self.changed.set(true);
        }
        bytes
    }

    /// Where its frames and blobs are.
    pub(super) fn index(&self) -> ArchiveIndex {
        let names = self.names.iter();
        let names: Vec<Option<StreamId>> = names.map(|name| name.parse().ok()).collect();
        let frames = self.rows.iter().filter_map(|row| {
            Some(ArchivedFrame {
                position: row.position,
                stream: names.get(row.stream as usize)?.clone()?,
                seq: row.seq,
                hash: row.hash,
                body: FileSpan {
                    begin: row.begin,
                    size: u64::from(row.length),
                },
            })
        });
        let blobs = self.files.names().filter_map(|name| {
            let hash = name.strip_prefix("blobs/")?.strip_suffix(".json")?;
            Some((hash.parse().ok()?, self.files.place(name)?))
        });
        ArchiveIndex {
            frames: frames.collect(),
            blobs: blobs.collect(),
        }
    }

    /// The name of the stream that a frame is of.
    pub(super) fn name(&self, row: &FrameRow) -> &str {
        let name = self.names.get(row.stream as usize);
        name.map_or("", String::as_str)
    }

    fn place(&self, stream: &str, seq: u64) -> Option<u32> {
        let stream = self.streams.get(stream)?;
        self.places.get(&(*stream, seq)).copied()
    }

    /// The place of a frame of a stream.
    pub(super) fn row(&self, stream: &str, seq: u64) -> Option<&FrameRow> {
        self.rows.get(self.place(stream, seq)? as usize)
    }

    /// A frame of a stream, without its blobs.
    pub(super) fn frame(&self, stream: &str, seq: u64) -> Option<Rc<PositionedFrame>> {
        self.at(self.place(stream, seq)?)
    }

    /// The numbers of the first and the last frame of each stream.
    pub(super) fn by_stream(&self) -> BTreeMap<&str, (u64, u64)> {
        let mut streams: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
        for row in &self.rows {
            let range = streams.entry(self.name(row));
            range.or_insert((row.seq, row.seq)).1 = row.seq;
        }
        streams
    }

    /// The parent of a stream, if it is a branch.
    fn fork(&self, stream: &str) -> Option<String> {
        let first = self.manifest.streams.get(stream)?.first;
        let first = self.frame(stream, first)?;
        let parent = first.frame.event.branched()?.parent();
        Some(parent.ok()?.to_string())
    }

    /// The place of a frame of an effective stream, wherever it is kept.
    pub(super) fn shared_row(&self, stream: &str, seq: u64) -> Option<&FrameRow> {
        let mut path = self.path.borrow_mut();
        if path.of != stream {
            *path = StreamPath {
                of: stream.to_owned(),
                parts: self.parts(stream),
            };
        }
        let parts = &path.parts;
        let at = parts.partition_point(|(from, _)| *from > seq);
        let (_, owner) = parts.get(at)?;
        self.row(owner, seq)
    }

    /// The streams that hold the frames of an effective stream, its own first, each with the number
    /// from which on.
    fn parts(&self, stream: &str) -> Vec<(u64, String)> {
        let mut parts = Vec::new();
        let mut next = Some(stream.to_owned());
        let mut until = u64::MAX;
        for _ in 0..=MAX_FORKS {
            let Some(stream) = next else { break };
            let first = self.manifest.streams.get(&stream).map(|range| range.first);
            next = self.fork(&stream);
            // A fork before the fork position of its parent shares nothing of the parent's own.
            if let Some(first) = first.filter(|first| *first < until) {
                until = first;
                parts.push((first, stream));
            }
            if until == 0 {
                break;
            }
        }
        parts
    }

    /// A frame of an effective stream, wherever it is kept.
    pub(super) fn shared(&self, stream: &str, seq: u64) -> Option<Rc<PositionedFrame>> {
        let row = self.shared_row(stream, seq)?;
        self.frame(self.name(row), seq)
    }

    /// The same with its blobs put back.
    pub(super) fn whole(&self, stream: &str, seq: u64) -> Option<Frame> {
        self.with_blobs(stream, seq, &|_| true)
    }

    /// The same with those blobs put back that are wanted.
    pub(super) fn with_blobs(
        &self,
        stream: &str,
        seq: u64,
        is_wanted: &dyn Fn(&External) -> bool,
    ) -> Option<Frame> {
        let record = self.record(self.shared_row(stream, seq)?)?;
        let decoded = record.decode_some::<FrameError>(is_wanted, &mut |hash| {
            let text = self.blob(hash).filter(|text| Hash::of(text) == *hash);
            Ok(text.and_then(|text| CanonicalJson::parse(&text).ok()))
        });
        decoded.ok()
    }

    /// A frame of an effective stream as it is stored.
    pub(super) fn stored(&self, stream: &str, seq: u64) -> Option<Record> {
        self.record(self.shared_row(stream, seq)?)
    }

    /// Returns `true` if the frames of an effective stream, with their blobs put back, take more
    /// memory than a run may. Where one of them is missing, they are not counted.
    pub(super) fn is_too_large(
        &self,
        stream: &str,
        last: u64,
        against: &ArchiveVerifyOptions,
    ) -> bool {
        let mut weight = 0u64;
        for seq in 0..=last {
            let Some(row) = self.shared_row(stream, seq) else {
                return false;
            };
            weight = weight.saturating_add(self.whole_weight_of(row));
        }
        weight > against.run_bytes
    }

    /// The memory that a frame takes with its blobs put back.
    pub(super) fn whole_weight_of(&self, row: &FrameRow) -> u64 {
        self.weight_of(row).saturating_add(row.apart)
    }

    /// The same without its blobs.
    pub(super) fn weight_of(&self, row: &FrameRow) -> u64 {
        u64::from(row.length) + FRAME_BYTES
    }

    /// The name of the file that a blob is.
    pub(super) fn blob_name(hash: &Hash) -> String {
        format!("blobs/{hash}.json")
    }

    /// The bytes of a blob.
    pub(super) fn blob(&self, hash: &Hash) -> Option<Vec<u8>> {
        self.files.whole(&Self::blob_name(hash), MAX_BLOB_BYTES)
    }

    /// Returns `true` if a blob is there, and too large to be read.
    pub(super) fn is_large(&self, hash: &Hash) -> bool {
        let place = self.files.place(&Self::blob_name(hash));
        place.is_some_and(|place| place.size > MAX_TEXT)
    }

    /// The entry that the manifest has to have for a file, if it is there.
    pub(super) fn describe(&self, name: &str) -> Option<FileEntry> {
        if let Some(known) = self.digests.borrow().get(name) {
            return Some(known.clone());
        }
        let mut describing = FileDigester::default();
        let place = self.files.place(name)?;
        let read = self.files.pieces(place, |piece| describing.take(piece));
        if read.is_err() {
            self.changed.set(true);
        }
        let made = describing.finish(name);
        let mut known = self.digests.borrow_mut();
        known.insert(name.to_owned(), made.clone());
        Some(made)
    }
}

/// A line of the table of places.
struct Cells<'l> {
    position: u64,
    stream: &'l str,
    seq: u64,
    hash: Hash,
}

impl<'l> Cells<'l> {
    fn of(line: &'l str) -> Option<Self> {
        let mut cells = line.split(',');
        let (position, stream, seq, hash) =
            (cells.next()?, cells.next()?, cells.next()?, cells.next()?);
        let made = Self {
            position: number_of(position).filter(|position| *position > 0)?,
            stream,
            seq: number_of(seq)?,
            hash: hash.parse().ok()?,
        };
        cells.next().is_none().then_some(made)
    }
}

/// A number, written the one way there is.
fn number_of(text: &str) -> Option<u64> {
    let number: u64 = text.parse().ok()?;
    (number.to_string() == text && number < 1 << 53).then_some(number)
}

fn json<T: serde::de::DeserializeOwned>(files: &Archive<'_>, name: &str) -> Result<T, String> {
    if files.place(name).is_none() {
        return Err(format!("the archive has no {name}"));
    }
    let bytes = files.whole(name, MAX_JSON);
    let bytes = bytes.ok_or_else(|| format!("{name} is too large"))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| format!("{name}: {error}"))?;
    // No key twice: two readers could read two things.
    strict::check_value(text).map_err(|error| format!("{name}: {error}"))?;
    serde_json::from_str(text).map_err(|error| format!("{name}: {error}"))
}

/// Reads a frame, and refuses it for whatever its format does not allow.
fn read_strictly(record: &Record, stream: &str) -> Result<Frame, String> {
    if record.body.len() > MAX_BODY {
        return Err("it is larger than a frame may be".to_owned());
    }
    if Hash::of(record.body.as_bytes()) != record.hash {
        return Err("its hash is not that of its bytes".to_owned());
    }
    strict::check_body(&record.body).map_err(|error| error.to_string())?;
    let frame = record.decode_bare().map_err(|error| error.to_string())?;
    if frame.stream.as_str() != stream || frame.seq != record.seq {
        return Err("its bytes say another stream or number".to_owned());
    }
    // Keys, checkpoints and heads count wherever they stand, so they stand in one place.
    match matches!(frame.event, Event::Store(_)) && frame.stream != StreamId::store() {
        true => Err("it speaks of the ledger, and is not in the stream store".to_owned()),
        false => Ok(frame),
    }
}
