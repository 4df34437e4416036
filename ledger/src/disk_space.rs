//! The space left on the disk: measured before every commit, and otherwise at most once a second.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The time for which a measurement is used.
const FRESH: Duration = Duration::from_secs(1);

/// Watches the disk a ledger is on.
pub struct DiskSpace {
    low_water: u64,
    free: Box<dyn Fn() -> Option<u64> + Send + Sync>,
    last: Mutex<Option<(Instant, bool)>>,
}

/// The free space on the disk that holds a file, in bytes; `None` if unknown.
pub(crate) fn free_bytes(file: &Path) -> Option<u64> {
    let folder = file.parent().filter(|it| !it.as_os_str().is_empty());
    let folder = folder.unwrap_or_else(|| Path::new("."));
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

impl DiskSpace {
    /// Watches the disk that holds a ledger; below `low_water` bytes it counts as full.
    pub fn beside(ledger: &Path, low_water: u64) -> Self {
        let ledger: PathBuf = ledger.to_owned();
        Self::by(low_water, move || free_bytes(&ledger))
    }

    /// Uses another measurement; unknown space counts as sufficient.
    pub fn by(low_water: u64, free: impl Fn() -> Option<u64> + Send + Sync + 'static) -> Self {
        Self {
            low_water,
            free: Box::new(free),
            last: Mutex::new(None),
        }
    }

    /// Never full: for a ledger in memory.
    pub fn unlimited() -> Self {
        Self::by(0, || None)
    }

    /// Returns `true` if the disk is nearly full, as of the last commit or a second ago at the
    /// most.
    pub fn is_low(&self) -> bool {
        self.measure(FRESH)
    }

    /// As [`DiskSpace::is_low`], measured now.
    pub fn look(&self) -> bool {
        self.measure(Duration::ZERO)
    }

    /// The free space in bytes, if known.
    pub fn free(&self) -> Option<u64> {
        (self.free)()
    }

    fn measure(&self, fresh: Duration) -> bool {
        // The lock is held during the measurement, so that it happens once.
        let mut last = self.last.lock();
        match *last {
            Some((asked, low)) if asked.elapsed() < fresh => low,
            Some(_) | None => {
                let low = (self.free)().is_some_and(|free| free < self.low_water);
                *last = Some((Instant::now(), low));
                low
            }
        }
    }
}
