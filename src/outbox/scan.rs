//! How far down its index a claim starts, so that it stays fast under somebody's old snapshot.
//!
//! Rows that were sent stay in the index as dead entries until no snapshot can see them. A claim that starts at the
//! head walks them all each time (measured: over 300k rows a plain claim fell from 110k to 15k rows/s, with a bound it
//! held 150k). So a claim starts at the last `available_at` it took; rows that appear below (late commits, rollbacks
//! of other relays) are found by a full scan, at most a tenth of the time.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// The shortest time between two full scans of a tier while bounded ones fill their batches.
const FULL_EVERY: Duration = Duration::from_millis(500);

/// A full scan may take at most this part of the time.
const FULL_SHARE: u32 = 10;

/// How a scan ended.
#[derive(Debug, Clone, Copy)]
pub(crate) struct End {
    /// Until its first row.
    pub(crate) took: Duration,
    /// The last row it took.
    pub(crate) last: Option<SystemTime>,
    /// It found less than it could have taken.
    pub(crate) short: bool,
}

/// The scan state of every tier.
#[derive(Debug, Default)]
pub struct Scan {
    tiers: Mutex<HashMap<String, Tier>>,
}

#[derive(Debug, Clone, Copy, Default)]
struct Tier {
    bound: Option<SystemTime>,
    full: Option<(Instant, Duration)>,
    /// The last scan found less than it could have taken: what is missing may lie below the bound.
    short: bool,
}

impl Tier {
    /// When the next full scan is allowed, if one has been made.
    fn next_full(&self) -> Option<Instant> {
        let floor = if self.short { Duration::ZERO } else { FULL_EVERY };
        self.full.map(|(at, took)| at + floor.max(took * FULL_SHARE))
    }
}

impl Scan {
    fn tiers(&self) -> MutexGuard<'_, HashMap<String, Tier>> {
        self.tiers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Where the next scan of `tier` starts; `None` for a full scan.
    pub(crate) fn bound(&self, tier: &str, now: Instant) -> Option<SystemTime> {
        let found = self.tiers().get(tier).copied().unwrap_or_default();
        if found.next_full().is_none_or(|at| now >= at) { None } else { found.bound }
    }

    /// A scan of `tier` that started at `bound` at the moment `now` has ended.
    pub(crate) fn done(&self, tier: &str, bound: Option<SystemTime>, now: Instant, end: End) {
        let mut tiers = self.tiers();
        let state = tiers.entry(tier.to_owned()).or_default();
        state.short = end.short;
        if bound.is_none() {
            state.full = Some((now, end.took));
            state.bound = end.last;
        } else if end.last.is_some() {
            state.bound = end.last;
        }
    }

    /// Rows of `tier` below the bound may be free again: start from the head.
    pub(crate) fn reset(&self, tier: &str) {
        self.tiers().remove(tier);
    }

    /// How long until one of `names` that a bounded scan found empty may be scanned in full; `None` when nothing of
    /// theirs is hidden. Only tiers that were just looked at: another's full scan would never come, and never end this.
    pub(crate) fn hidden_until(&self, names: &[String], now: Instant) -> Option<Duration> {
        let tiers = self.tiers();
        let bounded = names.iter().filter_map(|name| tiers.get(name)).filter(|tier| tier.bound.is_some());
        bounded.filter_map(Tier::next_full).map(|at| at.saturating_duration_since(now)).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn at(ms: u64) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_millis(ms)
    }

    fn end(took: Duration, last: Option<u64>, short: bool) -> End {
        End { took, last: last.map(at), short }
    }

    #[test]
    fn a_bound_holds_between_full_scans_and_a_rollback_forgets_it() {
        let (scan, t0) = (Scan::default(), Instant::now());
        assert_eq!(scan.bound("t", t0), None, "the first scan is full");
        scan.done("t", None, t0, end(MS, Some(5), false));
        assert_eq!(scan.bound("t", t0 + 499 * MS), Some(at(5)));
        scan.done("t", Some(at(5)), t0, end(MS, Some(9), false));
        assert_eq!(scan.bound("t", t0 + 499 * MS), Some(at(9)));
        assert_eq!(scan.bound("t", t0 + 500 * MS), None, "full again every 500 ms");
        scan.reset("t");
        assert_eq!(scan.bound("t", t0), None);
    }

    #[test]
    fn a_short_scan_is_followed_by_a_full_one_as_soon_as_that_is_cheap() {
        let (scan, t0) = (Scan::default(), Instant::now());
        scan.done("t", None, t0, end(MS, Some(5), true));
        assert_eq!(scan.bound("t", t0 + 9 * MS), Some(at(5)), "a tenth of the time");
        assert_eq!(scan.bound("t", t0 + 10 * MS), None);
    }

    #[test]
    fn slow_full_scans_are_rarer() {
        let (scan, t0) = (Scan::default(), Instant::now());
        scan.done("t", None, t0, end(70 * MS, Some(5), true));
        assert_eq!(scan.bound("t", t0 + 699 * MS), Some(at(5)));
        assert_eq!(scan.bound("t", t0 + 700 * MS), None);
        assert_eq!(scan.hidden_until(&["t".into()], t0 + 600 * MS), Some(100 * MS));
    }

    #[test]
    fn an_empty_full_scan_hides_nothing() {
        let (scan, t0) = (Scan::default(), Instant::now());
        scan.done("t", None, t0, end(MS, None, true));
        assert_eq!(scan.bound("t", t0 + MS), None);
        assert_eq!(scan.hidden_until(&["t".into()], t0), None);
    }

    #[test]
    fn what_is_hidden_of_a_tier_that_is_not_looked_at_wakes_nobody() {
        let (scan, t0) = (Scan::default(), Instant::now());
        scan.done("closed", None, t0, end(MS, Some(5), true));
        assert_eq!(scan.hidden_until(&["open".into()], t0 + 700 * MS), None);
    }
}
