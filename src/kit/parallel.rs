//! Files are read, and definitions compiled, independently of one another: on several threads, with
//! the results in the order of what was asked for.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// More threads than this gain nothing: reading a file takes less than a millisecond.
const MAX_THREADS: usize = 8;
/// Fewer items than these for each thread do not pay for it: it has memory of its own, which stays.
const MIN_ITEMS: usize = 16;

/// The results of a function on every item, in the order of the items.
pub(super) fn map<T: Sync, R: Send>(items: &[T], make: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let processors = thread::available_parallelism().map_or(1, usize::from);
    let threads = processors.min(MAX_THREADS).min(items.len() / MIN_ITEMS);
    if threads < 2 {
        return items.iter().map(make).collect();
    }
    let next = AtomicUsize::new(0);
    let work = || {
        let mut made = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(at) else {
                return made;
            };
            made.push((at, make(item)));
        }
    };
    let mut made = thread::scope(|scope| {
        // Where no thread can be started, this one does all of it.
        let others: Vec<_> = (1..threads)
            .filter_map(|_| thread::Builder::new().spawn_scoped(scope, work).ok())
            .collect();
        let mut made = work();
        for other in others {
            match other.join() {
                Ok(more) => made.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        made
    });
    made.sort_unstable_by_key(|(at, _)| *at);
    made.into_iter().map(|(_, one)| one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_in_the_order_of_the_items_whichever_thread_is_first() {
        let items: Vec<u64> = (0..200).collect();
        let slow_at_first = |item: &u64| {
            thread::sleep(std::time::Duration::from_micros(200 - item));
            item * 2
        };
        let made = map(&items, slow_at_first);
        assert_eq!(made, items.iter().map(|item| item * 2).collect::<Vec<_>>());
    }

    #[test]
    fn a_panic_of_one_item_is_a_panic_of_all() {
        let items: Vec<u64> = (0..100).collect();
        let refuse = |item: &u64| assert_ne!(*item, 57);
        let outcome = std::panic::catch_unwind(|| map(&items, refuse));
        assert!(outcome.is_err());
    }
}
