//! The one place where time enters.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use ktsu_ledger::Timestamp;

/// Tells the time. A function, so that tests can stop it.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// The machine's wall clock.
pub fn system() -> Clock {
    Arc::new(|| {
        let since = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        Timestamp::from_micros(u64::try_from(since.as_micros()).unwrap_or(u64::MAX))
    })
}
