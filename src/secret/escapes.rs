//! Escapes: `\uXXXX` and `%XX`. Whole texts are escaped in order to search for them, and texts are
//! decoded, HTML character references included, in order to find partly escaped secrets.

use super::entities;

/// The most times that a text is read: an escape within an escape takes another round.
const MAX_ROUNDS: usize = 3;

/// Every character as `\uXXXX`, hexadecimal digits small or large.
pub(super) fn unicode(text: &str, lower: bool) -> String {
    let unit = |unit: u16| match lower {
        true => format!("\\u{unit:04x}"),
        false => format!("\\u{unit:04X}"),
    };
    text.encode_utf16().map(unit).collect()
}

/// Every byte as two hexadecimal digits, small or large, each behind the prefix.
pub(super) fn bytes(text: &str, prefix: &str, lower: bool) -> String {
    let byte = |byte: u8| match lower {
        true => format!("{prefix}{byte:02x}"),
        false => format!("{prefix}{byte:02X}"),
    };
    text.bytes().map(byte).collect()
}

/// The most bytes a text takes, whichever way each of its characters is written.
pub(super) fn longest(text: &str) -> usize {
    let most = |one: char| {
        let written = (6 * one.len_utf16()).max(3 * one.len_utf8());
        written.max(entities::MAX_ESCAPED_LENGTH)
    };
    text.chars().map(most).sum()
}

/// The text without its escapes; none if it has none.
pub(super) fn read(text: &str) -> Option<String> {
    let mut read = once(text)?;
    for _ in 1..MAX_ROUNDS {
        match once(&read) {
            Some(more) => read = more,
            None => break,
        }
    }
    Some(read)
}

fn once(text: &str) -> Option<String> {
    if !text.contains(['\\', '%', '&']) {
        return None;
    }
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    let mut found = false;
    while let Some(byte) = bytes.get(at) {
        match escape(&bytes[at..], &mut out) {
            0 => {
                out.push(*byte);
                at += 1;
            }
            length => {
                found = true;
                at += length;
            }
        }
    }
    // Bytes that are no text cannot be part of a secret, which is text.
    found.then(|| String::from_utf8_lossy(&out).into_owned())
}

/// Reads the escape a text begins with; gives its length, 0 if there is none.
fn escape(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    match bytes {
        [b'%', high, low, ..] => match number(&[*high, *low]).map(u8::try_from) {
            Some(Ok(byte)) => {
                out.push(byte);
                3
            }
            Some(Err(_)) | None => 0,
        },
        [b'&', ..] => match entities::reference(bytes) {
            Some((length, one)) => {
                out.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
                length
            }
            None => 0,
        },
        [b'\\', b'u', ..] => code_point(bytes, out),
        [b'\\', short, ..] => match short {
            b'"' | b'\'' | b'\\' | b'/' => push(out, *short),
            b'b' => push(out, 8),
            b'f' => push(out, 12),
            b'n' => push(out, b'\n'),
            b'r' => push(out, b'\r'),
            b't' => push(out, b'\t'),
            _ => 0,
        },
        _ => 0,
    }
}

fn push(out: &mut Vec<u8>, byte: u8) -> usize {
    out.push(byte);
    2
}

/// One `\uXXXX`, or two that make a pair.
fn code_point(bytes: &[u8], out: &mut Vec<u8>) -> usize {
    let units = [unit(bytes), bytes.get(6..).and_then(unit)];
    let units = units.into_iter().map_while(|unit| unit);
    match char::decode_utf16(units).next() {
        Some(Ok(one)) => {
            out.extend_from_slice(one.encode_utf8(&mut [0; 4]).as_bytes());
            6 * one.len_utf16()
        }
        Some(Err(_)) | None => 0,
    }
}

fn unit(bytes: &[u8]) -> Option<u16> {
    match bytes {
        [b'\\', b'u', digits @ ..] => number(digits.get(..4)?),
        _ => None,
    }
}

fn number(digits: &[u8]) -> Option<u16> {
    digits.iter().try_fold(0, |sum: u16, digit| {
        let digit = char::from(*digit).to_digit(16)?;
        Some(sum << 4 | u16::try_from(digit).ok()?)
    })
}
