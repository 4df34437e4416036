//! The frames of a stream one after another, decoded by a second thread where there are many.

use std::sync::mpsc::sync_channel;
use std::thread;

use ktsu_ledger::branch::{Ancestry, Blobs, BranchOrder, FramePlace};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, FrameError, FrameHead, Record, StreamId};

/// The frames of a page. A stream with fewer is decoded by this thread.
const PAGE: usize = 2_000;
/// The most pages that are with the second thread.
const PAGES_AHEAD: usize = 2;

/// Records, each with what was decoded of it.
type DecodedPage<T> = Vec<(Record, Result<T, FrameError>)>;

/// A frame, or what is read of it.
trait Decoded: Sized + Send {
    fn decode(record: &Record) -> Result<Self, FrameError>;
    fn place(&self) -> FramePlace<'_>;
}

impl Decoded for Frame {
    fn decode(record: &Record) -> Result<Self, FrameError> {
        record.decode_bare()
    }

    fn place(&self) -> FramePlace<'_> {
        self.into()
    }
}

impl Decoded for FrameHead {
    fn decode(record: &Record) -> Result<Self, FrameError> {
        record.decode_head()
    }

    fn place(&self) -> FramePlace<'_> {
        self.into()
    }
}

/// All frames of a stream, blobs put back. A stream that does not exist has none.
///
/// # Errors
/// [`StoreError`], also for a frame that does not follow from what is before it.
pub(crate) fn frames(reader: &dyn Reader, stream: &StreamId) -> Result<Vec<Frame>, StoreError> {
    let mut blobs = Blobs::new(reader);
    let mut frames = Vec::new();
    let whole = |record: &Record, bare: Result<Frame, FrameError>| match bare {
        Ok(frame) if frame.ext.is_empty() => Ok(frame),
        _ => blobs.decode(stream, record),
    };
    each_by(PAGE, (reader, stream), whole, |frame| {
        frames.push(frame);
        Ok::<_, StoreError>(())
    })?;
    Ok(frames)
}

/// Hands over the frames of a stream in order, without their content. What is held are a few pages of stored frames.
///
/// # Errors
/// Those of `take`, of reading, and of a frame that does not follow from what is before it.
pub(crate) fn each_head<E: From<StoreError>>(
    reader: &dyn Reader,
    stream: &StreamId,
    take: impl FnMut(FrameHead) -> Result<(), E>,
) -> Result<(), E> {
    let sound = |record: &Record, head: Result<FrameHead, FrameError>| {
        head.map_err(|error| {
            let why = format!("{stream}#{}: {error}", record.seq);
            reader.found_damage(&why);
            StoreError::Damaged(why)
        })
    };
    each_by(PAGE, (reader, stream), sound, take)
}

/// `finish` is given what the second thread has decoded.
fn each_by<T: Decoded, E: From<StoreError>>(
    page_frames: usize,
    (reader, stream): (&dyn Reader, &StreamId),
    mut finish: impl FnMut(&Record, Result<T, FrameError>) -> Result<T, StoreError>,
    mut take: impl FnMut(T) -> Result<(), E>,
) -> Result<(), E> {
    if reader.tail(stream)?.is_none() {
        return Ok(());
    }
    let path = Ancestry::of(reader, stream)?;
    let mut order = BranchOrder::new();
    let mut take_page = |page: DecodedPage<T>| -> Result<(), E> {
        for (record, decoded) in page {
            let decoded = finish(&record, decoded)?;
            order.take(reader, &path, &record, decoded.place())?;
            take(decoded)?;
        }
        Ok(())
    };
    let mut next = 0;
    let mut read_page = || {
        let page = match path.read(reader, next, page_frames) {
            Err(StoreError::Damaged(_)) => {
                sound_before(page_frames, next, |seq| path.read(reader, seq, 1))?
            }
            page => page?,
        };
        next = page.last().map_or(next, |last| last.seq.saturating_add(1));
        Ok::<_, StoreError>(page)
    };
    let mut page = read_page()?;
    while !page.is_empty() && page.len() < page_frames {
        take_page(decode(page))?;
        page = read_page()?;
    }
    thread::scope(|scope| {
        let (give, given) = sync_channel::<Vec<Record>>(PAGES_AHEAD);
        let (give_back, decoded) = sync_channel::<DecodedPage<T>>(PAGES_AHEAD);
        if !page.is_empty() {
            scope.spawn(move || {
                given
                    .into_iter()
                    .try_for_each(|page| give_back.send(decode(page)))
            });
        }
        let (mut with_it, mut end) = (0, Ok(()));
        while !page.is_empty() || with_it > 0 {
            if !page.is_empty() && with_it < PAGES_AHEAD {
                // That thread ends before this one only by a panic, which is passed on.
                let _ = give.send(page);
                with_it += 1;
                // What is before a page that cannot be read is handed over first.
                page = read_page().unwrap_or_else(|error| {
                    end = Err(E::from(error));
                    Vec::new()
                });
                continue;
            }
            let Ok(page) = decoded.recv() else { break };
            with_it -= 1;
            take_page(page)?;
        }
        end
    })
}

/// At most so many frames from a number on, up to one that cannot be read. If that is the first one, its error.
fn sound_before(
    most: usize,
    first: u64,
    read: impl Fn(u64) -> Result<Vec<Record>, StoreError>,
) -> Result<Vec<Record>, StoreError> {
    let mut sound = read(first)?;
    while let Some(last) = sound.last().filter(|_| sound.len() < most) {
        match read(last.seq.saturating_add(1)) {
            Ok(one) if !one.is_empty() => sound.extend(one),
            Ok(_) | Err(_) => break,
        }
    }
    Ok(sound)
}

fn decode<T: Decoded>(page: Vec<Record>) -> DecodedPage<T> {
    let records = page.into_iter();
    let decoded = records.map(|record| {
        let decoded = T::decode(&record);
        (record, decoded)
    });
    decoded.collect()
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::MemoryStore;

    use super::*;
    use crate::run_cache::tests::{run_of, stream};
    use crate::watched_reader::WatchedReader;

    fn taken(reader: &dyn Reader, page: usize, most: usize) -> (Vec<u64>, Result<(), StoreError>) {
        let mut seen = Vec::new();
        let sound = |_: &Record, head: Result<FrameHead, FrameError>| {
            head.map_err(|error| StoreError::Damaged(error.to_string()))
        };
        let read = each_by(page, (reader, &stream("a")), sound, |frame| {
            seen.push(frame.seq);
            match seen.len() < most {
                true => Ok(()),
                false => Err(StoreError::Damaged("enough".to_owned())),
            }
        });
        (seen, read)
    }

    #[test]
    fn frames_come_in_order_whatever_the_size_of_a_page() {
        let store = run_of(25);
        let all: Vec<u64> = (0..25).collect();
        for page in [1, 4, 5, 24, 25, 26, 1_000] {
            assert_eq!(taken(&store, page, 100), (all.clone(), Ok(())), "{page}");
        }
        assert_eq!(taken(&MemoryStore::new(), 4, 100), (Vec::new(), Ok(())));
    }

    #[test]
    fn what_is_before_a_frame_that_cannot_be_read_is_handed_over() {
        let reader = WatchedReader {
            store: &run_of(25),
            before_read: &|from, limit| match (from..from + limit as u64).contains(&17) {
                true => Err(StoreError::Damaged("broken".to_owned())),
                false => Ok(limit),
            },
            before_blob: &|_| {},
        };
        for page in [1, 4, 5, 10, 1_000] {
            let (seen, end) = taken(&reader, page, 100);
            assert_eq!(seen, (0..17).collect::<Vec<u64>>(), "{page}");
            assert_eq!(end, Err(StoreError::Damaged("broken".to_owned())), "{page}");
        }
    }

    #[test]
    fn nothing_is_handed_over_after_a_refusal() {
        for page in [1, 4, 1_000] {
            let (seen, end) = taken(&run_of(25), page, 6);
            assert_eq!((seen.len(), end.is_err()), (6, true), "{page}");
        }
    }
}
