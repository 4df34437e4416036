//! The retries of a delivery.

/// The longest pause before the next attempt at a frame, in milliseconds: ten minutes.
pub const MAX_BACKOFF_MS: u64 = 600_000;
/// The longest pause after failures before anything is sent to a subscriber again, in milliseconds:
/// one that is back hears of it within a minute.
pub const MAX_PAUSE_MS: u64 = 60_000;
/// The most attempts at a frame.
pub const MAX_ATTEMPTS: u32 = 100;
/// The attempts at a frame unless a subscription says otherwise: they take some three and a half
/// hours.
pub const DEFAULT_ATTEMPTS: u32 = 30;
/// The first pause unless a subscription says otherwise, in milliseconds.
pub const DEFAULT_BACKOFF_MS: u64 = 1_000;

/// The number of attempts at a frame, and the pauses between them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryRetry {
    /// Attempts before it is dead; at least 1.
    pub attempts: u32,
    /// The pause after the first attempt in milliseconds; it doubles with each one, up to
    /// [`MAX_BACKOFF_MS`].
    pub backoff_ms: u64,
}

impl Default for DeliveryRetry {
    fn default() -> Self {
        Self {
            attempts: DEFAULT_ATTEMPTS,
            backoff_ms: DEFAULT_BACKOFF_MS,
        }
    }
}

impl DeliveryRetry {
    /// The pause after so many attempts, in milliseconds.
    pub fn pause_after(self, attempts: u32) -> u64 {
        let doublings = attempts.saturating_sub(1).min(32);
        let pause = self.backoff_ms.saturating_mul(1 << doublings);
        pause.min(MAX_BACKOFF_MS)
    }

    /// Returns `true` if so many attempts are all there are.
    pub fn is_exhausted(self, attempts: u32) -> bool {
        attempts >= self.attempts.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_bound() {
        let retry = DeliveryRetry::default();
        let pauses: Vec<u64> = (1..=12)
            .map(|attempts| retry.pause_after(attempts))
            .collect();
        assert_eq!(pauses[..4], [1_000, 2_000, 4_000, 8_000]);
        assert_eq!(pauses[9..], [512_000, MAX_BACKOFF_MS, MAX_BACKOFF_MS]);
        assert_eq!(retry.pause_after(u32::MAX), MAX_BACKOFF_MS);
        let total: u64 = (1..retry.attempts)
            .map(|attempts| retry.pause_after(attempts))
            .sum();
        assert_eq!(total / 60_000, 207, "minutes");
    }

    #[test]
    fn the_last_attempt_is_the_last() {
        let retry = DeliveryRetry {
            attempts: 3,
            backoff_ms: 1,
        };
        assert!(!retry.is_exhausted(2) && retry.is_exhausted(3));
        let none = DeliveryRetry {
            attempts: 0,
            ..retry
        };
        assert!(none.is_exhausted(1));
    }
}
