//! The metrics of rules.

use super::{Seconds, Times};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use std::time::Duration;

/// Who applies rules.
const BY: [&str; 2] = ["sweep", "closer"];

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct OfRule {
    rule: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByRule {
    rule: String,
    by: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    rule: String,
    by: &'static str,
    reason: &'static str,
}

/// What rules did, by the name of the rule and by who applied it, `sweep` or `closer`.
#[derive(Debug)]
pub struct Rules {
    closed: Family<ByRule, Counter>,
    refused: Family<ByReason, Counter>,
    lateness: Times<ByRule>,
    last_pass: Family<OfRule, Seconds>,
    observed: Family<OfRule, Gauge>,
}

/// From a millisecond to over an hour: a closer is late by milliseconds, a sweep by minutes.
fn lateness() -> Histogram {
    Histogram::new(exponential_buckets(0.001, 4.0, 12))
}

impl Rules {
    pub(super) fn new(registry: &mut Registry) -> Self {
        let rules = Self {
            closed: Family::default(),
            refused: Family::default(),
            lateness: Family::new_with_constructor(lateness as fn() -> Histogram),
            last_pass: Family::default(),
            observed: Family::default(),
        };
        registry.register(
            "rule_closed",
            "Orders closed by this relay, or to which it applied a rule without `to`",
            rules.closed.clone(),
        );
        registry.register("rule_refused", "Orders left as they are by this relay, by reason", rules.refused.clone());
        registry.register(
            "rule_lateness_seconds",
            "From overdue to closed, or to when a rule without `to` was applied",
            rules.lateness.clone(),
        );
        let last_pass = "When the last pass of any relay ended, in seconds since 1970; 0 when none has";
        registry.register("rule_last_pass_timestamp_seconds", last_pass, rules.last_pass.clone());
        let observed =
            "Orders that a rule with mode = observe would close, or be applied to, as of this relay's last pass";
        registry.register("rule_observed", observed, rules.observed.clone());
        rules
    }

    /// Makes everything of these rules exist at 0, so that the first increase of each is one.
    pub fn start_at_zero<'a>(&self, rules: impl Iterator<Item = &'a String>, reasons: &[&'static str]) {
        for rule in rules {
            for by in BY {
                let label = ByRule { rule: rule.clone(), by };
                drop(self.closed.get_or_create(&label));
                drop(self.lateness.get_or_create(&label));
                for reason in reasons {
                    drop(self.refused.get_or_create(&ByReason { rule: rule.clone(), by, reason }));
                }
            }
            drop(self.last_pass.get_or_create(&OfRule { rule: rule.clone() }));
            drop(self.observed.get_or_create(&OfRule { rule: rule.clone() }));
        }
    }

    /// Counts an order that was closed so long after it was overdue.
    pub fn closed(&self, rule: &str, by: &'static str, late: Duration) {
        let label = ByRule { rule: rule.to_owned(), by };
        self.closed.get_or_create(&label).inc();
        self.lateness.get_or_create(&label).observe(late.as_secs_f64());
    }

    /// Counts an order that was left as it is.
    pub fn refused(&self, rule: &str, by: &'static str, reason: &'static str) {
        self.refused.get_or_create(&ByReason { rule: rule.to_owned(), by, reason }).inc();
    }

    /// Notes when the last pass of a rule ended, in seconds since 1970.
    pub fn passed(&self, rule: &str, at: f64) {
        self.last_pass.get_or_create(&OfRule { rule: rule.to_owned() }).set(at);
    }

    /// Notes how many orders a rule that only observes would close.
    pub fn observed(&self, rule: &str, orders: usize) {
        let orders = i64::try_from(orders).unwrap_or(i64::MAX);
        self.observed.get_or_create(&OfRule { rule: rule.to_owned() }).set(orders);
    }
}
