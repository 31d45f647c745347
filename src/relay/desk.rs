//! The desk: where one worker at a time looks for due rows and claims them.
//!
//! Looking and claiming take a millisecond, publishing takes many: so one worker sits at the desk, and hands it on as
//! soon as it has rows. The others find it free instead of asking the database the same question.

use super::doze::Flow;
use super::sleep::Sleep;
use super::{Batch, Broker, Doorbell, Inserting, Lane, Outbox, Publisher, Relay, doubled};
use crate::admin::health::{Part, STALL};
use crate::admin::metrics::BySide;
use crate::backoff::Backoff;
use crate::tier::Tier;
use crate::wake::Wake;
use std::collections::{BTreeSet, HashSet, VecDeque};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// While batches keep coming, a look is repeated this often, so that a tier that fell due is not kept waiting by one
/// that always has more.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The same while the tier that had rows last is tried without a look.
const LOOK_BESIDE: Duration = Duration::from_millis(5);

/// Steps in which due rows that somebody has locked are looked at again: the first, which is about the time that a batch
/// of ours takes, and the longest.
const LOCKED: (Duration, Duration) = (Duration::from_millis(2), Duration::from_secs(1));

/// The longest of them while the relay is awake, and nobody rings for other rows.
const LOCKED_AWAKE: Duration = Duration::from_millis(8);

/// The desk of one lane.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) wake: Arc<Wake>,
    pub(super) turns: Mutex<Turns>,
}

/// Whose turn it is; kept by the worker at the desk.
#[derive(Debug, Default)]
pub(super) struct Turns {
    pub(super) due: VecDeque<String>,
    pub(super) last_served: String,
    looked: Option<Instant>,
    /// How long the last look took: with a thousand tiers it is not to be repeated at every claim.
    look_took: Duration,
    /// Until the next row falls due or the next hop is probed, as of the last look.
    timer: Option<Duration>,
    /// Looks in a row that found nothing due.
    pub(super) idle: u32,
    /// Looks in a row whose due rows somebody else had locked.
    pub(super) locked: u32,
    /// Between awake and asleep.
    pub(super) sleep: Sleep<Inserting>,
    /// Somebody rang since the last look.
    pub(super) rung: bool,
    /// How many rows came lately.
    pub(super) flow: Flow,
    /// Full batches in a row.
    pub(super) full: u32,
    /// When tiers that are not claimed here were looked for, and whether somebody rang or rows were claimed since.
    pub(super) unclaimed_looked: Option<Instant>,
    pub(super) stirred: bool,
    /// When one of them was found that could go, and waited for our ring.
    pub(super) beside: Option<Instant>,
    /// Rings that brought nothing, less those that brought rows: other relays are quicker.
    pub(super) vain: u32,
    /// The last guess found nothing.
    pub(super) misguessed: bool,
    pub(super) unknown: BTreeSet<String>,
    /// Database failures in a row.
    pub(super) failures: u32,
}

impl Turns {
    pub(super) fn looked_within(&self, span: Duration) -> bool {
        self.looked.is_some_and(|at| at.elapsed() < span)
    }
}

/// What a turn led to: a batch, or something to go on with.
type Step<'a, O, C> = Result<ControlFlow<Claimed<'a, <O as Outbox>::Batch>, C>, <O as Outbox>::Error>;

/// A claimed batch and the tier it belongs to.
pub(super) struct Claimed<'a, B> {
    pub(super) tier: &'a Tier,
    pub(super) batch: B,
    /// When it was asked for; the claim's own `now()` follows at once.
    pub(super) asked: Instant,
}

impl Desk {
    pub(super) fn new(wake: Arc<Wake>) -> Self {
        Self { wake, turns: Mutex::default() }
    }
}

impl<O: Outbox, B: Broker> Relay<O, B> {
    pub(super) fn desk(&self, lane: Lane) -> &Desk {
        match lane {
            Lane::Shared => &self.shared,
            Lane::Isolated => &self.isolated,
        }
    }

    /// Waits at the desk for the next batch. `None`: stop, or the publisher can no longer be used; nothing is claimed.
    pub(super) async fn next(&self, lane: Lane, publisher: &B::Publisher, name: &str) -> Option<Claimed<'_, O::Batch>> {
        let desk = self.desk(lane);
        let mut turns = self.patient(name, desk.turns.lock()).await?;
        loop {
            if self.stop.raised() || !publisher.usable() || (lane == Lane::Isolated && !self.any_isolated()) {
                return None;
            }
            let ring = desk.wake.next();
            // A statement that hangs holds up neither the signs of life nor the stop; a claim that is dropped is rolled back.
            match Box::pin(self.patient(name, self.turn_or_doze(lane, &mut turns))).await? {
                Ok(ControlFlow::Break(claimed)) => return Some(claimed),
                Ok(ControlFlow::Continue(wait)) => {
                    if self.patient(name, tokio::time::timeout(wait, ring)).await?.is_ok() {
                        (turns.idle, turns.locked) = (0, 0);
                        // Among those who rang may be one whose tier nobody here claims.
                        (turns.rung, turns.stirred) = (true, true);
                    }
                }
                // Not to be cut short: inserts ring while nobody claims.
                Err(error) => {
                    let wait = self.database_failed(&mut turns, &error).await;
                    self.patient(name, tokio::time::sleep(wait)).await?;
                }
            }
            if desk.wake.alarmed() {
                turns.sleep.wake();
            }
        }
    }

    /// One turn; when it brings nothing, the next step on the way to sleep, and how long it takes.
    async fn turn_or_doze(&self, lane: Lane, turns: &mut Turns) -> Step<'_, O, Duration> {
        self.wait_for_inserting(turns).await;
        let locked = match self.turn(lane, turns).await? {
            ControlFlow::Break(claimed) => {
                if lane == Lane::Shared {
                    self.awake(turns, claimed.batch.rows().len(), claimed.batch.full()).await;
                }
                return Ok(ControlFlow::Break(claimed));
            }
            ControlFlow::Continue(locked) => locked,
        };
        let pause = self.doze(lane, turns).await?;
        let wait = match locked {
            None => pause,
            Some(_) if pause.is_zero() => pause,
            Some(step) if self.awaits_no_ring(lane, turns) => pause.max(step),
            Some(step) => step,
        };
        Ok(ControlFlow::Continue(turns.timer.map_or(wait, |timer| wait.min(timer))))
    }

    /// Whether producers need not ring: this relay looks often.
    pub(super) fn awaits_no_ring(&self, lane: Lane, turns: &Turns) -> bool {
        lane == Lane::Shared && !turns.sleep.asleep() && self.outbox.doorbell().hears()
    }

    /// Waits for `work` or the stop, showing signs of life meanwhile: an outage is waited out, not a stall.
    pub(super) async fn patient<T>(&self, name: &str, work: impl Future<Output = T>) -> Option<T> {
        // Between two beats there may be a whole batch.
        self.stop.or(self.health.patient(name, STALL + self.settings.batch_deadline, std::pin::pin!(work))).await
    }

    pub(super) fn database_works(&self, turns: &mut Turns) {
        if std::mem::take(&mut turns.failures) > 0 {
            self.metrics.reconnects.get_or_create(&BySide { side: "postgres" }).inc();
        }
        self.metrics.set_up("postgres", true);
        self.health.well(&Part::Postgres);
    }

    async fn database_failed(&self, turns: &mut Turns, error: &O::Error) -> Duration {
        self.metrics.set_up("postgres", false);
        self.health.problem(&Part::Postgres, &error.to_string());
        turns.due.clear();
        // Whether their rows are still there is not known now; that they were is no reason to say that all is well.
        self.metrics.unknown_tier.clear();
        turns.unclaimed_looked = None;
        turns.failures = turns.failures.saturating_add(1);
        self.stand_back(turns).await;
        Backoff::DATABASE.wait(turns.failures)
    }

    /// Looks if it is time to, then claims for the tier whose turn it is. When there is nothing to claim: after which time
    /// to look again at what is due and locked by somebody, if anything is.
    async fn turn(&self, lane: Lane, turns: &mut Turns) -> Step<'_, O, Option<Duration>> {
        let guess = self.guess(lane, turns);
        if let Some(name) = &guess
            && let Some(claimed) = self.claim(lane, turns, name.clone()).await?
        {
            return Ok(ControlFlow::Break(claimed));
        }
        turns.misguessed |= guess.is_some();
        let every = if guess.is_some() && turns.sleep.lingers() { LOOK_BESIDE } else { Duration::ZERO };
        if turns.due.is_empty() && turns.looked_within(every) {
            return Ok(ControlFlow::Continue(None));
        }
        let look_now = turns.due.is_empty() || !turns.looked_within(LOOK_EVERY.max(4 * turns.look_took));
        if look_now && !self.look(lane, turns).await? {
            return Ok(ControlFlow::Continue(None));
        }
        // The guess was tried a moment ago: what is due of it is locked.
        while let Some(name) = turns.due.pop_front() {
            if guess.as_ref() != Some(&name)
                && let Some(claimed) = self.claim(lane, turns, name).await?
            {
                return Ok(ControlFlow::Break(claimed));
            }
        }
        turns.locked = turns.locked.saturating_add(1);
        let longest = if self.awaits_no_ring(lane, turns) { LOCKED_AWAKE } else { LOCKED.1 };
        Ok(ControlFlow::Continue(Some(doubled(LOCKED.0, turns.locked - 1, longest))))
    }

    /// Finds out which tiers are due; false when none of those that may be claimed is.
    async fn look(&self, lane: Lane, turns: &mut Turns) -> Result<bool, O::Error> {
        let now = Instant::now();
        if lane == Lane::Shared {
            self.look_for_unclaimed(turns, now).await?;
            for hop in self.hops.untried(now) {
                self.health.forget(&Part::Hop(hop.to_string()));
            }
        }
        let candidates: Vec<String> =
            self.tiers.keys().filter(|name| self.allowed(lane, name).is_some()).cloned().collect();
        let reopens = self.tiers.values().map(|tier| self.hops.closed(tier, now)).filter(|wait| !wait.is_zero()).min();
        let mut look = super::Look::default();
        if !candidates.is_empty() {
            look = self.outbox.look(&candidates).await?;
            self.database_works(turns);
        }
        (turns.looked, turns.look_took) = (Some(Instant::now()), now.elapsed());
        turns.timer = [look.next, reopens, self.pace.rest(now)].into_iter().flatten().min();
        let due: HashSet<&String> = look.due.iter().collect();
        for name in candidates.iter().filter(|name| !due.contains(name)) {
            self.health.forget(&Part::Settle(name.clone()));
            if lane == Lane::Isolated && self.pace.dry(name, now) {
                self.isolation_ended(name);
            }
        }
        turns.due = look.due.into();
        if !turns.due.is_empty() {
            // Tiers take turns: the first one after the one that was served last.
            let served = turns.due.iter().filter(|name| **name <= turns.last_served).count();
            let length = turns.due.len();
            turns.due.rotate_left(served % length);
            return Ok(true);
        }
        turns.idle = turns.idle.saturating_add(1);
        Ok(false)
    }

    pub(super) fn any_isolated(&self) -> bool {
        self.tiers.keys().any(|tier| self.pace.isolated(tier))
    }
}
