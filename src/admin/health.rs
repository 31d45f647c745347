//! What works and what does not, as one list that `/readyz`, `status` and the log share.

use super::flight::Flight;
use super::pauses::Paused;
use super::wakefulness::Wakefulness;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often a loop that waits shows that it is alive.
const BEAT: Duration = Duration::from_secs(5);

/// The bound by which it must have done so.
pub const STALL: Duration = Duration::from_secs(60);

/// Said of a target queue without consumers, which keeps its messages until somebody comes for them.
pub const UNCONSUMED: &str = "nobody consumes the target queue";

/// Something that can be unwell.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// The database.
    Postgres,
    /// The broker.
    RabbitMq,
    /// The LISTEN connection; without it the relay polls.
    Listener,
    /// A tier's topology: what should be on the broker is missing or different.
    Tier(String),
    /// Who consumes a tier's queues.
    Consumers(String),
    /// What became of a tier's messages cannot be written down.
    Settle(String),
    /// A tier that is taken with care, because one of its messages gets no answer.
    Isolation(String),
    /// An exchange and key that refuse messages.
    Hop(String),
    /// A tier that rows name and no configuration knows.
    UnknownTier(String),
    /// A rule: its table, its sweep.
    Rule(String),
    /// A queue that the closer should consume.
    Closer(String),
}

impl Part {
    /// Whether the daemon is not ready while this part is unwell; the others are details.
    #[must_use]
    pub fn needed(&self) -> bool {
        self.rank() == 0
    }
}

impl Part {
    /// How bad it is, the worst first: nothing flows, orders never close, the pipeline is slower, nobody listens.
    #[must_use]
    pub fn rank(&self) -> u8 {
        match self {
            Self::Postgres | Self::RabbitMq | Self::Tier(_) | Self::Hop(_) => 0,
            Self::UnknownTier(_) | Self::Rule(_) | Self::Closer(_) | Self::Settle(_) => 1,
            Self::Listener | Self::Isolation(_) => 2,
            Self::Consumers(_) => 3,
        }
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postgres => write!(f, "postgres"),
            Self::RabbitMq => write!(f, "rabbitmq"),
            Self::Listener => write!(f, "listener"),
            Self::Tier(name) => write!(f, "tier {name}"),
            Self::Consumers(name) => write!(f, "consumers of tier {name}"),
            Self::Settle(name) => write!(f, "settling tier {name}"),
            Self::Isolation(name) => write!(f, "isolation of tier {name}"),
            Self::Hop(hop) => write!(f, "{hop}"),
            // Anybody who may insert a row chooses this name: no line breaks of theirs in our log.
            Self::UnknownTier(name) => write!(f, "unknown tier {}", name.escape_debug()),
            Self::Rule(name) => write!(f, "rule {name}"),
            Self::Closer(queue) => write!(f, "closer of queue '{}'", queue.escape_debug()),
        }
    }
}

/// The health of every part, and the last sign of life of every loop.
#[derive(Debug, Default)]
pub struct Health {
    parts: Mutex<BTreeMap<Part, Option<String>>>,
    /// What was logged of a part since it was well: two reasons that take turns are told once each.
    told: Mutex<BTreeMap<Part, BTreeSet<String>>>,
    beats: Mutex<BTreeMap<String, (Instant, Duration)>>,
    worked: Mutex<BTreeMap<Part, Instant>>,
    wakefulness: Mutex<Wakefulness>,
    pauses: Mutex<Option<Vec<Paused>>>,
    stopping: AtomicBool,
    broker: Mutex<Option<String>>,
    /// What is in flight.
    pub flight: Flight,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reasons of one trouble that are remembered; a reason with a figure in it may be another each time.
const REASONS: usize = 16;

impl Health {
    /// Reports a problem; logged when it is new, or its reason is.
    pub fn problem(&self, part: &Part, reason: &str) {
        lock(&self.parts).insert(part.clone(), Some(reason.to_owned()));
        if self.is_news(part, reason) {
            tracing::warn!(part = %part, "{part}: {reason}");
        }
    }

    fn is_news(&self, part: &Part, reason: &str) -> bool {
        let mut told = lock(&self.told);
        let told = told.entry(part.clone()).or_default();
        if told.len() == REASONS {
            told.clear();
        }
        told.insert(reason.to_owned())
    }

    /// Reports that a part works; logged when it did not before.
    pub fn well(&self, part: &Part) {
        lock(&self.worked).insert(part.clone(), Instant::now());
        if let Some(Some(_)) = lock(&self.parts).insert(part.clone(), None) {
            lock(&self.told).remove(part);
            tracing::info!(part = %part, "{part}: works again");
        }
    }

    /// Whether a part has been seen to work within the last `span`.
    #[must_use]
    pub fn worked_within(&self, part: &Part, span: Duration) -> bool {
        lock(&self.worked).get(part).is_some_and(|at| at.elapsed() < span)
    }

    /// Forgets a part that no longer exists.
    pub fn forget(&self, part: &Part) {
        if lock(&self.parts).remove(part).is_some() {
            lock(&self.told).remove(part);
            tracing::info!(part = %part, "{part}: no longer in trouble");
        }
    }

    /// Forgets who consumes, without a word: it is not known any more.
    pub fn forget_consumers(&self) {
        lock(&self.parts).retain(|part, _| !matches!(part, Part::Consumers(_)));
        lock(&self.told).retain(|part, _| !matches!(part, Part::Consumers(_)));
    }

    /// Every part that is unwell, with its reason.
    #[must_use]
    pub fn problems(&self) -> Vec<(Part, String)> {
        let parts = lock(&self.parts);
        parts.iter().filter_map(|(part, reason)| Some((part.clone(), reason.clone()?))).collect()
    }

    /// Every part that has reported, with its problem if it has one.
    #[must_use]
    pub fn parts(&self) -> BTreeMap<Part, Option<String>> {
        lock(&self.parts).clone()
    }

    /// Says to which broker there is a connection, host and port.
    pub fn set_broker(&self, broker: Option<String>) {
        *lock(&self.broker) = broker;
    }

    /// That broker.
    #[must_use]
    pub fn broker(&self) -> Option<String> {
        lock(&self.broker).clone()
    }

    /// The daemon is on its way out: it finishes what is in flight and claims nothing more.
    pub fn set_stopping(&self) {
        self.stopping.store(true, Ordering::Release);
    }

    /// Whether it is.
    #[must_use]
    pub fn stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }

    /// Whether both ends have reported in and are well.
    #[must_use]
    pub fn both_up(&self) -> bool {
        let parts = lock(&self.parts);
        [Part::Postgres, Part::RabbitMq].iter().all(|part| parts.get(part) == Some(&None))
    }

    /// Whether both ends have reported in, nothing needed is unwell, and no end is near.
    #[must_use]
    pub fn ready(&self) -> bool {
        !self.stopping()
            && self.both_up()
            && lock(&self.parts).iter().all(|(part, problem)| problem.is_none() || !part.needed())
    }

    /// Says whether the relay is awake.
    pub fn set_wakefulness(&self, wakefulness: Wakefulness) {
        *lock(&self.wakefulness) = wakefulness;
    }

    /// Whether the relay is awake.
    #[must_use]
    pub fn wakefulness(&self) -> Wakefulness {
        lock(&self.wakefulness).clone()
    }

    /// Says what is paused; none: it is not known.
    pub fn set_pauses(&self, pauses: Option<Vec<Paused>>) {
        *lock(&self.pauses) = pauses;
    }

    /// What is paused, unless that is not known.
    #[must_use]
    pub fn pauses(&self) -> Option<Vec<Paused>> {
        lock(&self.pauses).clone()
    }

    /// A loop shows that it makes progress and will again within `within`; an outage it waits out is progress too.
    pub fn beat(&self, name: &str, within: Duration) {
        lock(&self.beats).insert(name.to_owned(), (Instant::now(), within));
    }

    /// Waits for `work` in the loop `name`, showing signs of life meanwhile: an outage is waited out, not a stall.
    ///
    /// `work` is pinned by the caller: handed on by value, it would be kept twice.
    pub async fn patient<T>(&self, name: &str, within: Duration, mut work: Pin<&mut impl Future<Output = T>>) -> T {
        loop {
            self.beat(name, within);
            if let Ok(done) = tokio::time::timeout(BEAT, &mut work).await {
                return done;
            }
        }
    }

    /// A loop that has ended as it should is no longer waited for.
    pub fn retire(&self, name: &str) {
        lock(&self.beats).remove(name);
    }

    /// Loops whose next sign of life is overdue. None at the stop: they end one after the other, within the grace period.
    #[must_use]
    pub fn stalled(&self) -> Vec<String> {
        if self.stopping() {
            return Vec::new();
        }
        let beats = lock(&self.beats);
        beats.iter().filter(|(_, (at, within))| at.elapsed() > *within).map(|(name, _)| name.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_needs_both_ends_and_every_tier() {
        let health = Health::default();
        assert!(!health.ready(), "nothing has reported yet");
        health.well(&Part::Postgres);
        health.well(&Part::RabbitMq);
        assert!(health.ready());
        health.problem(&Part::UnknownTier("x".into()), "nearest known name is y");
        health.problem(&Part::Listener, "polling");
        assert!(health.ready(), "details do not make it unready");
        health.problem(&Part::Tier("t".into()), "queue gone");
        assert!(!health.ready());
        health.well(&Part::Tier("t".into()));
        assert!(health.ready());
        assert_eq!(health.problems().len(), 2);
    }

    #[test]
    fn reasons_that_take_turns_are_told_once_each_until_all_is_well() {
        let (health, part) = (Health::default(), Part::RabbitMq);
        let news = |reason| health.is_news(&part, reason);
        assert_eq!(["refused", "reset", "refused", "reset"].map(news), [true, true, false, false]);
        health.problem(&part, "reset");
        health.well(&part);
        assert!(news("reset"), "it is another trouble");
    }

    #[test]
    fn a_loop_that_is_overdue_is_named() {
        let health = Health::default();
        health.beat("worker 0", Duration::from_secs(3600));
        assert!(health.stalled().is_empty());
        health.beat("worker 1", Duration::ZERO);
        assert_eq!(health.stalled(), ["worker 1"]);
        health.set_stopping();
        assert!(health.stalled().is_empty(), "it has ended, or is about to");
    }
}
