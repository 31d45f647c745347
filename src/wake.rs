//! A coalescing wake-up: any number of rings while nobody waits are one.
//!
//! Interest is registered before looking: `let ring = wake.next(); look; ring.await` never misses a ring that came
//! between the look and the wait.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;

/// The bell that the doorbell rings and one idle worker hears.
#[derive(Debug, Default)]
pub struct Wake {
    bell: Notify,
    alarm: AtomicBool,
}

impl Wake {
    /// Wakes one waiter, or the next one to wait.
    pub fn ring(&self) {
        self.bell.notify_one();
    }

    /// Rings because something may have gone unannounced: whoever wakes has to look around, not only at once.
    pub fn alarm(&self) {
        self.alarm.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether there was an alarm since this was asked last.
    pub fn alarmed(&self) -> bool {
        self.alarm.swap(false, Ordering::AcqRel)
    }

    /// Resolves at the next ring, counted from the call of this function.
    pub fn next(&self) -> impl Future<Output = ()> + Send + '_ {
        self.bell.notified()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_ring_before_the_wait_is_kept_and_many_are_one() {
        let wake = Wake::default();
        wake.ring();
        wake.ring();
        assert!(wake.next().now_or_never().is_some());
        assert!(wake.next().now_or_never().is_none());
    }

    #[test]
    fn an_alarm_is_a_ring_and_is_told_once() {
        let wake = Wake::default();
        wake.ring();
        assert!(!wake.alarmed());
        wake.alarm();
        assert!(wake.next().now_or_never().is_some());
        assert!(wake.alarmed());
        assert!(!wake.alarmed());
    }
}
