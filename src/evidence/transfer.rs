//! Moves runs between ledgers: JSON lines that contain the stored bytes.
//!
//! ```text
//! {"ktsu_export":1,"blobs":1,"frames":7}
//! {"blob":"HASH","text":…}          the blob's bytes, as they are
//! {"hash":"HASH","body":…}          the frame's bytes, as they are
//! ```
//!
//! Streams follow one another, parents first, so that the same runs give the same lines in every
//! ledger. The stream `store` is not moved: it is about its own ledger.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use ktsu_eval::EvalRecord;
use ktsu_ledger::branch;
use ktsu_ledger::store::{MemoryStore, Reader, Store, StoreError, read_all};
use ktsu_ledger::{Blob, CanonicalJson, Entry, Hash, Record, StreamId};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::export::{ExportError, ExportSelection, names_others_later, referenced_streams, select};
use super::facts;
use ktsu_run_index as rows;

/// The version of the format.
const FORMAT: u32 = 1;
/// The longest line that is read: a blob of 64 MiB.
const MAX_LINE: usize = 64 * 1024 * 1024;

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    ktsu_export: u32,
    blobs: u64,
    frames: u64,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BlobLine<'a> {
    blob: Hash,
    #[serde(borrow)]
    text: &'a RawValue,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct FrameLine<'a> {
    hash: Hash,
    #[serde(borrow)]
    body: &'a RawValue,
}

/// A stream on its way.
type Stream = (StreamId, Vec<Record>);

/// The lines for some runs.
///
/// # Errors
/// [`ExportError`].
pub fn export(reader: &dyn Reader, wanted: &ExportSelection) -> Result<String, ExportError> {
    let streams = streams(reader, wanted)?;
    let damaged = |why: &dyn std::fmt::Display| ExportError::Damaged(why.to_string());
    let mut blobs = BTreeMap::new();
    let mut frames = Vec::new();
    for (stream, records) in &streams {
        for record in records {
            let frame = record.decode_bare();
            let frame =
                frame.map_err(|error| damaged(&format!("{stream}#{}: {error}", record.seq)))?;
            for external in &frame.ext {
                if let btree_map::Entry::Vacant(place) = blobs.entry(external.hash) {
                    let text = reader.blob_get(&external.hash)?;
                    let text = text.ok_or_else(|| {
                        damaged(&format!("the blob {} is missing", external.hash))
                    })?;
                    place.insert(text);
                }
            }
            frames.push(record);
        }
    }
    let header = Header {
        ktsu_export: FORMAT,
        blobs: blobs.len() as u64,
        frames: frames.len() as u64,
    };
    let mut lines = serde_json::to_string(&header).map_err(|error| damaged(&error))? + "\n";
    for (hash, text) in &blobs {
        lines.push_str(&format!(
            "{{\"blob\":\"{hash}\",\"text\":{}}}\n",
            text.as_str()
        ));
    }
    for record in frames {
        lines.push_str(&format!(
            "{{\"hash\":\"{}\",\"body\":{}}}\n",
            record.hash, record.body
        ));
    }
    match lines.lines().count() == 1 + blobs.len() + usize::try_from(header.frames).unwrap_or(0) {
        true => Ok(lines),
        false => Err(damaged(
            &"the bytes of a frame or a blob do not fit on a line",
        )),
    }
}

/// The frames of some runs as CloudEvents 1.0, a line each: for whoever collects events. One way,
/// and not the hashed form.
///
/// # Errors
/// [`ExportError`].
pub fn cloud_events(reader: &dyn Reader, wanted: &ExportSelection) -> Result<String, ExportError> {
    let source = facts::origin(reader)?.unwrap_or_default();
    let mut lines = String::new();
    for (stream, records) in streams(reader, wanted)? {
        for record in records {
            let frame = record.decode_bare();
            let frame =
                frame.map_err(|error| ExportError::Damaged(format!("{stream}: {error}")))?;
            let mut event = serde_json::json!({
                "specversion": "1.0",
                "id": format!("{stream}/{}", frame.seq),
                "source": source,
                "type": frame.event.kind(),
                "subject": stream,
                "time": frame.at,
                "datacontenttype": "application/json",
                "data": frame.event.data(),
                "ktsuhash": frame.hash,
            });
            let blobs: Vec<String> = frame
                .ext
                .iter()
                .map(|one| format!("urn:blake3:{}", one.hash))
                .collect();
            if let (Some(first), Some(members)) = (blobs.first(), event.as_object_mut()) {
                members.insert("dataref".to_owned(), first.clone().into());
            }
            lines.push_str(&format!("{event}\n"));
        }
    }
    Ok(lines)
}

/// The frames of what is wanted and what belongs to it, parents before what hangs from them.
fn streams(reader: &dyn Reader, wanted: &ExportSelection) -> Result<Vec<Stream>, ExportError> {
    let mut waiting = BTreeMap::new();
    for stream in select(reader, wanted)? {
        let records = branch::own(reader, &stream)?;
        rows::check_end(reader, &stream)?;
        waiting.insert(stream, records);
    }
    in_order(waiting).map_err(ExportError::Damaged)
}

/// Streams so that each stands behind those it hangs from.
fn in_order(mut waiting: BTreeMap<StreamId, Vec<Record>>) -> Result<Vec<Stream>, String> {
    let hung = waiting.iter();
    let hung = hung.map(|(stream, records)| (stream.clone(), parents(stream, records)));
    let order = parents_first(&hung.collect());
    // Runs hang from nothing: this is a circle, which no ledger has.
    let order = order.ok_or("streams that hang from each other")?;
    let taken = order.into_iter();
    Ok(taken
        .filter_map(|stream| waiting.remove_entry(&stream))
        .collect())
}

/// Streams so that each stands behind those it hangs from, of several the first by name; none where
/// some hang from each other. Parents that are not among them count as there.
fn parents_first(hung: &BTreeMap<StreamId, BTreeSet<StreamId>>) -> Option<Vec<StreamId>> {
    let mut children: BTreeMap<&StreamId, Vec<&StreamId>> = BTreeMap::new();
    let mut missing: BTreeMap<&StreamId, usize> = BTreeMap::new();
    let mut free = BTreeSet::new();
    for (stream, parents) in hung {
        let here = parents.iter().filter(|parent| hung.contains_key(parent));
        let mut count = 0;
        for parent in here {
            children.entry(parent).or_default().push(stream);
            count += 1;
        }
        match count {
            0 => drop(free.insert(stream)),
            _ => drop(missing.insert(stream, count)),
        }
    }
    let mut ordered = Vec::with_capacity(hung.len());
    while let Some(stream) = free.pop_first() {
        ordered.push(stream.clone());
        for child in children.remove(stream).unwrap_or_default() {
            if let Some(left) = missing.get_mut(child) {
                *left -= 1;
                if *left == 0 {
                    free.insert(child);
                }
            }
        }
    }
    (ordered.len() == hung.len()).then_some(ordered)
}

fn parents(stream: &StreamId, records: &[Record]) -> BTreeSet<StreamId> {
    let telling = if names_others_later(stream) {
        records.len()
    } else {
        1
    };
    let telling = records.iter().take(telling);
    let frames = telling.filter_map(|record| record.decode_bare().ok());
    let mut parents: BTreeSet<StreamId> = frames
        .flat_map(|frame| referenced_streams(&frame))
        .collect();
    parents.remove(stream);
    parents
}

/// The entries to be appended, checked already.
#[derive(Debug, Default)]
pub struct ImportPlan {
    /// The entries that are new here.
    pub entries: Vec<Entry>,
    /// Frames in them.
    pub frames: u64,
    /// Streams that are here already, frame for frame.
    pub already_present: u64,
}

/// Checks lines against the ledger they are to go to, if there is one. Nothing is written.
///
/// # Errors
/// What is wrong with them, and where.
pub fn check(lines: impl AsRef<[u8]>, target: Option<&dyn Reader>) -> Result<ImportPlan, String> {
    let (streams, blobs) = read(lines.as_ref())?;
    let failed = |error: StoreError| error.to_string();
    // Everything is appended to a ledger in memory first: what refuses it there would here.
    let mut trial = MemoryStore::new();
    let epoch = trial.acquire().map_err(failed)?;
    let mut checked = ImportPlan::default();
    for (stream, records) in in_order(streams)? {
        let found = match target {
            Some(target) => read_all(target, &stream, 0).map_err(failed)?,
            None => Vec::new(),
        };
        let blobs = needed(&records, &blobs)?;
        let entry = Entry::from_records(&stream, records.clone(), blobs)
            .map_err(|error| error.to_string())?;
        let outcome = trial
            .append(epoch, std::slice::from_ref(&entry))
            .map_err(failed)?;
        if let Some(refused) = outcome.into_iter().find_map(Result::err) {
            return Err(format!("{stream}: {refused}"));
        }
        if found == records {
            checked.already_present += 1;
            continue;
        }
        if !found.is_empty() {
            return Err(format!("{stream} is here already, with other frames"));
        }
        checked.frames += records.len() as u64;
        checked.entries.push(with_row(entry, &trial, target)?);
    }
    Ok(checked)
}

/// The row a run has in lists, as its frames say.
fn with_row(
    entry: Entry,
    trial: &MemoryStore,
    target: Option<&dyn Reader>,
) -> Result<Entry, String> {
    let stream = entry.stream().clone();
    if stream.is_eval() {
        let frames = branch::frames(trial, &stream).map_err(|error| error.to_string())?;
        EvalRecord::of(&frames).map_err(|fault| format!("{stream}: {fault}"))?;
    }
    if !rows::is_run(&stream) {
        return Ok(entry);
    }
    let made = rows::derive_row(trial, &stream).map_err(|error| error.to_string())?;
    if let Some(fault) = made.fault {
        return Err(format!("{stream}: {}", fault.why));
    }
    let row = made.row;
    if row.open && row.status != "waiting" {
        return Err(format!(
            "{stream} has not ended: it would continue both here and in the ledger it comes from"
        ));
    }
    if let (Some(key), Some(target)) = (&row.key, target)
        && let Some(other) = target.by_key(key).map_err(|error| error.to_string())?
    {
        return Err(format!(
            "{stream} has the idempotency key of {}",
            other.stream
        ));
    }
    entry.with_index(row).map_err(|error| error.to_string())
}

/// The blobs that frames name.
fn needed(records: &[Record], blobs: &BTreeMap<Hash, CanonicalJson>) -> Result<Vec<Blob>, String> {
    let mut named = BTreeMap::new();
    for record in records {
        let frame = record.decode_bare().map_err(|error| error.to_string())?;
        for external in frame.ext {
            let text = blobs.get(&external.hash);
            let text = text.ok_or_else(|| format!("the blob {} is missing", external.hash))?;
            if text.as_str().len() as u64 != external.bytes {
                return Err(format!("the blob {} has another length", external.hash));
            }
            named.insert(external.hash, text.clone());
        }
    }
    Ok(named
        .into_iter()
        .map(|(hash, text)| Blob { hash, text })
        .collect())
}

type ParsedExport = (
    BTreeMap<StreamId, Vec<Record>>,
    BTreeMap<Hash, CanonicalJson>,
);

/// The most bytes of a line that are shown where it is wrong.
const MAX_EXCERPT_BYTES: usize = 200;

/// The words about a line that is wrong: its number, the reason, and its beginning.
fn wrong(number: usize, line: &[u8], why: &dyn std::fmt::Display) -> String {
    let shown = line.get(..MAX_EXCERPT_BYTES).unwrap_or(line);
    let more = if shown.len() < line.len() { "…" } else { "" };
    let shown = String::from_utf8_lossy(shown);
    format!("line {number}: {why}; it reads {shown:?}{more}")
}

/// Takes the lines apart. Every count must be right, so that a cut is found.
fn read(text: &[u8]) -> Result<ParsedExport, String> {
    let whole = text.ends_with(b"\n");
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let mut lines = (1..).zip(body.split(|byte| *byte == b'\n'));
    let header: Header = match lines.next() {
        None | Some((_, b"")) => return Err("not an export of ktsu: it is empty".to_owned()),
        Some((number, line)) => serde_json::from_slice(line).map_err(|_| {
            wrong(
                number,
                line,
                &"not an export of ktsu, whose first line counts what follows",
            )
        })?,
    };
    if header.ktsu_export != FORMAT {
        let format = header.ktsu_export;
        return Err(format!(
            "the export is in format {format}, which this version does not know"
        ));
    }
    let (mut streams, mut blobs) = (BTreeMap::<StreamId, Vec<Record>>::new(), BTreeMap::new());
    let mut frames = 0;
    for (number, bytes) in lines {
        let wrong = |why: &dyn std::fmt::Display| wrong(number, bytes, why);
        if bytes.len() > MAX_LINE {
            return Err(wrong(&"it is too long"));
        }
        let line = std::str::from_utf8(bytes).map_err(|_| wrong(&"its bytes are not UTF-8"))?;
        if line.starts_with("{\"blob\"") {
            let line: BlobLine<'_> =
                serde_json::from_str(line).map_err(|_| wrong(&"not the line of a blob"))?;
            let bytes = line.text.get().as_bytes();
            let text = CanonicalJson::parse(bytes).map_err(|error| wrong(&error))?;
            if text.as_str().as_bytes() != bytes || Hash::of(bytes) != line.blob {
                return Err(wrong(&"the blob is not what its hash says"));
            }
            if blobs.insert(line.blob, text).is_some() {
                return Err(wrong(&"the blob is there twice"));
            }
            continue;
        }
        let line: FrameLine<'_> =
            serde_json::from_str(line).map_err(|_| wrong(&"not the line of a frame"))?;
        let mut record = Record {
            seq: 0,
            hash: line.hash,
            body: line.body.get().to_owned(),
        };
        let frame = record.decode_bare().map_err(|error| wrong(&error))?;
        if frame.stream == StreamId::store() {
            return Err(wrong(
                &"frames of the stream store belong to their own ledger",
            ));
        }
        if Hash::of(record.body.as_bytes()) != record.hash {
            return Err(wrong(&"the frame is not what its hash says"));
        }
        record.seq = frame.seq;
        frames += 1;
        streams.entry(frame.stream).or_default().push(record);
    }
    if (frames, blobs.len() as u64) != (header.frames, header.blobs) || !whole {
        return Err(format!(
            "the export is cut: it has {frames} frames and {} blobs, and says {} and {}",
            blobs.len(),
            header.frames,
            header.blobs
        ));
    }
    Ok((streams, blobs))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(links: u32) -> BTreeMap<StreamId, BTreeSet<StreamId>> {
        let name = |at: u32| StreamId::run(&format!("branch_{at:07}")).unwrap();
        // Later names are parents of earlier ones, so that no order of names helps.
        let parents = |at: u32| (at < links).then(|| name(at + 1)).into_iter().collect();
        (0..=links).map(|at| (name(at), parents(at))).collect()
    }

    #[test]
    fn a_million_forks_of_forks_are_put_in_order() {
        let hung = chain(1_000_000);
        let order = parents_first(&hung).unwrap();
        assert_eq!(order.len(), hung.len());
        assert!(order.iter().rev().eq(hung.keys()));
    }

    #[test]
    fn streams_that_hang_from_each_other_have_no_order() {
        let mut hung = chain(3);
        let first = hung.keys().next().unwrap().clone();
        let last = hung.keys().next_back().unwrap().clone();
        assert!(parents_first(&hung).is_some());
        hung.insert(last, BTreeSet::from([first]));
        assert_eq!(parents_first(&hung), None);
    }
}
