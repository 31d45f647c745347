//! What a check of the topology found, and how it is made known.

use crate::admin::health::{Health, Part, UNCONSUMED};
use crate::admin::metrics::{ByTier, Metrics};
use crate::tier::Tier;
use std::collections::{BTreeMap, BTreeSet};

/// Something on the broker that is not as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::broker) struct Problem {
    pub(in crate::broker) tier: String,
    pub(in crate::broker) text: String,
    /// It exists and differs: waiting does not heal it, and publishing through it would delay wrongly.
    pub(in crate::broker) mismatch: bool,
}

/// What a check found.
#[derive(Debug, Default)]
pub(in crate::broker) struct Report {
    pub(in crate::broker) problems: Vec<Problem>,
    /// Delay queues of ours that are there now.
    pub(in crate::broker) declared: BTreeSet<String>,
    /// Delay queues whose arguments nobody could compare, with the reason.
    pub(super) uncompared: BTreeMap<String, String>,
    /// Target queues that are there now.
    pub(in crate::broker) targets: BTreeSet<String>,
    /// Consumers by tier: on the target queue, and on the delay queue.
    pub(super) consumers: BTreeMap<String, (Option<u32>, Option<u32>)>,
}

impl Report {
    /// What does not heal by waiting, for the last words before exit code 78.
    pub(in crate::broker) fn mismatches(&self) -> Option<String> {
        let texts: Vec<&str> = self.problems.iter().filter(|p| p.mismatch).map(|p| p.text.as_str()).collect();
        (!texts.is_empty()).then(|| texts.join("\n"))
    }

    /// Makes it known: one part of the health for each tier.
    pub(in crate::broker) fn publish(
        &self,
        tiers: &[Tier],
        consumed_here: &BTreeSet<String>,
        health: &Health,
        metrics: &Metrics,
    ) {
        for tier in tiers {
            let texts: Vec<&str> =
                self.problems.iter().filter(|p| p.tier == tier.name).map(|p| p.text.as_str()).collect();
            let part = Part::Tier(tier.name.clone());
            if texts.is_empty() {
                health.well(&part);
            } else {
                health.problem(&part, &texts.join("; "));
            }
            let (target, delay) = self.consumers.get(&tier.name).copied().unwrap_or_default();
            let label = ByTier { tier: tier.name.clone() };
            match target {
                Some(count) => drop(metrics.target_consumers.get_or_create(&label).set(i64::from(count))),
                None => drop(metrics.target_consumers.remove(&label)),
            }
            let part = Part::Consumers(tier.name.clone());
            match (target, delay) {
                (_, Some(count)) if count > 0 => {
                    let text =
                        format!("a consumer is on the delay queue ({count}): it gets messages before they are due");
                    health.problem(&part, &text);
                }
                // While our own closer is about to consume it, or says why it does not. One that the closer takes for
                // consumed is named: the broker has forgotten its consumer.
                (Some(0), _) if tier.target.queue().is_some_and(|queue| comes(consumed_here, queue, health)) => {
                    health.forget(&part);
                }
                (Some(0), _) => health.problem(&part, UNCONSUMED),
                _ => health.forget(&part),
            }
        }
    }
}

/// Whether our own closer comes for a queue, and has not come yet.
fn comes(consumed_here: &BTreeSet<String>, queue: &str, health: &Health) -> bool {
    consumed_here.contains(queue) && health.parts().get(&Part::Closer(queue.to_owned())) != Some(&None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::{Kind, Target};

    #[test]
    fn a_queue_that_our_own_closer_comes_for_is_not_called_unconsumed_until_it_should_be_there() {
        let tier = |name: &str| Tier {
            name: name.into(),
            kind: Kind::Direct,
            target: Target::Queue(format!("{name}.due")),
            mandatory: true,
        };
        let tiers = ["ours", "theirs"].map(tier);
        let consumers = tiers.iter().map(|tier| (tier.name.clone(), (Some(0), None))).collect();
        let (report, health) = (Report { consumers, ..Report::default() }, Health::default());
        let named = || {
            report.publish(&tiers, &BTreeSet::from(["ours.due".to_owned()]), &health, &Metrics::default());
            let problems = health.problems().into_iter();
            problems.filter(|(_, why)| why == UNCONSUMED).map(|(part, _)| part.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(named(), ["consumers of tier theirs"], "the closer has not come yet");
        health.well(&Part::Closer("ours.due".into()));
        assert_eq!(named(), ["consumers of tier ours", "consumers of tier theirs"], "it thinks that it consumes");
        health.problem(&Part::Closer("ours.due".into()), "somebody else consumes");
        assert_eq!(named(), ["consumers of tier theirs"], "it says itself why not");
    }
}
