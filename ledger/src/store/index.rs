//! Index rows, from which lists are made.
//!
//! A row is derived from the frames of one stream when they are appended; a store keeps it next to
//! them without knowing its content. All rows can be deleted and rebuilt.

use std::fmt;
use std::str::FromStr;

use crate::canonical::CanonicalJson;
use crate::hash::Hash;
use crate::id::StreamId;

/// The summary of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IndexRow {
    /// The stream it is about; one row each.
    pub stream: StreamId,
    /// The workflow's name.
    pub workflow: String,
    /// The status, as the projection calls it.
    pub status: String,
    /// True if something may still happen to it.
    pub open: bool,
    /// The time at which it began, in microseconds since 1970.
    pub created_us: u64,
    /// The idempotency key; no two streams have the same.
    pub key: Option<String>,
    /// Everything else the projection shows.
    pub row: CanonicalJson,
}

impl IndexRow {
    /// A digest over all members, stored with the row so that a damaged one is never served.
    pub fn digest(&self) -> Hash {
        let mut bytes = Vec::with_capacity(self.row.as_str().len() + 160);
        let mut put = |text: &[u8]| {
            bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
            bytes.extend_from_slice(text);
        };
        put(self.stream.as_str().as_bytes());
        put(self.workflow.as_bytes());
        put(self.status.as_bytes());
        put(&[u8::from(self.open), u8::from(self.key.is_some())]);
        put(&self.created_us.to_le_bytes());
        put(self.key.as_deref().unwrap_or_default().as_bytes());
        put(self.row.as_str().as_bytes());
        Hash::of(&bytes)
    }

    /// The cursor of a list after this row.
    pub fn cursor(&self) -> Cursor {
        Cursor {
            created_us: self.created_us,
            stream: self.stream.clone(),
        }
    }
}

/// A selection of rows to list; an absent member admits all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Streams of these kinds only (`run`, `branch`, `recompute`); none: of any.
    pub kinds: Vec<String>,
    /// This workflow only.
    pub workflow: Option<String>,
    /// This status only.
    pub status: Option<String>,
    /// Only what may, or may not, still move.
    pub open: Option<bool>,
}

impl Filter {
    /// Returns `true` if a row is wanted.
    pub fn admits(&self, row: &IndexRow) -> bool {
        (self.kinds.is_empty() || self.kinds.iter().any(|it| it == row.stream.kind()))
            && self.workflow.as_ref().is_none_or(|it| *it == row.workflow)
            && self.status.as_ref().is_none_or(|it| *it == row.status)
            && self.open.is_none_or(|it| it == row.open)
    }
}

/// A place in a list, which runs from the newest row to the oldest; written `MICROS~STREAM`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// See [`IndexRow::created_us`].
    pub created_us: u64,
    /// Distinguishes rows of the same time.
    pub stream: StreamId,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}~{}", self.created_us, self.stream)
    }
}

/// The text is not a cursor of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a cursor of a list")]
pub struct ParseCursorError;

impl FromStr for Cursor {
    type Err = ParseCursorError;

    fn from_str(text: &str) -> Result<Self, ParseCursorError> {
        let (micros, stream) = text.split_once('~').ok_or(ParseCursorError)?;
        Ok(Self {
            created_us: micros.parse().map_err(|_| ParseCursorError)?,
            stream: stream.parse().map_err(|_| ParseCursorError)?,
        })
    }
}

/// One page of a list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// Newest first.
    pub rows: Vec<IndexRow>,
    /// The place at which the next page begins; `None` on the last.
    pub next: Option<Cursor>,
}

impl Page {
    /// Makes a page of `limit` rows out of up to `limit + 1` that were found.
    pub fn of(mut rows: Vec<IndexRow>, limit: usize) -> Self {
        let more = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| more).map(IndexRow::cursor);
        Self { rows, next }
    }
}
