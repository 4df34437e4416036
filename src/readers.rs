//! A few readers of one ledger, lent out one at a time.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use ktsu_ledger::store::{Reader, StoreError};
use tokio::sync::Semaphore;

/// Makes another reader.
type Open = dyn Fn() -> Result<Box<dyn Reader>, StoreError> + Send + Sync;

/// Kept open between questions.
const KEPT: usize = 2;
/// As many read at once: whoever comes later waits, instead of a thread and a cache for each.
const AT_ONCE: usize = 4;

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
        // The work goes on if nobody waits for it any more, and keeps its permit. What it gave keeps
        // it, too, until somebody takes it: otherwise answers pile up faster than they are sent.
        let work = move || (readers.with_blocking(work), permit);
        let done = tokio::task::spawn_blocking(work).await;
        match done {
            Ok((outcome, permit)) => {
                drop(permit);
                outcome
            }
            Err(error) => Err(E::from(StoreError::Failed {
                doing: "read the ledger",
                why: error.to_string(),
            })),
        }
    }

    /// As [`Readers::with`], on this thread. A panic of the work is an error of this one question:
    /// whoever owns the ledger goes on, and the reader, whose state nobody knows, is let go.
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
        let worked = catch_unwind(AssertUnwindSafe(|| work(reader.as_ref())));
        let outcome = worked.map_err(|panic| E::from(panicked(panic.as_ref())))?;
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < KEPT {
            idle.push(reader);
        }
        outcome
    }
}

fn panicked(panic: &(dyn Any + Send)) -> StoreError {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
    let why = text.unwrap_or("without a message");
    tracing::error!(panic = why, "a question to the ledger panicked");
    StoreError::Failed {
        doing: "read the ledger",
        why: "it ended in a panic, which is a defect of ktsu".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use ktsu_ledger::store::{MemoryStore, Store};

    use super::*;

    #[tokio::test]
    async fn a_panic_of_one_question_is_an_error_of_that_question_alone() {
        let store = MemoryStore::new();
        let readers = Readers::new(move || store.reader());
        let asked = readers.with(|_| -> Result<(), StoreError> { panic!("a defect") });
        let error = asked.await.unwrap_err();
        assert!(error.to_string().contains("a defect of ktsu"), "{error}");
        let here = readers.with_blocking(|_| -> Result<(), StoreError> { panic!("a defect") });
        assert_eq!(here.unwrap_err(), error);
        let after = readers.with(|reader| reader.streams(None, 10)).await;
        assert_eq!(after.unwrap(), []);
    }
}
