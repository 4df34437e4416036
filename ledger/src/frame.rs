//! Frames: immutable events, and their stored bytes.
//!
//! A frame's **body** is compact JSON with its members in a fixed order; its **hash** is BLAKE3 of
//! exactly those bytes; `prev` is the hash of the previous frame in its stream. Checking never
//! re-serialises: the stored bytes are the hashed bytes.
//!
//! ```text
//! Draft ──seal(link)──▶ Sealed { body, hash, blobs, frame }      frame is parsed from body
//! Record { seq, hash, body } ──decode(blobs)──▶ Frame
//! ```
//!
//! A member of `data` over [`MAX_INLINE`] bytes moves into a blob, listed in `ext`, and is replaced
//! by null. Decoding inserts it again.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::value::RawValue;

use crate::canonical::CanonicalJson;
use crate::event::{DEFINITION, Event, LOCK};
pub use crate::frame_body::{External, VERSION};
use crate::frame_body::{FrameBodyError, ParsedBody, parse_body};
use crate::hash::Hash;
use crate::id::{Actor, Cause, StreamId};
use crate::time::Timestamp;

/// The most bytes of a body.
pub const MAX_BODY: usize = 256 * 1024;
/// The most bytes of a member of `data` that stays in the frame.
pub const MAX_INLINE: usize = 64 * 1024;

/// A frame, read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// The stream it belongs to.
    pub stream: StreamId,
    /// Its number there, from 0, without gaps.
    pub seq: u64,
    /// The inline child it belongs to: step ids joined by `/`; empty for the run itself.
    pub scope: String,
    /// Its author.
    pub actor: Actor,
    /// The frames it follows from; empty for a root.
    pub cause: Vec<Cause>,
    /// The time at which its turn began.
    pub at: Timestamp,
    /// The fact.
    pub event: Event,
    /// Members of `data` that are kept as blobs.
    pub ext: Vec<External>,
    /// The hash of the frame before it.
    pub prev: Hash,
    /// The hash of this frame's body.
    pub hash: Hash,
}

/// A frame as a store keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number in its stream.
    pub seq: u64,
    /// The stored hash.
    pub hash: Hash,
    /// The stored bytes.
    pub body: String,
}

/// Content kept once under its hash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Blob {
    /// BLAKE3 of the text.
    pub hash: Hash,
    /// Canonical JSON.
    pub text: CanonicalJson,
}

/// An event to append that has no position yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Draft {
    /// See [`Frame::scope`].
    pub scope: String,
    /// See [`Frame::actor`].
    pub actor: Actor,
    /// See [`Frame::cause`].
    pub cause: Vec<Cause>,
    /// The fact.
    pub event: Event,
}

/// The place a frame gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The stream.
    pub stream: StreamId,
    /// The number.
    pub seq: u64,
    /// The hash of the frame before it.
    pub prev: Hash,
}

/// A frame ready to be appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    /// The bytes that are hashed and stored.
    pub record: Record,
    /// The members that moved out of it.
    pub blobs: Vec<Blob>,
    /// The frame that reading those bytes gives: live state folds this, as recovered state will.
    pub frame: Frame,
}

/// The reason why a frame cannot be written or read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// Larger than [`MAX_BODY`] even with its large members moved out.
    #[error("a frame of {0} bytes, which is more than {MAX_BODY}")]
    TooLarge(usize),
    /// The bytes are not a frame.
    #[error("not a frame: {0}")]
    Malformed(String),
    /// A blob it names is not there.
    #[error("the blob {0} is missing")]
    MissingBlob(Hash),
    /// A format version this program does not know.
    #[error("frame format {0}, while this version of ktsu knows {VERSION}")]
    Version(u64),
}

impl Draft {
    /// Gives the draft its position and its bytes.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`], and [`FrameError::Malformed`] if the bytes do not read back, which
    /// would be a defect of ours.
    pub fn seal(mut self, link: Link, at: Timestamp) -> Result<Sealed, FrameError> {
        // A definition may be large, and is neither written again nor read again for each run.
        let shared = self.event.take_shared();
        let mut data = to_text(&Data(&self.event))?;
        let (mut ext, mut blobs): (Vec<_>, Vec<_>) = shared.iter().map(moved_out).unzip();
        let moves_more = data.len() > MAX_INLINE;
        if moves_more {
            // Which members move out then depends on the size of all of them.
            self.event.put_shared(&shared);
            data = to_text(&Data(&self.event))?;
            (data, ext, blobs) = move_out(&data, !shared.is_empty())?;
        }
        let body = Body {
            link: &link,
            draft: &self,
            at,
            data: &data,
            ext: &ext,
        }
        .to_text()?;
        if body.len() > MAX_BODY {
            return Err(FrameError::TooLarge(body.len()));
        }
        let hash = Hash::of(body.as_bytes());
        let record = Record {
            seq: link.seq,
            hash,
            body,
        };
        let frame = if moves_more {
            record.decode(&mut |wanted| {
                let found = blobs.iter().find(|blob| blob.hash == *wanted);
                Ok(found.map(|blob| blob.text.clone()))
            })?
        } else {
            let mut frame = self.read_back(&data, link, at, hash)?;
            frame.event.put_shared(&shared);
            frame.ext = ext;
            frame
        };
        Ok(Sealed {
            record,
            blobs,
            frame,
        })
    }
}

impl Draft {
    /// The frame as its bytes read. Only `data` can differ from what was written (an output of null
    /// is no output), so only `data` is read.
    fn read_back(
        self,
        data: &str,
        link: Link,
        at: Timestamp,
        hash: Hash,
    ) -> Result<Frame, FrameError> {
        if !self.actor.is_written_plainly() {
            return Err(FrameError::Malformed("not an actor".to_owned()));
        }
        let mut reader = serde_json::Deserializer::from_str(data);
        let event = Event::deserialize_data(self.event.kind(), &mut reader).map_err(malformed)?;
        reader.end().map_err(malformed)?;
        Ok(Frame {
            stream: link.stream,
            seq: link.seq,
            scope: self.scope,
            actor: self.actor,
            cause: self.cause,
            at,
            event,
            ext: Vec::new(),
            prev: link.prev,
            hash,
        })
    }
}

impl Record {
    /// Reads the stored bytes and inserts the blobs.
    ///
    /// # Errors
    /// [`FrameError`]; `E` is the error of reading a blob.
    pub fn decode<E: From<FrameError>>(
        &self,
        blobs: &mut dyn FnMut(&Hash) -> Result<Option<CanonicalJson>, E>,
    ) -> Result<Frame, E> {
        self.decode_some(&|_| true, blobs)
    }

    /// As [`Record::decode`], with those blobs alone that are wanted. Where another one belongs, the frame
    /// has null.
    ///
    /// # Errors
    /// As [`Record::decode`].
    pub fn decode_some<E: From<FrameError>>(
        &self,
        is_wanted: &dyn Fn(&External) -> bool,
        blobs: &mut dyn FnMut(&Hash) -> Result<Option<CanonicalJson>, E>,
    ) -> Result<Frame, E> {
        let mut frame = self.decode_bare().map_err(E::from)?;
        if frame.ext.is_empty() {
            return Ok(frame);
        }
        let data = to_text(&Data(&frame.event))?;
        let mut members = members(&data)?;
        let mut texts = Vec::with_capacity(frame.ext.len());
        for external in &frame.ext {
            texts.push(match is_wanted(external) {
                false => None,
                true => {
                    let text = blobs(&external.hash)?;
                    Some(text.ok_or(FrameError::MissingBlob(external.hash))?)
                }
            });
        }
        for (external, text) in frame.ext.iter().zip(&texts) {
            let name = external.path.strip_prefix('/').unwrap_or_default();
            let name = name.replace("~1", "/").replace("~0", "~");
            let is_left_out = |before: &RawValue| match before.get() {
                "null" => true,
                // As a member reads that is null in the frame, and is never null otherwise.
                "\"\"" | "[]" | "{}" => self.has_null(&name),
                _ => false,
            };
            let before = members.get(&name);
            if !before.is_none_or(|before| is_left_out(before)) {
                let taken = format!("{} is both in the frame and in a blob", external.path);
                return Err(FrameError::Malformed(taken).into());
            }
            if let Some(text) = text {
                let raw = serde_json::from_str(text.as_str()).map_err(malformed)?;
                members.insert(name, raw);
            }
        }
        let whole = to_text(&members)?;
        let mut reader = serde_json::Deserializer::from_str(&whole);
        frame.event =
            Event::deserialize_data(frame.event.kind(), &mut reader).map_err(malformed)?;
        Ok(frame)
    }

    /// Returns `true` if a member of the stored `data` is null.
    fn has_null(&self, name: &str) -> bool {
        let body = serde_json::from_str::<BTreeMap<&str, &RawValue>>(&self.body);
        let data = body.ok().and_then(|body| body.get("data").copied());
        let data = data.and_then(|data| members(data.get()).ok());
        data.is_some_and(|data| data.get(name).is_some_and(|it| it.get() == "null"))
    }

    /// Reads the stored bytes, leaving null where a blob belongs.
    ///
    /// # Errors
    /// [`FrameError`].
    pub fn decode_bare(&self) -> Result<Frame, FrameError> {
        read_body(&self.body, self.hash)
    }

    /// The body with `hash` appended: the form the API, exports and people see.
    pub fn to_json(&self) -> String {
        let open = self.body.strip_suffix('}').unwrap_or(&self.body);
        format!(r#"{open},"hash":"{}"}}"#, self.hash)
    }

    /// As [`Record::to_json`], with the blobs that were put back into `frame` in their places. The
    /// hash stays that of the stored bytes.
    pub fn to_json_with(&self, frame: &Frame) -> String {
        let whole = to_text(&Data(&frame.event));
        let bare = serde_json::from_str::<BTreeMap<&str, &RawValue>>(&self.body);
        let (Ok(whole), Ok(bare)) = (whole, bare) else {
            return self.to_json();
        };
        match bare.get("data") {
            Some(data) => self.to_json().replacen(data.get(), &whole, 1),
            None => self.to_json(),
        }
    }
}

impl Frame {
    /// Reads what [`Record::to_json`] writes, without the members that the API puts behind it. The
    /// hash is not checked.
    ///
    /// # Errors
    /// [`FrameError::Malformed`] and [`FrameError::Version`].
    pub fn from_json(text: &str) -> Result<Self, FrameError> {
        let malformed = || FrameError::Malformed("no hash".to_owned());
        let parts = text.trim().rsplit_once(r#","hash":""#);
        let (open, hash) = parts.ok_or_else(malformed)?;
        let hash = hash.split('"').next().and_then(|hash| hash.parse().ok());
        let hash = hash.ok_or_else(malformed)?;
        read_body(&format!("{open}}}"), hash)
    }

    /// `stream#seq`, the identity of a frame.
    pub fn id(&self) -> String {
        format!("{}#{}", self.stream, self.seq)
    }
}

fn read_body(body: &str, hash: Hash) -> Result<Frame, FrameError> {
    let body: ParsedBody<'_, Event> = parse_body(body).map_err(unread)?;
    Ok(Frame {
        stream: body.stream,
        seq: body.seq,
        scope: body.scope,
        actor: body.actor,
        cause: body.cause,
        at: body.at,
        event: body.content,
        ext: body.ext,
        prev: body.prev,
        hash,
    })
}

pub(crate) fn unread(error: FrameBodyError) -> FrameError {
    match error {
        FrameBodyError::Malformed(why) => FrameError::Malformed(why),
        FrameBodyError::Version(version) => FrameError::Version(version),
    }
}

/// The body in writing.
struct Body<'a> {
    link: &'a Link,
    draft: &'a Draft,
    at: Timestamp,
    data: &'a str,
    ext: &'a [External],
}

impl Body<'_> {
    fn to_text(&self) -> Result<String, FrameError> {
        use std::io::Write as _;
        let Draft {
            scope,
            actor,
            cause,
            event,
        } = self.draft;
        // Streams and actors are made of characters that need no escaping; scopes and types come
        // from files or from outside.
        let mut text = Vec::with_capacity(self.data.len() + 384);
        let (stream, seq) = (&self.link.stream, self.link.seq);
        let written = write!(
            text,
            r#"{{"v":{VERSION},"stream":"{stream}","seq":{seq},"type":"#
        );
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
        append(&mut text, event.kind())?;
        text.extend_from_slice(br#","scope":"#);
        append(&mut text, scope)?;
        let written = write!(text, r#","actor":"{actor}","cause":"#);
        debug_assert!(written.is_ok(), "writing to memory cannot fail");
        append(&mut text, cause)?;
        text.extend_from_slice(br#","at":"#);
        append(&mut text, &self.at)?;
        text.extend_from_slice(br#","data":"#);
        text.extend_from_slice(self.data.as_bytes());
        text.extend_from_slice(br#","ext":"#);
        append(&mut text, self.ext)?;
        text.extend_from_slice(br#","prev":"#);
        append(&mut text, &self.link.prev)?;
        text.push(b'}');
        String::from_utf8(text).map_err(|error| FrameError::Malformed(error.to_string()))
    }
}

/// `data` of an event, in writing.
struct Data<'a>(&'a Event);

impl Serialize for Data<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize_data(serializer)
    }
}

fn to_text<T: Serialize + ?Sized>(value: &T) -> Result<String, FrameError> {
    serde_json::to_string(value).map_err(malformed)
}

fn append<T: Serialize + ?Sized>(text: &mut Vec<u8>, value: &T) -> Result<(), FrameError> {
    serde_json::to_writer(text, value).map_err(malformed)
}

fn malformed(error: serde_json::Error) -> FrameError {
    FrameError::Malformed(error.to_string())
}

fn members(data: &str) -> Result<BTreeMap<String, Box<RawValue>>, FrameError> {
    serde_json::from_str(data).map_err(malformed)
}

/// Members of the frame that brings a definition which many runs have in common: blobs are stored
/// once.
const SHARED: [&str; 2] = [DEFINITION, LOCK];

/// A member of `data` that moves out whatever its size.
fn moved_out((name, text): &(&'static str, CanonicalJson)) -> (External, Blob) {
    let hash = Hash::of(text.as_str().as_bytes());
    let external = External {
        bytes: text.as_str().len() as u64,
        hash,
        path: format!("/{name}"),
    };
    let text = text.clone();
    (external, Blob { hash, text })
}

/// Moves large members out of `data`: all over [`MAX_INLINE`], then the largest ones while the rest
/// is too large for a frame. Members that runs share are moved at any size, if wanted.
fn move_out(
    data: &str,
    shared_too: bool,
) -> Result<(String, Vec<External>, Vec<Blob>), FrameError> {
    let mut members = members(data)?;
    let mut ext = Vec::new();
    let mut blobs = Vec::new();
    // The body without `data` is far smaller than this.
    let room = MAX_BODY - 8 * 1024;
    loop {
        let total: usize = members
            .iter()
            .map(|(name, raw)| name.len() + raw.get().len() + 4)
            .sum();
        let next = members
            .iter()
            .filter(|(name, raw)| {
                let named = shared_too && SHARED.contains(&name.as_str()) && raw.get() != "null";
                named || raw.get().len() > MAX_INLINE || (total > room && raw.get().len() > 256)
            })
            .max_by_key(|(_, raw)| raw.get().len())
            .map(|(name, _)| name.clone());
        let Some(name) = next else { break };
        let null = RawValue::NULL.to_owned();
        let Some(raw) = members.insert(name.clone(), null) else {
            break;
        };
        let hash = Hash::of(raw.get().as_bytes());
        ext.push(External {
            bytes: raw.get().len() as u64,
            hash,
            path: format!("/{}", name.replace('~', "~0").replace('/', "~1")),
        });
        blobs.push(Blob {
            hash,
            text: CanonicalJson::from(raw),
        });
    }
    ext.sort_by(|left: &External, right| left.path.cmp(&right.path));
    Ok((to_text(&members)?, ext, blobs))
}
