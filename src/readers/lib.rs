//! A few threads that read one ledger, each with a reader of its own.
//!
//! ```text
//! question ─▶ waits until fewer than AT_ONCE are asked ─▶ a thread's reader ─▶ answer, which
//!             (first come, first served)                  keeps its place until it is taken
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use ktsu_ledger::store::{Reader, StoreError};
use parking_lot::Mutex;
use tokio::sync::{Semaphore, oneshot};

/// Makes another reader.
type OpenReader = dyn Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync;
/// Work for one thread.
type Job = Box<dyn FnOnce(&mut ReaderSlot) + Send>;

/// As many read at once: whoever comes later waits, instead of a thread, a cache and a heap for each.
const MAX_READERS: usize = 4;

/// Readers of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct ReaderPool {
    open: Arc<OpenReader>,
    free: Arc<Semaphore>,
    /// Threads without work. Each ends when its sender is dropped.
    idle: Arc<Mutex<Vec<mpsc::Sender<Job>>>>,
    /// For those who ask on a thread of their own.
    here: Arc<Mutex<ReaderSlot>>,
}

/// A reader, opened when it is first needed.
struct ReaderSlot {
    open: Arc<OpenReader>,
    reader: Option<Box<dyn Reader>>,
}

impl ReaderPool {
    /// Readers made on demand.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        let open: Arc<OpenReader> = Arc::new(open);
        Self {
            free: Arc::new(Semaphore::new(MAX_READERS)),
            idle: Arc::default(),
            here: Arc::new(Mutex::new(ReaderSlot::new(Arc::clone(&open)))),
            open,
        }
    }

    /// Does a piece of work with the reader of one of the threads.
    ///
    /// # Errors
    /// [`StoreError`] of starting a thread, of opening a reader or of the work.
    pub async fn with<T, E>(
        &self,
        work: impl FnOnce(&dyn Reader) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        // It is never closed; were it, reading would go on without a bound.
        let permit = Arc::clone(&self.free).acquire_owned().await;
        let waiting = self.idle.lock().pop();
        let thread = match waiting {
            Some(thread) => thread,
            None => start(Arc::clone(&self.open))?,
        };
        let (give, taken) = oneshot::channel();
        let (idle, itself) = (Arc::clone(&self.idle), thread.clone());
        // The work goes on if nobody waits for it any more, and keeps its permit. What it gave keeps
        // it, too, until somebody takes it: otherwise answers pile up faster than they are sent.
        let job = move |desk: &mut ReaderSlot| {
            let outcome = desk.ask(work);
            idle.lock().push(itself);
            let _ = give.send((outcome, permit));
        };
        let gone = || E::from(read_error("its thread has ended".to_owned()));
        thread.send(Box::new(job)).map_err(|_| gone())?;
        let (outcome, permit) = taken.await.map_err(|_| gone())?;
        drop(permit);
        outcome
    }

    /// As [`ReaderPool::with`], on this thread, one at a time.
    ///
    /// # Errors
    /// [`StoreError`] of opening a reader or of the work.
    pub fn with_blocking<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&dyn Reader) -> Result<T, E>,
    ) -> Result<T, E> {
        self.here.lock().ask(work)
    }
}

impl ReaderSlot {
    fn new(open: Arc<OpenReader>) -> Self {
        Self { open, reader: None }
    }

    /// A panic of the work is an error of this one question: whoever owns the ledger goes on, and the
    /// reader, whose state nobody knows, is let go.
    fn ask<T, E: From<StoreError>>(
        &mut self,
        work: impl FnOnce(&dyn Reader) -> Result<T, E>,
    ) -> Result<T, E> {
        let worked = catch_unwind(AssertUnwindSafe(|| {
            let reader = match self.reader.take() {
                Some(reader) => reader,
                None => (self.open)()?,
            };
            let outcome = work(reader.as_ref());
            self.reader = Some(reader);
            outcome
        }));
        worked.map_err(|panic| E::from(panic_error(panic.as_ref())))?
    }
}

/// A thread that does the work it is sent.
fn start(open: Arc<OpenReader>) -> Result<mpsc::Sender<Job>, StoreError> {
    let (sender, jobs) = mpsc::channel::<Job>();
    let named = thread::Builder::new().name("ktsu-reader".to_owned());
    let works = move || {
        let mut desk = ReaderSlot::new(open);
        for job in jobs {
            job(&mut desk);
        }
    };
    let started = named.spawn(works);
    started.map_err(|error| read_error(format!("no thread could be started: {error}")))?;
    Ok(sender)
}

fn read_error(why: String) -> StoreError {
    StoreError::Failed {
        doing: "read the ledger",
        why,
    }
}

fn panic_error(panic: &(dyn Any + Send)) -> StoreError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let why = text.unwrap_or("without a message");
    tracing::error!(panic = why, "a query to the ledger panicked");
    read_error("it ended in a panic, which is a defect of ktsu".to_owned())
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::{MemoryStore, Store};

    use super::*;

    #[tokio::test]
    async fn a_panic_of_one_question_is_an_error_of_that_question_alone() {
        let store = MemoryStore::new();
        let readers = ReaderPool::new(move || store.reader());
        let asked = readers.with(|_| -> Result<(), StoreError> { panic!("a defect") });
        let error = asked.await.unwrap_err();
        assert!(error.to_string().contains("a defect of ktsu"), "{error}");
        let here = readers.with_blocking(|_| -> Result<(), StoreError> { panic!("a defect") });
        assert_eq!(here.unwrap_err(), error);
        let after = readers.with(|reader| reader.streams(None, 10)).await;
        assert_eq!(after.unwrap(), []);
    }

    #[tokio::test]
    async fn many_questions_at_once_open_no_more_readers_than_there_are_threads() {
        let store = MemoryStore::new();
        let opened = Arc::new(Mutex::new(0));
        let count = Arc::clone(&opened);
        let readers = ReaderPool::new(move || {
            *count.lock() += 1;
            store.reader()
        });
        let asked = (0..100).map(|_| readers.with(|reader| reader.streams(None, 10)));
        for answer in futures_util::future::join_all(asked).await {
            assert_eq!(answer.unwrap(), []);
        }
        let opened = *opened.lock();
        assert!((1..=MAX_READERS).contains(&opened), "{opened}");
    }
}
