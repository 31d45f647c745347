//! `[closer]`: the consumer that applies a rule when its message falls due.

use std::collections::BTreeMap;

use super::rule::{Mode, Rule};
use super::sections::Sweep;
use super::shape::{MAX_AMQP_NAME, boolean, list, show_list, text, whole};
use super::table::{Reader, Table};
use super::tiers::Tiers;

/// `[closer]`: the consumer that applies a rule when its message falls due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Closer {
    /// Whether this relay consumes at all.
    pub enabled: bool,
    /// Queues to consume, each the target of a tier; empty: the targets of the tiers that rules name.
    pub queues: Vec<String>,
    /// Most unacked deliveries of a queue, 1 to 10,000.
    pub prefetch: u16,
    /// Orders looked at side by side, 1 to 64; each holds one database connection meanwhile.
    pub concurrency: usize,
    /// Most orders looked at in a second, 1 to 1,000,000.
    pub rate: Option<u32>,
    /// Failures after which a message is parked, 1 to 1,000; outages and locked orders are none.
    pub max_attempts: u32,
    /// Whether others may consume the same queues.
    pub shared: bool,
}

/// A message is no reason to look at an order twice.
const NO_SWEEP: &str = "sweep.enabled is false, and closer.enabled is true: an order that must not be closed when its message \
    comes (its rule is paused, its guard or its function says no) has no other; only a sweep comes back to it: another \
    relay's, or duebox sweep --once now and then";

impl Closer {
    /// Reads the table.
    pub(crate) fn read(mut table: Table<'_>) -> Self {
        let closer = Self {
            enabled: table.or("enabled", false, &boolean()),
            queues: table.optional("queues", &list(text(MAX_AMQP_NAME), |all| show_list(all))).unwrap_or_default(),
            prefetch: table.or("prefetch", 50, &whole(1..=10_000)),
            concurrency: table.or("concurrency", 5, &whole(1..=64)),
            rate: table.optional("rate", &whole(1..=1_000_000)),
            max_attempts: table.or("max_attempts", 5, &whole(1..=1_000)),
            shared: table.or("shared", false, &boolean()),
        };
        table.finish();
        closer
    }

    /// How many database connections it holds at most.
    pub(crate) fn connections(&self) -> usize {
        if self.enabled { self.concurrency } else { 0 }
    }

    /// Checks what looks at tiers and rules as well.
    pub(crate) fn check(&self, reader: &mut Reader, tiers: &Tiers, rules: &BTreeMap<String, Rule>, sweep: &Sweep) {
        // What stands in broken tables is not known: no second problem for that.
        if !reader.problems.is_empty() {
            return;
        }
        let known = |queue: &str| tiers.built.values().any(|tier| tier.target.queue() == Some(queue));
        for queue in self.queues.iter().filter(|queue| !known(queue)) {
            let rule = format!(
                "names '{queue}', which is the target queue of no tier: a message that is held or parked could not \
                 go back to it"
            );
            reader.problem(&["closer", "queues"], rule);
        }
        if self.enabled {
            self.check_rules(reader, tiers, rules);
        }
        if self.enabled && !sweep.enabled {
            reader.warnings.push(NO_SWEEP.to_owned());
        }
    }

    fn check_rules(&self, reader: &mut Reader, tiers: &Tiers, rules: &BTreeMap<String, Rule>) {
        let mut named = BTreeMap::<&str, &str>::new();
        let mut consumed: BTreeMap<&str, String> =
            self.queues.iter().map(|queue| (queue.as_str(), "[closer] queues".to_owned())).collect();
        // One that only observes leaves its messages to others.
        for (name, rule) in rules.iter().filter(|(_, rule)| rule.mode == Mode::Enforce) {
            let Some(tier) = rule.tier.as_deref() else { continue };
            if let Some(queue) = end(tiers, tier).filter(|_| self.queues.is_empty()) {
                consumed.entry(queue).or_insert_with(|| format!("rule {name}"));
            }
            if let Some(other) = named.insert(tier, name) {
                let text =
                    format!("must not be that of rule {other} too: the closer could not tell which one to apply");
                reader.problem(&["rule", name, "tier"], text);
            }
        }
        for (name, rule) in rules.iter().filter(|(_, rule)| rule.mode == Mode::Observe) {
            // A tier that a closing rule names as well is that one's.
            let Some(tier) = rule.tier.as_deref().filter(|tier| !named.contains_key(tier)) else { continue };
            if let Some((queue, whose)) = end(tiers, tier).and_then(|queue| consumed.get_key_value(queue)) {
                let text = format!(
                    "must not lead to queue '{queue}', which the closer consumes ({whose}): this rule only observes, \
                     so its messages would be taken and nothing done; give its tier a queue of its own, take `tier` \
                     away, or set mode = \"enforce\""
                );
                reader.problem(&["rule", name, "tier"], text);
            }
        }
        if consumed.is_empty() {
            let observes = |(_, rule): &(&String, &Rule)| rule.mode == Mode::Observe && rule.tier.is_some();
            let observes = rules.iter().find(observes).map_or_else(String::new, |(name, _)| {
                format!(" (rule {name} only observes, so its messages stay with whoever consumes them now: enabled = false until it enforces)")
            });
            let text = format!(
                "needs something to consume: a rule that closes, with a `tier` whose target has a `queue`; or `queues`{observes}"
            );
            reader.problem(&["closer", "enabled"], text);
        }
    }
}

/// The queue in which a tier ends.
fn end<'a>(tiers: &'a Tiers, tier: &str) -> Option<&'a str> {
    tiers.built.get(tier)?.target.queue()
}
