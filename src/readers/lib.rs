//! A few threads that read one ledger, each with a reader of its own.
//!
//! ```text
//! question ─▶ waits until its kind has a place ─▶ a thread's reader ─▶ answer, which
//!             (first come, first served)          keeps its place until it is taken
//! ```
//!
//! All kinds of questions share the threads, and no kind can take all of them: however many traces are
//! asked for at once, a page of frames and the state of a run are read beside them.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, mpsc};
use std::thread;

use ktsu_ledger::store::{Reader, StoreError};
use parking_lot::Mutex;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore, oneshot};

/// Makes another reader.
type OpenReader = dyn Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync;
/// Work for one thread.
type Job = Box<dyn FnOnce(&mut ReaderSlot) + Send>;

/// As many read at once: whoever comes later waits, instead of a thread, a cache and a heap for each.
const MAX_READERS: usize = 4;
/// As many of them read whole runs.
const MAX_WHOLE: usize = MAX_READERS - 1;
/// As many of those repeat what a run decided.
const MAX_REPEATING: usize = MAX_WHOLE - 1;

/// The kind of a question, by how much it reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReadKind {
    /// A page, or a few frames: as much as the answer is long.
    Page,
    /// All frames of a run, folded once: its envelope, its world.
    Run,
    /// All frames of a run, and much of what it decided once more: traces, comparisons, replays.
    Search,
}

/// Readers of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct ReaderPool {
    open: Arc<OpenReader>,
    free: Arc<Semaphore>,
    /// Places of those who read whole runs.
    whole: Arc<Semaphore>,
    /// Places of those who repeat what a run decided.
    repeating: Arc<Semaphore>,
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
            whole: Arc::new(Semaphore::new(MAX_WHOLE)),
            repeating: Arc::new(Semaphore::new(MAX_REPEATING)),
            idle: Arc::default(),
            here: Arc::new(Mutex::new(ReaderSlot::new(Arc::clone(&open)))),
            open,
        }
    }

    /// Reads a page, or a few frames, with the reader of one of the threads.
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
        self.with_kind(ReadKind::Page, work).await
    }

    /// Does a piece of work of some kind with the reader of one of the threads.
    ///
    /// # Errors
    /// [`StoreError`] of starting a thread, of opening a reader or of the work.
    pub async fn with_kind<T, E>(
        &self,
        kind: ReadKind,
        work: impl FnOnce(&dyn Reader) -> Result<T, E> + Send + 'static,
    ) -> Result<T, E>
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
    {
        // Always in this order, so that none waits for another that waits for it. They are never
        // closed; were they, reading would be without a bound.
        let permit = match kind {
            ReadKind::Page => (None, None),
            ReadKind::Run => (None, Some(place(&self.whole).await)),
            ReadKind::Search => (
                Some(place(&self.repeating).await),
                Some(place(&self.whole).await),
            ),
        };
        let permit = (permit, place(&self.free).await);
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

/// A place among those who read at once.
async fn place(among: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, AcquireError> {
    Arc::clone(among).acquire_owned().await
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

    /// A gate that questions wait at until a test lets them end.
    #[derive(Default)]
    struct Gate {
        is_open: Mutex<bool>,
        opened: parking_lot::Condvar,
    }

    impl Gate {
        fn wait(&self) {
            let mut is_open = self.is_open.lock();
            self.opened.wait_while(&mut is_open, |is_open| !*is_open);
        }

        fn open(&self) {
            *self.is_open.lock() = true;
            self.opened.notify_all();
        }
    }

    /// Questions that do not end before a gate is opened, more than there are threads, leave room for
    /// these.
    async fn leave_room(long: ReadKind, others: &[ReadKind]) {
        let store = MemoryStore::new();
        let readers = ReaderPool::new(move || store.reader());
        let gate = Arc::new(Gate::default());
        let long: Vec<_> = (0..5 * MAX_READERS)
            .map(|_| {
                let (readers, gate) = (readers.clone(), Arc::clone(&gate));
                let waits = move |_: &dyn Reader| {
                    gate.wait();
                    Ok::<(), StoreError>(())
                };
                tokio::spawn(async move { readers.with_kind(long, waits).await })
            })
            .collect();
        tokio::task::yield_now().await;
        for kind in others {
            let answer = readers.with_kind(*kind, |reader| reader.streams(None, 10));
            let answer = tokio::time::timeout(std::time::Duration::from_secs(60), answer).await;
            assert_eq!(answer.expect("a thread is free").unwrap(), []);
        }
        gate.open();
        for one in long {
            one.await.unwrap().unwrap();
        }
    }

    #[tokio::test]
    async fn however_many_searches_there_are_runs_and_pages_are_read_beside_them() {
        let others = [ReadKind::Run, ReadKind::Page, ReadKind::Run];
        leave_room(ReadKind::Search, &others).await;
    }

    #[tokio::test]
    async fn however_many_runs_are_read_pages_are_read_beside_them() {
        leave_room(ReadKind::Run, &[ReadKind::Page, ReadKind::Page]).await;
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
