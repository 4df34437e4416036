//! The frames of a stream one after another. Where there are many, this thread reads them and a second one decodes
//! them.

use std::panic::resume_unwind;
use std::sync::mpsc::sync_channel;
use std::thread;

use ktsu_ledger::branch::{Ancestry, Blobs, BranchOrder, FramePlace};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{Frame, FrameError, FrameHead, Record, StreamId};

/// The frames of a page. A stream with fewer is decoded by this thread.
const PAGE: usize = 2_000;
/// The most pages that wait for the second thread.
const PAGES_AHEAD: usize = 2;

/// A frame, or what is read of it.
trait Decoded: Sized {
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
    let mut frames: Vec<Frame> = Vec::new();
    let mut with_blobs = Vec::new();
    each_by(PAGE, (reader, stream), |record, frame: Frame| {
        if !frame.ext.is_empty() {
            with_blobs.push((frames.len(), record));
        }
        frames.push(frame);
        Ok::<_, StoreError>(())
    })?;
    let mut blobs = Blobs::new(reader);
    for (at, record) in with_blobs {
        let whole = blobs.decode(stream, &record)?;
        if let Some(frame) = frames.get_mut(at) {
            *frame = whole;
        }
    }
    Ok(frames)
}

/// Hands over the frames of a stream in order, without their content. What is held are a few pages of stored frames.
///
/// # Errors
/// Those of `take`, of reading, and of a frame that does not follow from what is before it.
pub(crate) fn each_head<E: From<StoreError> + Send>(
    reader: &dyn Reader,
    stream: &StreamId,
    mut take: impl FnMut(FrameHead) -> Result<(), E> + Send,
) -> Result<(), E> {
    each_by(PAGE, (reader, stream), |_, head| take(head))
}

/// The frames before one that cannot be read are handed over first.
fn each_by<T: Decoded, E: From<StoreError> + Send>(
    page_frames: usize,
    (reader, stream): (&dyn Reader, &StreamId),
    take: impl FnMut(Record, T) -> Result<(), E> + Send,
) -> Result<(), E> {
    if reader.tail(stream)?.is_none() {
        return Ok(());
    }
    let path = Ancestry::of(reader, stream)?;
    let mut pages = Pages {
        reader,
        path: &path,
        next: 0,
        frames: page_frames,
    };
    let mut taker = Taker {
        stream,
        path: &path,
        order: BranchOrder::new(),
        take,
    };
    let mut page = pages.read()?;
    while !page.is_empty() && page.len() < page_frames {
        taker.page(page).map_err(|end| end.report(reader))?;
        page = pages.read()?;
    }
    if page.is_empty() {
        return Ok(());
    }
    thread::scope(|scope| {
        let (give, given) = sync_channel(PAGES_AHEAD);
        let taken = scope.spawn(move || given.into_iter().try_for_each(|page| taker.page(page)));
        let mut read = Ok(page);
        while let Ok(page) = &mut read
            && !page.is_empty()
            && give.send(std::mem::take(page)).is_ok()
        {
            read = pages.read();
        }
        drop(give);
        let taken = taken.join().unwrap_or_else(|panic| resume_unwind(panic));
        taken.map_err(|end| end.report(reader))?;
        read.map(drop).map_err(E::from)
    })
}

/// Frames as they are stored, page by page.
struct Pages<'a> {
    reader: &'a dyn Reader,
    path: &'a Ancestry,
    /// The number of the next frame.
    next: u64,
    /// So many are read at once.
    frames: usize,
}

impl Pages<'_> {
    /// The next page; empty at the end.
    fn read(&mut self) -> Result<Vec<Record>, StoreError> {
        let page = match self.path.read(self.reader, self.next, self.frames) {
            Err(StoreError::Damaged(_)) => sound_before(self.frames, self.next, |seq| {
                self.path.read(self.reader, seq, 1)
            })?,
            page => page?,
        };
        if let Some(last) = page.last() {
            self.next = last.seq.saturating_add(1);
        }
        Ok(page)
    }
}

/// Decodes frames, and hands them over.
struct Taker<'a, F> {
    stream: &'a StreamId,
    path: &'a Ancestry,
    order: BranchOrder,
    take: F,
}

/// The reason why no more frames are taken.
enum TakeEnd<E> {
    /// A frame is damaged.
    Damaged(StoreError),
    /// They are not wanted.
    Refused(E),
}

impl<E: From<StoreError>> TakeEnd<E> {
    /// The error, of which the reader hears if it is damage.
    fn report(self, reader: &dyn Reader) -> E {
        match self {
            Self::Refused(error) => error,
            Self::Damaged(error) => {
                if let StoreError::Damaged(why) = &error {
                    reader.found_damage(why);
                }
                error.into()
            }
        }
    }
}

impl<F> Taker<'_, F> {
    fn page<T: Decoded, E>(&mut self, page: Vec<Record>) -> Result<(), TakeEnd<E>>
    where
        F: FnMut(Record, T) -> Result<(), E>,
    {
        for record in page {
            let decoded = T::decode(&record).map_err(|error| {
                let (stream, seq) = (self.stream, record.seq);
                TakeEnd::Damaged(StoreError::Damaged(format!("{stream}#{seq}: {error}")))
            })?;
            let ordered = self.order.check(self.path, &record, decoded.place());
            ordered.map_err(TakeEnd::Damaged)?;
            (self.take)(record, decoded).map_err(TakeEnd::Refused)?;
        }
        Ok(())
    }
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

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::MemoryStore;

    use super::*;
    use crate::run_cache::tests::{run_of, stream};
    use crate::watched_reader::WatchedReader;

    fn taken(reader: &dyn Reader, page: usize, most: usize) -> (Vec<u64>, Result<(), StoreError>) {
        let mut seen = Vec::new();
        let read = each_by(page, (reader, &stream("a")), |_, frame: FrameHead| {
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
