//! How long a message waits here before it is looked at again. Each cause has a count of its own: an outage says nothing
//! about an order, and what is wrong with an order nothing about the database.

use crate::backoff::Backoff;
use std::time::Duration;

/// After a failure, and for an order that is locked or slow to close.
const AGAIN: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// Waits for an order after which somebody should look at it: a minute.
const LONG: u32 = 6;

/// Sessions that end in the close of one order, after which it is the order's doing: a server that is taken down, or a
/// proxy, ends one of them, or two.
const ENDED: u32 = 3;

/// What a message has waited for.
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Failures of its order; they count.
    failures: u32,
    /// Times in a row that nobody could be asked.
    away: u32,
    /// Times in a row that the database ended the session in which it was closed.
    ended: u32,
    /// Times that its order was locked, or slow to close.
    locked: u32,
    /// Times that its own row could not be written.
    unwritten: u32,
    /// The pause of the closer was counted for it.
    paused: bool,
}

impl Waits {
    /// A failure, and the wait after it; the how manieth it was.
    pub(super) fn failed(&mut self) -> (u32, Duration) {
        self.failures = self.failures.saturating_add(1);
        (self.failures, AGAIN.wait(self.failures))
    }

    /// Nobody could be asked, which is nobody's fault.
    pub(super) fn away(&mut self) -> Duration {
        self.away = self.away.saturating_add(1);
        Backoff::DATABASE.wait(self.away)
    }

    /// Somebody could be asked.
    pub(super) fn asked(&mut self) {
        (self.away, self.ended) = (0, 0);
    }

    /// The same, and its session was ended.
    pub(super) fn heard(&mut self) {
        self.away = 0;
    }

    /// The session of its close was ended; none: so often in a row that it is its order's failure and no accident.
    pub(super) fn ended(&mut self) -> Option<Duration> {
        self.ended = self.ended.saturating_add(1);
        (self.ended < ENDED).then(|| Backoff::DATABASE.wait(self.ended))
    }

    /// The order is locked, or slow to close; whether that has lasted for long by now, which is true once.
    pub(super) fn locked(&mut self) -> (bool, Duration) {
        self.locked = self.locked.saturating_add(1);
        (self.locked == LONG + 1, AGAIN.wait(self.locked))
    }

    /// Its row could not be written, or there is no tier for one.
    pub(super) fn unwritten(&mut self) -> Duration {
        self.unwritten = self.unwritten.saturating_add(1);
        AGAIN.wait(self.unwritten)
    }

    /// The closer is paused; whether that is new to this message.
    pub(super) fn paused(&mut self) -> bool {
        !std::mem::replace(&mut self.paused, true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_that_stays_locked_is_named_once_whatever_outage_lies_between() {
        let mut waits = Waits::default();
        let mut named = Vec::new();
        for look in 1..=20 {
            if look == 4 {
                (0..10).for_each(|_| assert!(waits.away() > Duration::ZERO));
                waits.asked();
            }
            if waits.locked().0 {
                named.push(look);
            }
        }
        assert_eq!(named, [7]);
    }

    #[test]
    fn each_cause_has_waits_of_its_own() {
        let mut waits = Waits::default();
        (0..10).for_each(|_| assert!(waits.away() > Duration::ZERO));
        // The first wait is twice the minimum at most, by chance.
        assert!(waits.locked().1 <= AGAIN.min * 2 && waits.unwritten() <= AGAIN.min * 2);
        assert_eq!(waits.failed().0, 1);
        waits.asked();
        assert!(waits.away() <= Backoff::DATABASE.min * 2);
        assert_eq!((waits.paused(), waits.paused()), (true, false));
    }
}
