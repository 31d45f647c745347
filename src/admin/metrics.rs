//! The metrics: every name and label of them is here.

mod closer;
mod rules;

use super::wakefulness::Wakefulness;
use closer::Closer;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use rules::Rules;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// Label of everything that belongs to a tier.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByTier {
    /// The tier.
    pub tier: String,
}

/// Label of what both ends have.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct BySide {
    /// `postgres`, `rabbitmq`, or `listener` for the connection that hears producers.
    pub side: &'static str,
}

/// Label of the relay's wakefulness.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByState {
    /// See [`Wakefulness::NAMES`].
    pub state: &'static str,
}

/// Label of what can be paused.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByWhat {
    /// In the words of `duebox pause`: `relay`, `tier NAME`, ...
    pub what: String,
}

/// Label of the times that a batch takes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByPhase {
    /// `claim`, `confirm` or `settle`.
    pub phase: &'static str,
}

type PerTier = Family<ByTier, Counter>;

/// Seconds, in buckets that double from a quarter of a millisecond, which is a quick answer on one machine, to over a
/// minute.
type Times<Label> = Family<Label, Histogram, fn() -> Histogram>;

/// A gauge of seconds, or of a share.
pub type Seconds = Gauge<f64, AtomicU64>;

/// All metrics of one daemon.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Messages handed to the broker.
    pub published: PerTier,
    /// Messages that the broker confirmed and that were marked sent.
    pub confirmed: PerTier,
    /// Messages that came back as unroutable.
    pub returned: PerTier,
    /// Messages that the broker refused.
    pub nacked: PerTier,
    /// Messages of batches whose outcome is unknown and that will be published again.
    pub unknown: PerTier,
    /// Rows that were parked.
    pub parked: PerTier,
    /// Connections made again after one was lost.
    pub reconnects: Family<BySide, Counter>,
    /// 1 while the end is usable.
    pub up: Family<BySide, Gauge>,
    /// Pending rows that could go now.
    pub backlog: Family<ByTier, Gauge>,
    /// Pending rows held until later.
    pub held: Family<ByTier, Gauge>,
    /// How full the server's queue of notifications is, from 0 to 1; NaN when unknown.
    pub notification_queue: Seconds,
    /// Age of the oldest row that could go now.
    pub oldest_age: Family<ByTier, Seconds>,
    /// 1 for each tier that rows name and this relay does not know.
    pub unknown_tier: Family<ByTier, Gauge>,
    /// Consumers on each tier's target queue.
    pub target_consumers: Family<ByTier, Gauge>,
    /// 1 for what is paused.
    pub paused: Family<ByWhat, Gauge>,
    /// 1 for the state that the relay is in.
    pub wakefulness: Family<ByState, Gauge>,
    /// Open transactions that are waited for on the way to sleep.
    pub waits_for: Gauge,
    /// Times it fell asleep.
    pub sleeps: Counter,
    /// What each phase of a batch takes.
    pub phases: Times<ByPhase>,
    /// From the moment a row could go to its confirm.
    pub lag: Times<ByTier>,
    /// What rules did.
    pub rules: Rules,
    /// What the closer does with messages.
    pub closer: Closer,
}

fn times<Label: Clone + Eq + std::hash::Hash>() -> Times<Label> {
    Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_25, 2.0, 19)))
}

impl Default for Metrics {
    fn default() -> Self {
        let mut registry = Registry::with_prefix("duebox");
        macro_rules! register {
            ($name:literal, $help:literal) => {
                register!($name, $help, Default::default())
            };
            ($name:literal, $help:literal, $metric:expr) => {{
                let metric = $metric;
                registry.register($name, $help, Clone::clone(&metric));
                metric
            }};
        }
        Self {
            published: register!("published", "Messages handed to the broker"),
            confirmed: register!("confirmed", "Messages confirmed by the broker and marked sent"),
            returned: register!("returned", "Messages that came back as unroutable"),
            nacked: register!("nacked", "Messages that the broker refused"),
            unknown: register!("unknown", "Messages whose outcome is unknown; they are published again"),
            parked: register!("parked", "Rows taken out of circulation with a reason"),
            reconnects: register!("reconnects", "Connections made again after one was lost"),
            up: register!("up", "1 while this end is usable"),
            backlog: register!("backlog", "Pending rows that could go now; absent when unknown"),
            held: register!("held", "Pending rows held until later; absent when unknown"),
            notification_queue: register!(
                "notification_queue_usage",
                "How full the server's queue of notifications is, from 0 to 1; NaN when unknown"
            ),
            oldest_age: register!("oldest_age_seconds", "Age of the oldest row that could go now"),
            unknown_tier: register!("unknown_tier", "1 for each tier that rows name and this relay does not know"),
            target_consumers: register!("target_consumers", "Consumers on the tier's target queue"),
            paused: register!("paused", "1 while this is paused, 0 while it is not; absent when unknown"),
            wakefulness: register!("wakefulness", "1 for the state that the relay is in"),
            waits_for: register!("waits_for_transactions", "Open transactions that are waited for on the way to sleep"),
            sleeps: register!("sleeps", "Times the relay fell asleep until a producer rings"),
            phases: register!("batch_seconds", "What a batch waits for: its claim, its confirms, its settle", times()),
            lag: register!("lag_seconds", "From the moment a row could go to its confirm", times()),
            rules: Rules::new(&mut registry),
            closer: Closer::new(&mut registry),
            registry,
        }
    }
}

impl Metrics {
    /// Makes the counters of these tiers and of both ends exist at 0, so that their first increase is one.
    pub fn start_at_zero<'a>(&self, tiers: impl Iterator<Item = &'a String>) {
        for tier in tiers {
            let label = ByTier { tier: tier.clone() };
            for family in [&self.published, &self.confirmed, &self.returned, &self.nacked, &self.unknown, &self.parked]
            {
                drop(family.get_or_create(&label));
            }
        }
        self.notification_queue.set(f64::NAN);
        for side in ["postgres", "rabbitmq"] {
            drop(self.reconnects.get_or_create(&BySide { side }));
            self.set_up(side, false);
        }
    }

    /// Adds `count` to a tier's counter; nothing is created for a count of 0.
    pub fn add(family: &PerTier, tier: &str, count: usize) {
        if count > 0 {
            family.get_or_create(&ByTier { tier: tier.to_owned() }).inc_by(count as u64);
        }
    }

    /// Notes what a phase of a batch took.
    pub fn took(&self, phase: &'static str, span: Duration) {
        self.phases.get_or_create(&ByPhase { phase }).observe(span.as_secs_f64());
    }

    /// Notes the lags of a tier's messages, in microseconds.
    pub fn lags(&self, tier: &str, lags: impl Iterator<Item = i64>) {
        let lag = self.lag.get_or_create(&ByTier { tier: tier.to_owned() });
        for micros in lags {
            lag.observe(micros as f64 / 1e6);
        }
    }

    /// Sets whether an end is usable.
    pub fn set_up(&self, side: &'static str, up: bool) {
        self.up.get_or_create(&BySide { side }).set(i64::from(up));
    }

    /// Sets the state that the relay is in.
    pub fn set_wakefulness(&self, now: &Wakefulness) {
        for state in Wakefulness::NAMES {
            self.wakefulness.get_or_create(&ByState { state }).set(i64::from(state == now.name()));
        }
        self.waits_for.set(i64::try_from(now.waits_for().len()).unwrap_or(i64::MAX));
    }

    /// Replaces what is known of the backlog; `None` makes it absent, never the last value.
    pub fn set_backlog(&self, rows: Option<&[Backlog]>) {
        self.backlog.clear();
        self.held.clear();
        self.oldest_age.clear();
        for row in rows.unwrap_or_default() {
            let label = ByTier { tier: row.tier.clone() };
            self.backlog.get_or_create(&label).set(row.backlog);
            self.held.get_or_create(&label).set(row.held);
            self.oldest_age.get_or_create(&label).set(row.oldest_age.unwrap_or_default().as_secs_f64());
        }
    }

    /// Replaces what is known of the pauses: of `known`, those `paused` and all others. `None` makes it absent.
    pub fn set_paused(&self, known: impl Iterator<Item = String>, paused: Option<impl Iterator<Item = String>>) {
        self.paused.clear();
        let Some(paused) = paused else { return };
        let known = known.map(|what| (what, 0));
        for (what, value) in known.chain(paused.map(|what| (what, 1))) {
            self.paused.get_or_create(&ByWhat { what }).set(value);
        }
    }

    /// The text that Prometheus reads.
    ///
    /// # Errors
    /// The encoder failed, which it does not for a `String`.
    pub fn render(&self) -> Result<String, std::fmt::Error> {
        let mut out = String::new();
        text::encode(&mut out, &self.registry)?;
        Ok(out)
    }
}

/// What waits in one tier.
#[derive(Debug, Clone, PartialEq)]
pub struct Backlog {
    /// The tier.
    pub tier: String,
    /// Pending rows that could go now.
    pub backlog: i64,
    /// Pending rows held until later.
    pub held: i64,
    /// Age of the oldest row that could go now, if there is one.
    pub oldest_age: Option<Duration>,
}

impl Backlog {
    /// What was counted, with a row of zeros for each of `tiers` that nothing waits in: zero is known, not unknown.
    #[must_use]
    pub fn complete<'a>(counted: &[Self], tiers: impl Iterator<Item = &'a String>) -> Vec<Self> {
        let idle = tiers.filter(|tier| !counted.iter().any(|row| row.tier == **tier));
        let zero = |tier: &String| Self { tier: tier.clone(), backlog: 0, held: 0, oldest_age: None };
        let mut rows: Vec<Self> = idle.map(zero).chain(counted.iter().cloned()).collect();
        rows.sort_by(|a, b| a.tier.cmp(&b.tier));
        rows
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unknown_is_absent() {
        let metrics = Metrics::default();
        let row = Backlog { tier: "t".into(), backlog: 7, held: 2, oldest_age: Some(Duration::from_millis(1500)) };
        metrics.set_backlog(Some(&[row]));
        let text = metrics.render().unwrap();
        assert!(text.contains("duebox_backlog{tier=\"t\"} 7"), "{text}");
        assert!(text.contains("duebox_oldest_age_seconds{tier=\"t\"} 1.5"), "{text}");
        metrics.set_backlog(None);
        assert!(!metrics.render().unwrap().contains("duebox_backlog{"));
    }
}
