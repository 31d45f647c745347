//! The rules' statements, made when they are needed, and made again now and then: tables change under a running relay.
//!
//! Each rule by itself: somebody who has one rule's table locked holds up no other rule.

use crate::admin::health::{Health, Part};
use crate::config::Rule;
use crate::outbox::connect::Db;
use crate::rule::orders::{self, Orders};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long they are used: as long as a sweep uses its own by default.
const FRESH: Duration = Duration::from_secs(300);

/// How long a rule that could not be prepared is left alone, for many messages may wait for it; and how long what was prepared
/// is new.
const MISFIT: Duration = Duration::from_secs(2);

/// How long a message waits for another that has its rule prepared for the first time. That may take long, and the message
/// has a slot.
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

/// Why they are not to be had.
#[derive(Debug, Clone, Copy)]
pub(super) enum Hindrance {
    /// The database is away, or has not answered yet.
    Database,
    /// The rule does not fit its table, or that is locked; it was said.
    Rule,
}

/// Those of one rule, if they are to be had.
type Statements = Result<Arc<Orders>, Hindrance>;

/// What was made.
#[derive(Debug, Clone)]
struct Made {
    orders: Statements,
    /// What is wrong with the rule was said, and has to be taken back.
    told: bool,
    /// A statement failed since.
    doubted: bool,
    at: Instant,
}

impl Made {
    fn is_fresh(&self) -> bool {
        !self.doubted && self.at.elapsed() < if self.orders.is_ok() { FRESH } else { MISFIT }
    }
}

impl OfRule {
    fn get(&self) -> Option<Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn set(&self, made: Made) {
        *self.made.lock().unwrap_or_else(PoisonError::into_inner) = Some(made);
    }

    fn doubt(&self) {
        if let Some(made) = self.made.lock().unwrap_or_else(PoisonError::into_inner).as_mut() {
            made.doubted = true;
        }
    }
}

impl Prepared {
    pub(super) fn new<'a>(rules: impl Iterator<Item = &'a String>) -> Self {
        Self { rules: rules.map(|name| (name.clone(), OfRule::default())).collect() }
    }

    /// Those of one rule. While somebody makes them anew, the others go by those from before.
    pub(super) async fn orders(&self, db: &Db, (name, rule): (&str, &Rule), health: &Health) -> Statements {
        let of_rule = self.rules.get(name).ok_or(Hindrance::Rule)?;
        let before = of_rule.get();
        if let Some(made) = before.clone().filter(Made::is_fresh) {
            return made.orders;
        }
        let patience = if before.is_some() { Duration::ZERO } else { TOGETHER };
        let Ok(_making) = tokio::time::timeout(patience, of_rule.making.lock()).await else {
            return before.map_or(Err(Hindrance::Database), |made| made.orders);
        };
        let before = of_rule.get();
        if let Some(made) = before.clone().filter(Made::is_fresh) {
            return made.orders;
        }
        let made = make(db, (name, rule), health, before.is_some_and(|before| before.told)).await;
        let orders = made.orders.clone();
        of_rule.set(made);
        orders
    }

    /// Has them made again if those that were used are not new. Whoever is told so waits for others; new ones say what is so.
    pub(super) fn doubt_old(&self, name: &str, used: &Arc<Orders>) -> bool {
        let Some(of_rule) = self.rules.get(name) else { return false };
        let is_new = |made: &Made| {
            made.at.elapsed() <= MISFIT && made.orders.as_ref().is_ok_and(|orders| Arc::ptr_eq(orders, used))
        };
        let is_old = of_rule.get().is_none_or(|made| !is_new(&made));
        if is_old {
            of_rule.doubt();
        }
        is_old
    }

    /// Has them made again: a statement failed.
    pub(super) fn doubt(&self, name: &str) {
        if let Some(of_rule) = self.rules.get(name) {
            of_rule.doubt();
        }
    }
}

/// Makes those of one rule; what hinders it is said, and taken back when it no longer does.
async fn make(db: &Db, (name, rule): (&str, &Rule), health: &Health, was_told: bool) -> Made {
    let part = Part::Rule(name.to_owned());
    let (orders, told) = match orders::prepare(db, name, rule).await {
        Ok((Some(orders), _)) => {
            if was_told {
                // Only our own word is taken back: the sweep may have another trouble with the same rule.
                health.well(&part);
            }
            (Ok(Arc::new(orders)), false)
        }
        Ok((None, findings)) => {
            health.problem(&part, &findings.problems.join("; "));
            (Err(Hindrance::Rule), true)
        }
        // The database's trouble is told as such.
        Err(error) if error.is_away() => {
            tracing::debug!(rule = name, %error, "the closer waits: {error}");
            (Err(Hindrance::Database), was_told)
        }
        Err(error) => {
            health.problem(&part, &error.to_string());
            (Err(Hindrance::Rule), true)
        }
    };
    Made { orders, told, doubted: false, at: Instant::now() }
}
