//! The frames of a stream one after another without their content, decoded by a second thread where there are many.

use std::sync::mpsc::sync_channel;
use std::thread;

use ktsu_ledger::branch::{Ancestry, BranchOrder};
use ktsu_ledger::store::{Reader, StoreError};
use ktsu_ledger::{FrameError, FrameHead, Record, StreamId};

/// The frames of a page. A stream with fewer is decoded by this thread.
const PAGE: usize = 2_000;
/// The most pages that are with the second thread.
const PAGES_AHEAD: usize = 2;

/// Records, each with what it says beside its content.
type HeadPage = Vec<(Record, Result<FrameHead, FrameError>)>;

/// Hands over the frames of a stream in order, without their content. What is held are a few pages of stored frames.
///
/// # Errors
/// Those of `take`, of reading, and of a frame that does not follow from what is before it.
pub(crate) fn each_head<E: From<StoreError>>(
    reader: &dyn Reader,
    stream: &StreamId,
    take: impl FnMut(FrameHead) -> Result<(), E>,
) -> Result<(), E> {
    each_head_by(PAGE, (reader, stream), take)
}

fn each_head_by<E: From<StoreError>>(
    page_frames: usize,
    (reader, stream): (&dyn Reader, &StreamId),
    mut take: impl FnMut(FrameHead) -> Result<(), E>,
) -> Result<(), E> {
    if reader.tail(stream)?.is_none() {
        return Ok(());
    }
    let path = Ancestry::of(reader, stream)?;
    let mut order = BranchOrder::new();
    let mut take_page = |page: HeadPage| -> Result<(), E> {
        for (record, head) in page {
            let head = head.map_err(|error| {
                let why = format!("{stream}#{}: {error}", record.seq);
                reader.found_damage(&why);
                StoreError::Damaged(why)
            })?;
            order.take(reader, &path, &record, &head)?;
            take(head)?;
        }
        Ok(())
    };
    let mut next = 0;
    let mut read_page = || {
        let page = path.read(reader, next, page_frames)?;
        next = page.last().map_or(next, |last| last.seq.saturating_add(1));
        Ok::<_, StoreError>(page)
    };
    let mut page = read_page()?;
    while !page.is_empty() && page.len() < page_frames {
        take_page(heads(page))?;
        page = read_page()?;
    }
    thread::scope(|scope| {
        let (give, given) = sync_channel::<Vec<Record>>(PAGES_AHEAD);
        let (give_back, decoded) = sync_channel::<HeadPage>(PAGES_AHEAD);
        if !page.is_empty() {
            scope.spawn(move || {
                given
                    .into_iter()
                    .try_for_each(|page| give_back.send(heads(page)))
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

fn heads(page: Vec<Record>) -> HeadPage {
    let records = page.into_iter();
    let heads = records.map(|record| {
        let head = record.decode_head();
        (record, head)
    });
    heads.collect()
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::MemoryStore;

    use super::*;
    use crate::run_cache::tests::{run_of, stream};
    use crate::watched_reader::WatchedReader;

    fn taken(reader: &dyn Reader, page: usize, most: usize) -> (Vec<u64>, Result<(), StoreError>) {
        let mut seen = Vec::new();
        let read = each_head_by(page, (reader, &stream("a")), |frame| {
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
    fn what_is_before_a_page_that_cannot_be_read_is_handed_over() {
        let reader = WatchedReader {
            store: &run_of(25),
            before_read: &|from, limit| match (from..from + limit as u64).contains(&17) {
                true => Err(StoreError::Damaged("broken".to_owned())),
                false => Ok(limit),
            },
            before_blob: &|_| {},
        };
        for (page, last) in [(1, 17), (4, 16), (5, 15), (10, 10), (1_000, 0)] {
            let (seen, end) = taken(&reader, page, 100);
            assert_eq!(seen, (0..last).collect::<Vec<u64>>(), "{page}");
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
