//! Tiers: the named ways to be delayed, and the rule that says which way a message takes.
//!
//! Pure: no I/O, no clock. Times are microseconds since the Unix epoch as read from the database, so that
//! every comparison uses one clock, the database's.

mod nearest;
mod target;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

pub use nearest::{hint, nearest};
pub use target::Target;

/// Longest `x-message-ttl` that RabbitMQ takes: ten years. Above it a declare is refused with 406.
pub const MAX_DELAY: Duration = Duration::from_millis(315_360_000_000);

/// Shortest delay: the broker counts in whole milliseconds, and 0 means "drop unless deliverable at once".
pub const MIN_DELAY: Duration = Duration::from_millis(1);

/// The exchange and routing key that a message is handed to: what can be in trouble.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hop {
    /// Exchange name; empty is the default exchange, which routes by queue name and cannot be unbound.
    pub exchange: String,
    /// Routing key; for the default exchange, the queue's name.
    pub routing_key: String,
}

impl Hop {
    /// The hop that reaches `queue` through the default exchange.
    #[must_use]
    pub fn queue(queue: &str) -> Self {
        Self { exchange: String::new(), routing_key: queue.to_owned() }
    }
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.exchange.is_empty() {
            write!(f, "queue '{}'", self.routing_key.escape_debug())
        } else {
            write!(f, "exchange '{}' with key '{}'", self.exchange, self.routing_key.escape_debug())
        }
    }
}

/// A value in a queue's argument table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// A whole number.
    Int(i64),
    /// A text.
    Text(String),
    /// A truth value.
    Bool(bool),
}

impl fmt::Display for Argument {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Int(value) => write!(f, "{value}"),
            Self::Text(value) => write!(f, "{value}"),
            Self::Bool(value) => write!(f, "{value}"),
        }
    }
}

/// The arguments of a queue, in a fixed order so that their hash is stable.
pub type Arguments = BTreeMap<String, Argument>;

/// The delay queue of a `queue` tier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayQueue {
    /// Its name: ours carries the TTL and a hash of all arguments, the user's is taken as it is.
    pub name: String,
    /// All arguments it is declared with.
    pub arguments: Arguments,
    /// What publishes go to: the queue itself, or the user's exchange in front of it.
    pub hop: Hop,
}

/// How a tier delays.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Straight to the target.
    Direct,
    /// A delay queue of one fixed TTL in front of the target.
    Queue {
        /// The delay.
        delay: Duration,
        /// How far behind its tier a row may be and still take the delay queue.
        late_tolerance: Duration,
        /// The queue that holds messages meanwhile.
        queue: DelayQueue,
    },
}

/// One `[tier.NAME]` of `relay.toml`, checked and complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tier {
    /// The name that rows carry.
    pub name: String,
    /// How it delays.
    pub kind: Kind,
    /// Where its messages end.
    pub target: Target,
    /// Publish with the `mandatory` flag, so that an unroutable message comes back instead of vanishing.
    pub mandatory: bool,
}

/// Which way a message takes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To this hop.
    Publish {
        /// Where to publish.
        hop: Hop,
        /// It is the delay queue: the message arrives one delay from now.
        delayed: bool,
        /// The row chose the routing key, so an unroutable message is the row's own fault.
        row_key: bool,
    },
    /// It stays in Postgres until this time (microseconds since the Unix epoch).
    Hold(i64),
    /// The row contradicts its tier and can never be published as it is.
    Bad(String),
}

/// What [`Tier::route`] needs to know of a row; times in microseconds since the Unix epoch.
#[derive(Debug, Clone, Copy)]
pub struct RowTimes {
    /// The row's `created_at`.
    pub created_at: i64,
    /// The row's own `due_at`, if it has one.
    pub due_at: Option<i64>,
    /// The claim's `now()`.
    pub now: i64,
}

impl Tier {
    /// The delay of this tier; zero for `direct`.
    #[must_use]
    pub fn delay(&self) -> Duration {
        match &self.kind {
            Kind::Direct => Duration::ZERO,
            Kind::Queue { delay, .. } => *delay,
        }
    }

    /// When a row of this tier must reach its consumer, in microseconds since the Unix epoch.
    #[must_use]
    pub fn due(&self, times: &RowTimes) -> i64 {
        times.due_at.unwrap_or_else(|| times.created_at.saturating_add(micros(self.delay())))
    }

    /// The hop of the target for a row with this `routing_key`; `Err` says why there is none.
    fn target_hop(&self, row_key: Option<&str>) -> Result<(Hop, bool), String> {
        let fixed = |hop| match row_key {
            None => Ok((hop, false)),
            Some(key) => Err(format!(
                "routing_key {key:?} on a row of tier '{}', whose target has a fixed way; leave routing_key null, or \
                 use a tier whose target is an exchange without a routing_key",
                self.name
            )),
        };
        match &self.target {
            Target::Queue(queue) => fixed(Hop::queue(queue)),
            Target::Exchange { exchange, routing_key: Some(key), .. } => {
                fixed(Hop { exchange: exchange.clone(), routing_key: key.clone() })
            }
            Target::Exchange { exchange, routing_key: None, .. } => match row_key {
                Some(key) => Ok((Hop { exchange: exchange.clone(), routing_key: key.to_owned() }, true)),
                None => Err(format!(
                    "routing_key is null, and the target of tier '{}' is exchange '{exchange}' without a key of its own",
                    self.name
                )),
            },
        }
    }

    /// Which way a row takes at `times.now`.
    ///
    /// A delay queue releases in order of arrival, so it may hold only messages of (nearly) equal delay: a row that is
    /// late, or early, or has a due time of its own waits in Postgres instead, and nobody waits behind it
    /// (measured: one message with a shorter expiration behind a fresh one came 4-5 s late).
    #[must_use]
    pub fn route(&self, times: &RowTimes, row_key: Option<&str>) -> Route {
        let (target, row_key) = match self.target_hop(row_key) {
            Ok(found) => found,
            Err(reason) => return Route::Bad(reason),
        };
        let due = self.due(times);
        let left = due.saturating_sub(times.now);
        match &self.kind {
            _ if left <= 0 => Route::Publish { hop: target, delayed: false, row_key },
            Kind::Direct if times.due_at.is_some() => Route::Hold(due),
            Kind::Direct => Route::Publish { hop: target, delayed: false, row_key },
            Kind::Queue { delay, late_tolerance, queue } => {
                let behind = micros(*delay).saturating_sub(left);
                if behind < 0 {
                    Route::Hold(due.saturating_sub(micros(*delay)))
                } else if behind > micros(*late_tolerance) {
                    Route::Hold(due)
                } else {
                    Route::Publish { hop: queue.hop.clone(), delayed: true, row_key }
                }
            }
        }
    }

    /// The hops that every row of this tier goes to; empty when rows bring their own keys.
    #[must_use]
    pub fn fixed_hops(&self) -> Vec<Hop> {
        let mut hops: Vec<Hop> = self.target_hop(None).map(|(hop, _)| hop).into_iter().collect();
        if let Kind::Queue { queue, .. } = &self.kind {
            hops.push(queue.hop.clone());
        }
        hops
    }
}

/// How far behind its tier a row may be by default: 1 s or 1 % of the delay, the larger, at most 10 s and at most half
/// the delay.
#[must_use]
pub fn default_late_tolerance(delay: Duration) -> Duration {
    (delay / 100).max(Duration::from_secs(1)).min(Duration::from_secs(10)).min(delay / 2)
}

/// The name of a delay queue of ours: tier, TTL in milliseconds, and a hash of all its arguments.
///
/// A changed delay or target thus makes a new queue while the old one drains; a redeclare of the same name with other
/// arguments would be a 406.
#[must_use]
pub fn delay_queue_name(tier: &str, delay: Duration, arguments: &Arguments) -> String {
    let mut text = String::new();
    for (key, value) in arguments {
        // The type is part of it: 1 and "1" are different arguments to the broker.
        let tag = match value {
            Argument::Int(_) => 'i',
            Argument::Text(_) => 't',
            Argument::Bool(_) => 'b',
        };
        text.push_str(&format!("{key}\0{tag}{value}\0"));
    }
    let hash = uuid::Uuid::new_v5(&uuid::Uuid::NAMESPACE_OID, text.as_bytes()).simple().to_string();
    format!("duebox.{tier}.{}.{}", delay.as_millis(), &hash[..6])
}

/// Microseconds of a duration, saturating.
fn micros(duration: Duration) -> i64 {
    i64::try_from(duration.as_micros()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const S: i64 = 1_000_000;

    fn queue_tier(delay_s: u64) -> Tier {
        let delay = Duration::from_secs(delay_s);
        let name = "duebox.t".to_owned();
        Tier {
            name: "t".into(),
            kind: Kind::Queue {
                delay,
                late_tolerance: default_late_tolerance(delay),
                queue: DelayQueue { hop: Hop::queue(&name), name, arguments: Arguments::new() },
            },
            target: Target::Queue("due".into()),
            mandatory: true,
        }
    }

    fn times(created_at: i64, due_at: Option<i64>, now: i64) -> RowTimes {
        RowTimes { created_at, due_at, now }
    }

    fn to(queue: &str) -> Route {
        Route::Publish { hop: Hop::queue(queue), delayed: queue == "duebox.t", row_key: false }
    }

    #[test]
    fn a_fresh_row_takes_the_delay_queue() {
        let tier = queue_tier(1800);
        assert_eq!(tier.route(&times(0, None, 0), None), to("duebox.t"));
        assert_eq!(tier.route(&times(0, None, 10 * S), None), to("duebox.t"), "on the tolerance");
    }

    #[test]
    fn a_late_row_waits_in_postgres_until_due_then_goes_straight() {
        let tier = queue_tier(1800);
        assert_eq!(tier.route(&times(0, None, 10 * S + 1), None), Route::Hold(1800 * S));
        assert_eq!(tier.route(&times(0, None, 1800 * S), None), to("due"));
        assert_eq!(tier.route(&times(0, None, 9999 * S), None), to("due"));
    }

    #[test]
    fn a_row_with_more_time_left_than_the_delay_is_held_until_exactly_the_delay_is_left() {
        let tier = queue_tier(60);
        assert_eq!(tier.route(&times(0, Some(100 * S), 0), None), Route::Hold(40 * S));
        assert_eq!(tier.route(&times(0, Some(100 * S), 40 * S), None), to("duebox.t"));
        assert_eq!(tier.route(&times(0, Some(30 * S), 0), None), Route::Hold(30 * S), "less left than the delay");
    }

    #[test]
    fn a_direct_tier_holds_a_row_with_a_due_time() {
        let tier = Tier { kind: Kind::Direct, ..queue_tier(1) };
        assert_eq!(tier.route(&times(0, None, 5), None), to("due"));
        assert_eq!(tier.route(&times(0, Some(9), 5), None), Route::Hold(9));
        assert_eq!(tier.route(&times(0, Some(9), 9), None), to("due"));
    }

    #[test]
    fn a_row_key_is_wanted_exactly_where_the_target_has_none() {
        let mut tier = Tier { kind: Kind::Direct, ..queue_tier(1) };
        assert!(matches!(tier.route(&times(0, None, 0), Some("k")), Route::Bad(_)));
        tier.target = Target::Exchange { exchange: "x".into(), exchange_type: None, routing_key: None, queue: None };
        let hop = Hop { exchange: "x".into(), routing_key: "k".into() };
        assert_eq!(tier.route(&times(0, None, 0), Some("k")), Route::Publish { hop, delayed: false, row_key: true });
        assert!(matches!(tier.route(&times(0, None, 0), None), Route::Bad(_)));
        assert!(tier.fixed_hops().is_empty());
    }

    #[test]
    fn the_late_tolerance_follows_its_four_bounds() {
        for (delay_ms, tolerance_ms) in
            [(1, 0), (1_000, 500), (2_000, 1_000), (10_000, 1_000), (200_000, 2_000), (1_800_000, 10_000)]
        {
            let got = default_late_tolerance(Duration::from_millis(delay_ms)).as_millis();
            assert_eq!(got, tolerance_ms, "delay {delay_ms} ms");
        }
    }

    #[test]
    fn a_queue_name_changes_with_every_argument() {
        let delay = Duration::from_secs(1800);
        let name = |pairs: &[(&str, Argument)]| {
            delay_queue_name("order-30m", delay, &pairs.iter().map(|(k, v)| ((*k).to_owned(), v.clone())).collect())
        };
        let plain = name(&[("a", Argument::Int(1))]);
        assert!(plain.starts_with("duebox.order-30m.1800000."), "{plain}");
        assert_eq!(plain, name(&[("a", Argument::Int(1))]));
        assert_ne!(plain, name(&[("a", Argument::Int(2))]));
        assert_ne!(plain, name(&[("a", Argument::Text("1".into()))]));
    }

    proptest! {
        #[test]
        fn no_row_is_ever_sent_to_arrive_before_it_is_due(
            delay in 1u64..100_000, created in -10_000_000i64..10_000_000, own in any::<bool>(),
            due in -200_000_000_000i64..200_000_000_000, now in -200_000_000_000i64..200_000_000_000,
        ) {
            let tier = queue_tier(delay);
            let times = times(created, own.then_some(due), now);
            let due = tier.due(&times);
            match tier.route(&times, None) {
                Route::Publish { hop, .. } if hop == Hop::queue("due") => prop_assert!(now >= due),
                Route::Publish { .. } => {
                    let arrives = now + micros(tier.delay());
                    prop_assert!(arrives >= due);
                    prop_assert!(arrives - due <= micros(default_late_tolerance(tier.delay())));
                }
                Route::Hold(until) => prop_assert!(until > now && until <= due),
                Route::Bad(reason) => prop_assert!(false, "{}", reason),
            }
        }
    }
}
