//! When an order is looked at again before it is overdue: a chain of checks, counted back from that moment.
//!
//! It is read from the order at each look, so a changed due moves the rest of the chain, and an order that has left `from`
//! ends it. Nothing is kept but the next look's message.

use std::time::{Duration, SystemTime};

/// The next look after `now` at an order that is overdue at `due`. The last of `checks` is that moment itself; without any,
/// it is the only look.
pub(super) fn next(checks: &[Duration], due: SystemTime, now: SystemTime) -> SystemTime {
    let Some(start) = checks.last().and_then(|last| due.checked_sub(*last)) else { return due };
    let looks = checks.iter().filter_map(|check| start.checked_add(*check));
    looks.into_iter().find(|look| *look > now).unwrap_or(due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn each_look_leads_to_the_next_and_the_last_is_when_the_order_is_overdue() {
        let checks = [10, 30, 60].map(Duration::from_secs);
        // Placed at 1000, overdue at 1060.
        let chain = [1_000, 1_010, 1_011, 1_030, 1_059].map(|now| next(&checks, at(1_060), at(now)));
        assert_eq!(chain, [1_010, 1_030, 1_030, 1_060, 1_060].map(at));
    }

    #[test]
    fn a_due_that_moved_moves_the_chain() {
        let checks = [10, 30, 60].map(Duration::from_secs);
        assert_eq!(next(&checks, at(2_060), at(1_010)), at(2_010));
    }

    #[test]
    fn without_checks_there_is_one_look() {
        assert_eq!(next(&[], at(1_060), at(1_000)), at(1_060));
    }
}
