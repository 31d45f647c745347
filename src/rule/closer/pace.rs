//! The pace: at most so many orders a second, evenly.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Gives turns.
#[derive(Debug)]
pub(super) struct Pace {
    /// Between two turns; none: no limit.
    gap: Option<Duration>,
    /// When the next turn may be.
    next: Mutex<Instant>,
}

impl Pace {
    pub(super) fn new(rate: Option<u32>) -> Self {
        let gap = rate.and_then(|rate| Duration::from_secs(1).checked_div(rate));
        Self { gap, next: Mutex::new(Instant::now()) }
    }

    /// Waits for a turn.
    pub(super) async fn turn(&self) {
        if let Some(turn) = self.take(Instant::now()) {
            tokio::time::sleep_until(turn).await;
        }
    }

    /// Takes the next turn; turns that nobody took are not made up for.
    fn take(&self, now: Instant) -> Option<Instant> {
        let gap = self.gap?;
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        let turn = (*next).max(now);
        *next = turn + gap;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_keep_their_distance_and_a_rest_is_not_made_up_for() {
        let pace = Pace::new(Some(10));
        let (start, ms) = (Instant::now(), Duration::from_millis);
        let turns: Vec<_> = (0..3).filter_map(|_| pace.take(start)).map(|turn| turn - start).collect();
        assert_eq!(turns, [ms(0), ms(100), ms(200)]);
        let late = start + ms(9_000);
        assert_eq!([pace.take(late), pace.take(late)], [Some(late), Some(late + ms(100))]);
        assert_eq!(Pace::new(None).take(start), None);
    }
}
