//! A few readers of one ledger, lent out one at a time.

use std::sync::{Arc, Mutex, PoisonError};

use ktsu_ledger::store::{Reader, StoreError};
use tokio::sync::Semaphore;

/// Makes another reader.
type Open = dyn Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync;

/// As many as the machine can use: reading is work for the processor and the page cache.
const KEPT: usize = 4;
/// As many read at once: whoever comes later waits, instead of a thread and a cache for each.
const AT_ONCE: usize = 8;

/// Readers of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct Readers {
    open: Arc<Open>,
    idle: Arc<Mutex<Vec<Box<dyn Reader>>>>,
    free: Arc<Semaphore>,
}

impl Readers {
    /// Readers made on demand.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Arc::new(open),
            idle: Arc::default(),
            free: Arc::new(Semaphore::new(AT_ONCE)),
        }
    }

    /// Lends a reader to a piece of work on a thread that may block.
    ///
    /// # Errors
    /// [`StoreError`] of opening a reader or of the work.
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
        let readers = self.clone();
        // The work goes on if nobody waits for it any more, and keeps its permit.
        let work = move || {
            let _permit = permit;
            readers.with_blocking(work)
        };
        let done = tokio::task::spawn_blocking(work).await;
        match done {
            Ok(outcome) => outcome,
            Err(error) => Err(E::from(StoreError::Failed {
                doing: "read the ledger",
                why: error.to_string(),
            })),
        }
    }

    /// As [`Readers::with`], on this thread.
    ///
    /// # Errors
    /// [`StoreError`] of opening a reader or of the work.
    pub fn with_blocking<T, E: From<StoreError>>(
        &self,
        work: impl FnOnce(&dyn Reader) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = self
            .idle
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop();
        let reader = match idle {
            Some(reader) => reader,
            None => (self.open)()?,
        };
        let outcome = work(reader.as_ref());
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(reader);
        }
        outcome
    }
}
