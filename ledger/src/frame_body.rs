//! The reading of stored bodies: all members in their places, and as much of the content as is wanted.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{DeserializeSeed, Error as _, MapAccess, Visitor};
use serde::{Deserialize, Serialize};

use crate::event::Event;
use crate::hash::Hash;
use crate::id::{Actor, Cause, StreamId};
use crate::time::Timestamp;

/// The version of the frame format.
pub const VERSION: u8 = 1;

/// A member of `data` that moved out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct External {
    /// Its length.
    pub bytes: u64,
    /// BLAKE3 of its canonical text.
    pub hash: Hash,
    /// JSON pointer into `data`, always one level deep.
    pub path: String,
}

/// The content of a frame, or a part of it.
pub(crate) trait FrameContent: Sized {
    /// Reads `data` of a type.
    fn read_data<'de, D: serde::Deserializer<'de>>(kind: &str, data: D) -> Result<Self, D::Error>;
}

impl FrameContent for Event {
    fn read_data<'de, D: serde::Deserializer<'de>>(kind: &str, data: D) -> Result<Self, D::Error> {
        Self::deserialize_data(kind, data)
    }
}

/// The members of a body, with as much of `data` as `T` has.
pub(crate) struct ParsedBody<'a, T> {
    pub(crate) stream: StreamId,
    pub(crate) seq: u64,
    pub(crate) kind: Cow<'a, str>,
    pub(crate) scope: String,
    pub(crate) actor: Actor,
    pub(crate) cause: Vec<Cause>,
    pub(crate) at: Timestamp,
    pub(crate) content: T,
    pub(crate) ext: Vec<External>,
    pub(crate) prev: Hash,
}

/// The reason why bytes are not a body.
#[derive(Debug)]
pub(crate) enum FrameBodyError {
    /// They are something else.
    Malformed(String),
    /// It is of a version that this program does not know.
    Version(u64),
}

/// Reads the bytes of a body in one typed pass: `type` precedes `data`, so `data` is read as that type.
///
/// # Errors
/// [`FrameBodyError`].
pub(crate) fn parse_body<T: FrameContent>(body: &str) -> Result<ParsedBody<'_, T>, FrameBodyError> {
    let mut reader = serde_json::Deserializer::from_str(body);
    let parsed = serde::Deserializer::deserialize_map(&mut reader, BodyVisitor(PhantomData));
    let parsed = parsed.and_then(|parsed| reader.end().map(|()| parsed));
    parsed.map_err(|error| {
        unknown_version(body).unwrap_or_else(|| FrameBodyError::Malformed(error.to_string()))
    })
}

fn unknown_version(body: &str) -> Option<FrameBodyError> {
    #[derive(Deserialize)]
    struct Versioned {
        v: u64,
    }
    let Versioned { v } = serde_json::from_str(body).ok()?;
    (v != u64::from(VERSION)).then_some(FrameBodyError::Version(v))
}

/// A type, borrowed from the body.
#[derive(Deserialize)]
struct Kind<'a>(#[serde(borrow)] Cow<'a, str>);

struct BodyVisitor<T>(PhantomData<T>);

/// Reads the next member, which must have this name.
fn member<'de, A: MapAccess<'de>, T: Deserialize<'de>>(
    map: &mut A,
    name: &'static str,
) -> Result<T, A::Error> {
    expect_key(map, name)?;
    map.next_value()
}

fn expect_key<'de, A: MapAccess<'de>>(map: &mut A, name: &'static str) -> Result<(), A::Error> {
    match map.next_key::<&str>()? {
        Some(key) if key == name => Ok(()),
        Some(_) | None => Err(A::Error::custom(format_args!("{name} is not in its place"))),
    }
}

impl<'de, T: FrameContent> Visitor<'de> for BodyVisitor<T> {
    type Value = ParsedBody<'de, T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a frame")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let version: u8 = member(&mut map, "v")?;
        if version != VERSION {
            return Err(A::Error::custom("an unknown version"));
        }
        let stream = member(&mut map, "stream")?;
        let seq = member(&mut map, "seq")?;
        let Kind(kind) = member(&mut map, "type")?;
        let scope = member(&mut map, "scope")?;
        let actor = member(&mut map, "actor")?;
        let cause = member(&mut map, "cause")?;
        let at = member(&mut map, "at")?;
        expect_key(&mut map, "data")?;
        let content = map.next_value_seed(DataOf(&kind, PhantomData))?;
        let ext = member(&mut map, "ext")?;
        let prev = member(&mut map, "prev")?;
        if map.next_key::<&str>()?.is_some() {
            return Err(A::Error::custom("a member after prev"));
        }
        Ok(ParsedBody {
            stream,
            seq,
            kind,
            scope,
            actor,
            cause,
            at,
            content,
            ext,
            prev,
        })
    }
}

/// Reads `data` of a known type.
struct DataOf<'a, T>(&'a str, PhantomData<T>);

impl<'de, T: FrameContent> DeserializeSeed<'de> for DataOf<'_, T> {
    type Value = T;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<T, D::Error> {
        T::read_data(self.0, reader)
    }
}
