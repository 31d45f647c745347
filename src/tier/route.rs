//! Which way the message of a row takes. Pure.

use super::{Hop, Kind, MAX_PLUGIN_DELAY, Target, Tier, micros};
use std::time::Duration;

/// What a published message meets before its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Nothing: it is the target.
    Straight,
    /// The tier's delay queue: the message arrives one delay from now.
    DelayQueue,
    /// The plugin, which hands it on after this time.
    Plugin(Duration),
}

/// Which way a message takes now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// To this hop.
    Publish {
        /// Where to publish.
        hop: Hop,
        /// What waits for it there.
        way: Way,
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
    /// The delay of this tier; zero where it has none.
    #[must_use]
    pub fn delay(&self) -> Duration {
        match &self.kind {
            Kind::Direct => Duration::ZERO,
            Kind::Queue { delay, .. } => *delay,
            Kind::Hold { delay } | Kind::Plugin { delay, .. } => delay.unwrap_or_default(),
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
            Target::Queue(queue) => fixed(match &self.kind {
                Kind::Plugin { exchange, .. } => Hop { exchange: exchange.clone(), routing_key: queue.clone() },
                Kind::Direct | Kind::Queue { .. } | Kind::Hold { .. } => Hop::queue(queue),
            }),
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
        if let Kind::Hold { delay: None } | Kind::Plugin { delay: None, .. } = &self.kind
            && times.due_at.is_none()
        {
            return Route::Bad(format!(
                "due_at is null, and tier '{}' has no delay; give the row a due_at, or the tier a delay",
                self.name
            ));
        }
        let due = self.due(times);
        let left = due.saturating_sub(times.now);
        match &self.kind {
            // Overdue or not, it goes through the plugin's exchange: the target is bound to nothing else.
            Kind::Plugin { .. } => {
                let longest = micros(MAX_PLUGIN_DELAY);
                if left > longest {
                    return Route::Hold(due.saturating_sub(longest));
                }
                // Whole milliseconds, rounded up: not early.
                let wait = Duration::from_millis(u64::try_from(left.max(0)).unwrap_or(0).div_ceil(1_000));
                Route::Publish { hop: target, way: Way::Plugin(wait), row_key }
            }
            _ if left <= 0 => Route::Publish { hop: target, way: Way::Straight, row_key },
            Kind::Hold { .. } => Route::Hold(due),
            Kind::Direct if times.due_at.is_some() => Route::Hold(due),
            Kind::Direct => Route::Publish { hop: target, way: Way::Straight, row_key },
            Kind::Queue { delay, late_tolerance, queue } => {
                let behind = micros(*delay).saturating_sub(left);
                if behind < 0 {
                    Route::Hold(due.saturating_sub(micros(*delay)))
                } else if behind > micros(*late_tolerance) {
                    Route::Hold(due)
                } else {
                    Route::Publish { hop: queue.hop.clone(), way: Way::DelayQueue, row_key }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::{Arguments, DelayQueue, default_late_tolerance};
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
        let way = if queue == "duebox.t" { Way::DelayQueue } else { Way::Straight };
        Route::Publish { hop: Hop::queue(queue), way, row_key: false }
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
    fn a_hold_tier_keeps_every_row_until_it_is_due() {
        let delay = Some(Duration::from_secs(5));
        let tier = Tier { kind: Kind::Hold { delay }, ..queue_tier(1) };
        assert_eq!(tier.route(&times(0, None, 0), None), Route::Hold(5 * S));
        assert_eq!(tier.route(&times(0, Some(9), 5), None), Route::Hold(9));
        assert_eq!(tier.route(&times(0, Some(9), 9), None), to("due"));
        let tier = Tier { kind: Kind::Hold { delay: None }, ..queue_tier(1) };
        assert_eq!(tier.route(&times(0, Some(9), 5), None), Route::Hold(9));
        assert!(matches!(tier.route(&times(0, None, 5), None), Route::Bad(_)));
    }

    #[test]
    fn the_plugin_is_told_the_time_left_and_no_more_than_it_can_count() {
        let kind = Kind::Plugin { delay: Some(Duration::from_secs(60)), exchange: "later".into() };
        let tier = Tier { kind, ..queue_tier(1) };
        let hop = Hop { exchange: "later".into(), routing_key: "due".into() };
        let sent =
            |left| Route::Publish { hop: hop.clone(), way: Way::Plugin(Duration::from_millis(left)), row_key: false };
        assert_eq!(tier.route(&times(0, None, 20 * S), None), sent(40_000));
        assert_eq!(tier.route(&times(0, Some(1), 0), None), sent(1), "rounded up");
        assert_eq!(tier.route(&times(0, Some(1), 7), None), sent(0), "overdue");
        let longest = micros(MAX_PLUGIN_DELAY);
        assert_eq!(tier.route(&times(0, Some(longest + 7), 0), None), Route::Hold(7));
    }

    #[test]
    fn a_row_key_is_wanted_exactly_where_the_target_has_none() {
        let mut tier = Tier { kind: Kind::Direct, ..queue_tier(1) };
        assert!(matches!(tier.route(&times(0, None, 0), Some("k")), Route::Bad(_)));
        tier.target = Target::Exchange { exchange: "x".into(), exchange_type: None, routing_key: None, queue: None };
        let hop = Hop { exchange: "x".into(), routing_key: "k".into() };
        assert_eq!(
            tier.route(&times(0, None, 0), Some("k")),
            Route::Publish { hop, way: Way::Straight, row_key: true }
        );
        assert!(matches!(tier.route(&times(0, None, 0), None), Route::Bad(_)));
        assert!(tier.fixed_hops().is_empty());
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
