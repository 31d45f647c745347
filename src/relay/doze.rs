//! Between awake and asleep: what the worker at the desk does when a look found nothing, and when one found something.

use super::desk::Turns;
use super::sleep::Next;
use super::unclaimed::Ring;
use super::{Broker, Doorbell, Lane, Outbox, Relay, doubled};
use crate::admin::wakefulness::Wakefulness;
use std::time::{Duration, Instant};

/// First step of adaptive polling; it doubles up to `outbox.poll` while nothing is found.
const POLL_FIRST: Duration = Duration::from_millis(10);

/// Longest sleep of the isolated worker while a tier is isolated: nobody rings for it.
const ISOLATED_POLL: Duration = Duration::from_millis(100);

/// Full batches in a row after which other relays are rung for: there is work for more than one.
const MANY: u32 = 3;

impl<O: Outbox, B: Broker> Relay<O, B> {
    /// A batch was claimed.
    pub(super) async fn awake(&self, turns: &mut Turns, full: bool) {
        turns.sleep.wake();
        turns.rung = false;
        self.outbox.doorbell().awake().await;
        turns.full = if full { turns.full.saturating_add(1) } else { 0 };
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
            Next::Leave => match self.outbox.doorbell().leave().await {
                Some(inserting) => {
                    turns.sleep.left(inserting);
                    self.show_leaving(turns);
                    Duration::ZERO
                }
                None => self.polls(turns),
            },
            Next::Sleep => {
                // A ring that brings nothing may have been for a tier that nobody knows.
                let rung = std::mem::take(&mut turns.rung);
                let ring = if was_asleep { Ring::Never } else { Ring::ForAny };
                if (rung || !was_asleep)
                    && let Err(error) = self.unclaimed(turns, Instant::now(), ring).await
                {
                    turns.sleep.wake();
                    return Err(error);
                }
                if !was_asleep {
                    self.metrics.sleeps.inc();
                    self.show(Wakefulness::Asleep);
                }
                self.settings.poll
            }
        })
    }

    /// Asks whether those who were inserting when K was given back have ended, if there were any.
    pub(super) async fn wait_for_inserting(&self, turns: &mut Turns) {
        if turns.sleep.open().is_empty() {
            return;
        }
        match self.outbox.doorbell().inserting().await {
            Some(now) => turns.sleep.still(&now),
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
            self.outbox.doorbell().hand_over().await;
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
