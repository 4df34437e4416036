//! Reading what order events list: the frames and the blobs, several streams at once.

use std::collections::BTreeMap;

use ktsu_ledger::StoreError;

use crate::client::StoredEvent;
use crate::content::blob_stream;
use crate::log::EventLog;
use crate::order::{ListedBlob, ListedEntry};

/// The most events that are held at once: frames of 256 KiB, and chunks of blobs, are few among them.
const MAX_FETCHED: u64 = 512;

/// The events of some streams.
#[derive(Debug, Default)]
pub(crate) struct Fetched(BTreeMap<(String, u64), StoredEvent>);

impl Fetched {
    /// The frames of a listed entry; fewer if the server does not have them all.
    pub(crate) fn frames(&self, entry: &ListedEntry) -> Vec<&StoredEvent> {
        self.range(entry.stream.as_str(), entry.at, entry.frames)
    }

    /// The chunks of a listed blob; fewer if the server does not have them all.
    pub(crate) fn chunks(&self, blob: &ListedBlob) -> Vec<&StoredEvent> {
        self.range(&blob_stream(&blob.hash), blob.at, blob.chunks)
    }

    fn range(&self, stream: &str, from: u64, count: u64) -> Vec<&StoredEvent> {
        let end = from.saturating_add(count);
        let range = (stream.to_owned(), from)..(stream.to_owned(), end);
        self.0.range(range).map(|(_, event)| event).collect()
    }
}

/// How many of some entries are fetched together; one at least.
pub(crate) fn window(entries: &[&ListedEntry]) -> usize {
    let mut events = 0u64;
    let fits = entries.iter().take_while(|entry| {
        let chunks: u64 = entry.blobs.iter().map(|blob| blob.chunks).sum();
        events = events.saturating_add(entry.frames).saturating_add(chunks);
        events <= MAX_FETCHED
    });
    fits.count().max(1).min(entries.len())
}

/// Fetches what entries list: frames, and blobs, too, if wanted.
pub(crate) fn fetch(
    log: &EventLog,
    entries: &[&ListedEntry],
    with_blobs: bool,
) -> Result<Fetched, StoreError> {
    let mut wanted: Vec<(String, u64, u64)> = Vec::new();
    for entry in entries {
        want(
            &mut wanted,
            entry.stream.to_string(),
            entry.at,
            entry.frames,
        );
        for blob in entry.blobs.iter().filter(|_| with_blobs) {
            want(&mut wanted, blob_stream(&blob.hash), blob.at, blob.chunks);
        }
    }
    fetch_ranges(log, &wanted)
}

/// Fetches the chunks of a blob.
pub(crate) fn fetch_blob(log: &EventLog, blob: &ListedBlob) -> Result<Fetched, StoreError> {
    fetch_ranges(log, &[(blob_stream(&blob.hash), blob.at, blob.chunks)])
}

fn fetch_ranges(log: &EventLog, wanted: &[(String, u64, u64)]) -> Result<Fetched, StoreError> {
    let ranges = wanted.iter().map(|(stream, from, count)| {
        let count = usize::try_from(*count).unwrap_or(usize::MAX);
        (stream.clone(), *from, count)
    });
    let ranges: Vec<_> = ranges.collect();
    let read = log.read_ranges(&ranges)?;
    let mut fetched = Fetched::default();
    for ((stream, ..), events) in ranges.into_iter().zip(read) {
        for event in events {
            fetched.0.insert((stream.clone(), event.revision), event);
        }
    }
    Ok(fetched)
}

/// Adds a range, to the last one where it continues that.
fn want(wanted: &mut Vec<(String, u64, u64)>, stream: String, from: u64, count: u64) {
    let mut latest = wanted.iter_mut().rev();
    let same = latest.find(|(other, ..)| *other == stream);
    match same {
        Some((_, first, length)) if first.saturating_add(*length) == from => {
            *length = length.saturating_add(count);
        }
        Some(_) | None => wanted.push((stream, from, count)),
    }
}
