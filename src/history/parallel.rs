//! Runs one query on many runs, on all processors: each thread has a reader of its own.

use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;

/// Threads at the most: reading a ledger is for the processor, and small machines are many.
const MAX_THREADS: usize = 8;

/// The answers to a question asked of each, in the order of what was asked about. `begin` makes
/// what a thread needs: a reader, definitions it has compiled.
///
/// # Errors
/// The first error of `begin`.
pub fn each<T: Sync, R: Send, W, E: Send>(
    about: &[T],
    begin: impl Fn() -> Result<W, E> + Sync,
    ask: impl Fn(&mut W, &T) -> R + Sync,
) -> Result<Vec<R>, E> {
    let next = AtomicUsize::new(0);
    let answers = Mutex::new(Vec::with_capacity(about.len()));
    let work = || -> Result<(), E> {
        let mut mine = begin()?;
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(one) = about.get(at) else {
                return Ok(());
            };
            let answer = ask(&mut mine, one);
            answers.lock().push((at, answer));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let threads = processors.min(MAX_THREADS).min(about.len()).max(1);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ends = workers.into_iter().map(|worker| match worker.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        ends.collect::<Result<(), E>>()
    })?;
    let mut answers = answers.into_inner();
    answers.sort_by_key(|(at, _)| *at);
    Ok(answers.into_iter().map(|(_, answer)| answer).collect())
}

#[cfg(test)]
mod tests {
    use super::each;

    #[test]
    fn answers_are_in_the_order_of_what_was_asked_about() {
        let about: Vec<u32> = (0..1000).collect();
        let begin = || Ok::<u32, ()>(7);
        let answers = each(&about, begin, |mine, one| *mine * one).unwrap();
        assert_eq!(answers, about.iter().map(|one| 7 * one).collect::<Vec<_>>());
        assert_eq!(each(&about, || Err::<(), _>("no"), |_, _| ()), Err("no"));
        assert_eq!(each(&[] as &[u32], begin, |mine, _| *mine), Ok(vec![]));
    }
}
