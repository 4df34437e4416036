//! The events of a ledger's order stream. Persisted, keep stable; described in `docs/ledger-format.md`.
//!
//! Only what one of them lists is committed. The revision of an event is its place, and each is appended
//! at an exact one, so an owner that was overtaken commits nothing.

use bytes::Bytes;
use ktsu_ledger::event::RunRemoved;
use ktsu_ledger::removal::Removal;
use ktsu_ledger::store::MirrorChange;
use ktsu_ledger::{CanonicalJson, Entry, Hash, IndexRow, StoreError, StreamId};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::client::{NewEvent, StoredEvent};

/// The version of the streams and of their events.
pub const FORMAT: u64 = 1;
/// The name of the order stream.
pub(crate) const ORDER: &str = "ktsu:order";
/// The name of the stream of beats.
pub(crate) const BEATS: &str = "ktsu:beats";
/// The most bytes of an order event: what a server takes at once is a mebibyte, unless it is set up otherwise.
pub(crate) const MAX_ORDER_BYTES: usize = 800 * 1024;

/// An event of the order stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OrderEvent {
    /// The ledger was made: its first event.
    Made { format: u64, ledger: String },
    /// A process became the owner.
    Owned { epoch: u64 },
    /// Frames were appended behind a position.
    Appended {
        epoch: u64,
        after: u64,
        entries: Vec<ListedEntry>,
    },
    /// Index rows were changed: all were deleted if `clear`, then these were put.
    Rows {
        epoch: u64,
        clear: bool,
        rows: Vec<ListedRow>,
    },
    /// What was removed by events before this revision is deleted from its streams.
    Erased { epoch: u64, before: u64 },
}

/// Frames of one stream.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListedEntry {
    pub(crate) stream: StreamId,
    /// The number of the first frame.
    pub(crate) seq: u64,
    pub(crate) frames: u64,
    /// The revision of the first frame's event; the others follow it.
    pub(crate) at: u64,
    /// The hash of the last frame: it covers those before it.
    pub(crate) hash: Hash,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) blobs: Vec<ListedBlob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) row: Option<ListedRow>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) removed: Vec<ListedRemoval>,
}

/// A blob that came with frames.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedBlob {
    pub(crate) hash: Hash,
    /// The revision of the first chunk's event.
    pub(crate) at: u64,
    pub(crate) chunks: u64,
}

/// A stream that frames remove.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ListedRemoval {
    pub(crate) stream: StreamId,
    pub(crate) frames: u64,
    /// The blobs that are deleted with it.
    pub(crate) blobs: Vec<Hash>,
}

/// An index row.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct ListedRow {
    stream: StreamId,
    workflow: String,
    status: String,
    open: bool,
    created_us: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    row: CanonicalJson,
}

impl From<&IndexRow> for ListedRow {
    fn from(row: &IndexRow) -> Self {
        Self {
            stream: row.stream.clone(),
            workflow: row.workflow.clone(),
            status: row.status.clone(),
            open: row.open,
            created_us: row.created_us,
            key: row.key.clone(),
            row: row.row.clone(),
        }
    }
}

impl From<&ListedRow> for IndexRow {
    fn from(row: &ListedRow) -> Self {
        Self {
            stream: row.stream.clone(),
            workflow: row.workflow.clone(),
            status: row.status.clone(),
            open: row.open,
            created_us: row.created_us,
            key: row.key.clone(),
            row: row.row.clone(),
        }
    }
}

impl ListedEntry {
    /// The listing of an entry whose first frame is at a revision.
    pub(crate) fn of(
        entry: &Entry,
        at: u64,
        blobs: Vec<ListedBlob>,
        change: &MirrorChange,
    ) -> Self {
        let removal = |(_, event, _): (u64, &RunRemoved, &Removal)| ListedRemoval {
            stream: event.stream.clone(),
            frames: event.frames,
            blobs: change
                .deleted
                .get(&event.stream)
                .cloned()
                .unwrap_or_default(),
        };
        Self {
            stream: entry.stream().clone(),
            seq: entry.first(),
            frames: entry.records().len() as u64,
            at,
            hash: entry.tail().hash,
            blobs,
            row: entry.index().map(ListedRow::from),
            removed: entry.removals().map(removal).collect(),
        }
    }

    /// Roughly the bytes that it takes in an event.
    pub(crate) fn bytes(&self) -> usize {
        let row = self.row.as_ref().map_or(0, ListedRow::bytes);
        let removed = self.removed.iter().map(|it| 200 + it.blobs.len() * 70);
        400 + self.blobs.len() * 120 + row + removed.sum::<usize>()
    }
}

impl ListedRow {
    /// Roughly the bytes that it takes in an event.
    pub(crate) fn bytes(&self) -> usize {
        let key = self.key.as_ref().map_or(0, String::len);
        300 + self.row.as_str().len() + 2 * (key + self.workflow.len() + self.status.len())
    }
}

impl OrderEvent {
    /// What a stored event says.
    pub(crate) fn of(stored: &StoredEvent) -> Result<Self, StoreError> {
        let read = serde_json::from_slice::<Self>(&stored.data).map_err(|error| {
            let words = format!("{ORDER}@{} cannot be read: {error}", stored.revision);
            StoreError::Damaged(words)
        })?;
        match read {
            Self::Made { format, .. } if format > FORMAT => Err(StoreError::NewerFormat {
                found: format,
                known: FORMAT,
            }),
            read => Ok(read),
        }
    }

    /// The event for a revision of the order stream.
    pub(crate) fn at(&self, revision: u64) -> Result<NewEvent, StoreError> {
        as_event("ktsu.order", self, revision)
    }
}

/// Makes an event whose id follows from what it says, and from its place.
pub(crate) fn as_event(
    kind: &'static str,
    content: &impl Serialize,
    revision: u64,
) -> Result<NewEvent, StoreError> {
    let data = serde_json::to_vec(content);
    let data = data.map_err(|error| StoreError::failed("write an event", error))?;
    let mut identity = data.clone();
    identity.extend_from_slice(&revision.to_le_bytes());
    Ok(NewEvent {
        id: id_of(&Hash::of(&identity)),
        kind,
        data: Bytes::from(data),
        metadata: Bytes::new(),
    })
}

/// The id of an event, from a hash.
pub(crate) fn id_of(hash: &Hash) -> Uuid {
    let mut half = [0; 16];
    half.copy_from_slice(hash.as_bytes().split_at(16).0);
    uuid::Builder::from_custom_bytes(half).into_uuid()
}
