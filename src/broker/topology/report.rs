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
                // One that this daemon consumes is about to be, or the closer says why it is not.
                (Some(0), _) if !tier.target.queue().is_some_and(|queue| consumed_here.contains(queue)) => {
                    health.problem(&part, UNCONSUMED);
                }
                _ => health.forget(&part),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tier::{Kind, Target};

    #[test]
    fn a_queue_that_our_own_closer_consumes_is_not_called_unconsumed() {
        let tier = |name: &str| Tier {
            name: name.into(),
            kind: Kind::Direct,
            target: Target::Queue(format!("{name}.due")),
            mandatory: true,
        };
        let tiers = ["ours", "theirs"].map(tier);
        let consumers = tiers.iter().map(|tier| (tier.name.clone(), (Some(0), None))).collect();
        let (report, health) = (Report { consumers, ..Report::default() }, Health::default());
        report.publish(&tiers, &BTreeSet::from(["ours.due".to_owned()]), &health, &Metrics::default());
        assert_eq!(health.problems(), [(Part::Consumers("theirs".into()), UNCONSUMED.to_owned())]);
    }
}
