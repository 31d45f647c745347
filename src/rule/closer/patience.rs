//! Who may wait for a locked order: some of those that close, and only while nobody else is there to be closed. A hundred
//! locked orders in front of a queue must not hold up those behind them, nor those of another rule.

use crate::rule::close::{AT_ONCE, PATIENCE};
use std::time::Duration;
use tokio::sync::{Semaphore, SemaphorePermit};

/// Gives out leave to wait.
#[derive(Debug)]
pub(super) struct Patience(Semaphore);

/// How long one may wait; dropped when it has.
pub(super) struct Leave<'a>(Option<SemaphorePermit<'a>>);

impl Patience {
    /// Of `concurrency` that close, half may wait.
    pub(super) fn new(concurrency: usize) -> Self {
        Self(Semaphore::new((concurrency / 2).max(1)))
    }

    /// Leave to wait, unless others are ready or enough are waiting.
    pub(super) fn take(&self, others: bool) -> Leave<'_> {
        Leave(if others { None } else { self.0.try_acquire().ok() })
    }
}

impl Leave<'_> {
    /// How long to wait for a locked order.
    pub(super) fn length(&self) -> Duration {
        if self.0.is_some() { PATIENCE } else { AT_ONCE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_may_wait_and_none_while_others_are_ready() {
        let patience = Patience::new(5);
        assert_eq!(patience.take(true).length(), AT_ONCE);
        let leaves = [patience.take(false), patience.take(false), patience.take(false)];
        assert_eq!(leaves.each_ref().map(Leave::length), [PATIENCE, PATIENCE, AT_ONCE]);
        drop(leaves);
        assert_eq!(Patience::new(1).take(false).length(), PATIENCE);
    }
}
