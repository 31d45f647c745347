//! A look at the topology that changes nothing, for `duebox check --connect`.

use super::walk::walk;
use super::{Check, Refusal, Report};
use crate::broker::error::Error;
use crate::broker::link::{Endpoint, Settings};
use crate::broker::management::Management;
use crate::broker::socket;
use crate::tier::{Kind, Target, Tier};
use std::collections::BTreeSet;

/// What `check --connect` finds on the broker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inspection {
    /// Wrong, and it stays wrong until somebody acts.
    pub problems: Vec<String>,
    /// Worth knowing.
    pub notes: Vec<String>,
}

/// Looks at what `tiers` need on the broker at `endpoint`, with its management API if there is one, and changes nothing.
///
/// # Errors
/// The broker cannot be asked.
pub async fn inspect(
    endpoint: &Endpoint,
    settings: &Settings,
    tiers: &[Tier],
    management: Option<&Management>,
) -> Result<Inspection, Error> {
    let (connection, _cut) =
        socket::connect(endpoint, "duebox check", settings.heartbeat, settings.connect_timeout).await?;
    let check = Check { connection: &connection, settings, known: BTreeSet::new(), report: Report::default() };
    let mut look = Look { check, found: Inspection::default() };
    for tier in tiers {
        look.target(tier).await?;
        look.delay(tier).await?;
    }
    let Look { check, mut found } = look;
    found.notes.extend(check.report.uncompared.values().cloned());
    for tier in tiers {
        let Some(management) = management else { break };
        // What it cannot tell is no fault of the topology.
        if let Err(error) = walk(management, tier, &mut found).await {
            found.notes.push(format!("rabbitmq.management_url: {error}; bindings and policies were not looked at"));
            break;
        }
    }
    let compared = check.report.problems.iter().map(|problem| format!("tier {}: {}", problem.tier, problem.text));
    found.problems.extend(compared);
    Ok(found)
}

struct Look<'a> {
    check: Check<'a>,
    found: Inspection,
}

impl Look<'_> {
    /// The queue and the exchange that messages end in.
    async fn target(&mut self, tier: &Tier) -> Result<(), Error> {
        if let Some(queue) = tier.target.queue() {
            match self.check.passive(queue).await? {
                Ok(there) if there.consumer_count() == 0 => {
                    self.found.notes.push(format!("tier {}: nobody consumes target queue '{queue}'", tier.name));
                }
                Ok(_) => {}
                Err(refusal) => self.missing(tier, "target queue", queue, &refusal),
            }
        }
        if let Target::Exchange { exchange, exchange_type, .. } = &tier.target
            && let Err(refusal) = self.check.exchange_there(exchange).await?
        {
            if exchange_type.is_some() || self.check.verifies() {
                self.missing(tier, "exchange", exchange, &refusal);
            } else {
                self.found.problems.push(format!(
                    "tier {}: exchange '{exchange}' is missing ({}); declare it, or give exchange_type so that `run` does",
                    tier.name, refusal.code
                ));
            }
        }
        Ok(())
    }

    /// What messages wait in, and the exchange in front of it.
    async fn delay(&mut self, tier: &Tier) -> Result<(), Error> {
        if let Kind::Plugin { exchange, .. } = &tier.kind
            && let Err(refusal) = self.check.exchange_there(exchange).await?
        {
            self.missing(tier, "exchange", exchange, &refusal);
        }
        let Kind::Queue { queue, .. } = &tier.kind else { return Ok(()) };
        let entrance = &queue.hop.exchange;
        if !entrance.is_empty()
            && let Err(refusal) = self.check.exchange_there(entrance).await?
        {
            self.found.problems.push(format!(
                "tier {}: exchange '{entrance}' in front of its delay queue is missing ({}); declare it",
                tier.name, refusal.code
            ));
        }
        match self.check.passive(&queue.name).await? {
            Ok(there) => {
                if there.consumer_count() > 0 {
                    let (name, queue) = (&tier.name, &queue.name);
                    self.found.problems.push(format!(
                        "tier {name}: a consumer is on delay queue '{queue}': it gets messages before they are due; let it consume \
                         the target"
                    ));
                }
                // It is there, so declaring it creates nothing and compares its arguments.
                self.check.delay_queue(tier, queue).await?;
            }
            Err(refusal) => self.missing(tier, "delay queue", &queue.name, &refusal),
        }
        Ok(())
    }

    fn missing(&mut self, tier: &Tier, what: &str, queue: &str, refusal: &Refusal) {
        let Refusal { code, text } = refusal;
        if refusal.is_missing() && self.check.verifies() {
            self.found.problems.push(format!(
                "tier {}: {what} '{queue}' is missing; declare it, or let `run` do it with rabbitmq.topology = \"declare\"",
                tier.name
            ));
        } else if refusal.is_missing() {
            self.found.notes.push(format!("tier {}: {what} '{queue}' is not there yet; `run` declares it", tier.name));
        } else {
            self.found.problems.push(format!("tier {}: {what} '{queue}': {code} {text}", tier.name));
        }
    }
}
