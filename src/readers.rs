//! A few readers of one ledger, lent out one at a time.

use std::sync::{Arc, Mutex, PoisonError};

use ktsu_ledger::store::{Reader, StoreError};

/// Makes another reader.
type Open = dyn Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync;

/// As many as the machine can use: reading is work for the processor and the page cache.
const KEPT: usize = 4;

/// Readers of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct Readers {
    open: Arc<Open>,
    idle: Arc<Mutex<Vec<Box<dyn Reader>>>>,
}

impl Readers {
    /// Readers made on demand.
    pub fn new(
        open: impl Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Arc::new(open),
            idle: Arc::default(),
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
        let readers = self.clone();
        let done = tokio::task::spawn_blocking(move || readers.with_blocking(work)).await;
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
