//! Between awake and asleep: what the worker at the desk does when a look found nothing, and when one found something.

use super::desk::Turns;
use super::sleep::Next;
use super::unclaimed::{self, Ring};
use super::{Broker, Doorbell, Inserting, Lane, Outbox, Relay, doubled};
use crate::admin::wakefulness::Wakefulness;
use std::time::{Duration, Instant};

/// First step of adaptive polling; it doubles up to `outbox.poll` while nothing is found.
const POLL_FIRST: Duration = Duration::from_millis(10);

/// Longest sleep of the isolated worker while a tier is isolated: nobody rings for it.
const ISOLATED_POLL: Duration = Duration::from_millis(100);

/// Full batches in a row after which other relays are rung for: there is work for more than one.
const MANY: u32 = 3;

/// Rows a second above which the relay stays awake. A look and its pause take 2 ms: below this pace most looks would find
/// nothing, and each row would still wait for half of one.
const BUSY: f64 = 400.0;

/// Rows that may come at once without that.
const BURST: f64 = 8.0;

/// Rings in vain above which there are other relays, and each ring would wake them all: then one stays awake for a moment
/// at every row, so that the others are not rung for.
const CROWDED: u32 = 4;

/// How many rows came lately: a bucket that leaks as many as [`BUSY`] says.
#[derive(Debug, Default)]
pub(super) struct Flow {
    rows: f64,
    at: Option<Instant>,
}

impl Flow {
    /// Whether, with these, more came than a relay should be rung for.
    fn busy(&mut self, rows: usize, now: Instant) -> bool {
        let leaked = self.at.map_or(0.0, |at| now.duration_since(at).as_secs_f64() * BUSY);
        self.at = Some(now);
        self.rows = (self.rows - leaked).max(0.0) + u32::try_from(rows).map_or(BURST, f64::from);
        // Whatever the rush was, its end is seen within the time that a burst takes to leak.
        self.rows = self.rows.min(2.0 * BURST);
        self.rows > BURST
    }
}

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// A batch was claimed. Few rows for a relay alone change nothing: whoever inserts them rings, which is cheap at their
    /// pace, and tells sooner than a look.
    pub(super) async fn awake(&self, turns: &mut Turns, rows: usize, full: bool) {
        let rung = std::mem::take(&mut turns.rung);
        turns.vain = turns.vain.saturating_sub(u32::from(rung));
        turns.stirred = true;
        turns.full = if full { turns.full.saturating_add(1) } else { 0 };
        // A tier of somebody else's would wait until it is rung for.
        let crowded = turns.vain >= CROWDED && !turns.beside();
        if !turns.flow.busy(rows, Instant::now()) && !full && !crowded {
            return;
        }
        turns.sleep.wake();
        self.outbox.doorbell().take().await;
        if turns.full == MANY {
            self.outbox.doorbell().ring().await;
        }
        self.show(Wakefulness::Awake);
    }

    /// Nothing was claimed: the next step on the way to sleep; how long until the next look, if nobody rings.
    pub(super) async fn doze(&self, lane: Lane, turns: &mut Turns) -> Result<Duration, O::Error> {
        turns.full = 0;
        if lane == Lane::Isolated {
            return Ok(doubled(POLL_FIRST, turns.idle, ISOLATED_POLL));
        }
        if !self.outbox.doorbell().hears() {
            return Ok(self.polls(turns));
        }
        let was_asleep = turns.sleep.asleep();
        Ok(match turns.sleep.nothing() {
            Next::Look(pause) | Next::Wait(pause) => pause,
            Next::Leave => match self.outbox.doorbell().release().await {
                Some(inserting) => {
                    turns.sleep.left(inserting);
                    self.show_leaving(turns);
                    Duration::ZERO
                }
                None => self.polls(turns),
            },
            Next::Sleep => {
                let rung = std::mem::take(&mut turns.rung);
                turns.vain = (turns.vain + u32::from(rung)).min(2 * CROWDED);
                if !was_asleep && let Err(error) = self.unclaimed(turns, Instant::now(), Ring::ForAny).await {
                    turns.sleep.wake();
                    return Err(error);
                }
                if !was_asleep {
                    self.metrics.sleeps.inc();
                    self.show(Wakefulness::Asleep);
                }
                unclaimed::again(turns).map_or(self.settings.poll, |again| again.min(self.settings.poll))
            }
        })
    }

    /// Asks whether those who were inserting when K was given back have ended, if there were any.
    pub(super) async fn wait_for_inserting(&self, turns: &mut Turns) {
        if turns.sleep.open().is_empty() {
            return;
        }
        match self.outbox.doorbell().inserting().await {
            Some(now) => turns.sleep.still(now, Inserting::is_prepared),
            None => turns.sleep.wake(),
        }
        self.show_leaving(turns);
    }

    /// Nobody is heard: look in steps that grow.
    fn polls(&self, turns: &mut Turns) -> Duration {
        // Once somebody is, the way to sleep begins anew.
        turns.sleep.wake();
        self.show(Wakefulness::Polling);
        doubled(POLL_FIRST, turns.idle, self.settings.poll)
    }

    /// This relay cannot claim for a while: producers and other relays have to know.
    pub(super) async fn stand_back(&self, turns: &mut Turns) {
        self.show(Wakefulness::Away);
        if turns.sleep.stand_back() {
            self.outbox.doorbell().stand_back().await;
        }
    }

    /// As [`stand_back`](Self::stand_back), unless another worker is at the desk and claims.
    pub(super) async fn stand_back_if_alone(&self, lane: Lane) {
        if lane == Lane::Shared
            && let Ok(mut turns) = self.shared.turns.try_lock()
        {
            self.stand_back(&mut turns).await;
        }
    }

    fn show_leaving(&self, turns: &Turns) {
        let waits_for = turns.sleep.open().iter().map(|inserting| inserting.pid).collect();
        self.show(Wakefulness::Leaving { waits_for });
    }

    fn show(&self, wakefulness: Wakefulness) {
        self.metrics.set_wakefulness(&wakefulness);
        self.health.set_wakefulness(wakefulness);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Which of `claims`, each of so many rows, make a relay stay awake, when one comes each `pause`.
    fn busy(claims: &[usize], pause: Duration) -> Vec<bool> {
        let (mut flow, mut now) = (Flow::default(), Instant::now());
        let mut next = |rows: &usize| {
            now += pause;
            flow.busy(*rows, now)
        };
        claims.iter().map(&mut next).collect()
    }

    #[test]
    fn single_rows_keep_it_awake_only_when_they_come_fast() {
        assert!(!busy(&[1; 1_000], Duration::from_millis(10)).contains(&true), "100 a second");
        assert!(!busy(&[1; 1_000], Duration::from_millis(3)).contains(&true), "333 a second");
        let fast = busy(&[1; 1_000], Duration::from_millis(1));
        let first = fast.iter().position(|busy| *busy).unwrap();
        assert!((8..20).contains(&first), "after {first} rows");
        assert!(fast.iter().skip(first).all(|busy| *busy));
    }

    #[test]
    fn a_crowd_keeps_it_awake_and_is_soon_forgotten() {
        let seconds = |claims: &[usize]| busy(claims, Duration::from_secs(1));
        assert_eq!(seconds(&[8, 9, 1]), [false, true, false]);
        assert_eq!(busy(&[100_000, 1], Duration::from_millis(25)), [true, false]);
    }
}
