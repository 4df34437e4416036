//! The content of an evidence archive, and the manifest that names every byte of it.
//!
//! ```text
//! manifest.json   every other file with its digests     frames.jsonl   the hashed bytes, a frame a line
//! VERIFY.md       what to type, and what is not shown   frames.csv     position, stream, number, hash
//! verify.py       the independent verifier, with        blobs/         what frames name by hash
//!                 its other parts, verify_*.py          checkpoints/   signed notes, out of the frames
//! proofs/         the tree around the frames
//! keys/           public keys, out of the frames        config/        definitions, out of the blobs
//! derived/        tables for people, made again at any time
//! ```

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ktsu_ledger::Hash;
use ktsu_ledger::event::StoreEvent;
use ktsu_ledger::keys::Keys;
use ktsu_ledger::merkle::Node;
use ktsu_ledger::note::PublicKey;
use ktsu_ledger::{Event, Frame};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// The version of the format.
pub const FORMAT: u32 = 1;
/// The manifest.
pub const MANIFEST: &str = "manifest.json";
/// The hashed bytes.
pub const FRAMES: &str = "frames.jsonl";
/// The table of the places of the frames.
pub const PLACES: &str = "frames.csv";
/// The first line of [`PLACES`].
pub const COLUMNS: &str = "position,stream,seq,hash";
/// The proof.
pub const TREE: &str = "proofs/tree.json";
/// The largest blob there is.
pub const MAX_BLOB_BYTES: usize = 64 * 1024 * 1024;
/// The largest manifest, proof or table that is read into a tree of values.
pub const MAX_JSON: usize = 256 * 1024 * 1024;

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// True if every run of the ledger is meant to be here.
    pub all: bool,
    /// Name and version of the engine that made it.
    pub engine: String,
    /// Every other file.
    pub files: BTreeMap<String, FileEntry>,
    /// [`FORMAT`].
    pub format: u32,
    /// The name of the ledger.
    pub origin: String,
    /// The runs that were asked for.
    pub runs: Vec<String>,
    /// Every stream that is here, and how much of it.
    pub streams: BTreeMap<String, Range>,
}

/// A file of an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// BLAKE3.
    pub blake3: String,
    /// The number of its bytes.
    pub bytes: u64,
    /// True if it can be made again from the others, and shows nothing by itself.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub derived: bool,
    /// SHA-256.
    pub sha256: String,
}

/// The frames of a stream that are in an archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// The number of the first.
    pub first: u64,
    /// The number of frames.
    pub frames: u64,
    /// The hash of the last.
    pub head: Hash,
}

/// `proofs/tree.json`: see [`ktsu_ledger::merkle::multiproof`].
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tree {
    /// [`FORMAT`].
    pub format: u32,
    /// The parts that are left out, in the order of the walk.
    pub hashes: Vec<Node>,
    /// The number of frames that the tree is over: the last checkpoint's size; 0 where there is
    /// none.
    pub size: u64,
}

/// The entry of the manifest for a file.
pub fn describe(name: &str, bytes: &[u8]) -> FileEntry {
    let mut describing = FileDigester::default();
    describing.take(bytes);
    describing.finish(name)
}

/// Makes the entry of the manifest for a file that comes in pieces.
#[derive(Default)]
pub struct FileDigester {
    blake3: blake3::Hasher,
    bytes: u64,
    sha256: Sha256,
}

impl FileDigester {
    /// The next piece.
    pub fn take(&mut self, piece: &[u8]) {
        self.blake3.update(piece);
        self.sha256.update(piece);
        self.bytes += piece.len() as u64;
    }

    /// The end of the file.
    pub fn finish(self, name: &str) -> FileEntry {
        let sha256 = Node::from_bytes(&self.sha256.finalize());
        FileEntry {
            blake3: self.blake3.finalize().to_hex().to_string(),
            bytes: self.bytes,
            derived: name.starts_with("derived/"),
            sha256: sha256.map(|hash| hash.to_string()).unwrap_or_default(),
        }
    }
}

/// A frame of an archive, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PositionedFrame {
    /// Its place in the order of appending, from 1.
    pub position: u64,
    /// The frame, without its blobs.
    pub frame: Frame,
}

/// The part of a frame that a file beside the frames repeats.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Extract {
    /// A text that stands in a frame.
    Text(Vec<u8>),
    /// A blob that a frame names.
    Blob(Hash),
}

/// The parts of a frame that are put beside the frames for people and their tools: `checkpoints/`,
/// `keys/`, `config/`. A verifier makes them again and compares.
pub fn extracts(origin: &str, placed: &PositionedFrame) -> Vec<(String, Extract)> {
    let mut files = Vec::new();
    let mut text = |name: String, text: String| {
        files.push((name, Extract::Text(text.into_bytes())));
    };
    match &placed.frame.event {
        Event::Store(StoreEvent::CheckpointSigned(signed)) => {
            let name = format!("checkpoints/{:012}.note", signed.size);
            text(name, signed.note.clone());
        }
        Event::Store(StoreEvent::KeyAdded(added)) => {
            if let Ok(key) = PublicKey::from_base64(origin, &added.public_key) {
                let name = format!("keys/{:08}-{}.pub", placed.frame.seq, key.id_text());
                text(name, format!("{key}\n"));
            }
        }
        Event::Store(StoreEvent::KeyRevoked(revoked)) => {
            let name = format!("keys/{:08}-revoked.note", placed.frame.seq);
            text(name, revoked.note.clone());
        }
        _ => {}
    }
    let definitions = placed.frame.ext.iter();
    let definitions = definitions.filter(|external| external.path == "/definition");
    files.extend(definitions.map(|external| {
        let name = format!("config/{}.json", external.hash);
        (name, Extract::Blob(external.hash))
    }));
    files
}

/// `frames.csv`.
pub fn frame_index(frames: &[PositionedFrame]) -> String {
    let mut text = format!("{COLUMNS}\n");
    for PositionedFrame { position, frame } in frames {
        let (stream, seq, hash) = (&frame.stream, frame.seq, frame.hash);
        let _ = writeln!(text, "{position},{stream},{seq},{hash}");
    }
    text
}

/// The range of frames of each stream.
pub fn ranges(frames: &[PositionedFrame]) -> BTreeMap<String, Range> {
    let mut ranges: BTreeMap<String, Range> = BTreeMap::new();
    for PositionedFrame { frame, .. } in frames {
        let fresh = || Range {
            first: frame.seq,
            frames: 0,
            head: frame.hash,
        };
        let range = ranges.entry(frame.stream.to_string()).or_insert_with(fresh);
        range.frames += 1;
        range.head = frame.hash;
    }
    ranges
}

/// The keys the frames tell of, those that are damaged left out.
pub fn keys(origin: &str, frames: &[PositionedFrame]) -> Keys {
    let mut keys = Keys::new(origin);
    for placed in frames {
        if let Event::Store(event) = &placed.frame.event {
            let _ = keys.take(event);
        }
    }
    keys
}
