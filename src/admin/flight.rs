//! What is in flight: batches that wait for one of the two servers, and orders that are being closed.
//!
//! A relay that is asleep claims nothing, and may have batches that hang all the same: without these figures it would look
//! idle while its backlog grows.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What something in flight waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// A batch, for its confirms.
    Confirms,
    /// A batch, for the database to write what became of it.
    Database,
    /// An order, to be looked at and closed.
    Order,
}

/// Everything in flight, each with its begin.
#[derive(Debug, Default)]
pub struct Flight {
    all: Mutex<BTreeMap<u64, (Waits, Instant)>>,
}

/// Something in flight, until it is dropped.
#[derive(Debug)]
pub struct Flying<'a> {
    flight: &'a Flight,
    number: u64,
}

/// What is in flight at a moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct InFlight {
    /// Batches that wait for the broker's confirms.
    pub wait_for_confirms: usize,
    /// Batches that wait for the database.
    pub wait_for_database: usize,
    /// Orders that the closer has in hand.
    pub orders: usize,
    /// For how long the oldest of them has been.
    pub oldest_age_seconds: Option<f64>,
}

impl Flight {
    /// Something that was begun at `since`.
    pub fn begin(&self, waits: Waits, since: Instant) -> Flying<'_> {
        let mut all = self.lock();
        let number = all.last_key_value().map_or(0, |(last, _)| last + 1);
        all.insert(number, (waits, since));
        Flying { flight: self, number }
    }

    /// What there is now.
    #[must_use]
    pub fn now(&self) -> InFlight {
        let all = self.lock();
        let count = |wanted| all.values().filter(|(waits, _)| *waits == wanted).count();
        InFlight {
            wait_for_confirms: count(Waits::Confirms),
            wait_for_database: count(Waits::Database),
            orders: count(Waits::Order),
            oldest_age_seconds: all.values().map(|(_, since)| since.elapsed().as_secs_f64()).reduce(f64::max),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, (Waits, Instant)>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Flying<'_> {
    /// It waits for something else now.
    pub fn waits(&self, now: Waits) {
        if let Some((waits, _)) = self.flight.lock().get_mut(&self.number) {
            *waits = now;
        }
    }
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        self.flight.lock().remove(&self.number);
    }
}

impl fmt::Display for InFlight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let batches = |count, what| (count, if count == 1 { "batch" } else { "batches" }, what);
        let each = [
            batches(self.wait_for_confirms, " waiting for the broker's confirms"),
            batches(self.wait_for_database, " waiting for the database"),
            (self.orders, if self.orders == 1 { "order" } else { "orders" }, " being closed"),
        ];
        let each = each.iter().filter(|(count, ..)| *count > 0);
        let each: Vec<String> = each.map(|(count, thing, what)| format!("{count} {thing}{what}")).collect();
        let Some(age) = self.oldest_age_seconds.filter(|_| !each.is_empty()) else { return write!(f, "nothing") };
        let age = Duration::try_from_secs_f64(age).unwrap_or_default();
        write!(f, "{}, the oldest for {}", each.join(", "), crate::words::age(age))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_ended_is_in_flight_no_more_and_the_oldest_is_told() {
        let (flight, now) = (Flight::default(), Instant::now());
        assert_eq!(flight.now().to_string(), "nothing");
        let old = flight.begin(Waits::Confirms, now - Duration::from_secs(8));
        let young = flight.begin(Waits::Confirms, now);
        young.waits(Waits::Database);
        let order = flight.begin(Waits::Order, now);
        let both = "1 batch waiting for the broker's confirms, 1 batch waiting for the database";
        assert_eq!(flight.now().to_string(), format!("{both}, 1 order being closed, the oldest for 8s"));
        drop((old, order));
        let left = flight.now();
        assert_eq!((left.wait_for_confirms, left.wait_for_database, left.orders), (0, 1, 0));
        assert!(left.oldest_age_seconds.is_some_and(|age| age < 8.0));
    }
}
