//! Archives as plain tar files: written the same every time, read as strictly as they are written.
//!
//! One kind of entry, a file with a short name; no times, no owners; names in ascending order. A
//! reader that takes nothing else has nothing to be tricked with: no links, no paths that lead
//! elsewhere, no name twice, no size beyond the bytes that are there.

use std::collections::BTreeMap;

/// Files by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

const BLOCK: usize = 512;
/// The longest name: what the header has room for.
const MAX_NAME: usize = 100;
/// The largest file: what eleven octal digits say.
const MAX_SIZE: u64 = 0o777_7777_7777;

/// Why bytes are not such an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an archive of evidence: {what}, at byte {at}")]
pub struct NotAnArchive {
    /// What is wrong.
    pub what: &'static str,
    /// Where.
    pub at: usize,
}

/// Whether a name leads nowhere but into the archive.
pub fn is_name(name: &str) -> bool {
    let part = |part: &str| {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        !part.is_empty() && !part.starts_with('.') && part.bytes().all(plain)
    };
    name.len() < MAX_NAME && name.split('/').count() <= 3 && name.split('/').all(part)
}

/// The bytes of an archive.
///
/// # Errors
/// A name or a file that an archive has no room for.
pub fn write(files: &Files) -> Result<Vec<u8>, String> {
    let total: usize = files.values().map(|file| file.len() + 2 * BLOCK).sum();
    let mut out = Vec::with_capacity(total + 2 * BLOCK);
    for (name, file) in files {
        if !is_name(name) || file.len() as u64 > MAX_SIZE {
            return Err(format!("{name} does not fit into an archive"));
        }
        out.extend_from_slice(&header(name, file.len()));
        out.extend_from_slice(file);
        out.resize(out.len().next_multiple_of(BLOCK), 0);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    Ok(out)
}

fn header(name: &str, size: usize) -> [u8; BLOCK] {
    let mut header = [0; BLOCK];
    let mut put = |at: usize, bytes: &[u8]| {
        if let Some(place) = header.get_mut(at..at + bytes.len()) {
            place.copy_from_slice(bytes);
        }
    };
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, format!("{size:011o}\0").as_bytes());
    put(136, b"00000000000\0");
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    let sum = format!("{sum:06o}\0 ");
    if let Some(place) = header.get_mut(148..156) {
        place.copy_from_slice(sum.as_bytes());
    }
    header
}

/// Reads an archive. It takes no more memory than the bytes it is given.
///
/// # Errors
/// [`NotAnArchive`].
pub fn read(bytes: &[u8]) -> Result<Files, NotAnArchive> {
    let mut files = Files::new();
    let mut at = 0;
    loop {
        let wrong = |what| NotAnArchive { what, at };
        let block: &[u8; BLOCK] = bytes
            .get(at..at + BLOCK)
            .and_then(|block| block.try_into().ok())
            .ok_or_else(|| wrong("it ends early"))?;
        if *block == [0; BLOCK] {
            let rest = bytes.get(at..).unwrap_or_default();
            return match rest.len() == 2 * BLOCK && rest.iter().all(|byte| *byte == 0) {
                true => Ok(files),
                false => Err(wrong("something stands behind its end")),
            };
        }
        let name: &[u8] = block.split(|byte| *byte == 0).next().unwrap_or_default();
        let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
        let name = name.ok_or_else(|| wrong("a name that no archive of evidence has"))?;
        let digits = block
            .get(124..135)
            .and_then(|digits| std::str::from_utf8(digits).ok());
        let octal = digits.filter(|digits| digits.bytes().all(|one| matches!(one, b'0'..=b'7')));
        let size = octal.and_then(|digits| usize::from_str_radix(digits, 8).ok());
        let size = size.ok_or_else(|| wrong("a size that is no number"))?;
        // Everything else in a header follows from name and size.
        if *block != header(name, size) {
            return Err(wrong("a header that no archive of evidence has"));
        }
        let from = at + BLOCK;
        let file = from.checked_add(size).and_then(|to| bytes.get(from..to));
        let file = file.ok_or_else(|| wrong("a file that is longer than the archive"))?;
        let next = (from + size).next_multiple_of(BLOCK);
        let padding = bytes.get(from + size..next);
        if padding.is_none_or(|padding| padding.iter().any(|byte| *byte != 0)) {
            return Err(wrong("something stands between two files"));
        }
        if files
            .last_key_value()
            .is_some_and(|(last, _)| last.as_str() >= name)
        {
            return Err(wrong("a name twice or out of order"));
        }
        files.insert(name.to_owned(), file.to_vec());
        at = next;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Files {
        let file = |name: &str, text: &str| (name.to_owned(), text.as_bytes().to_vec());
        let long = "x".repeat(513);
        Files::from([file("a.txt", "a"), file("b/c.json", &long), file("z", "")])
    }

    #[test]
    fn what_is_written_reads_back_and_is_the_same_every_time() {
        let bytes = write(&sample()).unwrap();
        assert_eq!(bytes, write(&sample()).unwrap());
        assert_eq!(read(&bytes).unwrap(), sample());
        assert_eq!(read(&write(&Files::new()).unwrap()).unwrap(), Files::new());
    }

    #[test]
    fn names_that_lead_elsewhere_are_neither_written_nor_read() {
        for name in [
            "",
            "/etc/passwd",
            "../x",
            "a/../b",
            "a//b",
            "a\\b",
            ".x",
            "a b",
            "a/b/c/d",
        ] {
            let files = Files::from([(name.to_owned(), Vec::new())]);
            assert!(write(&files).is_err(), "{name}");
            let mut bytes = header(name, 0).to_vec();
            bytes.extend_from_slice(&[0; 1024]);
            assert!(read(&bytes).is_err(), "{name}");
        }
    }

    #[test]
    fn every_changed_bit_of_a_header_and_every_cut_is_refused() {
        let bytes = write(&sample()).unwrap();
        for at in 0..BLOCK {
            let mut changed = bytes.clone();
            changed[at] ^= 1;
            assert!(read(&changed).is_err() || at < MAX_NAME, "{at}");
        }
        for length in 0..bytes.len() {
            assert!(read(&bytes[..length]).is_err(), "{length}");
        }
        let twice = [&bytes[..1024], &bytes[..]].concat();
        assert_eq!(
            read(&twice).unwrap_err().what,
            "a name twice or out of order"
        );
        let huge = [&header("x", 0o777_7777_7777)[..], &[0; 1024]].concat();
        assert_eq!(
            read(&huge).unwrap_err().what,
            "a file that is longer than the archive"
        );
    }
}
