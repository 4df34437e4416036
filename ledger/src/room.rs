//! How much room the disk has left, asked at most once a second.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long an answer serves.
const FRESH: Duration = Duration::from_secs(1);

/// Watches the disk a ledger is on.
pub struct Room {
    low_water: u64,
    free: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    last: Mutex<Option<(Instant, bool)>>,
}

impl Room {
    /// Watches the disk that holds a ledger; below `low_water` bytes it counts as full.
    pub fn beside(ledger: &Path, low_water: u64) -> Self {
        let folder = ledger.parent().filter(|it| !it.as_os_str().is_empty());
        let folder = folder.map_or_else(|| PathBuf::from("."), Path::to_owned);
        Self::by(low_water, move || {
            let disk = rustix::fs::statvfs(&folder).ok()?;
            Some(disk.f_bavail.saturating_mul(disk.f_frsize))
        })
    }

    /// Watches something else; what cannot be told does not count as full.
    pub fn by(low_water: u64, free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self {
            low_water,
            free: Box::new(free),
            last: Mutex::new(None),
        }
    }

    /// Room without end, for a ledger in memory.
    pub fn endless() -> Self {
        Self::by(0, || None)
    }

    /// Whether the disk is nearly full.
    pub fn is_low(&self) -> bool {
        // The lock is held while the system is asked, so that it is asked once.
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match *last {
            Some((asked, low)) if asked.elapsed() < FRESH => low,
            Some(_) | None => {
                let low = (self.free)().is_some_and(|free| free < self.low_water);
                *last = Some((Instant::now(), low));
                low
            }
        }
    }
}
