//! The rules' statements, made when they are needed, and made again now and then: tables change under a running relay.

use crate::admin::health::{Health, Part};
use crate::config::Rule;
use crate::outbox::connect::{Pool, Settings};
use crate::outbox::error::Error;
use crate::rule::orders::{self, Orders};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Mutex;

/// How long they are used: as long as a sweep uses its own by default.
const FRESH: Duration = Duration::from_secs(300);

/// How long a rule that does not fit its table is left alone: many messages may wait for it.
const MISFIT: Duration = Duration::from_secs(2);

/// The statements of all rules.
#[derive(Debug, Default)]
pub(super) struct Prepared {
    /// Held while they are made, so that all who need them make them once.
    rules: Mutex<BTreeMap<String, Made>>,
}

/// What was made for one rule; none: it does not fit its table.
#[derive(Debug)]
struct Made {
    orders: Option<Arc<Orders>>,
    at: Instant,
}

impl Prepared {
    /// Those of one rule; none while it does not fit its table, which is said once.
    pub(super) async fn orders(
        &self,
        (pool, settings): (&Pool, &Settings),
        (name, rule): (&str, &Rule),
        health: &Health,
    ) -> Result<Option<Arc<Orders>>, Error> {
        let mut rules = self.rules.lock().await;
        let before = rules.get(name);
        let fresh = |made: &&Made| made.at.elapsed() < if made.orders.is_some() { FRESH } else { MISFIT };
        if let Some(made) = before.filter(fresh) {
            return Ok(made.orders.clone());
        }
        let was_misfit = before.is_some_and(|made| made.orders.is_none());
        let (orders, findings) = orders::prepare(pool, settings, name, rule).await?;
        let part = Part::Rule(name.to_owned());
        if orders.is_none() {
            health.problem(&part, &findings.problems.join("; "));
        } else if was_misfit {
            // Only our own word is taken back: the sweep may have another trouble with the same rule.
            health.well(&part);
        }
        let made = Made { orders: orders.map(Arc::new), at: Instant::now() };
        let orders = made.orders.clone();
        rules.insert(name.to_owned(), made);
        Ok(orders)
    }

    /// Has them made again: a statement failed.
    pub(super) async fn forget(&self, name: &str) {
        self.rules.lock().await.remove(name);
    }
}
