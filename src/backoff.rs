//! How long to wait before the next try: doubling, capped, with jitter so that many who failed together do not come
//! back together.

use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

/// A doubling wait between two bounds.
#[derive(Debug, Clone, Copy)]
pub struct Backoff {
    /// The first wait.
    pub min: Duration,
    /// No wait is longer than this.
    pub max: Duration,
}

impl Backoff {
    /// Waits while the database is away.
    pub const DATABASE: Self = Self { min: Duration::from_millis(500), max: Duration::from_secs(5) };

    /// The wait after `failures` failures in a row (0 counts as 1).
    #[must_use]
    pub fn wait(&self, failures: u32) -> Duration {
        let builder = ExponentialBuilder::new().with_min_delay(self.min).with_max_delay(self.max).with_factor(2.0);
        // 32 doublings of a millisecond are 49 days: beyond any cap, and the walk stays short.
        let nth = failures.saturating_sub(1).min(32) as usize;
        let wait = builder.with_jitter().without_max_times().build().nth(nth).unwrap_or(self.max);
        wait.min(self.max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BACKOFF: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(60) };

    #[test]
    fn waits_double_from_the_minimum_to_the_cap() {
        for (failures, at_least, at_most) in [(0, 1, 2), (1, 1, 2), (2, 2, 4), (3, 4, 8), (7, 60, 60), (1_000, 60, 60)]
        {
            let wait = BACKOFF.wait(failures);
            let (low, high) = (Duration::from_secs(at_least), Duration::from_secs(at_most));
            assert!(wait >= low && wait <= high, "{failures} failures wait {wait:?}");
        }
    }

    #[test]
    fn two_waits_differ() {
        let waits: std::collections::HashSet<_> = (0..20).map(|_| BACKOFF.wait(1)).collect();
        assert!(waits.len() > 1);
    }
}
