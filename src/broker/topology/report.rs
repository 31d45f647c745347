//! What a check of the topology found, and how it is made known.

use crate::admin::health::{Health, Part};
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
    pub(in crate::broker) fn publish(&self, tiers: &[Tier], health: &Health, metrics: &Metrics) {
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
                (Some(0), _) => health.problem(&part, "nobody consumes the target queue"),
                _ => health.forget(&part),
            }
        }
    }
}
