//! The desk: where one worker at a time looks for due rows and claims them.
//!
//! Looking and claiming take a millisecond, publishing takes many: so one worker sits at the desk, and hands it on as
//! soon as it has rows. The others find it free instead of asking the database the same question.

use super::hops::PROBE;
use super::sleep::Sleep;
use super::{Batch, Broker, Inserting, Lane, Outbox, Publisher, Relay, doubled};
use crate::admin::health::Part;
use crate::admin::metrics::BySide;
use crate::backoff::Backoff;
use crate::tier::Tier;
use crate::wake::Wake;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// While batches keep coming, a look is repeated this often, so that a tier that fell due is not kept waiting by one
/// that always has more.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// Steps in which due rows that somebody else has locked are looked at again.
const LOCKED: (Duration, Duration) = (Duration::from_millis(10), Duration::from_secs(1));

/// How often a waiting worker shows that it is alive, and the bound by which it must have done so.
pub(super) const BEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How long to wait after the database failed.
const DATABASE: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// The desk of one lane.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) wake: Arc<Wake>,
    pub(super) turns: Mutex<Turns>,
}

/// Whose turn it is; kept by the worker at the desk.
#[derive(Debug, Default)]
pub(super) struct Turns {
    due: VecDeque<String>,
    last_served: String,
    looked: Option<Instant>,
    /// Until the next row falls due or the next hop is probed, as of the last look.
    timer: Option<Duration>,
    /// Looks in a row that found nothing due.
    pub(super) idle: u32,
    /// Looks in a row whose due rows somebody else had locked.
    locked: u32,
    /// Between awake and asleep.
    pub(super) sleep: Sleep<Inserting>,
    /// Somebody rang since the last look.
    pub(super) rung: bool,
    /// Full batches in a row.
    pub(super) full: u32,
    pub(super) unclaimed_looked: Option<Instant>,
    pub(super) unknown: BTreeSet<String>,
    /// Database failures in a row.
    failures: u32,
}

/// What a turn at the desk brought.
enum Turn<B> {
    Batch(B),
    /// Nothing; there may be something after that time.
    Nothing(Option<Duration>),
}

/// A claimed batch and the tier it belongs to.
pub(super) struct Claimed<'a, B> {
    pub(super) tier: &'a Tier,
    pub(super) batch: B,
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
            let wait = match self.turn_or_doze(lane, &mut turns).await {
                Ok(Turn::Batch(claimed)) => return Some(claimed),
                Ok(Turn::Nothing(wait)) => wait.unwrap_or_default(),
                Err(error) => self.database_failed(&mut turns, &error).await,
            };
            let rung = self.patient(name, tokio::time::timeout(wait, ring)).await?.is_ok();
            if rung {
                (turns.idle, turns.locked, turns.rung) = (0, 0, true);
            }
            if desk.wake.alarmed() {
                turns.sleep.wake();
            }
        }
    }

    /// One turn; when it brings nothing, the next step on the way to sleep, and how long it takes.
    async fn turn_or_doze(&self, lane: Lane, turns: &mut Turns) -> Result<Turn<Claimed<'_, O::Batch>>, O::Error> {
        self.wait_for_inserting(turns).await;
        // A statement that hangs must not hold up the stop; a claim that is dropped is rolled back.
        let Some(turn) = self.stop.or(Box::pin(self.turn(lane, turns))).await else { return Ok(Turn::Nothing(None)) };
        match turn? {
            Turn::Batch(claimed) => {
                if lane == Lane::Shared {
                    self.awake(turns, claimed.batch.full()).await;
                }
                Ok(Turn::Batch(claimed))
            }
            Turn::Nothing(timer) => {
                let wait = self.doze(lane, turns).await?;
                Ok(Turn::Nothing(Some(timer.map_or(wait, |timer| wait.min(timer)))))
            }
        }
    }

    /// Waits for `work` or the stop, showing signs of life meanwhile: an outage is waited out, not a stall.
    pub(super) async fn patient<T>(&self, name: &str, work: impl Future<Output = T>) -> Option<T> {
        let mut work = std::pin::pin!(work);
        loop {
            // Between two beats there may be a whole batch.
            self.health.beat(name, BEAT.1 + self.settings.batch_deadline);
            match self.stop.or(tokio::time::timeout(BEAT.0, &mut work)).await? {
                Ok(done) => return Some(done),
                Err(_still_waiting) => {}
            }
        }
    }

    fn database_works(&self, turns: &mut Turns) {
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
        for name in std::mem::take(&mut turns.unknown) {
            self.forget_unknown(&name);
        }
        turns.unclaimed_looked = None;
        turns.failures = turns.failures.saturating_add(1);
        self.stand_back(turns).await;
        DATABASE.wait(turns.failures)
    }

    /// Looks if it is time to, then claims for the tier whose turn it is.
    async fn turn(&self, lane: Lane, turns: &mut Turns) -> Result<Turn<Claimed<'_, O::Batch>>, O::Error> {
        let look_now = turns.due.is_empty() || turns.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if look_now && !self.look(lane, turns).await? {
            return Ok(Turn::Nothing(turns.timer));
        }
        while let Some(name) = turns.due.pop_front() {
            let Some((tier, rows)) = self.allowed(lane, &name) else { continue };
            // Set first: a tier whose claim fails must not be the first one again.
            turns.last_served.clone_from(&name);
            let claimed = self.outbox.claim(&name, rows).await?;
            self.database_works(turns);
            if let Some(batch) = claimed {
                if self.pace.rows(&name, lane).is_none() {
                    // Isolated while we claimed: whoever published these rows last has given them back to be taken
                    // one by one, and together they would only be published in vain once more.
                    batch.roll_back().await?;
                    continue;
                }
                (turns.idle, turns.locked) = (0, 0);
                if batch.full() {
                    turns.due.push_back(name);
                }
                self.pace.begin(&tier.name);
                return Ok(Turn::Batch(Claimed { tier, batch }));
            }
        }
        turns.locked = turns.locked.saturating_add(1);
        let step = doubled(LOCKED.0, turns.locked - 1, LOCKED.1);
        Ok(Turn::Nothing(Some(turns.timer.map_or(step, |timer| step.min(timer)))))
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
        turns.looked = Some(now);
        turns.timer = [look.next, reopens, self.pace.rest(now)].into_iter().flatten().min();
        for name in candidates.iter().filter(|name| !look.due.contains(name)) {
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

    /// Whether this relay claims the tier's rows, by whichever worker.
    pub(super) fn claims(&self, name: &str) -> bool {
        let open = |tier| self.hops.closed(tier, Instant::now()).is_zero();
        !self.broker.closed(name) && self.tiers.get(name).is_some_and(open)
    }

    /// The tier and the rows a worker of `lane` may claim of it now.
    fn allowed(&self, lane: Lane, name: &str) -> Option<(&Tier, usize)> {
        let tier = self.tiers.get(name).filter(|_| self.claims(name))?;
        let rows = self.pace.rows(name, lane)?;
        Some((tier, if self.hops.probing(tier) { rows.min(PROBE) } else { rows }))
    }
}
