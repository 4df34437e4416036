//! The work that a service has in flight, and the end of taking more.

use std::sync::Arc;

use tokio::sync::watch;

/// Counts work in flight. Once it drains, nothing more [begins](Self::begin), and
/// [`InFlight::drained`] resolves when the last of it has ended. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct InFlight(Arc<Counts>);

#[derive(Debug, Default)]
struct Counts {
    draining: watch::Sender<bool>,
    count: watch::Sender<usize>,
}

/// A piece of work, in flight until this is dropped.
#[derive(Debug)]
pub struct InFlightGuard(Arc<Counts>);

impl InFlight {
    /// A piece of work begins; `None` once it drains.
    pub fn begin(&self) -> Option<InFlightGuard> {
        // Counted before the look: whoever drains then either sees it, or is seen.
        self.0.count.send_modify(|count| *count += 1);
        let guard = InFlightGuard(Arc::clone(&self.0));
        (!self.is_draining()).then_some(guard)
    }

    /// Takes no more.
    pub fn drain(&self) {
        self.0.draining.send_replace(true);
    }

    /// Returns `true` if it takes no more.
    pub fn is_draining(&self) -> bool {
        *self.0.draining.borrow()
    }

    /// Resolves once it takes no more.
    pub async fn draining(&self) {
        let mut draining = self.0.draining.subscribe();
        // The sender is in `self`.
        let _ = draining.wait_for(|draining| *draining).await;
    }

    /// Resolves once nothing is in flight.
    pub async fn drained(&self) {
        let mut count = self.0.count.subscribe();
        let _ = count.wait_for(|count| *count == 0).await;
    }
}

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.count.send_modify(|count| *count -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn what_drains_takes_no_more_and_waits_for_what_it_took() {
        let work = InFlight::default();
        let first = work.begin().unwrap();
        let second = work.begin().unwrap();
        assert_eq!(work.draining().now_or_never(), None);
        work.drain();
        assert!(work.begin().is_none() && work.is_draining());
        assert_eq!(work.draining().now_or_never(), Some(()));
        drop(first);
        assert_eq!(work.drained().now_or_never(), None);
        drop(second);
        assert_eq!(work.drained().now_or_never(), Some(()));
    }
}
