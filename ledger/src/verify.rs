//! Whether a ledger is what was appended, as far as the ledger itself can show it.
//!
//! Every stored byte of every frame and blob is read once, in the order of appending, and hashed
//! as it stands. Nothing is believed and nothing is re-serialised. Damage of any kind is a
//! [`Problem`] in the [`Report`], never an error of the verifier.
//!
//! ```text
//! inspect    the container: pages, schema, meta, gaps in the order     (store)
//! blobs      hash, canonical text                                      verify/blobs
//! frames     columns, strict reading, chain, causes, blobs, heads      verify/frames
//! look-ups   what readers will answer: tails, names, index rows        here
//! ```
//!
//! **What a chain cannot show:** frames cut off the end, with everything re-linked before. Only a
//! head that was recorded elsewhere can; the report says where none was given.

mod blobs;
mod frames;
mod report;

use std::path::Path;

pub use report::{Kind, Problem, Report};

use crate::hash::Hash;
use crate::id::StreamId;
use crate::store::{Filter, Paths, Reader, SqliteReader, StoreError, Tail};
use frames::Frames;

/// How many frames are looked at between two reports of progress.
const PAGE: usize = 1_000;

/// A frame that is known from elsewhere to exist.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its stream.
    pub stream: StreamId,
    /// Its number.
    pub seq: u64,
    /// Its hash.
    pub hash: Hash,
}

/// What a ledger is verified against.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Heads recorded elsewhere.
    pub heads: Vec<Head>,
}

/// How far verification has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Progress {
    /// Frames looked at.
    pub frames: u64,
}

/// Verifies the ledger at a path, without any lock.
///
/// # Errors
/// Only if there is nothing to verify: no file, or one that may not be read. A file that is too
/// damaged to be opened is a [`Report`].
pub fn verify_file(
    path: &Path,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Result<Report, StoreError> {
    let paths = Paths::of(path);
    paths.must_be_file()?;
    std::fs::File::open(&paths.db).map_err(|error| StoreError::failed("read the ledger", error))?;
    Ok(match SqliteReader::open(path) {
        Ok(reader) => verify(&reader, options, progress),
        Err(error) => {
            let mut report = Report::default();
            report.find(None, None, Kind::Container, error.to_string());
            report
        }
    })
}

/// Verifies whatever a reader reads.
pub fn verify(
    reader: &dyn Reader,
    options: &Options,
    progress: &mut dyn FnMut(Progress),
) -> Report {
    let mut report = Report::default();
    let inspection = reader.inspect();
    for problem in inspection.problems {
        report.find(None, None, Kind::Container, problem);
    }
    for (stream, frames) in inspection.removed {
        report
            .not_covered
            .push(format!("{stream}, whose {frames} frames were removed"));
    }
    let blobs = blobs::scan(reader, &mut report);
    let mut frames = Frames::new(blobs, options);
    frames.scan(reader, &mut report, progress);
    frames.finish(inspection.epoch, &mut report);
    look_up(reader, &frames, &mut report);
    report.say_what_is_not_covered(options, &frames.unknown);
    report
}

/// Asks what readers will be asked, and holds it against what was read.
fn look_up(reader: &dyn Reader, frames: &Frames, report: &mut Report) {
    let mut names = 0;
    for (name, tail) in frames.tails() {
        let Ok(stream) = name.parse::<StreamId>() else {
            let said = "this does not name a stream".to_owned();
            report.find(Some(name), None, Kind::Column, said);
            continue;
        };
        names += 1;
        match reader.tail(&stream) {
            Ok(found) if found == tail => {}
            Ok(found) => {
                let shown = |tail: Option<Tail>| tail.map_or(-1, |tail| i128::from(tail.seq));
                let message = format!(
                    "a look-up gives {} for its end, reading it gives {}",
                    shown(found),
                    shown(tail)
                );
                report.find(Some(name), tail.map(|it| it.seq), Kind::Container, message);
            }
            Err(error) => report.find(Some(name), None, Kind::Container, error.to_string()),
        }
    }
    if let Err(error) = look_up_names(reader, names, report) {
        report.find(None, None, Kind::Container, error.to_string());
    }
    if let Err(error) = look_up_rows(reader, frames, report) {
        report.find(None, None, Kind::Index, error.to_string());
    }
}

fn look_up_names(
    reader: &dyn Reader,
    expected: u64,
    report: &mut Report,
) -> Result<(), StoreError> {
    let (mut count, mut after) = (0, None);
    loop {
        let page = reader.streams(after.as_ref(), PAGE)?;
        count += page.len() as u64;
        match page.last() {
            Some(last) => after = Some(last.clone()),
            None => break,
        }
    }
    if count != expected {
        let message = format!("{count} streams have a name, {expected} have frames");
        report.find(None, None, Kind::Container, message);
    }
    Ok(())
}

/// Index rows can be made again at any time; a wrong one is still told.
fn look_up_rows(
    reader: &dyn Reader,
    frames: &Frames,
    report: &mut Report,
) -> Result<(), StoreError> {
    let mut cursor = None;
    loop {
        let page = reader.list(&Filter::default(), cursor.as_ref(), PAGE)?;
        for row in &page.rows {
            let name = row.stream.as_str();
            if !frames.knows(name) {
                let message = "an index row of a stream without frames".to_owned();
                report.find(Some(name), None, Kind::Index, message);
            }
            let same = reader.row(&row.stream)?.as_ref() == Some(row);
            let by_key = match &row.key {
                Some(key) => reader.by_key(key)?.as_ref() == Some(row),
                None => true,
            };
            if !same || !by_key {
                let message = "its index row is not found by stream or key".to_owned();
                report.find(Some(name), None, Kind::Index, message);
            }
        }
        cursor = page.next;
        if cursor.is_none() {
            return Ok(());
        }
    }
}
