//! Archives as plain tar files: written the same every time, read as strictly as they are written.
//!
//! One kind of entry, a file with a short name; no times, no owners; names in ascending order. A
//! reader that accepts nothing else cannot be tricked: no links, no paths that lead elsewhere, no
//! duplicate names, no size beyond the existing bytes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::{self, Read, Seek, SeekFrom};

/// Files by their names.
pub type Files = BTreeMap<String, Vec<u8>>;

const BLOCK: usize = 512;
/// The longest name: what the header has room for.
const MAX_NAME: usize = 100;
/// The largest file: what eleven octal digits say.
const MAX_SIZE: u64 = 0o777_7777_7777;

/// The reason why bytes are not such an archive.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an archive of evidence: {what}, at byte {at}")]
pub struct ReadArchiveError {
    /// The fault.
    pub what: &'static str,
    /// The byte at which it was found.
    pub at: u64,
}

/// Returns `true` if a name is a plain path within the archive.
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

/// Reads an archive that is in memory already, whole.
///
/// # Errors
/// [`ReadArchiveError`].
pub fn read(bytes: &[u8]) -> Result<Files, ReadArchiveError> {
    let archive = Archive::open(std::io::Cursor::new(bytes))?;
    let file = |(name, place): (&String, &FileSpan)| {
        let from = usize::try_from(place.begin).ok()?;
        let size = usize::try_from(place.size).ok()?;
        let file = bytes.get(from..from.checked_add(size)?)?;
        Some((name.clone(), file.to_vec()))
    };
    Ok(archive.places.iter().filter_map(file).collect())
}

/// The place of a file in an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileSpan {
    /// Its first byte.
    pub begin: u64,
    /// The number of its bytes.
    pub size: u64,
}

/// Whatever an archive is read from.
pub trait ArchiveSource: Read + Seek {}

impl<T: Read + Seek> ArchiveSource for T {}

/// An archive, read piece by piece: what is held of it is where its files are.
pub struct Archive<'a> {
    source: RefCell<Box<dyn ArchiveSource + 'a>>,
    places: BTreeMap<String, FileSpan>,
}

/// The number of bytes of a file that are read at once.
const CHUNK_BYTES: usize = 64 * 1024;

impl<'a> Archive<'a> {
    /// Finds the files of an archive.
    ///
    /// # Errors
    /// [`ReadArchiveError`].
    pub fn open(source: impl ArchiveSource + 'a) -> Result<Self, ReadArchiveError> {
        let mut source: Box<dyn ArchiveSource + 'a> = Box::new(source);
        let mut places: BTreeMap<String, FileSpan> = BTreeMap::new();
        let unread = |_| ReadArchiveError {
            what: "it cannot be read",
            at: 0,
        };
        let length = source.seek(SeekFrom::End(0)).map_err(unread)?;
        let mut at = 0;
        loop {
            let wrong = |what| ReadArchiveError { what, at };
            let block = part(&mut *source, at, BLOCK).map_err(|_| wrong("it ends early"))?;
            if block.iter().all(|byte| *byte == 0) {
                let rest = part(&mut *source, at, 2 * BLOCK);
                let ends = rest.is_ok_and(|rest| rest.iter().all(|byte| *byte == 0));
                return match ends && length - at == 2 * BLOCK as u64 {
                    true => Ok(Self {
                        source: RefCell::new(source),
                        places,
                    }),
                    false => Err(wrong("there is data after its end")),
                };
            }
            let (name, size) = named(&block).map_err(wrong)?;
            let begin = at + BLOCK as u64;
            let end = begin.checked_add(size).filter(|end| *end <= length);
            let end = end.ok_or_else(|| wrong("a file that is longer than the archive"))?;
            let next = end.next_multiple_of(BLOCK as u64);
            let padding = usize::try_from(next - end).unwrap_or(BLOCK);
            let padding = part(&mut *source, end, padding);
            if !padding.is_ok_and(|padding| padding.iter().all(|byte| *byte == 0)) {
                return Err(wrong("there is data between two files"));
            }
            if places
                .last_key_value()
                .is_some_and(|(last, _)| *last >= name)
            {
                return Err(wrong("a name twice or out of order"));
            }
            places.insert(name, FileSpan { begin, size });
            at = next;
        }
    }

    /// The names of the files, in order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.places.keys().map(String::as_str)
    }

    /// The place of a file.
    pub fn place(&self, name: &str) -> Option<FileSpan> {
        self.places.get(name).copied()
    }

    /// Some bytes.
    ///
    /// # Errors
    /// What the system says; also where there are not so many.
    pub fn part(&self, begin: u64, length: usize) -> io::Result<Vec<u8>> {
        part(&mut **self.source.borrow_mut(), begin, length)
    }

    /// All bytes of a file, if there are no more than so many.
    pub fn whole(&self, name: &str, most: usize) -> Option<Vec<u8>> {
        let place = self.place(name)?;
        let length = usize::try_from(place.size).ok()?;
        let fits = length <= most;
        fits.then(|| self.part(place.begin, length).ok()).flatten()
    }

    /// The bytes of a file, one piece after another.
    ///
    /// # Errors
    /// What the system says.
    pub fn pieces(&self, place: FileSpan, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let (mut at, end) = (place.begin, place.begin + place.size);
        while at < end {
            let left = usize::try_from(end - at).unwrap_or(CHUNK_BYTES);
            let piece = self.part(at, left.min(CHUNK_BYTES))?;
            take(&piece);
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// The lines of a file.
    pub fn lines(&self, place: FileSpan) -> Lines<'_, 'a> {
        Lines {
            archive: self,
            begin: place.begin,
            at: place.begin,
            end: place.begin + place.size,
            piece: Vec::new(),
            looked_at: 0,
        }
    }
}

fn part(source: &mut dyn ArchiveSource, begin: u64, length: usize) -> io::Result<Vec<u8>> {
    source.seek(SeekFrom::Start(begin))?;
    let mut bytes = vec![0; length];
    source.read_exact(&mut bytes)?;
    Ok(bytes)
}

/// The name and the size in a header: everything else in it follows from them.
fn named(block: &[u8]) -> Result<(String, u64), &'static str> {
    let name: &[u8] = block.split(|byte| *byte == 0).next().unwrap_or_default();
    let name = std::str::from_utf8(name).ok().filter(|name| is_name(name));
    let name = name.ok_or("a name that no archive of evidence has")?;
    let digits = block
        .get(124..135)
        .and_then(|digits| std::str::from_utf8(digits).ok());
    let octal = digits.filter(|digits| digits.bytes().all(|one| matches!(one, b'0'..=b'7')));
    let size = octal.and_then(|digits| u64::from_str_radix(digits, 8).ok());
    let size = size.ok_or("a size that is not a number")?;
    match usize::try_from(size).is_ok_and(|size| *block == header(name, size)) {
        true => Ok((name.to_owned(), size)),
        false => Err("a header that no archive of evidence has"),
    }
}

/// The lines of a file: where each begins, and how long it is.
pub struct Lines<'s, 'a> {
    archive: &'s Archive<'a>,
    begin: u64,
    at: u64,
    end: u64,
    /// The bytes that were read before `at`.
    piece: Vec<u8>,
    looked_at: usize,
}

impl Lines<'_, '_> {
    /// Returns `true` if there is something behind the last end of a line.
    pub fn is_cut(&self) -> bool {
        self.begin != self.end
    }
}

impl Iterator for Lines<'_, '_> {
    type Item = io::Result<FileSpan>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let rest = self.piece.get(self.looked_at..).unwrap_or_default();
            if let Some(found) = rest.iter().position(|byte| *byte == b'\n') {
                self.looked_at += found + 1;
                let behind = self.at - (self.piece.len() - self.looked_at) as u64;
                let begin = std::mem::replace(&mut self.begin, behind);
                return Some(Ok(FileSpan {
                    begin,
                    size: behind - 1 - begin,
                }));
            }
            if self.at >= self.end {
                return None;
            }
            let left = usize::try_from(self.end - self.at).unwrap_or(CHUNK_BYTES);
            match self.archive.part(self.at, left.min(CHUNK_BYTES)) {
                Ok(piece) => {
                    self.at += piece.len() as u64;
                    (self.piece, self.looked_at) = (piece, 0);
                }
                Err(error) => {
                    self.end = self.at;
                    return Some(Err(error));
                }
            }
        }
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
