//! The rules' statements, made when they are needed, and made again now and then: tables change under a running relay.
//!
//! Each rule by itself: somebody who has one rule's table locked holds up no other rule.

use crate::admin::health::{Health, Part};
use crate::config::Rule;
use crate::outbox::connect::{Pool, Settings};
use crate::outbox::error::Error;
use crate::rule::orders::{self, Orders};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long they are used: as long as a sweep uses its own by default.
const FRESH: Duration = Duration::from_secs(300);

/// How long a rule that could not be prepared is left alone: many messages may wait for it.
const MISFIT: Duration = Duration::from_secs(2);

/// How long a message waits for another that has its rule prepared. That may take long, and the message has a slot.
const TOGETHER: Duration = Duration::from_millis(250);

/// The statements of all rules.
#[derive(Debug)]
pub(super) struct Prepared {
    rules: BTreeMap<String, OfRule>,
}

/// Those of one rule.
#[derive(Debug, Default)]
struct OfRule {
    /// Held while they are made, so that all who need them make them once.
    making: tokio::sync::Mutex<()>,
    made: Mutex<Option<Made>>,
}

/// What was made; no orders: the rule does not fit its table, or could not be looked at.
#[derive(Debug, Clone)]
struct Made {
    orders: Option<Arc<Orders>>,
    /// What is wrong with the rule was said, and has to be taken back.
    told: bool,
    at: Instant,
}

impl Made {
    fn is_fresh(&self) -> bool {
        self.at.elapsed() < if self.orders.is_some() { FRESH } else { MISFIT }
    }
}

impl OfRule {
    fn get(&self) -> Option<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, made: Option<Made>) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = made;
    }
}

impl Prepared {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a String>) -> Self {
        Self { rules: rules.map(|name| (name.clone(), OfRule::default())).collect() }
    }

    /// Those of one rule; none while they are not to be had, for a reason that was said.
    pub(super) async fn orders(
        &self,
        sides: (&Pool, &Settings),
        (name, rule): (&str, &Rule),
        health: &Health,
    ) -> Option<Arc<Orders>> {
        let of_rule = self.rules.get(name)?;
        if let Some(made) = of_rule.get().filter(Made::is_fresh) {
            return made.orders;
        }
        let Ok(_making) = tokio::time::timeout(TOGETHER, of_rule.making.lock()).await else {
            // Those from before were good until now.
            return of_rule.get().and_then(|made| made.orders);
        };
        let before = of_rule.get();
        if let Some(made) = before.clone().filter(Made::is_fresh) {
            return made.orders;
        }
        let made = make(sides, (name, rule), health, before.is_some_and(|before| before.told)).await;
        let orders = made.orders.clone();
        of_rule.set(Some(made));
        orders
    }

    /// Has them made again: a statement failed.
    pub(super) fn forget(&self, name: &str) {
        if let Some(of_rule) = self.rules.get(name) {
            of_rule.set(None);
        }
    }
}

/// Makes those of one rule; what hinders it is said, and taken back when it no longer does.
async fn make(
    (pool, settings): (&Pool, &Settings),
    (name, rule): (&str, &Rule),
    health: &Health,
    was_told: bool,
) -> Made {
    let part = Part::Rule(name.to_owned());
    let (orders, told) = match orders::prepare(pool, settings, name, rule).await {
        Ok((Some(orders), _)) => {
            if was_told {
                // Only our own word is taken back: the sweep may have another trouble with the same rule.
                health.well(&part);
            }
            (Some(Arc::new(orders)), false)
        }
        Ok((None, findings)) => {
            health.problem(&part, &findings.problems.join("; "));
            (None, true)
        }
        // The database's trouble is told as such.
        Err(error) if error.is_away() => {
            tracing::debug!(rule = name, %error, "the closer waits: {error}");
            (None, was_told)
        }
        Err(error) => {
            health.problem(&part, &hindrance(&rule.table, &error));
            (None, true)
        }
    };
    Made { orders, told, at: Instant::now() }
}

/// Why the table of a rule could not be looked at, and what ends that.
fn hindrance(table: &str, error: &Error) -> String {
    if error.is_locked() {
        return format!(
            "{table} is locked, so none of its orders is closed: end the migration that has it locked, or wait for it; \
             select pid, mode from pg_locks where relation = '{table}'::regclass and granted"
        );
    }
    format!("{table} cannot be looked at, so none of its orders is closed; tried again every {MISFIT:?}: {error}")
}
