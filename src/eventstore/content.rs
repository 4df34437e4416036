//! The events that hold frames and blobs.
//!
//! The data of a frame's event are the frame's bytes; its id follows from the frame's hash, which is its
//! metadata. A blob is cut into chunks, each the data of an event of a stream of its own.

use bytes::{Bytes, BytesMut};
use ktsu_ledger::{Blob, CanonicalJson, Hash, Record, StoreError};

use crate::client::{NewEvent, StoredEvent};
use crate::order::id_of;

/// The bytes of a chunk of a blob: with what is around it less than a server takes at once.
const CHUNK_BYTES: usize = 512 * 1024;

/// The event of a frame.
pub(crate) fn frame_event(record: &Record) -> NewEvent {
    NewEvent {
        id: id_of(&record.hash),
        kind: "ktsu.frame",
        data: Bytes::copy_from_slice(record.body.as_bytes()),
        metadata: Bytes::from(format!(r#"{{"hash":"{}"}}"#, record.hash)),
    }
}

/// The hash that an event has of its frame, if it is one.
pub(crate) fn stored_hash(event: &StoredEvent) -> Option<Hash> {
    let text = std::str::from_utf8(&event.metadata).ok()?;
    let hash = text.strip_prefix(r#"{"hash":""#)?.strip_suffix(r#""}"#)?;
    hash.parse().ok()
}

/// The frame of an event, whose bytes are not what its hash says if they were changed.
pub(crate) fn record_of(event: &StoredEvent, seq: u64) -> Result<Record, StoreError> {
    let body = String::from_utf8(event.data.to_vec());
    let body = body.map_err(|_| StoreError::Damaged("a frame that is not UTF-8".to_owned()))?;
    let hash = Hash::of(body.as_bytes());
    Ok(Record { seq, hash, body })
}

/// The name of the stream of a blob.
pub(crate) fn blob_stream(hash: &Hash) -> String {
    format!("blob:{hash}")
}

/// The number of chunks of a blob.
pub(crate) fn chunks_of(blob: &Blob) -> u64 {
    blob.text.as_str().len().div_ceil(CHUNK_BYTES) as u64
}

/// The events of a blob.
pub(crate) fn blob_events(blob: &Blob) -> Vec<NewEvent> {
    let chunks = blob.text.as_str().as_bytes().chunks(CHUNK_BYTES);
    let event = |(number, chunk): (usize, &[u8])| {
        let mut identity = blob.hash.as_bytes().to_vec();
        identity.extend_from_slice(&(number as u64).to_le_bytes());
        NewEvent {
            id: id_of(&Hash::of(&identity)),
            kind: "ktsu.blob",
            data: Bytes::copy_from_slice(chunk),
            metadata: Bytes::new(),
        }
    };
    chunks.enumerate().map(event).collect()
}

/// The bytes of a blob of whose chunks these are the events.
pub(crate) fn blob_bytes<'a>(events: impl Iterator<Item = &'a StoredEvent>) -> Vec<u8> {
    let mut bytes = BytesMut::new();
    for event in events {
        bytes.extend_from_slice(&event.data);
    }
    bytes.to_vec()
}

/// A blob, if the bytes are those of its hash.
pub(crate) fn blob_of(hash: Hash, bytes: Vec<u8>) -> Result<Blob, StoreError> {
    let damaged = || StoreError::Damaged(format!("the blob {hash} is not what its hash says"));
    if Hash::of(&bytes) != hash {
        return Err(damaged());
    }
    let text =
        serde_json::value::RawValue::from_string(String::from_utf8(bytes).map_err(|_| damaged())?);
    let text = text.map_err(|_| damaged())?;
    Ok(Blob {
        hash,
        text: CanonicalJson::from(text),
    })
}
