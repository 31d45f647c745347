//! Which queues are consumed, which rule a message is about, and which tier takes one back. Pure.

use crate::config::{Closer, Mode, Rule};
use crate::tier::{Target, Tier};
use std::collections::{BTreeMap, BTreeSet};

/// What the closer knows of tiers and rules.
#[derive(Debug)]
pub(super) struct Plan {
    /// Queues to consume.
    queues: BTreeSet<String>,
    /// The rule of each tier that one names; of several, the one that closes.
    rules: BTreeMap<String, String>,
    /// All tiers: the queue they end in, and whether their rows bring their own routing keys.
    tiers: BTreeMap<String, (Option<String>, bool)>,
}

/// Where a message of a queue is held or parked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Home {
    /// The tier.
    pub(super) tier: String,
    /// Whether its rows bring their own routing keys.
    pub(super) row_key: bool,
}

impl Plan {
    pub(super) fn new(closer: &Closer, tiers: &BTreeMap<String, Tier>, rules: &BTreeMap<String, Rule>) -> Self {
        // Those that close come last and stay.
        let named = |mode| {
            rules
                .iter()
                .filter(move |(_, rule)| rule.mode == mode)
                .filter_map(|(name, rule)| Some((rule.tier.clone()?, name.clone())))
        };
        let closing: BTreeSet<String> = named(Mode::Enforce).map(|(tier, _)| tier).collect();
        let rules: BTreeMap<String, String> = named(Mode::Observe).chain(named(Mode::Enforce)).collect();
        let end = |tier: &Tier| {
            let row_key = matches!(tier.target, Target::Exchange { routing_key: None, .. });
            (tier.target.queue().map(str::to_owned), row_key)
        };
        let tiers: BTreeMap<_, _> = tiers.iter().map(|(name, tier)| (name.clone(), end(tier))).collect();
        let queues = match closer.queues.is_empty() {
            true => closing.iter().filter_map(|tier| tiers.get(tier)?.0.clone()).collect(),
            false => closer.queues.iter().cloned().collect(),
        };
        Self { queues, rules, tiers }
    }

    /// Queues to consume.
    pub(super) fn queues(&self) -> impl Iterator<Item = &String> {
        self.queues.iter()
    }

    /// The rule that a message of `queue` with this tier header is about, or why there is none.
    pub(super) fn rule(&self, queue: &str, tier: Option<&str>) -> Result<&str, String> {
        // A tier of another configuration, or of an earlier one, says nothing.
        if let Some(tier) = tier.filter(|tier| self.tiers.contains_key(*tier)) {
            return match self.rules.get(tier) {
                Some(rule) => Ok(rule),
                None => Err(format!("no rule is about the messages of tier {tier}")),
            };
        }
        let ends_here = |tier: &str| self.tiers.get(tier).is_some_and(|(end, _)| end.as_deref() == Some(queue));
        let about: Vec<&str> =
            self.rules.iter().filter(|(tier, _)| ends_here(tier)).map(|(_, rule)| rule.as_str()).collect();
        match about.as_slice() {
            [] => Err(format!("no rule is about the messages of queue '{queue}'")),
            [rule] => Ok(rule),
            several => Err(format!(
                "it names no tier of ours, and several rules are about the messages of queue '{queue}': {}",
                several.join(", ")
            )),
        }
    }

    /// The tier that takes a message of `queue` back: its own, if that leads to the queue, else one that a rule is about.
    pub(super) fn home(&self, queue: &str, tier: Option<&str>) -> Option<Home> {
        let ends_here = |(_, (end, _)): &(&String, &(Option<String>, bool))| end.as_deref() == Some(queue);
        let own = tier.and_then(|tier| self.tiers.get_key_value(tier)).filter(ends_here);
        let ruled = || self.rules.keys().filter_map(|tier| self.tiers.get_key_value(tier)).find(ends_here);
        let (tier, (_, row_key)) = own.or_else(ruled).or_else(|| self.tiers.iter().find(ends_here))?;
        Some(Home { tier: tier.clone(), row_key: *row_key })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::Kind;

    fn tier(name: &str, target: Target) -> (String, Tier) {
        (name.into(), Tier { name: name.into(), kind: Kind::Direct, target, mandatory: true })
    }

    fn plan(queues: &[&str], rules: &[(&str, &str)]) -> Plan {
        let exchange = |routing_key: Option<&str>, queue: Option<&str>| Target::Exchange {
            exchange: "x".into(),
            exchange_type: None,
            routing_key: routing_key.map(Into::into),
            queue: queue.map(Into::into),
        };
        let tiers = BTreeMap::from([
            tier("events", Target::Queue("events".into())),
            tier("half-hour", Target::Queue("due".into())),
            tier("hour", exchange(Some("k"), Some("due"))),
            tier("keys", exchange(None, Some("keyed"))),
            tier("nowhere", exchange(None, None)),
        ]);
        let rules = rules.iter().map(|(tier, rule)| ((*tier).to_owned(), (*rule).to_owned())).collect();
        let closer = Closer {
            enabled: true,
            queues: queues.iter().map(|queue| (*queue).to_owned()).collect(),
            prefetch: 1,
            concurrency: 1,
            rate: None,
            max_attempts: 1,
            shared: false,
        };
        let mut plan = Plan::new(&closer, &tiers, &BTreeMap::new());
        plan.rules = rules;
        plan
    }

    #[test]
    fn the_tier_decides_about_the_rule_and_else_the_queue() {
        let one = plan(&[], &[("half-hour", "unpaid")]);
        assert_eq!(one.rule("due", Some("half-hour")), Ok("unpaid"));
        assert_eq!(one.rule("due", None), Ok("unpaid"));
        assert_eq!(one.rule("due", Some("of another shop")), Ok("unpaid"));
        assert!(one.rule("due", Some("hour")).unwrap_err().contains("tier hour"));
        assert!(one.rule("events", None).unwrap_err().contains("queue 'events'"));
        let two = plan(&[], &[("half-hour", "unpaid"), ("hour", "slow")]);
        assert_eq!(two.rule("due", Some("hour")), Ok("slow"));
        assert!(two.rule("due", None).unwrap_err().ends_with("unpaid, slow"));
    }

    #[test]
    fn a_message_goes_back_by_its_own_tier_or_by_one_that_leads_to_its_queue() {
        let plan = plan(&["due"], &[]);
        let home = |queue, tier| plan.home(queue, tier).map(|home| (home.tier, home.row_key));
        assert_eq!(home("due", Some("hour")), Some(("hour".into(), false)));
        assert_eq!(home("due", Some("events")), Some(("half-hour".into(), false)));
        assert_eq!(home("keyed", None), Some(("keys".into(), true)));
        assert_eq!(home("else", None), None);
    }
}
