//! How fast a tier is taken: how many batches at once, how large, and on which connection.
//!
//! A row that kills connections must not hold up the others. When two batches with the same row in them got no answer,
//! its tier is isolated: one worker takes it, on a connection of its own, in halves, until the row stands alone.

use super::{Lane, Settings};
use crate::backoff::Backoff;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Unknown batches with the same row in them after which its tier is isolated. The first may be the broker's; the
/// second is suspicious.
const ISOLATE_AFTER: u32 = 2;

/// Failures of one row alone, with others confirmed in between, after which it is the row's fault.
const ROW_FAILS_AFTER: u32 = 3;

/// Rows of a batch while a suspect waits for its next turn: enough to let the others flow, few enough to find it again.
const BESIDE_A_SUSPECT: usize = 16;

/// A suspect that was not seen for this long has gone another way: another relay sent it, or somebody cancelled it.
const SUSPECT_FOR: Duration = Duration::from_secs(60);

/// How long a tier rests after a settle that failed.
const UNSETTLED: Backoff = Backoff { min: Duration::from_secs(1), max: Duration::from_secs(30) };

/// What becomes of a row that got no answer although it was alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// Not proven yet: let others pass, then try again.
    Again,
    /// It is the row: count an attempt against it.
    Failed,
}

#[derive(Debug, Default)]
struct State {
    in_flight: usize,
    /// Rows that were in batches without an answer, with how often. Counted by row and not by tier, because batches
    /// of others may be confirmed in between for ever.
    lost: HashMap<i64, u32>,
    /// While isolated: rows of the next batch.
    limit: Option<usize>,
    /// Rows still to be published one at a time, because one of them was refused without being named.
    singly: usize,
    /// Rows that got no answer although they were alone: how often, and when last.
    suspects: HashMap<i64, (u32, Instant)>,
    /// A suspect was in the last batch that got no answer: one row at a time until it is its turn.
    hunting: bool,
    confirmed_since: bool,
    /// Settles that failed in a row, and until when the tier rests because of the last one.
    unsettled: u32,
    rests_until: Option<Instant>,
}

impl State {
    fn isolated(&self) -> bool {
        self.limit.is_some() || self.singly > 0
    }

    fn forget_old_suspects(&mut self, now: Instant) {
        self.suspects.retain(|_, (_, seen)| now.duration_since(*seen) < SUSPECT_FOR);
        self.hunting &= !self.suspects.is_empty();
    }
}

/// The pace of every tier.
#[derive(Debug)]
pub struct Pace {
    tiers: Mutex<HashMap<String, State>>,
    batch_rows: usize,
    /// Most batches of one tier at the same time: one worker is always left for the others.
    most: usize,
}

impl Pace {
    /// Every tier at full pace.
    #[must_use]
    pub fn new(settings: &Settings, tiers: usize) -> Self {
        let most = if tiers > 1 { settings.workers.saturating_sub(1).max(1) } else { settings.workers };
        Self { tiers: Mutex::default(), batch_rows: settings.batch_rows, most }
    }

    fn with<T>(&self, tier: &str, change: impl FnOnce(&mut State) -> T) -> T {
        let mut tiers: MutexGuard<'_, _> = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        change(tiers.entry(tier.to_owned()).or_default())
    }

    /// Rows that a worker of `lane` may claim of `tier` now; `None` when the tier is not for it.
    pub fn rows(&self, tier: &str, lane: Lane) -> Option<usize> {
        self.with(tier, |state| match (lane, state.isolated()) {
            _ if state.rests_until.is_some_and(|until| Instant::now() < until) => None,
            (Lane::Shared, false) => (state.in_flight < self.most).then_some(self.batch_rows),
            (Lane::Isolated, true) if state.singly > 0 || state.hunting => Some(1),
            (Lane::Isolated, true) if !state.suspects.is_empty() => Some(BESIDE_A_SUSPECT.min(self.batch_rows)),
            (Lane::Isolated, true) => Some(state.limit.unwrap_or(1)),
            (Lane::Shared, true) | (Lane::Isolated, false) => None,
        })
    }

    /// A batch of `tier` has been claimed.
    pub fn begin(&self, tier: &str) {
        self.with(tier, |state| state.in_flight += 1);
    }

    /// A batch of `tier` has ended, one way or another. Returns whether it had kept others waiting.
    pub fn end(&self, tier: &str) -> bool {
        self.with(tier, |state| {
            let waiting = state.in_flight >= self.most;
            state.in_flight = state.in_flight.saturating_sub(1);
            waiting
        })
    }

    /// A batch of these rows was decided; `answered` if the broker said anything at all. Returns whether isolation ends
    /// with it.
    pub fn known(&self, tier: &str, lane: Lane, ids: &[i64], answered: bool) -> bool {
        self.with(tier, |state| {
            let before = state.isolated();
            state.confirmed_since |= answered;
            for id in ids {
                state.lost.remove(id);
                if state.suspects.remove(id).is_some() {
                    state.hunting = false;
                }
            }
            state.forget_old_suspects(Instant::now());
            // A batch of the others' may end after the isolation began; it proves nothing.
            if lane == Lane::Isolated {
                state.singly = state.singly.saturating_sub(ids.len());
                if answered && state.suspects.is_empty() {
                    state.limit = state.limit.map(|limit| limit * 2).filter(|limit| *limit < self.batch_rows);
                }
            }
            before && !state.isolated()
        })
    }

    /// A batch of `tier` was settled, or was not. Messages whose settle failed are published again, so without a rest a
    /// row that cannot be written would copy its whole batch at full speed.
    pub fn settled(&self, tier: &str, written: bool) {
        self.with(tier, |state| {
            if written {
                (state.unsettled, state.rests_until) = (0, None);
            } else {
                state.unsettled = state.unsettled.saturating_add(1);
                state.rests_until = Some(Instant::now() + UNSETTLED.wait(state.unsettled));
            }
        });
    }

    /// Until the first tier that rests may be taken again.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        let tiers = self.tiers.lock().unwrap_or_else(PoisonError::into_inner);
        tiers.values().filter_map(|state| state.rests_until?.checked_duration_since(now)).filter(|d| !d.is_zero()).min()
    }

    /// An isolated tier has nothing due. Returns whether isolation ends with it: there is nobody left to be careful of.
    pub fn dry(&self, tier: &str, now: Instant) -> bool {
        self.with(tier, |state| {
            state.forget_old_suspects(now);
            if !state.isolated() || !state.suspects.is_empty() {
                return false;
            }
            (state.limit, state.singly, state.hunting) = (None, 0, false);
            true
        })
    }

    /// Whether `tier` is isolated.
    pub fn isolated(&self, tier: &str) -> bool {
        self.with(tier, |state| state.isolated())
    }

    /// A batch of these rows got no answer. Returns whether the tier is isolated now and was not before.
    pub fn unknown(&self, tier: &str, ids: &[i64]) -> bool {
        // What another relay sent is never heard of again; that must not add up.
        let most = self.batch_rows * self.most * 4;
        self.with(tier, |state| {
            let before = state.isolated();
            if state.lost.len() > most {
                state.lost.clear();
            }
            let mut again = false;
            for id in ids {
                let times = state.lost.entry(*id).or_insert(0);
                *times = times.saturating_add(1);
                again |= *times >= ISOLATE_AFTER;
            }
            state.hunting |= ids.iter().any(|id| state.suspects.contains_key(id));
            if again {
                state.limit = Some((ids.len() / 2).max(1));
            }
            !before && state.isolated()
        })
    }

    /// The broker refused one of `rows` without naming it: the next ones go one at a time.
    pub fn singly(&self, tier: &str, rows: usize) {
        self.with(tier, |state| state.singly = state.singly.max(rows));
    }

    /// A row got no answer although it was alone.
    pub fn alone(&self, tier: &str, id: i64) -> Alone {
        self.with(tier, |state| {
            state.hunting = false;
            let fresh = std::mem::take(&mut state.confirmed_since);
            let (failures, seen) = state.suspects.entry(id).or_insert((0, Instant::now()));
            *seen = Instant::now();
            // Without a confirm in between it may as well be the broker.
            *failures = if fresh || *failures == 0 { *failures + 1 } else { *failures };
            if *failures < ROW_FAILS_AFTER {
                return Alone::Again;
            }
            state.suspects.remove(&id);
            Alone::Failed
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn pace(workers: usize, tiers: usize) -> Pace {
        let second = Duration::from_secs(1);
        let settings = Settings {
            workers,
            batch_rows: 500,
            batch_deadline: second,
            max_attempts: 20,
            backoff: Backoff { min: second, max: second },
            poll: second,
        };
        Pace::new(&settings, tiers)
    }

    #[test]
    fn one_tier_leaves_a_worker_for_the_others() {
        let pace = pace(4, 2);
        for _ in 0..3 {
            assert_eq!(pace.rows("a", Lane::Shared), Some(500));
            pace.begin("a");
        }
        assert_eq!(pace.rows("a", Lane::Shared), None);
        assert_eq!(pace.rows("b", Lane::Shared), Some(500));
        assert!(pace.end("a"), "somebody may be waiting");
        assert_eq!(pace.rows("a", Lane::Shared), Some(500));
        assert!(!pace.end("a"));
    }

    #[test]
    fn one_lost_connection_is_one_incident_for_all_of_its_batches() {
        let pace = pace(4, 1);
        let batches = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]];
        assert!(batches.iter().all(|batch| !pace.unknown("t", batch)));
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
        assert!(pace.unknown("t", &[4, 5, 20, 21]));
        assert_eq!(pace.rows("t", Lane::Shared), None);
        assert_eq!(pace.rows("t", Lane::Isolated), Some(2));
    }

    #[test]
    fn a_row_stays_suspicious_until_it_is_confirmed_itself() {
        let pace = pace(4, 1);
        assert!(!pace.unknown("t", &[1, 2]));
        assert!(!pace.known("t", Lane::Shared, &[2, 3], true));
        assert!(!pace.unknown("t", &[2, 5]));
        assert!(pace.unknown("t", &[1, 5]));
    }

    #[test]
    fn rows_that_are_never_heard_of_again_do_not_add_up() {
        let pace = pace(4, 1);
        for id in 0..100_000 {
            pace.unknown("t", &[id]);
        }
        assert!(pace.with("t", |state| state.lost.len()) <= 500 * 4 * 4 + 1);
    }

    #[test]
    fn isolation_halves_down_to_the_row_and_ends_after_it() {
        let pace = pace(4, 1);
        let ids: Vec<i64> = (7..507).collect();
        let lose = |rows: usize| pace.unknown("t", &ids[..rows]);
        lose(500);
        lose(500);
        let mut rows = pace.rows("t", Lane::Isolated).unwrap();
        while rows > 1 {
            lose(rows);
            rows = pace.rows("t", Lane::Isolated).unwrap();
        }
        for failure in 1..=3 {
            lose(1);
            let expected = if failure == 3 { Alone::Failed } else { Alone::Again };
            assert_eq!(pace.alone("t", 7), expected, "failure {failure}");
            pace.known("t", Lane::Isolated, &[8], true);
        }
        assert!((0..10).any(|_| pace.known("t", Lane::Isolated, &[9], true)), "isolation ends");
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
    }

    #[test]
    fn the_others_flow_while_a_suspect_waits_and_it_is_alone_again_when_it_returns() {
        let pace = pace(4, 1);
        pace.unknown("t", &[7]);
        pace.unknown("t", &[7]);
        assert_eq!(pace.alone("t", 7), Alone::Again);
        assert_eq!(pace.rows("t", Lane::Isolated), Some(BESIDE_A_SUSPECT));
        assert!(!pace.known("t", Lane::Isolated, &[8, 9], true), "isolation lasts");
        pace.unknown("t", &[10, 7, 11]);
        assert_eq!(pace.rows("t", Lane::Isolated), Some(1));
        assert!(!pace.known("t", Lane::Isolated, &[10], true));
        assert_eq!(pace.rows("t", Lane::Isolated), Some(1));
        pace.known("t", Lane::Isolated, &[7], true);
        assert_ne!(pace.rows("t", Lane::Isolated), Some(1), "it was innocent");
    }

    #[test]
    fn what_was_in_flight_when_isolation_began_does_not_end_it() {
        let pace = pace(4, 1);
        let ids: Vec<i64> = (0..500).collect();
        pace.unknown("t", &ids);
        pace.unknown("t", &ids);
        for _ in 0..10 {
            assert!(!pace.known("t", Lane::Shared, &[1_000], true));
        }
        assert_eq!(pace.rows("t", Lane::Isolated), Some(250));
    }

    #[test]
    fn a_row_is_not_blamed_while_nothing_else_gets_through_either() {
        let pace = pace(4, 1);
        assert!((0..10).all(|_| pace.alone("t", 7) == Alone::Again));
    }

    #[test]
    fn after_an_unnamed_refusal_rows_go_one_at_a_time() {
        let pace = pace(4, 1);
        pace.singly("t", 2);
        assert_eq!(pace.rows("t", Lane::Shared), None);
        assert_eq!(pace.rows("t", Lane::Isolated), Some(1));
        assert!(!pace.known("t", Lane::Isolated, &[1], true));
        assert!(pace.known("t", Lane::Isolated, &[2], true));
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
    }

    #[test]
    fn a_suspect_that_went_another_way_does_not_keep_its_tier_isolated() {
        let pace = pace(4, 1);
        pace.unknown("t", &[7]);
        pace.unknown("t", &[7]);
        pace.alone("t", 7);
        pace.unknown("t", &[7, 8]);
        assert_eq!(pace.rows("t", Lane::Isolated), Some(1), "hunting");
        let now = Instant::now();
        assert!(!pace.dry("t", now), "it may come back");
        assert!(pace.dry("t", now + SUSPECT_FOR), "it will not");
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
    }

    #[test]
    fn a_tier_rests_after_a_settle_that_failed_and_longer_each_time() {
        let pace = pace(4, 2);
        pace.settled("t", false);
        assert_eq!(pace.rows("t", Lane::Shared), None);
        assert_eq!(pace.rows("other", Lane::Shared), Some(500));
        let first = pace.rest(Instant::now()).unwrap();
        for _ in 0..3 {
            pace.settled("t", false);
        }
        assert!(pace.rest(Instant::now()).unwrap() > first);
        pace.settled("t", true);
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
        assert_eq!(pace.rest(Instant::now()), None);
    }

    #[test]
    fn isolation_ends_when_nothing_is_left_to_isolate() {
        let pace = pace(4, 1);
        pace.singly("t", 500);
        assert!(pace.dry("t", Instant::now()));
        assert_eq!(pace.rows("t", Lane::Shared), Some(500));
        assert!(!pace.dry("t", Instant::now()), "once");
    }
}
