//! The desk: where one worker at a time looks for due rows and claims them.
//!
//! Looking and claiming take a millisecond, publishing takes many: so one worker sits at the desk, and hands it on as
//! soon as it has rows. The others find it free instead of asking the database the same question.

use super::hops::PROBE;
use super::{Batch, Broker, Lane, Outbox, Publisher, Relay};
use crate::admin::health::Part;
use crate::admin::metrics::{BySide, ByTier};
use crate::backoff::Backoff;
use crate::tier::{self, Tier};
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

/// First step of adaptive polling; it doubles up to `outbox.poll` while nothing is found.
const POLL_FIRST: Duration = Duration::from_millis(10);

/// Longest sleep of the isolated worker while a tier is isolated.
const ISOLATED_POLL: Duration = Duration::from_millis(100);

/// Known tiers that are listed where none is near to an unknown one.
const SHOWN: usize = 10;

/// How often tiers that nobody here knows are looked for.
const UNKNOWN_EVERY: Duration = Duration::from_secs(1);

/// How often a waiting worker shows that it is alive, and the bound by which it must have done so.
pub(super) const BEAT: (Duration, Duration) = (Duration::from_secs(5), Duration::from_secs(60));

/// How long to wait after the database failed.
const DATABASE: Backoff = Backoff { min: Duration::from_millis(500), max: Duration::from_secs(5) };

/// The desk of one lane.
#[derive(Debug)]
pub(super) struct Desk {
    pub(super) wake: Arc<Wake>,
    turns: Mutex<Turns>,
}

/// Whose turn it is; kept by the worker at the desk.
#[derive(Debug, Default)]
struct Turns {
    due: VecDeque<String>,
    last_served: String,
    looked: Option<Instant>,
    /// Until the next row falls due or the next hop is probed, as of the last look.
    timer: Option<Duration>,
    /// Looks in a row that found nothing due.
    idle: u32,
    /// Looks in a row whose due rows somebody else had locked.
    locked: u32,
    unknown_looked: Option<Instant>,
    unknown: BTreeSet<String>,
    /// Database failures in a row.
    failures: u32,
}

/// What a turn at the desk brought.
enum Turn<B> {
    Batch(B),
    Wait(Duration),
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
            let wait = match self.turn(lane, &mut turns).await {
                Ok(Turn::Batch(claimed)) => return Some(claimed),
                Ok(Turn::Wait(wait)) => wait,
                Err(error) => self.database_failed(&mut turns, &error),
            };
            let rung = self.patient(name, tokio::time::timeout(wait, ring)).await?.is_ok();
            if rung {
                (turns.idle, turns.locked) = (0, 0);
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

    fn database_failed(&self, turns: &mut Turns, error: &O::Error) -> Duration {
        self.metrics.set_up("postgres", false);
        self.health.problem(&Part::Postgres, &error.to_string());
        turns.due.clear();
        for name in std::mem::take(&mut turns.unknown) {
            self.health.forget(&Part::UnknownTier(name.clone()));
            self.metrics.unknown_tier.remove(&ByTier { tier: name });
        }
        turns.unknown_looked = None;
        turns.failures = turns.failures.saturating_add(1);
        DATABASE.wait(turns.failures)
    }

    /// Looks if it is time to, then claims for the tier whose turn it is.
    async fn turn(&self, lane: Lane, turns: &mut Turns) -> Result<Turn<Claimed<'_, O::Batch>>, O::Error> {
        let look_now = turns.due.is_empty() || turns.looked.is_none_or(|at| at.elapsed() >= LOOK_EVERY);
        if look_now && let Some(wait) = self.look(lane, turns).await? {
            return Ok(Turn::Wait(wait));
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
        Ok(Turn::Wait(turns.timer.map_or(step, |timer| step.min(timer))))
    }

    /// Finds out which tiers are due. `Some`: none of those that may be claimed; wait that long.
    async fn look(&self, lane: Lane, turns: &mut Turns) -> Result<Option<Duration>, O::Error> {
        let now = Instant::now();
        if lane == Lane::Shared {
            self.look_for_unknown(turns, now).await?;
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
            return Ok(None);
        }
        let idle = turns.idle;
        turns.idle = turns.idle.saturating_add(1);
        let longest = self.longest_wait(lane, idle);
        Ok(Some(turns.timer.map_or(longest, |timer| longest.min(timer))))
    }

    pub(super) fn any_isolated(&self) -> bool {
        self.tiers.keys().any(|tier| self.pace.isolated(tier))
    }

    /// The longest sleep without a ring.
    fn longest_wait(&self, lane: Lane, idle: u32) -> Duration {
        // The bell rings for the shared desk alone.
        if lane == Lane::Isolated {
            return doubled(POLL_FIRST, idle, ISOLATED_POLL);
        }
        let deaf = self.health.parts().get(&Part::Listener).is_none_or(Option::is_some);
        if self.settings.notified && !deaf {
            return self.settings.poll;
        }
        doubled(POLL_FIRST, idle, self.settings.poll)
    }

    /// The tier and the rows a worker of `lane` may claim of it now.
    fn allowed(&self, lane: Lane, name: &str) -> Option<(&Tier, usize)> {
        let tier = self.tiers.get(name)?;
        if self.broker.closed(name) || !self.hops.closed(tier, Instant::now()).is_zero() {
            return None;
        }
        let rows = self.pace.rows(name, lane)?;
        Some((tier, if self.hops.probing(tier) { rows.min(PROBE) } else { rows }))
    }

    /// Names tiers that rows carry and no configuration here knows: a typo there is an order that never closes.
    async fn look_for_unknown(&self, turns: &mut Turns, now: Instant) -> Result<(), O::Error> {
        if turns.unknown_looked.is_some_and(|at| now.duration_since(at) < UNKNOWN_EVERY) {
            return Ok(());
        }
        turns.unknown_looked = Some(now);
        let known: Vec<String> = self.tiers.keys().cloned().collect();
        let found: BTreeSet<String> = self.outbox.unknown_tiers(&known).await?.into_iter().collect();
        for name in turns.unknown.difference(&found) {
            self.health.forget(&Part::UnknownTier(name.clone()));
            self.metrics.unknown_tier.remove(&ByTier { tier: name.clone() });
        }
        for name in &found {
            let hint = match tier::nearest(name, known.iter().map(String::as_str)) {
                Some(nearest) => format!("did the application mean '{nearest}'?"),
                None if known.len() > SHOWN => {
                    format!("this relay knows {}, ... ({} in all);", known[..SHOWN].join(", "), known.len())
                }
                None => format!("this relay knows {};", known.join(", ")),
            };
            let shown = name.escape_debug();
            let cure = "add the tier, or cancel these rows and enqueue them again";
            let text = format!("pending rows name tier '{shown}', which relay.toml does not have; {hint} {cure}");
            self.health.problem(&Part::UnknownTier(name.clone()), &text);
            self.metrics.unknown_tier.get_or_create(&ByTier { tier: name.clone() }).set(1);
        }
        turns.unknown = found;
        Ok(())
    }
}

/// `first` doubled `times` times, at most `cap`.
fn doubled(first: Duration, times: u32, cap: Duration) -> Duration {
    first.saturating_mul(2_u32.saturating_pow(times.min(31))).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_double_up_to_their_cap() {
        let ms = Duration::from_millis;
        assert_eq!(doubled(ms(10), 0, ms(1000)), ms(10));
        assert_eq!(doubled(ms(10), 3, ms(1000)), ms(80));
        assert_eq!(doubled(ms(10), 4_000, ms(1000)), ms(1000));
    }
}
