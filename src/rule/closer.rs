//! The closer: consumes the messages of rules, and closes each one's order when it falls due.
//!
//! ```text
//! queue ─▶ intake ─▶ room ─▶ [ rule, order id ─▶ close + event ─▶ ack ]   `concurrency` at a time
//!                      ▲            │ early, locked, database away: waits, unacked
//!                      └────────────┤
//!                                   └─▶ outbox: held until due, or for half a minute, or parked; then ack
//! ```
//!
//! Whatever happens, a message is acked only when there is nothing left to do about it, and doing it twice changes
//! nothing. So a delivery whose channel is gone is simply forgotten: it comes again.

mod apply;
mod checks;
mod crowd;
mod intake;
mod losses;
mod order_id;
mod pace;
mod patience;
mod pause;
mod plan;
mod prepared;
mod room;
mod rows;
mod tell;
mod waits;

use super::port::{Delivery, Receipt};
use crate::admin::flight::Waits as InFlight;
use crate::admin::health::{Health, STALL};
use crate::admin::metrics::Metrics;
use crate::config::{Closer as Config, Rule};
use crate::outbox::connect::Db;
use crate::stop::Stop;
use crate::tier::Tier;
use apply::Fate;
use crowd::Crowd;
use losses::Losses;
use pace::Pace;
use patience::Patience;
use pause::Pause;
use plan::Plan;
use prepared::Prepared;
use room::{Occupant, Room};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;
use waits::Waits;

/// Who closes, in events, the log and metrics.
const BY: &str = "closer";

/// The closer of one relay: one intake a queue, and some that take from all of them.
#[derive(Debug)]
pub struct Closer<R> {
    db: Db,
    rules: BTreeMap<String, Rule>,
    plan: Plan,
    prefetch: usize,
    max_attempts: u32,
    pace: Pace,
    patience: Patience,
    prepared: Prepared,
    losses: Losses,
    crowd: Crowd,
    pause: Pause,
    room: Room<Work<R>>,
    health: Arc<Health>,
    metrics: Arc<Metrics>,
    stop: Stop,
}

/// A delivery, and what came of it so far.
#[derive(Debug)]
struct Work<R> {
    delivery: Delivery<R>,
    waits: Waits,
}

/// Queues that a closer with this configuration consumes.
#[must_use]
pub fn consumed(config: &Config, tiers: &BTreeMap<String, Tier>, rules: &BTreeMap<String, Rule>) -> BTreeSet<String> {
    Plan::new(config, tiers, rules).queues().cloned().collect()
}

impl<R> Occupant for Work<R> {
    fn queue(&self) -> &str {
        &self.delivery.queue
    }
}

impl<R: Receipt> Closer<R> {
    /// A closer that has not begun yet.
    #[must_use]
    pub fn new(
        db: Db,
        config: &Config,
        tiers: &BTreeMap<String, Tier>,
        rules: &BTreeMap<String, Rule>,
        (health, metrics): (Arc<Health>, Arc<Metrics>),
        stop: Stop,
    ) -> Self {
        let plan = Plan::new(config, tiers, rules);
        plan.queues().for_each(|queue| metrics.closer.start_at_zero(queue));
        Self {
            db,
            rules: rules.clone(),
            plan,
            prefetch: usize::from(config.prefetch),
            max_attempts: config.max_attempts,
            pace: Pace::new(config.rate),
            patience: Patience::new(config.concurrency),
            prepared: Prepared::new(rules.keys()),
            losses: Losses::default(),
            crowd: Crowd::default(),
            pause: Pause::default(),
            room: Room::default(),
            health,
            metrics,
            stop,
        }
    }

    /// Queues to consume.
    pub fn queues(&self) -> impl Iterator<Item = &String> {
        self.plan.queues()
    }

    /// Takes deliveries one by one until the stop; what it has begun it brings to its end.
    pub async fn work(&self, name: &str) {
        while let Some(mut work) = self.patient(name, self.stop.or(self.room.next())).await {
            let queue = work.delivery.queue.clone();
            if work.delivery.receipt.stale() {
                continue;
            }
            if self.patient(name, self.stop.or(self.pace.turn())).await.is_none() {
                break;
            }
            let flying = self.health.flight.begin(InFlight::Order, Instant::now());
            match self.patient(name, Box::pin(self.apply(&mut work))).await {
                Fate::Done => self.patient(name, work.delivery.receipt.ack()).await,
                Fate::Later(wait) => self.room.later(work, wait),
            }
            drop(flying);
            self.metrics.closer.waiting(&queue, self.room.waiting(&queue));
        }
        self.health.retire(name);
    }

    /// Waits for `work`, showing signs of life meanwhile.
    async fn patient<T>(&self, name: &str, work: impl Future<Output = T>) -> T {
        self.health.patient(name, STALL, std::pin::pin!(work)).await
    }
}
