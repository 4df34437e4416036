//! BLAKE3 digests, as frames carry them: 64 lower-case hexadecimal digits.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The digest of stored bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Hash([u8; 32]);

impl Hash {
    /// The `prev` of the first frame of a stream.
    pub const ZERO: Self = Self([0; 32]);

    /// The digest of some bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(*blake3::hash(bytes).as_bytes())
    }

    /// The 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The text: 64 digits.
    pub(crate) fn digits(&self) -> [u8; 64] {
        let mut text = [0; 64];
        let (pairs, _) = text.as_chunks_mut::<2>();
        for (pair, byte) in pairs.iter_mut().zip(self.0) {
            *pair = [digit_of(byte >> 4), digit_of(byte & 0xf)];
        }
        text
    }

    /// Takes 32 bytes read from a store; `None` for any other number of them.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is not 64 lower-case hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a digest of 64 hexadecimal digits")]
pub struct ParseHashError;

impl FromStr for Hash {
    type Err = ParseHashError;

    fn from_str(text: &str) -> Result<Self, ParseHashError> {
        let (pairs, []) = text.as_bytes().as_chunks::<2>() else {
            return Err(ParseHashError);
        };
        let mut hash = [0; 32];
        if pairs.len() != hash.len() {
            return Err(ParseHashError);
        }
        let mut wrong = 0;
        for (byte, [high, low]) in hash.iter_mut().zip(pairs) {
            let (high, low) = (digit(*high), digit(*low));
            wrong |= high | low;
            *byte = high << 4 | low;
        }
        if wrong > 0xf {
            return Err(ParseHashError);
        }
        Ok(Self(hash))
    }
}

/// The digit of a value below sixteen.
fn digit_of(value: u8) -> u8 {
    match value {
        0..=9 => b'0' + value,
        _ => b'a' + value - 10,
    }
}

/// The value of a digit, or more than fifteen. One spelling for one digest: upper case would be
/// another text for the same bytes.
fn digit(text: u8) -> u8 {
    match text {
        b'0'..=b'9' => text - b'0',
        b'a'..=b'f' => text - b'a' + 10,
        _ => u8::MAX,
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(std::str::from_utf8(&self.digits()).unwrap_or_default())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        crate::text::parse(deserializer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_of_a_digest_is_its_bytes_in_lower_case_and_reads_back() {
        let bytes: [u8; 32] = std::array::from_fn(|at| (at * 8 + at / 2) as u8);
        let hash = Hash(bytes);
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hash.to_string(), text);
        assert_eq!(serde_json::to_value(hash).unwrap(), text.as_str());
        assert_eq!(text.parse(), Ok(hash));
    }
}
